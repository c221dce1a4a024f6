//go:build attack

package attack

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const planHash = "0123456789abcdef"

// world has the objects of the cluster. Changes of an attack are reverted before the next one.
type world struct {
	cluster *cluster
	objects []*savedObject

	// dirty is true if an object has changed since the last reset.
	dirty   atomic.Bool
	mu      sync.Mutex
	created []client.Object
}

// savedObject is the desired object, with the version of its last write.
type savedObject struct {
	object  client.Object
	version string
}

func newWorld(t *testing.T, c *cluster) *world {
	t.Helper()
	w := &world{cluster: c}
	for _, object := range cast() {
		w.keep(t, object)
	}
	return w
}

// keep creates an object with its status.
func (w *world) keep(t *testing.T, object client.Object) {
	t.Helper()
	k := &savedObject{object: object}
	w.objects = append(w.objects, k)
	k.create(t, w.cluster.admin)
}

func (k *savedObject) create(t *testing.T, c client.Client) {
	t.Helper()
	object := k.object.DeepCopyObject().(client.Object)
	err := c.Create(t.Context(), object)
	if apierrors.IsAlreadyExists(err) { // the manifests contain it
		live := k.object.DeepCopyObject().(client.Object)
		check.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(live), live))
		live.SetResourceVersion("")
		live.SetUID("")
		k.object, err = live, nil
	}
	check.NoError(t, err)
	k.restore(t, c)
}

// restore restores the object. Admission adds a taint to a new Node, so even a new Node needs an update. If the API server rejects the
// change, the object is recreated.
func (k *savedObject) restore(t *testing.T, c client.Client) {
	t.Helper()
	live := k.object.DeepCopyObject().(client.Object)
	check.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(live), live))
	wanted := k.object.DeepCopyObject().(client.Object)
	wanted.SetUID("")
	wanted.SetResourceVersion(live.GetResourceVersion())
	if err := c.Update(t.Context(), wanted); apierrors.IsInvalid(err) {
		deleteNow(t, c, live)
		k.create(t, c)
		return
	} else if err != nil {
		t.Fatal(err)
	}
	version := wanted.GetResourceVersion()
	if hasStatus(wanted) {
		status := k.object.DeepCopyObject().(client.Object)
		status.SetResourceVersion(version)
		check.NoError(t, c.Status().Update(t.Context(), status))
		version = status.GetResourceVersion()
	}
	k.version = version
}

func hasStatus(object client.Object) bool {
	switch object.(type) {
	case *corev1.Node, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim, *corev1.Pod, *v1alpha1.StorageClientNode, *v1alpha1.StorageClientProfile:
		return true
	}
	return false
}

// reset restores all objects.
func (w *world) reset(t *testing.T) {
	t.Helper()
	if !w.dirty.Swap(false) {
		return
	}
	c := w.cluster.admin
	w.mu.Lock()
	created := w.created
	w.created = nil
	w.mu.Unlock()
	for _, object := range created {
		deleteNow(t, c, object)
	}
	for _, k := range w.objects {
		live := k.object.DeepCopyObject().(client.Object)
		err := c.Get(t.Context(), client.ObjectKeyFromObject(live), live)
		switch {
		case apierrors.IsNotFound(err):
			k.create(t, c)
			continue
		case err != nil:
			t.Fatal(err)
		case live.GetDeletionTimestamp() != nil:
			deleteNow(t, c, live)
			k.create(t, c)
		case live.GetResourceVersion() != k.version:
			k.restore(t, c)
		}
	}
}

