package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/cluster/measure"
	"github.com/storageclient/operator/test/cluster/sandbox"
)

const (
	// bootTime is the duration of a simulated boot.
	bootTime = 20 * time.Second
	// timeout is the maximum duration of each part.
	timeout = 20 * time.Minute
	// quietFor is the time without writes after which a part counts as finished. It must exceed the ten seconds for which agents delay
	// reports.
	quietFor = 15 * time.Second
	// idleFor is the duration of the part "idle", during which the cluster does not change.
	idleFor = 60 * time.Second
	// auditLag is the maximum delay of the audit log, which is written in batches of two seconds.
	auditLag = 4 * time.Second
)

// run is one size.
type run struct {
	Nodes int `json:"nodes"`
	// RealAgents is true if the real loop of the agent runs on simulated machines.
	RealAgents bool `json:"realAgents"`
	// Mounts and Settings are the numbers that each node reports in a run that only measures their memory. 0 runs the usual parts.
	Mounts   int    `json:"mounts,omitempty"`
	Settings int    `json:"settings,omitempty"`
	Load     string `json:"load"`
	// Volumes is the number of volumes.
	Volumes int    `json:"volumes"`
	Parts   []part `json:"parts"`
	// Webhook contains the response times of the webhook while all volumes exist.
	Webhook *latencies `json:"webhook,omitempty"`
}

