package rollout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/windows"
)

// scope is one pass over the API: what was decided upon, as it is now, for the writes that follow.
type scope struct {
	*Reconciler
	// gathered is how long it took to read the cluster.
	gathered time.Duration
	// stepping is set once nodes are read for steps.
	stepping bool
	paused   bool
	profiles *fleet.ProfileSet
	ready    map[string]bool
	// claiming is held from the read of the claims to the end of their write: all nodes share the one object.
	claiming sync.Mutex
	claims   *corev1.ConfigMap
	// changes are of claims, rulings are reads of the rules for some nodes: workers share them.
	changes parallel.Joint[claimChange, struct{}]
	rulings parallel.Joint[[]string, plan.Rules]
	// failures are what is remembered of failed nodes.
	failures *corev1.ConfigMap
	// mutex guards the maps that follow, which workers read and write. No two workers deal with the same node.
	mutex       sync.Mutex
	nodes       map[string]*corev1.Node
	clientNodes map[string]*v1alpha1.StorageClientNode
	// changed are the nodes that may not be as the planner was last told, drains is how far their drains are.
	changed sets.Set[string]
	drains  map[string]*plan.DrainProgress
	// occupied are the nodes with the untuned taint that have been seen to carry pods which a drain would have to remove.
	occupied sets.Set[string]
}

func (s *scope) readSnapshot(ctx context.Context) (plan.Snapshot, error) {
	began := s.Clock.Now()
	defer func() { s.gathered = s.Clock.Now().Sub(began) }()
	if err := s.readCommon(ctx, s.Client); err != nil {
		return plan.Snapshot{}, err
	}
	all, err := read.FleetSnapshot(ctx, s.Client, s.profiles, s.AgentNamespace)
	if err != nil {
		return plan.Snapshot{}, err
	}
	s.clientNodes, s.ready = all.ClientNodes, all.Ready
	s.nodes = make(map[string]*corev1.Node, len(all.Nodes))
	for _, node := range all.Nodes {
		s.nodes[node.Name] = node
	}
	s.changed, s.drains = sets.New[string](), map[string]*plan.DrainProgress{}
	return s.currentSnapshot(), nil
}

