package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// reportDelay is the maximum time until an agent reports that the mounts of a server are gone, for example the mount of the last clone.
	reportDelay = time.Minute
	// settleTime is the time after the removal of a clone's Pod during which its node counts as having its mount: the agent's report may be older.
	settleTime = 30 * time.Second
	// cloneTimeout is the maximum time from the creation of a clone's volume until its mount is reported. A kubelet retries after two minutes, and
	// an agent reports within half a minute.
	cloneTimeout = 3 * time.Minute
	// maxServers is the maximum number of servers that an agent reports.
	maxServers = 64
)

// Clone is a volume with the same source as another one, with its claim and its Pod. During creation and deletion, some of them are nil.
type Clone struct {
	Volume      *corev1.PersistentVolume
	VolumeClaim *corev1.PersistentVolumeClaim
	Pod         *corev1.Pod
	// Failures are the messages of failed mounts from the Pod's kubelet, newest last.
	Failures []string
}

// Subject implements Step. All objects of a clone have one name.
func (c Clone) Subject() string {
	switch {
	case c.Volume != nil:
		return c.Volume.Name
	case c.VolumeClaim != nil:
		return c.VolumeClaim.Name
	}
	return c.Pod.Name
}

func (c Clone) isLeaving() bool {
	return c.Volume.DeletionTimestamp != nil || c.VolumeClaim != nil && c.VolumeClaim.DeletionTimestamp != nil ||
		c.Pod != nil && c.Pod.DeletionTimestamp != nil
}

// isReady reports whether the clone is mounted and its root has been read.
func (c Clone) isReady() bool { return c.Pod != nil && agentpod.IsReady(c.Pod) }

// followByClone creates the clone of a candidate, or records why there is none.
func (p *planner) followByClone(c volumeplan.ProbeCandidate, w Waiting) {
	p.memory.Waiting[c.ProbeKey] = w
	_, found := p.findNode(c, w)
	switch {
	case p.Rejections[hashOf(c)] != "":
		p.conclude(c, unknown("the API server rejected a clone of "+c.Volume.Name+": "+p.Rejections[hashOf(c)]))
	case found && p.hasCapacity():
		p.starting++
		p.steps = append(p.steps, CreateClone{Clone{Volume: cloneOf(originOf(c), w.cloneOptions(c)), VolumeClaim: claimOf(originOf(c))}})
	case p.isMountedEverywhere(c, w) && p.Now.After(w.Since.Add(reportDelay)):
		p.conclude(c, unknown("all suitable nodes have mounts of "+c.Server+", and a clone would share their connections"))
	case p.Now.After(w.Since.Add(maxProbeWait)):
		p.conclude(c, unknown("no node with an agent, whose taints the pods of the claim tolerate, was free for a probe within "+maxProbeWait.String()))
	}
}

// isMountedEverywhere reports whether mounts of the server exclude all nodes that could probe the candidate. A busy node may still become free.
func (p *planner) isMountedEverywhere(c volumeplan.ProbeCandidate, w Waiting) bool {
	selected := slices.DeleteFunc(slices.Clone(p.Nodes), func(n Node) bool {
		return n.ClientNode == nil || n.Node.Name == w.First.Node || !p.isSelected(n.Node, c)
	})
	return len(selected) > 0 && !slices.ContainsFunc(selected, func(n Node) bool { return !p.mayHaveMounts(n, originOf(c)) })
}

// cloneOptions returns the mount options of the next clone: the declared ones, or the original ones after a failure of those.
func (w Waiting) cloneOptions(c volumeplan.ProbeCandidate) []string {
	if w.Failed != "" {
		return c.Target.Clone.Own
	}
	return c.Target.Clone.Options
}

