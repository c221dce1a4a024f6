package judge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

// If another volume of the server has a different number of connections, only nconnect stays unchanged.
func TestAForeignNconnectWithholdsOnlyNconnect(t *testing.T) {
	eight := builders.NFSProfile("fast", []string{"nconnect=8", "actimeo=600", "nocto"}, builders.Ruled(func(r *v1alpha1.VolumeRule) {
		r.Selector = v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}
	}))
	only := builders.NFSProfile("fast", []string{"nconnect=8"}, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}))
	foreign := func(options ...string) *corev1.PersistentVolume {
		pv := builders.NFSVolume(options, builders.Named("other-team"))
		pv.Spec.StorageClassName = "other"
		return pv
	}
	all := []string{"hard", "nconnect=8", "actimeo=600", "nocto"}
	const dispute = "nconnect differs between volumes of server filer: nconnect=2 (other-team), nconnect=8 (pv1); " +
		"the first mount on a node sets it for all; use one value for all volumes of the server"
	for name, test := range map[string]struct {
		volume, other *corev1.PersistentVolume
		with          v1alpha1.StorageClientProfile
		want          outcome
		message       string
	}{
		"the other options are written": {
			volume: builders.NFSVolume([]string{"hard"}), other: foreign("nconnect=2"), with: eight,
			want: written([]string{"hard"}, []string{"hard", "actimeo=600", "nocto"}, "fast"), message: "nconnect unchanged: " + dispute,
		},
		"then only nconnect is missing": {
			volume: builders.NFSVolume([]string{"hard", "actimeo=600", "nocto"}, builders.Carrying([]string{"hard"}, []string{"hard", "actimeo=600", "nocto"}, "fast")),
			other:  foreign("nconnect=2"), with: eight, want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"), message: dispute,
		},
		"a current number stays": {
			volume: builders.NFSVolume(all, builders.Carrying([]string{"hard"}, all, "fast")), other: foreign("nconnect=2"), with: eight,
			want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"), message: dispute,
		},
		"a rule with only nconnect does not write": {
			volume: builders.NFSVolume([]string{"hard"}), other: foreign("nconnect=2"), with: only, want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"), message: dispute,
		},
		"a volume without a number is reported and does not block": {
			volume: builders.NFSVolume([]string{"hard"}), other: foreign("vers=4.1"), with: eight, want: written([]string{"hard"}, all, "fast"),
			message: "PersistentVolume other-team of server filer has no nconnect; a node that mounts it first uses one connection for all",
		},
		"it is reported as long as it may be mounted first": {
			volume: builders.NFSVolume(all, builders.Carrying([]string{"hard"}, all, "fast")), other: foreign("vers=4.1"), with: eight,
			want: upToDate, message: "other-team of server filer has no nconnect",
		},
		"one of another version is not": {
			volume: builders.NFSVolume(all, builders.Carrying([]string{"hard"}, all, "fast")), other: foreign("vers=3"), with: eight,
			want: upToDate, message: "mountOptions are as declared",
		},
	} {
		t.Run(name, func(t *testing.T) {
			servers := NewServers()
			evaluation := Evaluate(Input{Volume: test.volume, Profiles: profiles(test.with)})
			servers.Add(evaluation)
			servers.Add(Evaluate(Input{Volume: test.other, Profiles: profiles(test.with)}))
			v := servers.Evaluate(evaluation)
			if diff := cmp.Diff(test.want, outcomeOf(*v)); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", v.Message, diff)
			}
			if !strings.Contains(v.Message, test.message) || test.message == "mountOptions are as declared" && v.Message != test.message {
				t.Errorf("got message %q, want %q", v.Message, test.message)
			}
			if again := servers.Evaluate(evaluation); again.Message != v.Message {
				t.Errorf("second evaluation: got message %q, want %q", again.Message, v.Message)
			}
		})
	}
}

// A server in two spellings is one server: two profiles with different numbers of connections conflict.
func TestTwoSpellingsOfAServerAreOneServer(t *testing.T) {
	rule := func(name, class, nconnect string) v1alpha1.StorageClientProfile {
		return builders.NFSProfile(name, []string{"nconnect=" + nconnect}, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{class}}))
	}
	for _, names := range [][2]string{{"[fd00::1]", "fd00:0:0::1"}, {"filer.example.com", "FILER.example.com."}} {
		one := builders.NFSVolume(nil)
		one.Spec.NFS.Server = names[0]
		other := builders.NFSVolume(nil, builders.CSI("nfs.csi.k8s.io", map[string]string{"server": names[1], "share": "/data"}), builders.Named("other"))
		other.Spec.StorageClassName = "other"
		all := profiles(rule("a", "nfs", "8"), rule("b", "other", "2"))
		servers := NewServers()
		evaluations := []*Evaluation{Evaluate(Input{Volume: one, Profiles: all}), Evaluate(Input{Volume: other, Profiles: all})}
		for _, e := range evaluations {
			servers.Add(e)
		}
		for _, e := range evaluations {
			if v := servers.Evaluate(e); v.Action == ActionWrite || !v.Contested {
				t.Errorf("%s and %s: PersistentVolume %s: got %s %v, want a conflict", names[0], names[1], e.Volume.Name, v.Action, v.Options)
			}
		}
		if !Selects(&v1alpha1.VolumeSelector{Servers: []string{names[1]}}, one, nil) {
			t.Errorf("selector.servers [%s] does not select a volume of %s", names[1], names[0])
		}
	}
}

// VAST's client opens up to 64 connections, the kernel's client up to 16.
func TestConnectionsOfVAST(t *testing.T) {
	attributes := map[string]string{"vip_pool_fqdn": "filer"}
	vast := builders.NFSProfile("fast", []string{"nconnect=64"}, builders.Selecting(v1alpha1.VolumeSelector{
		Drivers: []string{"csi.vastdata.com"}, StorageClassNames: []string{"nfs"},
	}))
	for name, test := range map[string]struct {
		other   []string
		want    outcome
		message string
	}{
		"another number": {[]string{"nconnect=32"}, leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
			"nconnect differs between volumes of server filer: nconnect=32 (other-team), nconnect=64 (pv1)"},
		"the same number": {[]string{"nconnect=64"}, written([]string{"hard"}, []string{"hard", "nconnect=64"}, "fast"), ""},
		"no number": {[]string{"hard"}, written([]string{"hard"}, []string{"hard", "nconnect=64"}, "fast"),
			"PersistentVolume other-team of server filer has no nconnect"},
	} {
		t.Run(name, func(t *testing.T) {
			other := builders.NFSVolume(test.other, builders.CSI("csi.vastdata.com", attributes), builders.Named("other-team"))
			other.Spec.StorageClassName = "other"
			evaluation := Evaluate(Input{Volume: builders.NFSVolume([]string{"hard"}, builders.CSI("csi.vastdata.com", attributes)), Profiles: profiles(vast)})
			servers := NewServers()
			servers.Add(evaluation)
			servers.Add(Evaluate(Input{Volume: other, Profiles: profiles(vast)}))
			v := servers.Evaluate(evaluation)
			if diff := cmp.Diff(test.want, outcomeOf(*v)); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", v.Message, diff)
			}
			if !strings.Contains(v.Message, test.message) || test.message == "" && strings.Contains(v.Message, "no nconnect") {
				t.Errorf("got message %q, want %q", v.Message, test.message)
			}
		})
	}
}
