package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/test/check"
)

// countedMount is a mount and its request counters.
type countedMount struct {
	dir, source, fsType string
	// otherConnections is the number of other connections to the share.
	otherConnections int
	requests         int
}

func (p *countedMount) readFile(name string) (string, error) {
	switch name {
	case mountinfoFile:
		if p.fsType == "" {
			return "1 0 0:9 / / ro - overlay overlay ro\n", nil
		}
		return fmt.Sprintf("1 0 0:9 / / ro - overlay overlay ro\n2 1 0:52 / %s ro - %s %s rw\n", p.dir, p.fsType, p.source), nil
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

// volume returns a directory with three files in "a", and a link to it.
func volume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755), os.Symlink("a", filepath.Join(dir, "in")))
	for _, name := range []string{"1", "2", "3"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "a", name), []byte("data"), 0o644))
	}
	check.NoError(t, err)
	return dir
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
			p := &countedMount{dir: volume(t), source: test.source, fsType: test.fsType, requests: 7}
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
			check.Equal(t, "requests", test.want, requests)
		})
	}
}

// The file of shares does not distinguish the requests of several connections.
func TestRequestsOfAShareWithSeveralConnectionsAreUnknown(t *testing.T) {
	p := &countedMount{dir: volume(t), source: "//filer/share", fsType: "cifs", otherConnections: 1}
	_, requests, err := countRequests(t.Context(), p.readFile, workload.Options{Name: workload.ListNames, Path: p.dir})
	if err == nil || !strings.Contains(err.Error(), "//filer/share has 2 connections on this node") || requests.Operations != nil {
		t.Errorf("got requests %+v, error %v; want the number of connections", requests, err)
	}
}
