package plan

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/lists"
)

// byPreviousRelease gives the objects of a cluster the form of the previous release: its marks and records name only the hash of the rules.
func (b *bench) byPreviousRelease() {
	without := func(encoded string) (fields map[string]any) {
		if err := json.Unmarshal([]byte(encoded), &fields); err != nil {
			b.t.Fatal(err)
		}
		delete(fields, "list")
		return fields
	}
	for _, pv := range b.volumes {
		for _, key := range []string{v1alpha1.MountOptionsStepAnnotation, v1alpha1.FailedMountOptionsAnnotation} {
			if text, found := pv.Annotations[key]; found {
				pv.Annotations[key] = builders.JSON(without(text))
			}
		}
	}
	for _, page := range b.pages {
		for key, entry := range page.Data {
			if !optionset.IsKey(key) {
				continue
			}
			outer := without(entry)
			inner := without(outer["failed"].(string))
			if delete(page.Data, key); strings.Contains(key, "."+inner["set"].(string)) {
				outer["failed"] = builders.JSON(inner)
				page.Data[key] = builders.JSON(outer)
			}
		}
	}
}

// settle runs passes without an observation until the ledger and the volumes do not change, and returns the volumes that were written.
func (b *bench) settle() (written []string) {
	for range 6 {
		before := len(b.log)
		b.wait(2 * time.Minute)
		next := For(b.snapshot())
		b.pass(nothingSeen)
		b.keep(next.Ledger)
		for _, line := range b.log[before:] {
			written = append(written, strings.TrimSpace(line))
		}
	}
	return written
}

func policy(p v1alpha1.ConflictPolicy) func(*bench) {
	return func(b *bench) { b.profile.Spec.Volumes[0].OnConflict = p }
}

func withOptions(options ...string) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = options }
}

func ofClass(class string) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = class }
}

// A proven record of the previous release proves the options that volumes carry, and nothing else.
func TestAnUpgradeProvesWhatVolumesCarry(t *testing.T) {
	keeping := func(b *bench) { policy(v1alpha1.ConflictKeepVolume)(b) }
	following := func(b *bench) {
		b.profile.Spec.Volumes[0].MountOptionsFrom = v1alpha1.MountOptionsFromClass
		policy(v1alpha1.ConflictUseProfileOverClass)(b)
	}
	toClass := func(options ...string) func(*bench) {
		return func(b *bench) { b.classes = map[string][]string{"gold": options} }
	}
	both := func(changes ...func(*bench)) func(*bench) {
		return func(b *bench) {
			for _, change := range changes {
				change(b)
			}
		}
	}
	for name, test := range map[string]struct {
		own    []string
		before func(*bench)
		edits  []func(*bench)
		// want are the writes after the upgrade and after each edit. If atOnce is true, the first edit accompanies the upgrade.
		want   [][]string
		atOnce bool
	}{
		"nothing else": {[]string{"timeo=300"}, keeping, nil, [][]string{nil}, false},
		"an edit of onConflict, and the edit back": {
			[]string{"timeo=300"}, keeping, []func(*bench){policy(v1alpha1.ConflictUseProfile), keeping},
			[][]string{nil, {"write a: timeo=600,nocto"}, {"write a: timeo=300,nocto"}}, false,
		},
		"an edit of onConflict together with the upgrade": {
			[]string{"timeo=300"}, keeping, []func(*bench){policy(v1alpha1.ConflictUseProfile)}, [][]string{{"write a: timeo=600,nocto"}, nil}, true,
		},
		"UseProfileOverClass": {
			[]string{"timeo=300"}, both(keeping, toClass("timeo=300")), []func(*bench){policy(v1alpha1.ConflictUseProfileOverClass)},
			[][]string{nil, {"write a: timeo=600,nocto"}}, false,
		},
		"mountOptionsFrom": {
			[]string{"timeo=300"}, both(keeping, toClass("timeo=300", "noresvport")), []func(*bench){following}, [][]string{nil, {"write a: timeo=600,nocto,noresvport"}}, false,
		},
		"an edit of the class": {
			[]string{"timeo=300"}, both(following, toClass("noresvport")), []func(*bench){toClass("resvport")}, [][]string{nil, {"write a: timeo=600,nocto,resvport"}}, false,
		},
		"an edit without another result": {[]string{"hard"}, keeping, []func(*bench){policy(v1alpha1.ConflictUseProfile)}, [][]string{nil, nil}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"timeo=600", "nocto"}
			b.volumes = nil
			for i, volume := range []string{"a", "b", "c"} {
				b.volumes = append(b.volumes, created(volume, 9-i, bound, withOptions(test.own...), ofClass("gold")))
			}
			test.before(b)
			toWorks(b)
			b.settle()
			b.byPreviousRelease()
			if test.atOnce {
				test.edits[0](b)
			}
			var got [][]string
			got = append(got, b.settle())
			if candidates := ProbeCandidates(b.snapshot()); len(candidates) > 0 && !test.atOnce {
				t.Errorf("after the upgrade: got probes %v, want none", candidates)
			}
			for _, edit := range test.edits {
				edit(b)
				got = append(got, b.settle())
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("writes after the upgrade and after each edit (-want +got):\n%s", diff)
			}
		})
	}
}

