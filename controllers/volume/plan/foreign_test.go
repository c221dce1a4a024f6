package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/test/builders"
)

// A backup restores a volume with its annotations, in the same cluster or in another one.
func TestMarksOfAnotherVolumeDoNotCount(t *testing.T) {
	const here, elsewhere = types.UID("here"), types.UID("elsewhere")
	month := 30 * 24 * time.Hour
	createdWith := func(m *judge.Mark) { m.Created, m.Since, m.Written = true, time.Time{}, time.Time{} }
	for name, test := range map[string]struct {
		cluster types.UID
		// age is the age of the mark, compared with the volume.
		age    time.Duration
		change func(*judge.Mark)
		want   bool
	}{
		"a mark of this cluster":                           {cluster: here, age: -time.Second, want: true},
		"a mark of a cluster without a known UID":          {age: -time.Second, want: true},
		"a mark of the same second, by a clock of seconds": {cluster: here, age: judge.ClockTolerance, want: true},
		"a mark that is older than the volume":             {cluster: here, age: month},
		"a mark that is a little older":                    {cluster: here, age: judge.ClockTolerance + time.Second},
		"an older mark of a cluster without a known UID":   {age: month},
		"a mark of another cluster":                        {cluster: elsewhere, age: -time.Second},
		"an old mark of another cluster":                   {cluster: elsewhere, age: month},
		"a mark of an older batch that the volume joined":  {cluster: here, age: -time.Second, want: true, change: func(m *judge.Mark) { m.Since = m.Since.Add(-time.Minute) }},
		"a volume that was created with its options":       {cluster: here, want: true, change: createdWith},
		"a volume that was created so in another cluster":  {cluster: elsewhere, change: createdWith},
	} {
		t.Run(name, func(t *testing.T) {
			p := builders.NFSProfile("p", []string{"nocto"})
			pv := created("a", 9, bound)
			at := pv.CreationTimestamp.Add(-test.age)
			mark := judge.MarkFor(verdictFor(p, pv), at)
			mark.Written, mark.Cluster = at, test.cluster
			if test.change != nil {
				test.change(mark)
			}
			written(p, 0)(pv)
			pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
			s := snapshotOf([]*corev1.PersistentVolume{pv}, p)
			s.Cluster = here
			if got := s.evaluateAll()[0].Mark; (got != nil) != test.want {
				t.Errorf("got mark %+v, want one: %t", got, test.want)
			}
			if s.Cluster = ""; s.evaluateAll()[0].Mark == nil && test.age <= 0 {
				t.Error("without the UID of the cluster: got no mark, want the mark by its time")
			}
		})
	}
}

// A new mark names the cluster.
func TestMarksNameTheCluster(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	s := snapshotOf([]*corev1.PersistentVolume{created("a", 9, bound)}, p)
	s.Now, s.Cluster = noon, "here"
	if write := For(s).Steps[0].(WriteOptions); write.Mark.Cluster != "here" {
		t.Errorf("got mark %+v, want cluster here", write.Mark)
	}
	if mark := judge.MarkOfCreation(judge.Verdict{}, "here"); mark.Cluster != "here" {
		t.Errorf("got mark %+v, want cluster here", mark)
	}
}
