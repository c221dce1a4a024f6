package mounts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
)

const (
	pod1 = "11111111-1111-4111-8111-111111111111"
	pod2 = "22222222-2222-4222-8222-222222222222"
	pod3 = "33333333-3333-4333-8333-333333333333"
	pods = "/var/lib/kubelet/pods/"
)

// xprt adds a transport below /sys/kernel/sunrpc, with one key=value per line like Linux 6.1.
func xprt(files map[string]string, dir, server, limit, sourcePort, port string) {
	files["/sys/kernel/sunrpc/xprt-switches/"+dir+"/dstaddr"] = server + "\n"
	files["/sys/kernel/sunrpc/xprt-switches/"+dir+"/xprt_info"] = strings.Join([]string{
		"last_used=4294893128", "cur_cong=0", "cong_win=256", "max_num_slots=" + limit, "min_num_slots=2", "num_reqs=2",
		"binding_q_len=0", "sending_q_len=0", "pending_q_len=0", "backlog_q_len=0", "main_xprt=1",
		"src_port=" + sourcePort, "tasks_queuelen=0", "dst_port=" + port, "",
	}, "\n")
}

func node(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{"/sys/class/bdi/0:52/read_ahead_kb": "15360\n", "/sys/class/bdi/9:0/read_ahead_kb": "128\n"}
	for _, name := range []string{"mountinfo", "mountstats"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		check.NoError(t, err)
		files["/proc/1/"+name] = string(data)
	}
	xprt(files, "switch-0/xprt-0-tcp", "10.0.0.1", "65536", "0", "2049")
	xprt(files, "switch-1/xprt-1-tcp", "10.0.0.2", "128", "744", "2049")
	xprt(files, "switch-2/xprt-2-tcp", "127.0.0.1", "65536", "0", "111")
	xprt(files, "switch-3/xprt-3-tcp", "10.0.0.1", "2", "0", "0")
	files["/sys/kernel/sunrpc/xprt-switches/switch-4/xprt-4-tcp/dstaddr"] = "10.0.0.1\n"
	files["/sys/kernel/sunrpc/xprt-switches/switch-4/xprt-4-tcp/xprt_info"] = "<closed>\n"
	return files
}

func reader(t *testing.T, files map[string]string) Reader {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		file := filepath.Join(dir, name)
		check.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check.NoError(t, os.WriteFile(file, []byte(data), 0o644))
	}
	fs, err := host.OpenFS(dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	return NewReader(fs, DefaultKubeletDir)
}

func read(t *testing.T, files map[string]string) Table {
	t.Helper()
	table, err := reader(t, files).Read()
	check.NoError(t, err)
	return table
}

func find(t *testing.T, table Table, point string) Mount {
	t.Helper()
	for _, m := range table.Mounts {
		if m.MountPoint == point {
			return m
		}
	}
	t.Fatalf("no mount at %s", point)
	return Mount{}
}

