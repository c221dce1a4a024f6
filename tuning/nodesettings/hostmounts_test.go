package nodesettings

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

func hostSettings(s *v1alpha1.StorageClientProfileSpec) {
	s.Node.ReadAhead = []v1alpha1.ReadAhead{{FSTypes: []string{"nfs", "nfs4"}, SizeKiB: 15360}}
	s.Node.Tuned = &v1alpha1.Tuned{Profile: "latency-performance"}
	s.Node.NFSMountDefaults = []v1alpha1.NFSMountDefaults{
		{Options: []v1alpha1.MountOption{"nocto", "hard"}},
		{Server: "Filer1", Options: []v1alpha1.MountOption{"nconnect=4"}},
	}
	s.Node.Filesystems = []v1alpha1.Filesystem{
		{MountPoint: "/mnt/disks/*", FSType: "xfs", MountOptions: []v1alpha1.MountOption{"noatime", "logbsize=256k"}},
		{MountPoint: "/srv", MountOptions: []v1alpha1.MountOption{"noatime"}},
	}
}

func TestHostSettingsHaveCanonicalKeys(t *testing.T) {
	p := profile("a", 0, hostSettings)
	got := map[string]string{}
	for _, s := range Settings(&p) {
		got[s.Key] = s.Value
	}
	want := map[string]string{
		"readAhead/nfs": "15360", "readAhead/nfs4": "15360",
		"tuned/profile":           "latency-performance",
		"nfsMountDefaults/_all":   "nocto,hard",
		"nfsMountDefaults/filer1": "nconnect=4",
		"filesystem/mnt/disks/*":  "xfs:noatime,logbsize=256k",
		"filesystem/srv":          ":noatime",
	}
	check.Equal(t, "settings", want, got)
	if problems := Validate(&p, catalogue.AllowList{}); len(problems) > 0 {
		t.Errorf("got problems %v", problems)
	}
	if _, bootHash := Hashes(Settings(&p)); bootHash != "" {
		t.Error("got a boot hash without settings that require a reboot")
	}
}

// The rules of hashes.golden apply to this line too.
func TestTheHashOfHostSettingsNeverChanges(t *testing.T) {
	data, err := os.ReadFile("testdata/later/host-mounts.yaml")
	check.NoError(t, err)
	var p v1alpha1.StorageClientProfile
	check.NoError(t, yaml.UnmarshalStrict(data, &p))
	if hash, bootHash := Hashes(Settings(&p)); hash != "ff2aba30f775c90b" || bootHash != "" {
		t.Errorf("got hash %s, boot hash %q; want ff2aba30f775c90b and none", hash, bootHash)
	}
}

func TestHostSettingsOfSeveralProfilesMergeKeyByKey(t *testing.T) {
	low, high := profile("low", 1, hostSettings), profile("high", 2, func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.ReadAhead = []v1alpha1.ReadAhead{{FSTypes: []string{"nfs4"}, SizeKiB: 1024}}
	})
	rival := profile("rival", 1, func(s *v1alpha1.StorageClientProfileSpec) { s.Node.Tuned = &v1alpha1.Tuned{Profile: "balanced"} })
	result := Merge([]v1alpha1.StorageClientProfile{low, high, rival}, nil)
	values := map[string]string{}
	for _, s := range result.Settings {
		values[s.Key] = s.Profile + " " + s.Value
	}
	if values["readAhead/nfs4"] != "high 1024" || values["readAhead/nfs"] != "low 15360" {
		t.Errorf("got %v", values)
	}
	if len(result.Conflicts) != 1 || result.Conflicts[0].Key != "tuned/profile" {
		t.Errorf("got conflicts %v", result.Conflicts)
	}
}

func TestNconnectOfHostMountsCountsForSlots(t *testing.T) {
	p := profile("a", 0, maxSlots(fromNconnect), hostSettings)
	for _, s := range Settings(&p) {
		if s.Key == keyTCPMaxSlots && s.Value != "256" {
			t.Errorf("got %s for nconnect=4, want 256", s.Value)
		}
	}
}

