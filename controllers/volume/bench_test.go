package volume

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func BenchmarkSummarize10000Volumes(b *testing.B) {
	const count = 10_000
	wanted := []string{"hard", "nconnect=4", "nocto", "actimeo=30"}
	var volumes []*corev1.PersistentVolume
	for i := range count {
		volumes = append(volumes, nfsVolume(wanted, named(fmt.Sprintf("pv%d", i)), carrying([]string{"hard"}, wanted, "fast")))
	}
	s := snapshot(volumes, nfsProfile("fast", []string{"nconnect=4", "nocto", "actimeo=30"}))
	b.ReportAllocs()
	for b.Loop() {
		if got := Summarize("fast", s); got.UpToDate != count {
			b.Fatalf("%d volumes are up to date, want %d", got.UpToDate, count)
		}
	}
}
