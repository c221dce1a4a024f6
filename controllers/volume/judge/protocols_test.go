package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

// sourced returns a volume of the class "data" with a source other than in-tree NFS.
func sourced(options []string, source corev1.PersistentVolumeSource, more ...builders.VolumeOption) *corev1.PersistentVolume {
	return builders.NFSVolume(options, append([]builders.VolumeOption{func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource, pv.Spec.StorageClassName = source, "data"
	}}, more...)...)
}

func byCSI(driver, fsType string, attributes map[string]string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, FSType: fsType, VolumeAttributes: attributes}}
}

func onClass(name string, options ...string) v1alpha1.StorageClientProfile {
	return builders.NFSProfile(name, options, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"data"}}))
}

func TestVerdictByProtocolAndDriver(t *testing.T) {
	smb := byCSI("smb.csi.k8s.io", "", map[string]string{"source": "//filer/share"})
	azureSMB := byCSI("file.csi.azure.com", "", nil)
	azureNFS := byCSI("file.csi.azure.com", "", map[string]string{"protocol": "nfs"})
	xfs := byCSI("disk.csi.azure.com", "xfs", nil)
	ext4 := byCSI("disk.csi.azure.com", "ext4", nil)
	nfs := func(own string) corev1.PersistentVolumeSource {
		return byCSI("nfs.csi.k8s.io", "", map[string]string{"server": "filer", "mountOptions": own})
	}
	one := func(p v1alpha1.StorageClientProfile) []v1alpha1.StorageClientProfile {
		return []v1alpha1.StorageClientProfile{p}
	}
	for name, test := range map[string]struct {
		volume   *corev1.PersistentVolume
		profiles []v1alpha1.StorageClientProfile
		want     outcome
		message  string
	}{
		"SMB options are written to an SMB volume, behind its own": {
			volume: sourced([]string{"dir_mode=0777", "vers=3.1.1"}, smb), profiles: one(onClass("p", "actimeo=30", "mfsymlinks")),
			want:    written([]string{"dir_mode=0777", "vers=3.1.1"}, []string{"dir_mode=0777", "vers=3.1.1", "actimeo=30", "mfsymlinks"}, "p"),
			message: "effective on a node once no pod there uses the volume",
		},
		"Azure Files speaks SMB by default": {
			volume: sourced(nil, azureSMB), profiles: one(onClass("p", "nosharesock", "actimeo=60")),
			want: written(nil, []string{"nosharesock", "actimeo=60"}, "p"),
		},
		"SMB's actimeo sets the timer that the volume does not": {
			volume: sourced([]string{"acregmax=60"}, smb), profiles: one(onClass("p", "actimeo=30")),
			want: written([]string{"acregmax=60"}, []string{"acregmax=60", "acdirmax=30"}, "p"),
		},
		"profiles of equal priority disagree about an SMB option": {
			volume: sourced(nil, smb), profiles: []v1alpha1.StorageClientProfile{onClass("a", "cache=strict"), onClass("b", "cache=none", "actimeo=30")},
			want:    written(nil, []string{"actimeo=30"}, "a", "b"),
			message: "cache=strict (a) against cache=none (b)",
		},
		"SMB options do not reach NFS": {
			volume: sourced(nil, nfs("")), profiles: one(onClass("p", "actimeo=30", "mfsymlinks")), want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "p"),
			message: "which is NFS (driver nfs.csi.k8s.io): mfsymlinks",
		},
		"an SMB volume in Git is blocked by its protocol": {
			volume:   sourced(nil, smb, builders.Labelled("argocd.argoproj.io/instance", "app")),
			profiles: one(onClass("p", "nconnect=4")), want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "p"),
		},
		"options for two protocols are blocked if one does not support them": {
			volume: sourced(nil, azureSMB),
			profiles: one(builders.NFSProfile("p", []string{"actimeo=30", "nconnect=4"}, builders.Selecting(v1alpha1.VolumeSelector{
				Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS, v1alpha1.ProtocolSMB}}))),
			want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "p"), message: "which is SMB (driver file.csi.azure.com): nconnect=4",
		},

		"XFS options reach a CSI disk with XFS": {
			volume: sourced([]string{"discard"}, xfs), profiles: one(onClass("p", "noatime", "logbsize=256k")),
			want: written([]string{"discard"}, []string{"discard", "noatime", "logbsize=256k"}, "p"),
		},
		"one size in two ways is one": {
			volume: sourced([]string{"logbsize=262144", "noatime"}, xfs), profiles: one(onClass("p", "noatime", "logbsize=256k")),
			want: outcome{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonUpToDate, Profiles: []string{"p"}},
		},
		"XFS options reach in-tree iSCSI": {
			volume:   sourced(nil, corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", FSType: "xfs"}}),
			profiles: one(onClass("p", "logbsize=256k")), want: written(nil, []string{"logbsize=256k"}, "p"),
		},
		"XFS options reach a local volume by Block": {
			volume: sourced(nil, corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{FSType: ptr.To("xfs")}}),
			profiles: one(builders.NFSProfile("p", []string{"logbsize=256k"}, builders.Selecting(v1alpha1.VolumeSelector{
				Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolBlock}}))),
			want: written(nil, []string{"logbsize=256k"}, "p"),
		},
		"Trident's disks": {
			volume: sourced([]string{"nouuid"}, byCSI("csi.trident.netapp.io", "xfs", map[string]string{"protocol": "block"})), profiles: one(onClass("p", "logbsize=256k")),
			want: written([]string{"nouuid"}, []string{"nouuid", "logbsize=256k"}, "p"),
		},
		"options of XFS stay away from ext4": {
			volume: sourced(nil, ext4), profiles: one(onClass("p", "noatime", "logbsize=256k")), want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "p"),
			message: "Block with fsType ext4 (driver disk.csi.azure.com): logbsize=256k",
		},
		"options of XFS stay away from a disk that names no file system": {
			volume: sourced(nil, byCSI("ebs.csi.aws.com", "", nil)), profiles: one(onClass("p", "logbsize=256k")), want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "p"),
			message: "Block without fsType (driver ebs.csi.aws.com)",
		},
		"what every file system takes reaches ext4": {
			volume: sourced([]string{"commit=30"}, ext4), profiles: one(onClass("p", "noatime")),
			want: written([]string{"commit=30"}, []string{"commit=30", "noatime"}, "p"),
		},
		"the disk's own access times stay": {
			volume: sourced([]string{"relatime"}, ext4), profiles: one(onClass("p", "noatime")),
			want:    outcome{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonKeepsOwnValue, Profiles: []string{"p"}},
			message: "atime stays relatime (profile wants noatime; onConflict: KeepVolume)",
		},
		"NFS options stay away from disks": {
			volume: sourced(nil, xfs), profiles: one(onClass("p", "nocto")), want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "p"),
		},
		"a raw device is never mounted": {
			volume:   sourced(nil, xfs, func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }),
			profiles: one(onClass("p", "noatime")), want: leftAlone(v1alpha1.VolumeReasonNoMount, "p"), message: "volumeMode is Block",
		},
		"a volume for which the kubelet rejects options": {
			volume:   sourced(nil, corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}),
			profiles: one(onClass("p", "noatime")), want: leftAlone(v1alpha1.VolumeReasonNoMount, "p"), message: "hostPath",
		},
		"an unknown driver, with a disk's file system and a rule that names it": {
			volume:   sourced(nil, byCSI("disk.example.com", "xfs", nil)),
			profiles: one(builders.NFSProfile("p", []string{"logbsize=256k"}, builders.Selecting(v1alpha1.VolumeSelector{Drivers: []string{"disk.example.com"}}))),
			want:     written(nil, []string{"logbsize=256k"}, "p"),
		},
		"an unknown driver, with a disk's file system alone": {
			volume:   sourced(nil, byCSI("disk.example.com", "xfs", nil)),
			profiles: one(builders.NFSProfile("p", []string{"logbsize=256k"}, builders.Selecting(v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}))),
			want:     leftAlone(v1alpha1.VolumeReasonWrongProtocol, "p"), message: `unknown driver "disk.example.com"`,
		},

		"Azure Files over NFS accepts options that its driver does not set": {
			volume: sourced([]string{"noresvport"}, azureNFS), profiles: one(onClass("p", "nconnect=4", "actimeo=60")),
			want: written([]string{"noresvport"}, []string{"noresvport", "nconnect=4", "actimeo=60"}, "p"),
		},
		"a version other than the Azure Files driver's is not written": {
			volume: sourced(nil, azureNFS), profiles: one(onClass("p", "nconnect=4", "vers=4.2")), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"),
			message: "vers=4.2: the driver adds its own version ([vers=4 minorversion=1]), and mount accepts only one",
		},
		"nfsvers is a version too": {
			volume: sourced(nil, azureNFS), profiles: one(onClass("p", "nfsvers=3")), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"),
		},
		"minorversion is a version too": {
			volume: sourced(nil, azureNFS), profiles: one(onClass("p", "minorversion=2")), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"),
		},
		"the version that the driver gives is left to it": {
			volume: sourced(nil, azureNFS), profiles: one(onClass("p", "nfsvers=4.1", "nconnect=4")),
			want: written(nil, []string{"nconnect=4"}, "p"), message: "the driver already sets: nfsvers=4.1",
		},
		"a version of the volume next to the driver's cannot be mounted": {
			volume: sourced([]string{"vers=4.1"}, azureNFS), profiles: one(onClass("p", "nconnect=4")),
			want:    leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"),
			message: "mount accepts only one version, even if they are the same: keep one of vers=4, vers=4.1, minorversion=1",
		},
		"options of SMB cannot be mounted over NFS": {
			volume:   sourced([]string{"cache=strict", "dir_mode=0777", "file_mode=0777", "uid=0"}, azureNFS),
			profiles: one(onClass("p", "nconnect=8")), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"),
			message: "Not changed: mount rejects the volume's original options: cache=strict: is an option of SMB, which NFS does not have; " +
				"dir_mode=0777: is an option of SMB, which NFS does not have; file_mode=0777: is an option of SMB, which NFS does not have; " +
				"uid=0: is an option of SMB, which NFS does not have; correct them in the volume, and in its StorageClass for new volumes",
		},
		"options of NFS cannot be mounted over SMB": {
			volume: sourced([]string{"nconnect=4", "vers=3.1.1"}, smb), profiles: one(onClass("p", "actimeo=30")),
			want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"), message: "nconnect=4: is an option of NFS, which SMB does not have",
		},
		"options of NFS cannot be mounted on a disk": {
			volume: sourced([]string{"hard"}, xfs), profiles: one(onClass("p", "logbsize=256k")),
			want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"), message: "hard: is an option of NFS, which XFS does not have",
		},
		"two versions of NFS cannot be mounted": {
			volume: sourced([]string{"nfsvers=4.1", "vers=4.1"}, nfs("")), profiles: one(onClass("p", "nconnect=4")),
			want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"), message: "mount accepts only one version",
		},
		"more connections than the kernel accepts cannot be mounted": {
			volume: sourced([]string{"nconnect=32"}, nfs("")), profiles: one(onClass("p", "nocto")),
			want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"), message: "nconnect=32: must be 1 to 16",
		},
		"a number that the kernel cannot read cannot be mounted": {
			volume: sourced([]string{"timeo=60s"}, nfs("")), profiles: one(onClass("p", "nocto")),
			want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"), message: "timeo=60s: ",
		},
		"a rule that replaces the wrong option is written": {
			volume: sourced([]string{"nconnect=32"}, nfs("")), profiles: one(builders.NFSProfile("p", []string{"nconnect=8"},
				builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"data"}}),
				builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) { s.Volumes[0].OnConflict = v1alpha1.ConflictUseProfile }))),
			want: written([]string{"nconnect=32"}, []string{"nconnect=8"}, "p"),
		},
		"an option that only a newer kernel may know is no obstacle": {
			volume: sourced([]string{"newest=1"}, nfs("")), profiles: one(onClass("p", "nocto")),
			want: written([]string{"newest=1"}, []string{"newest=1", "nocto"}, "p"),
		},
		"mount accepts all unknown options with sloppy": {
			volume: sourced([]string{"cache=strict", "sloppy"}, nfs("")), profiles: one(onClass("p", "nocto")),
			want: written([]string{"cache=strict", "sloppy"}, []string{"cache=strict", "sloppy", "nocto"}, "p"),
		},
		"a volume that needs no write stays as it is": {
			volume: sourced([]string{"cache=strict", "nocto"}, nfs("")), profiles: one(onClass("p", "nocto")),
			want: outcome{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonUpToDate, Profiles: []string{"p"}},
		},
		"a timer that the driver's actimeo overrides is not written": {
			volume: sourced(nil, azureNFS), profiles: one(onClass("p", "acregmax=90")), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"),
			message: "acregmax=90: does not take effect: with the options that the driver adds, or in its order, acregmax is 30",
		},
		"security that the driver overrides is not written": {
			volume: sourced(nil, azureNFS), profiles: one(onClass("p", "sec=krb5")), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"), message: "sec is sys",
		},
		"privileged ports that the driver turns off are not written": {
			volume: sourced(nil, azureNFS), profiles: one(onClass("p", "resvport")), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"), message: "resvport is noresvport",
		},
		"options in the attributes of csi-driver-nfs win": {
			volume: sourced(nil, nfs("nconnect=1,hard")), profiles: one(onClass("p", "nconnect=4")), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "p"),
			message: "nconnect is 1",
		},
		"equal options in the attributes of csi-driver-nfs do not matter": {
			volume: sourced(nil, nfs("vers=4.1,nconnect=4")), profiles: one(onClass("p", "vers=4.1", "nconnect=4")),
			want: written(nil, []string{"nconnect=4"}, "p"),
		},
		"rw does not lift readOnly where the kubelet sorts": {
			volume: builders.NFSVolume(nil, func(pv *corev1.PersistentVolume) { pv.Spec.NFS.ReadOnly = true }), profiles: one(builders.NFSProfile("p", []string{"rw"})),
			want:    outcome{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonKeepsOwnValue, Profiles: []string{"p"}},
			message: "access stays ro (profile wants rw; the operator never weakens a mount)",
		},
		"rw is written where the volume is writable": {
			volume: builders.NFSVolume(nil), profiles: one(builders.NFSProfile("p", []string{"rw"})), want: written(nil, []string{"rw"}, "p"),
		},
		"restored, whatever the protocol": {
			volume: sourced([]string{"noatime"}, xfs, builders.Carrying(nil, []string{"noatime"}, "gone")), want: restored(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Volume(Input{Volume: test.volume, Profiles: profiles(test.profiles...)})
			if diff := cmp.Diff(test.want, outcomeOf(d), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", d.Message, diff)
			}
			if !strings.Contains(d.Message, test.message) {
				t.Errorf("got message %q, want it to contain %q", d.Message, test.message)
			}
		})
	}
}

