package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

type profileOption func(*v1alpha1.StorageClientProfile)

func newProfile(options ...profileOption) *v1alpha1.StorageClientProfile {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda", Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.AllNodes = true
	for _, o := range options {
		o(p)
	}
	return p
}

func tuning(change func(*v1alpha1.NodeTuning)) profileOption {
	return func(p *v1alpha1.StorageClientProfile) {
		if p.Spec.Node == nil {
			p.Spec.Node = &v1alpha1.NodeTuning{}
		}
		change(p.Spec.Node)
	}
}

func sysctl(key, value string) profileOption {
	return tuning(func(n *v1alpha1.NodeTuning) {
		if n.Sysctls == nil {
			n.Sysctls = map[string]v1alpha1.SettingText{}
		}
		n.Sysctls[key] = v1alpha1.SettingText(value)
	})
}

func argument(text string) profileOption {
	return tuning(func(n *v1alpha1.NodeTuning) {
		n.KernelArguments = append(n.KernelArguments, v1alpha1.KernelArgument(text))
	})
}

func rule(selector v1alpha1.VolumeSelector, options ...string) profileOption {
	return func(p *v1alpha1.StorageClientProfile) {
		r := v1alpha1.VolumeRule{Name: fmt.Sprint("rule", len(p.Spec.Volumes)), Selector: selector}
		for _, o := range options {
			r.MountOptions = append(r.MountOptions, v1alpha1.MountOption(o))
		}
		p.Spec.Volumes = append(p.Spec.Volumes, r)
	}
}

var (
	allNFS   = v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}
	allSMB   = v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB}}
	labelled = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "tools"}}
)

func selector(change func(*v1alpha1.VolumeSelector)) v1alpha1.VolumeSelector {
	s := *allNFS.DeepCopy()
	change(&s)
	return s
}

func TestValidateCreate(t *testing.T) {
	for name, test := range map[string]struct {
		profile *v1alpha1.StorageClientProfile
		allow   []string
		// rejected contains parts of the error. Empty if the profile is accepted. warned contains a part of each warning.
		rejected, warned []string
	}{
		"a valid profile": {profile: newProfile(sysctl("net.core.rmem_max", "16777216"), argument("ihash_entries=16777216"), rule(allNFS, "nconnect=4", "actimeo=30"))},
		"a mount option out of range": {profile: newProfile(rule(allNFS, "nconnect=17")),
			rejected: []string{`spec.volumes[0].mountOptions[0]: Invalid value: "nconnect=17"`, "must be 1 to 16"}},
		"an unknown mount option": {profile: newProfile(rule(allNFS, "nconect=4")),
			rejected: []string{`spec.volumes[0].mountOptions[0]: Invalid value: "nconect=4"`, "Did you mean nconnect?"}},
		"a sysctl beyond the catalogue": {profile: newProfile(sysctl("kernel.core_pattern", "core")),
			rejected: []string{`spec.node.sysctls[kernel.core_pattern]: Invalid value: "core"`, "--allow-parameter"}},
		"buffers that break new connections": {profile: newProfile(sysctl("net.ipv4.tcp_rmem", "1 1 1")),
			rejected: []string{`spec.node.sysctls[net.ipv4.tcp_rmem]: Invalid value: "1 1 1"`, "number 2 must be at least 2304 bytes", "the kernel's default is 4096 131072 6291456"}},
		"one local port": {profile: newProfile(sysctl("net.ipv4.ip_local_port_range", "1024 1024")), allow: []string{".*"},
			rejected: []string{"spec.node.sysctls[net.ipv4.ip_local_port_range]", "a range of at least 256"}},
		"a sysctl that is only raised": {profile: newProfile(func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Node = &v1alpha1.NodeTuning{SysctlsAtLeast: map[string]v1alpha1.WholeNumbers{"kernel.pid_max": "65536"}}
		}), rejected: []string{`spec.node.sysctlsAtLeast[kernel.pid_max]: Invalid value: "65536"`, "--allow-parameter"}},
		"a sysctl that the operator allows": {profile: newProfile(sysctl("kernel.panic", "10")), allow: []string{"sysctl/kernel[.]panic"}},
		"a malformed kernel argument": {profile: newProfile(argument("ihash_entries=16M")),
			rejected: []string{`spec.node.kernelArguments[0]: Invalid value: "16M"`, "write 16777216"}},
		"two problems at once": {profile: newProfile(sysctl("vm.dirty_ratio", "200"), rule(allNFS, "nconnect=17")),
			rejected: []string{"spec.node.sysctls[vm.dirty_ratio]", "spec.volumes[0].mountOptions[0]"}},
		"a hazard is no error": {profile: newProfile(sysctl("net.ipv4.tcp_sack", "0")), warned: []string{"spec.node.sysctls[net.ipv4.tcp_sack]"}},
		"old data for all clients": {profile: newProfile(rule(allNFS, "nocto", "actimeo=600"), rule(allNFS, "acdirmax=61", "acregmax=60")),
			warned: []string{`spec.volumes[0].mountOptions[0]: "nocto": clients may see old data for a long time`, `spec.volumes[0].mountOptions[1]: "actimeo=600"`, `spec.volumes[1].mountOptions[0]: "acdirmax=61"`}},
		"a cache that no other client may write to": {profile: newProfile(rule(allSMB, "actimeo=60", "cache=loose", "acregmax=61")),
			rejected: []string{`"actimeo=60"`}, warned: []string{`"cache=loose": caches as if`, `mountOptions[1]: "cache=loose": clients may see old data for a long time`, `"acregmax=61"`}},
		"a cache that checks": {profile: newProfile(rule(allSMB, "actimeo=60", "cache=strict"))},
		"a version that the driver does not leave open": {profile: newProfile(rule(selector(func(s *v1alpha1.VolumeSelector) { s.Drivers = []string{"file.csi.azure.com"} }), "vers=3")),
			rejected: []string{"file.csi.azure.com: the driver adds its own version"}},
		"old data for claims that ask for it":                {profile: newProfile(rule(selector(func(s *v1alpha1.VolumeSelector) { s.ClaimSelector = labelled }), "nocto"))},
		"old data for volumes that ask for it":               {profile: newProfile(rule(selector(func(s *v1alpha1.VolumeSelector) { s.VolumeSelector = labelled }), "nocto"))},
		"old data for those who write nothing":               {profile: newProfile(rule(selector(func(s *v1alpha1.VolumeSelector) { s.AccessModes = []string{"ReadOnlyMany"} }), "nocto"))},
		"old data for some who do write":                     {profile: newProfile(rule(selector(func(s *v1alpha1.VolumeSelector) { s.AccessModes = []string{"ReadOnlyMany", "ReadWriteMany"} }), "nocto")), warned: []string{`"nocto"`}},
		"an empty label selector does not limit the volumes": {profile: newProfile(rule(selector(func(s *v1alpha1.VolumeSelector) { s.ClaimSelector = &metav1.LabelSelector{} }), "nocto")), warned: []string{`"nocto"`}},
		"what no stricter volume gets": {profile: newProfile(rule(allNFS, "sec=sys"), func(p *v1alpha1.StorageClientProfile) { p.Spec.Volumes[0].OnConflict = v1alpha1.ConflictUseProfile }),
			warned: []string{`spec.volumes[0].mountOptions[0]: "sec=sys": is left out for volumes with sec=krb5, sec=krb5i, sec=krb5p`}},
		"what makes pods fail":        {profile: newProfile(rule(allNFS, "ro")), warned: []string{`spec.volumes[0].mountOptions[0]: "ro": makes the mount read-only: pods that write to it fail`}},
		"warnings come with an error": {profile: newProfile(rule(allNFS, "nconnect=17", "nocto")), rejected: []string{"nconnect=17"}, warned: []string{`"nocto"`}},
	} {
		t.Run(name, func(t *testing.T) {
			allow, err := catalogue.NewAllowList(test.allow)
			check.NoError(t, err)
			warnings, err := (&profileValidator{allow: allow}).ValidateCreate(context.Background(), test.profile)
			if (err != nil) != (len(test.rejected) > 0) || err != nil && !apierrors.IsInvalid(err) {
				t.Fatalf("got error %v, want it to contain %q", err, test.rejected)
			}
			for _, part := range test.rejected {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %q, want it to contain %q", err, part)
				}
			}
			if len(warnings) != len(test.warned) {
				t.Fatalf("got warnings %q, want %q", warnings, test.warned)
			}
			for i, part := range test.warned {
				if !strings.Contains(warnings[i], part) {
					t.Errorf("got warning %q, want it to contain %q", warnings[i], part)
				}
			}
		})
	}
}