func (s *scope) refreshNodes(ctx context.Context, names sets.Set[string]) error {
	s.stepping = true
	profiles, etcd := s.profiles, s.etcd.nodes
	// The claims come first: what is released after they were read is written on the nodes, or still counts.
	if err := s.readCommon(ctx, s.APIReader); err != nil {
		return err
	}
	if err := s.readEtcdMembers(ctx); err != nil {
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
	if s.profiles != profiles || !s.etcd.nodes.Equal(etcd) {
		s.changed = s.changed.Union(sets.KeySet(s.nodes))
	}
	if names == nil {
		names = sets.KeySet(s.nodes)
	}
	return s.readPods(ctx, names)
}

// findOutdated finds the nodes that are not as the cache has them. It asks the API server for the versions of all objects and for
// nothing else of them: one of the same version is the same.
func (s *scope) findOutdated(ctx context.Context) (sets.Set[string], error) {
	var nodes, clientNodes map[string]string
	err := parallel.TryEach(s.workers(), []func() error{
		func() (err error) {
			nodes, err = objects.ListVersions(ctx, s.APIReader, corev1.SchemeGroupVersion.WithKind("NodeList"))
			return err
		},
		func() (err error) {
			clientNodes, err = objects.ListVersions(ctx, s.APIReader, v1alpha1.GroupVersion.WithKind("StorageClientNodeList"))
			return err
		},
	}, func(read func() error) error { return read() })
	if err != nil {
		return nil, err
	}
	return objects.FindOutdated(nodes, s.nodes).Union(objects.FindOutdated(clientNodes, s.clientNodes)), nil
}

// readPods finds which nodes with the untuned taint that are to be rebooted serve anything. Until it has read them, a
// node that keeps pods away by that taint counts as empty.
func (s *scope) readPods(ctx context.Context, names sets.Set[string]) error {
	s.occupied = sets.New[string]()
	var unsure []string
	for _, name := range sets.List(names) {
		node, clientNode := s.nodes[name], s.clientNodes[name]
		if node != nil && clientNode != nil && clientNode.Status.RebootRequired && s.isUntuned(node) {
			unsure = append(unsure, name)
		}
	}
	return parallel.TryEach(s.workers(), unsure, func(name string) error {
		vacant, err := s.Drains.IsVacant(ctx, name)
		if err != nil || vacant {
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

// readCommon reads the claims, which are never taken from a cache, the profiles, and the pause of everything.
func (s *scope) readCommon(ctx context.Context, reader client.Reader) error {
	var err error
	if s.claims, err = s.readClaims(ctx); err != nil {
		return err
	}
	if s.failures, err = s.readFailures(ctx, reader); err != nil {
		return err
	}
	if s.paused, err = read.IsEverythingPaused(ctx, reader, s.ManagerNamespace); err != nil {
		return err
	}
	s.profiles, err = s.readProfiles(ctx, reader)
	return err
}

func (s *scope) readProfiles(ctx context.Context, reader client.Reader) (*fleet.ProfileSet, error) {
	var profiles v1alpha1.StorageClientProfileList
	if err := reader.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	return s.profileSets.Of(profiles.Items, s.Allow), nil
}

// readRules reads live what people have written down, and the clock, for some nodes. Workers that ask at the same time share one read, which
// begins after all of them have asked.
func (s *scope) readRules(ctx context.Context, nodes []string) (plan.Rules, error) {
	return s.rulings.Do(nodes, func(asked [][]string) (plan.Rules, error) {
		paused, err := read.IsEverythingPaused(ctx, s.APIReader, s.ManagerNamespace)
		if err != nil {
			return plan.Rules{}, err
		}
		profiles, err := s.readProfiles(ctx, s.APIReader)
		if err != nil {
			return plan.Rules{}, err
		}
		return s.rulesFor(slices.Concat(asked...), paused, profiles), nil
	})
}

func (s *scope) rulesFor(nodes []string, paused bool, profiles *fleet.ProfileSet) plan.Rules {
	out := plan.Rules{Now: s.Clock.Now(), Paused: paused, Profiles: s.planProfiles(profiles), WantedBootHashes: make(map[string]string, len(nodes))}
	for _, name := range nodes {
		if node := s.nodeNow(name); node != nil {
			out.WantedBootHashes[name] = profiles.Wanted(node, s.clientNodeOf(node)).BootHash
		}
	}
	return out
}

func (s *scope) readClaims(ctx context.Context) (*corev1.ConfigMap, error) {
	var claims corev1.ConfigMap
	key := client.ObjectKey{Namespace: s.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}
	if err := s.APIReader.Get(ctx, key, &claims); err != nil {
		if apierrors.IsNotFound(err) {
			claims.Namespace, claims.Name = key.Namespace, key.Name
			return &claims, nil
		}
		return nil, fmt.Errorf("get ConfigMap %s: %w", key, err)
	}
	for node, value := range claims.Data {
		if _, err := v1alpha1.DecodeDisruption(value); err != nil {
			log.FromContext(ctx).Info("Cannot read a claim; it uses up budget all the same", "Node", node, "reason", err.Error())
		}
	}
	return &claims, nil
}

// readNode reads a Node and its StorageClientNode from the API server.
func (s *scope) readNode(ctx context.Context, name string) error {
	node, clientNode := &corev1.Node{}, &v1alpha1.StorageClientNode{}
	nodeFound, err := s.getLive(ctx, name, node)
	if err != nil {
		return err
	}
	clientNodeFound, err := s.getLive(ctx, name, clientNode)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.changed.Insert(name)
	delete(s.nodes, name)
	if nodeFound {
		s.nodes[name] = node
	}
	delete(s.clientNodes, name)
	if clientNodeFound {
		s.clientNodes[name] = clientNode
	}
	return nil
}

// nodeNow is a Node as it was decided upon, or what the server made of it since; nil if there is none.
func (s *scope) nodeNow(name string) *corev1.Node {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.nodes[name]
}

// keepNode keeps what the server made of a write.
func (s *scope) keepNode(node *corev1.Node) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.nodes[node.Name] = node
	s.changed.Insert(node.Name)
}

// clientNodeNow is nodeNow for a StorageClientNode.
func (s *scope) clientNodeNow(name string) *v1alpha1.StorageClientNode {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.clientNodes[name]
}

func (s *scope) keepClientNode(clientNode *v1alpha1.StorageClientNode) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.clientNodes[clientNode.Name] = clientNode
	s.changed.Insert(clientNode.Name)
}

func (s *scope) currentNote(name string) v1alpha1.RolloutStatus {
	if clientNode := s.clientNodeNow(name); clientNode != nil && clientNode.Status.Rollout != nil {
		return *clientNode.Status.Rollout
	}
	return v1alpha1.RolloutStatus{}
}

// rememberInspection keeps how far a node's drain is, and when its pods were inspected.
func (s *scope) rememberInspection(node string, progress plan.DrainProgress) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.inspected == nil {
		s.inspected = map[string]time.Time{}
	}
	s.inspected[node], s.drains[node] = s.Clock.Now(), &progress
	s.changed.Insert(node)
}

// rememberApplying keeps since when a node's agent has been about settings that it has not reported yet, or not confirmed; zero where it is not.
func (s *scope) rememberApplying(clientNode *v1alpha1.StorageClientNode, node string) time.Time {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if clientNode == nil || clientNode.Status.Hash == clientNode.Spec.Hash && !isConfirming(clientNode) {
		delete(s.applying, node)
		return time.Time{}
	}
	if s.applying == nil {
		s.applying = map[string]time.Time{}
	}
	if _, known := s.applying[node]; !known {
		s.applying[node] = s.Clock.Now()
	}
	return s.applying[node]
}

// isConfirming reports whether the agent still applies or confirms settings that it has reported.
func isConfirming(clientNode *v1alpha1.StorageClientNode) bool {
	report := standing.Read(&clientNode.Spec, &clientNode.Status, "")
	return !clientNode.Spec.Release && !report.IsTaken() && !report.HasFailed()
}

func (s *scope) getLive(ctx context.Context, name string, object client.Object) (bool, error) {
	if err := s.APIReader.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get %T %s: %w", object, name, err)
	}
	return true, nil
}

// currentSnapshot turns what has been read in this pass, and what the API server made of its writes, into what the planner decides by.
func (s *scope) currentSnapshot() plan.Snapshot {
	out := s.currentRules()
	out.Nodes = make([]plan.Node, 0, len(s.nodes))
	for _, node := range s.nodes {
		out.Nodes = append(out.Nodes, s.planNode(node))
	}
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

// currentRules is everything except the nodes.
func (s *scope) currentRules() plan.Snapshot {
	out := plan.Snapshot{
		Now:    s.Clock.Now(),
		Budget: v1alpha1.ResolveShare(s.MaxUnavailable, len(s.nodes)),
		Paused: s.paused,
		Claims: make(map[string]v1alpha1.Disruption, len(s.claims.Data)),

		UnmanagedCountFor: s.UnmanagedCountFor,
	}
	out.Failures, out.UnreadFailures = s.rememberedFailures()
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

// readDisruption reads a claim or a mark. One that cannot be read counts like any other: it is empty.
func readDisruption(value string) v1alpha1.Disruption {
	disruption, _ := v1alpha1.DecodeDisruption(value)
	return disruption
}

// plannedProfiles are the profiles of a set as the planner is told of them.
type plannedProfiles struct {
	mutex    sync.Mutex
	of       *fleet.ProfileSet
	profiles []plan.Profile
	known    map[*fleet.Profile]plan.Profile
}

// planProfiles works out once for each version of a profile what the planner is told, and changes nothing of. Only the profile decides on it.
func (s *scope) planProfiles(set *fleet.ProfileSet) []plan.Profile {
	p := &s.planned
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.of == set {
		return p.profiles
	}
	before := p.known
	p.of, p.profiles, p.known = set, nil, make(map[*fleet.Profile]plan.Profile, len(set.All()))
	for _, profile := range set.All() {
		planned, known := before[profile]
		if !known {
			planned = s.planProfile(profile)
		}
		p.profiles, p.known[profile] = append(p.profiles, planned), planned
	}
	return p.profiles
}

func (s *scope) planProfile(profile *fleet.Profile) plan.Profile {
	out := plan.Profile{
		Name:     profile.Name,
		Priority: profile.Spec.Priority,
		Rollout:  profile.Spec.WithDefaults().Rollout,
		Deleting: profile.Standing == match.Leaving,
		PlanHash: nodesettings.PlanHash(profile.StorageClientProfile),
		Retry:    profile.Annotations[v1alpha1.RetryAnnotation],
		Approved: fleet.IsPlanApproved(profile.StorageClientProfile),
		BootKeys: sets.New[string](),
	}
	if profile.Paused {
		out.Paused = v1alpha1.ReasonPausedByAnnotation
		if profile.Spec.Paused {
			out.Paused = v1alpha1.ReasonPausedByField
		}
	}
	if profile.Standing == match.Held {
		out.Inert = v1alpha1.ReasonPending
		if profile.InvalidReason != "" {
			out.Inert = profile.InvalidReason
		} else if profile.Spec.Mode == v1alpha1.ModePlan {
			out.Inert = v1alpha1.ReasonPlanMode
		}
	}
	var err error
	if out.Windows, err = windows.ParseSet(profile.Spec.Rollout.Windows); err != nil {
		// A profile that was made invalid and then deleted is not checked any more; it has no window all the same.
		out.Inert = v1alpha1.ReasonInvalid
	}
	for _, setting := range nodesettings.Settings(profile.StorageClientProfile) {
		if nodesettings.TakesEffectAtBoot(setting.Key) {
			out.BootKeys.Insert(setting.Key)
		}
	}
	return out
}

func (s *scope) planNode(node *corev1.Node) plan.Node {
	leaving := leavingTaint(node, s.UntunedTaint)
	out := plan.Node{
		Name:             node.Name,
		UID:              string(node.UID),
		Created:          node.CreationTimestamp.Time,
		Labels:           node.Labels,
		BootID:           node.Status.NodeInfo.BootID,
		Ready:            agentpod.NodeReady(node),
		ReadySince:       agentpod.ReadySince(node),
		UnavailableSince: unavailableSince(node, leaving),
		Unschedulable:    node.Spec.Unschedulable,
		Deleting:         node.DeletionTimestamp != nil,
		Guarded:          isGuarded(node),
		Maintenance:      maintenanceOf(node),
		Maintainer:       maintainerOf(node),
		ControlPlane:     s.isControlPlane(node),
		Manager:          node.Name == s.ManagerNode,
		Paused:           pause.Annotated(node),
		Ignored:          match.Ignored(node),
		NeverDisrupt:     node.Annotations[v1alpha1.NeverDisruptAnnotation] == v1alpha1.True,
		AgentReady:       s.ready[node.Name],
		AgentSilent:      fleet.IsAgentSilent(node),
		Untuned:          s.isUntuned(node),
		Drain:            s.drains[node.Name],
		Inspected:        s.inspected[node.Name],
		Evicted:          s.Drains.Evicted(node.Name),
	}
	if leaving != nil {
		out.Leaving = leaving.Key
	}
	out.Vacant = out.Untuned && !s.occupied.Has(node.Name)
	if mark, marked := node.Annotations[v1alpha1.DisruptionAnnotation]; marked {
		out.Mark = new(readDisruption(mark))
	}
	clientNode := s.clientNodeOf(node)
	concerned := s.profiles.Carried
	if !out.Ignored {
		concerned = func(clientNode *v1alpha1.StorageClientNode) []*fleet.Profile {
			return s.profiles.Concerning(node, clientNode)
		}
	}
	for _, profile := range concerned(clientNode) {
		out.Profiles = append(out.Profiles, profile.Name)
	}
	out.ApplyingSince = s.rememberApplying(clientNode, node.Name)
	if clientNode != nil {
		wanted := s.profiles.Wanted(node, clientNode)
		out.ClientNode = &plan.ClientNode{
			UID:            string(clientNode.UID),
			Generation:     clientNode.Generation,
			WantedBootHash: wanted.BootHash,
			Withheld:       fleet.WithheldSettings(clientNode, wanted.Result),
			Spec:           clientNode.Spec,
			Status:         clientNode.Status,
		}
	}
	return out
}

// clientNodeOf is the node's StorageClientNode. One that is left from a former Node of the same name is not.
func (s *scope) clientNodeOf(node *corev1.Node) *v1alpha1.StorageClientNode {
	clientNode := s.clientNodeNow(node.Name)
	if clientNode == nil || !fleet.Owns(node, clientNode) {
		return nil
	}
	return clientNode
}

// unavailableSince is since when a node has been out of service, as far as the Node shows.
func unavailableSince(node *corev1.Node, leaving *corev1.Taint) *time.Time {
	if node.DeletionTimestamp != nil {
		return &node.DeletionTimestamp.Time
	}
	if since := agentpod.ReadySince(node); !agentpod.NodeReady(node) && !since.IsZero() {
		return &since
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if (taint.Key == corev1.TaintNodeUnschedulable || taint == leaving) && taint.TimeAdded != nil {
			return &taint.TimeAdded.Time
		}
	}
	return nil
}