// recording returns a client that records the objects that an actor creates, and that it changed an object.
func (w *world) recording(c client.WithWatch) client.WithWatch {
	note := func(err error) error {
		if err == nil {
			w.dirty.Store(true)
		}
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			err := note(c.Create(ctx, object, options...))
			if err == nil && object.GetUID() != "" { // a review is not stored
				w.mu.Lock()
				defer w.mu.Unlock()
				w.created = append(w.created, object.DeepCopyObject().(client.Object))
			}
			return err
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return note(c.Update(ctx, object, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return note(c.Patch(ctx, object, patch, options...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return note(c.Delete(ctx, object, options...))
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, object, body client.Object, options ...client.SubResourceCreateOption) error {
			return note(c.SubResource(name).Create(ctx, object, body, options...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return note(c.SubResource(name).Patch(ctx, object, patch, options...))
		},
	})
}

// deleteNow deletes an object together with its finalizers.
func deleteNow(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	without := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	check.NoError(t, client.IgnoreNotFound(c.Patch(t.Context(), object.DeepCopyObject().(client.Object), without)))
	check.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), object, client.GracePeriodSeconds(0))))
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// cast returns two Nodes with StorageClientNodes and agents, a manager, a tenant with a volume and a workload, and two profiles.
func cast() []client.Object {
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: named("", tenantNamespace)},
		&corev1.Namespace{ObjectMeta: named("", otherNamespace)},
		nodeOf("node-1"), nodeOf("node-2"), controlPlaneNodeOf("server-1"),
		clientNodeOf("node-1"), clientNodeOf("node-2"),
		podOf(v1alpha1.ManagerNamespace, "manager-1", "node-2", v1alpha1.ManagerDeployment),
		podOf(v1alpha1.AgentNamespace, "agent-node-1", "node-1", v1alpha1.AgentServiceAccount),
		podOf(v1alpha1.AgentNamespace, "agent-node-2", "node-2", v1alpha1.AgentServiceAccount),
		podOf(v1alpha1.AgentNamespace, "agent-homeless", "", v1alpha1.AgentServiceAccount),
		volumeOf("pv-1"), volumeClaimOf("data", "pv-1"), tenantPod(), podOf(tenantNamespace, "web-2", "node-2", ""),
		deploymentOf(tenantNamespace, "web"),
		&appsv1.DaemonSet{ObjectMeta: named(v1alpha1.AgentNamespace, v1alpha1.AgentDaemonSet), Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, Template: templateOf("agent"),
		}},
		&corev1.Secret{ObjectMeta: named(tenantNamespace, "database"), StringData: map[string]string{"password": "secret"}},
		&corev1.Secret{ObjectMeta: named(v1alpha1.ManagerNamespace, "registry"), StringData: map[string]string{"password": "secret"}},
		&corev1.ConfigMap{ObjectMeta: named(v1alpha1.ManagerNamespace, v1alpha1.BudgetConfigMap)},
		&corev1.ConfigMap{ObjectMeta: named(v1alpha1.ManagerNamespace, "settings"), Data: map[string]string{"a": "b"}},
		foreignWebhook(),
		profileOf("fleet", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node = sysctls("net.core.rmem_max", "16777216") }),
		profileOf("boots", func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Node = &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=1048576"}}
			p.Status.ObservedGeneration, p.Status.Plan = 1, v1alpha1.Plan{Hash: planHash, NodesToReboot: 2}
		}),
		automatic("automatic", false), automatic("restoring", true),
		automatic("automatic-plan", false, func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }),
		automatic("automatic-paused", false, func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true }),
		automatic("automatic-held", false, func(p *v1alpha1.StorageClientProfile) {
			p.Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True, v1alpha1.ApprovedPlanAnnotation: planHash}
		}),
		profileOf("leaving", func(p *v1alpha1.StorageClientProfile) {
			p.Finalizers = []string{v1alpha1.Finalizer}
			p.Spec.Node = &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=1048576"}}
		}),
	}
	gone := podOf(v1alpha1.AgentNamespace, "agent-gone", "node-1", v1alpha1.AgentServiceAccount)
	return append(objects, gone)
}

func nodeOf(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: named("", name)}
	node.Labels = map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: "zone-1", v1alpha1.ManagedLabel: v1alpha1.True,
	}
	node.Annotations = map[string]string{"example.com/owner": "somebody"}
	node.Spec.Taints = []corev1.Taint{
		{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule},
		{Key: "example.com/dedicated", Value: "database", Effect: corev1.TaintEffectNoSchedule},
	}
	node.Status.NodeInfo.BootID = "boot-1"
	node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	return node
}

