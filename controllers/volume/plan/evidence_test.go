package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/test/builders"
)

// mountOf returns a StorageClientNode with a used mount of a volume with nocto. The mount is the given number of seconds old at noon.
func mountOf(volume string, secondsAgo int, change ...func(*v1alpha1.MountStatus)) *v1alpha1.StorageClientNode {
	m := v1alpha1.MountStatus{
		MountPoint: "/m", Volume: volume, Protocol: "NFSv4.1", Options: []string{"rw", "vers=4.1", "hard", "nocto"},
		Since: ptr.To(metav1.NewTime(noon.Add(-time.Duration(secondsAgo) * time.Second))), Used: true, State: v1alpha1.MountEffective,
	}
	for _, c := range change {
		c(&m)
	}
	return &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.StorageClientNodeStatus{Mounts: []v1alpha1.MountStatus{m}}}
}

func unproven(m *judge.Mark) { m.Unproven = true }

// bound binds a volume to the PersistentVolumeClaim of the same name.
func bound(pv *corev1.PersistentVolume) {
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: pv.Name}
	pv.Status.Phase = corev1.VolumeBound
}

func TestEvidence(t *testing.T) {
	wait := builders.NFSProfile("p", []string{"nocto"}, builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) {
		s.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromInt32(2))}
	}))
	createdWith := func(pv *corev1.PersistentVolume) {
		written(wait, 0)(pv)
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(creationOf(wait, pv))
	}
	canary := created("a", 9, written(wait, 400, unproven))
	seen := func(volume string, secondsAgo int) map[string]Evidence {
		return map[string]Evidence{volume: {Text: "n1 has mounted " + volume, Volume: volume, Written: noon.Add(-time.Duration(secondsAgo) * time.Second)}}
	}
	others := []*corev1.PersistentVolume{created("b", 3), created("c", 2), created("d", 1)}
	with := func(first ...*corev1.PersistentVolume) []*corev1.PersistentVolume { return append(first, others...) }
	const unmounted, another = "StorageClientProfile p: no pod has mounted PersistentVolume a since it got these options", "StorageClientProfile p: another batch comes first"
	tests := map[string]struct {
		volumes  []*corev1.PersistentVolume
		nodes    []*v1alpha1.StorageClientNode
		seen     map[string]Evidence
		coming   []string
		want     []string
		message  string
		recorded string // the volume with the recorded evidence
		evidence string // the evidence in the marks of the writes
	}{
		"a soak is no evidence":        {volumes: with(canary), message: unmounted},
		"nor is a long soak":           {volumes: with(created("a", 20_000, written(wait, 900_000, unproven))), message: unmounted},
		"nor is a node's report alone": {volumes: with(canary), nodes: []*v1alpha1.StorageClientNode{mountOf("a", 300)}, message: unmounted},
		"a mount after the write is evidence, and is recorded": {
			volumes: with(canary), seen: seen("a", 400), want: []string{"b", "c"}, message: another,
			recorded: "a", evidence: "n1 has mounted a",
		},
		"recorded evidence needs no mount": {
			volumes: with(created("a", 9, written(wait, 400, unproven, func(m *judge.Mark) { m.Evidence = "seen" }))), want: []string{"b", "c"}, message: another, evidence: "seen",
		},
		"but not before the soak is over": {
			volumes: with(created("a", 9, written(wait, 100, unproven))), seen: seen("a", 100),
			message: "StorageClientProfile p: canary PersistentVolume a soaks until 2026-11-21T12:03:20Z", recorded: "a",
		},
		"nor does a volume join the canary then": {
			volumes: with(created("a", 9, written(wait, 20, unproven))), seen: seen("a", 20),
			message: "StorageClientProfile p: canary PersistentVolume a soaks until 2026-11-21T12:04:40Z", recorded: "a",
		},
		"a kubelet's mount does": {
			volumes: with(canary), seen: map[string]Evidence{"a": {Text: "Pod eda/web on n2", Volume: "a", Written: noon.Add(-400 * time.Second)}},
			want: []string{"b", "c"}, message: another, recorded: "a", evidence: "Pod eda/web on n2",
		},
		"but not one of an earlier write": {
			volumes: with(canary), seen: map[string]Evidence{"a": {Text: "Pod eda/web on n2", Volume: "a", Written: noon.Add(-900 * time.Second)}}, message: unmounted,
		},
		"for a write of an earlier release, too": {volumes: with(created("a", 9, written(wait, 400))), seen: seen("a", 400), want: []string{"b", "c"}, message: another, recorded: "a", evidence: "n1 has mounted a"},
		"a mount of a volume that was created with the options counts": {
			volumes: with(created("a", 9, createdWith)), seen: map[string]Evidence{"a": {Text: "n1 has mounted a", Volume: "a", Written: created("a", 9).CreationTimestamp.Time}}, want: []string{"b", "c"}, message: another, recorded: "a", evidence: "n1 has mounted a",
		},
		"and is a canary": {volumes: with(created("a", 9, createdWith)), message: unmounted},
		"whose soak begins with its creation": {
			volumes: with(created("a", -59, createdWith)), message: "StorageClientProfile p: canary PersistentVolume a soaks until 2026-11-21T12:04:00Z",
		},
		"a released canary does not delay others": {
			volumes: with(created("a", 9, written(wait, 400, unproven), ofPhase(corev1.VolumeReleased))), want: []string{"b"}, message: another,
		},
		"except for other unmountable volumes": {
			volumes: []*corev1.PersistentVolume{created("a", 9, written(wait, 400, unproven), ofPhase(corev1.VolumeReleased)), created("b", 3, ofPhase(corev1.VolumeAvailable))}, message: unmounted,
		},
		"a volume that a pod is about to mount is the canary": {volumes: with(), coming: []string{"c"}, want: []string{"c"}, message: another},
		"then a volume that pods have mounted":                {volumes: with(), nodes: []*v1alpha1.StorageClientNode{mountOf("d", 9000)}, want: []string{"d"}, message: another},
		"proven options are written by age": {
			volumes: with(created("a", 9, written(wait, 400, unproven, func(m *judge.Mark) { m.Evidence = "seen" }))), coming: []string{"d"}, want: []string{"b", "c"}, message: another, evidence: "seen",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot := snapshotOf(test.volumes, wait)
			snapshot.Now, snapshot.ClientNodes, snapshot.Evidence, snapshot.Coming = noon, test.nodes, map[string]Evidence{}, map[string]bool{}
			for volume, evidence := range test.seen {
				pv := test.volumes[slices.IndexFunc(test.volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == volume })]
				snapshot.Evidence[verdictFor(wait, pv).Set] = evidence
			}
			for _, volume := range test.coming {
				snapshot.Coming[volume] = true
			}
			got := For(snapshot)
			batch, _ := stepsOf(got)
			if diff := cmp.Diff(test.want, batch, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("written volumes (-want +got):\n%s", diff)
			}
			message, _, _ := strings.Cut(got.Notes["d"].Message, "; then ")
			if len(test.volumes) > 2 && !slices.Contains(test.want, "d") && message != test.message {
				t.Errorf("got message %q, want %q", message, test.message)
			}
			recorded := ""
			for _, step := range got.Steps {
				switch step := step.(type) {
				case RecordSet:
					recorded = step.Target().Name
				case WriteOptions:
					if step.Mark.Evidence != test.evidence || step.Mark.Unproven != (test.evidence == "") {
						t.Errorf("got mark %+v, want evidence %q", step.Mark, test.evidence)
					}
				}
			}
			if recorded != test.recorded {
				t.Errorf("got recorded evidence on %q, want %q", recorded, test.recorded)
			}
		})
	}
}