// followClone records the result of a clone, continues with it, or deletes it if it is finished or no longer needed.
func (p *planner) followClone(clone Clone) {
	hash := clone.Volume.Labels[v1alpha1.TrialLabel]
	if t, ofTrial := p.byTrial[hash]; ofTrial {
		p.followPass(clone, t)
		return
	}
	c, isKnown := p.byHash[hash]
	if isKnown {
		p.running[c.ProbeKey] = true
		// The deletion of the clone must not clear the observations so far.
		if w, isWaiting := p.Memory.Waiting[c.ProbeKey]; isWaiting {
			p.memory.Waiting[c.ProbeKey] = w
		}
	}
	if clone.Pod != nil {
		p.busy[clone.Pod.Spec.NodeName] = true
	}
	w := p.waiting(c)
	w.ByClone = true
	if isKnown && p.isCurrent(clone, c, w) {
		p.memory.Waiting[c.ProbeKey] = w
		status, isFinished := p.outcomeOf(clone, c, w)
		if !isFinished {
			p.continueClone(clone, originOf(c), func() (Node, bool) { return p.findNode(c, w) }, probePod)
			return
		}
		p.concludeClone(clone, c, w, status)
	}
	p.collect(clone)
}

// recordNodes records the nodes that have, or recently had, the Pod of a clone.
func (p *planner) recordNodes() {
	for name, at := range p.Memory.LastUsed {
		if p.Now.Before(at.Add(settleTime)) {
			p.memory.LastUsed[name] = at
		}
	}
	for _, clone := range p.Clones {
		switch {
		case clone.Pod == nil:
		case len(clone.Failures) > 0:
			// A failed mount leaves no mount behind.
			delete(p.memory.LastUsed, clone.Pod.Spec.NodeName)
		default:
			p.memory.LastUsed[clone.Pod.Spec.NodeName] = p.Now
		}
	}
}

func (p *planner) collect(clone Clone) {
	p.isClearing = true
	p.steps = append(p.steps, CollectClone{clone})
}

// isCurrent reports whether a clone has the current mount options to probe, and has no result yet.
func (p *planner) isCurrent(clone Clone, c volumeplan.ProbeCandidate, w Waiting) bool {
	result, known := p.memory.Results[c.ProbeKey]
	hasResult := known && !clone.Volume.CreationTimestamp.After(result.At)
	return !clone.isLeaving() && !hasResult && slices.Equal(clone.Volume.Spec.MountOptions, w.cloneOptions(c))
}

// continueClone creates the missing objects of the clone: its claim, then its Pod once the claim is bound and there is a node.
func (p *planner) continueClone(clone Clone, o origin, find func() (Node, bool), pod func(origin, Node, *corev1.PersistentVolumeClaim) *corev1.Pod) {
	switch {
	case clone.VolumeClaim == nil:
		p.steps = append(p.steps, CreateClone{Clone{VolumeClaim: claimOf(o)}})
	case clone.Pod == nil && clone.VolumeClaim.Status.Phase == corev1.ClaimBound:
		if n, found := find(); found {
			p.busy[n.Node.Name] = true
			p.steps = append(p.steps, CreateClone{Clone{Pod: pod(o, n, clone.VolumeClaim)}})
		}
	}
}

// outcomeOf returns the result of a clone, if it has one. Before the timeout, only a failure that names the options ends it.
func (p *planner) outcomeOf(clone Clone, c volumeplan.ProbeCandidate, w Waiting) (status v1alpha1.NodeTrialStatus, isFinished bool) {
	if clone.isReady() && w.Failed == "" {
		return p.proveMount(clone, c)
	}
	if clone.isReady() {
		return v1alpha1.NodeTrialStatus{Phase: v1alpha1.TrialFinished, Succeeded: true}, true
	}
	failure, overdue := clone.failure(p.Now, c.Target.ChangesRequests)
	switch {
	case p.Rejections[hashOf(c)] != "":
		return voidStatus("the API server rejected a clone of " + c.Volume.Name + ": " + p.Rejections[hashOf(c)]), true
	case failure != "":
		cause := v1alpha1.MountFailureCause(mountfailures.CauseOf(failure, c.Target.ChangesRequests))
		return v1alpha1.NodeTrialStatus{Phase: v1alpha1.TrialFinished, Cause: cause, Message: failure}, overdue
	}
	return voidStatus(fmt.Sprintf("no Pod was Ready with a clone of %s within %s", c.Volume.Name, cloneTimeout)), overdue
}

// failure returns the last message of a failed mount. final is true at the timeout, or at once if the message concerns the options.
func (c Clone) failure(now time.Time, changesRequests bool) (message string, final bool) {
	for _, message = range c.Failures {
		if mountfailures.CauseOf(message, changesRequests) == mountfailures.Options {
			return message, true
		}
	}
	return message, c.isOverdue(now)
}

