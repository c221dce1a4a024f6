package recommend

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/nodesettings"
)

func target() Target {
	return Target{
		Name: "recommended-eda-tools", Protocol: mountoptions.NFS, Priority: 8, Hostnames: []string{"n1", "n2"},
		Selector: v1alpha1.VolumeSelector{ClaimNamespaces: []string{"eda"}, StorageClassNames: []string{"nfs"}},
	}
}

// declared returns a target whose volume already has a rule.
func declared(change ...func(*v1alpha1.VolumeRule)) Target {
	t := target()
	t.Rule = "nfs"
	t.Profile = &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda", ResourceVersion: "7", Finalizers: []string{v1alpha1.Finalizer}}}
	t.Profile.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "eda"}
	t.Profile.Spec.Volumes = []v1alpha1.VolumeRule{
		{Name: "other", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB}}, MountOptions: []v1alpha1.MountOption{"actimeo=5"}},
		{Name: "nfs", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}, MountOptions: []v1alpha1.MountOption{"nconnect=4", "actimeo=5"}},
	}
	for _, c := range change {
		c(&t.Profile.Spec.Volumes[1])
	}
	return t
}

func findings(samples ...Sample) []Finding {
	var all []Finding
	for _, s := range samples {
		all = append(all, evaluate(s).Findings...)
	}
	return all
}

func TestAProposalChangesTheRuleOfTheVolume(t *testing.T) {
	target := declared()
	p := Propose(target, findings(nfs("NFSv4.1", operation("GETATTR", 16387))))
	if len(p.Profiles) != 1 {
		t.Fatalf("%+v", p)
	}
	got := p.Profiles[0]
	want := declared(func(r *v1alpha1.VolumeRule) {
		r.MountOptions = []v1alpha1.MountOption{"acregmin=30", "acregmax=60", "acdirmin=30", "acdirmax=60", "nconnect=4"}
	}).Profile.Spec
	if diff := cmp.Diff(want, got.Spec); diff != "" || got.Name != "eda" || got.ResourceVersion != "" || got.Finalizers != nil {
		t.Errorf("%+v, spec (-want +got):\n%s", got.ObjectMeta, diff)
	}
	changes := []string{
		"profile eda, rule nfs: mountOptions [acregmin=30]", "profile eda, rule nfs: onConflict stays KeepVolume, so a volume with another value keeps it",
		"profile eda, rule nfs: all volumes that it selects get the same changes",
	}
	check.Equal(t, "changes", changes, p.Changes)
	if diff := cmp.Diff(declared().Profile, target.Profile); diff != "" {
		t.Errorf("got the caller's profile changed:\n%s", diff)
	}
	p = Propose(declared(func(r *v1alpha1.VolumeRule) { r.OnConflict = v1alpha1.ConflictUseProfile }), findings(nfs("NFSv4.1", operation("GETATTR", 16387))))
	if strings.Contains(strings.Join(p.Changes, "\n"), "onConflict") {
		t.Errorf("got changes %v", p.Changes)
	}
}

func TestAProposalWithoutARuleIsANewProfile(t *testing.T) {
	p := Propose(target(), findings(nfs("NFSv4.1", operation("GETATTR", 16387)), nfs("NFSv4.1", slotsInUse(2, 31)), nfs("NFSv4.1", read(256, 256, 64))))
	want := v1alpha1.StorageClientProfileSpec{
		NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: []string{"n1", "n2"}},
		}},
		Priority: 8,
		Node:     &v1alpha1.NodeTuning{KernelModules: []v1alpha1.KernelModule{{Name: "nfs", Parameters: map[string]v1alpha1.SettingText{"max_session_slots": "180"}}}},
		Volumes: []v1alpha1.VolumeRule{{
			Name: "recommended", Selector: target().Selector, MountOptions: []v1alpha1.MountOption{"acregmin=30"}, ReadAheadKiB: ptr.To[int32](1024), OnConflict: v1alpha1.ConflictUseProfile,
		}},
	}
	if len(p.Profiles) != 1 || p.Profiles[0].Name != "recommended-eda-tools" {
		t.Fatalf("%+v", p)
	}
	check.Equal(t, "spec", want, p.Profiles[0].Spec)
}

