package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/lists"
)

// fieldVolume is a volume as a driver or in-tree plug-in creates it, with its expected protocol.
type fieldVolume struct {
	name   string
	source corev1.PersistentVolumeSource
	want   v1alpha1.VolumeProtocol
	// blocked is part of the reason for which the volume supports no mount options. Empty if it supports them.
	blocked string
}

func csiOf(driver, handle string, attributes ...string) corev1.PersistentVolumeSource {
	source := &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle, VolumeAttributes: map[string]string{}}
	for pair := range slices.Chunk(attributes, 2) {
		source.VolumeAttributes[pair[0]] = pair[1]
	}
	return corev1.PersistentVolumeSource{CSI: source}
}

func withStageSecret(source corev1.PersistentVolumeSource) corev1.PersistentVolumeSource {
	source.CSI.NodeStageSecretRef = &corev1.SecretReference{Name: "creds", Namespace: "default"}
	return source
}

const (
	nfs   = v1alpha1.ProtocolNFS
	smb   = v1alpha1.ProtocolSMB
	block = v1alpha1.ProtocolBlock
)

// field contains volumes with the attributes that real drivers return from CreateVolume. A provisioner copies them and adds its identity.
var field = []fieldVolume{
	{"in-tree-nfs", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "filer", Path: "/a"}}, nfs, ""},
	{"in-tree-azure-file", corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{
		SecretName: "azure-storage-account-acc-secret", ShareName: "share", SecretNamespace: ptr.To("default")}}, smb, ""},
	{"nfs-csi", csiOf("nfs.csi.k8s.io", "filer#share#pvc-1##", "server", "filer", "share", "/share", "subDir", "pvc-1"), nfs, ""},
	{"smb-csi", csiOf("smb.csi.k8s.io", "filer/share#pvc-1##", "source", "//filer/share", "subDir", "pvc-1"), smb, ""},
	{"azure-file-nfs", csiOf("file.csi.azure.com", "rg#acc#share#", "protocol", "nfs", "skuName", "Premium_LRS"), nfs, ""},
	{"azure-file-smb", csiOf("file.csi.azure.com", "rg#acc#share###default", "skuName", "Standard_LRS"), smb, ""},
	{"azure-blob-nfs", csiOf("blob.csi.azure.com", "rg#acc#pvc-1##ns#", "protocol", "nfs", "containerName", "pvc-1"), nfs, ""},
	{"azure-blob-fuse", csiOf("blob.csi.azure.com", "rg#acc#pvc-1##ns#", "protocol", "fuse2", "containerName", "pvc-1"), "", "blobfuse"},
	{"efs", csiOf("efs.csi.aws.com", "fs-0123456789abcdef0::fsap-0123456789abcdef0"), nfs, ""},
	{"efs-static", csiOf("efs.csi.aws.com", "fs-0123456789abcdef0:/a", "encryptInTransit", "false"), nfs, ""},
	{"s3-files", csiOf("efs.csi.aws.com", "s3files:fs-0123456789abcdef0::fsap-0123456789abcdef0"), nfs, ""},
	{"openzfs", csiOf("fsx.openzfs.csi.aws.com", "fsvol-1", "DNSName", "fs-1.fsx.eu-central-1.amazonaws.com", "ResourceType", "volume", "VolumePath", "fsx/a"), nfs, ""},
	{"lustre", csiOf("fsx.csi.aws.com", "fs-1", "dnsname", "fs-1.fsx.amazonaws.com", "mountname", "fsx"), "", "Lustre"},
	{"filestore", csiOf("filestore.csi.storage.gke.io", "modeInstance/europe-west1-b/pvc-1/vol1", "ip", "10.0.0.2", "volume", "vol1", "fileProtocol", "NFS_V3"), nfs, ""},
	{"trident-nas", csiOf("csi.trident.netapp.io", "pvc-1", "backendUUID", "b", "internalName", "trident_pvc_1", "name", "pvc-1", "protocol", "file"), nfs, ""},
	{"trident-smb", withStageSecret(csiOf("csi.trident.netapp.io", "pvc-1", "internalName", "trident_pvc_1", "protocol", "file")), smb, ""},
	{"trident-san", csiOf("csi.trident.netapp.io", "pvc-1", "internalName", "trident_pvc_1", "protocol", "block"), block, ""},
	{"vsphere-file", csiOf("csi.vsphere.vmware.com", "file:1", "type", "vSphere CNS File Volume"), nfs, ""},
	{"vsphere-block", csiOf("csi.vsphere.vmware.com", "1", "type", "vSphere CNS Block Volume"), block, ""},
	{"manila-nfs", csiOf("nfs.manila.csi.openstack.org", "share-1", "shareID", "share-1", "shareAccessIDs", "access-1"), nfs, ""},
	{"manila-cephfs", csiOf("cephfs.manila.csi.openstack.org", "share-1", "shareID", "share-1"), "", "CephFS"},
	{"powerscale", csiOf("csi-isilon.dellemc.com", "pvc-1=_=_=43=_=_=System=_=_=c", "Name", "pvc-1", "Path", "/ifs/data/csi/pvc-1", "AccessZone", "System", "AzServiceIP", "10.0.0.3"), nfs, ""},
	{"unity-nfs", csiOf("csi-unity.dellemc.com", "pvc-1-NFS-apm-fs_1", "protocol", "NFS", "arrayId", "apm"), nfs, ""},
	{"unity-iscsi", csiOf("csi-unity.dellemc.com", "pvc-1-iSCSI-apm-sv_1", "protocol", "iSCSI", "arrayId", "apm"), block, ""},
	{"longhorn-rwx", csiOf("driver.longhorn.io", "pvc-1", "share", "true", "numberOfReplicas", "3"), nfs, "nfsOptions"},
	{"longhorn-rwo", csiOf("driver.longhorn.io", "pvc-1", "numberOfReplicas", "3"), block, ""},
	{"hpe-file", csiOf("csi.hpe.com", "1", "accessProtocol", "nfs"), nfs, ""},
	{"hpe-nfs-server", csiOf("csi.hpe.com", "1", "nfsResources", "true", "accessProtocol", "iscsi"), nfs, "nfsMountOptions"},
	{"hpe-iscsi", csiOf("csi.hpe.com", "1", "accessProtocol", "iscsi"), block, ""},
	{"vast", csiOf("csi.vastdata.com", "csi-1", "root_export", "/k8s", "vip_pool_name", "pool", "schema", "2"), nfs, ""},
	{"synology-nfs", csiOf("csi.san.synology.com", "1", "dsm", "10.0.0.4", "protocol", "nfs", "baseDir", "/volume1/a"), nfs, ""},
	{"synology-smb", csiOf("csi.san.synology.com", "1", "dsm", "10.0.0.4", "protocol", "smb", "source", "//10.0.0.4/a"), smb, ""},
	{"synology-iscsi", csiOf("csi.san.synology.com", "1", "dsm", "10.0.0.4", "protocol", "iscsi"), block, ""},
	{"democratic-nfs", csiOf("org.democratic-csi.truenas-nfs", "pvc-1", "node_attach_driver", "nfs", "provisioner_driver", "freenas-nfs", "server", "nas", "share", "/mnt/a"), nfs, ""},
	{"democratic-smb", csiOf("org.democratic-csi.truenas-smb", "pvc-1", "node_attach_driver", "smb", "server", "nas", "share", "a"), smb, ""},
	{"democratic-iscsi", csiOf("org.democratic-csi.truenas-iscsi", "pvc-1", "node_attach_driver", "iscsi", "portal", "nas:3260"), block, ""},
	{"democratic-local", csiOf("org.democratic-csi.zfs-local", "pvc-1", "node_attach_driver", "zfs-local"), "", "democratic-csi"},
	{"ceph-nfs", csiOf("rook-ceph.nfs.csi.ceph.com", "0001-1", "server", "rook-ceph-nfs-a", "share", "/a", "clusterID", "rook-ceph"), nfs, ""},
	{"ceph-rbd", csiOf("rbd.csi.ceph.com", "0001-1", "pool", "p"), block, ""},
	{"cephfs", csiOf("rook-ceph.cephfs.csi.ceph.com", "0001-1", "fsName", "f"), "", "CephFS"},
	{"seaweed", csiOf("seaweedfs-csi-driver", "pvc-1", "collection", "c"), "", "SeaweedFS"},
	{"cinder", csiOf("cinder.csi.openstack.org", "1"), block, ""},
	{"ebs", csiOf("ebs.csi.aws.com", "vol-1"), block, ""},
	{"pd", csiOf("pd.csi.storage.gke.io", "projects/p/zones/z/disks/d"), block, ""},
	{"azure-disk", csiOf("disk.csi.azure.com", "/subscriptions/s/d"), block, ""},
}

