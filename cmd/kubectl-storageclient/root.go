package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/terminal"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/tuning/text"
)

// environment contains the dependencies that all commands share. Tests replace its functions.
type environment struct {
	// Out and ErrOut show control characters as escapes. rootCommand sets them, and raw, which is the unchanged output for trees.
	genericiooptions.IOStreams
	raw     io.Writer
	connect func() (client.WithWatch, error)
	now     func() time.Time
	// namespace returns the value of -n, or the namespace of the kubeconfig context.
	namespace func() (string, error)
	// screen returns the terminal behind Out, false if it is not a terminal. ticks returns ticks until it is stopped.
	screen func() (view.Screen, bool)
	ticks  func(every time.Duration) (ticks <-chan time.Time, stop func())
	// colours is true if tables have colors.
	colours bool
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	env := &environment{
		IOStreams: streams, now: time.Now, connect: func() (client.WithWatch, error) { return connect(flags, streams.ErrOut) },
		colours: coloursEnabled(streams.Out, os.Getenv),
	}
	env.screen, env.ticks = func() (view.Screen, bool) { return findScreen(streams.Out, env.colours) }, startTicks
	env.namespace = func() (string, error) {
		namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return "", fmt.Errorf("read namespace of kubeconfig: %w", err)
		}
		return namespace, nil
	}
	root := rootCommand(env)
	flags.AddFlags(root.PersistentFlags())
	return root
}

func rootCommand(env *environment) *cobra.Command {
	env.raw, env.Out, env.ErrOut = env.Out, &terminal.Writer{Out: env.Out}, &terminal.Writer{Out: env.ErrOut, Indent: "  "}
	root := &cobra.Command{
		Use:          "kubectl-storageclient",
		SilenceUsage: true,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl storageclient"},
	}
	root.SetIn(env.In)
	root.SetOut(&terminal.Writer{Out: env.raw, Tabs: true}) // cobra separates completions from their descriptions with tabs
	root.SetErr(env.ErrOut)
	root.AddCommand(statusCommand(env), planCommand(env), approveCommand(env), pauseCommand(env, "pause PROFILE", v1alpha1.True), pauseCommand(env, "resume PROFILE", nil),
		env.profileCommand("retry PROFILE [NODE]", cobra.RangeArgs(1, 2), env.retryProfile), explainCommand(env), versionCommand(env))
	root.AddCommand(getCommand(env), recommendCommand(env), trialCommand(env))
	root.AddCommand(env.outputCommand("node NAME", cobra.ExactArgs(1), env.readNode), volumesCommand(env),
		env.outputCommand("servers", cobra.NoArgs, readServers), diffCommand(env), optionsCommand(env))
	addHelp(root)
	root.SetUsageTemplate(usage)
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true // the template appends [options], like kubectl
	}
	addCompletions(root, env)
	addHints(root)
	return root
}

func connect(flags *genericclioptions.ConfigFlags, warnings io.Writer) (client.WithWatch, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	// client-go's default of 5 requests per second is for controllers. A plan of 40 profiles sends more requests, but only once.
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NewWarningWriter(&terminal.Writer{Out: warnings, Indent: "  "}, rest.WarningWriterOptions{Deduplicate: true})
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

func (env *environment) command(use string, args cobra.PositionalArgs, run func(ctx context.Context, c client.Client, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		c, err := env.connect()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}}
}

// outputCommand returns a command that reads a value from the cluster and prints it in the format of -o.
func (env *environment) outputCommand(
	use string, args cobra.PositionalArgs, read func(ctx context.Context, c client.Client, args []string) (printable, error),
) *cobra.Command {
	var o output
	cmd := env.command(use, args, func(ctx context.Context, c client.Client, args []string) error {
		value, err := read(ctx, c, args)
		if err != nil {
			return err
		}
		return o.write(env, value)
	})
	o.addFlag(cmd)
	return cmd
}

// profileRun runs a command about the profile that its first argument names. rest are the other arguments.
type profileRun func(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, rest []string) error

func (env *environment) profileCommand(use string, args cobra.PositionalArgs, run profileRun) *cobra.Command {
	return env.command(use, args, func(ctx context.Context, c client.Client, args []string) error {
		profile, err := getProfile(ctx, c, args[0])
		if err != nil {
			return err
		}
		return run(ctx, c, profile, args[1:])
	})
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
		return nil, profileError(ctx, c, name, err)
	}
	return profile, nil
}

// profileError returns the error of a profile that could not be read, with the most similar name if there is no such profile.
func profileError(ctx context.Context, c client.Client, name string, err error) error {
	err = fmt.Errorf("get StorageClientProfile %s: %w", name, err)
	if apierrors.IsNotFound(err) {
		return suggestName(ctx, c, profileKind, err, name)
	}
	return err
}

type output string

// formats are the values of -o that all commands support.
var formats = []string{"text", "wide", "json", "yaml", "name"}

// addFlag adds the flag -o. The command does not run with an unknown format.
func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "", "Output format: "+listFormats())
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
}

func listFormats() string {
	return strings.Join(formats[:len(formats)-1], ", ") + " or " + formats[len(formats)-1]
}

func (o output) isWide() bool { return o == "wide" }

// named is a value that represents API objects.
type named interface {
	// Names returns the object names in the form that kubectl accepts: resource/name.
	Names() []string
}

// writeStructured prints a value as JSON or YAML, or prints only its object names, if -o requests it. It reports whether it printed.
func (o output) writeStructured(env *environment, value named) (bool, error) {
	var data []byte
	var err error
	switch o {
	case "", "text", "wide":
		return false, nil
	case "json":
		if data, err = json.MarshalIndent(value, "", "  "); err == nil {
			data = append(data, '\n')
		}
	case "yaml":
		data, err = terminal.YAML(value)
	case "name":
		for _, name := range value.Names() {
			data = append(data, text.Escape(name, "")+"\n"...)
		}
	default:
		return false, o.check()
	}
	if err != nil {
		return false, fmt.Errorf("encode output: %w", err)
	}
	_, err = env.Out.Write(data)
	return true, err
}

// printable is a value that text output shows in tables.
type printable interface {
	named
	WriteText(w io.Writer, wide bool) error
}

func (o output) write(env *environment, value printable) error {
	if done, err := o.writeStructured(env, value); done || err != nil {
		return err
	}
	return value.WriteText(env.text(), o.isWide())
}

func (o output) check() error {
	if o == "" || slices.Contains(formats, string(o)) {
		return nil
	}
	return fmt.Errorf("--output %q: must be %s", string(o), listFormats())
}
