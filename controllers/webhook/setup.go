package webhook

import (
	"context"
	"crypto/tls"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
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

// Paths that the webhooks are served at. The configurations in config/webhook name them.
const (
	ProfilePath = "/validate-tuning-storageclient-dev-v1alpha1-storageclientprofile"
	VolumePath  = "/mutate--v1-persistentvolume"
)

// Webhooks serves both webhooks. Every replica of the manager does, whether or not it leads.
type Webhooks struct {
	Allow catalogue.AllowList
	// ManagerNamespace is the namespace whose annotation pauses everything.
	ManagerNamespace string
	// Host is the address to listen on; empty stands for all.
	Host string
	Port int
	// KeepCertificates makes and renews the certificate that is served, and has the API server trust it. Otherwise somebody else does,
	// and nothing is written.
	KeepCertificates bool
}

// +kubebuilder:rbac:groups="",namespace=storage-client-system,resources=secrets,resourceNames=storage-client-webhook,verbs=list;watch

// SetupWithManager adds the server to a manager, and to its readiness: the Service then leads to replicas that serve.
// Without a certificate it is not ready, and runs its controllers all the same.
func (w *Webhooks) SetupWithManager(mgr ctrl.Manager) error {
	// The manager has not started, so nothing waits for the context.
	others, err := snapshot.KeepCached(context.Background(), mgr.GetCache())
	if err != nil {
		return err
	}
	serving, err := newServing(mgr.GetCache(), w.ManagerNamespace)
	if err != nil {
		return err
	}
	inner := webhook.NewServer(webhook.Options{Host: w.Host, Port: w.Port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = serving.currentCertificate
		// Whoever reaches the port may speak to it before it knows who they are: HTTP/2 would only help them to wear it out.
		c.NextProtos = []string{"http/1.1"}
	}}})
	inner.Register(ProfilePath, admission.WithValidator[*v1alpha1.StorageClientProfile](mgr.GetScheme(), &profileValidator{allow: w.Allow}))
	inner.Register(VolumePath, &admission.Webhook{Handler: &volumeHandler{
		reader:  &snapshot.Reader{Reader: mgr.GetCache(), Allow: w.Allow, ManagerNamespace: w.ManagerNamespace, Others: others},
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
	certificates := &CertificateReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, ManagerNamespace: w.ManagerNamespace}
	if err := certificates.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up certificates of the webhooks: %w", err)
	}
	return nil
}

// server is no webhook.Server itself: the manager would start it before its cache, which the webhooks read.
type server struct{ inner webhook.Server }

// NeedLeaderElection says that every replica serves.
func (*server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *server) Start(ctx context.Context) error {
	if err := s.inner.Start(ctx); err != nil {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	return nil
}

// SetupWithManager registers the reconciler. The manager's cache has to be limited by CacheByObject: more, the
// manager's role does not let it read.
func (r *CertificateReconciler) SetupWithManager(mgr ctrl.Manager) error {
	theSecret := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: r.ManagerNamespace, Name: Name}}}
	})
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == Name }))
	return ctrl.NewControllerManagedBy(mgr).
		Named("webhook-certificates").
		For(&corev1.Secret{}, ours).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, theSecret, ours).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, theSecret, ours).
		Complete(r)
}

// CacheByObject limits the manager's cache to the one Secret, the two configurations and the Namespace that are ours, and to the ConfigMaps in
// it.
func CacheByObject(namespace string) map[client.Object]cache.ByObject {
	ours := fields.OneTermEqualSelector("metadata.name", Name)
	return map[client.Object]cache.ByObject{
		&corev1.Namespace{}: {Field: fields.OneTermEqualSelector("metadata.name", namespace)},
		&corev1.Secret{}:    {Namespaces: map[string]cache.Config{namespace: {FieldSelector: ours}}},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: ours},
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   {Field: ours},
	}
}
