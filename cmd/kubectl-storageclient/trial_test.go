package main

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// listed returns rounds in which the candidate requests no attributes during the repeated listing.
func listed(rounds int32) []v1alpha1.TrialPass {
	var passes []v1alpha1.TrialPass
	for round := int32(1); round <= rounds; round++ {
		for i, arm := range []v1alpha1.TrialArm{v1alpha1.ArmBefore, v1alpha1.ArmAgain, v1alpha1.ArmAfter} {
			pass := v1alpha1.TrialPass{Round: round, Arm: arm, Node: "n1"}
			for _, name := range []string{"First", "Repeated"} {
				count := int64(5000)
				if name == "Repeated" && arm == v1alpha1.ArmAfter {
					count = 5
				}
				pass.Phases = append(pass.Phases, v1alpha1.TrialPassPhase{
					Name: name, Units: 5000, Microseconds: 900000 + int64(i)*1000 + int64(round)*500, BytesSent: 200 * count, BytesReceived: 200 * count,
					Operations: []v1alpha1.TrialOperation{{Name: "GETATTR", Count: count}},
				})
			}
			passes = append(passes, pass)
		}
	}
	return passes
}

// fakeManager simulates the manager: each read returns the next status.
func fakeManager(statuses ...v1alpha1.StorageClientTrialStatus) interceptor.Funcs {
	reads := 0
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, key, o, opts...)
		if trial, ok := o.(*v1alpha1.StorageClientTrial); ok && err == nil {
			trial.Status = statuses[min(reads, len(statuses)-1)]
			reads++
		}
		return err
	}}
}

func standing(condition, reason, message string, rounds int32) v1alpha1.StorageClientTrialStatus {
	status := v1alpha1.StorageClientTrialStatus{
		Rounds: rounds, RoundsWanted: 6, Volume: "pv1", Node: "n1", Before: []string{"vers=4.1"}, After: []string{"actimeo=30", "vers=4.1"}, Passes: listed(rounds),
		Sysctls: map[string]v1alpha1.SettingText{"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_sack": "1"},
	}
	for _, kind := range []string{v1alpha1.TrialConditionComplete, v1alpha1.TrialConditionFailed} {
		value := metav1.ConditionFalse
		if kind == condition {
			value = metav1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: value, Reason: reason, Message: message})
	}
	return status
}

// trialsLeft returns the remaining trials.
func trialsLeft(t *testing.T, r result) []v1alpha1.StorageClientTrial {
	t.Helper()
	var trials v1alpha1.StorageClientTrialList
	check.NoError(t, r.client.List(context.Background(), &trials))
	return trials.Items
}

func decided() v1alpha1.StorageClientTrialStatus {
	status := standing(v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "Better: x", 6)
	status.Results = []v1alpha1.TrialResult{
		{Phase: "Repeated", Metric: "GETATTR", Unit: "per entry", Before: "1", After: "0.001", Ratio: "0.001", Low: "0.001", High: "0.001", Verdict: "Better", Decides: true},
		{Phase: "Repeated", Metric: "ACCESS", Unit: "per entry", Before: "1", After: "1", Verdict: "NoDifference"},
	}
	return status
}

