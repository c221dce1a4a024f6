package judge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/test/builders"
)

func TestTheLedgerReplacesMissingAnnotations(t *testing.T) {
	hard, soft := []string{"hard"}, []string{"soft"}
	merged := []string{"hard", "nconnect=4", "nocto"}
	entry := func(change ...func(*ledger.Entry)) *ledger.Entry {
		e := &ledger.Entry{Volume: "pv1", Written: []ledger.Lists{{Original: hard, Applied: merged}}, Profiles: []string{"fast"}}
		for _, c := range change {
			c(e)
		}
		return e
	}
	annotationsRestored := func(e *ledger.Entry) { e.AnnotationsRestored = true }
	retained := builders.NFSProfile("fast", []string{"nconnect=4", "nocto"}, builders.Deleted, builders.Retaining)
	replaces := managedBy("kubectl-replace", metav1.ManagedFieldsOperationUpdate, ownsOptions)
	const adopt = `to adopt the current mountOptions as the original ones, run: kubectl annotate --overwrite pv pv1 tuning.storageclient.dev/original-mount-options='["soft"]' ` +
		`tuning.storageclient.dev/applied-mount-options='["soft"]' --field-manager=storageclient-plugin`
	conflict := leftAlone(v1alpha1.VolumeReasonConflict, "fast")
	for name, test := range map[string]struct {
		volume   *corev1.PersistentVolume
		entry    *ledger.Entry
		profiles []v1alpha1.StorageClientProfile
		want     outcome
		message  string
	}{
		"removed annotations are restored":             {builders.NFSVolume(merged), entry(), []v1alpha1.StorageClientProfile{fast}, written(hard, merged, "fast"), "Restored the operator's annotations"},
		"and broken annotations":                       {builders.NFSVolume(merged, builders.Annotated(v1alpha1.OriginalMountOptionsAnnotation, "{")), entry(), []v1alpha1.StorageClientProfile{fast}, written(hard, merged, "fast"), "Restored the operator's annotations"},
		"but not a second time":                        {builders.NFSVolume(merged), entry(annotationsRestored), []v1alpha1.StorageClientProfile{fast}, conflict, "removed again"},
		"later changes are merged into the original":   {builders.NFSVolume(merged), entry(), []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"noresvport"})}, written(hard, []string{"hard", "noresvport"}, "fast"), ""},
		"and the original is restored":                 {builders.NFSVolume(merged), entry(), nil, restored("hard"), ""},
		"also if annotations were removed twice":       {builders.NFSVolume(merged), entry(annotationsRestored), nil, restored("hard"), ""},
		"Retain keeps the options":                     {builders.NFSVolume(merged), entry(), []v1alpha1.StorageClientProfile{retained}, released, "Retain"},
		"a replaced volume is unchanged":               {builders.NFSVolume(soft), entry(), []v1alpha1.StorageClientProfile{fast}, conflict, `Another user or controller replaced the volume: mountOptions are ["soft"], and the operator's annotations are gone`},
		"also a volume with its original options":      {builders.NFSVolume(hard), entry(), []v1alpha1.StorageClientProfile{fast}, conflict, "replaced the volume"},
		"and is not restored":                          {builders.NFSVolume(soft), entry(), nil, released, "another user or controller changed them"},
		"it can be adopted":                            {builders.NFSVolume(soft), entry(), []v1alpha1.StorageClientProfile{fast}, conflict, adopt},
		"and is then adopted":                          {builders.NFSVolume(soft, builders.Carrying(soft, soft)), entry(annotationsRestored), []v1alpha1.StorageClientProfile{fast}, written(soft, []string{"soft", "nconnect=4", "nocto"}, "fast"), ""},
		"complete annotations take precedence":         {builders.NFSVolume(merged, builders.Carrying(soft, merged, "fast")), entry(), nil, restored("soft"), ""},
		"also against an entry that is broken":         {builders.NFSVolume(merged, builders.Carrying(soft, merged, "fast")), &ledger.Entry{Broken: "key 1 cannot be read"}, nil, restored("soft"), ""},
		"a broken entry is reported":                   {builders.NFSVolume(merged), &ledger.Entry{Broken: "key 1 cannot be read"}, []v1alpha1.StorageClientProfile{fast}, conflict, "Not changed: key 1 cannot be read; to adopt the current mountOptions"},
		"a first write that did not happen":            {builders.NFSVolume(hard), entry(func(e *ledger.Entry) { e.Pending = true }), []v1alpha1.StorageClientProfile{fast}, written(hard, merged, "fast"), "become"},
		"a first write that happened":                  {builders.NFSVolume(merged), entry(func(e *ledger.Entry) { e.Pending = true }), nil, restored("hard"), ""},
		"a volume with restored options":               {builders.NFSVolume(hard), entry(func(e *ledger.Entry) { e.Ending = true }), []v1alpha1.StorageClientProfile{fast}, written(hard, merged, "fast"), "become"},
		"kubectl replace declares the applied options": {builders.NFSVolume(merged, replaces), entry(), []v1alpha1.StorageClientProfile{fast}, upToDate, ""},
		"repeatedly":                             {builders.NFSVolume(merged, replaces), entry(annotationsRestored), []v1alpha1.StorageClientProfile{fast}, upToDate, ""},
		"but not the options declared now":       {builders.NFSVolume(merged, replaces), entry(), []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"noresvport"})}, conflict, `kubectl replace (field manager "kubectl-replace") writes the whole volume`},
		"and these stay":                         {builders.NFSVolume(merged, replaces), entry(), nil, released, "now manages them"},
		"a volume without an entry is unchanged": {builders.NFSVolume(merged), nil, nil, outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonNotSelected}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := Volume(Input{Volume: test.volume, Entry: test.entry, Profiles: profiles(test.profiles...)})
			if diff := cmp.Diff(test.want, outcomeOf(v), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", v.Message, diff)
			}
			if !strings.Contains(v.Message, test.message) {
				t.Errorf("got message %q, want it to contain %q", v.Message, test.message)
			}
		})
	}
}

