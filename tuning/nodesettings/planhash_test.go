package nodesettings

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// planned returns a profile that sets every field of the plan's hash.
func planned(change ...func(*v1alpha1.StorageClientProfile)) *v1alpha1.StorageClientProfile {
	p := profile("a", 0, argument("ihash_entries=16777216"))
	p.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "eda", "tier": "gold"}}
	for _, c := range change {
		c(&p)
	}
	return &p
}

func TestAnApprovalDoesNotSurviveAnotherDisruption(t *testing.T) {
	inGold := metav1.LabelSelectorRequirement{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"gold"}}
	for name, change := range map[string]func(*v1alpha1.StorageClientProfile){
		"other nodes":       func(p *v1alpha1.StorageClientProfile) { p.Spec.NodeSelector.MatchLabels["pool"] = "all" },
		"more nodes":        func(p *v1alpha1.StorageClientProfile) { delete(p.Spec.NodeSelector.MatchLabels, "tier") },
		"the control plane": func(p *v1alpha1.StorageClientProfile) { p.Spec.IncludeControlPlane = true },
		"data that is lost": func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Drain.DeleteEmptyDirData = true },
		"all nodes at a time": func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromString("100%"))
		},
		"another argument": func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.KernelArguments[0] = "ihash_entries=8388608" },
		"taking it back":   func(p *v1alpha1.StorageClientProfile) { p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) },
		"pods to wait for": func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Rollout.Drain.WaitForPodSelector = &metav1.LabelSelector{}
		},
		"an expression": func(p *v1alpha1.StorageClientProfile) {
			inGold.Operator = metav1.LabelSelectorOpNotIn
			p.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "eda"}, MatchExpressions: []metav1.LabelSelectorRequirement{inGold}}
		},
	} {
		if PlanHash(planned()) == PlanHash(planned(change)) {
			t.Errorf("got an approval that also covers %s", name)
		}
	}
}

func TestPlansWithTheSameDisruptionHaveOneHash(t *testing.T) {
	window := func(schedule, zone string) v1alpha1.Window {
		return v1alpha1.Window{Schedule: schedule, DurationSeconds: 3600, TimeZone: zone}
	}
	in := func(key string, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	selector := func(expressions ...metav1.LabelSelectorRequirement) func(*v1alpha1.StorageClientProfile) {
		return func(p *v1alpha1.StorageClientProfile) {
			p.Spec.NodeSelector = metav1.LabelSelector{MatchExpressions: expressions}
		}
	}
	nothing := func(*v1alpha1.StorageClientProfile) {}
	for name, alike := range map[string][2]func(*v1alpha1.StorageClientProfile){
		"defaults that are written out": {nothing, func(p *v1alpha1.StorageClientProfile) {
			p.Spec = p.Spec.WithDefaults()
		}},
		"labels, and expressions of one value": {nothing, selector(in("tier", "gold"), in("pool", "eda"))},
		"values in another order, or twice":    {selector(in("pool", "a", "b")), selector(in("pool", "b", "a", "a"), in("pool", "a", "b"))},
		"windows in another order, or twice, and UTC by default": {
			func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Rollout.Windows = []v1alpha1.Window{window("0 2 * * 6", "UTC"), window("0 3 * * 6", "Europe/Berlin")}
			},
			func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Rollout.Windows = []v1alpha1.Window{window("0 3 * * 6", "Europe/Berlin"), window("0 2 * * 6", ""), window("0 2 * * 6", "UTC")}
			},
		},
		"boot arguments in another order": {
			func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.KernelArguments = append(p.Spec.Node.KernelArguments, "nosmt")
			},
			func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"nosmt", "ihash_entries=16777216"}
			},
		},
	} {
		one, other := planned(alike[0]), planned(alike[1])
		before := other.DeepCopy()
		if PlanHash(one) != PlanHash(other) {
			t.Errorf("%s: got another hash", name)
		}
		if !reflect.DeepEqual(before, other) {
			t.Errorf("%s: got a change of the profile, which is shared with a cache", name)
		}
	}
}

