package judge

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

// An option set depends on the resulting values of the options that rules affect, and on version, transport and security.
func TestAnOptionSetIsItsResultingValues(t *testing.T) {
	keep, use := builders.OnConflict(v1alpha1.ConflictKeepVolume), builders.OnConflict(v1alpha1.ConflictUseProfile)
	overClass := builders.OnConflict(v1alpha1.ConflictUseProfileOverClass)
	setOf := func(own, class, declared string, change ...builders.ProfileOption) string {
		p := builders.NFSProfile("p", strings.Fields(declared), change...)
		in := Input{Volume: builders.NFSVolume(strings.Fields(own)), Class: strings.Fields(class), HasClass: true, Profiles: profiles(p)}
		return Volume(in).Set
	}
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"another value of the volume wins":           {setOf("timeo=300", "", "timeo=600", keep), setOf("timeo=100", "", "timeo=600", keep), false},
		"the profile wins over both":                 {setOf("timeo=300", "", "timeo=600", use), setOf("timeo=100", "", "timeo=600", use), true},
		"another policy, another result":             {setOf("timeo=300", "", "timeo=600", keep), setOf("timeo=300", "", "timeo=600", use), false},
		"another policy, the same result":            {setOf("hard", "", "timeo=600", keep), setOf("hard", "", "timeo=600", use), true},
		"a value of the class is replaced":           {setOf("timeo=300", "timeo=300", "timeo=600", overClass), setOf("timeo=300", "", "timeo=600", overClass), false},
		"another option of the class":                {setOf("", "noresvport", "nocto", followsClass), setOf("", "noresvport ac", "nocto", followsClass), false},
		"an option that no rule affects":             {setOf("hard acl", "", "nocto"), setOf("soft", "", "nocto"), true},
		"another version":                            {setOf("vers=4.1", "", "nocto"), setOf("vers=4.2", "", "nocto"), false},
		"the same version, by another name":          {setOf("nfsvers=4.1", "", "nocto"), setOf("vers=4,minorversion=1", "", "nocto"), true},
		"another transport":                          {setOf("proto=tcp", "", "nocto"), setOf("proto=rdma", "", "nocto"), false},
		"another security":                           {setOf("sec=krb5", "", "nocto"), setOf("sec=sys", "", "nocto"), false},
		"another security of the transport":          {setOf("xprtsec=mtls", "", "nocto"), setOf("", "", "nocto"), false},
		"actimeo affects each timer":                 {setOf("acregmin=5", "", "actimeo=30", keep), setOf("acregmin=7", "", "actimeo=30", keep), false},
		"a synonym":                                  {setOf("", "", "nocto actimeo=30"), setOf("", "", "nocto acregmin=30 acregmax=30 acdirmin=30 acdirmax=30"), true},
		"the number of connections of other volumes": {setOf("nconnect=2", "", "nconnect=4", keep), setOf("nconnect=2", "", "nconnect=2", keep), true},
	} {
		if got := test.a == test.b; got != test.want || test.a == "" {
			t.Errorf("%s: got sets %s and %s, want the same: %t", name, test.a, test.b, test.want)
		}
	}
	// Another hash in a later release would make all sets unproven.
	if got, want := setOf("timeo=300 vers=4.1", "", "timeo=600 nocto actimeo=30", keep), "d873cc2f7ba5"; got != want {
		t.Errorf("got hash %s, want %s as in earlier releases", got, want)
	}
}

// Volumes of SMB and EFS that differ only in the security of their transport have two sets.
func TestTheSecurityOfATransportBelongsToTheSet(t *testing.T) {
	smb, efs := builders.CSI("smb.csi.k8s.io", map[string]string{"source": "//filer/share"}), builders.CSI("efs.csi.aws.com", map[string]string{"encryptInTransit": "false"})
	for name, pair := range map[string][2]*corev1.PersistentVolume{
		"seal":       {builders.NFSVolume(nil, smb), builders.NFSVolume([]string{"seal"}, smb)},
		"sign":       {builders.NFSVolume(nil, smb), builders.NFSVolume([]string{"sign"}, smb)},
		"rdma":       {builders.NFSVolume(nil, smb), builders.NFSVolume([]string{"rdma"}, smb)},
		"tls of EFS": {builders.NFSVolume(nil, efs), builders.NFSVolume(nil, builders.CSI("efs.csi.aws.com", nil))},
	} {
		var sets []string
		for _, pv := range pair {
			p := builders.NFSProfile("p", []string{"noatime"}, builders.Selecting(v1alpha1.VolumeSelector{Drivers: []string{"smb.csi.k8s.io", "efs.csi.aws.com"}}))
			sets = append(sets, Volume(Input{Volume: pv, Profiles: profiles(p)}).Set)
		}
		if sets[0] == sets[1] || sets[0] == "" {
			t.Errorf("%s: got sets %q, want two", name, sets)
		}
	}
}

// Volumes that differ in options that no rule affects have as many sets as there are rules.
func TestFiveThousandVolumesHaveTheSetsOfTheirRules(t *testing.T) {
	const volumes = 5_000
	var rules []v1alpha1.StorageClientProfile
	for i, class := range []string{"gold", "silver", "bronze"} {
		rules = append(rules, builders.NFSProfile(class, []string{"actimeo=30", fmt.Sprintf("rsize=%d", 65536<<i)}, builders.Selecting(v1alpha1.VolumeSelector{
			StorageClassNames: []string{class}, Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB},
		})))
	}
	all, sets := profiles(rules...), map[string]int{}
	for i := range volumes {
		pv := builders.NFSVolume([]string{fmt.Sprint("uid=", i), fmt.Sprint("gid=", i%7), "vers=3.1.1"}, builders.CSI("smb.csi.k8s.io", map[string]string{"source": "//filer/share"}),
			func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = rules[i%len(rules)].Name })
		sets[Volume(Input{Volume: pv, Profiles: all}).Set]++
	}
	if len(sets) != len(rules) || sets[""] > 0 {
		t.Errorf("got sets %v, want one for each of %d rules", sets, len(rules))
	}
}
