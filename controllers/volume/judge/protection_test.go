package judge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

func overVolume(name string, options ...string) v1alpha1.StorageClientProfile {
	return builders.NFSProfile(name, options, builders.OnConflict(v1alpha1.ConflictUseProfile),
		builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"data", "nfs"}}))
}

func TestNoRuleMakesAVolumeWeaker(t *testing.T) {
	xfs := byCSI("disk.csi.azure.com", "xfs", nil)
	smb := byCSI("smb.csi.k8s.io", "", map[string]string{"source": "//filer/share"})
	nfs := func(options ...string) *corev1.PersistentVolume { return builders.NFSVolume(options) }
	readOnly := func(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
		if pv.Spec.CSI != nil {
			pv.Spec.CSI.ReadOnly = true
		} else {
			pv.Spec.NFS.ReadOnly = true
		}
		return pv
	}
	for name, test := range map[string]struct {
		volume  *corev1.PersistentVolume
		class   []string
		profile v1alpha1.StorageClientProfile
		more    []v1alpha1.StorageClientProfile
		want    outcome
		message string
	}{
		"sec is not lowered, and the rest of the rule applies": {
			volume: nfs("sec=krb5p"), profile: overVolume("p", "sec=sys", "nocto"),
			want:    written([]string{"sec=krb5p"}, []string{"sec=krb5p", "nocto"}, "p"),
			message: "sec stays krb5p (profile wants sys; the operator never weakens a mount)",
		},
		"xprtsec is not lowered": {
			volume: nfs("xprtsec=mtls"), profile: overVolume("p", "xprtsec=none", "nocto"),
			want:    written([]string{"xprtsec=mtls"}, []string{"xprtsec=mtls", "nocto"}, "p"),
			message: "xprtsec stays mtls (profile wants none; the operator never weakens a mount)",
		},
		"ro does not become rw": {
			volume: nfs("ro"), profile: overVolume("p", "rw", "nocto"),
			want:    written([]string{"ro"}, []string{"ro", "nocto"}, "p"),
			message: "access stays ro (profile wants rw; the operator never weakens a mount)",
		},
		"an SMB version is not lowered, and seal stays": {
			volume: sourced([]string{"seal", "vers=3.1.1"}, smb), profile: overVolume("p", "vers=2.1", "mfsymlinks"),
			want:    written([]string{"seal", "vers=3.1.1"}, []string{"seal", "vers=3.1.1", "mfsymlinks"}, "p"),
			message: "vers stays 3.1.1 (profile wants 2.1; the operator never weakens a mount)",
		},
		"quotas are not dropped": {
			volume: sourced([]string{"uquota", "prjquota"}, xfs), profile: overVolume("p", "noquota", "noatime"),
			want:    written([]string{"uquota", "prjquota"}, []string{"uquota", "prjquota", "noatime"}, "p"),
			message: "project quota stays prjquota (profile wants noquota; the operator never weakens a mount)",
		},
		"nor with KeepVolume, if both were in one list": {
			volume: sourced([]string{"gquota"}, xfs), profile: onClass("p", "noquota"),
			want: outcome{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonKeepsOwnValue, Profiles: []string{"p"}},
		},
		"a value of the class is the volume's too": {
			volume: nfs("sec=krb5i"), class: []string{"sec=krb5i"},
			profile: builders.NFSProfile("p", []string{"sec=krb5", "nocto"}, builders.OnConflict(v1alpha1.ConflictUseProfileOverClass)),
			want:    written([]string{"sec=krb5i"}, []string{"sec=krb5i", "nocto"}, "p"),
			message: "the operator never weakens a mount",
		},
		"a read-only source of the kubelet's plugin": {
			volume: readOnly(nfs()), profile: overVolume("p", "rw", "nocto"), want: written(nil, []string{"nocto"}, "p"),
			message: "access stays ro (profile wants rw; the operator never weakens a mount)",
		},
		"a read-only source of a driver that adds ro after the list": {
			volume: readOnly(sourced(nil, byCSI("nfs.csi.k8s.io", "", nil))), profile: overVolume("p", "rw", "nocto"), want: written(nil, []string{"nocto"}, "p"),
			message: "access stays ro",
		},
		"a read-only source of a driver of which no more is known": {
			volume: readOnly(sourced(nil, smb)), profile: overVolume("p", "rw", "mfsymlinks"), want: written(nil, []string{"mfsymlinks"}, "p"),
			message: "access stays ro",
		},
		"the driver's value": {
			volume: sourced(nil, byCSI("nfs.csi.k8s.io", "", map[string]string{"mountOptions": "sec=krb5p"})), profile: overVolume("p", "sec=sys", "nocto"),
			want:    written(nil, []string{"nocto"}, "p"),
			message: "sec stays krb5p (profile wants sys; the operator never weakens a mount)",
		},
		"below the default": {
			volume: nfs(), profile: overVolume("p", "sec=none", "nocto"), want: written(nil, []string{"nocto"}, "p"),
			message: "sec stays sys (profile wants none; the operator never weakens a mount)",
		},
		"stronger replaces": {
			volume: nfs("sec=sys"), profile: overVolume("p", "sec=krb5p"), want: written([]string{"sec=sys"}, []string{"sec=krb5p"}, "p"),
		},
		"the winning profile may not weaken a mount": {
			volume: nfs("sec=krb5"), profile: overVolume("p", "nocto"), more: []v1alpha1.StorageClientProfile{overVolume("q", "sec=none")},
			want:    written([]string{"sec=krb5"}, []string{"sec=krb5", "nocto"}, "p", "q"),
			message: "sec stays krb5 (profile wants none; the operator never weakens a mount)",
		},
		"a list that an earlier release made weaker becomes strict again": {
			volume:  builders.NFSVolume([]string{"sec=sys", "nocto"}, builders.Carrying([]string{"sec=krb5p"}, []string{"sec=sys", "nocto"}, "p")),
			profile: overVolume("p", "sec=sys", "nocto"),
			want:    written([]string{"sec=krb5p"}, []string{"sec=krb5p", "nocto"}, "p"),
		},
		"also if profiles disagree about the current value": {
			volume:  builders.NFSVolume([]string{"sec=sys"}, builders.Carrying([]string{"sec=krb5p"}, []string{"sec=sys"}, "p")),
			profile: overVolume("p", "sec=sys"), more: []v1alpha1.StorageClientProfile{overVolume("q", "sec=krb5")},
			want:    written([]string{"sec=krb5p"}, []string{"sec=krb5p"}, "p", "q"),
			message: "profiles of equal priority disagree",
		},
		"if profiles disagree, the current value does not lift readOnly": {
			volume:  readOnly(builders.NFSVolume([]string{"rw"}, builders.Carrying(nil, []string{"rw"}, "p"))),
			profile: overVolume("p", "rw"), more: []v1alpha1.StorageClientProfile{overVolume("q", "ro")},
			want:    written(nil, nil, "p", "q"),
			message: "profiles of equal priority disagree: rw (p) against ro (q)",
		},
		"an omitted option is not treated as a dispute": {
			volume:  nfs("hard"),
			profile: overVolume("p", "nconnect=4"), more: []v1alpha1.StorageClientProfile{overVolume("q", "nconnect=8", "sec=none", "nocto")},
			want:    written([]string{"hard"}, []string{"hard", "nocto"}, "p", "q"),
			message: "sec stays sys (profile wants none; the operator never weakens a mount)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Volume(Input{Volume: test.volume, Class: test.class, Profiles: profiles(append(test.more, test.profile)...)})
			if diff := cmp.Diff(test.want, outcomeOf(d), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", d.Message, diff)
			}
			if !strings.Contains(d.Message, test.message) {
				t.Errorf("got message %q, want it to contain %q", d.Message, test.message)
			}
		})
	}
}