// Node settings do not belong in the profile that selects the volume: it may select other nodes.
func TestAProposalForNodesIsASeparateProfile(t *testing.T) {
	p := Propose(declared(), findings(nfs("NFSv4.1", operation("GETATTR", 16387)), nfs("NFSv4.1", slotsInUse(2, 31))))
	if len(p.Profiles) != 2 || p.Profiles[0].Name != "eda" || p.Profiles[0].Spec.Node != nil || p.Profiles[1].Spec.Volumes != nil || p.Profiles[1].Spec.Node == nil {
		t.Errorf("%+v", p.Profiles)
	}
}

// The nodes of a volume get one set of settings, in any order of the findings.
func TestNodeSettingsOfSeveralRulesAreJoined(t *testing.T) {
	slots := nfs("NFSv3", timing(225, 9, 1.4), func(s *Sample) { s.Connections[0].Backlog = 19669; s.SlotLimit = 2 })
	flaps := nfs("NFSv4.1", func(s *Sample) { s.Operations = append(s.Operations, Operation{Name: "EXCHANGE_ID", Count: 5}) })
	samples := []Sample{slots, nfs("NFSv4.1", slotsInUse(2, 31)), flaps, nfs("NFSv4.1", slotsInUse(64, 31))}
	want := &v1alpha1.NodeTuning{
		Sysctls:       map[string]v1alpha1.SettingText{"sunrpc.tcp_max_slot_table_entries": "128"},
		KernelModules: []v1alpha1.KernelModule{{Name: "nfs", Parameters: map[string]v1alpha1.SettingText{"max_session_slots": "180"}}},
		NFS4UniqueID:  v1alpha1.NFS4UniqueIDFromNode,
	}
	for range samples {
		samples = append(samples[1:], samples[0])
		check.Equal(t, "node", want, Propose(target(), findings(samples...)).Profiles[0].Spec.Node)
	}
}

func TestChangesThatAreLeftOut(t *testing.T) {
	for name, test := range map[string]struct {
		samples []Sample
		want    string
	}{
		"changes that one window cannot justify": {[]Sample{nfs("NFSv3", operation("GETATTR", 6000), events(counters.Events{Opens: 6000}))}, "[nocto] (CloseToOpen): a program may read"},
		"what programs may rely on":              {[]Sample{nfs("NFSv4.1", operation("GETATTR", 6000), option("noac"))}, "[acregmin=30] (AttributeRevalidation): changes by other clients become visible 30 to 60 s later; find out first why the mount has noac"},
		"another version":                        {[]Sample{nfs("NFSv4.1", operation("OPEN", 6000))}, "[vers=3] (OpenAndClose)"},
		"writes that may be lost":                {[]Sample{nfs("NFSv4.1", wrote(6000, 8, false), option("sync"))}, "[async] (SynchronousMount)"},
		"read-ahead of files that may be mapped": {[]Sample{nfs("NFSv4.1", read(680, 512, 64), readAhead(15360))}, "[readAheadKiB=1920] (LargeReadAhead): programs that map files"},
		"attributes without a listing":           {[]Sample{nfs("NFSv4.1", operation("GETATTR", 6000), events(counters.Events{}))}, "[acregmin=30] (AttributeRevalidation): programs that wait for changes"},
		"the same of several, is once":           {[]Sample{nfs("NFSv4.1", operation("OPEN", 6000)), nfs("NFSv4.1", operation("OPEN", 7000))}, "[vers=3] (OpenAndClose)"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Propose(declared(), findings(test.samples...))
			if len(p.LeftOut) != 1 || !strings.Contains(p.LeftOut[0], test.want) || len(p.Profiles) > 0 {
				t.Errorf("%+v", p)
			}
		})
	}
}

