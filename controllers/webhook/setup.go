package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Paths of the webhooks. The configurations in config/webhook refer to them.
const (
	ProfilePath = "/validate-tuning-storageclient-dev-v1alpha1-storageclientprofile"
	VolumePath  = "/mutate--v1-persistentvolume"
)

// Webhooks serves both webhooks, on every replica of the manager, with or without leadership.
type Webhooks struct {
	Allow catalogue.AllowList
	// Cluster is the UID of the cluster. Empty if it is unknown.
	Cluster types.UID
	// Host is the address to listen on. Empty means all addresses.
	Host string
	Port int
	// KeepCertificates creates and renews the serving certificate, and adds the CA to the API server's configurations. If false, another tool does
	// so.
	KeepCertificates bool
}

// +kubebuilder:rbac:groups="",namespace=storage-client-system,resources=secrets,resourceNames=storage-client-webhook,verbs=list;watch

// SetupWithManager adds the server to a manager and to its readiness: the Service then routes to ready replicas. Without a certificate, the
// manager is not ready, but still runs its controllers.
func (w *Webhooks) SetupWithManager(mgr ctrl.Manager) error {
	// The manager has not started, so this call does not block.
	otherVolumes, err := snapshot.KeepCached(context.Background(), mgr.GetCache())
	if err != nil {
		return err
	}
	serving, err := newServing(mgr.GetCache(), v1alpha1.ManagerNamespace)
	if err != nil {
		return err
	}
	inner := webhook.NewServer(webhook.Options{Host: w.Host, Port: w.Port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = serving.currentCertificate
		// Any client that reaches the port may open connections without authentication. HTTP/2 would only make a denial of service easier.
		c.NextProtos = []string{"http/1.1"}
	}}})
	inner.Register(ProfilePath, admission.WithValidator[*v1alpha1.StorageClientProfile](mgr.GetScheme(), &profileValidator{allow: w.Allow}))
	memory := snapshot.NewMemory()
	memory.Cluster = w.Cluster
	inner.Register(VolumePath, &admission.Webhook{Handler: &volumeHandler{
		reader:  &snapshot.Reader{Reader: mgr.GetCache(), Allow: w.Allow, Reserver: mgr.GetClient(), VolumeIndex: otherVolumes, Memory: memory},
		decoder: admission.NewDecoder(mgr.GetScheme()),
	}})
	if err := mgr.AddReadyzCheck("webhook", inner.StartedChecker()); err != nil {
		return fmt.Errorf("add readiness check of the webhooks: %w", err)
	}
	if err := mgr.Add(&server{inner}); err != nil {
		return fmt.Errorf("add webhook server: %w", err)
	}
	if !w.KeepCertificates {
		return nil
	}
	certificates := &CertificateReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}}
	if err := certificates.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up certificates of the webhooks: %w", err)
	}
	return nil
}

// server wraps a webhook.Server: the manager would start a plain one before its cache, which the webhooks read.
type server struct{ inner webhook.Server }

// NeedLeaderElection returns false: every replica serves.
func (*server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *server) Start(ctx context.Context) error {
	if err := s.inner.Start(ctx); err != nil {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	return nil
}

// SetupWithManager registers the reconciler. CacheByObject must limit the manager's cache: the manager's role allows no more.
func (r *CertificateReconciler) SetupWithManager(mgr ctrl.Manager) error {
	theSecret := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: Name}}}
	})
	nameFilter := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == Name }))
	return ctrl.NewControllerManagedBy(mgr).
		Named("webhook-certificates").
		For(&corev1.Secret{}, nameFilter).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, theSecret, nameFilter).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, theSecret, nameFilter).
		Complete(r)
}

// CacheByObject limits the manager's cache to the Secret, the two configurations and the Namespace of the operator, and to the ConfigMaps in
// that namespace.
func CacheByObject(namespace string) map[client.Object]cache.ByObject {
	nameSelector := fields.OneTermEqualSelector("metadata.name", Name)
	return map[client.Object]cache.ByObject{
		&corev1.Namespace{}: {Field: fields.OneTermEqualSelector("metadata.name", namespace)},
		&corev1.Secret{}:    {Namespaces: map[string]cache.Config{namespace: {FieldSelector: nameSelector}}},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: nameSelector},
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   {Field: nameSelector},
	}
}

// serving provides the certificate in the Secret from the manager's cache: a new one is served immediately after its write. The kubelet would
// take a minute or more to mount it.
type serving struct {
	reader client.Reader
	key    client.ObjectKey

	mu      sync.Mutex
	version string // of the Secret that pair was read from
	pair    *tls.Certificate
}

// newServing adds the Secret to the cache of every replica, with or without leadership.
func newServing(c cache.Cache, namespace string) (*serving, error) {
	// The cache has not started, so this call does not block.
	if _, err := c.GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watch the Secret of the webhooks: %w", err)
	}
	return &serving{reader: c, key: client.ObjectKey{Namespace: namespace, Name: Name}}, nil
}

func (s *serving) currentCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	var secret corev1.Secret
	if err := s.reader.Get(hello.Context(), s.key, &secret); err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", s.key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pair != nil && s.version == secret.ResourceVersion {
		return s.pair, nil
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("read the certificate of Secret %s: %w", s.key, err)
	}
	s.version, s.pair = secret.ResourceVersion, &pair
	return s.pair, nil
}
