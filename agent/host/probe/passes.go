package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxOperations limits the operations that are reported for one phase. maxOperationName limits the length of a name.
	maxOperations    = 16
	maxOperationName = 24
	// readAheadFile is the file with the read-ahead window of a device. The kernel rounds the window down to a page, of at most maxPageKiB.
	readAheadFile = sysfsDir + "/class/bdi/%s/read_ahead_kb"
	maxPageKiB    = 64
)

// runPasses runs the passes one after the other. It stops at the first pass that fails or lacks a proof, and keeps the earlier passes.
func (w work) runPasses(ctx context.Context) Result {
	// A process that is killed from outside cannot report its measurements.
	ctx, cancel := context.WithTimeout(ctx, w.order.Timeout-2*cleanupTime)
	defer cancel()
	var r Result
	for _, p := range w.order.Passes {
		r.Proofs = nil
		if reason := w.prove(&r); reason != "" {
			r.Message = reason
			return r
		}
		r.Tried = true
		pass, err := w.runPass(ctx, p, &r)
		r.Proofs = append(r.Proofs, w.proveSysctls(p.Arm, false)...)
		// If this process is killed, the manager replaces the Pod with its network namespace.
		w.proveSysctls(Before, true)
		switch {
		case err != nil:
			r.Message = fmt.Sprintf("%s, round %d: %v", p.Arm, p.Round, err)
			switch {
			case p.Arm != After:
			case slices.ContainsFunc(r.Passes, func(earlier Pass) bool { return earlier.Arm != After }):
				r.Own = &Mount{Succeeded: true}
			default:
				r.Own = w.tryOwn(ctx)
			}
			return r
		case r.Missing() != nil:
			return r
		}
		r.Passes = append(r.Passes, pass)
	}
	r.Succeeded = true
	return r
}

func (w work) listOf(arm Arm) []string {
	if arm == After {
		return w.order.Options
	}
	return w.order.OwnOptions
}

// runPass mounts, works and unmounts. If a proof is missing, it does not use the mount.
func (w work) runPass(ctx context.Context, p OrderedPass, r *Result) (Pass, error) {
	pass := Pass{Round: p.Round, Arm: p.Arm}
	// A connection keeps the buffers that it gets at connect.
	if r.Proofs = append(r.Proofs, w.proveSysctls(p.Arm, true)...); r.Missing() != nil {
		return pass, nil
	}
	l, err := parseList(w.listOf(p.Arm))
	if err != nil {
		return pass, err
	}
	start := w.now()
	if err := w.mountList(ctx, l); err != nil {
		return pass, err
	}
	defer func() { _ = w.unmount(volumeDir) }()
	w.observe(l, r)
	r.Proofs = append(r.Proofs, w.proveSysctls(p.Arm, false)...)
	if r.Missing() != nil {
		return pass, nil
	}
	if kib := p.ReadAheadKiB; kib > 0 {
		var actual int
		device, err := w.device(volumeDir)
		if err == nil {
			actual, err = w.readAhead(device, kib)
		}
		if err == nil && (actual == 0 || actual > kib || actual <= kib-maxPageKiB) {
			err = fmt.Errorf("the kernel has %d KiB after %d KiB was written", actual, kib)
		}
		if err != nil {
			return pass, fmt.Errorf("set the read-ahead: %w", err)
		}
		pass.ReadAheadKiB = actual
	}
	if w.order.Work.Name == MountOnly {
		if err := w.checkResponse(w.order.User); err != nil {
			return pass, err
		}
		elapsed := w.now().Sub(start)
		phase, err := measure(w.counts, First, nil)
		phase.Duration, phase.Units = elapsed, 1
		pass.Phases = []Phase{phase}
		return pass, err
	}
	if !w.order.Work.AllowWrites {
		if err := w.makeReadOnly(volumeDir, l.flags); err != nil {
			return pass, fmt.Errorf("make the mount read-only: %w", err)
		}
	}
	if pass.Phases, err = w.runPhases(ctx); err != nil || p.ReadAheadKiB == 0 {
		return pass, err
	}
	return pass, w.checkReadAhead(pass.ReadAheadKiB)
}