// A volume that is ignored keeps its mark and the record of the previous release. New marks do not inherit the evidence of that record.
func TestTheEvidenceOfThePreviousReleaseIsForItsMarks(t *testing.T) {
	b := newBench(t)
	b.profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"timeo=600", "nocto"}
	b.volumes = nil
	for i, volume := range []string{"a", "b", "ignored"} {
		b.volumes = append(b.volumes, created(volume, 9-i, bound, withOptions("timeo=300"), ofClass("gold")))
	}
	policy(v1alpha1.ConflictKeepVolume)(b)
	toWorks(b)
	b.settle()
	b.byPreviousRelease()
	b.volumes[2].Annotations[v1alpha1.IgnoreAnnotation] = v1alpha1.True
	b.settle()
	policy(v1alpha1.ConflictUseProfile)(b)
	if diff := cmp.Diff([]string{"write a: timeo=600,nocto"}, b.settle()); diff != "" {
		t.Errorf("writes without an observation (-want +got):\n%s", diff)
	}
}

// If no volume carries options, the record proves the options that the profile and the class give a new volume.
func TestAnUpgradeProvesWhatTheClassGives(t *testing.T) {
	for name, test := range map[string]struct {
		// volumes exist at the upgrade, later are created after it and after the edit.
		volumes, later []*corev1.PersistentVolume
		edit           func(*bench)
		want           []string
	}{
		"to all volumes with only these": {
			volumes: []*corev1.PersistentVolume{created("x", 3, bound, withOptions("timeo=300")), created("y", 2, bound), created("z", 1, bound)},
			want:    []string{"y", "z"},
		},
		"to volumes of a class with options": {
			volumes: []*corev1.PersistentVolume{created("x", 3, bound, withOptions("vers=4.2"), ofClass("gold")), created("y", 2, bound, withOptions("vers=4.2", "hard"), ofClass("gold"))},
			want:    []string{"x", "y"},
		},
		"to volumes that are created later": {
			later: []*corev1.PersistentVolume{created("x", 3, bound, withOptions("vers=4.2"), ofClass("gold")), created("y", 2, bound, withOptions("vers=4.2"), ofClass("gold"))},
			want:  []string{"x", "y"},
		},
		"not after an edit": {
			later: []*corev1.PersistentVolume{created("x", 3, bound, withOptions("timeo=300"), ofClass("odd")), created("y", 2, bound, withOptions("timeo=300"), ofClass("odd"))},
			edit:  policy(v1alpha1.ConflictUseProfile), want: []string{"x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"timeo=600", "nocto"}
			b.classes = map[string][]string{"gold": {"vers=4.2"}, "odd": {"timeo=300"}}
			toWorks(b)
			b.volumes = test.volumes
			b.byPreviousRelease()
			b.keep(For(b.snapshot()).Ledger)
			if test.edit != nil {
				test.edit(b)
			}
			b.volumes = append(b.volumes, test.later...)
			b.wait(time.Hour)
			batch, _ := stepsOf(For(b.snapshot()))
			if !slices.Equal(batch, test.want) {
				t.Errorf("got writes of %q, want %q", batch, test.want)
			}
		})
	}
}