func TestATrialIsCreatedFollowedShownAndDeleted(t *testing.T) {
	funcs := fakeManager(v1alpha1.StorageClientTrialStatus{}, standing("", v1alpha1.TrialReasonRunning, "Round 3 of 6 runs on n1", 2), decided())
	var made v1alpha1.StorageClientTrial
	funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if trial, ok := o.(*v1alpha1.StorageClientTrial); ok {
			made = *trial
		}
		return c.Create(ctx, o, opts...)
	}
	r := execute(t, funcs, nil, "trial", "projects", "--options", "actimeo=30,nocto", "--path", "src", "--user", "1000", "--metric", "GETATTR",
		"--workers", "16", "--block-kib", "8", "--sync", "--direct", "--cached", "--through-client",
		"--read-ahead-kib", "1024", "--sysctl", "net.ipv4.tcp_rmem=4096  1048576 16777216", "--sysctl", "net.ipv4.ip_local_reserved_ports=10250,30000-32767")
	check.NoError(t, r.err)
	for _, want := range []string{
		"2 of 6 rounds are complete. Round 3 of 6 runs on n1", "eda/projects, volume pv1, ListDirectory of \"src\", 6 rounds:", "  after   actimeo=30,vers=4.1",
		`  net.ipv4.ip_local_reserved_ports: "" before, "10250,30000-32767" after`, `  net.ipv4.tcp_rmem: "4096 131072 6291456" before, "4096 1048576 16777216" after`,
		"0.001 to 0.001", "Better *", "Read-ahead of the candidate: 1024 KiB", "with empty client caches",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing in:\n%s", want, r.out)
		}
	}
	if strings.Contains(r.out, "Undecided: Undecided: ") {
		t.Errorf("got the outcome twice in:\n%s", r.out)
	}
	if strings.Contains(r.out, "ACCESS") {
		t.Error("got results without influence on the verdict, want them only with -o wide")
	}
	spec := made.Spec
	if spec.ClaimName != "projects" || len(spec.MountOptions) != 2 || spec.Workload.Path != "src" || spec.User() != 1000 || spec.Timeout() != 3600 || spec.Goal.Metric != "GETATTR" ||
		spec.ReadAheadKiB != 1024 {
		t.Errorf("spec is %+v", spec)
	}
	want := map[string]v1alpha1.SettingText{"net.ipv4.tcp_rmem": "4096 1048576 16777216", "net.ipv4.ip_local_reserved_ports": "10250,30000-32767"}
	if !maps.Equal(spec.Sysctls, want) {
		t.Errorf("sysctls: got %v, want %v", spec.Sysctls, want)
	}
	check.Equal(t, "load", v1alpha1.TrialLoad{Workers: 16, BlockKiB: 8, Sync: true, Direct: true, Cached: true, ThroughClient: true}, spec.Workload.TrialLoad)
	if remaining := trialsLeft(t, r); len(remaining) > 0 {
		t.Errorf("got remaining trials: %v", remaining)
	}
}

func TestAFailedTrialReportsTheReasonAndIsDeleted(t *testing.T) {
	funcs := fakeManager(standing(v1alpha1.TrialConditionFailed, v1alpha1.TrialReasonNotMounted, "After, round 1: mount(2): invalid argument", 0))
	r := execute(t, funcs, nil, "trial", "projects", "--profile", "p")
	if r.err == nil || r.err.Error() != "NotMounted: After, round 1: mount(2): invalid argument" || len(trialsLeft(t, r)) > 0 {
		t.Errorf("got error %v, remaining trials %v", r.err, trialsLeft(t, r))
	}
}

func TestATrialInOtherFormats(t *testing.T) {
	for format, want := range map[string]string{"json": `"actimeo=30"`, "yaml": "verdict", "name": "storageclienttrial.tuning.storageclient.dev/trial-"} {
		funcs := fakeManager(decided())
		r := execute(t, funcs, nil, "trial", "projects", "--profile", "p", "-o", format, "--keep")
		if r.err != nil || !strings.Contains(strings.ToLower(r.out), strings.ToLower(want)) {
			t.Errorf("%s: %v\n%s", format, r.err, r.out)
		}
		if format == "yaml" {
			var read v1alpha1.StorageClientTrial
			_, document, _ := strings.Cut(r.out, "Better: x\n")
			if err := yaml.Unmarshal([]byte(document), &read); err != nil || len(read.Status.Passes) != 18 {
				t.Errorf("%v: %d passes", err, len(read.Status.Passes))
			}
		}
		if len(trialsLeft(t, r)) != 1 {
			t.Errorf("%s: got no trial with --keep, want one", format)
		}
	}
}

func TestATrialWithoutPermission(t *testing.T) {
	r := execute(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "storageclienttrials"}, "trial", nil)
	}}, nil, "trial", "projects", "--profile", "p")
	if r.err == nil || !strings.Contains(r.err.Error(), "create StorageClientTrial: ") {
		t.Errorf("error is %v", r.err)
	}
}

// The API server generates the name of a trial. After Ctrl-C, the plugin must still wait for this name, or it cannot delete the trial.
func TestCtrlCDuringCreationDeletesTheTrial(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	funcs := fakeManager(decided())
	funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*v1alpha1.StorageClientTrial); !ok {
			return c.Create(ctx, o, opts...)
		}
		cancel()
		if err := c.Create(ctx, o, opts...); err != nil {
			return err
		}
		return ctx.Err()
	}
	c := newClient(t, funcs, nil)
	env := &environment{IOStreams: genericiooptions.NewTestIOStreamsDiscard(), now: at, ticks: func(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }}
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", GenerateName: "trial-"}}
	_, err := followTrial(ctx, env, c, trial, false)
	if err == nil || len(trialsLeft(t, result{client: c})) > 0 {
		t.Errorf("got error %v, remaining trials %v", err, trialsLeft(t, result{client: c}))
	}
}
