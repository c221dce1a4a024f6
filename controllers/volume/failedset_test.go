package volume

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/test/builders"
)

// The record of a failed option set outlives the volume with the failure.
func TestAFailureOutlivesItsVolumeAndItsAnnotation(t *testing.T) {
	for name, lose := range map[string]func(context.Context, client.Client, *corev1.PersistentVolume) error{
		"the volume is deleted": func(ctx context.Context, c client.Client, pv *corev1.PersistentVolume) error {
			return c.Delete(ctx, pv)
		},
		"the annotation is stripped": func(ctx context.Context, c client.Client, pv *corev1.PersistentVolume) error {
			pv.Annotations = nil
			return c.Update(ctx, pv)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := builders.NFSProfile("p", []string{"nocto"})
			r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(3), &p, failingPod("eda", "pv00"), nodeN())...)
			clock := testclock.NewFakeClock(noon)
			r.Clock = clock
			ctx := context.Background()
			makeAPass(t, r)
			message := `MountVolume.SetUp failed for volume "pv00" : mount failed: exit status 32` + "\nOutput: mount.nfs: an incorrect mount option was specified"
			if err := r.Client.Create(ctx, kubeletEvent("e", "eda", message, noon.Add(time.Minute))); err != nil {
				t.Fatal(err)
			}
			clock.Step(time.Hour)
			makeAPass(t, r)
			var pv corev1.PersistentVolume
			if err := r.Client.Get(ctx, client.ObjectKey{Name: "pv00"}, &pv); err != nil {
				t.Fatal(err)
			}
			if judge.FailedMountOf(&pv) == nil {
				t.Fatal("got no recorded failure on pv00, want one")
			}
			if err := lose(ctx, r.Client, &pv); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				clock.Step(time.Hour)
				// A restarted manager reads the records from the cluster.
				r = &Reconciler{Client: r.Client, Recorder: r.Recorder, Clock: r.Clock}
				makeAPass(t, r)
			}
			if got := changed(t, r); len(got) > 0 {
				t.Errorf("got the options on %q, want none", got)
			}
			expectStopped(t, r.Client, true)

			p.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nocto", "actimeo=30"}
			if err := r.Client.Update(ctx, &p); err != nil {
				t.Fatal(err)
			}
			clock.Step(time.Hour)
			makeAPass(t, r)
			if got := changed(t, r); len(got) != 1 {
				t.Errorf("after the rules changed: got the options on %q, want one canary", got)
			}
			expectStopped(t, r.Client, false)
			var pages corev1.ConfigMapList
			if err := r.Client.List(ctx, &pages, client.InNamespace(v1alpha1.ManagerNamespace)); err != nil {
				t.Fatal(err)
			}
			for _, page := range pages.Items {
				for key := range page.Data {
					if strings.HasPrefix(key, "failed.") {
						t.Errorf("ConfigMap %s still contains %s", page.Name, key)
					}
				}
			}
		})
	}
}

// expectStopped checks the webhook's result for a new volume, and the summary of the profile.
func expectStopped(t *testing.T, c client.Client, want bool) {
	t.Helper()
	ctx := context.Background()
	reader := &snapshot.Reader{Reader: c}
	newest := builders.NFSVolume([]string{"hard"}, func(pv *corev1.PersistentVolume) {
		pv.Name, pv.UID, pv.CreationTimestamp = "newest", "newest", metav1.Time{}
	})
	verdict, stopped, err := reader.EvaluateNew(ctx, newest, false)
	if err != nil || verdict.Action != judge.ActionWrite || strings.Contains(stopped, "are stopped") != want {
		t.Errorf("a new volume: got error %v, action %s, stopped by %q; want action %s, stopped %t", err, verdict.Action, stopped,
			judge.ActionWrite, want)
	}
	if want && !strings.Contains(stopped, "pv00") {
		t.Errorf("a new volume: stopped by %q, want the name of pv00", stopped)
	}
	s, err := reader.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	summary := plan.Summarize("p", s)
	if diff := cmp.Diff(want, strings.Contains(summary.Stopped, "pv00 could not be mounted with [\"hard\",\"nocto\"]")); diff != "" {
		t.Errorf("got summary %q, want the failed mount of pv00: %t", summary.Stopped, want)
	}
}

// Options that a probe rejected reach no new volume of that server, from any replica of the manager.
func TestANewVolumeDoesNotGetOptionsThatAProbeRejected(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(3), &p)...)
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	probes := map[plan.ProbeKey]plan.Probe{}
	r.Probes = func() map[plan.ProbeKey]plan.Probe { return probes }
	makeAPass(t, r)
	s, err := (&snapshot.Reader{Reader: r.Client}).Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	key := plan.ProbeCandidates(s)[0].ProbeKey
	for _, test := range []struct {
		verdict            optionset.Kind
		filer, otherServer string
	}{{optionset.ProbeRefused, "a probe on n says no", "not proven yet"}, {optionset.ProbeWorked, "", "not proven yet"}} {
		probes[key] = plan.Probe{Verdict: test.verdict, Text: "a probe on n says no"}
		clock.Step(time.Hour)
		makeAPass(t, r)
		for server, want := range map[string]string{"filer": test.filer, "other": test.otherServer} {
			pv := builders.NFSVolume([]string{"hard"}, func(pv *corev1.PersistentVolume) { pv.Name, pv.UID, pv.Spec.NFS.Server = "newest", "newest", server })
			_, leftOut, err := (&snapshot.Reader{Reader: r.Client}).EvaluateNew(context.Background(), pv, false)
			if err != nil || (leftOut != "") != (want != "") || !strings.Contains(leftOut, want) {
				t.Errorf("%s, a new volume of %s: got error %v, left out because %q; want %q", test.verdict, server, err, leftOut, want)
			}
		}
	}
}
