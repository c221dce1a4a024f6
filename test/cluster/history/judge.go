package history

import (
	"fmt"
	"slices"
	"time"
)

// maxProblems is the maximum number of reported problems of one kind. The first ones explain most.
const maxProblems = 20

// Rules are the rules that a rollout must follow.
type Rules struct {
	// Budget is the number of nodes that may be out of service at the same time.
	Budget int
	// MinHealthy contains the minimum number of healthy pods by application, as in its PodDisruptionBudget. It applies from the first
	// moment with Replicas healthy pods.
	MinHealthy, Replicas map[string]int
}

// Verdict is the result for a cluster.
type Verdict struct {
	// Problems are violations of the rules, in the order of their occurrence.
	Problems []string
	// MostOut is the largest number of nodes that were claimed, cordoned or not Ready at the same time.
	MostOut int
	// Claims, Cordons and Boots are counts by node. A boot is a change of the boot ID.
	Claims, Cordons, Boots map[string]int
	// Disruptions are the disruptions, in the order of their claims.
	Disruptions []*Disruption
	// StillOut contains the nodes that are out of service at the end.
	StillOut []string
}

// Disruption is one disruption of a node, with the times of its steps from the watch events. The time of a step that it never reached is
// zero.
type Disruption struct {
	Node                                                        string
	Claimed, Cordoned, Empty, Down, Back, Uncordoned, Unclaimed time.Time
	// Pods is the number of application pods on the node when it was cordoned.
	Pods int
}

// evaluation is a replay of a history.
type evaluation struct {
	Verdict
	rules       Rules
	nodes       map[string]*nodeState
	claimed     map[string]bool
	pods        map[string]*podState
	healthy     map[string]int
	full        map[string]bool
	disruptions map[string]*Disruption
}

// Evaluate evaluates the recorded history so far.
func (r *Recorder) Evaluate(rules Rules) Verdict {
	changes, errs := r.inOrder()
	j := &evaluation{
		Verdict: Verdict{Claims: map[string]int{}, Cordons: map[string]int{}, Boots: map[string]int{}},
		rules:   rules, nodes: map[string]*nodeState{}, claimed: map[string]bool{}, pods: map[string]*podState{},
		healthy: map[string]int{}, full: map[string]bool{}, disruptions: map[string]*Disruption{},
	}
	for _, err := range errs {
		j.addProblem("%v", err)
	}
	for _, next := range changes {
		switch {
		case next.node != nil:
			j.nodeChanged(next.node, next.at)
		case next.pod != nil:
			j.podChanged(next.pod, next.at)
		default:
			j.claimsChanged(next.claims.nodes, next.at)
		}
		j.MostOut = max(j.MostOut, len(j.nodesOut()))
	}
	j.StillOut = sortedNames(j.nodesOut())
	return j.Verdict
}

func (j *evaluation) addProblem(format string, args ...any) {
	if len(j.Problems) < maxProblems {
		j.Problems = append(j.Problems, fmt.Sprintf(format, args...))
	}
}

// nodesOut returns the nodes that use the budget.
func (j *evaluation) nodesOut() map[string]bool {
	out := map[string]bool{}
	for name, claimed := range j.claimed {
		if claimed {
			out[name] = true
		}
	}
	for name, node := range j.nodes {
		if node.cordoned || node.registered && !node.ready {
			out[name] = true
		}
	}
	return out
}

func (j *evaluation) claimsChanged(now map[string]bool, at time.Time) {
	before := j.claimed
	j.claimed = now
	var added []string
	for _, name := range sortedNames(now) {
		if now[name] && !before[name] {
			added = append(added, name)
			j.Claims[name]++
			j.disruptions[name] = &Disruption{Node: name, Claimed: at}
			j.Disruptions = append(j.Disruptions, j.disruptions[name])
		}
	}
	if out := j.nodesOut(); len(added) > 0 && len(out) > j.rules.Budget {
		j.addProblem("claims for %v make %d nodes out of service, the budget is %d: %v", added, len(out), j.rules.Budget, sortedNames(out))
	}
	for _, name := range sortedNames(before) {
		if !before[name] || now[name] {
			continue
		}
		if node := j.nodes[name]; node != nil && node.cordoned {
			j.addProblem("the claim of %s was released while it was cordoned", name)
		}
		if disruption := j.disruptions[name]; disruption != nil {
			disruption.Unclaimed = at
		}
	}
}

func (j *evaluation) nodeChanged(node *nodeState, at time.Time) {
	before := j.nodes[node.name]
	j.nodes[node.name] = node
	if node.ended {
		delete(j.nodes, node.name)
		return
	}
	if before == nil {
		return
	}
	disruption := j.disruptions[node.name]
	if disruption == nil {
		disruption = &Disruption{}
	}
	if node.cordoned && !before.cordoned {
		j.Cordons[node.name]++
		if !j.claimed[node.name] {
			j.addProblem("%s was cordoned without a claim", node.name)
		}
		disruption.Pods = j.podsOn(node.name)
		setOnce(&disruption.Cordoned, at)
		j.markEmpty(node.name, at)
	}
	if before.ready && !node.ready {
		setOnce(&disruption.Down, at)
		if left := j.podsOn(node.name); left > 0 {
			j.addProblem("%s shut down with %d application pods", node.name, left)
		}
	}
	if before.bootID != "" && node.bootID != before.bootID {
		j.Boots[node.name]++
		if !node.cordoned {
			j.addProblem("%s was booted without a cordon", node.name)
		}
	}
	if !before.ready && node.ready {
		disruption.Back = at
	}
	if before.cordoned && !node.cordoned {
		disruption.Uncordoned = at
	}
}

func (j *evaluation) podChanged(pod *podState, at time.Time) {
	before := j.pods[pod.namespaced]
	if before != nil && before.healthy {
		j.healthy[before.app]--
	}
	if pod.ended {
		delete(j.pods, pod.namespaced)
		j.markEmpty(pod.node, at)
	} else {
		j.pods[pod.namespaced] = pod
		if pod.healthy {
			j.healthy[pod.app]++
		}
	}
	healthy, minimum := j.healthy[pod.app], j.rules.MinHealthy[pod.app]
	if healthy == j.rules.Replicas[pod.app] {
		j.full[pod.app] = true
	}
	if j.full[pod.app] && healthy < minimum {
		j.addProblem("application %s had %d healthy pods, its PodDisruptionBudget requires %d", pod.app, healthy, minimum)
	}
}

// markEmpty records the time when the last pod left a cordoned node.
func (j *evaluation) markEmpty(name string, at time.Time) {
	disruption, node := j.disruptions[name], j.nodes[name]
	if disruption != nil && node != nil && node.cordoned && j.podsOn(name) == 0 {
		setOnce(&disruption.Empty, at)
	}
}

func (j *evaluation) podsOn(node string) int {
	count := 0
	for _, pod := range j.pods {
		if pod.node == node {
			count++
		}
	}
	return count
}

// Completed returns the disruptions that rebooted a node and returned it to service.
func (v Verdict) Completed() []*Disruption {
	return slices.DeleteFunc(slices.Clone(v.Disruptions), func(disruption *Disruption) bool { return disruption.Back.IsZero() || disruption.Unclaimed.IsZero() })
}

func setOnce(t *time.Time, at time.Time) {
	if t.IsZero() {
		*t = at
	}
}