// A plan needs mount observations only for volumes with an unproven option set, and for a limited number of them. It needs the waiting
// pods only for volumes that can be the canary of their set.
func TestRequiredObservationsOfPods(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	volumes := []*corev1.PersistentVolume{
		created("a", 9, written(p, 400, unproven), bound), created("free", 8, written(p, 400, unproven)), created("gone", 8, written(p, 400, unproven), bound, ofPhase(corev1.VolumeReleased)),
		created("b", 7, bound), created("available", 7, ofPhase(corev1.VolumeAvailable)),
	}
	for _, name := range []string{"x1", "x2", "x3"} {
		volumes = append(volumes, created(name, 6, written(p, 300, unproven), bound))
	}
	snapshot := snapshotOf(volumes, p)
	snapshot.Volumes[1].Spec.ClaimRef = nil
	snapshot.Now = noon
	got := RequiredObservations(snapshot)
	var awaited, candidates []string
	for _, a := range got.Awaited {
		awaited = append(awaited, a.Volume.Name)
		if !a.After.Equal(a.Written.Add(judge.ClockTolerance)) {
			t.Errorf("%s, written at %s: got mounts that count from %s, want %s later", a.Volume.Name, a.Written, a.After, judge.ClockTolerance)
		}
	}
	for _, pv := range got.Candidates {
		candidates = append(candidates, pv.Name)
	}
	snapshot = snapshotOf(slices.Delete(slices.Clone(volumes), 3, 5), p)
	snapshot.Now = noon
	if got := RequiredObservations(snapshot).Awaited; len(got) > 0 {
		t.Errorf("got %d awaited mounts without a waiting volume, want none", len(got))
	}
	snapshot.ClientNodes = []*v1alpha1.StorageClientNode{mountOf("x3", 5), mountOf("a", 5, func(m *v1alpha1.MountStatus) { m.Options = m.Options[:3] })}
	if got := RequiredObservations(snapshot).Awaited; len(got) != 1 || got[0].Volume.Name != "x3" {
		t.Errorf("got awaited mounts %+v, want the one that a node reports with the options", got)
	}
	if !slices.Equal(awaited, []string{"a", "x1", "x2"}) || !slices.Equal(candidates, []string{"b"}) {
		t.Errorf("got awaited mounts of %q, candidates %q; want a, x1 and x2, candidate b", awaited, candidates)
	}
}

