package plan

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
)

var update = flag.Bool("update", false, "write golden files instead of comparing them")

// bench is a small cluster without random events: the volumes a and b of server filer, c of server other, and one rule for all of them.
// It applies plans as a pass does, with the writes of the ledger.
type bench struct {
	t       *testing.T
	now     time.Time
	profile v1alpha1.StorageClientProfile
	volumes []*corev1.PersistentVolume
	pages   map[string]*corev1.ConfigMap
	classes map[string][]string
	probes  map[ProbeKey]Probe
	node    *v1alpha1.StorageClientNode
	version int
	log     []string
}

// seen contains the current observations.
type seen struct {
	failures map[string]Failure
	cures    map[string]optionset.Kind
	started  string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	p := builders.NFSProfile("p", []string{"nocto"}, builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) {
		s.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromString("100%")), SoakSeconds: ptr.To[int32](60)}
	}))
	return &bench{
		t: t, now: noon, profile: p, pages: map[string]*corev1.ConfigMap{}, node: &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		volumes: []*corev1.PersistentVolume{created("a", 9, bound), created("b", 8, bound), created("c", 7, bound, onServer("other"))},
	}
}

func (b *bench) volume(name string) *corev1.PersistentVolume {
	i := slices.IndexFunc(b.volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == name })
	if i < 0 {
		return nil
	}
	return b.volumes[i]
}

func (b *bench) set() string {
	return verdictFor(b.profile, created("a", 9)).Set
}

func (b *bench) snapshot() Snapshot {
	s := snapshotOf(b.volumes, b.profile)
	s.Now, s.Probes, s.ClientNodes = b.now, maps.Clone(b.probes), []*v1alpha1.StorageClientNode{b.node}
	s.Ledger, s.Classes = b.ledger(), b.classes
	s.Profiles = new(judge.Compiler).Compile([]*v1alpha1.StorageClientProfile{&b.profile}, catalogue.AllowList{}, false, b.classes)
	s.Evidence = confirmed(s)
	return s
}

// confirmed returns the evidence of the reported mounts, as if the API server showed a new pod for each of them.
func confirmed(s Snapshot) map[string]Evidence {
	out := map[string]Evidence{}
	for _, a := range RequiredObservations(s).Awaited {
		for _, clientNode := range s.ClientNodes {
			for _, m := range clientNode.Status.Mounts {
				if _, known := out[a.Set]; !known && m.Volume == a.Volume.Name && m.Since.After(a.After) {
					out[a.Set] = Evidence{Text: clientNode.Name + " has mounted " + m.Volume, Volume: m.Volume, Written: a.Written}
				}
			}
		}
	}
	return out
}

func (b *bench) ledger() *ledger.Ledger {
	var pages []corev1.ConfigMap
	for _, name := range slices.Sorted(maps.Keys(b.pages)) {
		pages = append(pages, *b.pages[name])
	}
	return new(ledger.Reader).Read(pages)
}

func (b *bench) keep(changes ledger.Changes) {
	writes, unsaved := b.ledger().Apply(changes)
	if len(unsaved) > 0 {
		b.t.Fatalf("the ledger did not save %v", unsaved)
	}
	for _, w := range writes {
		b.version++
		w.Page.ResourceVersion = fmt.Sprint(b.version)
		b.pages[w.Page.Name] = w.Page
	}
}

// pass plans with the requested observations, and applies the plan.
func (b *bench) pass(now seen) {
	s := b.snapshot()
	required := RequiredObservations(s)
	s.FailedMounts, s.RollbackResults = map[string]Failure{}, map[string]optionset.Kind{}
	for _, w := range required.Watched {
		if failure, failed := now.failures[w.Volume.Name]; failed {
			s.FailedMounts[w.Volume.Name] = failure
		}
	}
	for _, c := range required.RollbackChecks {
		if cure, known := now.cures[c.Volume.Name]; known {
			s.RollbackResults[c.Volume.Name] = cure
		}
	}
	for _, a := range required.Awaited {
		if a.Volume.Name == now.started {
			s.Evidence[a.Set] = Evidence{Text: "Pod eda/web on n2 has started with " + a.Volume.Name, Volume: a.Volume.Name, Written: a.Written}
		}
	}
	next := For(s)
	b.keep(next.ChangesBefore(next.Steps))
	for _, step := range next.Steps {
		carryOut(b.t, WithWriteTime(step, b.now.Add(time.Second)), b.volumes)
		text, _, _ := strings.Cut(step.String(), ", batch of")
		b.log = append(b.log, "  "+text)
	}
	b.keep(ChangesAfter(next.Steps, b.now.Add(time.Second)))
}

