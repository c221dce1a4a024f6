package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/clocktime"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/windows"
)

// readSnapshot reads the claims live, and everything else from the cache.
func (p *pass) readSnapshot(ctx context.Context) (plan.Snapshot, error) {
	defer func(start time.Time) { p.readDuration = p.Clock.Now().Sub(start) }(p.Clock.Now())
	_, managerErr := p.readManagers(ctx)
	if err := errors.Join(p.readCommon(ctx, p.Client), managerErr); err != nil {
		return plan.Snapshot{}, err
	}
	all, err := read.FleetSnapshot(ctx, p.Client, p.profiles)
	if err != nil {
		return plan.Snapshot{}, err
	}
	p.clientNodes, p.ready = all.ClientNodes, all.Ready
	p.nodes = lists.Map(all.Nodes, func(node *corev1.Node) (string, *corev1.Node) { return node.Name, node })
	p.changed = sets.KeySet(p.nodes)
	p.forgetSightings()
	return p.news(), nil
}

// refreshNodes reads the nodes in live, or all nodes if it is nil.
func (p *pass) refreshNodes(ctx context.Context) error {
	profiles, etcd := p.profiles, p.etcdNodes
	// The claims come first: a claim released after this read either shows on the node or still counts.
	isManagerRead, managerErr := p.readManagers(ctx)
	if err := errors.Join(p.readCommon(ctx, p.APIReader), p.readEtcdMembers(ctx), managerErr); err != nil {
		return err
	}
	outdated := p.live
	if outdated == nil {
		var err error
		if outdated, err = p.findOutdated(ctx); err != nil {
			return err
		}
	}
	if err := parallel.TryEach(p.workers(), sets.List(outdated), func(name string) error { return p.readNode(ctx, name) }); err != nil {
		return err
	}
	if p.profiles != profiles || !p.etcdNodes.Equal(etcd) || isManagerRead {
		p.changed = p.changed.Union(sets.KeySet(p.nodes))
	}
	return p.readPods(ctx)
}

// findOutdated finds the nodes for which the cache is stale. It requests only the versions of all objects from the API server: objects of the same
// version are equal.
func (p *pass) findOutdated(ctx context.Context) (sets.Set[string], error) {
	kinds := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("NodeList"), v1alpha1.GroupVersion.WithKind("StorageClientNodeList")}
	versions := make([]map[string]string, len(kinds))
	err := parallel.TryEach(p.workers(), []int{0, 1}, func(i int) (err error) {
		versions[i], err = objects.ListVersions(ctx, p.APIReader, kinds[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	return objects.FindOutdated(versions[0], p.nodes).Union(objects.FindOutdated(versions[1], p.clientNodes)), nil
}

// readPods finds the nodes with the untuned taint that need a reboot and already serve pods. Until it has read them, a node that rejects pods by
// that taint counts as empty.
func (p *pass) readPods(ctx context.Context) error {
	names := p.live
	if names == nil {
		names = sets.KeySet(p.nodes)
	}
	p.occupied = sets.New[string]()
	return parallel.TryEach(p.workers(), sets.List(names), func(name string) error {
		node, clientNode := current(p, p.nodes, name), current(p, p.clientNodes, name)
		if node == nil || clientNode == nil || !clientNode.Status.RebootRequired || !p.isUntuned(node) {
			return nil
		}
		if vacant, err := p.Drains.IsVacant(ctx, name); err != nil || vacant {
			return err
		}
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.occupied.Insert(name)
		p.changed.Insert(name)
		return nil
	})
}

func (p *pass) isUntuned(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == p.UntunedTaint })
}

// readCommon reads the claims, which are never read from a cache, the failures, the profiles, and the global pause.
func (p *pass) readCommon(ctx context.Context, reader client.Reader) (err error) {
	if p.claims, err = p.readConfigMap(ctx, p.APIReader, v1alpha1.BudgetConfigMap); err != nil {
		return err
	}
	for node, value := range p.claims.Data {
		if _, err := v1alpha1.DecodeDisruption(value); err != nil {
			log.FromContext(ctx).Info("Cannot read a claim, which still uses up budget", "Node", node, "reason", err.Error())
		}
	}
	if p.failures, err = p.readConfigMap(ctx, reader, v1alpha1.FailuresConfigMap); err != nil {
		return err
	}
	if p.paused, _, err = read.IsEverythingPaused(ctx, reader); err != nil {
		return err
	}
	p.profiles, err = p.readProfiles(ctx, reader)
	return err
}

func (p *pass) readConfigMap(ctx context.Context, reader client.Reader, name string) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: name}
	_, err := read.Find(ctx, reader, key, object)
	object.Namespace, object.Name = key.Namespace, key.Name
	return object, err
}