func (c Clone) isOverdue(now time.Time) bool {
	return now.After(c.Volume.CreationTimestamp.Add(cloneTimeout))
}

func (p *planner) proveMount(clone Clone, c volumeplan.ProbeCandidate) (status v1alpha1.NodeTrialStatus, isFinished bool) {
	m, doubt, hasOtherMount := p.checkMount(clone, originOf(c), c.Target.Clone.Declared)
	if doubt != "" {
		return voidStatus(doubt), hasOtherMount || clone.isOverdue(p.Now)
	}
	return v1alpha1.NodeTrialStatus{Phase: v1alpha1.TrialFinished, Succeeded: true, Transports: m.Connections}, true
}

// checkMount finds a clone's mount in the report of the node's agent. doubt explains why it does not show that the options are effective.
// hasOtherMount is true if there is another mount of the server: it shares the clone's connections and keeps them. Then the clone is deleted at
// once, without a result.
func (p *planner) checkMount(clone Clone, o origin, declared []string) (found v1alpha1.MountStatus, doubt string, hasOtherMount bool) {
	name, isReported := clone.Pod.Spec.NodeName, false
	doubt = "reports no mount of it"
	for _, m := range mountsOf(p.nodeNamed(name)) {
		switch {
		case m.Volume == clone.Volume.Name && volumeplan.ShowsOptions(&m, declared):
			found, isReported = m, true
		case m.Volume == clone.Volume.Name:
			doubt = fmt.Sprintf("reports its mount with %s, over %s", optionsText(m.Options), text.Count(int(m.Connections), "connection"))
		case strings.HasPrefix(m.Protocol, string(o.Protocol)) && p.isServerOf(o.Server, m.Server):
			return found, describeOtherMount(m, name, o.Volume.Name), true
		}
	}
	if isReported {
		return found, "", false
	}
	return found, fmt.Sprintf("a clone of %s was mounted, but the agent on %s %s", o.Volume.Name, name, doubt), false
}

func describeOtherMount(m v1alpha1.MountStatus, node, volume string) string {
	if m.Volume == "" {
		return fmt.Sprintf(
			"a mount of %s without a PersistentVolume was on %s next to a clone of %s, and may keep its connections until it is mounted again",
			m.Server, node, volume)
	}
	return fmt.Sprintf("%s was mounted on %s next to a clone of %s, and may keep its connections until the pods of %s restart",
		m.Volume, node, volume, m.Volume)
}

func mountsOf(n Node) []v1alpha1.MountStatus {
	return ptr.Deref(n.ClientNode, v1alpha1.StorageClientNode{}).Status.Mounts
}

func voidStatus(message string) v1alpha1.NodeTrialStatus {
	return v1alpha1.NodeTrialStatus{Phase: v1alpha1.TrialVoid, Message: message}
}

// concludeClone records the result of a clone. After a failure that may concern the options, a clone with the original options comes next.
func (p *planner) concludeClone(clone Clone, c volumeplan.ProbeCandidate, w Waiting, status v1alpha1.NodeTrialStatus) {
	hasFailed := status.Phase == v1alpha1.TrialFinished && !status.Succeeded
	if w.Failed == "" && hasFailed && status.Cause != v1alpha1.MountFailureElsewhere {
		p.memory.Waiting[c.ProbeKey] = Waiting{Since: p.Now, ByClone: true, Failed: status.Message, Cause: status.Cause, First: w.First}
		return
	}
	if w.Failed != "" {
		originalMount := &v1alpha1.TrialMount{Succeeded: status.Succeeded, Message: status.Message}
		if hasFailed {
			originalMount.Cause = v1alpha1.MountFailureCause(mountfailures.CauseOf(status.Message, false))
			// A failure of the options has the same cause, although the message contains other options and another Pod.
			originalMount.SameFailure = originalMount.Cause == v1alpha1.MountFailureOptions || status.Message == w.Failed
		}
		if status = (v1alpha1.NodeTrialStatus{Phase: v1alpha1.TrialFinished, Message: w.Failed, Cause: w.Cause}); hasFailed || originalMount.Succeeded {
			status.Own = originalMount
		}
	}
	node := ""
	if clone.Pod != nil {
		node = clone.Pod.Spec.NodeName
	}
	p.conclude(c, EvaluateProbe(node, "a clone of "+c.Volume.Name+" with "+optionsText(c.Target.Clone.Options), c.Target.ChangesRequests, status))
}

