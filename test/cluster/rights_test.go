//go:build kwok

package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/rights"
	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/patience"
)

// spare contains the rights that the run may leave unused, with the reason for granting them.
var spare = map[string]string{
	"list configmaps in storage-client-system":                                                 streamed,
	"list mutatingwebhookconfigurations.admissionregistration.k8s.io storage-client-webhook":   streamed,
	"list namespaces storage-client-system":                                                    streamed,
	"list persistentvolumeclaims":                                                              streamed,
	"list pods in storage-client-agent":                                                        streamed,
	"list secrets storage-client-webhook in storage-client-system":                             streamed,
	"list storageclasses.storage.k8s.io":                                                       streamed,
	"list validatingwebhookconfigurations.admissionregistration.k8s.io storage-client-webhook": streamed,
	"patch events in storage-client-system":                                                    repeated,
	"patch events.events.k8s.io in default":                                                    repeated,
	"get persistentvolumes":                                                                    behind,
	"list storageclienttrials.tuning.storageclient.dev":                                        streamed,
	"patch storageclienttrials.tuning.storageclient.dev/status":                                tried,
	"delete configmaps in storage-client-system":                                               reserved,
	"get configmaps storage-client-failures in storage-client-system":                          failed,
	"update configmaps storage-client-failures in storage-client-system":                       failed,
}

const (
	streamed = "an informer asks for a stream first, and lists where the API server does not stream lists (before Kubernetes 1.34)"
	repeated = "an event that is repeated within minutes is counted in the one that there is; this run need not repeat one"
	behind   = "a volume is read where the cache is behind with it when a batch begins; this run need not meet one"
	tried    = "the status of a trial is written where there is one; this run has none"
	reserved = "the reservation of a canary is deleted where the webhook made one; in this run the API server does not reach the webhook"
	failed   = "failures are remembered where a node fails; in this run none does"
)

// site contains the objects and clients that make the manager use all of its rights: volumes and an application, a metrics scraper,
// webhooks.
type site struct{ metricsAddress, webhookPort string }

const (
	boundVolume = "share-3"
	boundServer = "account3.file.core.windows.net"
	// The application of test/demo/workload.yaml, with a budget that permits evicting its pods one by one.
	appReplicas, appMinAvailable = 4, 3
)

func prepareUse(t *testing.T, s *sandbox.Sandbox) *site {
	t.Helper()
	ctx := t.Context()
	for _, file := range []string{"test/demo/workload.yaml", "config/webhook/secret.yaml", "config/webhook/service.yaml"} {
		check.NoError(t, s.ApplyFile(ctx, filepath.Join("..", "..", file)))
	}
	bound := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: boundVolume}
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	unreachable := &metav1.LabelSelector{MatchLabels: map[string]string{"sandbox": "never"}}
	service := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: v1alpha1.ManagerNamespace, Name: "storage-client-webhook",
	}}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}},
	}}
	for _, object := range []client.Object{
		&corev1.PersistentVolumeClaim{ObjectMeta: bound, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: boundVolume, StorageClassName: ptr.To(""), Resources: corev1.VolumeResourceRequirements{Requests: storage},
		}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: boundVolume}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: storage, ClaimRef: &corev1.ObjectReference{Namespace: bound.Namespace, Name: bound.Name}, MountOptions: []string{"hard"},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "file.csi.azure.com", VolumeHandle: boundVolume,
				VolumeAttributes: map[string]string{"protocol": "nfs", "server": boundServer},
			}},
		}},
		// No service of the sandbox leads to the manager. The configurations match no requests, and only lack their caBundle.
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "storage-client-webhook"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "a.tuning.storageclient.dev", AdmissionReviewVersions: []string{"v1"}, ClientConfig: service, ObjectSelector: unreachable, Rules: rules,
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			}},
		},
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "storage-client-webhook"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "b.tuning.storageclient.dev", AdmissionReviewVersions: []string{"v1"}, ClientConfig: service, ObjectSelector: unreachable, Rules: rules,
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			}},
		},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "scraper"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "storage-client-metrics-reader"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "scraper"}},
		},
	} {
		check.NoError(t, s.Client.Create(ctx, object))
	}
	setBudget(t, s, appReplicas)
	return &site{metricsAddress: net.JoinHostPort("127.0.0.1", freePort(t)), webhookPort: freePort(t)}
}

func (u *site) flags() []string {
	return []string{"--leader-elect", "--metrics-bind-address=" + u.metricsAddress, "--webhook-port=" + u.webhookPort}
}