func fieldSnapshot(rules ...v1alpha1.VolumeRule) Snapshot {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 1, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.AllNodes, p.Spec.Volumes = true, rules
	s := Snapshot{Profiles: new(judge.Compiler).Compile(lists.Pointers([]v1alpha1.StorageClientProfile{p}), catalogue.AllowList{}, false, nil)}
	for _, v := range field {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.name, UID: types.UID("uid-of-" + v.name)}}
		pv.Spec.PersistentVolumeSource = v.source
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		s.Volumes = append(s.Volumes, pv)
	}
	return s
}

func ruleFor(protocol v1alpha1.VolumeProtocol, options ...v1alpha1.MountOption) v1alpha1.VolumeRule {
	return v1alpha1.VolumeRule{Name: strings.ToLower(string(protocol)), Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{protocol}}, MountOptions: options}
}

// A rule for NFS and one for SMB select every volume with these protocols. The verdict explains which volumes support no options.
func TestRulesSelectVolumesOfEveryDriver(t *testing.T) {
	s := fieldSnapshot(ruleFor(nfs, "actimeo=45"), ruleFor(smb, "actimeo=45"))
	selected := map[string]judge.Verdict{}
	for _, j := range s.evaluateAll() {
		if len(j.verdict.Profiles) > 0 {
			selected[j.Volume.Name] = *j.verdict
		}
	}
	for _, v := range field {
		verdict, isSelected := selected[v.name]
		switch {
		case isSelected != (v.want == nfs || v.want == smb):
			t.Errorf("%s: got selected %t, want %t (protocol %q)", v.name, isSelected, !isSelected, v.want)
		case isSelected && v.blocked != "" && (verdict.State != judge.StateBlocked || !strings.Contains(verdict.Message, v.blocked)):
			t.Errorf("%s: got %s: %s, want %s with %q", v.name, verdict.State, verdict.Message, judge.StateBlocked, v.blocked)
		case isSelected && v.blocked == "" && v.name != "trident-nas" && (verdict.Action != judge.ActionWrite || !slices.Equal(verdict.Options, []string{"actimeo=45"})):
			t.Errorf("%s: got action %s, options %v: %s; want %s of the declared option", v.name, verdict.Action, verdict.Options, verdict.Message,
				judge.ActionWrite)
		}
	}
	// Neither the volume nor the rule has an NFS version, so a write would drop the version of the backend.
	if v := selected["trident-nas"]; v.State != judge.StateBlocked || !strings.Contains(v.Message, "nfsvers") {
		t.Errorf("trident-nas: got %s: %s, want %s with nfsvers", v.State, v.Message, judge.StateBlocked)
	}
	if out := Summarize("p", s).LeftOut; len(out) > 0 {
		t.Errorf("got skipped drivers %v, want none", out)
	}
}

