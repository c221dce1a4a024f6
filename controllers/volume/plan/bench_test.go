package plan

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func BenchmarkSummarize10000Volumes(b *testing.B) {
	const count = 10_000
	wanted := []string{"hard", "nconnect=4", "nocto", "actimeo=30"}
	var volumes []*corev1.PersistentVolume
	for i := range count {
		volumes = append(volumes, builders.NFSVolume(wanted, builders.Named(fmt.Sprintf("pv%d", i)), builders.Carrying([]string{"hard"}, wanted, "fast")))
	}
	s := snapshotOf(volumes, builders.NFSProfile("fast", []string{"nconnect=4", "nocto", "actimeo=30"}))
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		if got := Summarize("fast", s); got.UpToDate != count {
			b.Fatalf("got %d volumes up to date, want %d", got.UpToDate, count)
		}
	}
}

// The usual pass: no volume has changed since the last one.
func BenchmarkPlan20000VolumesUnchanged(b *testing.B) {
	const count = 20_000
	s := benchSnapshot(count, 0)
	For(s)
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		// Managed options are checked once a minute. No other work is due.
		if got := For(s); len(got.Steps) > 0 || !got.Next.Equal(s.Now.Add(watchInterval)) {
			b.Fatalf("got %d steps, next pass at %s; want no steps, %s later", len(got.Steps), got.Next, watchInterval)
		}
	}
}

// A pass while a batch soaks and most volumes wait.
func BenchmarkPlan20000VolumesWhile2000Soak(b *testing.B) {
	const count, soaking = 20_000, 2_000
	s := benchSnapshot(count, soaking)
	For(s)
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		if got := For(s); len(got.Steps) > 0 {
			b.Fatalf("got %d steps, want none", len(got.Steps))
		}
	}
}

// benchSnapshot returns volumes with managed options. If soaking is positive, only that number of volumes has them, and the rest waits.
func benchSnapshot(count, soaking int) Snapshot {
	p := builders.NFSProfile("fast", []string{"nconnect=4", "nocto", "actimeo=30"})
	wanted := []string{"hard", "nconnect=4", "nocto", "actimeo=30"}
	mark := judge.MarkFor(verdictFor(p, builders.NFSVolume(nil)), noon.Add(-2*time.Minute))
	var volumes []*corev1.PersistentVolume
	for i := range count {
		pv := builders.NFSVolume(wanted, builders.Named(fmt.Sprintf("pv%d", i)), builders.Carrying([]string{"hard"}, wanted, "fast"),
			builders.Annotated(v1alpha1.MountOptionsStepAnnotation, builders.JSON(mark)))
		if i >= soaking && soaking > 0 {
			pv = builders.NFSVolume([]string{"hard"}, builders.Named(fmt.Sprintf("pv%d", i)))
		}
		volumes = append(volumes, pv)
	}
	s := snapshotOf(volumes, p)
	s.Now, s.Memory = noon, &judge.Memory{}
	if soaking == 0 {
		s.Now = noon.Add(time.Hour)
	}
	return s
}

// A pass after an edit of a profile, which requires a new evaluation of all volumes.
func BenchmarkPlan20000VolumesAfterAnEdit(b *testing.B) {
	const count = 20_000
	s, compiler := benchSnapshot(count, 0), judge.Compiler{}
	for _, selected := range []bool{true, false} {
		b.Run(fmt.Sprintf("of theirs %t", selected), func(b *testing.B) {
			defer reportCPU(b)()
			for i := 0; b.Loop(); i++ {
				of := "fast"
				if !selected {
					of = "other"
				}
				edited := map[string]string{"fast": "1", "other": "1"}
				edited[of] = fmt.Sprint(i + 2)
				var profiles []v1alpha1.StorageClientProfile
				for name, version := range edited {
					p := builders.NFSProfile(name, []string{"nconnect=4", "nocto", "actimeo=30"})
					p.UID, p.ResourceVersion, p.Generation = types.UID(name), version, int64(len(version))
					p.Annotations = map[string]string{"edit": version}
					if name == "other" {
						p.Spec.Volumes[0].Selector.StorageClassNames = []string{"none"}
					}
					profiles = append(profiles, p)
				}
				s.Profiles = compiler.Compile(lists.Pointers(profiles), catalogue.AllowList{}, false, nil)
				For(s)
			}
		})
	}
}

// reportCPU reports the CPU time of an operation. Other work on the machine hardly affects that time.
func reportCPU(b *testing.B) func() {
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric((used()-before).Seconds()*1000/float64(b.N), "cpu-ms/op") }
}
