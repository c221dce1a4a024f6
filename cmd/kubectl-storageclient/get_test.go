package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/test/check"
)

// rollingNode returns a node of profile eda with a rollout status.
func rollingNode(phase v1alpha1.RolloutPhase, reason string) *v1alpha1.StorageClientNode {
	n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Spec.Settings = []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "eda"}}
	n.Status.Rollout = &v1alpha1.RolloutStatus{Phase: phase, Reason: reason, Message: "as it is"}
	return n
}

func rollingCluster() []client.Object {
	objects := cluster()
	return []client.Object{objects[0], rollingNode(v1alpha1.RolloutDraining, "WaitingForPods"), eda()}
}

func forbidNodes(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if _, isNodes := list.(*corev1.NodeList); isNodes {
		return apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)
	}
	return c.List(ctx, list, opts...)
}

func TestGetShowsOneFrame(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, rollingCluster(), "get", "eda")
	want := "eda is done\nNodes   [------------------------] 0/0  1 Draining\n\nz  0/1\n└─ n1  Draining             WaitingForPods: as it is\n"
	if diff := cmp.Diff(want, r.out); r.err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", r.err, diff)
	}
}

func TestGetAsViewerReportsMissingPermissions(t *testing.T) {
	r := execute(t, interceptor.Funcs{List: forbidNodes}, rollingCluster(), "get", "eda")
	if r.err != nil || !strings.Contains(r.out, "Note: no permission to list Nodes: zones are unknown, and nodes without a StorageClientNode are missing") ||
		!strings.Contains(r.out, "└─ n1  Draining") {
		t.Errorf("%v:\n%s", r.err, r.out)
	}
}

func TestGetErrorsNameTheCorrectCommand(t *testing.T) {
	tests := map[string]struct{ args, want string }{
		"no name":             {"get", "usage: kubectl storageclient get PROFILE (kubectl get scp lists the profiles)"},
		"a profile not there": {"get nobody", "List the profiles with: kubectl get scp"},
		"a watch as JSON":     {"get eda -w -o json", "--watch supports only text: remove --watch or --output json"},
		"an unknown format":   {"get eda -o xml", "must be text, wide"},
		"a misspelt flag":     {"get eda --wach", "Did you mean --watch?"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := execute(t, interceptor.Funcs{}, rollingCluster(), strings.Split(test.args, " ")...)
			if r.err == nil || !strings.Contains(r.err.Error(), test.want) {
				t.Errorf("got error %v, want it to contain %q", r.err, test.want)
			}
		})
	}
}

// waitFor is a writer that signals each write.
type waitFor struct {
	mu      sync.Mutex
	out     bytes.Buffer
	written chan struct{}
}

func newWaitFor() *waitFor { return &waitFor{written: make(chan struct{}, 1)} }

func (w *waitFor) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.written <- struct{}{}:
	default:
	}
	return w.out.Write(p)
}

func (w *waitFor) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.String()
}

// until waits until the output contains a text. If the text never appears, the timeout of go test ends the test.
func (w *waitFor) until(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(w.String(), text) {
		<-w.written
	}
}

// watching runs "get eda --watch" until the caller calls stop, which returns the command's error.
func watching(t *testing.T, funcs interceptor.Funcs, out io.Writer, screen func() (view.Screen, bool)) (c client.WithWatch, stop func() error) {
	t.Helper()
	scheme, err := newScheme()
	check.NoError(t, err)
	c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(rollingCluster()...).WithStatusSubresource(&v1alpha1.StorageClientProfile{}).WithInterceptorFuncs(funcs).
		WithIndex(&v1alpha1.StorageClientProfile{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	env := &environment{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}, screen: screen,
		connect: func() (client.WithWatch, error) { return c, nil },
		now:     func() time.Time { return time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC) },
		ticks:   func(time.Duration) (<-chan time.Time, func()) { return nil, func() {} },
	}
	ctx, cancel := context.WithCancel(t.Context())
	root := rootCommand(env)
	root.SetArgs([]string{"get", "eda", "--watch"})
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	return c, func() error {
		cancel()
		return <-done
	}
}

func pipe() (view.Screen, bool) { return view.Screen{}, false }

