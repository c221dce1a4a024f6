package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

// fieldManager owns the annotations that the plugin writes.
const fieldManager = "kubectl-storageclient"

// environment is what the commands share; tests replace its functions.
type environment struct {
	genericiooptions.IOStreams
	connect func() (client.Client, error)
	now     func() time.Time
	// screen is the terminal that Out is, false where it is none. ticks ticks until it is stopped.
	screen func() (view.Screen, bool)
	ticks  func(every time.Duration) (ticks <-chan time.Time, stop func())
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	env := &environment{IOStreams: streams, now: time.Now, connect: func() (client.Client, error) { return connect(flags) }}
	env.screen, env.ticks = func() (view.Screen, bool) { return findScreen(streams.Out) }, startTicks
	root := rootCommand(env)
	flags.AddFlags(root.PersistentFlags())
	return root
}

func rootCommand(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:          "kubectl-storageclient",
		Short:        "Tune the storage clients of nodes and volumes",
		SilenceUsage: true,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl storageclient"},
	}
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.ErrOut)
	root.AddCommand(statusCommand(env), getCommand(env), planCommand(env), approveCommand(env), pauseCommand(env), resumeCommand(env), retryCommand(env), explainCommand(env), versionCommand(env))
	return root
}

func connect(flags *genericclioptions.ConfigFlags) (client.Client, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	// client-go's own 5 requests a second are for controllers: a plan of 40 profiles asks more often, once.
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return c, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	return scheme, nil
}

func getProfile(ctx context.Context, c client.Client, name string) (*v1alpha1.StorageClientProfile, error) {
	profile := &v1alpha1.StorageClientProfile{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, profile); err != nil {
		return nil, fmt.Errorf("get StorageClientProfile %s: %w", name, err)
	}
	return profile, nil
}

// output is the flag -o.
type output string

func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "", "output format: text, json or yaml")
}

// writeStructured prints a value as JSON or YAML if -o asks for it, and reports whether it did.
func (o output) writeStructured(env *environment, value any) (bool, error) {
	var data []byte
	var err error
	switch o {
	case "", "text":
		return false, nil
	case "json":
		if data, err = json.MarshalIndent(value, "", "  "); err == nil {
			data = append(data, '\n')
		}
	case "yaml":
		data, err = yaml.Marshal(value)
	default:
		return false, fmt.Errorf("--output %q: must be text, json or yaml", string(o))
	}
	if err != nil {
		return false, fmt.Errorf("encode output: %w", err)
	}
	_, err = env.Out.Write(data)
	return true, err
}
