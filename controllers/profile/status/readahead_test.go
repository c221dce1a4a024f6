package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// boundVolume returns an NFS volume that a claim uses.
func boundVolume(name string, options ...string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "v", ResourceVersion: "1"}}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/" + name}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: name}
	pv.Spec.MountOptions = options
	pv.Status.Phase = corev1.VolumeBound
	return pv
}

// viewOf evaluates volumes for the world's profiles and nodes.
func (w *world) viewOf(volumes ...*corev1.PersistentVolume) *plan.View {
	s := plan.Snapshot{Now: now, Volumes: volumes, Profiles: new(judge.Compiler).Compile(lists.Pointers(w.profiles), catalogue.AllowList{}, w.pausedAll, nil)}
	for _, c := range w.objects {
		s.ClientNodes = append(s.ClientNodes, c)
	}
	return plan.NewView(s)
}

// Ready counts the read-ahead of volumes on each node that has one of them mounted.
func TestReadAheadOfVolumes(t *testing.T) {
	type change = func(*corev1.Node, *v1alpha1.StorageClientNode)
	listed := func(kib int32) change {
		return func(_ *corev1.Node, c *v1alpha1.StorageClientNode) {
			c.Spec.Volumes = []v1alpha1.NodeVolume{{Name: "v", ReadAheadKiB: ptr.To(kib)}}
		}
	}
	reports := func(kib int32) change {
		return func(_ *corev1.Node, c *v1alpha1.StorageClientNode) { c.Status.Mounts[0].ReadAheadKiB = kib }
	}
	answers := func(state v1alpha1.SettingState) change {
		return func(_ *corev1.Node, c *v1alpha1.StorageClientNode) {
			c.Status.Mounts[0].ReadAheadState, c.Status.Mounts[0].Message = state, "desired readAheadKiB 1024: too large"
		}
	}
	paused := func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
		n.Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True}
	}
	unobserved := func(_ *corev1.Node, c *v1alpha1.StorageClientNode) { c.Generation++ }
	for name, test := range map[string]struct {
		node   []change
		spec   func(*v1alpha1.StorageClientProfileSpec)
		mayGet func(volume, node string) bool
		want   metav1.ConditionStatus
		// reason and message belong to Ready. The message contains the text.
		reason, message string
	}{
		"no node has it": {want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut, message: "read-ahead pending: a"},
		"the node has it listed and does not report it": {
			node: []change{listed(1024)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut, message: "waiting for the canary: z; not confirmed on z",
		},
		"the node has an earlier value":                          {node: []change{listed(512), reports(512)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut},
		"the node has it by itself, and it is not listed":        {node: []change{reports(1024)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut},
		"the node reports it":                                    {node: []change{listed(1024), reports(1024)}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonUpToDate},
		"the kernel rounds it":                                   {node: []change{listed(1024), reports(1020)}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonUpToDate},
		"the node cannot report it":                              {node: []change{listed(1024), reports(0)}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonUpToDate},
		"the node cannot report it, and has not read the list":   {node: []change{listed(1024), reports(0), unobserved}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut},
		"the node reports it, and has not read another new list": {node: []change{listed(1024), reports(1024), unobserved}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonUpToDate},
		"the node rejects it": {
			node: []change{listed(1024), answers(v1alpha1.SettingFailed)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonFailureThreshold,
			message: "Failed on a; readAheadKiB of v on a: desired readAheadKiB 1024: too large",
		},
		"the node rejected an earlier value, and has not read the list": {
			node: []change{listed(1024), answers(v1alpha1.SettingFailed), unobserved}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut,
		},
		"the node rejected an earlier value, and has another one listed": {
			node: []change{listed(512), answers(v1alpha1.SettingFailed)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut,
		},
		"the node rejects it, and more failures are allowed": {
			node: []change{listed(1024), answers(v1alpha1.SettingFailed)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonNodesFailed, message: "Failed on a; ",
			spec: func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.FailureThreshold = ptr.To[int32](2) },
		},
		"another program changes it": {node: []change{listed(1024), answers(v1alpha1.SettingDrifted)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut},
		"the node does not support it": {
			node: []change{listed(1024), answers(v1alpha1.SettingUnsupported)}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonReadyWithExceptions,
			message: "Some settings are not available on a",
		},
		"the node cannot know whether it has it": {
			node: []change{listed(1024), reports(0), answers(v1alpha1.SettingUnsupported)}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonReadyWithExceptions,
		},
		"the node does not support it, and must": {
			node: []change{listed(1024), answers(v1alpha1.SettingUnsupported)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonExceptions,
			spec: func(s *v1alpha1.StorageClientProfileSpec) { s.OnUnsupported = v1alpha1.UnsupportedFail },
		},
		"the node is ignored": {
			node: []change{func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
				n.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: v1alpha1.True}
			}},
			want: metav1.ConditionTrue, reason: v1alpha1.ReasonUpToDate,
		},
		"the node is paused before its list has the read-ahead": {
			node: []change{paused}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonReadyWithExceptions,
			message: "Paused: a (the Node has the annotation " + v1alpha1.PausedAnnotation + ")",
		},
		"the node is paused with an earlier value": {node: []change{paused, listed(512), reports(512)}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonReadyWithExceptions},
		"the node is paused after its list has it": {node: []change{paused, listed(1024)}, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut},
		"the node is paused and has it":            {node: []change{paused, listed(1024), reports(1024)}, want: metav1.ConditionTrue, reason: v1alpha1.ReasonUpToDate},
		"the mount is of another volume": {
			node: []change{func(_ *corev1.Node, c *v1alpha1.StorageClientNode) { c.Status.Mounts[0].Volume = "w" }},
			want: metav1.ConditionTrue, reason: v1alpha1.ReasonUpToDate,
		},
		"no pod of the volume runs on the node that reports it": {
			mayGet: func(volume, node string) bool { return volume != "v" || node != "a" }, want: metav1.ConditionTrue, reason: v1alpha1.ReasonUpToDate,
		},
		"the pod is gone, and the node still has an unconfirmed window": {
			node: []change{listed(1024)}, mayGet: func(string, string) bool { return false }, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut,
		},
		"the profile is paused": {spec: func(s *v1alpha1.StorageClientProfileSpec) { s.Paused = true }, want: metav1.ConditionFalse, reason: v1alpha1.ReasonRollingOut},
		"the profile only plans": {
			spec: func(s *v1alpha1.StorageClientProfileSpec) { s.Mode = v1alpha1.ModePlan }, want: metav1.ConditionFalse, reason: v1alpha1.ReasonPlanMode, message: "read-ahead pending: a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node = nil
				p.Spec.Volumes = []v1alpha1.VolumeRule{{
					Name: "r", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}, ReadAheadKiB: ptr.To[int32](1024),
				}}
				if test.spec != nil {
					test.spec(&p.Spec)
				}
			})
			w.node("a", func(n *corev1.Node, c *v1alpha1.StorageClientNode) {
				c.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/v", Volume: "v", Protocol: "NFSv4.1", ReadAheadKiB: 128}}
				for _, change := range test.node {
					change(n, c)
				}
			})
			waits := []string{"readAheadKiB 1024 of rule r: waiting for the canary: z; not confirmed on z: its agent has not read the new list"}
			report := Evaluate("p", Snapshot{All: w.snapshot(), Volumes: w.viewOf(boundVolume("v")), ReadAheadWaits: waits, MayGetReadAhead: test.mayGet}, now)
			ready := meta.FindStatusCondition(report.Status(v1alpha1.StorageClientProfileStatus{}, now).Conditions, v1alpha1.ConditionReady)
			if ready.Status != test.want || ready.Reason != test.reason || !strings.Contains(ready.Message, test.message) {
				t.Errorf("got Ready=%s %s: %s", ready.Status, ready.Reason, ready.Message)
			}
			if isWaiting := strings.Contains(ready.Message, waits[0][:20]); isWaiting && test.want == metav1.ConditionTrue {
				t.Errorf("got a reason to wait in %q", ready.Message)
			}
			waitsForOthers := test.reason == v1alpha1.ReasonRollingOut || test.reason == v1alpha1.ReasonPlanMode
			if got := report.RequeueAfter(now); (got == readAheadEvery) != waitsForOthers {
				t.Errorf("got the next pass after %s", got)
			}
		})
	}
}
