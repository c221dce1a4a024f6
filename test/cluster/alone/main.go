// Command alone measures the CPU and memory of the manager's binary. One process simulates the objects and watches of an API server, and
// the agents' writes. No other process takes part, so changes of the manager are visible even on a busy machine. Package scale measures
// the cost of a real control plane.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/reaper"
)

type settings struct {
	manager, former                            string
	runs                                       int
	nodes, volumes, mounts, settings, profiles int
	writeDelay, idle                           time.Duration
	profileDir                                 string
	parts                                      string
}

func main() {
	var s settings
	flag.StringVar(&s.manager, "manager", "bin/manager", "The manager binary.")
	flag.StringVar(&s.former, "former", "", "The manager binary of an earlier commit. Both play in turn; the figure is the ratio of the medians.")
	flag.IntVar(&s.runs, "runs", 3, "Number of runs of each of two managers.")
	flag.IntVar(&s.nodes, "nodes", 5000, "Number of nodes.")
	flag.IntVar(&s.volumes, "volumes", 20000, "Number of volumes.")
	flag.IntVar(&s.mounts, "mounts", 0, "Number of mounts that each node reports.")
	flag.IntVar(&s.settings, "settings", 2, "Number of settings of each node.")
	flag.IntVar(&s.profiles, "profiles", 500, "Number of profiles to add at the end.")
	flag.DurationVar(&s.writeDelay, "delay", 4*time.Millisecond, "Duration of a write.")
	flag.DurationVar(&s.idle, "idle", 30*time.Second, "Duration of the idle part.")
	flag.StringVar(&s.profileDir, "pprof", "", "Directory for a CPU profile and a heap profile of each part. Empty disables them.")
	flag.StringVar(&s.parts, "parts", "tuning,volumes,live,idle,profiles", "Parts to run, in this order.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := errors.New("no run: -runs must be at least 1")
	switch {
	case s.former == "":
		_, err = run(ctx, s)
	case s.runs > 0:
		err = compare(ctx, s)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "alone:", err)
		os.Exit(1)
	}
}

// world is the measured system.
type world struct {
	settings
	*server

	agents *agents

	address string
	process *os.Process
}

// run plays the parts once, and returns their costs.
func run(ctx context.Context, s settings) ([]cost, error) {
	if err := reaper.Start(); err != nil {
		return nil, err
	}
	w := &world{settings: s, server: newServer(s.writeDelay)}
	w.agents = newAgents(w.server, s.mounts)
	w.wrote = w.agents.see
	w.fill()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	go func() { _ = http.Serve(listener, w.server) }()
	go w.agents.run(ctx)
	dir, err := os.MkdirTemp("", "storage-client-alone-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	exit, cancel := context.WithCancelCause(ctx)
	costs, err := []cost(nil), w.startManager(exit, cancel, listener.Addr().String(), dir)
	if err == nil {
		costs, err = w.playAll(exit)
		_ = w.process.Kill()
		<-exit.Done()
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, fmt.Errorf("%w: the end of its log:\n%s", err, log[max(0, len(log)-3000):])
	}
	return costs, nil
}

func (w *world) playAll(ctx context.Context) ([]cost, error) {
	var costs []cost
	for part := range strings.SplitSeq(w.parts, ",") {
		c, err := w.play(ctx, part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part, err)
		}
		costs = append(costs, c)
	}
	return costs, nil
}

// startManager starts the manager. It calls exited when the process exits.
func (w *world) startManager(ctx context.Context, exited context.CancelCauseFunc, server, dir string) error {
	// A free port for profiles of the manager.
	free, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.address = free.Addr().String()
	if err := free.Close(); err != nil {
		return err
	}
	config := filepath.Join(dir, "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n" +
		"clusters: [{name: a, cluster: {server: \"http://" + server + "\"}}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, w.manager, "--kubeconfig="+config, "--health-probe-bind-address=0", "--min-live-soak=0s", "--max-concurrent-live=100%",
		`--allow-parameter=sysctl/fs\.scale\.s[0-9]+`,
		"--pprof-bind-address="+w.address)
	command.Env = append(os.Environ(), "CONTAINER_MEMORY_LIMIT="+strconv.Itoa(1<<30))
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return err
	}
	w.process = command.Process
	go func() { exited(fmt.Errorf("the manager has exited: %w", command.Wait())) }()
	return w.awaitAnswer(ctx)
}