func TestResponsesAreBounded(t *testing.T) {
	var wrong, loose []string
	for range maxListed + 5 {
		wrong, loose = append(wrong, "nconect=4"), append(loose, "nocto")
	}
	warnings, err := (&profileValidator{}).ValidateCreate(context.Background(), newProfile(rule(allNFS, wrong...), rule(allNFS, loose...)))
	var refusal apierrors.APIStatus
	if !errors.As(err, &refusal) {
		t.Fatalf("got error %v, want a rejection", err)
	}
	if n := len(refusal.Status().Details.Causes); n != maxListed+1 {
		t.Errorf("got %d causes, want %d", n, maxListed+1)
	}
	if !strings.Contains(err.Error(), "and 5 more problems") {
		t.Errorf("got %q, want the number of further errors in it", err)
	}
	if last := warnings[len(warnings)-1]; len(warnings) != maxListed+1 || !strings.HasSuffix(last, "more warnings") {
		t.Errorf("got %d warnings, the last is %q", len(warnings), last)
	}
}

func TestValidateUpdateChecksOnlyAChangedSpec(t *testing.T) {
	bad := rule(allNFS, "nconnect=17")
	for name, test := range map[string]struct {
		before, after *v1alpha1.StorageClientProfile
		rejected      bool
	}{
		"a spec that becomes wrong": {newProfile(), newProfile(bad), true},
		"a spec that becomes right": {newProfile(bad), newProfile(), false},
		"a wrong spec that stays unchanged": {newProfile(bad), newProfile(bad, func(p *v1alpha1.StorageClientProfile) {
			p.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
		}), false},
		"a wrong spec without its finalizer": {newProfile(bad), newProfile(bad, func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil }), false},
		"a wrong spec of a deleted profile":  {newProfile(), newProfile(bad, func(p *v1alpha1.StorageClientProfile) { now := metav1.Now(); p.DeletionTimestamp = &now }), false},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, err := (&profileValidator{}).ValidateUpdate(context.Background(), test.before, test.after)
			if (err != nil) != test.rejected {
				t.Errorf("got error %v, want an error: %t", err, test.rejected)
			}
			if diff := cmp.Diff(0, len(warnings)); diff != "" {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}

func TestValidateDeleteAllowsEveryProfile(t *testing.T) {
	if warnings, err := (&profileValidator{}).ValidateDelete(context.Background(), newProfile(rule(allNFS, "nconnect=17"))); err != nil || len(warnings) > 0 {
		t.Errorf("got %q, %v", warnings, err)
	}
}