func TestMounts(t *testing.T) {
	table := read(t, node(t))
	v41 := strings.Split("rw,vers=4.1,rsize=262144,wsize=262144,namlen=255,acregmin=30,acregmax=30,acdirmin=30,acdirmax=30,"+
		"hard,nocto,proto=tcp,nconnect=4,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.1,local_lock=none", ",")
	tests := map[string]Mount{
		"a CSI volume that two pods share, with all defaults": {
			MountPoint: pods + pod1 + "/volumes/kubernetes.io~csi/pv1/mount", Device: "0:52", FSType: "nfs4",
			Server: "10.0.0.1", Export: "/export/pv1", Protocol: "NFSv4.1", Options: append(v41, "relatime"),
			Connections: 4, SlotLimit: 65536, ReadAheadKiB: 15360, Volume: "pv1", PodUIDs: []string{pod1, pod2},
			Client: "10.0.0.1:2049 4.1 tcp ", First: "/mnt/with blank", ID: "43", Age: 12,
		},
		"a mount of the host with a blank in its path, read-only on a writable superblock": {
			MountPoint: "/mnt/with blank", Device: "0:46", FSType: "nfs4",
			Server: "10.0.0.1", Export: "/export/a b", Protocol: "NFSv4.1",
			Options:     append(append([]string{"ro"}, v41[1:]...), "noatime"),
			Connections: 4, SlotLimit: 65536, Client: "10.0.0.1:2049 4.1 tcp ", First: "/mnt/with blank", ID: "31", Age: 12,
		},
		"an SMB mount": {
			MountPoint: "/mnt/share", Device: "0:47", FSType: "cifs", Server: "files.example.com", Export: "/share",
			Protocol: "SMB3.1.1", ID: "32", Age: -1, CountsShare: true,
			Options: []string{
				"rw", "vers=3.1.1", "cache=strict", "username=u", "rsize=4194304", "wsize=4194304", "actimeo=30", "relatime",
			},
		},
		"an XFS file system that a pod uses as a local volume": {
			MountPoint: "/mnt/disks/d1", Device: "9:0", FSType: "xfs", Protocol: "xfs",
			Options:      []string{"rw", "attr2", "inode64", "logbufs=8", "logbsize=256k", "noquota", "noatime"},
			ReadAheadKiB: 128, PodUIDs: []string{pod2}, ID: "33", Age: -1,
		},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "mount", want, find(t, table, want.MountPoint))
		})
	}
	t.Run("an NFSv3 volume has the slot limit of its own transport", func(t *testing.T) {
		m := find(t, table, pods+pod2+"/volumes/kubernetes.io~nfs/pv2")
		if m.Protocol != "NFSv3" || m.Volume != "pv2" || m.SlotLimit != 128 || m.Connections != 1 {
			t.Errorf("got %+v", m)
		}
	})
	t.Run("a global mount has the volume of its pods", func(t *testing.T) {
		m := find(t, table, "/var/lib/kubelet/plugins/kubernetes.io/csi/file.csi.azure.com/6a1f/globalmount")
		if m.Volume != "pv1" || !cmp.Equal(m.PodUIDs, []string{pod1, pod2}) {
			t.Errorf("got %+v", m)
		}
	})
	t.Run("the upper one of two mounts counts", func(t *testing.T) {
		if m := find(t, table, "/mnt/overmounted"); m.Export != "/export/new" {
			t.Errorf("got %+v", m)
		}
	})
	t.Run("a malformed line is counted and spoils no other", func(t *testing.T) {
		if table.Malformed != 1 || len(table.Mounts) != 14 {
			t.Errorf("got %d malformed lines and %d mounts, want 1 and 14", table.Malformed, len(table.Mounts))
		}
	})
}

func TestBusy(t *testing.T) {
	want := []Busy{
		{MountPoint: "/data/kubelet/pods/" + pod3 + "/volumes/kubernetes.io~csi/pv5/mount", PodUID: pod3, Volume: "pv5", FSType: "cifs"},
		{MountPoint: "/var/lib/kubelet/plugins/kubernetes.io/csi/file.csi.azure.com/6a1f/globalmount", PodUIDs: []string{pod1, pod2}, FSType: "nfs4"},
		{MountPoint: "/var/lib/kubelet/plugins/kubernetes.io/iscsi/iface-default/portal-iqn-lun-0", FSType: "ext4"},
		{MountPoint: pods + pod1 + "/volumes/kubernetes.io~csi/pv1/mount", PodUID: pod1, Volume: "pv1", FSType: "nfs4"},
		{MountPoint: pods + pod2 + "/volume-subpaths/pv2/app/0", PodUID: pod2, Volume: "pv2", FSType: "nfs"},
		{MountPoint: pods + pod2 + "/volumeDevices/kubernetes.io~csi/pv4", PodUID: pod2, Volume: "pv4", FSType: "devtmpfs"},
		{MountPoint: pods + pod2 + "/volumes/kubernetes.io~csi/pv1/mount", PodUID: pod2, Volume: "pv1", FSType: "nfs4"},
		{MountPoint: pods + pod2 + "/volumes/kubernetes.io~local-volume/pv3", PodUID: pod2, Volume: "pv3", FSType: "xfs"},
		{MountPoint: pods + pod2 + "/volumes/kubernetes.io~nfs/pv2", PodUID: pod2, Volume: "pv2", FSType: "nfs"},
	}
	r := reader(t, node(t))
	busy, malformed, err := r.Busy()
	check.NoError(t, err)
	check.Equal(t, "busy", want, busy)
	check.Equal(t, "malformed lines", 1, malformed)
	table, err := r.Read()
	check.NoError(t, err)
	if diff := cmp.Diff(busy, table.Busy); diff != "" {
		t.Errorf("different mounts (-Busy +Read):\n%s", diff)
	}
}

func TestGlobalMountsByTheirPaths(t *testing.T) {
	k := kubelets{dirs: []string{"/var/lib/kubelet"}}
	tests := map[string]place{
		"/var/lib/kubelet/plugins/kubernetes.io/csi/pv/pv7/globalmount":            {global: true, volume: "pv7"},
		"/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/pv8":           {global: true, volume: "pv8"},
		"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pv9/dev/uid":     {pod: "uid", global: true, volume: "pv9", device: true},
		"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv9/uid": {pod: "uid", global: true, volume: "pv9", device: true},
		"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv9":     {global: true, volume: "pv9", device: true},
		"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pv9/x":   {global: true, volume: "pv9", device: true},
		"/var/lib/kubelet/plugins/driver.example.com/x":                            {global: true},
		"/var/lib/kubelet":                       {},
		"/var/lib/kubelet/pods/uid":              {},
		"/var/lib/kubelet2/pods/uid/volumes/a/b": {},
		"/home":                                  {},
	}
	for point, want := range tests {
		if got := k.placeOf(point); got != want {
			t.Errorf("%s: got %+v, want %+v", point, got, want)
		}
	}
}