func TestAProfileWithoutBootSettingsHasNoPlan(t *testing.T) {
	p := planned(func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.KernelArguments = nil })
	sysctl("vm.dirty_ratio", "10")(&p.Spec)
	deleted := p.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	if PlanHash(p) != "" || PlanHash(deleted) != "" {
		t.Errorf("got %q and %q, want no hash without a plan", PlanHash(p), PlanHash(deleted))
	}
}

// leftOutOfPlan contains the fields of a spec that may change under an approval, each with the reason.
var leftOutOfPlan = map[string]string{
	"mode":                        "whether the plan is carried out at all; it is reviewed and approved in mode Plan, and then enforced",
	"paused":                      "when the plan begins, which is the author's",
	"onUnsupported":               "only what Ready says",
	"node.sysctls":                "applied live, no node reboots for them",
	"node.sysctlsAtLeast":         "applied live, no node reboots for them",
	"node.kernelModules":          "applied live, or at a boot that somebody else makes",
	"node.readAhead":              "applied live",
	"node.nfs4UniqueID":           "counts from a boot that somebody else makes",
	"node.tuned":                  "applied live",
	"node.nfsMountDefaults":       "take effect at the next mount",
	"node.filesystems":            "applied live",
	"volumes":                     "no volume disrupts a node",
	"rollout.maxConcurrentLive":   "live changes take no node out of service",
	"rollout.volumes":             "no volume disrupts a node",
	"rollout.reboot.policy":       "whether an approval is needed at all; the admission policy asks for the right to set Automatic",
	"rollout.reboot.approvedPlan": "the approval itself",
}

// fieldsOfSpec returns each covered or excluded field, including the fields of the API's structs.
func fieldsOfSpec(of reflect.Type, path string) []string {
	var out []string
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		at := strings.TrimPrefix(path+"."+name, ".")
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if _, leftOut := leftOutOfPlan[at]; !leftOut && inner.Kind() == reflect.Struct && strings.HasSuffix(inner.PkgPath(), "api/v1alpha1") {
			out = append(out, fieldsOfSpec(inner, at)...)
			continue
		}
		out = append(out, at)
	}
	return out
}

// otherValues contains, for each field of a spec, a value that is not its default.
var otherValues = map[string]any{
	"nodeSelector":                        map[string]any{"matchLabels": map[string]any{"pool": "b"}},
	"allNodes":                            true,
	"includeControlPlane":                 true,
	"priority":                            1,
	"mode":                                "Plan",
	"paused":                              true,
	"deletionPolicy":                      "Retain",
	"onUnsupported":                       "Fail",
	"node.sysctls":                        map[string]any{"vm.dirty_ratio": "10"},
	"node.sysctlsAtLeast":                 map[string]any{"net.core.rmem_max": "16777216"},
	"node.kernelModules":                  []any{map[string]any{"name": "nfs", "parameters": map[string]any{"max_session_slots": "180"}}},
	"node.kernelArguments":                []any{"ihash_entries=8388608"},
	"node.nfs4UniqueID":                   "FromNode",
	"node.readAhead":                      []any{map[string]any{"fsTypes": []any{"nfs"}, "sizeKiB": 1024}},
	"node.tuned":                          map[string]any{"profile": "latency-performance"},
	"node.nfsMountDefaults":               []any{map[string]any{"options": []any{"nconnect=4"}}},
	"node.filesystems":                    []any{map[string]any{"mountPoint": "/mnt", "mountOptions": []any{"noatime"}}},
	"volumes":                             []any{map[string]any{"name": "a", "mountOptions": []any{"nocto"}}},
	"rollout.maxUnavailable":              2,
	"rollout.maxConcurrentLive":           "50%",
	"rollout.canary.nodes":                2,
	"rollout.canary.nodeSelector":         map[string]any{"matchLabels": map[string]any{"canary": "yes"}},
	"rollout.canary.soakSeconds":          0,
	"rollout.failureThreshold":            100,
	"rollout.settleSeconds":               0,
	"rollout.windows":                     []any{map[string]any{"schedule": "0 2 * * 6", "durationSeconds": 60}},
	"rollout.drain.timeoutSeconds":        1,
	"rollout.drain.deleteEmptyDirData":    true,
	"rollout.drain.waitForPodSelector":    map[string]any{"matchLabels": map[string]any{"app": "db"}},
	"rollout.drain.ignoreDaemonSetMounts": false,
	"rollout.drain.excludeFromLoadBalancersSeconds": 30,
	"rollout.drain.lookAhead":                       "CordonFirst",
	"rollout.reboot.policy":                         "Automatic",
	"rollout.reboot.approvedPlan":                   "0123456789abcdef",
	"rollout.reboot.timeoutSeconds":                 60,
	"rollout.reboot.restoreReboot":                  true,
	"rollout.volumes":                               map[string]any{"soakSeconds": 1},
}