// latencies contains the latencies of calls over HTTPS, in milliseconds.
type latencies struct {
	Calls  int     `json:"calls"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

func (r run) String() string {
	switch {
	case r.RealAgents:
		return fmt.Sprintf("%d nodes, real agents", r.Nodes)
	case r.Mounts > 0:
		return fmt.Sprintf("%d nodes, %d mounts and %d settings each", r.Nodes, r.Mounts, r.Settings)
	}
	return fmt.Sprintf("%d nodes", r.Nodes)
}

// part is one change of the cluster, and its cost.
type part struct {
	Name string `json:"name"`
	// Touched is the number of affected nodes. Writes per node are based on it.
	Touched int     `json:"touched"`
	Seconds float64 `json:"seconds"`
	// ManagerCPU and APIServerCPU are CPU times, in seconds.
	ManagerCPU   float64 `json:"managerCPU"`
	APIServerCPU float64 `json:"apiServerCPU"`
	// PeakMiB is the manager's largest resident set so far, MiB the one at the end.
	PeakMiB int64            `json:"peakMiB"`
	MiB     int64            `json:"mib"`
	Manager measure.Requests `json:"manager"`
	Agents  measure.Requests `json:"agents"`

	from, done, to time.Time
}

// world is one size in progress.
type world struct {
	*sandbox.Sandbox
	*run
	settings settings
	managers []*controlplane.Process
	profile  *v1alpha1.StorageClientProfile
	apiPID   int
	// webhookPort is the port of the first manager. The next port belongs to the second manager.
	webhookPort int
	progress    func(format string, args ...any)
}

func measureSize(ctx context.Context, s settings, next run) (_ run, err error) {
	next.Load, next.Volumes = measure.LoadAverage(), next.Nodes*s.volumesPerNode
	options := s.Options
	if options.Dir, err = os.MkdirTemp("", "storage-client-scale-"); err != nil {
		return next, err
	}
	defer os.RemoveAll(options.Dir)
	began := time.Now()
	options.Nodes, options.BootTime, options.Light, options.Mounts, options.Pools = next.Nodes, bootTime, !next.RealAgents, next.Mounts, s.profiles
	options.Progress = func(format string, args ...any) {
		fmt.Printf("%4.0f s  %s: %s\n", time.Since(began).Seconds(), next, fmt.Sprintf(format, args...))
	}
	w := &world{run: &next, settings: s, progress: options.Progress}
	if w.Sandbox, err = sandbox.Start(ctx, options); err != nil {
		return next, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	if w.apiPID, err = findChild("kube-apiserver"); err != nil {
		return next, err
	}
	if err := w.playParts(ctx); err != nil {
		return next, fmt.Errorf("%w\nthe end of the manager's log:\n%s", err, w.ManagerLog())
	}
	return next, w.countRequests()
}

// playParts runs the measured parts one after the other.
func (w *world) playParts(ctx context.Context) error {
	if w.Mounts > 0 {
		return w.play(ctx, "first tuning", w.Nodes, w.startTuning)
	}
	if err := w.addSurroundings(ctx); err != nil {
		return err
	}
	for _, next := range []struct {
		name    string
		touched int
		do      func(context.Context) error
	}{
		{"first tuning", w.Nodes, w.startTuning},
		{"volumes: a tenth is written", w.Volumes / 10, w.declareVolumes},
		{"webhook: 2,000 new volumes", webhookCalls, w.askWebhook},
		{"live change", w.Nodes, w.changeLive},
		{"live change of the network", w.Nodes, w.changeNetwork},
		{"edit without effect on nodes", w.Nodes, w.editProfile},
		{"reboot of 1 %", w.rebooting(), w.rebootSome},
		{"idle for a minute", w.Nodes, w.stayIdle},
		{"restart of the manager", w.Nodes, w.restartManager},
		{"failover to a second manager", w.Nodes, w.failOver},
		{fmt.Sprintf("%d more profiles", w.settings.profiles), w.settings.profiles, w.addProfiles},
	} {
		if err := w.play(ctx, next.name, next.touched, next.do); err != nil {
			return fmt.Errorf("%s: %w", next.name, err)
		}
	}
	return nil
}

// play makes one change, waits until there are no more writes, and records the cost.
func (w *world) play(ctx context.Context, name string, touched int, do func(context.Context) error) error {
	w.progress("%s", name)
	p := part{Name: name, Touched: touched, from: time.Now()}
	before, apiBefore, err := w.usage()
	if err != nil {
		return err
	}
	former := w.managers
	if err := do(ctx); err != nil {
		return err
	}
	p.done = time.Now()
	if err := w.awaitQuiet(ctx, &p); err != nil {
		return err
	}
	after, apiAfter, err := w.usage()
	if err != nil {
		return err
	}
	if len(w.managers) > 0 && !slices.Contains(former, w.managers[0]) {
		// A manager that started in this part has no earlier usage. The usage of stopped managers does not count.
		before = controlplane.Usage{}
	}
	p.Seconds = p.done.Sub(p.from).Seconds()
	p.ManagerCPU, p.APIServerCPU = (after.CPU - before.CPU).Seconds(), (apiAfter.CPU - apiBefore.CPU).Seconds()
	p.PeakMiB, p.MiB = after.PeakBytes>>20, after.AnonymousBytes>>20
	w.Parts = append(w.Parts, p)
	w.progress("%s: %.1f s, %.1f s of the manager's CPU, peak %d MiB", name, p.Seconds, p.ManagerCPU, p.PeakMiB)
	return nil
}

// usage returns the total usage of all managers, with the peak of the largest one.
func (w *world) usage() (managers, api controlplane.Usage, err error) {
	for _, process := range w.managers {
		if !process.Running() {
			continue
		}
		usage, err := process.Usage()
		if err != nil {
			return managers, api, err
		}
		managers.CPU += usage.CPU
		managers.PeakBytes = max(managers.PeakBytes, usage.PeakBytes)
		managers.AnonymousBytes = max(managers.AnonymousBytes, usage.AnonymousBytes)
	}
	api, err = controlplane.UsageOf(w.apiPID)
	return managers, api, err
}

// awaitQuiet waits until neither the manager nor the agents have written for a while. Writes after the awaited state belong to the part,
// but do not extend its duration.
func (w *world) awaitQuiet(ctx context.Context, p *part) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(quietFor / 3):
		}
		last, err := w.Plane.LastWrite(controlplane.Manager, controlplane.Agent)
		if err != nil {
			return err
		}
		if now := time.Now(); now.Sub(last) > quietFor && now.Sub(p.done) > auditLag || now.Sub(p.done) > timeout {
			p.to = now
			return nil
		}
	}
}

// countRequests counts each part's requests after the measurement of the cluster.
func (w *world) countRequests() error {
	requests, err := w.Plane.Requests()
	if err != nil {
		return err
	}
	for i := range w.Parts {
		p := &w.Parts[i]
		p.Manager = measure.Count(requests, controlplane.Manager, p.from, p.to)
		p.Agents = measure.Count(requests, controlplane.Agent, p.from, p.to)
	}
	return nil
}

func (w *world) await(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, timeout, true, done); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// change edits the profile, and waits until its status refers to the edit and is as expected.
func (w *world) change(ctx context.Context, what string, edit func(*v1alpha1.StorageClientProfile), satisfied func(*v1alpha1.StorageClientProfile) bool) error {
	if err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.profile), w.profile); err != nil {
		return err
	}
	patch := client.MergeFrom(w.profile.DeepCopy())
	edit(w.profile)
	if err := w.Client.Patch(ctx, w.profile, patch); err != nil {
		return err
	}
	return w.await(ctx, what, func(ctx context.Context) (bool, error) {
		err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.profile), w.profile)
		return w.profile.Status.ObservedGeneration == w.profile.Generation && satisfied(w.profile), err
	})
}
