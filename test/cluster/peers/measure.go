package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/storageclient/operator/test/cluster/apps"
	"github.com/storageclient/operator/test/cluster/history"
	"github.com/storageclient/operator/test/cluster/measure"
	"github.com/storageclient/operator/test/cluster/sandbox"
)

// contender is a program that reboots the nodes.
type contender interface {
	name() string
	// prepare sets up everything before begin, which only requests the reboots.
	prepare(ctx context.Context, w *world) error
	begin(ctx context.Context, w *world) error
	// stop stops the parts that Sandbox.Stop does not stop.
	stop()
	// users returns the contender's user names in the API server.
	users() []string
	// describe returns the simulated parts and the setup.
	describe() string
	// says returns the contender's report about a node that has not come back.
	says(ctx context.Context, w *world, lost string) string
}

// world is one run of a contender.
type world struct {
	*sandbox.Sandbox
	settings      settings
	dir           string
	nodes, budget int
	boots         map[string]string
	progress      func(format string, args ...any)
}

// result is the result of one contender.
type result struct {
	Name  string `json:"name"`
	Setup string `json:"setup"`
	// Failure is the reason why there is no result.
	Failure string `json:"failure,omitempty"`
	Load    string `json:"load"`
	// Done is the number of nodes that were rebooted and returned to service, after Seconds. Bound is the shortest possible time.
	Done    int     `json:"done"`
	Seconds float64 `json:"seconds"`
	Bound   float64 `json:"bound"`
	// MostOut is the largest number of nodes that were out at the same time.
	MostOut int `json:"mostOut"`
	// Boots is the number of boots. Problems contains the violations that the watches recorded, such as too few healthy pods.
	Boots    int      `json:"boots"`
	Problems []string `json:"problems,omitempty"`
	// Writes, Reads, Evictions and DryRuns are requests to the API server.
	Writes    int `json:"writes"`
	Reads     int `json:"reads"`
	Evictions int `json:"evictions"`
	DryRuns   int `json:"dryRuns"`
	// Loss is the result of a run in which the first node that shut down did not come back.
	Loss loss `json:"loss"`
}

// loss is a run in which the first nodes do not come back.
type loss struct {
	Nodes, Budget, Done, StillOut, MostOut int
	Seconds                                float64
	Says                                   string
}

// lossNodes and lossBudget are the size of the run with a node that does not come back.
const lossNodes, lossBudget = 10, 2

func measurePeer(ctx context.Context, s settings, c contender) (result, error) {
	r := result{Name: c.name(), Setup: c.describe(), Load: measure.LoadAverage()}
	if err := playJob(ctx, s, c, &r); err != nil {
		return r, err
	}
	return r, playLoss(ctx, s, c, &r)
}

// start starts a cluster with applications and the contender.
func start(ctx context.Context, s settings, c contender, nodes, budget int) (w *world, stop func() error, err error) {
	options := s.Options
	if options.Dir, err = os.MkdirTemp("", "storage-client-peers-"); err != nil {
		return nil, nil, err
	}
	began := time.Now()
	options.Nodes, options.AuditReads = nodes, c.users()
	options.Progress = func(format string, args ...any) {
		fmt.Printf("%4.0f s  %s: %s\n", time.Since(began).Seconds(), c.name(), fmt.Sprintf(format, args...))
	}
	w = &world{settings: s, dir: options.Dir, nodes: nodes, budget: budget, progress: options.Progress}
	if w.Sandbox, err = sandbox.Start(ctx, options); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(options.Dir))
	}
	stop = func() error {
		c.stop()
		return errors.Join(w.Stop(), os.RemoveAll(options.Dir))
	}
	if err := w.prepare(ctx, c); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return w, stop, nil
}

func (w *world) prepare(ctx context.Context, c contender) error {
	if err := apps.Add(ctx, w.Client, w.nodes); err != nil {
		return err
	}
	if err := w.await(ctx, "the applications to run", 10*time.Minute, func(ctx context.Context) (bool, error) {
		return apps.Running(ctx, w.Client, w.nodes)
	}); err != nil {
		return err
	}
	var err error
	if w.boots, err = w.bootIDs(ctx); err != nil {
		return err
	}
	return c.prepare(ctx, w)
}