// awaitAnswer waits until the manager serves requests for a profile.
func (w *world) awaitAnswer(ctx context.Context) error {
	for {
		if connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.address); err == nil {
			return connection.Close()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var errUnknown = errors.New("unknown part")

func (w *world) play(ctx context.Context, part string) (cost, error) {
	do, known := map[string]func(context.Context) error{
		"tuning": w.startTuning, "volumes": w.declareVolumes, "live": w.changeLive, "idle": w.stayIdle, "profiles": w.addProfiles, "none": func(context.Context) error { return nil },
	}[part]
	if !known {
		return cost{}, errUnknown
	}
	before, err := controlplane.UsageOf(w.process.Pid)
	if err != nil {
		return cost{}, err
	}
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.process.Pid), []byte("5"), 0)
	w.mutex.Lock()
	w.writes = map[string]int{}
	w.mutex.Unlock()
	began, profiled := time.Now(), make(chan error, 1)
	if w.profileDir != "" {
		go func() { profiled <- w.profile(ctx, part) }()
	}
	if err := do(ctx); err != nil {
		return cost{}, err
	}
	took := time.Since(began)
	if err := w.awaitQuiet(ctx); err != nil {
		return cost{}, err
	}
	after, err := controlplane.UsageOf(w.process.Pid)
	if err != nil {
		return cost{}, err
	}
	w.mutex.Lock()
	fmt.Printf("%-9s %6.1f s, manager's CPU %6.1f s, peak %4d MiB, now %4d MiB, writes %v\n", part, took.Seconds(), (after.CPU - before.CPU).Seconds(),
		after.PeakBytes>>20, after.AnonymousBytes>>20, w.writes)
	w.mutex.Unlock()
	out := cost{part, (after.CPU - before.CPU).Seconds(), float64(after.PeakBytes >> 20)}
	if w.profileDir != "" {
		return out, errors.Join(<-profiled, w.fetch(ctx, "heap", part+".heap"))
	}
	return out, nil
}

// profile saves a CPU profile of the first seconds of a part.
func (w *world) profile(ctx context.Context, part string) error {
	seconds := 20
	if part != "idle" {
		seconds = 60
	}
	return w.fetch(ctx, "profile?seconds="+strconv.Itoa(seconds), part+".cpu")
}

func (w *world) fetch(ctx context.Context, what, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.address+"/debug/pprof/"+what, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.profileDir, file), data, 0o600)
}

// awaitQuiet waits until there have been no writes for five seconds.
func (w *world) awaitQuiet(ctx context.Context) error {
	return w.await(ctx, func() bool { return time.Since(w.lastWrite) > 5*time.Second })
}

// await polls done with the lock held.
func (w *world) await(ctx context.Context, done func() bool) error {
	for {
		w.mutex.Lock()
		ok := done()
		w.mutex.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// profileNow returns the current profile. The lock must be held.
func (w *world) profileNow(name string) *v1alpha1.StorageClientProfile {
	profile := &v1alpha1.StorageClientProfile{}
	if o := w.kinds[prefixOf(v1alpha1.GroupVersion)+"storageclientprofiles"].objects["/"+name]; o != nil {
		_ = json.Unmarshal(o.raw, profile)
	}
	return profile
}

func (w *world) awaitDone(ctx context.Context, generation int64) error {
	return w.await(ctx, func() bool {
		p := w.profileNow("scale")
		ready := slices.ContainsFunc(conditionsOf(p), func(s string) bool { return s == "Ready=True" })
		return ready && p.Status.ObservedGeneration >= generation && int(p.Status.Nodes.UpToDate) == w.nodes &&
			(len(p.Spec.Volumes) == 0 || int(p.Status.Volumes.UpToDate) == w.volumes)
	})
}

func conditionsOf(p *v1alpha1.StorageClientProfile) []string {
	var out []string
	for _, c := range p.Status.Conditions {
		out = append(out, c.Type+"="+string(c.Status))
	}
	return out
}

func (w *world) stayIdle(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(w.idle):
	}
	return context.Cause(ctx)
}
