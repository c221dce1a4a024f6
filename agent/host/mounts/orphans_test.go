package mounts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
)

const (
	staging  = "/var/lib/kubelet/plugins/kubernetes.io/csi/efs.csi.aws.com/0a1b/globalmount"
	volumeOf = "/volumes/kubernetes.io~csi/pv1/mount"
)

// mountLines returns a mount table. Each mount is a point and its type, device and source.
func mountLines(mounts ...string) string {
	var b strings.Builder
	b.WriteString("20 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
	for i, m := range mounts {
		fields := strings.Fields(m)
		fmt.Fprintf(&b, "%d 20 %s / %s rw - %s %s rw,vers=4.1,proto=tcp,addr=10.0.0.1\n", 30+i, fields[2], fields[0], fields[1], fields[3])
	}
	return b.String()
}

func TestOrphansAreNetworkMountsWithoutAPod(t *testing.T) {
	const systemd = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod22222222_2222_4222_8222_222222222222.slice/cri-containerd-0a.scope\n"
	const cgroupfs = "12:memory:/kubepods/besteffort/pod33333333-3333-4333-8333-333333333333/0a\n0::/\n"
	// As a process in another cgroup namespace shows it.
	const static = "0::/../../kubelet-kubepods-pod0123456789abcdef0123456789abcdef.slice/0a\n"
	gone := []string{pods + pod1 + volumeOf + " nfs4 0:52 filer:/a", pod1}
	for name, c := range map[string]struct {
		cgroups []string
		mounts  []string
		want    []string
	}{
		"no process is in the cgroup of the pod": {[]string{systemd, "0::/system.slice/a.service\n"}, gone[:1], gone[1:]},
		"without any pod, the cgroups are unknown": {
			[]string{"0::/system.slice/a.service\n"}, gone[:1], nil,
		},
		"a pod of systemd's cgroups":  {[]string{systemd}, []string{pods + pod2 + volumeOf + " nfs 0:52 filer:/a"}, nil},
		"a pod of cgroupfs":           {[]string{cgroupfs}, []string{pods + pod3 + volumeOf + " cifs 0:52 //filer/a"}, nil},
		"a static pod":                {[]string{static}, []string{pods + "0123456789abcdef0123456789abcdef" + volumeOf + " nfs 0:52 filer:/a"}, nil},
		"SMB":                         {[]string{systemd}, []string{pods + pod1 + volumeOf + " cifs 0:52 //filer/a"}, []string{pod1}},
		"a disk":                      {[]string{systemd}, []string{pods + pod1 + volumeOf + " xfs 8:17 /dev/sdb1"}, nil},
		"a mount outside the kubelet": {[]string{systemd}, []string{"/mnt/a nfs4 0:52 filer:/a"}, nil},
		"a mount of a subdirectory": {
			[]string{systemd}, []string{pods + pod1 + "/volume-subpaths/pv1/main/0 nfs4 0:52 filer:/a"}, []string{pod1},
		},
		"another pod uses the same file system": {
			[]string{systemd}, []string{gone[0], pods + pod2 + volumeOf + " nfs4 0:52 filer:/a"}, gone[1:],
		},
		"a sandboxed runtime has the file system": {
			[]string{systemd}, []string{gone[0], "/run/kata-containers/shared/sandboxes/0a/rw/passthrough nfs4 0:52 filer:/a"}, nil,
		},
		"a staging mount without pods":          {[]string{systemd}, []string{staging + " nfs4 0:52 filer:/a"}, []string{""}},
		"a staging mount of a pod that is gone": {[]string{systemd}, []string{gone[0], staging + " nfs4 0:52 filer:/a"}, []string{gone[1], ""}},
		"a staging mount of a running pod": {
			[]string{systemd}, []string{pods + pod2 + volumeOf + " nfs4 0:52 filer:/a", staging + " nfs4 0:52 filer:/a"}, nil,
		},
		"the pods are on a network file system, where any access can hang": {
			[]string{systemd}, []string{"/var/lib/kubelet nfs4 0:60 filer:/kubelet", gone[0]}, nil,
		},
		"a mount of a driver for itself": {[]string{systemd}, []string{"/var/lib/kubelet/plugins/efs.csi.aws.com/a/mount nfs4 0:52 filer:/a"}, nil},
		"a kubelet in another directory": {
			[]string{systemd}, []string{"/data/kubelet/pods/" + pod1 + volumeOf + " nfs4 0:52 filer:/a"}, gone[1:],
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"/proc/1/mountinfo": mountLines(c.mounts...), "/proc/self/cgroup": cgroupfs}
			for _, m := range c.mounts {
				files[filepath.Dir(strings.Fields(m)[0])+"/made-with-the-mount-point"] = ""
			}
			for i, cgroup := range c.cgroups {
				files[fmt.Sprintf("/proc/%d/cgroup", 100+i)] = cgroup
			}
			var got []string
			for _, o := range reader(t, files).Orphans() {
				got = append(got, o.PodUID)
			}
			check.Equal(t, "orphans", c.want, got)
		})
	}
}

// The mount points do not exist in the tree, so a result that depends on an access to one of them would be wrong.
func TestAnOrphanIsDatedWithoutAnAccessToTheMount(t *testing.T) {
	r := reader(t, map[string]string{
		"/proc/1/mountinfo":                      mountLines(pods+pod1+volumeOf+" nfs4 0:52 filer:/a", staging+" nfs4 0:54 filer:/c"),
		"/proc/7/cgroup":                         "0::/kubepods/pod" + pod3 + "/a\n",
		pods + pod1 + "/etc-hosts":               "",
		filepath.Dir(staging) + "/vol_data.json": "{}",
	})
	times := map[string]time.Time{pods + pod1: time.Unix(1700000000, 0), filepath.Dir(staging): time.Unix(1700000500, 0)}
	for dir, at := range times {
		check.NoError(t, os.Chtimes(filepath.Join(r.fs.Dir(), dir), at, at))
	}
	want := map[string]time.Time{
		pods + pod1 + volumeOf: times[pods+pod1], staging: times[filepath.Dir(staging)],
	}
	got := map[string]time.Time{}
	for _, o := range r.Orphans() {
		got[o.MountPoint] = o.Changed
	}
	check.Equal(t, "last changes", want, got)
}