func (b *bench) wait(d time.Duration) { b.now = b.now.Add(d) }

// mount makes a pod on the node with the agent mount a volume with its current options.
func (b *bench) mount(name string) {
	pv := b.volume(name)
	if pv == nil {
		return
	}
	b.node.Status.Mounts = append(slices.Clone(b.node.Status.Mounts), v1alpha1.MountStatus{
		MountPoint: "/" + name, Volume: name, Protocol: "NFSv4.1", Options: append([]string{"rw", "vers=4.1"}, pv.Spec.MountOptions...),
		Since: ptr.To(metav1.NewTime(b.now.Add(-time.Second))), Used: true, State: v1alpha1.MountEffective,
	})
}

func (b *bench) probed(server string, verdict optionset.Kind) {
	probes := map[ProbeKey]Probe{}
	maps.Copy(probes, b.probes)
	probes[ProbeKey{Set: b.set(), Server: server}] = Probe{Verdict: verdict, Text: "a probe on n1: " + map[optionset.Kind]string{optionset.ProbeWorked: "Works", optionset.ProbeRefused: "Refused"}[verdict]}
	b.probes = probes
}

// stands returns the state after all pending changes.
func (b *bench) stands() string {
	s := b.snapshot()
	var carriers, checked []string
	for _, pv := range s.Volumes {
		if slices.Contains(pv.Spec.MountOptions, "nocto") {
			carriers = append(carriers, pv.Name)
		}
	}
	for _, c := range RequiredObservations(s).RollbackChecks {
		checked = append(checked, c.Volume.Name)
	}
	var stopped []string
	for _, server := range []string{"filer", "other"} {
		newest := builders.NFSVolume([]string{"hard"}, builders.Named("newest"), onServer(server))
		if _, reason, isUnproven := judgeNew(s, newest); reason != "" && !isUnproven {
			stopped = append(stopped, server)
		}
	}
	sum := Summarize("p", s)
	return fmt.Sprintf("  carriers: %s; in cure: %s; new volumes stopped on: %s; waiting for a mount: %d; stopped: %t; open: %t",
		orNone(carriers), orNone(checked), orNone(stopped), sum.Evidence.Waiting, sum.Stopped != "", strings.Contains(sum.Batch, "until a pod shows"))
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}

// judgeNew evaluates a new volume like the webhook.
func judgeNew(s Snapshot, pv *corev1.PersistentVolume) (v judge.Verdict, leftOut string, isUnproven bool) {
	known := optionset.Decode(s.Ledger.Sets())
	return judge.EvaluateNew(judge.Evaluate(judge.Input{Volume: pv, Profiles: s.Profiles}), judge.NewVolumeIndex(s.Volumes),
		func(set, _ string) *optionset.Record { return known[set] })
}

var (
	unclearFailure = Failure{Text: "access denied by server", Kind: "denied"}
	namedFailure   = Failure{Text: "an incorrect mount option was specified", Kind: "option", NamesOptions: true}
	nothingSeen    = seen{}
)

func failing(name string, f Failure) seen { return seen{failures: map[string]Failure{name: f}} }

func cured(name string, c optionset.Kind) seen {
	return seen{cures: map[string]optionset.Kind{name: c}}
}

// toCanary writes the options to the canary and waits until the end of its soak.
func toCanary(b *bench) {
	b.pass(nothingSeen)
	b.wait(2 * time.Minute)
}

func toWorks(b *bench) {
	toCanary(b)
	b.mount("a")
	b.wait(10 * time.Second)
	b.pass(nothingSeen)
	b.wait(2 * time.Minute)
	b.pass(nothingSeen)
	b.node.Status.Mounts = nil
}

// then adds a pass with the given observations.
func then(before func(*bench), now seen) func(*bench) {
	return func(b *bench) {
		before(b)
		b.wait(10 * time.Second)
		b.pass(now)
		b.wait(10 * time.Second)
	}
}

