// Package view converts API objects to the output of the plugin. It is pure.
package view

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// Verdict reports whether a profile is done. If not, the sentence contains the reason.
func Verdict(p *v1alpha1.StorageClientProfile) (sentence string, done bool) {
	ready := conditionOf(p, v1alpha1.ConditionReady)
	reconciling := conditionOf(p, v1alpha1.ConditionReconciling)
	switch {
	case !p.DeletionTimestamp.IsZero():
		return addReasons("Removing "+p.Name, reasonOf(reconciling, ready)), false
	case p.Status.ObservedGeneration != p.Generation:
		return fmt.Sprintf("%s is not done: the manager has not observed generation %d yet", p.Name, p.Generation), false
	case meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionStalled):
		return addReasons(p.Name+" is stopped and needs your action", reasonOf(conditionOf(p, v1alpha1.ConditionStalled))), false
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return doneSentence(p, ready), true
	case meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionPaused):
		return addReasons(p.Name+" is paused", reasonOf(conditionOf(p, v1alpha1.ConditionPaused))), false
	case !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReconciling):
		return addReasons(p.Name+" is not done", additionalProgress(ready, p), reasonOf(ready)), false
	}
	return addReasons(p.Name+" is rolling out", additionalProgress(reconciling, p), reasonOf(reconciling)), false
}

// additionalProgress returns the progress of a profile, empty if the message of a condition with this reason contains it.
func additionalProgress(c *metav1.Condition, p *v1alpha1.StorageClientProfile) string {
	if c != nil && c.Message != "" && (c.Reason == v1alpha1.ReasonRollingOut || c.Reason == v1alpha1.ReasonPlanMode) {
		return ""
	}
	var parts []string
	if n := p.Status.Nodes; n.Matched > 0 {
		parts = append(parts, share(n.UpToDate, n.Matched)+" nodes")
	}
	if v := p.Status.Volumes; v.Matched > 0 {
		parts = append(parts, share(v.UpToDate, v.Matched)+" volumes")
	}
	return strings.Join(parts, ", ")
}

func doneSentence(p *v1alpha1.StorageClientProfile, ready *metav1.Condition) string {
	done := p.Name + " is done"
	switch ready.Reason {
	case v1alpha1.ReasonNothingMatched:
		done = addReasons(done, reasonOf(ready))
	case v1alpha1.ReasonReadyWithExceptions:
		done = addReasons(done+", with exceptions", reasonOf(ready))
	}
	if n := p.Status.Volumes.StaleMounts; n > 0 {
		done = fmt.Sprintf("%s. %s old options: restart these pods (kubectl storageclient status %s --pods)",
			done, text.Count(int(n), "mount of running pods still has", "mounts of running pods still have"), p.Name)
	}
	return done
}

// addReasons adds the known reasons to a sentence. It adds no period: the text may end with a command to copy.
func addReasons(sentence string, reasons ...string) string {
	return sentence + text.Labelled(": ", text.Combine("; ", reasons...))
}

// reasonOf returns the message of the first existing condition, or its reason if it has no message.
func reasonOf(conditions ...*metav1.Condition) string {
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

func count(n int32, noun string) string { return text.Count(int(n), noun) }