func (p *pass) readProfiles(ctx context.Context, reader client.Reader) (*fleet.ProfileSet, error) {
	profiles, err := read.Profiles(ctx, reader)
	if err != nil {
		return nil, err
	}
	return p.profileSets.Of(profiles, p.Allow), nil
}

// readRules shares one read among concurrent callers. The read starts after all of them have made their request.
func (p *pass) readRules(ctx context.Context, nodes []string) (plan.Rules, error) {
	return p.rulings.Do(nodes, func(requests [][]string) (plan.Rules, error) {
		paused, _, err := read.IsEverythingPaused(ctx, p.APIReader)
		if err != nil {
			return plan.Rules{}, err
		}
		profiles, err := p.readProfiles(ctx, p.APIReader)
		if err != nil {
			return plan.Rules{}, err
		}
		out := plan.Rules{Now: p.Clock.Now(), Paused: paused, Profiles: p.planProfiles(profiles), DesiredBootHashes: map[string]string{}}
		for _, name := range slices.Concat(requests...) {
			if node := current(p, p.nodes, name); node != nil {
				out.DesiredBootHashes[name] = profiles.Desired(node, p.clientNodeOf(node)).BootHash
			}
		}
		return out, nil
	})
}

func (p *pass) readNode(ctx context.Context, name string) error {
	node, clientNode := &corev1.Node{}, &v1alpha1.StorageClientNode{}
	nodeErr, clientNodeErr := p.APIReader.Get(ctx, client.ObjectKey{Name: name}, node), p.APIReader.Get(ctx, client.ObjectKey{Name: name}, clientNode)
	if err := errors.Join(client.IgnoreNotFound(nodeErr), client.IgnoreNotFound(clientNodeErr)); err != nil {
		return fmt.Errorf("read Node %s and its StorageClientNode: %w", name, err)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.changed.Insert(name)
	if p.nodes[name] = node; nodeErr != nil {
		delete(p.nodes, name)
	}
	if p.clientNodes[name] = clientNode; clientNodeErr != nil {
		delete(p.clientNodes, name)
	}
	return nil
}

// currentNote returns the note of a node. It is empty if the StorageClientNode belongs to a former Node of the same name.
func (p *pass) currentNote(name string) v1alpha1.RolloutStatus {
	clientNode := current(p, p.clientNodes, name)
	if node := current(p, p.nodes, name); node != nil {
		clientNode = p.clientNodeOf(node)
	}
	if clientNode != nil && clientNode.Status.Rollout != nil {
		return *clientNode.Status.Rollout
	}
	return v1alpha1.RolloutStatus{}
}

// recordApplying records and returns the time since which the agent has been applying settings that it has not reported or confirmed yet; zero if
// there are none.
func (p *pass) recordApplying(clientNode *v1alpha1.StorageClientNode, node string) time.Time {
	isConfirming := func() bool {
		report := standing.Read(&clientNode.Spec, &clientNode.Status, "")
		return !clientNode.Spec.Release && !report.IsSettled() && !report.HasFailed()
	}
	return p.recordSince(p.applying, node, clientNode != nil && (clientNode.Status.Hash != clientNode.Spec.Hash || isConfirming()))
}

// recordSince records and returns the time since which a state of a node lasts; zero if the node is not in that state.
func (p *pass) recordSince(times map[string]time.Time, node string, lasts bool) time.Time {
	if !lasts {
		delete(times, node)
		return time.Time{}
	}
	if start, known := times[node]; !known || clocktime.IsAhead(start, p.Clock.Now()) {
		times[node] = p.Clock.Now()
	}
	return times[node]
}

// news converts everything that was read or written since the last call into the input of the planner.
func (p *pass) news() plan.Snapshot {
	out := p.currentRules()
	for name := range p.changed {
		if node := p.nodes[name]; node != nil {
			out.Nodes = append(out.Nodes, p.planNode(node))
		} else {
			out.Gone = append(out.Gone, name)
		}
	}
	clear(p.changed)
	return out
}

func (p *pass) currentRules() plan.Snapshot {
	out := plan.Snapshot{
		Now:    p.Clock.Now(),
		Budget: v1alpha1.ResolveShare(p.MaxUnavailable, len(p.nodes)),
		Paused: p.paused,
		Claims: make(map[string]v1alpha1.Disruption, len(p.claims.Data)),

		UnmanagedCountFor: p.UnmanagedCountFor,
	}
	out.Failures, out.UnreadFailures = p.recordedFailures()
	for _, object := range []*corev1.ConfigMap{p.claims, p.failures} {
		if ptr.Deref(object.Immutable, false) {
			out.Immutable = append(out.Immutable, object.Namespace+"/"+object.Name)
		}
	}
	for name, value := range p.claims.Data {
		out.Claims[name] = readDisruption(value)
	}
	out.Profiles = p.planProfiles(p.profiles)
	return out
}

// planProfiles converts the profiles, unless they are the last ones. No two callers run at a time: workers share the reads of the rules.
func (p *pass) planProfiles(set *fleet.ProfileSet) []plan.Profile {
	if p.plannedOf != set {
		p.plannedOf, p.planned = set, lists.Each(set.All(), planProfile)
	}
	return p.planned
}

func planProfile(profile *fleet.Profile) plan.Profile {
	keys := lists.Each(nodesettings.Settings(profile.StorageClientProfile), func(setting v1alpha1.NodeSetting) string { return setting.Key })
	out := plan.Profile{
		Name:     profile.Name,
		Priority: profile.Spec.Priority,
		Rollout:  profile.Spec.WithDefaults().Rollout,
		Deleting: profile.Phase == match.Leaving,
		PlanHash: nodesettings.PlanHash(profile.StorageClientProfile),
		Retry:    profile.Annotations[v1alpha1.RetryAnnotation],
		Approved: fleet.IsPlanApproved(profile.StorageClientProfile),
		BootKeys: sets.New(lists.Filter(keys, nodesettings.TakesEffectAtBoot)...),

		SettingsHash: nodesettings.BootSettingsHash(profile.StorageClientProfile),
	}
	switch {
	case profile.Spec.Paused:
		out.Paused = v1alpha1.ReasonPausedByField
	case profile.Paused:
		out.Paused = v1alpha1.ReasonPausedByAnnotation
	}
	switch {
	case profile.Phase != match.Held:
	case profile.InvalidReason == "" && profile.Spec.Mode == v1alpha1.ModePlan:
		out.Inert = v1alpha1.ReasonPlanMode
	default:
		out.Inert = cmp.Or(profile.InvalidReason, v1alpha1.ReasonPending)
	}
	var err error
	if out.Windows, err = windows.ParseSet(profile.Spec.Rollout.Windows); err != nil {
		// A profile that became invalid and was then deleted is no longer checked, but its windows are still invalid.
		out.Inert = v1alpha1.ReasonInvalid
	}
	return out
}

func (p *pass) planNode(node *corev1.Node) plan.Node {
	mark := leavingOf(node, p.UntunedTaint, p.LeavingMarks)
	out := plan.Node{
		Name:             node.Name,
		UID:              string(node.UID),
		Created:          node.CreationTimestamp.Time,
		Labels:           node.Labels,
		BootID:           node.Status.NodeInfo.BootID,
		Ready:            agentpod.IsNodeReady(node),
		ReadySince:       p.readySince(node),
		OutSince:         p.sightReady(node).out,
		UnavailableSince: p.unavailableSince(node, mark),
		Unschedulable:    node.Spec.Unschedulable,
		Deleting:         node.DeletionTimestamp != nil,
		Leaving:          mark.key,
		LeavesLater:      mark.inService,
		Maintenance:      maintenanceOf(node),
		Maintainer:       maintainerOf(node),
		ControlPlane:     match.IsControlPlane(node) || p.etcdNodes.Has(node.Name),
		Manager:          node.Name == p.ManagerNode,
		TakesManager:     p.takesManager(node),
		TakesPods:        accepts(node, &corev1.Pod{}),
		Paused:           match.IsPaused(node),
		Ignored:          match.IsIgnored(node),
		NeverDisrupt:     v1alpha1.IsStopped(node, v1alpha1.NeverDisruptAnnotation),
		AgentReady:       p.ready[node.Name],
		AgentSilent:      fleet.IsAgentSilent(node),
		SilentSince:      fleet.SilentSince(node),
		Untuned:          p.isUntuned(node),
		Drain:            p.drains[node.Name],
		Inspected:        p.inspected[node.Name],
		Evicted:          p.Drains.Evicted(node.Name),
	}
	attached := lists.Each(node.Status.VolumesAttached, func(volume corev1.AttachedVolume) corev1.UniqueVolumeName { return volume.Name })
	volumes := lists.Distinct(node.Status.VolumesInUse, attached)
	out.VolumesInUse = lists.Each(volumes, func(name corev1.UniqueVolumeName) string { return string(name) })
	_, out.Guarded = node.Annotations[v1alpha1.DisruptionGuardsAnnotation]
	out.Vacant = out.Untuned && !p.occupied.Has(node.Name)
	if mark, marked := node.Annotations[v1alpha1.DisruptionAnnotation]; marked {
		out.Mark = new(readDisruption(mark))
	}
	clientNode := p.clientNodeOf(node)
	concerned := p.profiles.Carried(clientNode)
	if !out.Ignored {
		concerned = p.profiles.Concerning(node, clientNode)
	}
	out.Profiles = lists.Each(concerned, func(profile *fleet.Profile) string { return profile.Name })
	out.ApplyingSince = p.recordApplying(clientNode, node.Name)
	if clientNode != nil {
		wanted := p.profiles.Desired(node, clientNode)
		out.BehindSince = p.recordSince(p.behind, node.Name, !clientNode.Spec.Release && wanted.BootHash != clientNode.Spec.BootHash)
		out.ClientNode = &plan.ClientNode{
			UID:             string(clientNode.UID),
			Generation:      clientNode.Generation,
			DesiredBootHash: wanted.BootHash,
			Withheld:        fleet.WithheldSettings(clientNode, wanted.Result),
			Spec:            clientNode.Spec,
			Status:          clientNode.Status,
		}
	}
	return out
}

// clientNodeOf returns the StorageClientNode of a node, nil if it belongs to a former Node of the same name.
func (p *pass) clientNodeOf(node *corev1.Node) *v1alpha1.StorageClientNode {
	clientNode := current(p, p.clientNodes, node.Name)
	if clientNode == nil || !fleet.Owns(node, clientNode) {
		return nil
	}
	return clientNode
}

// managerLabels are the labels of the manager's Pods (config/manager).
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "storage-client-operator", "app.kubernetes.io/component": "manager"}

