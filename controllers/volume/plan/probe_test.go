package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// probedBy returns a snapshot at noon, with volumes that the profile selects.
func probedBy(p v1alpha1.StorageClientProfile, volumes ...*corev1.PersistentVolume) Snapshot {
	s := Snapshot{Now: noon, Profiles: new(judge.Compiler).Compile(lists.Pointers([]v1alpha1.StorageClientProfile{p}), catalogue.AllowList{}, false, nil)}
	for _, pv := range volumes {
		s.Volumes = append(s.Volumes, pv.DeepCopy())
	}
	return s
}

func onServer(server string) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Server = server }
}

func probing(policy v1alpha1.ProbePolicy) builders.ProfileOption {
	return builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Volumes = &v1alpha1.VolumeRollout{Probe: policy} })
}

// carryOutAll applies all steps of a plan.
func carryOutAll(t *testing.T, s *Snapshot, plan Plan) {
	t.Helper()
	for _, step := range plan.Steps {
		carryOut(t, step, s.Volumes)
	}
}

// targets returns the names of the volumes in the steps of a plan.
func targets(p Plan) []string {
	var out []string
	for _, step := range p.Steps {
		out = append(out, step.Target().Name)
	}
	return out
}

func TestProbeCandidates(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	never := builders.NFSProfile("p", []string{"nocto"}, probing(v1alpha1.ProbeNever))
	atCreation := func(m *judge.Mark) { m.Created = true }
	for name, test := range map[string]struct {
		snapshot Snapshot
		want     []string
	}{
		"one volume represents all volumes of its server": {probedBy(p, created("b", 1), created("a", 0), created("c", 2)), []string{"a filer:/data hard,nocto hard"}},
		"each server separately": {probedBy(p, created("a", 0), created("b", 0, onServer("other"))),
			[]string{"a filer:/data hard,nocto hard", "b other:/data hard,nocto hard"}},
		"nothing if a volume already has the options":                  {probedBy(p, created("a", 0), created("b", 0, written(p, 10))), nil},
		"nor if one was created with them":                             {probedBy(p, created("a", 0), created("b", 0, written(p, 10, atCreation))), nil},
		"nothing if the profile disables probes":                       {probedBy(never, created("a", 0)), nil},
		"nothing for volumes with the declared options":                {probedBy(p, created("a", 0, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"hard", "nocto"} })), nil},
		"nothing for a profile that is paused":                         {probedBy(builders.NFSProfile("p", []string{"nocto"}, builders.Paused), created("a", 0)), nil},
		"a volume that can be probed is first":                         {probedBy(p, created("a", 0, func(pv *corev1.PersistentVolume) { pv.Spec.NFS.Path = "/a b" }), created("b", 0)), []string{"b filer:/data hard,nocto hard"}},
		"the options as the kubelet passes them":                       {probedBy(p, created("a", 0, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"vers=3", "hard"} })), []string{"a filer:/data hard,nocto,vers=3 hard,vers=3"}},
		"a volume's readOnly, which the kubelet takes from pods alone": {probedBy(p, created("a", 0, func(pv *corev1.PersistentVolume) { pv.Spec.NFS.ReadOnly = true })), []string{"a filer:/data hard,nocto hard"}},
		"Kerberos has an obstacle":                                     {probedBy(p, created("a", 0, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"sec=krb5"} })), []string{"a filer:/data nocto,sec=krb5 sec=krb5: sec=krb5 needs the node's rpc.gssd"}},
		"a port that the agent would not mount from either":            {probedBy(p, created("a", 0, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"port=2050"} })), []string{"a filer:/data nocto,port=2050 port=2050: the agent rejects mount option port=2050: is rejected: it sets which server is mounted and how it is reached; only the volume itself may set that"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range ProbeCandidates(test.snapshot) {
				line := c.Volume.Name + " " + c.Server + ":" + c.Target.Path + " " + strings.Join(c.Target.Options, ",") + " " + strings.Join(c.Target.Own, ",")
				if c.Target.Obstacle != "" {
					line += ": " + c.Target.Obstacle
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoVolumeIsEvaluatedIfNoProfileProbes matters for the CPU time of a manager with many volumes.
func TestNoVolumeIsEvaluatedIfNoProfileProbes(t *testing.T) {
	for name, p := range map[string]v1alpha1.StorageClientProfile{
		"the profile disables probes":         builders.NFSProfile("p", []string{"nocto"}, probing(v1alpha1.ProbeNever)),
		"the profile has no rule for volumes": builders.NFSProfile("p", nil, builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) { s.Volumes = nil })),
	} {
		t.Run(name, func(t *testing.T) {
			s := probedBy(p, created("a", 0))
			s.previousEvaluation = func(int) *judge.Evaluation {
				t.Error("a volume was evaluated")
				return nil
			}
			if got := ProbeCandidates(s); got != nil {
				t.Errorf("got candidates %v, want none", got)
			}
		})
	}
}

func TestVolumesWaitForTheProbe(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	s := probedBy(p, created("a", 0), created("b", 0, onServer("other")))
	key := ProbeCandidates(s)[0].ProbeKey
	for name, test := range map[string]struct {
		probes map[ProbeKey]Probe
		want   []string
		note   string
	}{
		"without probes, the canary is written":           {nil, []string{"a"}, "then"},
		"without a result, no write":                      {map[ProbeKey]Probe{}, nil, "Waiting for a probe of these options: an isolated mount from server filer; then "},
		"a result on one server is none on another one":   {map[ProbeKey]Probe{key: {Verdict: optionset.ProbeWorked}}, []string{key.Server}, ""},
		"rejected options are not written":                {map[ProbeKey]Probe{key: {Verdict: optionset.ProbeRefused, Text: "it could not"}}, nil, ""},
		"without a verdict, a mount must be the evidence": {map[ProbeKey]Probe{key: {Verdict: optionset.ProbeInconclusive, Text: "no agent"}}, []string{key.Server}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.Probes = test.probes
			plan := For(s)
			got := targets(plan)
			for i := range got {
				if test.probes != nil {
					got[i] = map[string]string{"a": "filer", "b": "other"}[got[i]]
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s\n%+v", diff, plan.Notes)
			}
			if test.probes != nil && plan.Next.IsZero() {
				t.Error("got no next plan, want a time for the next read of the result")
			}
			if test.note != "" && test.probes != nil && !strings.Contains(plan.Notes["a"].Message, test.note) {
				t.Errorf("note of a: got %q, want it to contain %q", plan.Notes["a"].Message, test.note)
			}
		})
	}
}

func TestAProbeIsEvidenceForItsServer(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	s := probedBy(p, created("a", 2), created("b", 1, onServer("other")), created("c", 0, onServer("other")))
	set := ProbeCandidates(s)[0].Set
	works := Probe{Verdict: optionset.ProbeWorked, Text: "a probe on n1 has mounted it"}
	for name, test := range map[string]struct {
		probes map[ProbeKey]Probe
		// proven and unproven are the written volumes, with and without evidence.
		proven, unproven []string
	}{
		"both servers":               {probes: map[ProbeKey]Probe{{set, "filer"}: works, {set, "other"}: works}, proven: []string{"a"}},
		"one server":                 {probes: map[ProbeKey]Probe{{set, "filer"}: works}, proven: []string{"a"}},
		"a server without a verdict": {probes: map[ProbeKey]Probe{{set, "filer"}: {Verdict: optionset.ProbeInconclusive}, {set, "other"}: works}, proven: []string{"b"}},
		"no probes":                  {unproven: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Probes = test.probes
			var proven, unproven []string
			for _, step := range For(s).Steps {
				write, ok := step.(WriteOptions)
				switch {
				case !ok:
					t.Errorf("got step %+v, want a write", step)
				case write.Mark.Unproven:
					unproven = append(unproven, write.Target().Name)
				case write.Mark.Evidence != works.Text || !write.Mark.Probed:
					t.Errorf("got mark %+v, want the evidence of the probe", write.Mark)
				default:
					proven = append(proven, write.Target().Name)
				}
			}
			if !slices.Equal(proven, test.proven) || !slices.Equal(unproven, test.unproven) {
				t.Errorf("got writes of %v with evidence and %v without, want %v and %v", proven, unproven, test.proven, test.unproven)
			}
		})
	}
}

