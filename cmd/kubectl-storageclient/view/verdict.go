// Package view turns what the API says into what the plugin prints. It is pure.
package view

import (
	"cmp"
	"fmt"
	"slices"
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
		return end("Removing "+p.Name, why(conditionOf(p, v1alpha1.ConditionReconciling), ready)), false
	case p.Status.ObservedGeneration != p.Generation:
		return fmt.Sprintf("%s is not done: the manager has not seen its latest edit (generation %d) yet.", p.Name, p.Generation), false
	case isTrue(p, v1alpha1.ConditionStalled):
		return end(p.Name+" is stopped and needs you", why(conditionOf(p, v1alpha1.ConditionStalled))), false
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return doneSentence(p, ready), true
	case isTrue(p, v1alpha1.ConditionPaused):
		return end(p.Name+" is paused", why(conditionOf(p, v1alpha1.ConditionPaused))), false
	case reconciling == nil:
		return end(p.Name+" is not done", progressOf(p), why(ready)), false
	}
	return end(p.Name+" is rolling out", progressOf(p), why(reconciling)), false
}

func doneSentence(p *v1alpha1.StorageClientProfile, ready *metav1.Condition) string {
	sentence := p.Name + " is done."
	switch ready.Reason {
	case v1alpha1.ReasonNothingMatched:
		sentence = end(p.Name+" is done", why(ready))
	case v1alpha1.ReasonReadyWithExceptions:
		sentence = end(p.Name+" is done, with exceptions", why(ready))
	}
	if n := p.Status.Volumes.StaleMounts; n > 0 {
		sentence += fmt.Sprintf(" %s of running pods still %s old options: restart these pods (kubectl storageclient status %s --pods).", count(n, "mount"), verb(n, "has", "have"), p.Name)
	}
	return sentence
}

// end puts a sentence together: what is said, and why where that is known. Behind a command there is no period: somebody copies it.
func end(said string, reasons ...string) string {
	reasons = slices.DeleteFunc(reasons, func(s string) bool { return s == "" })
	if len(reasons) > 1 && strings.Contains(reasons[1], " up to date") {
		// That tells how far it is, too.
		reasons = reasons[1:]
	}
	if len(reasons) > 0 {
		said += ": " + strings.Join(reasons, "; ")
	}
	if last := strings.LastIndex(said, "kubectl "); last >= 0 && !strings.Contains(said[last:], "; ") {
		return said
	}
	return said + "."
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
	return strings.Join(parts, ", ")
}

// why is what the first condition that is there says: its message, or its reason where it has none.
func why(conditions ...*metav1.Condition) string {
	for _, c := range conditions {
		if c != nil {
			return cmp.Or(strings.TrimSuffix(c.Message, "."), c.Reason)
		}
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
