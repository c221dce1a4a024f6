package webhook

import (
	"context"
	"crypto/tls"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
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
	// Namespace is the manager's, whose pause annotation holds everything.
	Namespace string
	// Host is the address to listen on; empty stands for all.
	Host string
	Port int
}

// SetupWithManager adds the server to a manager, and to its readiness: the Service then leads to replicas that serve.
// Without a certificate it is not ready, and runs its controllers all the same.
func (w *Webhooks) SetupWithManager(mgr ctrl.Manager) error {
	if err := volume.KeepCached(context.Background(), mgr.GetCache()); err != nil {
		return err
	}
	serving, err := newServing(mgr.GetCache(), w.Namespace)
	if err != nil {
		return err
	}
	inner := webhook.NewServer(webhook.Options{Host: w.Host, Port: w.Port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = serving.certificate
		// Whoever reaches the port may speak to it before it knows who they are: HTTP/2 would only help them to wear it out.
		c.NextProtos = []string{"http/1.1"}
	}}})
	inner.Register(ProfilePath, admission.WithValidator[*v1alpha1.StorageClientProfile](mgr.GetScheme(), &profileValidator{allow: w.Allow}))
	inner.Register(VolumePath, &admission.Webhook{Handler: &volumeHandler{
		reader: mgr.GetCache(), decoder: admission.NewDecoder(mgr.GetScheme()), allow: w.Allow, namespace: w.Namespace,
	}})
	if err := mgr.AddReadyzCheck("webhook", inner.StartedChecker()); err != nil {
		return fmt.Errorf("add readiness check of the webhooks: %w", err)
	}
	if err := mgr.Add(&server{inner}); err != nil {
		return fmt.Errorf("add webhook server: %w", err)
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