// readManagers reads the manager's Pods, unless it did so recently. It reports whether they were read.
func (p *pass) readManagers(ctx context.Context) (isRead bool, err error) {
	if p.ManagerNode == "" {
		return false, nil
	}
	pods, isRead, err := p.listPods(ctx, &p.managersPace, v1alpha1.ManagerNamespace, managerLabels)
	if isRead {
		p.managers = pods
	}
	return isRead, err
}

// listPods lists Pods, unless it did so recently. It reads from the cache of the API server, because a new Pod affects no decision yet.
func (p *pass) listPods(ctx context.Context, pace *store.Pace, namespace string, labels client.MatchingLabels) (pods []corev1.Pod, isRead bool, err error) {
	if pace.Remaining(podsAge, p.Clock.Now()) > 0 {
		return nil, false, nil
	}
	var list corev1.PodList
	fromMemory := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := p.APIReader.List(ctx, &list, client.InNamespace(namespace), labels, fromMemory); err != nil {
		return nil, false, fmt.Errorf("list Pods in %s: %w", namespace, err)
	}
	pace.Begin(podsAge, p.Clock.Now())
	return list.Items, true, nil
}

// takesManager reports whether a node runs a Ready Pod of the manager, or the scheduler may place the Pod of the manager's node on it. It is false
// for all nodes, including the manager's, if the Pod is unknown.
func (p *pass) takesManager(node *corev1.Node) bool {
	index := slices.IndexFunc(p.managers, func(pod corev1.Pod) bool { return pod.Spec.NodeName == p.ManagerNode })
	return index >= 0 && (accepts(node, &p.managers[index]) || node.Name == p.ManagerNode ||
		slices.ContainsFunc(p.managers, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node.Name && agentpod.IsReady(&pod) }))
}