// A node falsely reports mounts of all volumes of a set. It does not hide the mount of another node.
func TestALyingNodeHidesNoMount(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	var volumes []*corev1.PersistentVolume
	var nodes []*v1alpha1.StorageClientNode
	missing := map[string]bool{}
	for i := range 40 {
		name := fmt.Sprintf("v%d", i)
		volumes, nodes = append(volumes, created(name, 9, written(p, 400, unproven), bound)), append(nodes, mountOf(name, 5))
		missing[name] = true
	}
	snapshot := snapshotOf(volumes, p)
	snapshot.ClientNodes = nodes
	for pass := range 400 {
		snapshot.Now = noon.Add(time.Duration(pass) * watchInterval)
		got := RequiredObservations(snapshot).Awaited
		if len(got) != maxAwaited {
			t.Fatalf("got %d awaited mounts, want %d", len(got), maxAwaited)
		}
		for _, a := range got {
			delete(missing, a.Volume.Name)
		}
	}
	if len(missing) > 0 {
		t.Errorf("never looked for mounts of %v", missing)
	}
}

func TestSummaryReportsAwaitedMounts(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto", "nconnect=4"})
	carrying := func(pv *corev1.PersistentVolume) {
		pv.Spec.MountOptions = []string{"hard", "nconnect=4", "nocto"}
		builders.Carrying([]string{"hard"}, pv.Spec.MountOptions, "p")(pv)
		mark := judge.MarkFor(verdictFor(p, pv), noon)
		mark.Unproven = true
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
	}
	volumes := []*corev1.PersistentVolume{created("a", 9, bound, carrying), created("b", 5), created("c", 5)}
	want := AwaitedEvidence{Waiting: 2, Until: noon.Add(5 * time.Minute), Volumes: []AwaitedVolume{
		{Name: "a", VolumeClaim: types.NamespacedName{Namespace: "eda", Name: "a"}, MountsPerPod: true, Server: judge.SourceOf(volumes[0]).Server}}}
	if diff := cmp.Diff(want, Summarize("p", snapshotOf(volumes, p)).Evidence); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
	// The volume m waits for the volume n, which was created with the options. The others wait for a, as before.
	newCanary := func(pv *corev1.PersistentVolume) {
		carrying(pv)
		pv.Spec.MountOptions = append(pv.Spec.MountOptions, "vers=4.2")
		builders.Carrying([]string{"hard", "vers=4.2"}, pv.Spec.MountOptions, "p")(pv)
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(creationOf(p, pv))
	}
	n := created("n", -59, bound, newCanary)
	all := append(slices.Clone(volumes), n, created("m", -60, withOptions("hard", "vers=4.2")))
	if got := Summarize("p", snapshotOf(all, p)).Evidence; got.LeftOut != "m" || got.Waiting != 3 || len(got.Volumes) != 2 {
		t.Errorf("with a canary that was created with the options: got %+v, want m left out, and two volumes to mount", got)
	}
	if got := Summarize("p", snapshotOf(all[3:], p)).Evidence; got.Waiting != 1 || !got.Until.Equal(n.CreationTimestamp.Add(5*time.Minute)) {
		t.Errorf("with only such a canary: got %+v, want a soak from its creation", got)
	}
	proceeds := *p.DeepCopy()
	proceeds.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{OnNoEvidence: v1alpha1.NoEvidenceProceed}
	if got := Summarize("p", snapshotOf(volumes, proceeds)).Evidence; got.Waiting != 0 {
		t.Errorf("a profile with onNoEvidence Proceed: got %+v, want no wait", got)
	}
	if got := Summarize("p", snapshotOf(volumes[:1], p)).Evidence; got.Waiting != 0 {
		t.Errorf("a profile without pending writes: got %+v, want no wait", got)
	}
}