// Entries of the registry about one server say nothing about others.
func TestConnectionsToAnyOtherServerAreProposed(t *testing.T) {
	for _, server := range []string{"10.0.0.3", "filer.example.com", "fs-0123.fsx.eu-west-1.amazonaws.com"} {
		s := nfs("NFSv3", filled(12), func(s *Sample) { s.Server = server })
		if got := readyOf(evaluate(s)); !slices.Equal(got, []string{"nconnect=4"}) {
			t.Errorf("%s: got %q", server, got)
		}
	}
}

// A rule whose options a user chose gets no change, even if the mounts do not have them yet. Settings of nodes do not depend on it.
func TestARuleWithChosenOptionsIsUnchanged(t *testing.T) {
	for _, chosen := range []v1alpha1.MountOption{"sec=krb5p", "noac", "actimeo=0", "lookupcache=none", "proto=rdma"} {
		p := Propose(declared(func(r *v1alpha1.VolumeRule) { r.MountOptions = append(r.MountOptions, chosen) }),
			findings(nfs("NFSv4.1", operation("GETATTR", 16387)), nfs("NFSv4.1", slotsInUse(2, 31))))
		if len(p.Profiles) != 1 || p.Profiles[0].Name != "recommended-eda-tools" || p.Profiles[0].Spec.Volumes != nil ||
			len(p.LeftOut) != 1 || !strings.HasSuffix(p.LeftOut[0], string(chosen)) {
			t.Errorf("%s: %+v", chosen, p)
		}
	}
}

// The mounts of a volume share its options, so a change that a user must decide on for one of them is not ready for the others.
func TestAChangeThatIsByHandOnOneMountIsLeftOut(t *testing.T) {
	changing := nfs("NFSv4.1", operation("GETATTR", 16387), func(s *Sample) { s.Events.DataInvalidations = 5 })
	for _, samples := range [][]Sample{{nfs("NFSv4.1", operation("GETATTR", 16387)), changing}, {changing, nfs("NFSv4.1", operation("GETATTR", 16387))}} {
		if p := Propose(declared(), findings(samples...)); len(p.Profiles) > 0 || len(p.LeftOut) != 1 {
			t.Errorf("%+v", p)
		}
		check.Equal(t, "result", MayHelp, Conclude([]Mount{of("n1", findings(samples[0])...), of("n2", findings(samples[1])...)}))
	}
}

// A proposed profile comes with the advice on it, for the kernels of its nodes.
func TestAProposalHasTheAdviceOnItsProfiles(t *testing.T) {
	to := declared()
	to.Nodes = []advice.Node{{Name: "n1", Kernel: "5.2.21"}}
	p := Propose(to, findings(nfs("NFSv4.1", operation("GETATTR", 16387))))
	ids := lists.Each(p.Advice["eda"], func(a v1alpha1.Advice) string { return a.ID })
	if len(p.Profiles) != 1 || !slices.Contains(ids, "nconnect-kernel") {
		t.Errorf("got advice %q on %+v", ids, p.Profiles)
	}
}

func TestReadAheadThatIsDisputedIsLeftOut(t *testing.T) {
	p := Propose(declared(), findings(nfs("NFSv4.1", read(256, 256, 64)), nfs("NFSv4.1", read(680, 512, 64), readAhead(15360))))
	if len(p.Profiles) > 0 || len(p.LeftOut) != 2 || !strings.Contains(p.LeftOut[1], "they share one value") {
		t.Errorf("%+v", p)
	}
}

// cacheTimes are the effective cache times of options: the kernel's defaults, then the options in order.
func cacheTimes(options []string) map[string]int {
	times := map[string]int{"acregmin": 3, "acregmax": 60, "acdirmin": 30, "acdirmax": 60}
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		n, err := strconv.Atoi(value)
		for timer := range times {
			if err == nil && (name == timer || name == "actimeo") {
				times[timer] = n
			}
		}
	}
	return times
}

