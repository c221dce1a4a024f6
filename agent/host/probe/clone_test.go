package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/workload"
)

// pod is a container with a clone. Each directory below the entered one causes one request for each of its entries.
type pod struct {
	dir, source, fsType string
	// otherMounts contains the other mounts in the container. otherConnections is the number of other connections to the share.
	otherMounts      string
	otherConnections int
	requests         int
	log              []string
}

func (p *pod) readFile(name string) (string, error) {
	switch name {
	case mountinfoFile:
		if p.fsType == "" {
			return "1 0 0:9 / / ro - overlay overlay ro\n", nil
		}
		return fmt.Sprintf("1 0 0:9 / / ro - overlay overlay ro\n2 1 0:52 / %s ro - %s %s rw\n%s", p.dir, p.fsType, p.source, p.otherMounts), nil
	case mountstatsFile:
		if p.fsType == "cifs" {
			return "device //filer/share mounted on " + p.dir + " with fstype cifs\n", nil
		}
		return fmt.Sprintf("device %s mounted on %s with fstype nfs4 statvers=1.1\n\txprt: tcp 1\n\txprt: tcp 2\n\tper-op statistics\n\t    GETATTR: %d %d 0 %d 0 0 0 0 0\n",
			p.source, p.dir, p.requests, p.requests, 100*p.requests), nil
	case sharesFile:
		block := fmt.Sprintf("1) \\\\filer\\share\nSMBs: 1\nBytes read: 0  Bytes written: 0\nQueryInfos: %d total 0 failed\n", p.requests)
		return strings.Repeat(block, 1+p.otherConnections), nil
	}
	return "", os.ErrNotExist
}

func (p *pod) run(t *testing.T, work Work) ([]Phase, int, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	c := clone{dir: p.dir, readFile: p.readFile,
		enter: func(root, path string) error {
			p.log = append(p.log, "enter "+path)
			p.requests += 10
			return enterBelow(root, path)
		},
		wait: func(_ context.Context, d time.Duration) { p.log = append(p.log, "wait "+d.String()) },
	}
	return c.run(t.Context(), work)
}

// volume returns a directory with three files in "a", and with links that lead out of it.
func volume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755), os.Symlink("/", filepath.Join(dir, "out")), os.Symlink("a", filepath.Join(dir, "in")))
	for _, name := range []string{"1", "2", "3"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "a", name), []byte("data"), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAPassOnAClone(t *testing.T) {
	for name, test := range map[string]struct {
		source, fsType, operation string
		transports                int
		sent                      uint64
	}{
		"NFS": {"filer:/e", "nfs4", "GETATTR", 2, 1000},
		"SMB": {"//filer/share/below", "cifs", "QUERY_INFO", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pod{dir: volume(t), source: test.source, fsType: test.fsType, requests: 7}
			phases, transports, err := p.run(t, Work{Name: "ListDirectory", Path: "in", Pause: 5 * time.Second, MaxEntries: 100})
			if err != nil || transports != test.transports {
				t.Fatalf("got %d connections, error %v", transports, err)
			}
			for i := range phases {
				if phases[i].Duration <= 0 {
					t.Errorf("phase %d has no duration", i)
				}
				phases[i].Duration = 0
			}
			want := []Phase{{Name: First, Units: 4, BytesSent: test.sent, Operations: []Operation{{test.operation, 10}}}, {Name: Repeated, Units: 4}}
			if diff := cmp.Diff(want, phases); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"enter in", "wait 5s"}, p.log); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

// The program counts the requests of the mount that contains the directory, and only time on other file systems.
func TestCount(t *testing.T) {
	for name, test := range map[string]struct {
		source, fsType string
		want           Phase
	}{
		"NFS":                 {"filer:/e", "nfs4", Phase{BytesSent: 400, Operations: []Operation{{"GETATTR", 4}}}},
		"SMB":                 {"//filer/share", "cifs", Phase{Operations: []Operation{{"QUERY_INFO", 4}}}},
		"a disk":              {"/dev/sda1", "xfs", Phase{}},
		"no mount of its own": {"", "", Phase{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pod{dir: volume(t), source: test.source, fsType: test.fsType, requests: 7}
			reads := 0
			readFile := func(name string) (string, error) {
				if reads++; reads == 3 { // The mounts, and the counters before and after.
					p.requests += 4
				}
				return p.readFile(name)
			}
			r, requests, err := countRequests(t.Context(), readFile, workload.Options{Name: workload.ListNames, Path: filepath.Join(p.dir, "in")})
			if err != nil || len(r.Passes) != 1 || r.Passes[0].Units != 4 {
				t.Fatalf("%+v, %v", r, err)
			}
			if diff := cmp.Diff(test.want, requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWritingWorkloadOnACloneLeavesNoFiles(t *testing.T) {
	p := &pod{dir: volume(t), source: "filer:/e", fsType: "nfs"}
	phases, _, err := p.run(t, Work{Name: "CreateUnlink", Path: "a", AllowWrites: true})
	if err != nil || phases[1].Units != 200 {
		t.Fatalf("%+v, %v", phases, err)
	}
	entries, err := os.ReadDir(filepath.Join(p.dir, "a"))
	if err != nil || len(entries) != 4 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestInvalidPassesOnAClone(t *testing.T) {
	void := func(p *pod) { p.otherConnections = 1 }
	for name, test := range map[string]struct {
		change func(*pod)
		path   string
		want   string
		void   bool
	}{
		"no mount":                               {func(p *pod) { p.fsType = "" }, "a", "only the Pod of a clone may run this command", false},
		"a link leads out of the volume":         {func(*pod) {}, "out", "path escapes", false},
		"a path leads out of it":                 {func(*pod) {}, "../..", "path escapes", false},
		"there is no such directory":             {func(*pod) {}, "nowhere", "no such file", false},
		"another connection to the share":        {void, "a", "//filer/share has 2 connections on this node", true},
		"another mount has the same file system": {func(p *pod) { p.otherMounts = "3 1 0:52 / /other ro - cifs //filer/share rw\n" }, "a", "another mount has the same device 0:52", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pod{dir: volume(t), source: "//filer/share", fsType: "cifs"}
			test.change(p)
			phases, _, err := p.run(t, Work{Name: "ListDirectory", Path: test.path})
			_, isVoid := errors.AsType[Void](err)
			if err == nil || !strings.Contains(err.Error(), test.want) || isVoid != test.void || phases != nil {
				t.Errorf("got phases %+v, void %v: %v, want %q", phases, isVoid, err, test.want)
			}
		})
	}
}