func freePort(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	check.NoError(t, err)
	return port
}

func (*site) declareVolumes(profile *v1alpha1.StorageClientProfile) {
	profile.Spec.Volumes = []v1alpha1.VolumeRule{{
		Name: "bound", Selector: v1alpha1.VolumeSelector{Servers: []string{boundServer}},
		MountOptions: []v1alpha1.MountOption{"actimeo=30"},
	}}
	profile.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromString("100%")), SoakSeconds: ptr.To[int32](25), OnNoEvidence: v1alpha1.NoEvidenceProceed}
}

// failMount creates a kubelet event about a failed mount, without the volume's name. The manager requests the pod, which no longer
// exists.
func (*site) failMount(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	awaitCondition(t, s, "options on the bound volume", func(ctx context.Context) (bool, error) {
		volume := &corev1.PersistentVolume{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: boundVolume}, volume)
		return volume.Annotations[v1alpha1.MountOptionsStepAnnotation] != "", err
	})
	now := metav1.NewTime(time.Now().Add(2 * time.Second))
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "gone.1"}, Reason: "FailedMount", Type: corev1.EventTypeWarning,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: metav1.NamespaceDefault, Name: "gone", UID: "6b4f7e0a-0000-4000-8000-000000000000"},
		Message:        "Unable to attach or mount volumes: unmounted volumes=[data]: mount.nfs: an incorrect mount option was specified",
		FirstTimestamp: now, LastTimestamp: now, Count: 1, Source: corev1.EventSource{Component: "kubelet", Host: s.Names[0]},
	}
	check.NoError(t, s.Client.Create(t.Context(), event))
}

// refuseEvictions waits until the application's budget, which permits no eviction, blocks a drain. It then relaxes the budget.
func (*site) refuseEvictions(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	awaitCondition(t, s, "a drain that the budget blocks", func(ctx context.Context) (bool, error) {
		clientNodes := &v1alpha1.StorageClientNodeList{}
		err := s.Client.List(ctx, clientNodes)
		return slices.ContainsFunc(clientNodes.Items, func(n v1alpha1.StorageClientNode) bool {
			return n.Status.Rollout != nil && strings.Contains(n.Status.Rollout.Message, "PodDisruptionBudget default/web")
		}), err
	})
	setBudget(t, s, appMinAvailable)
}

func setBudget(t *testing.T, s *sandbox.Sandbox, minAvailable int) {
	t.Helper()
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "web"}}
	patch := fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, minAvailable)
	check.NoError(t, s.Client.Patch(t.Context(), budget, client.RawPatch(types.MergePatchType, patch)))
}

// scrapeMetrics reads the manager's metrics in the same way as Prometheus.
func (u *site) scrapeMetrics(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "scraper"}}
	request := &authenticationv1.TokenRequest{}
	check.NoError(t, s.Client.SubResource("token").Create(t.Context(), account, request))
	get, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s/metrics", u.metricsAddress), http.NoBody)
	check.NoError(t, err)
	get.Header.Set("Authorization", "Bearer "+request.Status.Token)
	// The manager's certificate is self-signed, and the address belongs to this machine.
	scraper := &http.Client{Timeout: patience.Of(time.Minute), Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := scraper.Do(get)
	check.NoError(t, err)
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("GET /metrics: %s, %v", response.Status, err)
	}
}

// checkRights compares the rights of the manager in config/rbac with its requests in the API server's audit log.
func checkRights(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	granted, err := rights.OfAccount(listRoles(t, s), v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment)
	check.NoError(t, err)
	check.NoError(t, s.Plane.AwaitAudit(t.Context()))
	requests, err := s.Plane.ManagerRequests()
	check.NoError(t, err)
	t.Logf("%d rights of the manager, %d requests", len(granted), len(requests))
	for _, problem := range rights.Compare(granted, requests, spare) {
		t.Error(problem)
	}
}

func listRoles(t *testing.T, s *sandbox.Sandbox) []client.Object {
	t.Helper()
	var objects []client.Object
	for _, list := range []client.ObjectList{&rbacv1.RoleList{}, &rbacv1.ClusterRoleList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}} {
		check.NoError(t, s.Client.List(t.Context(), list))
		check.NoError(t, meta.EachListItem(list, func(item runtime.Object) error {
			objects = append(objects, item.(client.Object))
			return nil
		}))
	}
	return objects
}
