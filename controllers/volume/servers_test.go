package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func onServer(name string) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Server = name }
}

func ofPhase(phase corev1.PersistentVolumePhase) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Status.Phase = phase }
}

// byLabel returns a profile with one rule for NFS volumes with the label tier=NAME.
func byLabel(name string, options ...string) v1alpha1.StorageClientProfile {
	return builders.NFSProfile(name, options, builders.Ruled(func(r *v1alpha1.VolumeRule) {
		r.Selector.VolumeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": name}}
	}))
}

// All volumes of one server get the same nconnect. If their values differ, no volume gets one.
func TestVolumesOfOneServer(t *testing.T) {
	pv := func(name, tier string, options []string, more ...builders.VolumeOption) *corev1.PersistentVolume {
		return builders.NFSVolume(options, append([]builders.VolumeOption{builders.Named(name), builders.Labelled("tier", tier)}, more...)...)
	}
	four, eight := byLabel("four", "nconnect=4"), byLabel("eight", "nconnect=8")
	const fourAndEight = "nconnect differs between volumes of server filer: nconnect=4 (a), nconnect=8 (b); " +
		"the first mount on a node sets it for all; use one value for all volumes of the server"
	for name, test := range map[string]struct {
		volumes []*corev1.PersistentVolume
		want    map[string]string // message, "" for none
	}{
		"two rules, nothing written yet": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "eight", nil)},
			want:    map[string]string{"a": fourAndEight, "b": fourAndEight},
		},
		"server names in other case are one server": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "eight", nil, onServer("FILER"))},
			want:    map[string]string{"a": fourAndEight, "b": fourAndEight},
		},
		"a volume's original value, which no profile declares": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "none", []string{"nconnect=8"})},
			want:    map[string]string{"a": fourAndEight, "b": ""},
		},
		"the current value stays": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", []string{"nconnect=4"}, builders.Carrying(nil, []string{"nconnect=4"}, "four")), pv("b", "eight", nil)},
			want:    map[string]string{"a": fourAndEight, "b": fourAndEight},
		},
		"a volume without nconnect does not block": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "none", []string{"hard"})}, want: map[string]string{"a": ""},
		},
		"another server": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "eight", nil, onServer("other"))}, want: map[string]string{"a": "", "b": ""},
		},
		"another version has separate connections": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", []string{"vers=3"}), pv("b", "eight", []string{"vers=4.1"})}, want: map[string]string{"a": "", "b": ""},
		},
		"an unspecified version may be any of NFSv4": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "eight", []string{"vers=4.1"})}, want: map[string]string{"a": fourAndEight, "b": fourAndEight},
		},
		"an unmountable volume does not block": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "none", []string{"nconnect=8"}, ofPhase(corev1.VolumeReleased))}, want: map[string]string{"a": ""},
		},
		"many volumes are counted": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "four", nil), pv("c", "four", nil), pv("d", "four", nil), pv("e", "eight", nil)},
			want:    map[string]string{"e": "nconnect=4 (a, b, c and 1 more), nconnect=8 (e)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for _, v := range test.volumes {
				objects = append(objects, v.DeepCopy())
			}
			r, recorder := newReconciler(t, interceptor.Funcs{}, append(objects, four.DeepCopy(), eight.DeepCopy())...)
			makeAPass(t, r)
			reported := map[string]string{}
			for _, e := range takeEvents(recorder) {
				for _, name := range slices.Sorted(maps.Keys(test.want)) {
					if test.want[name] != "" && strings.Contains(e, test.want[name]) {
						reported[name] = e
					}
				}
			}
			conflicts := 0
			for _, v := range test.volumes {
				want, isChecked := test.want[v.Name]
				note := r.noteOf(t, v.Name)
				if isChecked && (want == "") == strings.Contains(note.Message, "nconnect differs") || !strings.Contains(note.Message, want) {
					t.Errorf("note of %s: got %q, want %q", v.Name, note.Message, want)
				}
				if want == "" {
					continue
				}
				conflicts++
				if reported[v.Name] == "" {
					t.Errorf("got no event of %s with %q, want one", v.Name, want)
				}
				var got corev1.PersistentVolume
				if err := r.Client.Get(context.Background(), client.ObjectKey{Name: v.Name}, &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(v.Spec.MountOptions, got.Spec.MountOptions); diff != "" {
					t.Errorf("options of %s (-want +got):\n%s", v.Name, diff)
				}
			}
			if _, ok := test.want["b"]; !ok {
				return
			}
			blocked := 0
			for _, profile := range []string{"four", "eight"} {
				blocked += int(plan.Summarize(profile, snapshotOf(test.volumes, four, eight)).Blocked)
			}
			if blocked != conflicts {
				t.Errorf("got %d blocked volumes in the summaries of the profiles, want %d", blocked, conflicts)
			}
		})
	}
}

