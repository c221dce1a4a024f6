//go:build attack

package attack

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	volumes "github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/test/check"
)

func otherAttacks() []attack {
	ownConfigMap := create(configMap(tenantNamespace, "mine"))
	read := list(&v1alpha1.StorageClientProfileList{})
	all := viewerAttacks(read)
	all = append(all, tenantAttacks(ownConfigMap)...)
	all = append(all, nodeAttacks()...)
	return append(all,
		attack{id: "scraper-profiles", by: scraper, tries: "read profiles",
			stop: byRBAC, want: `cannot list resource "storageclientprofiles"`, try: read, twin: raw("GET", "/metrics")},
		attack{id: "scraper-secrets", by: scraper, tries: "read Secrets of its namespace",
			stop: byRBAC, want: `cannot list resource "secrets"`, try: list(&corev1.SecretList{}, client.InNamespace(otherNamespace)), twin: raw("GET", "/metrics")},
		attack{id: "scraper-profiler", by: scraper, tries: "read another path of the metrics server",
			stop: byRBAC, want: `cannot get path "/debug/pprof/heap"`, try: raw("GET", "/debug/pprof/heap"), twin: raw("GET", "/metrics")},
		attack{id: "anonymous-reads", by: anonymous, tries: "read profiles",
			stop: byRBAC, want: `cannot list resource "storageclientprofiles"`, try: read, twin: raw("GET", "/healthz")},
		attack{id: "anonymous-reports", by: anonymous, tries: "report for a node",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes/status"`, try: reportOf("node-1"), twin: raw("GET", "/healthz")},
	)
}

func viewerAttacks(read func(*actor) error) []attack {
	return []attack{
		{id: "viewer-creates", by: viewer, tries: "create a profile",
			stop: byRBAC, want: `cannot create resource "storageclientprofiles"`, try: create(profileOf("mine")), twin: read},
		{id: "viewer-patches", by: viewer, tries: "pause a profile",
			stop: byRBAC, want: `cannot patch resource "storageclientprofiles"`, twin: read,
			try: merge(profile("fleet"), `{"metadata":{"annotations":{"`+v1alpha1.PausedAnnotation+`":"true"}}}`)},
		{id: "viewer-deletes", by: viewer, tries: "delete a profile",
			stop: byRBAC, want: `cannot delete resource "storageclientprofiles"`, try: remove(profile("fleet")), twin: read},
		{id: "viewer-reports", by: viewer, tries: "report for a node",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes/status"`, try: reportOf("node-1"), twin: read},
		{id: "viewer-spec", by: viewer, tries: "write a StorageClientNode",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`, try: merge(clientNode("node-1"), `{"spec":{"release":true}}`), twin: read},
	}
}

func tenantAttacks(ownConfigMap func(*actor) error) []attack {
	return []attack{
		{id: "tenant-profile", by: tenant, tries: "create a profile",
			stop: byRBAC, want: `cannot create resource "storageclientprofiles"`, try: create(profileOf("mine")), twin: ownConfigMap},
		{id: "tenant-volume", by: tenant, tries: "write the mount options of its volume",
			stop: byRBAC, want: `cannot patch resource "persistentvolumes"`, try: options, twin: ownConfigMap},
		{id: "tenant-node", by: tenant, tries: "cordon a Node", stop: byRBAC, want: `cannot patch resource "nodes"`, try: cordon, twin: ownConfigMap},
		{id: "tenant-agent-pod", by: tenant, tries: "run a Pod with the agent's account",
			stop: byRBAC, want: `cannot create resource "pods"`, twin: create(podOf(tenantNamespace, "mine", "", "")),
			try: create(podOf(v1alpha1.AgentNamespace, "mine", "node-1", v1alpha1.AgentServiceAccount))},
		{id: "tenant-budget", by: tenant, tries: "write the rollout's budget",
			stop: byRBAC, want: `cannot patch resource "configmaps"`, twin: ownConfigMap,
			try: merge(configMap(v1alpha1.ManagerNamespace, v1alpha1.BudgetConfigMap), `{"data":null}`)},
		{id: "tenant-events-elsewhere", by: tenant, tries: "write events of another namespace",
			stop: byRBAC, want: `cannot create resource "events"`, twin: create(eventOf("mine", "web-1", "pv-1")),
			try: func(a *actor) error {
				event := eventOf("forged", "web-1", "pv-1")
				event.Namespace, event.InvolvedObject.Namespace = otherNamespace, otherNamespace
				return a.client.Create(a.ctx, event)
			}},
		{id: "tenant-event-without-pod", by: tenant, tries: "stop a rollout by the event of a Pod that does not exist",
			stop: byManager, want: "not believed", try: forge("no-such-pod"), twin: forge("web-1"), twinBy: nodeOne},
		{id: "tenant-event-of-other-pod", by: tenant, tries: "stop a rollout by the event of a Pod without that volume",
			stop: byManager, want: "not believed", try: forge("web-2"), twin: forge("web-1"), twinBy: nodeOne},
		{id: "tenant-event-of-earlier-pod", by: tenant, tries: "stop a rollout by the event of an earlier Pod with the same name",
			stop: byManager, want: "not believed", try: forge("web-1", func(e *corev1.Event) { e.InvolvedObject.UID = "earlier" }), twin: forge("web-1"), twinBy: nodeOne},
		{id: "tenant-event-of-other-node", by: tenant, tries: "stop a rollout by an event from a node that does not run the Pod",
			stop: byManager, want: "not believed", twin: forge("web-1"), twinBy: nodeOne,
			try: forge("web-1", func(e *corev1.Event) { e.Source.Host, e.ReportingInstance = "node-2", "node-2" })},
		{id: "tenant-volume-label", by: tenant, tries: "decide whether a rule selects its volume, by a label or the operator's annotation of its claim", stop: notStopped,
			try: merge(volumeClaimOf("data", ""), `{"metadata":{"labels":{"tier":"gold"},"annotations":{"`+v1alpha1.IgnoreAnnotation+`":"true"}}}`)},
		{id: "tenant-event-of-own-pod", by: tenant, tries: "stop the rollout of options to its volume by an event of a Pod that uses it", stop: notStopped,
			try: forge("web-1")},
	}
}

func nodeAttacks() []attack {
	own := mergeStatus(node("node-1"), `{"status":{"nodeInfo":{"bootID":"boot-2"}}}`)
	return []attack{
		{id: "kubelet-other-node", by: nodeOne, tries: "write another Node",
			stop: byNodeAdmission, want: "is not allowed to modify node", try: mergeStatus(node("node-2"), `{"status":{"nodeInfo":{"bootID":"x"}}}`), twin: own},
		{id: "kubelet-client-node", by: nodeOne, tries: "report instead of its agent",
			stop: byNodeAuthz, want: `cannot patch resource "storageclientnodes/status"`, try: reportOf("node-1"), twin: own},
		{id: "kubelet-other-client-node", by: nodeOne, tries: "write another node's spec",
			stop: byNodeAuthz, want: `cannot patch resource "storageclientnodes"`, try: merge(clientNode("node-2"), `{"spec":{"release":true}}`), twin: own},
		{id: "kubelet-profile", by: nodeOne, tries: "write a profile",
			stop: byNodeAuthz, want: `cannot patch resource "storageclientprofiles"`, try: merge(profile("fleet"), `{"spec":{"priority":5}}`), twin: own},
		{id: "kubelet-other-agents-token", by: nodeOne, tries: "get the token of another node's agent",
			stop: byNodeAdmission, want: "bound to a pod scheduled on a different node",
			try:  requestToken(v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, "agent-node-2"),
			twin: requestToken(v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, "agent-node-1")},
		{id: "kubelet-managers-token", by: nodeOne, tries: "get the token of a manager that runs elsewhere",
			stop: byNodeAuthz, want: "no relationship found", twin: requestToken(v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, "agent-node-1"),
			try: requestToken(v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, "")},
		{id: "kubelet-untunes", by: nodeOne, tries: "remove the startup taint from its own Node",
			stop: byNodeAdmission, want: "is not allowed to modify taints", try: merge(node("node-1"), `{"spec":{"taints":[]}}`), twin: own},
		{id: "kubelet-reads-secret", by: nodeOne, tries: "read the webhook's key",
			stop: byNodeAuthz, want: "no relationship found", try: get(secret(v1alpha1.ManagerNamespace, "storage-client-webhook")), twin: own},
		{id: "kubelet-managed", by: nodeOne, tries: "bring an agent to its own Node by the operator's label", stop: notStopped,
			try: merge(node("node-1"), `{"metadata":{"labels":{"`+v1alpha1.ManagedLabel+`":"true"}}}`)},
	}
}

// eventOf returns the event of a kubelet about a failed mount.
func eventOf(name, pod, volume string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: named(tenantNamespace, name), Reason: "FailedMount", Type: corev1.EventTypeWarning,
		Message:        fmt.Sprintf("MountVolume.SetUp failed for volume %q : mount failed: exit status 32: an incorrect mount option was specified", volume),
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: tenantNamespace, Name: pod},
		Source:         corev1.EventSource{Component: "kubelet", Host: "node-1"}, ReportingController: "kubelet", ReportingInstance: "node-1",
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

// rollout is the manager that merges a rule's options into volumes, with its own rights.
type rollout struct {
	actor *actor
	clock *testclock.FakeClock
	visit func() *corev1.PersistentVolume
}

func (a *actor) rollOut(options ...v1alpha1.MountOption) rollout {
	a.t.Helper()
	change := profileOf("rolled-out", func(p *v1alpha1.StorageClientProfile) {
		p.Finalizers = []string{v1alpha1.Finalizer}
		p.Spec.Volumes = []v1alpha1.VolumeRule{{
			Name: "nfs", MountOptions: options, OnConflict: v1alpha1.ConflictUseProfile,
			Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}},
		}}
	})
	check.NoError(a.t, a.admin().Create(a.ctx, change))
	visitor := a.world.newActor(a.t, a.world.cluster.managerToken(a.t))
	clock := testclock.NewFakeClock(time.Now().Add(-time.Minute))
	reconciler := &volumes.Reconciler{
		Client: visitor.client, Clock: clock, Recorder: events.NewFakeRecorder(64),
	}
	return rollout{actor: a, clock: clock, visit: func() *corev1.PersistentVolume {
		a.t.Helper()
		_, err := reconciler.Reconcile(ctrl.LoggerInto(a.ctx, logr.Discard()), ctrl.Request{})
		check.NoError(a.t, err)
		pv := &corev1.PersistentVolume{ObjectMeta: named("", "pv-1")}
		a.get(pv)
		return pv
	}}
}

// weaken declares an option that contradicts an option of the volume. The attack is stopped if the volume keeps its option.
func weaken(own, declared string) func(*actor) error {
	return func(a *actor) error {
		pv := &corev1.PersistentVolume{ObjectMeta: named("", "pv-1")}
		a.get(pv)
		pv.Spec.MountOptions = []string{own}
		check.NoError(a.t, a.admin().Update(a.ctx, pv))
		if err := onlyTry(mountOptions(v1alpha1.MountOption(declared), "nconnect=4"))(a); err != nil {
			return err
		}
		merged := a.rollOut(v1alpha1.MountOption(declared), "nconnect=4").visit().Spec.MountOptions
		if slices.Contains(merged, own) && !slices.Contains(merged, declared) {
			return stopped{by: byManager, message: declared + " stays out"}
		}
		return nil
	}
}

// weakenNothing replaces another option of the volume.
func weakenNothing(a *actor) error {
	pv := &corev1.PersistentVolume{ObjectMeta: named("", "pv-1")}
	a.get(pv)
	pv.Spec.MountOptions = []string{"nconnect=2"}
	check.NoError(a.t, a.admin().Update(a.ctx, pv))
	if merged := a.rollOut("nconnect=4").visit().Spec.MountOptions; !slices.Equal(merged, []string{"nconnect=4"}) {
		return fmt.Errorf("got mount options %v, want [nconnect=4]", merged)
	}
	return nil
}

// forge has the manager write options into a volume, and an attacker write an event about a failed mount. The attack is stopped if the
// manager keeps the options.
func forge(pod string, changes ...func(*corev1.Event)) func(*actor) error {
	return func(a *actor) error {
		a.t.Helper()
		change := a.rollOut("nconnect=4")
		if pv := change.visit(); len(pv.Spec.MountOptions) != 2 {
			a.t.Fatalf("got mount options %v, want the manager's options too", pv.Spec.MountOptions)
		}
		event := eventOf("forged", pod, "pv-1")
		if live := (&corev1.Pod{}); a.world.cluster.admin.Get(a.ctx, client.ObjectKey{Namespace: tenantNamespace, Name: pod}, live) == nil {
			event.InvolvedObject.UID = live.UID
		}
		for _, change := range changes {
			change(event)
		}
		if err := a.client.Create(a.ctx, event); err != nil {
			return err
		}
		change.clock.SetTime(time.Now().Add(time.Minute))
		if _, failed := change.visit().Annotations[v1alpha1.FailedMountOptionsAnnotation]; !failed {
			return stopped{by: byManager, message: "the event is not believed"}
		}
		return nil
	}
}
