package plan

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// describe describes a step in one line.
func describe(step Step) string {
	switch s := step.(type) {
	case SetLabel:
		if !s.Labelled {
			return "unlabel " + s.Subject()
		}
		return "label " + s.Subject()
	case SetOrder:
		if s.Order == nil {
			return "clear " + s.Subject()
		}
		ordered := fmt.Sprintf("order %s: %s:%s %s", s.Subject(), s.Order.Server, s.Order.Path, strings.Join(s.Order.MountOptions, ","))
		if s.Order.Kind == v1alpha1.TrialTrial {
			ordered += fmt.Sprintf(", %s from round %d", text.Count(len(s.Order.Passes), "pass", "passes"), s.Order.Passes[0].Round)
		}
		return ordered
	case SetSample:
		if s.Sample == nil {
			return "remove the sample request from " + s.Subject()
		}
		return fmt.Sprintf("request a sample from %s: %d s of %s", s.Subject(), s.Sample.Seconds, s.Sample.Volumes[0])
	case WriteStatus:
		return fmt.Sprintf("report %s: %s", s.Subject(), describeStatus(s.Status))
	}
	return fmt.Sprintf("unknown step %T", step)
}

func describeStatus(status *v1alpha1.StorageClientTrialStatus) string {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.TrialConditionComplete)
	if condition == nil {
		return "seen"
	}
	if len(status.Samples) > 0 {
		return condition.Reason + ": " + condition.Message
	}
	return fmt.Sprintf("%s, %s complete: %s", condition.Reason, text.Count(int(status.Rounds), "round"), condition.Message)
}
