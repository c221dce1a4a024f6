package drain

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// recordingReader records the resource versions of the requests that list pods.
type recordingReader struct {
	client.Reader

	versions []string
}

func (r *recordingReader) List(ctx context.Context, list client.ObjectList, given ...client.ListOption) error {
	if _, pods := list.(*corev1.PodList); pods {
		options := (&client.ListOptions{}).ApplyOptions(given)
		r.versions = append(r.versions, options.AsListOptions().ResourceVersion)
	}
	return r.Reader.List(ctx, list, given...)
}

// The read before a permit is consistent. Reads that only report the progress of a drain may come from the API server's cache.
func TestOnlyTheReadBeforeAPermitIsConsistent(t *testing.T) {
	reader := &recordingReader{Reader: newReader(t, manyPods(1)...)}
	r := &Runner{Drainer: Drainer{Reader: reader, Evictor: &slow{}, DryRunEvictor: &slow{}, Now: time.Now}}
	for what, look := range map[string]struct {
		at   func() error
		want string
	}{
		"the progress of a drain": {func() error { _, _, err := r.Inspect(t.Context(), "a", options(nil)); return err }, "0"},
		"a look ahead":            {func() error { _, err := r.LookAhead(t.Context(), "a", options(nil)); return err }, "0"},
		"a drain":                 {func() error { _, err := r.Drain(t.Context(), "a", options(nil), Start{}); return err }, ""},
		"an empty node":           {func() error { _, err := r.IsVacant(t.Context(), "a"); return err }, ""},
	} {
		reader.versions = nil
		if err := look.at(); err != nil || len(reader.versions) != 1 || reader.versions[0] != look.want {
			t.Errorf("%s: got lists of pods with resource versions %q, error %v; want %q", what, reader.versions, err, look.want)
		}
	}
}