// TestGlobalMountsHaveThePodsThatUseThem has drivers that stage a volume once per node: a share, two volumes of one export, a disk with a file
// system, and disks in block mode.
func TestGlobalMountsHaveThePodsThatUseThem(t *testing.T) {
	const csi = "/var/lib/kubelet/plugins/kubernetes.io/csi/"
	var table strings.Builder
	mount := func(device, root, point, fsType string) {
		fmt.Fprintf(&table, "40 1 %s %s %s rw - %s source rw\n", device, root, point, fsType)
	}
	volume := func(pod, name string) string { return pods + pod + "/volumes/kubernetes.io~csi/" + name + "/mount" }
	mount("8:1", "/", "/", "ext4")
	mount("0:50", "/", csi+"smb.csi.k8s.io/1/globalmount", "cifs")
	mount("0:50", "/", volume(pod1, "share"), "cifs")
	mount("0:50", "/logs", pods+pod2+"/volume-subpaths/share/app/0", "cifs")
	mount("0:51", "/", csi+"file.csi.azure.com/2/globalmount", "nfs4")
	mount("0:51", "/", csi+"file.csi.azure.com/3/globalmount", "nfs4")
	mount("0:51", "/", volume(pod2, "tools-a"), "nfs4")
	mount("0:51", "/", volume(pod3, "tools-b"), "nfs4")
	mount("8:16", "/", csi+"disk.csi.azure.com/4/globalmount", "ext4")
	mount("8:16", "/", volume(pod3, "disk"), "ext4")
	mount("8:32", "/", csi+"disk.csi.azure.com/5/globalmount", "ext4")
	mount("0:6", "/sdd", csi+"volumeDevices/staging/raw/id", "devtmpfs")
	mount("0:6", "/sdd", csi+"volumeDevices/publish/raw/"+pod1, "devtmpfs")
	mount("0:6", "/sdd", csi+"volumeDevices/raw/dev/"+pod1, "devtmpfs")
	mount("0:6", "/sde", csi+"volumeDevices/staging/other/id", "devtmpfs")
	busy, _, err := reader(t, map[string]string{"/proc/1/mountinfo": table.String()}).Busy()
	check.NoError(t, err)
	got := map[string][]string{}
	for _, b := range busy {
		if name, isGlobal := strings.CutPrefix(b.MountPoint, csi); isGlobal {
			got[name] = b.PodUIDs
		}
		if b.PodUID != "" && b.PodUIDs != nil {
			t.Errorf("%s: got pod %s and pods %v, want one of them", b.MountPoint, b.PodUID, b.PodUIDs)
		}
	}
	want := map[string][]string{
		"smb.csi.k8s.io/1/globalmount":      {pod1, pod2},
		"file.csi.azure.com/2/globalmount":  {pod2, pod3},
		"file.csi.azure.com/3/globalmount":  {pod2, pod3},
		"disk.csi.azure.com/4/globalmount":  {pod3},
		"disk.csi.azure.com/5/globalmount":  nil,
		"volumeDevices/staging/raw/id":      {pod1},
		"volumeDevices/publish/raw/" + pod1: nil,
		"volumeDevices/raw/dev/" + pod1:     nil,
		"volumeDevices/staging/other/id":    nil,
	}
	check.Equal(t, "pods of global mounts", want, got)
}

func TestMountsWithoutStatisticsAreShownFromTheTable(t *testing.T) {
	files := node(t)
	delete(files, "/proc/1/mountstats")
	for name := range files {
		if strings.HasPrefix(name, "/sys/") {
			delete(files, name)
		}
	}
	m := find(t, read(t, files), pods+pod1+"/volumes/kubernetes.io~csi/pv1/mount")
	if m.Protocol != "NFSv4.1" || m.Connections != 0 || m.SlotLimit != 0 || m.Volume != "pv1" {
		t.Errorf("got %+v", m)
	}
}

func TestAMissingMountTableIsAnError(t *testing.T) {
	r := reader(t, nil)
	if _, err := r.Read(); err == nil {
		t.Error("Read: no error")
	}
	if _, _, err := r.Busy(); err == nil {
		t.Error("Busy: no error")
	}
}