// A proposal for longer caching lowers no cache time, neither of the effective options nor of the options of a rule.
func TestAProposalLowersNoCacheTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		option := rapid.Custom(func(t *rapid.T) string {
			name := rapid.SampledFrom([]string{"acregmin", "acregmax", "acdirmin", "acdirmax", "actimeo"}).Draw(t, "name")
			return fmt.Sprintf("%s=%d", name, rapid.SampledFrom([]int{0, 1, 3, 5, 29, 30, 31, 60, 600, 3600}).Draw(t, "seconds"))
		})
		list := rapid.SliceOfN(option, 0, 4).Draw(t, "options")
		s := nfs("NFSv4.1", operation("GETATTR", 16387))
		before := cacheTimes(list)
		for _, name := range timerNames {
			s.Options = append(slices.DeleteFunc(s.Options, func(o string) bool { return strings.HasPrefix(o, name+"=") }), fmt.Sprintf("%s=%d", name, before[name]))
		}
		inForce := rapid.Bool().Draw(t, "the rule's options are effective")
		if !inForce {
			list = rapid.SliceOfN(option, 0, 4).Draw(t, "options of the rule")
			before = cacheTimes(list)
		}
		p := Propose(declared(func(r *v1alpha1.VolumeRule) {
			r.MountOptions = nil
			for _, o := range list {
				r.MountOptions = append(r.MountOptions, v1alpha1.MountOption(o))
			}
		}), evaluate(s).Findings)
		if len(p.Profiles) == 0 {
			return
		}
		after := cacheTimes(optionTexts(p.Profiles[0].Spec.Volumes[1].MountOptions))
		for name, seconds := range before {
			if after[name] < seconds {
				t.Fatalf("%s: got %d s from %v, want at least %d s as with %v", name, after[name], p.Profiles[0].Spec.Volumes[1].MountOptions, seconds, list)
			}
		}
		if after["acregmin"] < proposedCacheSeconds {
			t.Fatalf("got acregmin %d from %v", after["acregmin"], p.Profiles[0].Spec.Volumes[1].MountOptions)
		}
	})
}

// A user who declared one connection chose it.
func TestADeclaredNumberOfConnectionsIsRaisedByHand(t *testing.T) {
	s := nfs("NFSv3", filled(12), func(s *Sample) { s.Server = "10.0.0.3" }, option("nconnect=1"))
	if got := evaluate(s).Findings; len(got) == 0 || got[0].Rule != "FewConnections" || !got[0].ByHand {
		t.Errorf("got %+v, want FewConnections by hand", got)
	}
}

// Connections and slots are raised, whatever is effective.
func TestAProposalLowersNoNumber(t *testing.T) {
	for n := 1; n < maxNconnect; n++ {
		s := nfs("NFSv4.1", read(60000, 1024, 60000), readAhead(1024), option(fmt.Sprintf("nconnect=%d", n)))
		s.Operations[0].RoundTripMillis, s.Operations[0].Count = 60000*12*uint64(n), 60000*uint64(n)
		s.Operations[0].BytesReceived *= uint64(n)
		f := evaluate(s).Findings
		if len(f) == 0 || f[0].Rule != "FewConnections" {
			t.Fatalf("nconnect=%d: got %+v", n, f)
		}
		if wanted, _ := (Sample{Options: f[0].Change.Texts()}).number("nconnect"); wanted <= n || wanted > maxNconnect {
			t.Errorf("nconnect=%d: got %d", n, wanted)
		}
	}
	for limit := 1; limit <= 65536; limit *= 2 {
		if slots := slotsFor(limit); slots < limit {
			t.Errorf("%d slots: got %d", limit, slots)
		}
	}
	for limit := 1; limit <= maxSessionSlots; limit++ {
		f := evaluate(nfs("NFSv4.1", slotsInUse(limit, 31))).Findings
		if limit == maxSessionSlots {
			if len(f) > 0 {
				t.Errorf("the maximum: got %+v", f)
			}
			break
		}
		if len(f) != 1 || f[0].Rule != "FewSessionSlots" {
			t.Fatalf("%d session slots: got %+v", limit, f)
		}
		if wanted := wantedSlots(t, f[0].Change.Node); wanted <= limit || wanted > maxSessionSlots {
			t.Errorf("%d session slots: got %d", limit, wanted)
		}
	}
}

