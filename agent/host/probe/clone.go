package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/tuning/text"
)

// sharesFile counts the requests on all SMB shares of the node.
const sharesFile = "/proc/fs/cifs/Stats"

// clone is a volume's clone in its Pod. The kubelet has mounted it. This process runs as the trial's user and has no privileges.
type clone struct {
	dir string
	// readFile and enter use the machine. enter makes the directory for the work the working directory of this process.
	readFile func(name string) (string, error)
	enter    func(root, path string) error
	wait     func(context.Context, time.Duration)
}

// RunOnClone runs the work of one pass on a clone that is mounted at a directory. It also returns the number of connections. Zero for SMB.
func RunOnClone(ctx context.Context, dir string, work Work) ([]Phase, int, error) {
	m := machine{}
	return clone{dir: dir, readFile: m.readFile, enter: enterBelow, wait: m.wait}.run(ctx, work)
}

func (c clone) run(ctx context.Context, work Work) ([]Phase, int, error) {
	source, fsType, err := c.mount()
	if err != nil {
		return nil, 0, err
	}
	m := meter{counts: c.countsOf(source, fsType), wait: c.wait, work: c.workBelow(work.Path)}
	work.Path = "."
	phases, err := m.runPhases(ctx, work.options(rand.Text()), work.Pause)
	if err != nil {
		return nil, 0, err
	}
	stats, err := c.readFile(mountstatsFile)
	if err != nil {
		return nil, 0, fmt.Errorf("read the mount's connections: %w", err)
	}
	_, transports := mounts.StatsAt(stats, c.dir)
	return phases, transports, nil
}

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
	m := meter{counts: func() ([]mounts.Operation, error) { return nil, nil }}
	if strings.HasPrefix(fsType, "nfs") || fsType == "cifs" || fsType == "smb3" {
		m.counts = clone{dir: dir, readFile: readFile}.countsOf(source, fsType)
	}
	before, err := m.counts()
	if err == nil {
		r, err = workload.Run(ctx, o)
	}
	if err == nil {
		requests, err = m.measure("", before)
	}
	return r, requests, err
}

// Void is the reason why the measurements of a pass are invalid.
type Void string

func (v Void) Error() string { return string(v) }

// mount returns the source and type of the clone's mount. It returns an error if another mount shares the superblock.
func (c clone) mount() (source, fsType string, err error) {
	data, err := c.readFile(mountinfoFile)
	if err != nil {
		return "", "", fmt.Errorf("read the mounts: %w", err)
	}
	source, fsType = mounts.MountedAt(data, c.dir)
	if fsType == "" {
		return "", "", errors.New("no mount at " + c.dir + ": only the Pod of a clone may run this command")
	}
	if device, otherDevices := devicesOf(data, c.dir); slices.Contains(otherDevices, device) {
		return "", "", Void("another mount has the same device " + device)
	}
	return source, fsType, nil
}

func (c clone) countsOf(source, fsType string) func() ([]mounts.Operation, error) {
	if strings.HasPrefix(fsType, "nfs") {
		return func() ([]mounts.Operation, error) { return countsAt(c.readFile, c.dir) }
	}
	return func() ([]mounts.Operation, error) {
		data, err := c.readFile(sharesFile)
		if err != nil {
			return nil, fmt.Errorf("read the share's counters: %w", err)
		}
		operations, connections := mounts.CountsOfShare(data, source)
		if connections != 1 {
			return nil, Void(fmt.Sprintf("%s has %s on this node, so the requests of this mount cannot be counted", source,
				text.Count(connections, "connection")))
		}
		return operations, nil
	}
}

// workBelow runs the work in a directory of the volume. The requests to find the directory are counted once, as for a user that changes to it.
func (c clone) workBelow(path string) func(context.Context, workload.Options) (workload.Result, error) {
	entered := false
	return func(ctx context.Context, o workload.Options) (workload.Result, error) {
		if !entered {
			if err := c.enter(c.dir, path); err != nil {
				return workload.Result{}, err
			}
			entered = true
		}
		return workload.Run(ctx, o)
	}
}

// enterBelow changes to a directory below root, and follows no link out of root.
func enterBelow(root, path string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	dir, err := r.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Chdir()
}
