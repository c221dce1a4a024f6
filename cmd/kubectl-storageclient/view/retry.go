package view

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Failures are the failed nodes of a profile.
type Failures struct {
	// Existing and Deleted are failed nodes. Permitted are the existing nodes that still have a reboot permit.
	Existing, Deleted, Permitted []string
	// Count is the number of failures. otherCount is the number of failures without a known node, or with another cause than a reboot.
	Count      int32
	otherCount int
}

// FindFailures returns the failed nodes of a profile, or only one of them.
func FindFailures(p *v1alpha1.StorageClientProfile, clientNodes []v1alpha1.StorageClientNode, node string) Failures {
	out := Failures{Count: p.Status.Nodes.Failed, otherCount: int(p.Status.Nodes.Failed)}
	for _, c := range clientNodes {
		isManaged := slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Profile == p.Name })
		if !isManaged || c.Status.Rollout == nil || c.Status.Rollout.Phase != v1alpha1.RolloutFailed {
			continue
		}
		if out.otherCount--; node != "" && c.Name != node {
			continue
		}
		out.Existing = append(out.Existing, c.Name)
		if c.Spec.RebootPermit != nil {
			out.Permitted = append(out.Permitted, c.Name)
		}
	}
	for _, lost := range p.Status.LostNodes {
		if out.otherCount--; node == "" || lost.Name == node {
			out.Deleted = append(out.Deleted, lost.Name)
		}
	}
	return out
}

// CheckRetryable returns an error if there is no failure to retry.
func (f Failures) CheckRetryable(profile, node string) error {
	switch {
	case f.Count == 0:
		return fmt.Errorf("%s: no failed nodes to retry", profile)
	case node != "" && len(f.Existing)+len(f.Deleted) == 0 && f.otherCount == 0:
		return fmt.Errorf("%s: Node %s has not failed: see \"kubectl storageclient status %s\"", profile, node, profile)
	}
	return nil
}

// DescribeRetry describes the effect of a retry in lines.
func (f Failures) DescribeRetry(profile, node string) (lines []string) {
	names := slices.DeleteFunc(slices.Clone(f.Existing), func(name string) bool { return slices.Contains(f.Permitted, name) })
	names = append(names, lists.Each(f.Deleted, func(name string) string { return name + " (deleted)" })...)
	switch {
	case node == "" && f.otherCount > 0:
		lines = append(lines, fmt.Sprintf("Requested a retry of all failed nodes of %s. The agents retry failed settings without this command.", profile))
	case len(names) > 0:
		lines = append(lines, fmt.Sprintf("Requested a retry of %s on: %s.", profile, text.List(names)))
	case len(f.Permitted) == 0:
		lines = append(lines, fmt.Sprintf("Requested a retry of %s on %s, if it failed.", profile, node))
	}
	if len(f.Permitted) > 0 {
		lines = append(lines, fmt.Sprintf("Not retried, no response to the reboot permit: %s. Bring these nodes back, or delete their Nodes and retry.",
			text.List(f.Permitted)))
	}
	return lines
}
