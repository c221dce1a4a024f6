package mounts

import (
	"strings"
	"testing"
)

// perOp is the READ line of the fixture, without requests.
const perOp = "        READ: 0 0 0 0 0 0 0 0 0\n"

func TestCompletedOperations(t *testing.T) {
	const share, disk = "/mnt/share", "/mnt/disks/d1"
	nfs := pods + pod1 + "/volumes/kubernetes.io~csi/pv1/mount"
	smb := func(lines string) func(map[string]string) {
		return func(files map[string]string) {
			files["/proc/fs/cifs/Stats"] = "Resources in use\nCIFS Session: 1\n\n1) \\\\first\\share\nReads: 9 total 0 failed\n2) \\\\FILES.example.com\\share\nSMBs: 19\n" +
				"Bytes read: 0  Bytes written: 0\n" + lines
		}
	}
	xfs := func(stats string) func(map[string]string) {
		return func(files map[string]string) {
			files["/sys/dev/block/9:0/uevent"] = "MAJOR=9\nMINOR=0\nDEVNAME=md0\nDEVTYPE=disk\n"
			files["/sys/fs/xfs/md0/stats/stats"] = stats
		}
	}
	counting := func(lines ...string) func(map[string]string) {
		return func(files map[string]string) {
			files["/proc/1/mountstats"] = strings.ReplaceAll(files["/proc/1/mountstats"], perOp, strings.Join(lines, "\n")+"\n")
		}
	}
	tests := map[string]struct {
		point  string
		change func(map[string]string)
		want   uint64
	}{
		"NFS: only requests of the mount itself":  {nfs, counting("\tNULL: 1 1 0 44 24 3 0 4 0", "\tGETATTR: 3 3 0 1 1 1 1 1 0", "\tLOOKUP: 2 2 0 1 1 1 1 1 0", "\tEXCHANGE_ID: 1 1 0 1 1 1 1 1 0"), 0},
		"NFS: reads":                              {nfs, counting("\tREAD: 8 9 0 1288 8397700 1 22 24 0", "\tSTATFS: 1 1 0 1 1 1 1 1 0"), 9},
		"NFS: failed requests do not count":       {nfs, counting("\tREAD: 8 9 0 1288 8397700 1 22 24 8"), 0},
		"NFS: no requests that were never sent":   {nfs, counting("\tREAD: 0 9 0 0 0 0 0 0 0"), 0},
		"SMB: requests of the share":              {share, smb("Creates: 9 total 0 failed\nReads: 3 total 1 failed\nWrites: 2 total 0 failed\nQueryInfos: 4 total 4 failed\n"), 4},
		"SMB: none":                               {share, smb("Creates: 9 total 0 failed\nReads: 0 total 0 failed\n"), 0},
		"XFS: directories and bytes":              {disk, xfs("extent_alloc 1 2 3 4\ndir 5 1 0 2\ntrans 1 2 3\nxpc 4096 100 7\n"), 4211},
		"XFS: none":                               {disk, xfs("extent_alloc 1 2 3 4\ndir 0 0 0 0\nxpc 0 0 0\n"), 0},
		"XFS: if the kernel does not report them": {disk, func(map[string]string) {}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := node(t)
			test.change(files)
			if got := find(t, read(t, files), test.point).Operations; got != test.want {
				t.Errorf("got %d operations, want %d", got, test.want)
			}
		})
	}
}
