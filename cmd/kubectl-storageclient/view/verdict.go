// Package view turns what the API says into what the plugin prints. It is pure.
package view

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// Verdict says whether a profile is done and, if it is not, what it is waiting for.
func Verdict(p *v1alpha1.StorageClientProfile) (sentence string, done bool) {
	ready := conditionOf(p, v1alpha1.ConditionReady)
	reconciling := ifTrue(p, v1alpha1.ConditionReconciling)
	switch {
	case !p.DeletionTimestamp.IsZero():
		return fmt.Sprintf("Removing %s%s.", p.Name, because(conditionOf(p, v1alpha1.ConditionReconciling), ready)), false
	case p.Status.ObservedGeneration != p.Generation:
		return fmt.Sprintf("%s is not done: the manager has not seen its latest edit (generation %d) yet.", p.Name, p.Generation), false
	case isTrue(p, v1alpha1.ConditionStalled):
		return fmt.Sprintf("%s is stopped and needs you%s.", p.Name, because(conditionOf(p, v1alpha1.ConditionStalled))), false
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return doneSentence(p, ready), true
	case isTrue(p, v1alpha1.ConditionPaused):
		return fmt.Sprintf("%s is paused%s.", p.Name, because(conditionOf(p, v1alpha1.ConditionPaused))), false
	case reconciling == nil:
		return fmt.Sprintf("%s is not done%s%s.", p.Name, progressOf(p), because(ready)), false
	case reconciling.Reason == v1alpha1.ReasonWaitingForApproval:
		return fmt.Sprintf("%s is rolling out%s. Next: approve with \"kubectl storageclient approve %s\".", p.Name, progressOf(p), p.Name), false
	}
	return fmt.Sprintf("%s is rolling out%s%s.", p.Name, progressOf(p), because(reconciling)), false
}

func doneSentence(p *v1alpha1.StorageClientProfile, ready *metav1.Condition) string {
	sentence := p.Name + " is done"
	if ready.Reason == v1alpha1.ReasonNothingMatched {
		sentence += ": it matches no node and no volume"
	}
	if ready.Reason == v1alpha1.ReasonReadyWithExceptions {
		sentence += because(ready)
	}
	sentence += "."
	if n := p.Status.Volumes.StaleMounts; n > 0 {
		sentence += fmt.Sprintf(" %s of running pods still %s old options: restart these pods.", count(n, "mount"), verb(n, "has", "have"))
	}
	return sentence
}

func progressOf(p *v1alpha1.StorageClientProfile) string {
	var parts []string
	if n := p.Status.Nodes; n.Matched > 0 {
		parts = append(parts, share(n.UpToDate, n.Matched)+" nodes")
	}
	if v := p.Status.Volumes; v.Matched > 0 {
		parts = append(parts, share(v.UpToDate, v.Matched)+" volumes")
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// because takes the first condition that is there.
func because(conditions ...*metav1.Condition) string {
	for _, c := range conditions {
		if c == nil {
			continue
		}
		if message := strings.TrimSuffix(c.Message, "."); message != "" {
			return fmt.Sprintf(" (%s: %s)", c.Reason, message)
		}
		return fmt.Sprintf(" (%s)", c.Reason)
	}
	return ""
}

func conditionOf(p *v1alpha1.StorageClientProfile, name string) *metav1.Condition {
	return meta.FindStatusCondition(p.Status.Conditions, name)
}

func ifTrue(p *v1alpha1.StorageClientProfile, name string) *metav1.Condition {
	if isTrue(p, name) {
		return conditionOf(p, name)
	}
	return nil
}

func isTrue(p *v1alpha1.StorageClientProfile, name string) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, name)
}

func count(n int32, noun string) string { return text.Count(int(n), noun) }

func verb(n int32, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
