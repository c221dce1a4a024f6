package judge

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

// The webhook receives volumes of exactly the sources whose mounts the manager knows, among all sources of the API.
func TestTheWebhookReceivesAllSourcesThatTheManagerKnows(t *testing.T) {
	manifest, err := os.ReadFile("../../../config/webhook/mutating_webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, match := range regexp.MustCompile(`has\(object\.spec\.(\w+)\)`).FindAllSubmatch(manifest, -1) {
		asked[string(match[1])] = true
	}
	known := map[string]bool{}
	for i, field := range reflect.VisibleFields(reflect.TypeFor[corev1.PersistentVolumeSource]()) {
		pv := builders.NFSVolume(nil)
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{}
		source := reflect.New(field.Type.Elem())
		if driver := source.Elem().FieldByName("Driver"); driver.IsValid() {
			driver.SetString("example.com/driver")
		}
		reflect.ValueOf(&pv.Spec.PersistentVolumeSource).Elem().Field(i).Set(source)
		if target := targetOf(pv); target.Driver != "" && target.UnsupportedReason() == "" {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			known[name] = true
		}
	}
	if diff := cmp.Diff(known, asked); diff != "" || len(known) < 13 {
		t.Errorf("sources that the manager knows, of %d, and sources of the webhook (-known +asked):\n%s", len(known), diff)
	}
}