// checkReadAhead returns an error if the mount, or the mount of a nested export that the work has entered, has another read-ahead window.
func (w work) checkReadAhead(want int) error {
	data, err := w.readFile(mountinfoFile)
	if err != nil {
		return fmt.Errorf("list the mounts: %w", err)
	}
	devices := devicesBelow(data, volumeDir)
	for _, point := range slices.Sorted(maps.Keys(devices)) {
		kib, err := w.readAhead(devices[point], 0)
		switch {
		case err != nil:
			return err
		case kib == want:
		case point == volumeDir:
			return fmt.Errorf("the read-ahead changed from %d to %d KiB during the pass: a udev rule of the node may set it for each mount", want, kib)
		default:
			return fmt.Errorf("the work read the nested export %s of the server, which has a read-ahead of %d KiB, not %d KiB: "+
				"choose a workload path outside of it, or a claim whose volume is that export", strings.TrimPrefix(point, volumeDir+"/"), kib, want)
		}
	}
	return nil
}

// readAhead returns the read-ahead window of a device, after it has set the window if kib is not zero.
func (w work) readAhead(device string, kib int) (_ int, err error) {
	file := fmt.Sprintf(readAheadFile, device)
	if kib > 0 {
		err = w.writeFile(file, strconv.Itoa(kib))
	}
	if err != nil {
		return 0, err
	}
	data, err := w.readFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(data))
}

// runPhases runs the work on the fresh mount, and again after the pause. It counts the requests that the work causes on the mount.
func (w work) runPhases(ctx context.Context) ([]Phase, error) {
	var phases []Phase
	options := w.order.Work.options(w.order.ID)
	for _, name := range []string{First, Repeated} {
		if name == Repeated {
			w.wait(ctx, w.order.Work.Pause)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		before, err := w.counts()
		if err != nil {
			return nil, err
		}
		done, err := w.workAs(ctx, w.order.User, options)
		if err != nil {
			return nil, err
		}
		phase, err := measure(w.counts, name, before)
		if err != nil {
			return nil, err
		}
		for _, p := range done.Passes {
			phase.Units += p.Units
			// All workers start together.
			phase.Duration = max(phase.Duration, durationOf(p))
		}
		phases = append(phases, phase)
	}
	return phases, nil
}

// options returns the options of one phase: one pass of each worker. All orders of a trial write below one directory, because each starts after the
// previous one is over.
func (work Work) options(orderID string) workload.Options {
	trial, _, _ := strings.Cut(orderID, "-")
	return workload.Options{
		Load: work.Load, Name: workload.Name(work.Name), Path: work.Path, AllowWrites: work.AllowWrites,
		ID: trial, TakeOver: true, MaxEntries: work.MaxEntries, MaxBytes: work.MaxBytes,
	}
}

func (w work) counts() ([]mounts.Operation, error) { return countsAt(w.readFile, volumeDir) }

func countsAt(readFile func(string) (string, error), point string) ([]mounts.Operation, error) {
	data, err := readFile(mountstatsFile)
	if err != nil {
		return nil, fmt.Errorf("read the mount's counters: %w", err)
	}
	return mounts.CountsAt(data, point), nil
}

// measure returns the requests since the counts before, as a phase.
func measure(counts func() ([]mounts.Operation, error), name string, before []mounts.Operation) (Phase, error) {
	after, err := counts()
	if err != nil {
		return Phase{}, err
	}
	p := Phase{Name: name}
	for _, now := range after {
		i := slices.IndexFunc(before, func(o mounts.Operation) bool { return o.Name == now.Name })
		if i >= 0 {
			now.Count -= before[i].Count
			now.BytesSent -= before[i].BytesSent
			now.BytesReceived -= before[i].BytesReceived
		}
		if now.Count == 0 || len(now.Name) > maxOperationName {
			continue
		}
		p.BytesSent, p.BytesReceived = p.BytesSent+now.BytesSent, p.BytesReceived+now.BytesReceived
		p.Operations = append(p.Operations, Operation{Name: now.Name, Count: now.Count})
	}
	slices.SortFunc(p.Operations, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
	})
	p.Operations = p.Operations[:min(len(p.Operations), maxOperations)]
	return p, nil
}

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
