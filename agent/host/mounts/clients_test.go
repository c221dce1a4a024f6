package mounts

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

// nfsMount adds the mount table line and the statistics of a mount that is age seconds old. If age is -1, it adds no statistics.
func nfsMount(files map[string]string, point, options string, age int) {
	device := strings.Count(files["/proc/1/mountinfo"], "\n")
	files["/proc/1/mountinfo"] += fmt.Sprintf("%d 1 0:%d / %s rw - nfs4 filer:/e rw,%s\n", 40+device, 50+device, point, options)
	if age >= 0 {
		files["/proc/1/mountstats"] += fmt.Sprintf("device filer:/e mounted on %s with fstype nfs4 statvers=1.1\n\topts:\trw,%s\n\tage:\t%d\n", point, options, age)
	}
}

func TestTheOldestMountOfAClientComesFirst(t *testing.T) {
	const v41 = "vers=4.1,proto=tcp,addr=10.0.0.1"
	type made struct {
		point, options string
		age            int
	}
	tests := map[string]struct {
		mounts []made
		want   map[string]string
	}{
		"by age, whatever the order of the table": {
			mounts: []made{{"/a", v41, 10}, {"/b", v41 + ",nconnect=4", 500}, {"/c", v41, 20}},
			want:   map[string]string{"/a": "/b", "/b": "/b", "/c": "/b"},
		},
		"by the order of the table if ages are unknown": {
			mounts: []made{{"/b", v41, -1}, {"/a", v41, -1}},
			want:   map[string]string{"/b": "/b", "/a": "/b"},
		},
		"another address, port, version, transport or encryption is another client": {
			mounts: []made{
				{"/a", v41, 90}, {"/b", "vers=4.1,proto=tcp,addr=10.0.0.2", 1}, {"/c", v41 + ",port=20490", 1},
				{"/d", "vers=4.2,proto=tcp,addr=10.0.0.1", 1}, {"/e", "vers=4.1,proto=rdma,addr=10.0.0.1", 1}, {"/f", v41 + ",xprtsec=tls", 1},
			},
			want: map[string]string{"/a": "/a", "/b": "/b", "/c": "/c", "/d": "/d", "/e": "/e", "/f": "/f"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for _, m := range test.mounts {
				nfsMount(files, m.point, m.options, m.age)
			}
			got := map[string]string{}
			for _, m := range read(t, files).Mounts {
				got[m.MountPoint] = m.First
			}
			check.Equal(t, "first mounts", test.want, got)
		})
	}
}

func TestVolumeEntries(t *testing.T) {
	got, err := reader(t, node(t)).VolumeEntries()
	check.NoError(t, err)
	want := []VolumeEntry{
		{Volume: "pv1", Device: "0:52", FSType: "nfs4"}, {Volume: "pv2", Device: "0:53", FSType: "nfs"},
		{Volume: "pv3", Device: "9:0", FSType: "xfs"}, {Volume: "pv5", Device: "0:73", FSType: "cifs"},
	}
	check.Equal(t, "volumes", want, got)
}

func TestSessionsOfClientsWithTheirOldestMount(t *testing.T) {
	dir := t.TempDir()
	line := func(id int, point, options string) string {
		return fmt.Sprintf("%d 28 0:%d / %s rw,relatime shared:%d - nfs4 filer1:/export rw,%s,proto=tcp,addr=10.0.0.1\n", id, id, point, id, options)
	}
	block := func(point string, age, port int) string {
		return fmt.Sprintf("device filer1:/export mounted on %s with fstype nfs4 statvers=1.1\n\topts:\trw\n\tage:\t%d\n\txprt:\ttcp %d 1 1 0 0 1 1 0 1 1 2 0 0\n", point, age, port)
	}
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", line(40, "/a", "vers=4.1")+line(41, "/b", "vers=4.1")+line(42, "/c", "vers=4.0")+line(43, "/d", "vers=4.2"))
	hosttest.WriteFile(t, dir, "/proc/1/mountstats", block("/a", 30, 700)+block("/b", 90, 700)+block("/c", 900, 701))
	fs, err := host.OpenFS(dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	got, err := NewReader(fs, DefaultKubeletDir).Sessions()
	want := []Session{
		{Server: "filer1", Client: "10.0.0.1:2049 4.1 tcp ", Age: 90, Ports: []int{700}},
		{Server: "filer1", Client: "10.0.0.1:2049 4.2 tcp ", Age: math.MaxInt},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("sessions (-want +got), error %v:\n%s", err, diff)
	}
}