func TestWatchInAPipePrintsALineForEachChange(t *testing.T) {
	out := newWaitFor()
	watched := make(chan struct{}, 3)
	c, stop := watching(t, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
		w, err := c.Watch(ctx, list, opts...)
		watched <- struct{}{}
		return w, err
	}}, out, pipe)
	out.until(t, "n1 Draining WaitingForPods: as it is\n")
	for range 3 {
		<-watched
	}
	var clientNode v1alpha1.StorageClientNode
	check.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &clientNode))
	clientNode.Status = rollingNode(v1alpha1.RolloutRebooting, "RebootPermitted").Status
	check.NoError(t, c.Update(t.Context(), &clientNode))
	out.until(t, "2026-09-01T00:00:00Z n1 Rebooting RebootPermitted: as it is\n")
	if err := stop(); err != nil {
		t.Errorf("got error %v after Ctrl-C", err)
	}
	want := "2026-09-01T00:00:00Z eda is done\n2026-09-01T00:00:00Z n1 Draining WaitingForPods: as it is\n2026-09-01T00:00:00Z n1 Rebooting RebootPermitted: as it is\n"
	check.Equal(t, "lines", want, out.String())
}

func TestWatchOnATerminalLeavesTheLastFrame(t *testing.T) {
	out := newWaitFor()
	_, stop := watching(t, interceptor.Funcs{}, out, func() (view.Screen, bool) { return view.Screen{Width: 80, Height: 24, Colour: true}, true })
	out.until(t, "n1  ")
	if err := stop(); err != nil {
		t.Errorf("got error %v after Ctrl-C", err)
	}
	alternate, last, found := strings.Cut(out.String(), leaveScreen)
	if !found || !strings.HasPrefix(alternate, enterScreen+home) || !strings.HasPrefix(last, "eda is done\n") {
		t.Errorf("got on the alternate screen:\n%q\nand after it:\n%q", alternate, last)
	}
}

func TestWatchEndsWithTheProfile(t *testing.T) {
	out := newWaitFor()
	watched := make(chan struct{}, 3)
	c, stop := watching(t, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
		w, err := c.Watch(ctx, list, opts...)
		watched <- struct{}{}
		return w, err
	}}, out, pipe)
	for range 3 {
		<-watched
	}
	deleted, err := getProfile(t.Context(), c, "eda")
	check.NoError(t, err)
	deleted.Finalizers = nil
	check.NoError(t, c.Update(t.Context(), deleted))
	check.NoError(t, c.Delete(t.Context(), deleted))
	out.until(t, "Profile eda was deleted.\n")
	if err := stop(); err != nil {
		t.Errorf("got error %v at the end", err)
	}
}

func TestWatchReportsOutdatedData(t *testing.T) {
	out := newWaitFor()
	_, stop := watching(t, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
		if _, isNodes := list.(*corev1.NodeList); isNodes {
			return nil, errors.New("no route to host")
		}
		return c.Watch(ctx, list, opts...)
	}}, out, pipe)
	out.until(t, "Note: Nodes are out of date: watch Nodes: no route to host\n")
	if err := stop(); err != nil {
		t.Errorf("got error %v at the end", err)
	}
}

func TestWatchRelistsKindsThatCannotBeWatched(t *testing.T) {
	out := newWaitFor()
	watched := make(chan struct{}, 3)
	c, stop := watching(t, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
		defer func() { watched <- struct{}{} }()
		if _, isNodes := list.(*corev1.NodeList); isNodes {
			return nil, apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)
		}
		return c.Watch(ctx, list, opts...)
	}}, out, pipe)
	for range 3 {
		<-watched
	}
	profile, err := getProfile(t.Context(), c, "eda")
	check.NoError(t, err)
	profile.Status.Conditions[0].Status = metav1.ConditionFalse
	check.NoError(t, c.Status().Update(t.Context(), profile))
	out.until(t, "eda is not done")
	if err := stop(); err != nil || strings.Contains(out.String(), "not current") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

func TestABufferIsNotATerminal(t *testing.T) {
	if _, isTerminal := findScreen(&bytes.Buffer{}, true); isTerminal {
		t.Error("got a terminal, although the output is a buffer")
	}
}