// A probe worked on one of two servers, and its volume is written. The probe of the other server is inconclusive, so a volume of that server
// must be mounted.
func TestAProbeDoesNotCountForAnotherServer(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	s := probedBy(p, created("a", 2), created("b", 1, onServer("other")), created("c", 0, onServer("other")))
	set := ProbeCandidates(s)[0].Set
	works := Probe{Verdict: optionset.ProbeWorked, Text: "a probe on n1 has mounted it"}
	s.Probes = map[ProbeKey]Probe{{set, "filer"}: works, {set, "other"}: {Verdict: optionset.ProbeInconclusive, Text: "no agent"}}
	carryOutAll(t, &s, For(s))
	s.Now = s.Now.Add(time.Hour)
	delete(s.Probes, ProbeKey{set, "filer"})
	plan := For(s)
	if diff := cmp.Diff([]string{"b"}, targets(plan)); diff != "" {
		t.Fatalf("steps (-want +got):\n%s\n%+v", diff, plan.Notes)
	}
	if write := plan.Steps[0].(WriteOptions); !write.Mark.Unproven {
		t.Errorf("got mark %+v, want an unproven one", write.Mark)
	}
	carryOutAll(t, &s, plan)
	s.Now = s.Now.Add(time.Hour)
	awaited := RequiredObservations(s).Awaited
	if plan = For(s); len(plan.Steps) > 0 || len(awaited) != 1 || awaited[0].Volume.Name != "b" {
		t.Errorf("got steps %v, awaited mounts %+v; want no steps, a mount of b", targets(plan), awaited)
	}
	if want := "no pod has mounted PersistentVolume b"; !strings.Contains(plan.Notes["c"].Message, want) {
		t.Errorf("note of c: got %q, want it to contain %q", plan.Notes["c"].Message, want)
	}
	s.ClientNodes = []*v1alpha1.StorageClientNode{mountOf("b", -3700)}
	s.Evidence = confirmed(s)
	if diff := cmp.Diff([]string{"b", "c"}, targets(For(s))); diff != "" {
		t.Errorf("steps after a mount of b, with the record of it (-want +got):\n%s", diff)
	}
}