// The original options are restored unchanged, however weak: no rule declares them.
func TestAnOriginalThatIsWeakerIsRestored(t *testing.T) {
	pv := builders.NFSVolume([]string{"sec=krb5p"}, builders.Carrying([]string{"sec=none", "rw"}, []string{"sec=krb5p"}, "p"))
	if diff := cmp.Diff(restored("sec=none", "rw"), outcomeOf(Volume(Input{Volume: pv, Profiles: profiles()})), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("without a rule (-want +got):\n%s", diff)
	}
	// A rule without sec also restores the original value, even if it still selects the volume.
	d := Volume(Input{Volume: pv, Profiles: profiles(overVolume("p", "nocto"))})
	if diff := cmp.Diff(written([]string{"sec=none", "rw"}, []string{"sec=none", "rw", "nocto"}, "p"), outcomeOf(d), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("with a rule without sec (-want +got):\n%s", diff)
	}
}

// The fix of weakened options is an ordinary change and waits for its batch.
func TestRestoredProtectionIsAnOrdinaryBatch(t *testing.T) {
	pv := builders.NFSVolume([]string{"sec=sys"}, builders.Carrying([]string{"sec=krb5p"}, []string{"sec=sys"}, "p"))
	d := Volume(Input{Volume: pv, Profiles: profiles(overVolume("p", "sec=sys"))})
	if d.Action != ActionWrite || !d.ChangesOptions(pv) {
		t.Errorf("got action %s, changed options: %t; want %s, true", d.Action, d.ChangesOptions(pv), ActionWrite)
	}
}