// A rule without a protocol also selects volumes of clients with other mount options. The verdict names these clients.
func TestVolumesOfOtherClientsAreNamed(t *testing.T) {
	rule := v1alpha1.VolumeRule{Name: "all", Selector: v1alpha1.VolumeSelector{AccessModes: []string{"ReadWriteMany"}}, MountOptions: []v1alpha1.MountOption{"actimeo=45"}}
	for _, j := range fieldSnapshot(rule).evaluateAll() {
		i := slices.IndexFunc(field, func(v fieldVolume) bool { return v.name == j.Volume.Name })
		if v := field[i]; v.blocked != "" && (j.verdict.State != judge.StateBlocked || !strings.Contains(j.verdict.Message, v.blocked)) {
			t.Errorf("%s: got %s: %s, want %s with %q", v.name, j.verdict.State, j.verdict.Message, judge.StateBlocked, v.blocked)
		}
	}
}

// Every driver in the table has a volume here, so that a new driver is also tested.
func TestTheFieldHasEveryDriver(t *testing.T) {
	untried := map[string]bool{"kubernetes.io/iscsi": true, "kubernetes.io/fc": true, "kubernetes.io/local-volume": true, "kubernetes.io/host-path": true,
		"kubernetes.io/cephfs": true, "kubernetes.io/glusterfs": true}
	for _, d := range drivers.Document() {
		suffix, prefix := strings.TrimPrefix(d.Driver, "*."), strings.TrimSuffix(d.Driver, "*")
		tried := slices.ContainsFunc(field, func(v fieldVolume) bool {
			if v.source.CSI == nil {
				return d.Driver == "kubernetes.io/nfs"
			}
			name := v.source.CSI.Driver
			return name == d.Driver || strings.HasPrefix(d.Driver, "*.") && strings.HasSuffix(name, suffix) || strings.HasSuffix(d.Driver, "*") && strings.HasPrefix(name, prefix)
		})
		if !tried && !untried[d.Driver] {
			t.Errorf("got no volume of driver %s, want one in field", d.Driver)
		}
	}
}