func withField(t *testing.T, p *v1alpha1.StorageClientProfile, path string, value any) *v1alpha1.StorageClientProfile {
	t.Helper()
	for _, name := range slices.Backward(strings.Split(path, ".")) {
		value = map[string]any{name: value}
	}
	data, err := yaml.Marshal(map[string]any{"spec": value})
	check.NoError(t, err)
	changed := p.DeepCopy()
	check.NoError(t, yaml.UnmarshalStrict(data, changed))
	return changed
}

// A new field must be listed here: does it determine the disrupted workloads or the disruption?
func TestEveryFieldIsCoveredByThePlansHashOrLeftOutForAReason(t *testing.T) {
	fields := fieldsOfSpec(reflect.TypeFor[v1alpha1.StorageClientProfileSpec](), "")
	for _, path := range fields {
		value, known := otherValues[path]
		if !known {
			t.Errorf("spec.%s is new: add another value to otherValues, and add a reason to leftOutOfPlan if approvals must not cover it", path)
			continue
		}
		changed := withField(t, planned(), path, value)
		if reflect.DeepEqual(planned().Spec.WithDefaults(), changed.Spec.WithDefaults()) {
			t.Errorf("spec.%s: got %v in otherValues, want another value", path, value)
		}
		reason, leftOut := leftOutOfPlan[path]
		switch same := PlanHash(planned()) == PlanHash(changed); {
		case leftOut && (!same || reason == ""):
			t.Errorf("spec.%s is in leftOutOfPlan (%q): got the hash changed: %v", path, reason, !same)
		case !leftOut && same:
			t.Errorf("spec.%s: got the same hash after a change, want another hash", path)
		}
	}
	for path := range leftOutOfPlan {
		if !slices.Contains(fields, path) {
			t.Errorf("spec.%s is in leftOutOfPlan, but this field does not exist", path)
		}
	}
}

// Failures stay recorded until the settings that require a reboot change, whatever else of the plan changes.
func TestFailuresAreRecordedForTheSettingsThatRequireAReboot(t *testing.T) {
	window := []v1alpha1.Window{{Schedule: "0 2 * * *", DurationSeconds: 3600}}
	for name, c := range map[string]struct {
		change  func(*v1alpha1.StorageClientProfile)
		outlive bool
	}{
		"a window":         {func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Windows = window }, true},
		"the settle time":  {func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.SettleSeconds = ptr.To[int32](77) }, true},
		"the budget":       {func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(3)) }, true},
		"the drain":        {func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Drain.DeleteEmptyDirData = true }, true},
		"the priority":     {func(p *v1alpha1.StorageClientProfile) { p.Spec.Priority = 7 }, true},
		"the nodes":        {func(p *v1alpha1.StorageClientProfile) { p.Spec.NodeSelector.MatchLabels["pool"] = "all" }, true},
		"another argument": {func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.KernelArguments[0] = "ihash_entries=8388608" }, false},
		"its deletion":     {func(p *v1alpha1.StorageClientProfile) { p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }, false},
	} {
		before, after := BootSettingsHash(planned()), BootSettingsHash(planned(c.change))
		if before == "" || (before == after) != c.outlive {
			t.Errorf("%s: got %s, then %s; want failures to stay recorded: %t", name, before, after, c.outlive)
		}
		if before, after := PlanHash(planned()), PlanHash(planned(c.change)); before == after {
			t.Errorf("%s: got plan %s before and after; want a case that changes the plan", name, before)
		}
	}
}
