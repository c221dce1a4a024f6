package v1alpha1

import (
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
	setDefault(&in.OnNodeFailure, FailureKeepCordoned)
	setDefault(&in.Drain.TimeoutSeconds, ptr.To[int32](900))
	setDefault(&in.Drain.OnTimeout, DrainRelease)
	setDefault(&in.Drain.GracePeriodSeconds, ptr.To[int32](-1))
	setDefault(&in.Drain.WaitForJobs, ptr.To(true))
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
