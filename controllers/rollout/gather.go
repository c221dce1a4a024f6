package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/windows"
)

// scope is one pass over the API. It contains the objects of the decision in their current version, for the writes that follow.
type scope struct {
	*Reconciler
	// readDuration is the time that it took to read the cluster; stepping is true once nodes are read for steps.
	readDuration     time.Duration
	stepping, paused bool
	profiles         *fleet.ProfileSet
	ready            map[string]bool
	// claiming is held from the read of the claims to the end of their write: all nodes share the one object.
	claiming sync.Mutex
	claims   *corev1.ConfigMap
	// changes combines changes of claims; rulings combines reads of the rules for some nodes. Workers share them.
	changes  parallel.Joint[claimChange, struct{}]
	rulings  parallel.Joint[[]string, plan.Rules]
	failures *corev1.ConfigMap
	// mutex guards the maps that follow, which workers read and write. No two workers handle the same node.
	mutex       sync.Mutex
	nodes       map[string]*corev1.Node
	clientNodes map[string]*v1alpha1.StorageClientNode
	// changed are the nodes that may have changed since the last input to the planner; drains is the progress of their drains.
	changed sets.Set[string]
	drains  map[string]*plan.DrainProgress
	// occupied are the nodes with the untuned taint that have pods which a drain would have to remove.
	occupied sets.Set[string]
}

func newScope(r *Reconciler) *scope {
	if r.inspected == nil {
		r.inspected, r.applying, r.progress = map[string]time.Time{}, map[string]time.Time{}, map[string]*profileProgress{}
		r.sightings = map[sightingKey]*sighting{}
	}
	return &scope{Reconciler: r, changed: sets.New[string](), drains: map[string]*plan.DrainProgress{}}
}

func (s *scope) readSnapshot(ctx context.Context) (plan.Snapshot, error) {
	defer func(start time.Time) { s.readDuration = s.Clock.Now().Sub(start) }(s.Clock.Now())
	_, managerErr := s.readManagers(ctx)
	if err := errors.Join(s.readCommon(ctx, s.Client), managerErr); err != nil {
		return plan.Snapshot{}, err
	}
	all, err := read.FleetSnapshot(ctx, s.Client, s.profiles)
	if err != nil {
		return plan.Snapshot{}, err
	}
	s.clientNodes, s.ready = all.ClientNodes, all.Ready
	s.nodes = lists.Map(all.Nodes, func(node *corev1.Node) (string, *corev1.Node) { return node.Name, node })
	s.forgetSightings()
	return s.currentSnapshot(), nil
}

func (s *scope) refreshNodes(ctx context.Context, names sets.Set[string]) error {
	s.stepping = true
	profiles, etcd := s.profiles, s.etcdNodes
	// The claims come first: a claim released after this read either shows on the node or still counts.
	isManagerRead, managerErr := s.readManagers(ctx)
	if err := errors.Join(s.readCommon(ctx, s.APIReader), s.readEtcdMembers(ctx), managerErr); err != nil {
		return err
	}
	outdated := names
	if names == nil {
		var err error
		if outdated, err = s.findOutdated(ctx); err != nil {
			return err
		}
	}
	if err := parallel.TryEach(s.workers(), sets.List(outdated), func(name string) error { return s.readNode(ctx, name) }); err != nil {
		return err
	}
	if s.profiles != profiles || !s.etcdNodes.Equal(etcd) || isManagerRead {
		s.changed = s.changed.Union(sets.KeySet(s.nodes))
	}
	if names == nil {
		names = sets.KeySet(s.nodes)
	}
	return s.readPods(ctx, names)
}