// A mount is also evidence for a server that rejected a probe, even if the options work on another server.
func TestAMountClearsTheRejectionOfItsServer(t *testing.T) {
	for server, want := range map[string]optionset.State{"other": optionset.Works, "third": optionset.Rejected} {
		b := newBench(t)
		toWorks(b)
		r := newPlanner(b.snapshot()).sets[b.set()]
		r.Next(optionset.Event{Kind: optionset.ProbeRefused, Server: server, Blame: optionset.Blame{Volume: "d", Text: "a probe could not mount them"}, At: b.now})
		b.keep(keptSet(r))
		b.wait(time.Minute)
		b.mount("c")
		b.wait(10 * time.Second)
		next := For(b.snapshot())
		b.keep(next.Ledger)
		if r = newPlanner(b.snapshot()).sets[b.set()]; r.State(server) != want || len(next.Steps) > 0 {
			t.Errorf("%s: got state %s, steps %v; want %s, no steps", server, r.State(server), next.Steps, want)
		}
		if later := For(b.snapshot()); later.LedgerDue {
			t.Errorf("%s: got a due ledger after it was written, want none", server)
		}
	}
}

func TestSummaryReportsProbes(t *testing.T) {
	p := builders.NFSProfile("p", []string{"nocto"})
	s := probedBy(p, created("a", 0), created("b", 1))
	key := ProbeCandidates(s)[0].ProbeKey
	s.Probes = map[ProbeKey]Probe{}
	want := "Waiting for a probe of these options: an isolated mount from server " + key.Server
	if got := Summarize("p", s); got.Batch != want || got.Stopped != "" {
		t.Errorf("during the probe: got batch %q, stopped %q; want batch %q", got.Batch, got.Stopped, want)
	}
	s.Probes[key] = Probe{Verdict: optionset.ProbeRefused, Text: "a probe on n1 could not mount it"}
	if got := Summarize("p", s); got.Stopped != "a probe on n1 could not mount it" {
		t.Errorf("after a rejected probe: got batch %q, stopped %q; want the text of the probe in stopped", got.Batch, got.Stopped)
	}
	for name, probes := range map[string]map[ProbeKey]Probe{
		"of this set": {key: {Verdict: optionset.ProbeInconclusive, Text: "no agent"}}, "of any set": {AnySet: {Verdict: optionset.ProbeInconclusive, Text: "no agent"}},
	} {
		s.Probes = probes
		got, written := Summarize("p", s), targets(For(s))
		if got.Unprobed != "not probed from server filer: no agent" || got.Batch != "" || len(written) != 1 {
			t.Errorf("after a probe %s without a result: got %q, batch %q, steps %v; want the reason and one step", name, got.Unprobed, got.Batch, written)
		}
	}
	s.Probes = map[ProbeKey]Probe{key: {Verdict: optionset.ProbeWorked, Text: "mounted"}}
	if got := Summarize("p", s); got.Batch != "" || got.Stopped != "" || got.Unprobed != "" {
		t.Errorf("after a probe that works: got batch %q, stopped %q; want neither", got.Batch, got.Stopped)
	}
}