func probedTo(verdict optionset.Kind) func(*bench) {
	return func(b *bench) {
		b.probed("filer", verdict)
		b.probed("other", optionset.ProbeInconclusive)
		b.pass(nothingSeen)
		b.wait(2 * time.Minute)
	}
}

// ways contains, by name, the event sequences that lead an option set to each of its states.
var ways = map[string]func(*bench){
	"Untried":                           func(*bench) {},
	"Probing":                           func(b *bench) { b.probes = map[ProbeKey]Probe{}; b.pass(nothingSeen) },
	"Rejected":                          probedTo(optionset.ProbeRefused),
	"Works, by a probe":                 probedTo(optionset.ProbeWorked),
	"Canary":                            toCanary,
	"Works":                             toWorks,
	"Suspected":                         then(toCanary, failing("a", unclearFailure)),
	"Suspected, by name":                then(toCanary, failing("a", namedFailure)),
	"Suspected, with evidence":          then(toWorks, failing("b", unclearFailure)),
	"Suspected, by name, with evidence": then(toWorks, failing("b", namedFailure)),
	"Failing":                           then(then(toCanary, failing("a", unclearFailure)), cured("a", optionset.OwnMounted)),
	"Failing, by name":                  then(then(toCanary, failing("a", namedFailure)), cured("a", optionset.NoPodWaits)),
	"Disputed":                          then(then(toWorks, failing("b", unclearFailure)), cured("b", optionset.OwnMounted)),
	"Cleared":                           then(then(toCanary, failing("a", unclearFailure)), cured("a", optionset.OwnFailed)),
	"Cleared, and written again":        then(then(then(toCanary, failing("a", unclearFailure)), cured("a", optionset.OwnFailed)), nothingSeen),
	"Nothing learned":                   then(then(toCanary, failing("a", unclearFailure)), cured("a", optionset.NoPodWaits)),
	"Suspected of two":                  then(then(toWorks, failing("b", unclearFailure)), failing("c", namedFailure)),
	"Created with the list": func(b *bench) {
		b.mark("a", func(pv *corev1.PersistentVolume) *judge.Mark { return creationOf(b.profile, pv) })
	},
	"Written by a release that noted no proofs": func(b *bench) {
		b.mark("a", func(pv *corev1.PersistentVolume) *judge.Mark {
			return judge.MarkFor(verdictFor(b.profile, pv), noon.Add(-time.Hour))
		})
	},
	"Written by a release that left no marks": func(b *bench) { b.mark("a", func(*corev1.PersistentVolume) *judge.Mark { return nil }) },
}

// creationOf returns the mark of a volume that was created as the canary of its set. The release before marked all new volumes so.
func creationOf(p v1alpha1.StorageClientProfile, pv *corev1.PersistentVolume) *judge.Mark {
	v := verdictFor(p, pv)
	v.IsCanary = true
	return judge.MarkOfCreation(v, "")
}

// mark gives a volume the options and annotations of an earlier release.
func (b *bench) mark(name string, markOf func(*corev1.PersistentVolume) *judge.Mark) {
	pv := b.volume(name)
	mark := markOf(pv)
	pv.Spec.MountOptions = []string{"hard", "nocto"}
	builders.Carrying([]string{"hard"}, pv.Spec.MountOptions, "p")(pv)
	if mark != nil {
		pv.Annotations[v1alpha1.MountOptionsStepAnnotation] = builders.JSON(mark)
	}
}