func TestSourceOf(t *testing.T) {
	csiOf := func(driver, handle string, attributes map[string]string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle, VolumeAttributes: attributes}}
	}
	tests := map[string]struct {
		source corev1.PersistentVolumeSource
		want   Source
	}{
		"in-tree NFS": {
			source: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "filer"}},
			want:   Source{Driver: "kubernetes.io/nfs", Protocol: v1alpha1.ProtocolNFS, Server: "filer"},
		},
		"in-tree iSCSI with a port": {
			source: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1:3260", FSType: "xfs"}},
			want:   Source{Driver: "kubernetes.io/iscsi", Protocol: v1alpha1.ProtocolBlock, Server: "10.0.0.1", FSType: "xfs"},
		},
		"in-tree iSCSI on IPv6": {
			source: corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "[fd00::1]:3260"}},
			want:   Source{Driver: "kubernetes.io/iscsi", Protocol: v1alpha1.ProtocolBlock, Server: "fd00::1"},
		},
		"local": {
			source: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{FSType: ptr.To("xfs")}},
			want:   Source{Driver: "kubernetes.io/local-volume", Protocol: v1alpha1.ProtocolBlock, FSType: "xfs"},
		},
		"csi-driver-nfs": {
			source: csiOf("nfs.csi.k8s.io", "", map[string]string{"Server": "filer"}),
			want:   Source{Driver: "nfs.csi.k8s.io", Protocol: v1alpha1.ProtocolNFS, Server: "filer"},
		},
		"csi-driver-smb": {
			source: csiOf("smb.csi.k8s.io", "", map[string]string{"source": "//filer/share"}),
			want:   Source{Driver: "smb.csi.k8s.io", Protocol: v1alpha1.ProtocolSMB, Server: "filer"},
		},
		"Azure Files over SMB": {
			source: csiOf("file.csi.azure.com", "rg#account#share", nil),
			want:   Source{Driver: "file.csi.azure.com", Protocol: v1alpha1.ProtocolSMB, Server: "account.file.core.windows.net"},
		},
		"Azure Files over NFS with an explicit server": {
			source: csiOf("file.csi.azure.com", "", map[string]string{"protocol": "NFS", "server": "private.endpoint"}),
			want:   Source{Driver: "file.csi.azure.com", Protocol: v1alpha1.ProtocolNFS, Server: "private.endpoint"},
		},
		"Azure Files over NFS by account and another cloud": {
			source: csiOf("file.csi.azure.com", "", map[string]string{"fsType": "nfs", "storageAccount": "account", "storageEndpointSuffix": "core.chinacloudapi.cn"}),
			want:   Source{Driver: "file.csi.azure.com", Protocol: v1alpha1.ProtocolNFS, Server: "account.file.core.chinacloudapi.cn"},
		},
		"Trident NAS": {
			source: csiOf("csi.trident.netapp.io", "", map[string]string{"protocol": "file"}),
			want:   Source{Driver: "csi.trident.netapp.io", Protocol: v1alpha1.ProtocolNFS},
		},
		"Trident SMB, staged with the user's secret": {
			source: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.trident.netapp.io",
				VolumeAttributes: map[string]string{"protocol": "file"}, NodeStageSecretRef: &corev1.SecretReference{Name: "smbcreds"}}},
			want: Source{Driver: "csi.trident.netapp.io", Protocol: v1alpha1.ProtocolSMB},
		},
		"Trident SAN": {
			source: csiOf("csi.trident.netapp.io", "", map[string]string{"protocol": "block"}),
			want:   Source{Driver: "csi.trident.netapp.io", Protocol: v1alpha1.ProtocolBlock},
		},
		"a driver that is not in the table": {
			source: csiOf("csi.example.com", "", nil), want: Source{Driver: "csi.example.com"},
		},
		"a disk image on an Azure Files share": {
			source: csiOf("file.csi.azure.com", "rg#account#share#image.vhd", map[string]string{"fsType": "xfs"}),
			want:   Source{Driver: "file.csi.azure.com", Protocol: v1alpha1.ProtocolBlock, Server: "account.file.core.windows.net", FSType: "xfs"},
		},
		"Azure Disk, whose attribute counts": {
			source: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.azure.com", FSType: "ext4",
				VolumeAttributes: map[string]string{"fsType": "xfs"}}},
			want: Source{Driver: "disk.csi.azure.com", Protocol: v1alpha1.ProtocolBlock, FSType: "xfs"},
		},
		"EBS": {
			source: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", FSType: "xfs"}},
			want:   Source{Driver: "ebs.csi.aws.com", Protocol: v1alpha1.ProtocolBlock, FSType: "xfs"},
		},
		"a directory of the node": {
			source: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, want: Source{Driver: "kubernetes.io/host-path"},
		},
		"an unknown source": {
			source: corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}}, want: Source{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: test.source}}
			if diff := cmp.Diff(test.want, SourceOf(pv)); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelects(t *testing.T) {
	pv := builders.NFSVolume(nil, builders.Labelled("tier", "gold"))
	claim := builders.VolumeClaimOf(pv, map[string]string{"role": "tools"})
	byLabel := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	tests := map[string]struct {
		selector v1alpha1.VolumeSelector
		want     bool
	}{
		"no term selects nothing":          {v1alpha1.VolumeSelector{}, false},
		"empty terms select nothing":       {v1alpha1.VolumeSelector{VolumeSelector: &metav1.LabelSelector{}, ClaimSelector: &metav1.LabelSelector{}}, false},
		"class":                            {v1alpha1.VolumeSelector{StorageClassNames: []string{"other", "nfs"}}, true},
		"another class":                    {v1alpha1.VolumeSelector{StorageClassNames: []string{"other"}}, false},
		"in-tree driver by its name":       {v1alpha1.VolumeSelector{Drivers: []string{"kubernetes.io/nfs"}}, true},
		"another driver":                   {v1alpha1.VolumeSelector{Drivers: []string{"nfs.csi.k8s.io"}}, false},
		"protocol":                         {v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{"SMB", "NFS"}}, true},
		"another protocol":                 {v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{"Block"}}, false},
		"another file system type":         {v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}, false},
		"server, by a name in other case":  {v1alpha1.VolumeSelector{Servers: []string{"FILER"}}, true},
		"another server":                   {v1alpha1.VolumeSelector{Servers: []string{"filer2"}}, false},
		"access mode":                      {v1alpha1.VolumeSelector{AccessModes: []string{"ReadWriteMany", "ReadOnlyMany"}}, true},
		"another access mode":              {v1alpha1.VolumeSelector{AccessModes: []string{"ReadOnlyMany"}}, false},
		"volume label":                     {v1alpha1.VolumeSelector{VolumeSelector: byLabel("tier", "gold")}, true},
		"another volume label":             {v1alpha1.VolumeSelector{VolumeSelector: byLabel("tier", "tin")}, false},
		"claim label":                      {v1alpha1.VolumeSelector{ClaimSelector: byLabel("role", "tools")}, true},
		"another claim label":              {v1alpha1.VolumeSelector{ClaimSelector: byLabel("role", "scratch")}, false},
		"claim namespace":                  {v1alpha1.VolumeSelector{ClaimNamespaces: []string{"eda"}}, true},
		"another claim namespace":          {v1alpha1.VolumeSelector{ClaimNamespaces: []string{"default"}}, false},
		"all given terms must hold":        {v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}, Servers: []string{"filer2"}}, false},
		"a selector that cannot be parsed": {v1alpha1.VolumeSelector{VolumeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Selects(&test.selector, pv, claim); got != test.want {
				t.Errorf("got selected: %t, want %t", got, test.want)
			}
		})
	}
}