// noteOf returns the note of a volume in the current plan.
func (r *Reconciler) noteOf(t *testing.T, volume string) plan.Note {
	t.Helper()
	s, err := (&scope{Reconciler: r, now: r.Clock.Now()}).readSnapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return plan.For(s).Notes[volume]
}

func snapshotOf(volumes []*corev1.PersistentVolume, list ...v1alpha1.StorageClientProfile) plan.Snapshot {
	s := plan.Snapshot{Profiles: new(judge.Compiler).Compile(lists.Pointers(list), catalogue.AllowList{}, false, nil)}
	s.Volumes = append(s.Volumes, volumes...)
	return s
}

// The values of the servers follow created and deleted volumes.
func TestServersFollow(t *testing.T) {
	four := profileNamed("four", "nconnect=4")
	four.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{SoakSeconds: ptr.To[int32](0)}
	r, _ := newReconciler(t, interceptor.Funcs{},
		builders.NFSVolume(nil, builders.Named("a"), builders.Labelled("tier", "four")), builders.NFSVolume([]string{"nconnect=8"}, builders.Named("b")), four)
	ctx := context.Background()
	options := func(name string) []string {
		makeAPass(t, r)
		var pv corev1.PersistentVolume
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &pv); err != nil {
			t.Fatal(err)
		}
		return pv.Spec.MountOptions
	}
	if got := options("a"); len(got) > 0 {
		t.Fatalf("next to a volume with nconnect=8: got options %v on a, want none", got)
	}
	if err := r.Client.Delete(ctx, builders.NFSVolume(nil, builders.Named("b"))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"nconnect=4"}, options("a")); diff != "" {
		t.Errorf("options of a after the deletion of b (-want +got):\n%s", diff)
	}
	if err := r.Client.Create(ctx, builders.NFSVolume([]string{"nconnect=2"}, builders.Named("c"), func(pv *corev1.PersistentVolume) { pv.ResourceVersion = "" })); err != nil {
		t.Fatal(err)
	}
	makeAPass(t, r)
	if note := r.noteOf(t, "a"); note.State != judge.StateBlocked {
		t.Errorf("after volume c was created: got note %+v on a, want state %s", note, judge.StateBlocked)
	}
}

// Ten thousand volumes cost a few lists, and are evaluated once until a change.
func TestAPassListsOnceForAllVolumes(t *testing.T) {
	const volumes = 10_000
	lists := 0
	counting := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		lists++
		return c.List(ctx, list, opts...)
	}}
	wanted := []string{"nconnect=4", "nocto"}
	objects := []client.Object{fastProfile()}
	for i := range volumes {
		objects = append(objects, builders.NFSVolume(wanted, builders.Named(fmt.Sprintf("pv%d", i)), onServer(fmt.Sprintf("filer%d", i%3)), builders.Carrying(nil, wanted, "fast")))
	}
	r, _ := newReconciler(t, counting, objects...)
	// Each pass lists profiles, volumes, the ledger, PersistentVolumeClaims, StorageClasses and StorageClientNodes. The first also
	// lists events, once a minute, and reads volumes and ledger live, as long as the ledger is incomplete.
	const perPass = 6
	for _, more := range []int{3, 0} {
		lists = 0
		if result := makeAPass(t, r); lists != perPass+more || result.RequeueAfter > time.Minute {
			t.Errorf("got %d List calls for %d volumes, next pass after %s; want %d calls, at most 1m", lists, volumes,
				result.RequeueAfter, perPass+more)
		}
	}
}

func profileNamed(name string, options ...string) *v1alpha1.StorageClientProfile {
	p := byLabel(name, options...)
	return &p
}
