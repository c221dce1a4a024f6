package catalogue

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

func TestMountPointsMustBeDataDirectories(t *testing.T) {
	for point, want := range map[string]string{
		"/mnt": "", "/mnt/disks/*": "", "/mnt/*/data": "", "/data": "", "/srv/nfs": "", "/var/lib/postgresql": "", "/var/lib/data/*": "",
		"/var/lib/kubelet-data": "", "/var/mnt/disk": "",
		"/*":                        "the glob also matches the system's",
		"/?nt":                      "the glob also matches the system's",
		"/mnt*":                     "the glob also matches the system's",
		"/var/lib/*":                "only file systems at or below /mnt, /data, /srv",
		"/var/lib/kube*":            "only file systems at or below",
		"/var/*/kubelet":            "only file systems at or below",
		"/usr":                      "--allow-filesystem=/usr",
		"/opt/data":                 "--allow-filesystem=/opt/data",
		"/mnta":                     "only file systems",
		"/var":                      "only file systems",
		"/var/lib":                  "only file systems",
		"/var/lib/kubelet":          "/var/lib/kubelet belongs to the system",
		"/var/lib/kubelet/pods/x":   "/var/lib/kubelet belongs to the system",
		"/var/lib/containerd":       "/var/lib/containerd belongs to the system",
		"/var/lib/docker/*":         "/var/lib/docker belongs to the system",
		"/var/lib/containers":       "belongs to the system",
		"/var/lib/crio":             "belongs to the system",
		"/var/lib/rancher/k3s":      "/var/lib/rancher belongs to the system",
		"/var/lib/storage-client/x": "belongs to the system",
	} {
		for _, options := range []string{"noatime", "noexec", "nosuid", "nodev", "_netdev"} {
			err := AllowList{}.Check("filesystem"+point, ":"+options)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s with %s: got %v, want %q", point, options, err, want)
			}
		}
	}
}

func TestAnAdministratorAdmitsMoreFileSystems(t *testing.T) {
	for name, test := range map[string]struct {
		dirs     []string
		point    string
		admitted bool
	}{
		"the directory":                         {[]string{"/scratch"}, "/scratch", true},
		"below it":                              {[]string{"/scratch"}, "/scratch/*", true},
		"another with that beginning":           {[]string{"/scratch"}, "/scratch2", false},
		"a glob that reaches further":           {[]string{"/scratch"}, "/scratch*", false},
		"the system's, within what is allowed":  {[]string{"/var"}, "/var/lib/containerd", false},
		"the system's, if it is allowed itself": {[]string{"/var/lib/docker"}, "/var/lib/docker", true},
		"the second of two":                     {[]string{"/a", "/b/c"}, "/b/c", true},
	} {
		t.Run(name, func(t *testing.T) {
			allow, err := AllowList{}.WithFilesystems(test.dirs)
			check.NoError(t, err)
			if err := allow.Check("filesystem"+test.point, "xfs:noatime"); (err == nil) != test.admitted {
				t.Errorf("%s: got %v, want accepted %t", test.point, err, test.admitted)
			}
		})
	}
	for _, dir := range []string{"/", "scratch", "/a/../b", "/a/", "/a/*", ""} {
		if _, err := (AllowList{}).WithFilesystems([]string{dir}); err == nil {
			t.Errorf("got %q accepted", dir)
		}
	}
}

func TestSettingsOfEarlierReleasesStayUnlessTheyAreHazards(t *testing.T) {
	for value, want := range map[string]bool{
		"xfs:noatime,logbsize=256k": true, ":noatime": true, ":noatime,noexec": false, ":nosuid": false, ":nodev": false, ":_netdev": false,
		"xfs:ro": false, "xfs:nonsense": false,
	} {
		if got := (AllowList{}).MayStay("filesystem/usr", value); got != want {
			t.Errorf("%s: got %t, want %t", value, got, want)
		}
	}
	if (AllowList{}).MayStay("sysctl/net.core.rmem_max", "1048576") {
		t.Error("got a result for a setting that is not about file systems")
	}
}