func TestVolumesOfUnknownDriversAreCountedAndNamed(t *testing.T) {
	s := fieldSnapshot(ruleFor(nfs, "actimeo=45"))
	add := func(name string, source corev1.PersistentVolumeSource, options ...string) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source, MountOptions: options}}
		s.Volumes = append(s.Volumes, pv)
		return pv
	}
	add("by-name-2", csiOf("nfs.example.com", "1"))
	add("by-name-1", csiOf("nfs.example.com", "1"))
	add("by-options", csiOf("csi.example.com", "1"), "nconnect=4")
	add("by-nothing", csiOf("csi.other.example.com", "1"))
	add("smb", csiOf("csi.example.com", "1", "source", "//filer/a"))
	add("disk", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", FSType: "xfs"}})
	add("raw", csiOf("raw.example.com", "1")).Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	add("ignored", csiOf("nfs.example.com", "1")).Annotations = map[string]string{v1alpha1.IgnoreAnnotation: v1alpha1.True}
	want := "[{nfs.example.com NFS 2 by-name-1} {csi.example.com NFS 1 by-options} {csi.other.example.com  1 by-nothing}]"
	if got := fmt.Sprint(Summarize("p", s).LeftOut); got != want {
		t.Errorf("skipped drivers: got %s, want %s", got, want)
	}
	if got := fmt.Sprint(PreviewVolumes([]string{"p"}, s).LeftOut["p"]); got != want {
		t.Errorf("skipped drivers of the preview: got %s, want %s", got, want)
	}
	for name, rules := range map[string][]v1alpha1.VolumeRule{
		"a rule without protocols means whatever it selects": {{Name: "a", Selector: v1alpha1.VolumeSelector{StorageClassNames: []string{"x"}}, MountOptions: []v1alpha1.MountOption{"hard"}}},
		"another term does not hold": {{Name: "a", Selector: v1alpha1.VolumeSelector{StorageClassNames: []string{"x"}, Protocols: []v1alpha1.VolumeProtocol{nfs}},
			MountOptions: []v1alpha1.MountOption{"hard"}}},
		"another rule names the drivers": {ruleFor(nfs, "hard"),
			{Name: "b", Selector: v1alpha1.VolumeSelector{Drivers: []string{"nfs.example.com", "csi.example.com", "csi.other.example.com"}}, MountOptions: []v1alpha1.MountOption{"hard"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Profiles = fieldSnapshot(rules...).Profiles
			if got := Summarize("p", s).LeftOut; len(got) > 0 {
				t.Errorf("got skipped drivers %v, want none", got)
			}
		})
	}
}