// A failure of the previous release stops the options of its rules, on volumes that have them and on volumes that should get them.
func TestAnUpgradeForgetsNoFailure(t *testing.T) {
	for _, way := range []string{"Rejected", "Suspected", "Suspected, by name, with evidence", "Failing", "Disputed"} {
		b := newBench(t)
		ways[way](b)
		want := maps.Clone(b.snapshot().states())
		b.byPreviousRelease()
		for _, when := range []string{"at first", "later"} {
			if got := b.snapshot().states(); !maps.Equal(got, want) {
				t.Errorf("%s, %s: got states %v, want %v", way, when, got, want)
			}
			// The webhook reads the ledger without a plan.
			for _, own := range []string{"hard", "vers=4.2"} { // no volume has a list with a version
				if _, stopped, isUnproven := judgeNew(b.snapshot(), created("new", 0, withOptions(own))); stopped == "" || isUnproven {
					t.Errorf("%s, %s: got a new volume with %s and the options, want none", way, when, own)
				}
			}
			b.keep(For(b.snapshot()).Ledger)
		}
	}
}

// A failure of the previous release that is not due to the options no longer stops them, on any volume. The other options of a rule work once proven.
func TestAFailureOfThePreviousReleaseEnds(t *testing.T) {
	for name, test := range map[string]struct {
		way string
		end func(*bench) seen
	}{
		"the original options fail, too": {"Suspected", happenings["a fails alike with its own"]},
		"no pod waits for the volume":    {"Suspected", happenings["no pod waits for a"]},
		"the volume is deleted":          {"Suspected", happenings["a is deleted"]},
		"a probe works":                  {"Rejected", happenings["a probe works"]},
		"the profile wants no probe":     {"Rejected", happenings["the profile wants no probe"]},
		"the profile wants no probe, and a volume has the options": {"Rejected", func(b *bench) seen {
			pv := b.volume("a")
			mark := creationOf(b.profile, pv)
			pv.Spec.MountOptions = []string{"hard", "nocto"}
			builders.Carrying([]string{"hard"}, pv.Spec.MountOptions, "p")(pv)
			pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
			return happenings["the profile wants no probe"](b)
		}},
	} {
		b := newBench(t)
		ways[test.way](b)
		b.byPreviousRelease()
		b.keep(For(b.snapshot()).Ledger)
		for range 3 {
			b.wait(2 * time.Minute)
			b.pass(test.end(b))
			b.keep(For(b.snapshot()).Ledger)
		}
		if got := b.snapshot().states()["b"]; got == optionset.Suspected || got == optionset.Rejected {
			t.Errorf("%s: got state %s", name, got)
		}
		if sum := Summarize("p", b.snapshot()); sum.Stopped != "" {
			t.Errorf("%s: got the profile stopped by %q", name, sum.Stopped)
		}
		if _, leftOut, isUnproven := judgeNew(b.snapshot(), created("new", 0)); leftOut != "" && !isUnproven {
			t.Errorf("%s: got a new volume left out: %q", name, leftOut)
		}
	}
}