// One list is merged into many volumes: the cached result of one protocol or driver must not reach another.
func TestMergesAreCachedByDriver(t *testing.T) {
	all := profiles(onClass("p", "actimeo=60"))
	for _, test := range []struct {
		source corev1.PersistentVolumeSource
		want   []string
	}{
		{byCSI("nfs.csi.k8s.io", "", nil), []string{"acregmax=90", "acregmin=60", "acdirmin=60", "acdirmax=60"}},
		{byCSI("smb.csi.k8s.io", "", nil), []string{"acregmax=90", "acdirmax=60"}},
		{byCSI("file.csi.azure.com", "", map[string]string{"protocol": "nfs"}), nil},
		{byCSI("nfs.csi.k8s.io", "", map[string]string{"mountOptions": "actimeo=5"}), nil},
		{byCSI("nfs.csi.k8s.io", "", nil), []string{"acregmax=90", "acregmin=60", "acdirmin=60", "acdirmax=60"}},
	} {
		d := Volume(Input{Volume: sourced([]string{"acregmax=90"}, test.source), Profiles: all})
		if diff := cmp.Diff(test.want, d.Options); diff != "" {
			t.Errorf("%+v (-want +got), message %q:\n%s", test.source.CSI, d.Message, diff)
		}
	}
}