// mayHaveClone reports whether a node may have the Pod of a clone, and sets the Pod's tolerations. The node has no mount of the server, and no taints,
// or a pod of the claim tolerates them by key: other nodes must not get the volume's Secret.
func (p *planner) mayHaveClone(n *Node, o origin) bool {
	if p.mayHaveMounts(*n, o) {
		return false
	}
	pods := []corev1.Pod{{}}
	if ref := o.Volume.Spec.ClaimRef; ref != nil {
		pods = append(pods, p.ClaimPods[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]...)
	}
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		n.tolerations = slices.DeleteFunc(slices.Clone(pod.Spec.Tolerations), func(t corev1.Toleration) bool { return t.Key == "" })
		return !slices.ContainsFunc(n.Node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(n.tolerations, func(t corev1.Toleration) bool {
				return t.Key == taint.Key && (t.Effect == "" || t.Effect == taint.Effect) && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
			})
		})
	})
}

// mayHaveMounts reports whether a node may have a mount of a clone's server by the same protocol. It may be the mount of the last clone, or a
// mount under another name or address of the server. If the report of servers is full, the server may be missing in it.
func (p *planner) mayHaveMounts(n Node, o origin) bool {
	servers := n.ClientNode.Status.Servers
	if p.Now.Before(p.memory.LastUsed[n.Node.Name].Add(settleTime)) || len(servers) >= maxServers {
		return true
	}
	return slices.ContainsFunc(servers, func(s v1alpha1.ServerStatus) bool {
		return string(s.Protocol) == string(o.Protocol) && (p.isServerOf(o.Server, s.Server) || p.isServerOf(o.Server, hostOf(s.Address)))
	})
}

func (p *planner) isServerOf(server, name string) bool {
	return slices.ContainsFunc(p.namesOf(server), func(other string) bool { return p.isOneServer(other, name) })
}

// namesOf returns the names of a server: the name in volumes, and the names under which nodes have mounted them. An NFSv4.1 client detects
// that two names belong to one server, and keeps the first connections and name. The local end of a tunnel is no name.
func (p *planner) namesOf(server string) []string {
	if known, found := p.names[server]; found {
		return known
	}
	found := []string{server}
	for _, n := range p.Nodes {
		for _, m := range mountsOf(n) {
			if strings.EqualFold(p.Servers[m.Volume], server) && m.Server != "" && !counters.IsTunnel(m.Server) && !slices.Contains(found, m.Server) {
				found = append(found, m.Server)
			}
		}
	}
	p.names[server] = found
	return found
}

// isOneServer reports whether two names belong to one server, by name or by the addresses that nodes report.
func (p *planner) isOneServer(a, b string) bool {
	if strings.EqualFold(a, b) {
		return a != ""
	}
	addresses := p.addressesOf(a)
	return slices.ContainsFunc(p.addressesOf(b), func(address string) bool { return slices.Contains(addresses, address) })
}

func (p *planner) addressesOf(server string) []string {
	if known, found := p.addresses[server]; found {
		return known
	}
	found := []string{strings.ToLower(strings.Trim(server, "[]"))}
	for _, n := range p.Nodes {
		for _, s := range ptr.Deref(n.ClientNode, v1alpha1.StorageClientNode{}).Status.Servers {
			if host := hostOf(s.Address); host != "" && strings.EqualFold(s.Server, server) && !slices.Contains(found, host) {
				found = append(found, host)
			}
		}
	}
	p.addresses[server] = found
	return found
}

func hostOf(address string) string {
	if i := strings.LastIndexByte(address, ':'); i >= 0 && (strings.Count(address, ":") == 1 || strings.Contains(address, "]")) {
		address = address[:i]
	}
	return strings.ToLower(strings.Trim(address, "[]"))
}
