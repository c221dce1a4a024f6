package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/optionset"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/text"
)

// EvaluateProbe returns the result of a mount on a node; subject describes the mount. A failure counts against the options in two cases. The
// kernel or the server rejects the options, and does not reject the original ones in the same way. Or the cause is unknown, and the same mount
// with the original options works. All other failures have no result: the server may be unavailable, or reject the pod network.
func EvaluateProbe(node, subject string, status v1alpha1.NodeTrialStatus) volumeplan.Probe {
	switch {
	case status.Phase != v1alpha1.TrialFinished:
		return unknown(text.Line(status.Message))
	case status.Succeeded:
		mounted := fmt.Sprintf("a probe on %s has mounted %s", node, subject)
		if status.Transports > 0 {
			mounted += ", over " + text.Count(int(status.Transports), "connection")
		}
		return volumeplan.Probe{Verdict: optionset.ProbeWorked, Text: mounted, Node: node}
	}
	failed := fmt.Sprintf("a probe on %s could not mount %s: %s", node, subject, text.Line(mountfailures.Brief(status.Message)))
	originalMount := status.Own
	switch {
	case status.Cause == v1alpha1.MountFailureOptions && (originalMount == nil || originalMount.Succeeded || !originalMount.SameFailure):
		return volumeplan.Probe{Verdict: optionset.ProbeRefused, Text: failed}
	case status.Cause == v1alpha1.MountFailureUnknown && originalMount != nil && originalMount.Succeeded:
		return volumeplan.Probe{Verdict: optionset.ProbeRefused, Text: failed + "; the original mount options work"}
	case originalMount != nil && !originalMount.Succeeded:
		return unknown(failed + "; the original mount options do not work either")
	}
	return unknown(failed)
}

func describeOrder(order *v1alpha1.NodeTrial) string {
	return fmt.Sprintf("%s:%s with %s", order.Server, order.Path, optionsText(order.MountOptions))
}

func optionsText(options []string) string { return cmp.Or(strings.Join(options, ","), "no options") }
