package reporter

import (
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestChangesThatTheRolloutWaitsForAreUrgent(t *testing.T) {
	base := v1alpha1.StorageClientNodeStatus{
		ObservedGeneration: 1, Hash: "h", RebootRequired: true, BusyMounts: []v1alpha1.BusyMount{{MountPoint: "/m"}},
	}
	tests := map[string]struct {
		change func(*v1alpha1.StorageClientNodeStatus)
		want   bool
	}{
		"a newer generation": {func(s *v1alpha1.StorageClientNodeStatus) { s.ObservedGeneration++ }, true},
		"another hash":       {func(s *v1alpha1.StorageClientNodeStatus) { s.Hash = "i" }, true},
		"reboot required":    {func(s *v1alpha1.StorageClientNodeStatus) { s.RebootRequired = false }, true},
		"restored":           {func(s *v1alpha1.StorageClientNodeStatus) { s.Restored = true }, true},
		"a step of the reboot": {func(s *v1alpha1.StorageClientNodeStatus) {
			s.Reboot = &v1alpha1.RebootStatus{PermitID: "p", Phase: v1alpha1.RebootStarted}
		}, true},
		"the last mount gone": {func(s *v1alpha1.StorageClientNodeStatus) { s.BusyMounts = nil }, true},
		"the last mount shown gone, others not shown": {
			func(s *v1alpha1.StorageClientNodeStatus) { s.BusyMounts, s.BusyMountsOmitted = nil, 1 }, false,
		},
		"another mount": {func(s *v1alpha1.StorageClientNodeStatus) { s.BusyMounts[0].MountPoint = "/n" }, false},
		"a mount's number": {
			func(s *v1alpha1.StorageClientNodeStatus) { s.Mounts = []v1alpha1.MountStatus{{Connections: 4}} }, false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			changed := base.DeepCopy()
			test.change(changed)
			check.Equal(t, "urgent", test.want, IsUrgent(base, *changed))
		})
	}
}