// Azure Blob's NFS client rejects nconnect, or lists directories wrongly with it. Other options of the rule still apply.
func TestAzureBlobNeverGetsNconnect(t *testing.T) {
	all := profiles(onClass("p", "nconnect=4", "actimeo=60"))
	for name, test := range map[string]struct {
		protocol string
		options  []string
		want     []string
	}{
		"no options":                {"nfs", nil, []string{"actimeo=60"}},
		"by mount.aznfs":            {"aznfs", []string{"hard"}, []string{"hard", "actimeo=60"}},
		"the volume's own nconnect": {"nfsv3", []string{"nconnect=2"}, []string{"nconnect=2", "actimeo=60"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := byCSI("blob.csi.azure.com", "rg#a#c", map[string]string{"protocol": test.protocol})
			d := Volume(Input{Volume: sourced(test.options, source), Profiles: all})
			if diff := cmp.Diff(test.want, d.Options); diff != "" {
				t.Errorf("options (-want +got), message %q:\n%s", d.Message, diff)
			}
			done := Volume(Input{Volume: sourced(test.want, source), Profiles: all})
			if kept := strings.Join(done.Exceptions["p"], "; "); done.Action != ActionNone || !strings.Contains(kept, "mount.aznfs rejects nconnect") {
				t.Errorf("got action %s and exceptions %q once it has them", done.Action, kept)
			}
		})
	}
	other := sourced(nil, byCSI("file.csi.azure.com", "", map[string]string{"protocol": "nfs"}))
	if d := Volume(Input{Volume: other, Profiles: all}); !slices.Contains(d.Options, "nconnect=4") {
		t.Errorf("got options %v of Azure Files, want nconnect", d.Options)
	}
}
