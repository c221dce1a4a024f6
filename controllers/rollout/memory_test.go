package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/nodesettings"
)

func failuresConfigMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.FailuresConfigMap}, Data: data}
}

func lostNode(name string) v1alpha1.ProfileFailures {
	return v1alpha1.ProfileFailures{Boots: []v1alpha1.BootFailures{{BootHash: "h", Settings: "p", Nodes: []v1alpha1.FailedNode{
		{Name: name, UID: "u-" + name, Reason: v1alpha1.RolloutReasonNodeLost, Message: "The Node was deleted"},
	}}}}
}

// TestFailuresAreWritten writes failures to a ConfigMap without any, and then changes them.
func TestFailuresAreWritten(t *testing.T) {
	s := passOf(t, &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda", Annotations: map[string]string{v1alpha1.RetryAnnotation: "7/a"}}})
	recorder := events.NewFakeRecorder(10)
	s.Recorder = recorder
	snapshot, err := s.readSnapshot(t.Context())
	check.NoError(t, err)
	if len(snapshot.Failures) > 0 || snapshot.Profiles[0].Retry != "7/a" {
		t.Errorf("got failures %v, retry %q; want no failures, retry 7/a", snapshot.Failures, snapshot.Profiles[0].Retry)
	}
	for _, next := range []map[string]v1alpha1.ProfileFailures{{"eda": lostNode("a")}, {"eda": lostNode("a"), "smb": lostNode("b")}, {"smb": lostNode("b")}} {
		check.NoError(t, s.writeFailures(t.Context(), next))
		check.Equal(t, "in this pass", next, whole(s).Failures)
		if snapshot, err = s.readSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		check.Equal(t, "in the next", next, snapshot.Failures)
	}
	close(recorder.Events)
	var got []string
	for event := range recorder.Events {
		got = append(got, event)
	}
	check.Equal(t, "events", []string{"Warning NodeLost a: The Node was deleted"}, got)
}

func TestFailuresWrittenByAnotherClientAreAConflict(t *testing.T) {
	stored := failuresConfigMap(map[string]string{"eda": lostNode("a").Encode()})
	s := passOf(t, stored)
	if _, err := s.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := stored.DeepCopy()
	check.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(stored), other))
	other.Data["smb"] = lostNode("b").Encode()
	check.NoError(t, s.Update(t.Context(), other))
	if err := s.writeFailures(t.Context(), nil); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
}

func TestFailuresThatCannotBeReadAreKept(t *testing.T) {
	s := passOf(t, failuresConfigMap(map[string]string{"eda": "by hand", "smb": lostNode("b").Encode()}))
	snapshot, err := s.readSnapshot(t.Context())
	check.NoError(t, err)
	if !snapshot.UnreadFailures.Has("eda") || snapshot.UnreadFailures.Has("smb") {
		t.Errorf("got unread failures of %v, want eda only", snapshot.UnreadFailures)
	}
	check.NoError(t, s.writeFailures(t.Context(), map[string]v1alpha1.ProfileFailures{"new": {Retry: "1"}}))
	got := failuresConfigMap(nil)
	check.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(got), got))
	check.Equal(t, "data", map[string]string{"eda": "by hand", "new": `{"retry":"1"}`}, got.Data)
}

// TestALostNodeStopsItsProfileAfterAnEditOfTheRolloutRules has a recorded failure, and a claim of a lost node that is not recorded yet.
func TestALostNodeStopsItsProfileAfterAnEditOfTheRolloutRules(t *testing.T) {
	profile := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda"}}
	profile.Spec.AllNodes, profile.Spec.Node = true, &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"}}
	settings := nodesettings.BootSettingsHash(profile)
	claim := v1alpha1.Disruption{Profile: "eda", NodeUID: "u-a", Permit: &v1alpha1.ClaimedPermit{BootHash: "h", Profiles: map[string]string{"eda": settings}}}
	recorded := v1alpha1.ProfileFailures{Boots: []v1alpha1.BootFailures{{BootHash: "h", Settings: settings, Nodes: []v1alpha1.FailedNode{{Name: "z", UID: "u-z"}}}}}
	profile.Spec.Rollout.SettleSeconds = ptr.To[int32](77)
	s := passOf(t, profile, failuresConfigMap(map[string]string{"eda": recorded.Encode()}), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, Data: map[string]string{"a": claim.Encode()},
	})
	snapshot, err := s.readSnapshot(t.Context())
	check.NoError(t, err)
	change := plan.NewSession(snapshot).Plan().Failures
	if change == nil || len(change.Profiles["eda"].Boots) != 1 || len(change.Profiles["eda"].Boots[0].Nodes) != 2 {
		t.Errorf("got failures %+v, want nodes a and z", change)
	}
}

// TestAClaimsPermitIsWrittenAndOtherClaimsAreKept changes one of two claims.
func TestAClaimsPermitIsWrittenAndOtherClaimsAreKept(t *testing.T) {
	claims := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap},
		Data:       map[string]string{"a": `{"profile":"eda"}`, "b": `{"profile":"eda"}`},
	}
	s := passOf(t, claims)
	if _, err := s.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim := v1alpha1.Disruption{Profile: "eda", NodeUID: "u", Permit: &v1alpha1.ClaimedPermit{BootHash: "h"}}
	check.NoError(t, s.applyStep(t.Context(), plan.UpdateClaim{OnNode: plan.OnNode{Node: "a"}, Claim: claim}))
	want := map[string]v1alpha1.Disruption{"a": claim, "b": {Profile: "eda"}}
	check.Equal(t, "claims", want, whole(s).Claims)
}

// TestFailuresOfNodesNotReadLiveAreNotRecorded uses a plan whose failed nodes change between two runs.
func TestFailuresOfNodesNotReadLiveAreNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		live    []string
		change  plan.FailureChange
		written bool
	}{
		"all failed nodes are read live":   {[]string{"a", "b"}, plan.FailureChange{Nodes: []string{"a"}}, true},
		"one failed node is not read live": {[]string{"a"}, plan.FailureChange{Nodes: []string{"a", "b"}}, false},
		"all nodes must be read live":      {[]string{"a", "b"}, plan.FailureChange{All: true}, false},
		"all nodes are read live":          {nil, plan.FailureChange{All: true, Nodes: []string{"a"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := passOf(t)
			if _, err := p.read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p.plan.Failures = &(plan.FailureChange{Nodes: c.live}); c.live != nil {
				p.live = p.nodesToRead()
			}
			c.change.Profiles = map[string]v1alpha1.ProfileFailures{"eda": lostNode("a")}
			p.recordFailures(t.Context(), &c.change)
			if written := len(p.failures.Data) > 0; written != c.written || p.unrecorded == c.written {
				t.Errorf("got written %t, claims blocked %t; want written %t and the opposite", written, p.unrecorded, c.written)
			}
		})
	}
	p := passOf(t)
	p.session = plan.NewSession(plan.Snapshot{})
	p.plan.Failures = &plan.FailureChange{All: true}
	if got := p.nodesToRead(); got != nil {
		t.Errorf("got nodes %v to read for a change of all nodes, want all (nil)", got)
	}
}