func TestHostSettingsThatCanNeverWork(t *testing.T) {
	nfs := func(server string, options ...v1alpha1.MountOption) option {
		return func(s *v1alpha1.StorageClientProfileSpec) {
			s.Node.NFSMountDefaults = []v1alpha1.NFSMountDefaults{{Server: server, Options: options}}
		}
	}
	filesystem := func(point, fsType string, options ...v1alpha1.MountOption) option {
		return func(s *v1alpha1.StorageClientProfileSpec) {
			s.Node.Filesystems = []v1alpha1.Filesystem{{MountPoint: point, FSType: fsType, MountOptions: options}}
		}
	}
	tests := map[string]struct {
		set  option
		want string
	}{
		"read-ahead of a type that is not known": {func(s *v1alpha1.StorageClientProfileSpec) {
			s.Node.ReadAhead = []v1alpha1.ReadAhead{{FSTypes: []string{"nsf4"}, SizeKiB: 128}}
		}, "error: spec.node.readAhead[0].sizeKiB: not supported. Did you mean nfs4?"},
		"one type twice": {func(s *v1alpha1.StorageClientProfileSpec) {
			s.Node.ReadAhead = []v1alpha1.ReadAhead{{FSTypes: []string{"nfs"}, SizeKiB: 128}, {FSTypes: []string{"nfs"}, SizeKiB: 256}}
		}, "error: spec.node.readAhead[1].sizeKiB: contradicts spec.node.readAhead[0].sizeKiB"},
		"a profile that tuned-adm would take for an option": {func(s *v1alpha1.StorageClientProfileSpec) {
			s.Node.Tuned = &v1alpha1.Tuned{Profile: "-l"}
		}, "error: spec.node.tuned.profile: a tuned profile"},
		"an IPv6 server":                  {nfs("fe80::1", "hard"), "error: spec.node.nfsMountDefaults[0].options: nfsmount.conf does not work with IPv6 addresses"},
		"a misspelt option":               {nfs("", "nconect=4"), "Did you mean nconnect?"},
		"a word that ends like a unit":    {nfs("", "local_lock=flock"), "uses local_lock=0"},
		"a protection":                    {nfs("", "suid"), "error: spec.node.nfsMountDefaults[0].options: suid is rejected"},
		"defaults without identification": {nfs("", "sec=none"), "error: spec.node.nfsMountDefaults[0].options: sec=none makes all mounts without sec weaker"},
		"defaults that do not negotiate": {nfs("filer", "sec=sys"),
			"warning: spec.node.nfsMountDefaults[0].options: prevents mounts without sec from negotiating a stronger value with the server: leave it out unless all must use sys"},
		"one server in two spellings": {func(s *v1alpha1.StorageClientProfileSpec) {
			nfs("A", "hard")(s)
			s.Node.NFSMountDefaults = append(s.Node.NFSMountDefaults, v1alpha1.NFSMountDefaults{Server: "a", Options: []v1alpha1.MountOption{"soft"}})
		}, "contradicts spec.node.nfsMountDefaults[0].options"},
		"the root":                       {filesystem("//", "xfs", "noatime"), "error: spec.node.filesystems[0].mountOptions: the kernel mounts the root file system: set its options with the kernel argument rootflags="},
		"where the system is":            {filesystem("/usr", "xfs", "noexec"), "error: spec.node.filesystems[0].mountOptions: only file systems at or below /mnt, /data, /srv"},
		"where the kubelet is":           {filesystem("/var/lib/kubelet", "", "_netdev"), "error: spec.node.filesystems[0].mountOptions: /var/lib/kubelet belongs to the system"},
		"everywhere":                     {filesystem("/*", "", "nosuid"), "error: spec.node.filesystems[0].mountOptions: the glob also matches the system's"},
		"a path that leaves":             {filesystem("/mnt/../etc", "xfs", "noatime"), "clean absolute path: write /etc"},
		"a bracket in a glob":            {filesystem("/mnt/[ab]", "xfs", "noatime"), "and * and ? in a glob"},
		"a log buffer of no power":       {filesystem("/mnt", "xfs", "logbsize=200k"), "must be a power of two"},
		"XFS options without its type":   {filesystem("/mnt", "", "logbsize=256k"), "set fsType xfs"},
		"XFS options of another type":    {filesystem("/mnt", "ext4", "logbsize=256k"), "set fsType xfs"},
		"read-only":                      {filesystem("/mnt", "xfs", "ro"), "makes the file system read-only for programs that write to it"},
		"removed options":                {filesystem("/mnt", "xfs", "nobarrier"), "mount fails"},
		"the kernel's own value":         {filesystem("/mnt", "xfs", "logbufs=8"), "warning: spec.node.filesystems[0].mountOptions: is the kernel's default"},
		"more text than the API carries": {filesystem("/mnt/"+strings.Repeat("x", 250), "xfs", "noatime"), "at most 256 bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if all := strings.Join(problemsOf(test.set), "\n"); !strings.Contains(all, test.want) {
				t.Errorf("got\n%s\nwant %q in it", all, test.want)
			}
		})
	}
}
