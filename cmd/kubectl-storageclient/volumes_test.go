package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

// manyVolumes returns three volumes: up to date, not yet written, and managed in Git.
func manyVolumes() []client.Object {
	objects := cluster()
	done := objects[2].(*corev1.PersistentVolume)
	done.Annotations = map[string]string{v1alpha1.OriginalMountOptionsAnnotation: "[]", v1alpha1.AppliedMountOptionsAnnotation: `["nocto"]`, v1alpha1.ProfilesAnnotation: "eda"}
	pending, git := done.DeepCopy(), done.DeepCopy()
	pending.Name, pending.Annotations, pending.Spec.MountOptions = "pv2", nil, []string{"ro", "hard"}
	pending.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "scratch"}
	git.Name, git.Annotations, git.Spec.MountOptions = "pv3", nil, nil
	git.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "app"}
	return append(objects, pending, git)
}

func TestVolumes(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, append(manyVolumes(), eda()), "volumes", "eda")
	want := `3 volumes match profile eda: 1 UpToDate, 1 Pending, 1 Exception.

VOLUME   CLAIM         STATE       REASON                    CURRENT   DESIRED
pv1      -             UpToDate    VolumeUpToDate            nocto     unchanged
pv2      eda/scratch   Pending     VolumeOptionsMerged       ro,hard   ro,hard,nocto
pv3      -             Exception   VolumeDeclaredElsewhere   -         nocto

pv2: VolumeOptionsMerged: StorageClientProfile eda: no pod has mounted PersistentVolume pv1 since it got these options; then mountOptions become ["ro","hard","nocto"] (were ["ro","hard"]) by eda

pv3: VolumeDeclaredElsewhere: Not changed: managed by Flux`
	if r.err != nil || !strings.HasPrefix(r.out, want) {
		t.Errorf("error %v, output:\n%s", r.err, cmp.Diff(want, r.out))
	}
	if remedy := "\n  Action: Declare the mount options in the source of the volume, or set gitOpsOwned: Patch in the rule.\n"; !strings.HasSuffix(r.out, remedy) {
		t.Errorf("output does not end with the action:\n%s", r.out)
	}
}

func TestVolumesByName(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, append(manyVolumes(), eda()), "volumes", "--volume", "pv2", "-o", "name")
	if r.err != nil || r.out != "persistentvolume/pv2\n" {
		t.Errorf("error %v, names:\n%s", r.err, r.out)
	}
}

func TestVolumesInOtherFormats(t *testing.T) {
	objects := append(manyVolumes(), eda())
	if r := execute(t, interceptor.Funcs{}, objects, "volumes", "-o", "name"); r.err != nil || r.out != "persistentvolume/pv1\npersistentvolume/pv2\npersistentvolume/pv3\n" {
		t.Errorf("error %v, names:\n%s", r.err, r.out)
	}
	if r := execute(t, interceptor.Funcs{}, objects, "volumes", "-o", "wide"); r.err != nil || !strings.Contains(r.out, "DESIRED         PROFILES   DRIVER              PROTOCOL") {
		t.Errorf("error %v, wide:\n%s", r.err, r.out)
	}
	r := execute(t, interceptor.Funcs{}, objects, "volumes", "eda", "-o", "json")
	var report view.VolumeReport
	if r.err != nil || json.Unmarshal([]byte(r.out), &report) != nil || len(report.Volumes) != 3 {
		t.Fatalf("error %v and output:\n%s", r.err, r.out)
	}
	if v := report.Volumes[1]; v.VolumeClaim != "eda/scratch" || len(v.Now) != 2 || len(v.Desired) != 3 || v.Remedy != "" {
		t.Errorf("volume is %+v", v)
	}
}

func TestVolumesOfInactiveProfiles(t *testing.T) {
	planned, paused := eda(), eda()
	planned.Spec.Mode = v1alpha1.ModePlan
	paused.Spec.Paused = true
	for want, profile := range map[string]*v1alpha1.StorageClientProfile{
		"Mode is Plan: changes are not applied until mode is Enforce.":                          planned,
		"Profile eda is paused, or all profiles are: changes are not applied until you resume.": paused,
	} {
		r := execute(t, interceptor.Funcs{}, append(manyVolumes(), profile), "volumes", "eda")
		if r.err != nil || !strings.Contains(r.out, want) || !strings.Contains(r.out, "ro,hard,nocto") {
			t.Errorf("error %v, output lacks %q or the desired options:\n%s", r.err, want, r.out)
		}
	}
	if r := execute(t, interceptor.Funcs{}, cluster()[:2], "volumes"); r.err != nil || r.out != "No volume matches any profile.\n" {
		t.Errorf("error %v, output %q", r.err, r.out)
	}
}

func TestVolumesReportMissingPermissions(t *testing.T) {
	r := execute(t, forbid[*corev1.PersistentVolumeList](), append(manyVolumes(), eda()), "volumes")
	if r.err == nil || !strings.Contains(r.err.Error(), "request permission to list persistentvolumes") || strings.Count(r.err.Error(), "equest permission") > 1 {
		t.Errorf("error is %v", r.err)
	}
}

func TestWrongNamesAreCorrected(t *testing.T) {
	objects := append(cluster(), eda())
	for args, want := range map[string]string{
		"volumes edda":                 "Did you mean eda?",
		"diff edaa":                    "Did you mean eda?",
		"plan eds":                     "Did you mean eda?",
		"approve production":           "Available: eda",
		"node n2":                      "Did you mean n1?",
		"node worker-0815":             "Available: n1",
		"node n1 -o jsn":               `--output "jsn": must be text, wide, json, yaml or name`,
		"volumes -o jsn":               `--output "jsn": must be text, wide, json, yaml or name`,
		"diff eda -o jsn":              `--output "jsn": must be text, wide, json, yaml or name`,
		"stauts":                       "Did you mean this?\n\tstatus",
		"node":                         "usage: kubectl storageclient node NAME",
		"diff eda --allow-parameter (": "(",
	} {
		t.Run(args, func(t *testing.T) {
			r := execute(t, interceptor.Funcs{}, objects, strings.Fields(args)...)
			if r.err == nil || !strings.Contains(r.err.Error(), want) {
				t.Errorf("error is %v, want %q", r.err, want)
			}
		})
	}
}