// A manager may die between two writes of the ledger. Each entry may be on another page.
func TestAnUpgradeMayStopBetweenTwoPages(t *testing.T) {
	for _, way := range []string{"Rejected", "Works", "Works, by a probe", "Suspected", "Failing", "Disputed"} {
		b := newBench(t)
		ways[way](b)
		b.byPreviousRelease()
		for _, pv := range b.volumes { // the ledger alone counts
			delete(pv.Annotations, v1alpha1.FailedMountOptionsAnnotation)
			if mark := judge.MarkOf(pv); mark != nil {
				mark.Evidence, mark.Probed = "", false
				pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
			}
		}
		want, before := b.snapshot().states(), b.pages
		changes := For(b.snapshot()).Ledger
		keys := lists.Filter(slices.Sorted(maps.Keys(changes)), func(key types.UID) bool { return optionset.IsKey(string(key)) })
		for written := range 1 << len(keys) {
			b.pages = maps.Clone(before)
			for i, key := range keys {
				if written&(1<<i) > 0 {
					b.keep(ledger.Changes{key: changes[key]})
				}
			}
			if got := b.snapshot().states(); !maps.Equal(got, want) {
				t.Errorf("%s: got states %v after the changes %b of %q, want %v", way, got, written, keys, want)
			}
			b.keep(For(b.snapshot()).Ledger)
			if got, next := b.snapshot().states(), For(b.snapshot()); !maps.Equal(got, want) || next.LedgerDue {
				t.Errorf("%s: got states %v after the next pass, more changes %v; want %v", way, got, next.Ledger, want)
			}
		}
	}
}

// An edit that changes no result keeps the set, and the profile still reports its failure. It also stays without any volume.
func TestAReorderedRuleHidesNoStop(t *testing.T) {
	b := newBench(t)
	b.profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nocto", "noresvport"}
	ways["Failing"](b)
	b.keep(For(b.snapshot()).Ledger)
	want := Summarize("p", b.snapshot()).Stopped
	slices.Reverse(b.profile.Spec.Volumes[0].MountOptions)
	for _, when := range []string{"at once", "later", "without volumes"} {
		if when == "without volumes" {
			b.volumes = nil
		}
		if got := Summarize("p", b.snapshot()).Stopped; got != want || got == "" {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
		b.keep(For(b.snapshot()).Ledger)
	}
}

// The previous release recorded a failure, and the API server rejected the restore of the volume. The cause stays unknown for all options of the rule.
func TestAnUpgradeBeforeARestoreDecidesNothing(t *testing.T) {
	b := newBench(t)
	b.volumes[1] = created("b", 8, bound, withOptions("vers=4.2"))
	toCanary(b)
	before := b.volume("a").DeepCopy()
	b.pass(failing("a", namedFailure))
	b.volumes[0] = before
	b.byPreviousRelease()
	for range 3 {
		for name, state := range b.snapshot().states() {
			if name != "c" && state != optionset.Suspected {
				t.Errorf("%s: got state %s, want Suspected", name, state)
			}
		}
		b.keep(For(b.snapshot()).Ledger)
	}
}

// states returns the state of each volume's declared set.
func (s Snapshot) states() map[string]optionset.State {
	out, p := map[string]optionset.State{}, newPlanner(s)
	for _, j := range p.volumes {
		out[j.Volume.Name] = p.sets[j.verdict.Set].State(j.Source.Server)
	}
	return out
}

// A probe of the previous release proves the options that volumes of its server carry.
func TestAnUpgradeProvesAProbeForItsServer(t *testing.T) {
	b := newBench(t)
	b.probed("filer", optionset.ProbeWorked)
	b.probed("other", optionset.ProbeWorked)
	b.pass(nothingSeen)
	b.keep(For(b.snapshot()).Ledger)
	b.volumes[2] = created("c", 7, bound, onServer("other"))
	b.byPreviousRelease()
	want := map[string]optionset.State{"a": optionset.Works, "b": optionset.Works, "c": optionset.Untried}
	b.probes = nil
	if diff := cmp.Diff(want, b.snapshot().states()); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}
