package volume

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/test/builders"
)

// A clone of a probe gets no options from the reconciler or the webhook. Its nconnect does not block other volumes.
func TestAClonedVolumeIsIgnored(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto", "nconnect=4"})
	clone := builders.NFSVolume([]string{"hard", "nconnect=8"}, builders.Named(v1alpha1.ClonePrefix+"1"), builders.Labelled(v1alpha1.TrialLabel, "1"))
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(1), &p, clone)...)
	ctx := context.Background()
	makeAPass(t, r)
	if got := changed(t, r); !slices.Equal(got, []string{"pv00"}) {
		t.Errorf("got the options on %q, want only pv00", got)
	}
	var pv, cloned corev1.PersistentVolume
	for name, object := range map[string]*corev1.PersistentVolume{"pv00": &pv, clone.Name: &cloned} {
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(pv.Spec.MountOptions, "nconnect=4") || !slices.Equal(cloned.Spec.MountOptions, []string{"hard", "nconnect=8"}) || len(cloned.Annotations) > 0 {
		t.Errorf("got options %q on the volume, %q and annotations %v on the clone; want nconnect=4 on the volume, no change of the clone",
			pv.Spec.MountOptions, cloned.Spec.MountOptions, cloned.Annotations)
	}
	verdict, stopped, err := (&snapshot.Reader{Reader: r.Client}).EvaluateNew(ctx, &cloned, false)
	if err != nil || verdict.Action != judge.ActionNone || stopped != "" {
		t.Errorf("a new clone: got error %v, verdict %+v, stopped by %q; want no action", err, verdict, stopped)
	}
	// A user cannot hide a volume from the operator with that label alone.
	labelled := builders.NFSVolume([]string{"hard"}, builders.Named("theirs"), builders.Labelled(v1alpha1.TrialLabel, "1"))
	verdict, _, err = (&snapshot.Reader{Reader: r.Client}).EvaluateNew(ctx, labelled, false)
	if err != nil || verdict.Action != judge.ActionWrite {
		t.Errorf("a volume with the label: got error %v, verdict %+v; want action %s", err, verdict, judge.ActionWrite)
	}
}