// happenings contains the possible events for an option set.
var happenings = map[string]func(*bench) seen{
	"nothing":                    func(*bench) seen { return nothingSeen },
	"a probe works":              func(b *bench) seen { b.probed("filer", optionset.ProbeWorked); return nothingSeen },
	"a probe is refused":         func(b *bench) seen { b.probed("filer", optionset.ProbeRefused); return nothingSeen },
	"a probe shows nothing":      func(b *bench) seen { b.probed("filer", optionset.ProbeInconclusive); return nothingSeen },
	"a pod mounts a":             func(b *bench) seen { b.mount("a"); return nothingSeen },
	"a pod mounts c":             func(b *bench) seen { b.mount("c"); return nothingSeen },
	"a pod starts with a":        func(*bench) seen { return seen{started: "a"} },
	"a fails, unclear":           func(*bench) seen { return failing("a", unclearFailure) },
	"a fails, by name":           func(*bench) seen { return failing("a", namedFailure) },
	"b fails, unclear":           func(*bench) seen { return failing("b", unclearFailure) },
	"c fails, by name":           func(*bench) seen { return failing("c", namedFailure) },
	"a mounts with its own":      func(*bench) seen { return cured("a", optionset.OwnMounted) },
	"a fails alike with its own": func(*bench) seen { return cured("a", optionset.OwnFailed) },
	"no pod waits for a":         func(*bench) seen { return cured("a", optionset.NoPodWaits) },
	"b mounts with its own":      func(*bench) seen { return cured("b", optionset.OwnMounted) },
	"b fails alike with its own": func(*bench) seen { return cured("b", optionset.OwnFailed) },
	"no pod waits for b":         func(*bench) seen { return cured("b", optionset.NoPodWaits) },
	"the rule declares others":   func(b *bench) seen { b.profile = declaring(b.profile, "noatime"); return nothingSeen },
	"a is deleted":               func(b *bench) seen { b.volumes = slices.DeleteFunc(b.volumes, named("a")); return nothingSeen },
	"b is deleted":               func(b *bench) seen { b.volumes = slices.DeleteFunc(b.volumes, named("b")); return nothingSeen },
	"a loses its annotations":    func(b *bench) seen { b.strip("a"); return nothingSeen },
	"b loses its annotations":    func(b *bench) seen { b.strip("b"); return nothingSeen },
	"the ledger is lost":         func(b *bench) seen { clear(b.pages); return nothingSeen },
	"the profile is paused":      func(b *bench) seen { b.profile.Spec.Paused = true; return nothingSeen },
	"the profile wants no probe": func(b *bench) seen { b.profile.Spec.Rollout.Volumes.Probe = v1alpha1.ProbeNever; return nothingSeen },
	"the profile has a soak suffice": func(b *bench) seen {
		b.profile.Spec.Rollout.Volumes.OnNoEvidence = v1alpha1.NoEvidenceProceed
		return nothingSeen
	},
}

func declaring(p v1alpha1.StorageClientProfile, option v1alpha1.MountOption) v1alpha1.StorageClientProfile {
	out := *p.DeepCopy()
	out.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{option}
	return out
}

func named(name string) func(*corev1.PersistentVolume) bool {
	return func(pv *corev1.PersistentVolume) bool { return pv.Name == name }
}

func (b *bench) strip(name string) {
	pv := b.volume(name)
	for key := range pv.Annotations {
		if strings.HasPrefix(key, v1alpha1.GroupVersion.Group) {
			delete(pv.Annotations, key)
		}
	}
}

// TestTransitions records the result for the volumes, for each state of an option set and each possible event. The event happens in one
// pass, and two passes without an event follow.
func TestTransitions(t *testing.T) {
	var lines []string
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		for _, happening := range slices.Sorted(maps.Keys(happenings)) {
			b := newBench(t)
			ways[way](b)
			b.log = nil
			now := happenings[happening](b)
			b.wait(10 * time.Second)
			b.pass(now)
			for range 2 {
				b.wait(2 * time.Minute)
				b.pass(nothingSeen)
			}
			lines = append(append(append(lines, way+" + "+happening), b.log...), b.stands())
		}
	}
	compareGolden(t, "transitions.golden", strings.Join(lines, "\n")+"\n")
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); if it is correct, run with -update:\n%s", name, diff)
	}
}

// recording contains the objects of a cluster that concern an option set.
type recording struct {
	Now     time.Time                     `json:"now"`
	Profile v1alpha1.StorageClientProfile `json:"profile"`
	Volumes []*corev1.PersistentVolume    `json:"volumes"`
	Pages   []*corev1.ConfigMap           `json:"pages"`
}

// TestRecordings records the objects of the cluster for each state of an option set. Another release reads these recordings.
func TestRecordings(t *testing.T) {
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		b := newBench(t)
		ways[way](b)
		r := recording{Now: b.now, Profile: b.profile, Volumes: b.volumes}
		for _, name := range slices.Sorted(maps.Keys(b.pages)) {
			r.Pages = append(r.Pages, b.pages[name])
		}
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		compareGolden(t, filepath.Join("recorded", fileName(way)), string(data)+"\n")
	}
}

func fileName(way string) string {
	return strings.NewReplacer(" ", "-", ",", "").Replace(way) + ".json"
}