// The message for a tool that writes the whole volume contains a remedy in its configuration.
func TestTheReplacerOfAVolumeIsReported(t *testing.T) {
	const list = `["hard","nconnect=4","nocto"]`
	replaced := func(manager string) builders.VolumeOption {
		return managedBy(manager, metav1.ManagedFieldsOperationUpdate, ownsOptions)
	}
	for name, test := range map[string]struct {
		sign builders.VolumeOption
		want []string
	}{
		"kubectl replace": {replaced("kubectl-replace"), []string{`kubectl replace (field manager "kubectl-replace") replaced the volume`, "in the manifest: spec: {mountOptions: " + list + "}"}},
		"Argo CD":         {replaced("argocd-controller"), []string{`Argo CD (field manager "argocd-controller")`, "ignoreDifferences", "remove Replace=true from"}},
		"Argo CD's label": {builders.Labelled("argocd.argoproj.io/instance", "app"), []string{"Argo CD (argocd.argoproj.io/instance)", "remove Replace=true from"}},
		"Flux":            {replaced("kustomize-controller"), []string{"Flux", "in the Kustomization's spec"}},
		"Flux's releases": {replaced("helm-controller"), []string{"Flux", "in the HelmRelease's spec"}},
		"Helm":            {replaced("helm"), []string{"Helm", "in the chart's template"}},
		"kapp":            {replaced("kapp"), []string{"kapp", "rebaseRules", "tuning.storageclient.dev/original-mount-options"}},
		"Pulumi":          {replaced("pulumi-resource-kubernetes"), []string{"Pulumi", "ignoreChanges"}},
		"Crossplane":      {replaced("crossplane-kubernetes-provider"), []string{"Crossplane", "in the Object's spec.forProvider.manifest"}},
		"Terraform":       {replaced("HashiCorp"), []string{"Terraform", "metadata[0].annotations"}},
		"unknown":         {replaced("curl"), []string{"Another user or controller replaced the volume", "set these again"}},
	} {
		t.Run(name, func(t *testing.T) {
			written := &ledger.Entry{Written: []ledger.Lists{{Original: []string{"hard"}, Applied: []string{"hard", "nconnect=4", "nocto"}}}}
			patched := builders.NFSProfile("fast", []string{"nconnect=4", "nocto"}, patchGitOps)
			v := Volume(Input{Volume: builders.NFSVolume([]string{"hard"}, test.sign), Entry: written, Profiles: profiles(patched)})
			if v.Reason != v1alpha1.VolumeReasonConflict {
				t.Errorf("got reason %s: %s, want %s", v.Reason, v.Message, v1alpha1.VolumeReasonConflict)
			}
			for _, want := range test.want {
				if !strings.Contains(v.Message, want) {
					t.Errorf("got message %q, want it to contain %q", v.Message, want)
				}
			}
		})
	}
}

// A tool that updates instead of applies declares the options as long as it owns the field. Once the operator owns it, the tool does not.
func TestToolsThatUpdateManageTheFieldsThatTheyOwn(t *testing.T) {
	for _, manager := range []string{"argocd-controller", "kustomize-controller", "helm", "kapp", "pulumi-kubernetes", "crossplane-kubernetes-provider"} {
		owns := builders.NFSVolume([]string{"hard"}, managedBy(manager, metav1.ManagedFieldsOperationUpdate, ownsOptions))
		if v := verdictOf(owns, fast); v.Reason != v1alpha1.VolumeReasonDeclaredElsewhere {
			t.Errorf("%s owns the options: got %s: %s, want %s", manager, v.Reason, v.Message, v1alpha1.VolumeReasonDeclaredElsewhere)
		}
		other := builders.NFSVolume([]string{"hard"}, managedBy(manager, metav1.ManagedFieldsOperationUpdate, `{"f:spec":{"f:nfs":{}}}`))
		if v := verdictOf(other, fast); v.Action != ActionWrite {
			t.Errorf("%s does not own the options: got %s: %s, want a write", manager, v.Reason, v.Message)
		}
	}
	once := builders.NFSVolume([]string{"hard"}, managedBy("kubectl-replace", metav1.ManagedFieldsOperationUpdate, ownsOptions))
	if v := verdictOf(once, fast); v.Action != ActionWrite {
		t.Errorf("after one kubectl replace: got %s: %s, want a write", v.Reason, v.Message)
	}
}

// A verdict is cached while the entry stays the same.
func TestAnotherEntryCausesAnotherEvaluation(t *testing.T) {
	memory, in := &Memory{}, Input{Volume: builders.NFSVolume([]string{"hard", "nocto"}), Profiles: profiles()}
	if v := memory.Evaluate(in).Verdict; v.Action != ActionNone {
		t.Errorf("without an entry: got %s: %s, want %s", v.Action, v.Message, ActionNone)
	}
	in.Entry = &ledger.Entry{Written: []ledger.Lists{{Original: []string{"hard"}, Applied: []string{"hard", "nocto"}}}}
	first := memory.Evaluate(in)
	if first.Verdict.Action != ActionRestore || !first.HasAppliedOptions {
		t.Errorf("with an entry: got %s: %s, want %s", first.Verdict.Action, first.Verdict.Message, ActionRestore)
	}
	same := *in.Entry
	if in.Entry = &same; memory.Evaluate(in) != first {
		t.Error("got a new evaluation for an equal entry, want the cached one")
	}
}
