package v1alpha1

import (
	"errors"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// WithDefaults returns a copy in which every optional field with a default has a value. Defaults are resolved only here; they are
// never written into an object.
func (in *StorageClientProfileSpec) WithDefaults() StorageClientProfileSpec {
	out := *in.DeepCopy()
	setDefault(&out.Mode, ModeEnforce)
	setDefault(&out.DeletionPolicy, DeletionRestore)
	setDefault(&out.OnUnsupported, UnsupportedReport)
	for i := range out.Volumes {
		if out.Volumes[i].MountOptionsFrom == MountOptionsFromClass {
			setDefault(&out.Volumes[i].OnConflict, ConflictUseProfileOverClass)
		}
		setDefault(&out.Volumes[i].OnConflict, ConflictKeepVolume)
		setDefault(&out.Volumes[i].GitOpsOwned, GitOpsReportOnly)
	}
	out.Rollout.setDefaults()
	return out
}

func (in *Rollout) setDefaults() {
	setDefault(&in.MaxUnavailable, ptr.To(intstr.FromInt32(1)))
	setDefault(&in.MaxConcurrentLive, ptr.To(intstr.FromString("10%")))
	setDefault(&in.Canary, &Canary{})
	if in.Canary.NodeSelector == nil {
		setDefault(&in.Canary.Nodes, ptr.To[int32](1))
	}
	setDefault(&in.Canary.SoakSeconds, ptr.To[int32](60))
	setDefault(&in.FailureThreshold, ptr.To[int32](1))
	setDefault(&in.SettleSeconds, ptr.To[int32](30))
	setDefault(&in.Drain.TimeoutSeconds, ptr.To[int32](900))
	setDefault(&in.Drain.IgnoreDaemonSetMounts, ptr.To(true))
	setDefault(&in.Reboot.Policy, RebootOnApproval)
	setDefault(&in.Reboot.TimeoutSeconds, ptr.To[int32](900))
	setDefault(&in.Volumes, &VolumeRollout{})
	setDefault(&in.Volumes.MaxPerStep, ptr.To(intstr.FromString("10%")))
	setDefault(&in.Volumes.SoakSeconds, ptr.To[int32](300))
	setDefault(&in.Volumes.Probe, ProbeAuto)
	setDefault(&in.Volumes.OnNoEvidence, NoEvidenceWait)
	for i := range in.Windows {
		setDefault(&in.Windows[i].TimeZone, "UTC")
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// DefaultClusterMaxUnavailable is the default of the manager's --max-unavailable, the budget of the whole cluster.
const DefaultClusterMaxUnavailable = "5%"

// DefaultClusterMaxConcurrentLive is the default of the manager's --max-concurrent-live, the maximum number of the cluster's nodes
// that apply a live change at the same time.
const DefaultClusterMaxConcurrentLive = "10%"

// ResolveShare returns the number of nodes for a limit. Percentages are rounded down; the result is at least 1.
func ResolveShare(limit intstr.IntOrString, nodes int) int {
	share, err := intstr.GetScaledValueFromIntOrPercent(&limit, nodes, false)
	if err != nil {
		return 1
	}
	return max(share, 1)
}

// ParseShare parses a share in the form of the API: an integer of at least 1, or 1% to 100%.
func ParseShare(text string) (intstr.IntOrString, error) {
	number, percent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseInt(number, 10, 32)
	if err != nil || value < 1 || (percent && value > 100) {
		return intstr.IntOrString{}, errors.New("must be an integer of at least 1 or a percentage from 1% to 100%")
	}
	if percent {
		return intstr.FromString(number + "%"), nil
	}
	return intstr.FromInt32(int32(value)), nil
}
