package orders

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Limits of a trial's load on a server, for each phase of a pass.
const (
	maxTrialEntries = 20000
	maxTrialBytes   = 256 << 20
	// maxRandomBytes is lower because each block is a separate synchronous request.
	maxRandomBytes = 16 << 20
)

// Limits for the work of an order, as in the API.
const (
	maxWorkPath      = 512
	maxPauseSeconds  = 60
	maxOperationName = 24
	maxWorkers       = 64
	maxBlockKiB      = 16384
	maxBuffersKiB    = 64 << 10
	maxSysctl        = 256
)

var workPath = regexp.MustCompile(`\A[A-Za-z0-9_.,:=/@+-]*\z`)

// validateWork returns the reason for rejecting the work of an order. Empty if it is valid or there is none.
func validateWork(order v1alpha1.NodeTrial) string {
	work := order.Work
	if order.Kind == v1alpha1.TrialProbe {
		if work != nil || len(order.Passes) > 0 || len(order.Sysctls) > 0 {
			return "a Probe must not have work, passes or sysctls"
		}
		return ""
	}
	switch {
	case work == nil || len(order.Passes) == 0 || len(order.Passes) > v1alpha1.MaxOrderPasses:
		return fmt.Sprintf("a Trial must have work and 1 to %d passes", v1alpha1.MaxOrderPasses)
	case order.RunAsUser < 1:
		return "the work of a Trial must not run as root"
	case !slices.Contains(v1alpha1.MountedWorkloads, work.Name):
		return "unknown workload " + string(work.Name)
	case work.Name.Writes() && !work.AllowWrites:
		return "workload " + string(work.Name) + " writes, but allowWrites is not true"
	case len(work.Path) > maxWorkPath || !workPath.MatchString(work.Path) || strings.HasPrefix(work.Path, "/") ||
		slices.Contains(strings.Split(work.Path, "/"), ".."):
		return "invalid work path"
	case work.PauseSeconds < 0 || work.PauseSeconds > maxPauseSeconds:
		return "invalid pauseSeconds"
	case work.Workers < 0 || work.Workers > maxWorkers || work.BlockKiB < 0 || work.BlockKiB > maxBlockKiB || work.BlockKiB%4 != 0 ||
		work.Workers*work.BlockKiB > maxBuffersKiB:
		return "invalid workers or blockKiB"
	}
	for _, p := range order.Passes {
		if !isPass(p.Round, p.Arm) || p.ReadAheadKiB != 0 && (p.ReadAheadKiB < bounds.MinReadAhead || p.ReadAheadKiB > bounds.MaxReadAhead) {
			return "invalid pass"
		}
	}
	return catalogue.TrialProblem(order.Sysctls)
}

// sysctlsOf returns all sysctls of a network namespace, for the runner's: with the node's values, which it reports, and with the candidate's.
func (t *Trial) sysctlsOf(ctx context.Context, order v1alpha1.NodeTrial) (list []probe.Sysctl, err error) {
	if len(order.Sysctls) == 0 {
		return nil, nil
	}
	t.status.Sysctls = map[string]v1alpha1.SettingText{}
	for _, name := range catalogue.NetNSSysctls() {
		value, desired := order.Sysctls[name]
		live, err := t.sysctl(ctx, name)
		if err != nil || !live.Present && desired {
			return nil, fmt.Errorf("sysctl %s cannot be %q, because this node has no value: %w", name, value, cmp.Or(err, fs.ErrNotExist))
		}
		if live.Present {
			list = append(list, probe.Sysctl{Name: name, Before: live.Value, After: cmp.Or(string(value), live.Value)})
		}
		if live.Value != "" {
			t.status.Sysctls[name] = v1alpha1.SettingText(text.Cut(live.Value, maxSysctl))
		}
	}
	return list, nil
}

func isPass(round int32, arm v1alpha1.TrialArm) bool {
	known := arm == v1alpha1.ArmBefore || arm == v1alpha1.ArmAgain || arm == v1alpha1.ArmAfter
	return known && round >= 1 && round <= v1alpha1.MaxTrialRounds
}

func runnerOrder(order v1alpha1.NodeTrial, sysctls []probe.Sysctl, timeout time.Duration, network string) probe.Order {
	out := probe.Order{
		ID: order.ID, Server: order.Server, Path: order.Path, FSType: order.FSType, Options: order.MountOptions, OwnOptions: order.OwnMountOptions,
		User: int(order.RunAsUser), Timeout: timeout, HostNetwork: network, Sysctls: sysctls,
	}
	if order.Work == nil {
		return out
	}
	load := order.Work.TrialLoad
	out.Work = boundWork(probe.Work{
		Load: workload.Load{
			Workers: int(load.Workers), BlockKiB: int(load.BlockKiB), Sync: load.Sync, Direct: load.Direct, Cached: load.Cached,
			ThroughClient: load.ThroughClient,
		},
		Name: string(order.Work.Name), Path: order.Work.Path, AllowWrites: order.Work.AllowWrites,
		Pause: time.Duration(order.Work.PauseSeconds) * time.Second,
	})
	for _, p := range order.Passes {
		out.Passes = append(out.Passes, probe.OrderedPass{Round: int(p.Round), Arm: probe.Arm(p.Arm), ReadAheadKiB: int(p.ReadAheadKiB)})
	}
	return out
}

func boundWork(work probe.Work) probe.Work {
	work.MaxEntries, work.MaxBytes = maxTrialEntries, maxTrialBytes
	if work.Name == string(v1alpha1.WorkloadReadRandom) {
		work.MaxBytes = maxRandomBytes
	}
	return work
}

func counter(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// trialPasses converts valid passes to the API type. It validates them because the runner is a separate process.
func trialPasses(passes []probe.Pass) (list []v1alpha1.TrialPass) {
	for _, p := range bounds.First(passes, v1alpha1.MaxOrderPasses) {
		pass := v1alpha1.TrialPass{Round: int32(min(max(p.Round, 0), v1alpha1.MaxTrialRounds)), Arm: v1alpha1.TrialArm(p.Arm)}
		if !isPass(pass.Round, pass.Arm) {
			continue
		}
		pass.Phases, pass.ReadAheadKiB = trialPhases(p.Phases), int32(min(max(p.ReadAheadKiB, 0), bounds.MaxReadAhead))
		list = append(list, pass)
	}
	return list
}

func trialPhases(phases []probe.Phase) (list []v1alpha1.TrialPassPhase) {
	for i, phase := range bounds.First(phases, len(v1alpha1.PassPhases)) {
		if phase.Name != v1alpha1.PassPhases[i] {
			break
		}
		entry := v1alpha1.TrialPassPhase{
			Name: phase.Name, Microseconds: max(phase.Duration.Microseconds(), 0), Units: counter(phase.Units),
			BytesSent: counter(phase.BytesSent), BytesReceived: counter(phase.BytesReceived),
		}
		entry.Operations = lists.Each(bounds.First(phase.Operations, v1alpha1.MaxTrialOperations), func(o probe.Operation) v1alpha1.TrialOperation {
			return v1alpha1.TrialOperation{Name: text.CutBytes(o.Name, maxOperationName), Count: counter(o.Count)}
		})
		list = append(list, entry)
	}
	return list
}
