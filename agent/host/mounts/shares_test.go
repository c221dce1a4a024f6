package mounts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// statsOfShares is /proc/fs/cifs/Stats in the format of smb2_print_stats in fs/smb/client/smb2ops.c of Linux 6.1.
const statsOfShares = `Resources in use
CIFS Session: 2
Share (unique mount targets): 5
SMB Request/Response Buffer: 1 Pool size: 6
SMB Small Req/Resp Buffer: 1 Pool size: 30
Operations (MIDs): 0

0 session 0 share reconnects
Total vfs operations: 45 maximum at one time: 2

Max requests in flight: 3
1) \\filer\first
SMBs: 3
Bytes read: 7  Bytes written: 0
Open files: 0 total (local), 0 open on server
TreeConnects: 1 total 0 failed
Reads: 2 total 0 failed
2) \\Filer\Share	DISCONNECTED 
SMBs: 1025
Bytes read: 1048576  Bytes written: 4096
Open files: 1 total (local), 1 open on server
TreeConnects: 1 total 0 failed
TreeDisconnects: 0 total 0 failed
Creates: 503 total 2 failed
Closes: 501 total 0 failed
Flushes: 0 total 0 failed
Reads: 1 total 0 failed
Writes: 1 total 0 failed
Locks: 0 total 0 failed
IOCTLs: 1 total 1 failed
QueryDirectories: 4 total 0 failed
ChangeNotifies: 0 total 0 failed
QueryInfos: 12 total 0 failed
SetInfos: 1 total 0 failed
OplockBreaks: 0 sent 0 failed
`

func TestRequestsOnAShare(t *testing.T) {
	operations, connections := CountsOfShare(statsOfShares, "//filer/share/of/projects")
	want := []Operation{
		{Name: "TREE_CONNECT", Count: 1}, {Name: "TREE_DISCONNECT"}, {Name: "CREATE", Count: 503, Errors: 2}, {Name: "CLOSE", Count: 501}, {Name: "FLUSH"},
		{Name: "READ", Count: 1, BytesReceived: 1048576}, {Name: "WRITE", Count: 1, BytesSent: 4096}, {Name: "LOCK"}, {Name: "IOCTL", Count: 1, Errors: 1},
		{Name: "QUERY_DIRECTORY", Count: 4}, {Name: "CHANGE_NOTIFY"}, {Name: "QUERY_INFO", Count: 12}, {Name: "SET_INFO", Count: 1}, {Name: "OPLOCK_BREAK"},
	}
	if diff := cmp.Diff(want, operations); diff != "" || connections != 1 {
		t.Errorf("%d connections, operations (-want +got):\n%s", connections, diff)
	}
	for source, want := range map[string]int{"//filer/first": 1, "//filer/shar": 0, "//filer2/share": 0} {
		if _, connections := CountsOfShare(statsOfShares, source); connections != want {
			t.Errorf("%s: got %d connections, want %d", source, connections, want)
		}
	}
	if _, connections := CountsOfShare(statsOfShares+"3) \\\\filer\\share\nSMBs: 1\n", "//filer/share"); connections != 2 {
		t.Errorf("got %d connections of two users, want 2", connections)
	}
}

func TestAShareOfAServerInAnotherSpelling(t *testing.T) {
	stats := strings.ReplaceAll(statsOfShares, `\\filer\`, `\\FILER.\`)
	if operations, connections := CountsOfShare(stats, "//filer/first"); connections != 1 || len(operations) == 0 {
		t.Errorf("got %d connections with operations %v, want 1 with operations", connections, operations)
	}
}

// A CSI driver may mount a directory below a share. The kernel counts only per share.
func TestMountsBelowAShareHaveItsCounts(t *testing.T) {
	files := node(t)
	files["/proc/fs/cifs/Stats"] = "1) \\\\files.example.com\\share\nReads: 3 total 1 failed\n"
	files["/proc/1/mountinfo"] = strings.Replace(files["/proc/1/mountinfo"], "//files.example.com/share rw", "//files.example.com/share/below rw", 1)
	m := find(t, read(t, files), "/mnt/share")
	if m.Operations != 2 || m.Export != "/share/below" {
		t.Errorf("got %d operations on %s, want 2", m.Operations, m.Export)
	}
}
