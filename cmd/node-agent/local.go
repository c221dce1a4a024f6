package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/agent/sample"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/program"
)

// errNotAsDeclared is returned after a report that is not as declared. The exit code is 2.
var errNotAsDeclared = errors.New("not as declared")

type localOptions struct {
	files, allow, allowFilesystems program.Strings
	hostRoot, output               string
	noConfirm                      bool
	window                         time.Duration
}

func parseLocal(command string, args []string, stderr io.Writer) (localOptions, error) {
	var o localOptions
	set := flag.NewFlagSet("node-agent "+command, flag.ContinueOnError)
	set.Var(&o.files, "f", "file with StorageClientProfiles in YAML or JSON, or - for standard input; can be repeated")
	set.StringVar(&o.hostRoot, "host-root", "/", "root directory of the host, or of an image tree without a running kernel")
	set.StringVar(&o.output, "o", "text", "report format: "+strings.Join(localreport.Formats, ", "))
	set.Var(&o.allow, "allow-parameter", "regular expression of canonical keys that are accepted in addition to the catalogue; can be repeated")
	set.Var(&o.allowFilesystems, "allow-filesystem", allowFilesystemUsage)
	if command == localreport.Apply {
		set.BoolVar(&o.noConfirm, "no-confirm", false,
			"keep settings that affect the network without testing them with a new connection to a mounted server")
	}
	if command == localreport.Observe {
		set.DurationVar(&o.window, "window", 0,
			"measure the mounts for this time and recommend settings, instead of reporting the state of settings; up to 1h")
	}
	if err := parseFlags(set, args, stderr); err != nil {
		return o, err
	}
	switch {
	case !slices.Contains(localreport.Formats, o.output):
		return o, fmt.Errorf("-o %q: must be %s", o.output, strings.Join(localreport.Formats, ", "))
	case len(o.files) == 0 && (command == localreport.Plan || command == localreport.Apply):
		return o, errors.New("-f PROFILE is required")
	case o.window != 0 && (o.window < time.Second || o.window > time.Hour):
		return o, fmt.Errorf("--window %s: must be from 1s to 1h", o.window)
	case o.window != 0 && len(o.files) > 0:
		return o, errors.New("--window measures mounts, not settings: remove -f")
	}
	return o, nil
}

func runLocal(command string, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parseLocal(command, args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var profiles []v1alpha1.StorageClientProfile
	inputs := program.Inputs{Stdin: stdin}
	for _, file := range o.files {
		err := program.Await(ctx, func() error {
			read, err := readProfiles(file, &inputs)
			profiles = append(profiles, read...)
			return err
		})
		if err != nil {
			return err
		}
	}
	if o.window != 0 {
		return observeMounts(ctx, o, stdout, stderr)
	}
	r, err := runCommand(ctx, command, o, profiles)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if err := r.Write(stdout, o.output); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if !r.AsDeclared {
		return errNotAsDeclared
	}
	return nil
}

// observeMounts writes a report of the mounts during the window, with recommended settings.
func observeMounts(ctx context.Context, o localOptions, stdout, stderr io.Writer) error {
	fs, err := host.OpenFS(o.hostRoot)
	if err != nil {
		return err
	}
	defer fs.Close()
	if !fs.RunsKernel() {
		return fmt.Errorf("--window: %s is an image without mounts", o.hostRoot)
	}
	fmt.Fprintf(stderr, "Reading counters for %s ...\n", o.window)
	sampler := sample.Sampler{Mounts: mounts.NewReader(fs.AsReadOnly(), mounts.DefaultKubeletDir), Sockets: sockets.Read, Clock: clock.RealClock{}}
	samples, err := sampler.Take(ctx, o.window)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	return sample.Evaluate(o.window, agent.ThisMachine(fs), samples).Write(stdout, o.output)
}

func runCommand(ctx context.Context, command string, o localOptions, profiles []v1alpha1.StorageClientProfile) (localreport.Report, error) {
	fs, err := host.OpenFS(o.hostRoot)
	if err != nil {
		return localreport.Report{}, err
	}
	defer fs.Close()
	isWriting := command == localreport.Apply || command == localreport.Restore
	if isWriting {
		unlock, err := fs.Lock()
		if err != nil {
			return localreport.Report{}, err
		}
		defer func() { _ = unlock() }()
	}
	l := newLocal(fs, isWriting, agent.Allowed{Parameters: o.allow, Filesystems: o.allowFilesystems})
	l.NoConfirm = o.noConfirm
	return l.Run(ctx, command, profiles)
}

func newLocal(fs host.FS, isWriting bool, allowed agent.Allowed) agent.Local {
	var runner host.Runner = host.NewCommands(fs)
	if !fs.RunsKernel() {
		fs, runner = fs.AsImage(), agent.ImageRunner{Runner: runner}
	}
	if !isWriting {
		fs = fs.AsReadOnly()
	}
	return agent.Local{Machine: agent.NewMachine(fs, runner, mounts.DefaultKubeletDir), Allowed: allowed, Clock: clock.RealClock{}}
}

// readProfiles reads the StorageClientProfiles of one file. An unknown field is an error, because no API server validates the file.
func readProfiles(file string, inputs *program.Inputs) ([]v1alpha1.StorageClientProfile, error) {
	data, err := inputs.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read profile %s: %w", file, err)
	}
	var profiles []v1alpha1.StorageClientProfile
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read profile %s: %w", file, err)
		}
		profile, err := parseProfile(document)
		if err != nil {
			return nil, fmt.Errorf("read profile %s: document %d: %w", file, len(profiles)+1, err)
		}
		if profile != nil {
			profiles = append(profiles, *profile)
		}
	}
	if len(profiles) == 0 {
		return nil, fmt.Errorf("read profile %s: file contains no StorageClientProfile", file)
	}
	return profiles, nil
}

// parseProfile returns nil for a document that is empty or contains only comments.
func parseProfile(document []byte) (*v1alpha1.StorageClientProfile, error) {
	content, err := program.Parse(document)
	if err != nil {
		return nil, err
	}
	if len(content) == 0 {
		return nil, nil
	}
	if content["apiVersion"] != v1alpha1.GroupVersion.String() || content["kind"] != "StorageClientProfile" {
		return nil, fmt.Errorf("object is %v %v: must be %s StorageClientProfile", content["apiVersion"], content["kind"], v1alpha1.GroupVersion)
	}
	var profile v1alpha1.StorageClientProfile
	if err := program.DecodeStrictly(document, &profile); err != nil {
		return nil, err
	}
	return &profile, checkShape(&profile)
}

// checkShape validates the fields that determine whether and how settings are applied and removed, like the API server.
func checkShape(p *v1alpha1.StorageClientProfile) error {
	if p.Name == "" {
		return errors.New("metadata.name: required")
	}
	spec := p.Spec.WithDefaults()
	if spec.Mode != v1alpha1.ModeEnforce && spec.Mode != v1alpha1.ModePlan {
		return fmt.Errorf("spec.mode: %q: must be Enforce or Plan", spec.Mode)
	}
	if spec.DeletionPolicy != v1alpha1.DeletionRestore && spec.DeletionPolicy != v1alpha1.DeletionRetain {
		return fmt.Errorf("spec.deletionPolicy: %q: must be Restore or Retain", spec.DeletionPolicy)
	}
	return nil
}