// accepts reports whether the labels and the taints of a node let the scheduler place a pod on it while the node is in service.
func accepts(node *corev1.Node, pod *corev1.Pod) bool {
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return false
	}
	inService := func(taint *corev1.Taint) bool {
		isOutage := slices.Contains([]string{corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}, taint.Key)
		return !isOutage && taint.Effect != corev1.TaintEffectPreferNoSchedule
	}
	_, isKeptOff := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, inService, true)
	return !isKeptOff
}

// etcdPods are the labels of kubeadm's and RKE2's static pods of etcd (cmd/kubeadm/app/util/staticpod, ComponentPod).
var etcdPods = client.MatchingLabels{"component": "etcd", "tier": "control-plane"}

// podsAge is the time for which the lists of the manager's Pods and of etcd's are cached: they rarely change, and etcd requires a list of kube-system.
const podsAge = time.Minute

// readEtcdMembers finds the nodes whose loss would cost etcd a vote although they have no label for it.
func (p *pass) readEtcdMembers(ctx context.Context) error {
	pods, isRead, err := p.listPods(ctx, &p.etcdPace, metav1.NamespaceSystem, etcdPods)
	if isRead {
		p.etcdNodes = sets.New(lists.Pick(lists.Pointers(pods), func(pod *corev1.Pod) (string, bool) {
			return pod.Spec.NodeName, metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey)
		})...)
	}
	return err
}