func playJob(ctx context.Context, s settings, c contender, r *result) error {
	w, stop, err := start(ctx, s, c, s.nodes, s.budget)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	recorder, err := history.Record(ctx, w.Client)
	if err != nil {
		return err
	}
	defer recorder.Stop()
	w.progress("requesting the reboots")
	began := time.Now()
	if err := c.begin(ctx, w); err != nil {
		return err
	}
	waitErr := w.await(ctx, "the last node to return", s.patience, func(ctx context.Context) (bool, error) {
		done, err := w.done(ctx)
		if err == nil {
			r.Done = done
		}
		return err == nil && done == w.nodes, nil
	})
	if waitErr != nil && !wait.Interrupted(waitErr) {
		return waitErr
	}
	ended := time.Now()
	r.Seconds = ended.Sub(began).Seconds()
	r.Bound = float64((w.nodes+w.budget-1)/w.budget) * (apps.DrainTime + s.BootTime).Seconds()
	// The writes after the last node belong to the part, and the audit log is written in batches.
	time.Sleep(20 * time.Second)
	verdict := recorder.Evaluate(history.Rules{Budget: w.budget, Replicas: apps.PodsByApp(w.nodes)})
	r.MostOut = verdict.MostOut
	for _, problem := range verdict.Problems {
		// Only this operator has claims.
		if !strings.Contains(problem, "without a claim") {
			r.Problems = append(r.Problems, problem)
		}
	}
	for _, boots := range verdict.Boots {
		r.Boots += boots
	}
	requests, err := w.Plane.Requests()
	if err != nil {
		return err
	}
	for _, user := range c.users() {
		q := measure.Count(requests, user, began, time.Now())
		r.Writes, r.Reads = r.Writes+q.Writes, r.Reads+q.Lists+q.Gets
		r.Evictions, r.DryRuns = r.Evictions+q.Evictions, r.DryRuns+q.DryRuns
		w.progress("requests of %s:\n%s", user, q.Table(w.nodes))
	}
	w.progress("%d of %d nodes in %.0f s, at most %d out", r.Done, w.nodes, r.Seconds, r.MostOut)
	return nil
}

// playLoss runs a cluster whose first node to shut down does not come back.
func playLoss(ctx context.Context, s settings, c contender, r *result) error {
	w, stop, err := start(ctx, s, c, lossNodes, lossBudget)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	recorder, err := history.Record(ctx, w.Client)
	if err != nil {
		return err
	}
	defer recorder.Stop()
	w.Light.LoseFirst()
	w.progress("requesting the reboots; the first node that shuts down does not come back")
	began := time.Now()
	if err := c.begin(ctx, w); err != nil {
		return err
	}
	err = w.await(ctx, "the result of the loss", s.lossPatience, func(ctx context.Context) (bool, error) {
		done, err := w.done(ctx)
		if err == nil {
			r.Loss.Done = done
		}
		return err == nil && done >= w.nodes-1, nil
	})
	if err != nil && !wait.Interrupted(err) {
		return err
	}
	verdict := recorder.Evaluate(history.Rules{Budget: w.budget, Replicas: apps.PodsByApp(w.nodes)})
	r.Loss.Nodes, r.Loss.Budget, r.Loss.Seconds = w.nodes, w.budget, time.Since(began).Seconds()
	r.Loss.MostOut, r.Loss.StillOut = verdict.MostOut, len(verdict.StillOut)
	r.Loss.Says = c.says(ctx, w, w.Light.LostNode())
	w.progress("with a node that does not come back: %+v", r.Loss)
	return nil
}

func (w *world) await(ctx context.Context, what string, patience time.Duration, done func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, done); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

func (w *world) bootIDs(ctx context.Context) (map[string]string, error) {
	list := &corev1.NodeList{}
	err := w.Client.List(ctx, list)
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].Status.NodeInfo.BootID
	}
	return out, err
}

// done returns the number of nodes that have booted and are in service again.
func (w *world) done(ctx context.Context) (count int, err error) {
	list := &corev1.NodeList{}
	if err := w.Client.List(ctx, list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		node := &list.Items[i]
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if ready && !node.Spec.Unschedulable && node.Status.NodeInfo.BootID != w.boots[node.Name] {
			count++
		}
	}
	return count, nil
}