func TestTransports(t *testing.T) {
	mount := func(point, version, address string) string {
		return "40 24 0:90 / " + point + " rw - nfs s:/e rw,vers=" + version + ",addr=" + address + "\n"
	}
	statistics := func(point, version, port string) string {
		return "device s:/e mounted on " + point + " with fstype nfs statvers=1.1\n\topts:\trw,vers=" + version +
			"\n\txprt:\ttcp " + port + " 1 1\n"
	}
	tests := map[string]struct {
		mountinfo, mountstats string
		xprts                 [][4]string // limit, source port, server, port
		want                  []Transport
	}{
		"NFSv3 obeys": {
			mountinfo: mount("/a", "3", "10.0.0.1"), xprts: [][4]string{{"128", "744", "10.0.0.1", "2049"}},
			want: []Transport{{Server: "10.0.0.1", SlotLimit: 128, ObeysSlotTable: true}},
		},
		"NFSv4.0 obeys": {
			mountinfo: mount("/a", "4.0", "10.0.0.1"), xprts: [][4]string{{"65536", "0", "10.0.0.1", "2049"}},
			want: []Transport{{Server: "10.0.0.1", SlotLimit: 65536, ObeysSlotTable: true}},
		},
		"NFSv4.2 does not": {
			mountinfo: mount("/a", "4.2", "10.0.0.1"), xprts: [][4]string{{"65536", "0", "10.0.0.1", "2049"}},
			want: []Transport{{Server: "10.0.0.1", SlotLimit: 65536}},
		},
		"an IPv6 address in another spelling": {
			mountinfo: mount("/a", "4.2", "fe80:0::1"), xprts: [][4]string{{"65536", "0", "fe80::1", "2049"}},
			want: []Transport{{Server: "fe80::1", SlotLimit: 65536}},
		},
		"ports distinguish both kinds at one address": {
			mountinfo:  mount("/a", "3", "10.0.0.1") + mount("/b", "4.1", "10.0.0.1"),
			mountstats: statistics("/a", "3", "744") + statistics("/b", "4.1", "0"),
			xprts:      [][4]string{{"65536", "744", "10.0.0.1", "2049"}, {"65536", "0", "10.0.0.1", "2049"}},
			want: []Transport{
				{Server: "10.0.0.1", SlotLimit: 65536, ObeysSlotTable: true}, {Server: "10.0.0.1", SlotLimit: 65536},
			},
		},
		"other services are left out": {
			mountinfo: mount("/a", "3", "10.0.0.1"),
			xprts:     [][4]string{{"65536", "0", "127.0.0.1", "111"}, {"2", "0", "10.0.0.1", "0"}},
		},
		"a server at another port": {
			mountinfo: mount("/a", "3,port=20490", "10.0.0.1"), xprts: [][4]string{{"64", "0", "10.0.0.1", "20490"}},
			want: []Transport{{Server: "10.0.0.1", SlotLimit: 64, ObeysSlotTable: true}},
		},
		"a kernel that does not report it": {mountinfo: mount("/a", "3", "10.0.0.1")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"/proc/1/mountinfo": test.mountinfo, "/proc/1/mountstats": test.mountstats}
			for i, x := range test.xprts {
				dir := "switch-" + string(rune('0'+i)) + "/xprt-" + string(rune('0'+i)) + "-tcp"
				xprt(files, dir, x[2], x[0], x[1], x[3])
			}
			got, err := reader(t, files).Transports()
			check.NoError(t, err)
			check.Equal(t, "transports", test.want, got)
		})
	}
}

func TestSources(t *testing.T) {
	tests := map[string]struct{ fsType, source, server, export string }{
		"an IPv6 server":           {"nfs4", "[fe80::1]:/a/b", "fe80::1", "/a/b"},
		"the root of the server":   {"nfs4", "filer:/", "filer", "/"},
		"a colon in the export":    {"nfs", "filer:/a:/b", "filer", "/a:/b"},
		"a share with a directory": {"smb3", "//filer/share/dir", "filer", "/share/dir"},
		"a local device":           {"xfs", "/dev/sda1", "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server, export := splitSource(Entry{FSType: test.fsType, Source: test.source})
			if server != test.server || export != test.export {
				t.Errorf("got %q and %q, want %q and %q", server, export, test.server, test.export)
			}
		})
	}
}

func FuzzParsersTakeAnything(f *testing.F) {
	for _, name := range []string{"mountinfo", "mountstats"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		check.NoError(f, err)
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, data string) {
		lines, malformed := parseMountinfo(data)
		if len(lines)+malformed > strings.Count(data, "\n")+1 {
			t.Errorf("got %d lines from an input of %d lines", len(lines)+malformed, strings.Count(data, "\n")+1)
		}
		busyMounts(lines, findKubelets(lines, DefaultKubeletDir))
		parseMountstats(data)
	})
}