func sessionSlots(limit int) func(*Sample) { return func(s *Sample) { s.SessionSlots = limit } }

func wantedSlots(t *testing.T, node *v1alpha1.NodeTuning) int {
	t.Helper()
	n, err := strconv.Atoi(string(node.KernelModules[0].Parameters["max_session_slots"]))
	check.NoError(t, err)
	return n
}

func TestNoProposalIfNoSettingHelps(t *testing.T) {
	for name, s := range map[string]Sample{"healthy": nfs("NFSv4.1"), "a busy server": nfs("NFSv4.1", timing(0.2, 105, 1.4))} {
		if p := Propose(declared(), findings(s)); len(p.Profiles)+len(p.Changes)+len(p.LeftOut) > 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// The manager accepts every proposal, alone and in addition to the options of a rule.
func TestEveryProposalIsValid(t *testing.T) {
	proposed := map[string]bool{}
	for _, s := range []Sample{
		nfs("NFSv4.1", operation("GETATTR", 16387)),
		nfs("NFSv3", timing(225, 9, 1.4), func(s *Sample) { s.Connections[0].Backlog = 19669; s.SlotLimit = 2 }),
		nfs("NFSv4.1", slotsInUse(2, 31)), nfs("NFSv4.1", slotsInUse(64, 31)),
		nfs("NFSv4.1", func(s *Sample) { s.Operations = append(s.Operations, Operation{Name: "EXCHANGE_ID", Count: 5}) }),
		nfs("NFSv4.1", read(256, 256, 64)),
		nfs("NFSv4.1", read(60000, 1024, 60000), readAhead(1024), func(s *Sample) { s.Operations[0].RoundTripMillis = 60000 * 12 }),
		nfs("NFSv4.1", read(6000, 32, 180), option("rsize=32768"), option("wsize=1048576")),
		nfs("NFSv4.1", wrote(6000, 32, false), option("wsize=32768"), option("rsize=1048576")),
		nfs("xfs", log(counters.Log{Writes: 6000, NoBuffer: 600})),
	} {
		for _, f := range findings(s) {
			proposed[f.Rule] = true
			for _, to := range []Target{target(), declared()} {
				if s.Protocol == "xfs" {
					to.Protocol = mountoptions.XFS
					to.Selector.FSTypes = []string{"xfs"}
					if to.Profile != nil {
						to.Profile.Spec.Volumes[1] = v1alpha1.VolumeRule{Name: "nfs", Selector: v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}, MountOptions: []v1alpha1.MountOption{"logbsize=32k"}}
					}
				}
				p := Propose(to, []Finding{f})
				if len(p.Profiles) == 0 {
					t.Errorf("%s: got no proposal", f.Rule)
				}
				for i := range p.Profiles {
					for _, problem := range nodesettings.Validate(&p.Profiles[i], catalogue.AllowList{}) {
						if !problem.Warning {
							t.Errorf("%s: %s", f.Rule, problem)
						}
					}
				}
			}
		}
	}
	for _, r := range Rules() {
		byHand := slices.Contains([]string{"CloseToOpen", "SynchronousMount", "OpenAndClose", "LargeReadAhead"}, r.ID)
		if r.Cause == CauseClient && !byHand && !proposed[r.ID] {
			t.Errorf("want a test of a proposal of %s", r.ID)
		}
	}
}
