package judge

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// The list of an administrator decides which volumes have clones, and with which Secrets.
func TestAllowedClones(t *testing.T) {
	ref := func(namespace, name string) *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: namespace, Name: name}
	}
	smb := func(stage, publish *corev1.SecretReference) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
			Driver: "smb.csi.k8s.io", VolumeAttributes: map[string]string{"source": "//filer/share"}, NodeStageSecretRef: stage, NodePublishSecretRef: publish,
		}
		return pv
	}
	kubelet := &corev1.PersistentVolume{}
	kubelet.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/export"}
	azure := smb(nil, nil)
	azure.Spec.CSI.Driver = "file.csi.azure.com"
	list := map[string]string{"smb.csi.k8s.io": "# of the department\neda/credentials\n  hpc/share\n", "nfs": "", "file.csi.azure.com": ""}
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		list   map[string]string
		absent bool
		want   string
	}{
		"there is no list":                                {kubelet, nil, true, "config/components/clones"},
		"the list is empty":                               {kubelet, nil, false, "ConfigMap storage-client-clones does not list driver nfs"},
		"a volume of the kubelet is listed":               {kubelet, list, false, ""},
		"a driver without Secrets is listed":              {smb(nil, nil), list, false, ""},
		"the Secret is listed":                            {smb(ref("eda", "credentials"), nil), list, false, ""},
		"the Secret is listed in an indented line":        {smb(ref("hpc", "share"), ref("eda", "credentials")), list, false, ""},
		"the Secret is in another namespace":              {smb(ref("hpc", "credentials"), nil), list, false, "does not list Secret hpc/credentials for driver smb.csi.k8s.io"},
		"the Secret for publish is not listed":            {smb(ref("eda", "credentials"), ref("eda", "other")), list, false, "does not list Secret eda/other"},
		"the driver is not listed":                        {smb(nil, nil), map[string]string{"nfs": ""}, false, "does not list driver smb.csi.k8s.io"},
		"the volumes of a listed driver cannot be cloned": {azure, list, false, "file.csi.azure.com cannot be cloned"},
	} {
		t.Run(name, func(t *testing.T) {
			clones := &corev1.ConfigMap{Data: test.list}
			if test.absent {
				clones = nil
			}
			got := ProbeTargetOf(test.volume, Verdict{}, clones).Clone.Obstacle
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got obstacle %q, want %q", got, test.want)
			}
		})
	}
}

// A clone names no Secret that the volume does not name.
func TestACloneNamesOnlyTheVolumesSecrets(t *testing.T) {
	pv := &corev1.PersistentVolume{}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "smb.csi.k8s.io", VolumeHandle: "filer/share"}
	for _, set := range []func(*corev1.CSIPersistentVolumeSource, *corev1.SecretReference){
		func(s *corev1.CSIPersistentVolumeSource, r *corev1.SecretReference) { s.ControllerPublishSecretRef = r },
		func(s *corev1.CSIPersistentVolumeSource, r *corev1.SecretReference) { s.ControllerExpandSecretRef = r },
		func(s *corev1.CSIPersistentVolumeSource, r *corev1.SecretReference) { s.NodeExpandSecretRef = r },
	} {
		set(pv.Spec.CSI, &corev1.SecretReference{Namespace: "eda", Name: "admin"})
	}
	got := CloneSpec(pv, v1alpha1.ClonePrefix+"a", nil).CSI
	want := corev1.CSIPersistentVolumeSource{Driver: "smb.csi.k8s.io", VolumeHandle: "filer/share#" + v1alpha1.ClonePrefix + "a"}
	if got.String() != want.String() {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The policies on clones accept the drivers and the mount options that the manager knows, and options of SMB that only the volume itself may set.
func TestThePoliciesAcceptWhatTheManagerClones(t *testing.T) {
	content, err := os.ReadFile("../../../config/components/clones/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies := string(content)
	_, rest, _ := strings.Cut(policies, "- name: mountOptions\n")
	list, _, _ := strings.Cut(rest, "]")
	var got []string
	for _, quoted := range regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(list, -1) {
		got = append(got, quoted[1])
	}
	want := []string{"dir_mode", "file_mode", "forcegid", "forceuid", "gid", "noperm", "uid"}
	for _, known := range slices.Concat(mountoptions.NFS.Known(), mountoptions.SMB.Known()) {
		if known.Rejected == "" {
			want = append(want, known.Name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("mount options (-want +got):\n%s", diff)
	}
	for _, driver := range drivers.Document() {
		name := "'" + strings.TrimPrefix(strings.TrimPrefix(driver.Driver, "kubernetes.io/"), "*") + "'"
		if isListed := strings.Contains(policies, "driver == "+name) || strings.Contains(policies, "driver.endsWith("+name) || name == "'nfs'"; isListed != driver.Clone {
			t.Errorf("driver %s: got listed %t in the policy on volumes, want %t", driver.Driver, isListed, driver.Clone)
		}
		if _, of, _ := strings.Cut(policies, "- name: drivers\n"); strings.Contains(of, name) != driver.Clone {
			t.Errorf("driver %s: want %t in the policy on the list", driver.Driver, driver.Clone)
		}
	}
}
