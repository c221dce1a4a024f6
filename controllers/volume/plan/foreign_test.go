package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
)

// A backup restores a volume with its annotations, in the same cluster or in another one.
func TestMarksOfAnotherVolumeProveNothing(t *testing.T) {
	const here, elsewhere = types.UID("here"), types.UID("elsewhere")
	month := 30 * 24 * time.Hour
	for name, test := range map[string]struct {
		cluster types.UID
		// age is the age of the mark, compared with the volume.
		age    time.Duration
		change func(*judge.Mark, *optionset.Failed)
		want   bool
	}{
		"a mark of this cluster":                           {cluster: here, age: -time.Second, want: true},
		"a mark of an earlier release":                     {age: -time.Second, want: true},
		"a mark of the same second, by a clock of seconds": {cluster: here, age: judge.ClockTolerance, want: true},
		"a mark that is older than the volume":             {cluster: here, age: month},
		"a mark that is a little older":                    {cluster: here, age: judge.ClockTolerance + time.Second},
		"an older mark of an earlier release":              {age: month},
		"a mark of another cluster":                        {cluster: elsewhere, age: -time.Second},
		"an old mark of another cluster":                   {cluster: elsewhere, age: month},
		"a mark of an older batch that the volume joined": {cluster: here, age: -time.Second, want: true, change: func(m *judge.Mark, _ *optionset.Failed) {
			m.Since = m.Since.Add(-time.Minute)
		}},
		"a volume that was created with its options": {cluster: here, want: true, change: func(m *judge.Mark, _ *optionset.Failed) {
			m.Created, m.Since, m.Written = true, time.Time{}, time.Time{}
		}},
		"a volume that was created so in another cluster": {cluster: elsewhere, change: func(m *judge.Mark, _ *optionset.Failed) {
			m.Created, m.Since, m.Written = true, time.Time{}, time.Time{}
		}},
		"a volume that was created so, and no mark of time or cluster": {change: func(m *judge.Mark, _ *optionset.Failed) {
			m.Created, m.Since, m.Written = true, time.Time{}, time.Time{}
		}},
		"a volume that was created so, with its time of creation": {want: true, change: func(m *judge.Mark, _ *optionset.Failed) {
			m.Created, m.Since = true, time.Time{}
		}},
		"a volume that was created so, with an earlier time of creation": {age: month, change: func(m *judge.Mark, _ *optionset.Failed) {
			m.Created, m.Since = true, time.Time{}
		}},
		"a volume that was created so, with a later time of creation": {age: -month, change: func(m *judge.Mark, _ *optionset.Failed) {
			m.Created, m.Since = true, time.Time{}
		}},
		"a failure that counts as cleared, of a volume that was created so": {change: func(m *judge.Mark, _ *optionset.Failed) {
			m.Created, m.Since, m.Written, m.Evidence, m.Cleared = true, time.Time{}, time.Time{}, "", "f"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := builders.NFSProfile("p", []string{"nocto"})
			pv := created("a", 9, bound)
			at := pv.CreationTimestamp.Add(-test.age)
			mark := judge.MarkFor(verdictFor(p, pv), at)
			mark.Written, mark.Evidence, mark.Cluster = at, "n1 has mounted a", test.cluster
			failed := &optionset.Failed{Identity: optionset.Identity{Set: mark.Set, RuleSet: mark.RuleSet, Rules: mark.Rules}, Cluster: test.cluster}
			failed.Text, failed.Settled, failed.Since, failed.Failure = "exit status 32", true, at, "f"
			if test.change != nil {
				test.change(mark, failed)
			}
			carrying := pv.DeepCopy()
			written(p, 0)(carrying)
			carrying.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
			got := recordOf(p, carrying, here, mark.Set)
			if !got.Counts("f") {
				t.Error("got a cleared failure")
			}
			if _, proven := got.EvidenceOn(""); proven != test.want {
				t.Errorf("evidence: got proven %t, want %t", proven, test.want)
			}
			failing := pv.DeepCopy()
			failing.Annotations[v1alpha1.FailedMountOptionsAnnotation] = builders.JSON(failed)
			if stops := recordOf(p, failing, here, mark.Set).Stops(); stops != test.want && !mark.Created {
				t.Errorf("failure: got stopped %t, want %t", stops, test.want)
			}
			if got := recordOf(p, carrying, "", mark.Set); test.cluster == elsewhere && test.age <= 0 && (got.Evidence == nil) != mark.Created {
				t.Error("without the UID of the cluster: want the mark by its time, got: ", got.Evidence)
			}
		})
	}
}

// The failed mount names the volume by its UID.
func TestAFailureOfAVolumeWithTheSameNameProvesNothing(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	for uid, want := range map[types.UID]bool{"u": true, "": true, "another": false} {
		pv := created("a", 9, bound)
		pv.UID = "u"
		verdict := verdictFor(p, pv)
		failed := &optionset.Failed{Identity: optionset.Identity{Set: verdict.Set, RuleSet: verdict.RuleSet, Rules: verdict.Rules}}
		failed.Text, failed.Settled, failed.Since, failed.UID = "exit status 32", true, noon, uid
		pv.Annotations[v1alpha1.FailedMountOptionsAnnotation] = builders.JSON(failed)
		if stops := recordOf(p, pv, "", verdict.Set).Stops(); stops != want {
			t.Errorf("UID %q: got stopped %t, want %t", uid, stops, want)
		}
	}
}

// A new mark and a new failed mount name the cluster.
func TestMarksNameTheCluster(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	s := snapshotOf([]*corev1.PersistentVolume{created("a", 9, bound)}, p)
	s.Now, s.Cluster = noon, "here"
	if write := For(s).Steps[0].(WriteOptions); write.Mark.Cluster != "here" {
		t.Errorf("got mark %+v, want cluster here", write.Mark)
	}
	s = snapshotOf([]*corev1.PersistentVolume{created("a", 9, bound, written(p, 100, unproven))}, p)
	s.Now, s.Cluster, s.FailedMounts = noon, "here", map[string]Failure{"a": {Text: "exit status 32", Kind: "k", NamesOptions: true}}
	if restore := For(s).Steps[0].(RestoreOptions); restore.FailedMount.Cluster != "here" {
		t.Errorf("got failed mount %+v, want cluster here", restore.FailedMount)
	}
	if mark := judge.MarkOfCreation(judge.Verdict{}, "here"); mark.Cluster != "here" {
		t.Errorf("got mark %+v, want cluster here", mark)
	}
}

// recordOf returns the record of a set, from the annotations of one volume.
func recordOf(p v1alpha1.StorageClientProfile, pv *corev1.PersistentVolume, cluster types.UID, set string) *optionset.Record {
	s := snapshotOf([]*corev1.PersistentVolume{pv}, p)
	s.Now, s.Cluster = noon, cluster
	return newPlanner(s).sets[set]
}

// The evidence on a volume that was created with its options binds the mark to the volume.
func TestEvidenceRecordsTheCreationOfItsVolume(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	pv := created("a", 9, bound)
	written(p, 0)(pv)
	pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(judge.MarkOfCreation(verdictFor(p, pv), ""))
	mark := judge.MarkOf(pv).WithEvidence("n1 has mounted a")
	if !mark.Written.Equal(pv.CreationTimestamp.Time) || !mark.Since.IsZero() {
		t.Errorf("got mark %+v, want the time of creation as the time of the write", mark)
	}
	pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
	if recordOf(p, pv, "here", mark.Set).Evidence == nil {
		t.Error("the mark is no evidence for its volume")
	}
}
