package probe

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/tuning/text"
)

// sharesFile counts the requests on all SMB shares of the node.
const sharesFile = "/proc/fs/cifs/Stats"

// Count runs a workload, and returns it with the requests of its directory's mount in the meantime. File systems other than NFS and SMB have none.
func Count(ctx context.Context, o workload.Options) (workload.Result, Phase, error) {
	return countRequests(ctx, machine{}.readFile, o)
}

func countRequests(ctx context.Context, readFile func(string) (string, error), o workload.Options) (r workload.Result, requests Phase, err error) {
	mountinfo, err := readFile(mountinfoFile)
	if err := errors.Join(o.Validate(), err); err != nil {
		return r, requests, err
	}
	dir, err := filepath.EvalSymlinks(o.Path)
	if err != nil {
		return r, requests, err
	}
	dir, _ = filepath.Abs(dir)
	source, fsType := mounts.MountedAt(mountinfo, dir)
	for fsType == "" && dir != "/" {
		dir = filepath.Dir(dir)
		source, fsType = mounts.MountedAt(mountinfo, dir)
	}
	counts := func() ([]mounts.Operation, error) {
		switch {
		case strings.HasPrefix(fsType, "nfs"):
			return countsAt(readFile, dir)
		case fsType == "cifs", fsType == "smb3":
			return countsOfShare(readFile, source)
		}
		return nil, nil
	}
	before, err := counts()
	if err == nil {
		r, err = workload.Run(ctx, o)
	}
	if err == nil {
		requests, err = measure(counts, "", before)
	}
	return r, requests, err
}

func countsOfShare(readFile func(string) (string, error), source string) ([]mounts.Operation, error) {
	data, err := readFile(sharesFile)
	if err != nil {
		return nil, fmt.Errorf("read the share's counters: %w", err)
	}
	operations, connections := mounts.CountsOfShare(data, source)
	if connections != 1 {
		return nil, fmt.Errorf("%s has %s on this node, so the requests of this mount cannot be counted", source, text.Count(connections, "connection"))
	}
	return operations, nil
}