// The manager of an earlier release waits for a clone of an SMB volume. This release has no probe for it, so a pod must mount the canary. A set that a
// clone has rejected stays stopped.
func TestASetThatWaitedForACloneGetsACanary(t *testing.T) {
	overSMB := func(pv *corev1.PersistentVolume) {
		pv.Spec.NFS = nil
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "smb.csi.k8s.io", VolumeHandle: pv.Name, VolumeAttributes: map[string]string{"source": "//filer/share"}}
		pv.Spec.MountOptions = []string{"vers=3.0"}
	}
	for name, test := range map[string]struct {
		verdict optionset.Kind
		want    []string
	}{
		"a probe without a result": {optionset.ProbeOrdered, []string{"a"}},
		"a rejection":              {optionset.ProbeRefused, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.profile.Spec.Volumes[0].Selector.Protocols = []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB}
			b.profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"actimeo=30"}
			b.volumes = []*corev1.PersistentVolume{created("a", 9, bound, overSMB), created("b", 8, bound, overSMB)}
			b.probes = map[ProbeKey]Probe{}
			candidate := ProbeCandidates(b.snapshot())[0]
			if test.verdict != optionset.ProbeOrdered {
				b.probes[candidate.ProbeKey] = Probe{Verdict: test.verdict, Text: "a probe on n1 could not mount a clone of a"}
			}
			b.pass(nothingSeen)
			if len(b.log) > 0 {
				t.Fatalf("got steps %v of the earlier release, want none", b.log)
			}

			b.wait(time.Minute)
			if candidate.Target.Obstacle == "" {
				t.Fatal("got no obstacle, want the reason why there is no probe")
			}
			b.probes = map[ProbeKey]Probe{candidate.ProbeKey: {Verdict: optionset.ProbeInconclusive, Text: candidate.Target.Obstacle}}
			plan := For(b.snapshot())
			if got := targets(plan); !slices.Equal(got, test.want) {
				t.Fatalf("got writes of %v, want %v: %+v", got, test.want, plan.Notes)
			}
			if test.want != nil && !plan.Steps[0].(WriteOptions).Mark.Unproven {
				t.Errorf("got mark %+v, want an unproven one", plan.Steps[0].(WriteOptions).Mark)
			}
		})
	}
}