// findOutdated finds the nodes for which the cache is stale. It requests only the versions of all objects from the API server: objects of the same
// version are equal.
func (s *scope) findOutdated(ctx context.Context) (sets.Set[string], error) {
	kinds := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("NodeList"), v1alpha1.GroupVersion.WithKind("StorageClientNodeList")}
	versions := make([]map[string]string, len(kinds))
	err := parallel.TryEach(s.workers(), []int{0, 1}, func(i int) (err error) {
		versions[i], err = objects.ListVersions(ctx, s.APIReader, kinds[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	return objects.FindOutdated(versions[0], s.nodes).Union(objects.FindOutdated(versions[1], s.clientNodes)), nil
}

// readPods finds the nodes with the untuned taint that need a reboot and already serve pods. Until it has read them, a node that rejects pods by
// that taint counts as empty.
func (s *scope) readPods(ctx context.Context, names sets.Set[string]) error {
	s.occupied = sets.New[string]()
	return parallel.TryEach(s.workers(), sets.List(names), func(name string) error {
		node, clientNode := current(s, s.nodes, name), current(s, s.clientNodes, name)
		if node == nil || clientNode == nil || !clientNode.Status.RebootRequired || !s.isUntuned(node) {
			return nil
		}
		if vacant, err := s.Drains.IsVacant(ctx, name); err != nil || vacant {
			return err
		}
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.occupied.Insert(name)
		s.changed.Insert(name)
		return nil
	})
}

func (s *scope) isUntuned(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == s.UntunedTaint })
}

// readCommon reads the claims, which are never read from a cache, the failures, the profiles, and the global pause.
func (s *scope) readCommon(ctx context.Context, reader client.Reader) (err error) {
	if s.claims, err = s.readConfigMap(ctx, s.APIReader, v1alpha1.BudgetConfigMap); err != nil {
		return err
	}
	for node, value := range s.claims.Data {
		if _, err := v1alpha1.DecodeDisruption(value); err != nil {
			log.FromContext(ctx).Info("Cannot read a claim, which still uses up budget", "Node", node, "reason", err.Error())
		}
	}
	if s.failures, err = s.readConfigMap(ctx, reader, v1alpha1.FailuresConfigMap); err != nil {
		return err
	}
	if s.paused, _, err = read.IsEverythingPaused(ctx, reader); err != nil {
		return err
	}
	s.profiles, err = s.readProfiles(ctx, reader)
	return err
}

func (s *scope) readConfigMap(ctx context.Context, reader client.Reader, name string) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: name}
	_, err := read.Find(ctx, reader, key, object)
	object.Namespace, object.Name = key.Namespace, key.Name
	return object, err
}

