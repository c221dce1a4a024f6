package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
)

func onServer(name string) pvOption {
	return func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Server = name }
}

func ofPhase(phase corev1.PersistentVolumePhase) pvOption {
	return func(pv *corev1.PersistentVolume) { pv.Status.Phase = phase }
}

// byLabel has one rule for NFS volumes with the label tier=NAME.
func byLabel(name string, options ...string) v1alpha1.StorageClientProfile {
	return nfsProfile(name, options, ruled(func(r *v1alpha1.VolumeRule) {
		r.Selector.VolumeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": name}}
	}))
}

// Volumes of one server get one nconnect, or none is written.
func TestVolumesOfOneServer(t *testing.T) {
	pv := func(name, tier string, options []string, more ...pvOption) *corev1.PersistentVolume {
		return nfsVolume(options, append([]pvOption{named(name), labelled("tier", tier)}, more...)...)
	}
	four, eight := byLabel("four", "nconnect=4", "nocto"), byLabel("eight", "nconnect=8")
	const fourAndEight = "volumes of server filer would have different nconnect: nconnect=4 (a), nconnect=8 (b): " +
		"the first mount on a node fixes it for all: give all volumes of the server one value"
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
		"a volume's own value, which no profile brings": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "none", []string{"nconnect=8"})},
			want:    map[string]string{"a": fourAndEight, "b": ""},
		},
		"what is in force stays": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", []string{"nconnect=4", "nocto"}, carrying(nil, []string{"nconnect=4", "nocto"}, "four")), pv("b", "eight", nil)},
			want:    map[string]string{"a": fourAndEight, "b": fourAndEight},
		},
		"a volume that says nothing of it is in nobody's way": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "none", []string{"hard"})}, want: map[string]string{"a": ""},
		},
		"another server": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "eight", nil, onServer("other"))}, want: map[string]string{"a": "", "b": ""},
		},
		"another version has connections of its own": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", []string{"vers=3"}), pv("b", "eight", []string{"vers=4.1"})}, want: map[string]string{"a": "", "b": ""},
		},
		"a version that is left open may be any of NFSv4": {
			volumes: []*corev1.PersistentVolume{pv("a", "four", nil), pv("b", "eight", []string{"vers=4.1"})}, want: map[string]string{"a": fourAndEight, "b": fourAndEight},
		},
		"a volume that nobody can mount any more is in nobody's way": {
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
			for _, v := range test.volumes {
				want, asked := test.want[v.Name]
				result := reconcileVolume(t, r, v.Name)
				told := strings.Join(takeEvents(recorder), " ")
				if asked && (want == "") == strings.Contains(told, "different nconnect") || !strings.Contains(told, want) {
					t.Errorf("%s is told %q, want %q", v.Name, told, want)
				}
				if want == "" {
					continue
				}
				var got corev1.PersistentVolume
				if err := r.Client.Get(context.Background(), client.ObjectKey{Name: v.Name}, &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(v.Spec.MountOptions, got.Spec.MountOptions); diff != "" || result.RequeueAfter != contestedRetry {
					t.Errorf("%s: visited again after %s, written:\n%s", v.Name, result.RequeueAfter, diff)
				}
			}
			if _, ok := test.want["b"]; !ok {
				return
			}
			blocked := 0
			for _, profile := range []string{"four", "eight"} {
				blocked += int(Summarize(profile, snapshot(test.volumes, four, eight)).Blocked)
			}
			conflicts := 0
			for _, want := range test.want {
				if want != "" {
					conflicts++
				}
			}
			if blocked != conflicts {
				t.Errorf("%d volumes are blocked in the profiles' status, want %d", blocked, conflicts)
			}
		})
	}
}

// The view is kept, and follows what it is told.
func TestServersFollow(t *testing.T) {
	four := profileNamed("four", "nconnect=4")
	four.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{SoakSeconds: ptr.To[int32](0)}
	r, _ := newReconciler(t, interceptor.Funcs{},
		nfsVolume(nil, named("a"), labelled("tier", "four")), nfsVolume([]string{"nconnect=8"}, named("b")), four)
	r.view.watched.Store(true)
	ctx := context.Background()
	options := func(name string) []string {
		reconcileVolume(t, r, name)
		var pv corev1.PersistentVolume
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &pv); err != nil {
			t.Fatal(err)
		}
		return pv.Spec.MountOptions
	}
	if got := options("a"); len(got) > 0 {
		t.Fatalf("a has %v beside nconnect=8", got)
	}
	if err := r.Client.Delete(ctx, nfsVolume(nil, named("b"))); err != nil {
		t.Fatal(err)
	}
	reconcileVolume(t, r, "b")
	if diff := cmp.Diff([]string{"nconnect=4"}, options("a")); diff != "" {
		t.Errorf("a, once b is gone: %s", diff)
	}
	if err := r.Client.Create(ctx, nfsVolume([]string{"nconnect=2"}, named("c"), func(pv *corev1.PersistentVolume) { pv.ResourceVersion = "" })); err != nil {
		t.Fatal(err)
	}
	reconcileVolume(t, r, "c")
	if result := reconcileVolume(t, r, "a"); result.RequeueAfter != contestedRetry {
		t.Errorf("a does not notice the new volume c")
	}
}

// Ten thousand volumes cost the lists of one view, and those of another when a profile changes.
func TestReconcileListsOnceForAllVolumes(t *testing.T) {
	const volumes = 10_000
	lists := 0
	counting := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		lists++
		return c.List(ctx, list, opts...)
	}}
	wanted := []string{"nconnect=4", "nocto"}
	objects := []client.Object{fast.DeepCopy()}
	for i := range volumes {
		objects = append(objects, nfsVolume(wanted, named(fmt.Sprintf("pv%d", i)), onServer(fmt.Sprintf("filer%d", i%3)), carrying(nil, wanted, "fast")))
	}
	r, _ := newReconciler(t, counting, objects...)
	r.view.watched.Store(true)
	all := func() {
		for i := range volumes {
			reconcileVolume(t, r, fmt.Sprintf("pv%d", i))
		}
	}
	const perView = 4 // profiles, volumes, claims, classes
	all()
	if lists != perView {
		t.Errorf("%d List calls for %d volumes, want %d", lists, volumes, perView)
	}
	r.volumesOfProfile(context.Background(), &fast)
	lists = 0
	all()
	if lists != perView {
		t.Errorf("%d List calls for %d volumes after a change, want %d", lists, volumes, perView)
	}
}

func profileNamed(name string, options ...string) *v1alpha1.StorageClientProfile {
	p := byLabel(name, options...)
	return &p
}
