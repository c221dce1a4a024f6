// Package view turns what the API says into what the plugin prints. It is pure.
package view

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Verdict answers whether a profile is done and, if it is not, what it waits for.
func Verdict(p *v1alpha1.StorageClientProfile) (sentence string, done bool) {
	ready := condition(p, v1alpha1.ConditionReady)
	switch {
	case !p.DeletionTimestamp.IsZero():
		return fmt.Sprintf("%s is being removed%s.", p.Name, because(condition(p, v1alpha1.ConditionReconciling), ready)), false
	case p.Status.ObservedGeneration != p.Generation:
		return fmt.Sprintf("%s is not done: the manager has not looked at its latest edit (generation %d) yet.", p.Name, p.Generation), false
	case isTrue(p, v1alpha1.ConditionStalled):
		return fmt.Sprintf("%s is not done and will not go on by itself%s.", p.Name, because(condition(p, v1alpha1.ConditionStalled))), false
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return doneSentence(p, ready), true
	case isTrue(p, v1alpha1.ConditionPaused):
		return fmt.Sprintf("%s is not done: it is paused%s.", p.Name, because(condition(p, v1alpha1.ConditionPaused))), false
	}
	waiting := because(whileTrue(p, v1alpha1.ConditionReconciling), ready)
	return fmt.Sprintf("%s is not done%s%s.", p.Name, progress(p), waiting), false
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
		sentence += fmt.Sprintf(" %s of running pods still %s old options until the pods are started anew.", count(n, "mount"), verb(n, "has", "have"))
	}
	return sentence
}

func progress(p *v1alpha1.StorageClientProfile) string {
	var parts []string
	if n := p.Status.Nodes; n.Matched > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s up to date", n.UpToDate, count(n.Matched, "node")))
	}
	if v := p.Status.Volumes; v.Matched > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s", v.UpToDate, count(v.Matched, "volume")))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
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

func condition(p *v1alpha1.StorageClientProfile, name string) *metav1.Condition {
	return meta.FindStatusCondition(p.Status.Conditions, name)
}

func whileTrue(p *v1alpha1.StorageClientProfile, name string) *metav1.Condition {
	if isTrue(p, name) {
		return condition(p, name)
	}
	return nil
}

func isTrue(p *v1alpha1.StorageClientProfile, name string) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, name)
}

func count(n int32, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func verb(n int32, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