// controlPlaneNodeOf returns a node that only its label of MicroK8s marks.
func controlPlaneNodeOf(name string) *corev1.Node {
	node := nodeOf(name)
	delete(node.Labels, v1alpha1.ManagedLabel)
	node.Labels["node.kubernetes.io/microk8s-controlplane"] = "microk8s-controlplane"
	return node
}

func clientNodeOf(name string) *v1alpha1.StorageClientNode {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: named("", name)}
	clientNode.Labels = map[string]string{"example.com/pool": "blue"}
	clientNode.Spec.Settings = []v1alpha1.NodeSetting{
		{Key: "sysctl/net.core.rmem_max", Value: "16777216", Profile: "fleet", OnRemoval: v1alpha1.DeletionRestore},
	}
	clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: "Window"}
	return clientNode
}

func podOf(namespace, name, node, account string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: named(namespace, name)}
	pod.Labels = map[string]string{"app": name}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName = node, account
	pod.Spec.Containers = []corev1.Container{containerOf()}
	if account != "" { // the label that admission adds; without it no kubelet can request a token
		pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}}}}
	}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	return pod
}

func containerOf() corev1.Container {
	return corev1.Container{Name: "main", Image: "example.com/app:1", SecurityContext: &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}}
}

// tenantPod uses the tenant's volume on node-1.
func tenantPod() *corev1.Pod {
	pod := podOf(tenantNamespace, "web-1", "node-1", "")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	return pod
}

func templateOf(app string) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{Spec: podOf("", app, "", "").Spec}
	template.Labels = map[string]string{"app": app}
	return template
}

func deploymentOf(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: named(namespace, name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: templateOf(name),
	}}
}

func volumeOf(name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: named("", name)}
	pv.Annotations = map[string]string{"example.com/owner": "somebody"}
	pv.Finalizers = []string{"kubernetes.io/pv-protection"}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	pv.Spec.MountOptions = []string{"hard"}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer.example.com", Path: "/export"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: tenantNamespace, Name: "data"}
	pv.Status.Phase = corev1.VolumeBound
	return pv
}

func volumeClaimOf(name, volume string) *corev1.PersistentVolumeClaim {
	volumeClaim := &corev1.PersistentVolumeClaim{ObjectMeta: named(tenantNamespace, name)}
	volumeClaim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	volumeClaim.Spec.VolumeName = volume
	volumeClaim.Spec.StorageClassName = ptr.To("")
	volumeClaim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volumeClaim.Status.Phase = corev1.ClaimBound
	return volumeClaim
}

// foreignWebhook is another user's webhook. It matches no existing kind.
func foreignWebhook() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: named("", "somebodys-webhook"),
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "a.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
			ClientConfig:  admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"things"}},
			}},
		}},
	}
}

func profileOf(name string, changes ...func(*v1alpha1.StorageClientProfile)) *v1alpha1.StorageClientProfile {
	profile := &v1alpha1.StorageClientProfile{ObjectMeta: named("", name)}
	profile.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"example.com/pool": "blue"}}
	for _, change := range changes {
		change(profile)
	}
	return profile
}

// automatic returns a profile whose reboots an approver has made automatic.
func automatic(name string, restoreReboot bool, changes ...func(*v1alpha1.StorageClientProfile)) *v1alpha1.StorageClientProfile {
	return profileOf(name, append(changes, func(p *v1alpha1.StorageClientProfile) {
		p.Finalizers = []string{v1alpha1.Finalizer}
		p.Spec.Node = &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=1048576"}}
		p.Spec.Rollout.Reboot = v1alpha1.Reboot{Policy: v1alpha1.RebootAutomatic, RestoreReboot: restoreReboot}
	})...)
}

func sysctls(pairs ...string) *v1alpha1.NodeTuning {
	tuning := &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		tuning.Sysctls[pairs[i]] = v1alpha1.SettingText(pairs[i+1])
	}
	return tuning
}