// writeConfigMap writes a ConfigMap that was read before the decision.
func (s *scope) writeConfigMap(ctx context.Context, object *corev1.ConfigMap) error {
	write := func() error { return s.Update(ctx, object, fieldOwner) }
	if object.ResourceVersion == "" {
		write = func() error { return s.Create(ctx, object, fieldOwner) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func (s *scope) readProfiles(ctx context.Context, reader client.Reader) (*fleet.ProfileSet, error) {
	profiles, err := read.Profiles(ctx, reader)
	if err != nil {
		return nil, err
	}
	return s.profileSets.Of(profiles, s.Allow), nil
}

// readRules shares one read among concurrent callers. The read starts after all of them have made their request.
func (s *scope) readRules(ctx context.Context, nodes []string) (plan.Rules, error) {
	return s.rulings.Do(nodes, func(requests [][]string) (plan.Rules, error) {
		paused, _, err := read.IsEverythingPaused(ctx, s.APIReader)
		if err != nil {
			return plan.Rules{}, err
		}
		profiles, err := s.readProfiles(ctx, s.APIReader)
		if err != nil {
			return plan.Rules{}, err
		}
		out := plan.Rules{Now: s.Clock.Now(), Paused: paused, Profiles: s.planProfiles(profiles), DesiredBootHashes: map[string]string{}}
		for _, name := range slices.Concat(requests...) {
			if node := current(s, s.nodes, name); node != nil {
				out.DesiredBootHashes[name] = profiles.Desired(node, s.clientNodeOf(node)).BootHash
			}
		}
		return out, nil
	})
}

func (s *scope) readNode(ctx context.Context, name string) error {
	node, clientNode := &corev1.Node{}, &v1alpha1.StorageClientNode{}
	nodeErr, clientNodeErr := s.APIReader.Get(ctx, client.ObjectKey{Name: name}, node), s.APIReader.Get(ctx, client.ObjectKey{Name: name}, clientNode)
	if err := errors.Join(client.IgnoreNotFound(nodeErr), client.IgnoreNotFound(clientNodeErr)); err != nil {
		return fmt.Errorf("read Node %s and its StorageClientNode: %w", name, err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.changed.Insert(name)
	if s.nodes[name] = node; nodeErr != nil {
		delete(s.nodes, name)
	}
	if s.clientNodes[name] = clientNode; clientNodeErr != nil {
		delete(s.clientNodes, name)
	}
	return nil
}

// current returns the object on which the decision was based, or its version after later writes; nil if there is none.
func current[T any](s *scope, objects map[string]*T, name string) *T {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return objects[name]
}

func keep[T client.Object](s *scope, objects map[string]T, object T) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	objects[object.GetName()] = object
	s.changed.Insert(object.GetName())
}

// currentNote returns the note of a node. It is empty if the StorageClientNode belongs to a former Node of the same name.
func (s *scope) currentNote(name string) v1alpha1.RolloutStatus {
	clientNode := current(s, s.clientNodes, name)
	if node := current(s, s.nodes, name); node != nil {
		clientNode = s.clientNodeOf(node)
	}
	if clientNode != nil && clientNode.Status.Rollout != nil {
		return *clientNode.Status.Rollout
	}
	return v1alpha1.RolloutStatus{}
}

func (s *scope) recordInspection(node string, progress plan.DrainProgress) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.inspected[node], s.drains[node] = s.Clock.Now(), &progress
	s.changed.Insert(node)
}

// recordApplying records and returns the time since which the agent has been applying settings that it has not reported or confirmed yet; zero if
// there are none.
func (s *scope) recordApplying(clientNode *v1alpha1.StorageClientNode, node string) time.Time {
	isConfirming := func() bool {
		report := standing.Read(&clientNode.Spec, &clientNode.Status, "")
		return !clientNode.Spec.Release && !report.IsSettled() && !report.HasFailed()
	}
	if clientNode == nil || clientNode.Status.Hash == clientNode.Spec.Hash && !isConfirming() {
		delete(s.applying, node)
		return time.Time{}
	}
	if _, known := s.applying[node]; !known {
		s.applying[node] = s.Clock.Now()
	}
	return s.applying[node]
}

// currentSnapshot converts the objects of this pass, including the results of its writes, into the input of the planner.
func (s *scope) currentSnapshot() plan.Snapshot {
	out := s.currentRules()
	out.Nodes = lists.Each(slices.Collect(maps.Values(s.nodes)), s.planNode)
	return out
}

func (s *scope) news() plan.Snapshot {
	out := s.currentRules()
	for name := range s.changed {
		if node := s.nodes[name]; node != nil {
			out.Nodes = append(out.Nodes, s.planNode(node))
		} else {
			out.Gone = append(out.Gone, name)
		}
	}
	clear(s.changed)
	return out
}

func (s *scope) shadow(session *plan.Session) {
	if s.Shadow != nil {
		s.Shadow(session, s.currentSnapshot())
	}
}

func (s *scope) currentRules() plan.Snapshot {
	out := plan.Snapshot{
		Now:    s.Clock.Now(),
		Budget: v1alpha1.ResolveShare(s.MaxUnavailable, len(s.nodes)),
		Paused: s.paused,
		Claims: make(map[string]v1alpha1.Disruption, len(s.claims.Data)),

		UnmanagedCountFor: s.UnmanagedCountFor,
	}
	out.Failures, out.UnreadFailures = s.recordedFailures()
	for _, object := range []*corev1.ConfigMap{s.claims, s.failures} {
		if ptr.Deref(object.Immutable, false) {
			out.Immutable = append(out.Immutable, object.Namespace+"/"+object.Name)
		}
	}
	for name, value := range s.claims.Data {
		out.Claims[name] = readDisruption(value)
	}
	out.Profiles = s.planProfiles(s.profiles)
	return out
}

// readDisruption decodes a claim or an annotation. If it cannot be read, the result is empty and still counts.
func readDisruption(value string) v1alpha1.Disruption {
	disruption, _ := v1alpha1.DecodeDisruption(value)
	return disruption
}

// plannedProfiles caches the last set of profiles in the form that the planner uses.
type plannedProfiles struct {
	mutex    sync.Mutex
	of       *fleet.ProfileSet
	profiles []plan.Profile
}

func (s *scope) planProfiles(set *fleet.ProfileSet) []plan.Profile {
	p := &s.planned
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.of != set {
		p.of, p.profiles = set, lists.Each(set.All(), planProfile)
	}
	return p.profiles
}

func planProfile(profile *fleet.Profile) plan.Profile {
	keys := lists.Each(nodesettings.Settings(profile.StorageClientProfile), func(setting v1alpha1.NodeSetting) string { return setting.Key })
	out := plan.Profile{
		Name:     profile.Name,
		Priority: profile.Spec.Priority,
		Rollout:  profile.Spec.WithDefaults().Rollout,
		Deleting: profile.Standing == match.Leaving,
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
	case profile.Standing != match.Held:
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

func (s *scope) planNode(node *corev1.Node) plan.Node {
	mark := leavingOf(node, s.UntunedTaint, s.LeavingMarks)
	out := plan.Node{
		Name:             node.Name,
		UID:              string(node.UID),
		Created:          node.CreationTimestamp.Time,
		Labels:           node.Labels,
		BootID:           node.Status.NodeInfo.BootID,
		Ready:            agentpod.IsNodeReady(node),
		ReadySince:       s.readySince(node),
		OutSince:         s.sightReady(node).out,
		UnavailableSince: s.unavailableSince(node, mark),
		Unschedulable:    node.Spec.Unschedulable,
		Deleting:         node.DeletionTimestamp != nil,
		Leaving:          mark.key,
		LeavesLater:      mark.inService,
		Maintenance:      maintenanceOf(node),
		Maintainer:       maintainerOf(node),
		ControlPlane:     match.IsControlPlane(node) || s.etcdNodes.Has(node.Name),
		Manager:          node.Name == s.ManagerNode,
		TakesManager:     s.takesManager(node),
		TakesPods:        accepts(node, &corev1.Pod{}),
		Paused:           pause.IsAnnotated(node),
		Ignored:          match.IsIgnored(node),
		NeverDisrupt:     v1alpha1.IsStopped(node, v1alpha1.NeverDisruptAnnotation),
		AgentReady:       s.ready[node.Name],
		AgentSilent:      fleet.IsAgentSilent(node),
		Untuned:          s.isUntuned(node),
		Drain:            s.drains[node.Name],
		Inspected:        s.inspected[node.Name],
		Evicted:          s.Drains.Evicted(node.Name),
	}
	attached := lists.Each(node.Status.VolumesAttached, func(volume corev1.AttachedVolume) corev1.UniqueVolumeName { return volume.Name })
	volumes := lists.Distinct(node.Status.VolumesInUse, attached)
	out.VolumesInUse = lists.Each(volumes, func(name corev1.UniqueVolumeName) string { return string(name) })
	_, out.Guarded = node.Annotations[v1alpha1.DisruptionGuardsAnnotation]
	out.Vacant = out.Untuned && !s.occupied.Has(node.Name)
	if mark, marked := node.Annotations[v1alpha1.DisruptionAnnotation]; marked {
		out.Mark = new(readDisruption(mark))
	}
	clientNode := s.clientNodeOf(node)
	concerned := s.profiles.Carried(clientNode)
	if !out.Ignored {
		concerned = s.profiles.Concerning(node, clientNode)
	}
	out.Profiles = lists.Each(concerned, func(profile *fleet.Profile) string { return profile.Name })
	out.ApplyingSince = s.recordApplying(clientNode, node.Name)
	if clientNode != nil {
		wanted := s.profiles.Desired(node, clientNode)
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
func (s *scope) clientNodeOf(node *corev1.Node) *v1alpha1.StorageClientNode {
	clientNode := current(s, s.clientNodes, node.Name)
	if clientNode == nil || !fleet.Owns(node, clientNode) {
		return nil
	}
	return clientNode
}
