package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
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

// Files of the certificate directory: keys of the Secret, as the kubelet mounts it.
const (
	certificateFile = corev1.TLSCertKey
	keyFile         = corev1.TLSPrivateKeyKey
)

// certificatePoll is how often a server without a certificate looks for one. The kubelet takes up to a minute or two
// to mount it.
const certificatePoll = time.Second

// Webhooks serves both webhooks. Every replica of the manager does, whether or not it leads.
type Webhooks struct {
	Allow catalogue.AllowList
	// Namespace is the manager's, whose pause annotation holds everything.
	Namespace string
	// Host is the address to listen on; empty stands for all.
	Host string
	Port int
	// CertDir holds tls.crt and tls.key, and may be empty at first.
	CertDir string
}

// SetupWithManager adds the server to a manager, and to its readiness: the Service then leads to replicas that serve.
// A manager without a certificate runs its controllers all the same.
func (w *Webhooks) SetupWithManager(mgr ctrl.Manager) error {
	if err := volume.KeepCached(context.Background(), mgr.GetCache()); err != nil {
		return err
	}
	inner := webhook.NewServer(webhook.Options{
		Host: w.Host, Port: w.Port, CertDir: w.CertDir, CertName: certificateFile, KeyName: keyFile,
		// Whoever reaches the port may speak to it before it knows who they are: HTTP/2 would only help them to wear it out.
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
	})
	inner.Register(ProfilePath, admission.WithValidator[*v1alpha1.StorageClientProfile](mgr.GetScheme(), &profileValidator{allow: w.Allow}))
	inner.Register(VolumePath, &admission.Webhook{Handler: &volumeHandler{
		reader: mgr.GetCache(), decoder: admission.NewDecoder(mgr.GetScheme()), allow: w.Allow, namespace: w.Namespace,
	}})
	if err := mgr.AddReadyzCheck("webhook", inner.StartedChecker()); err != nil {
		return fmt.Errorf("add readiness check of the webhooks: %w", err)
	}
	if err := mgr.Add(&server{inner: inner, certDir: w.CertDir, log: mgr.GetLogger().WithName("webhook")}); err != nil {
		return fmt.Errorf("add webhook server: %w", err)
	}
	return nil
}

// server is a webhook server that waits for its certificate, instead of ending the manager where there is none. It is
// no webhook.Server itself: the manager would start it before its cache, which the webhooks read.
type server struct {
	inner   webhook.Server
	certDir string
	log     logr.Logger
}

// NeedLeaderElection says that every replica serves.
func (*server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *server) Start(ctx context.Context) error {
	if !s.awaitCertificate(ctx) {
		return nil
	}
	if err := s.inner.Start(ctx); err != nil {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	return nil
}

// awaitCertificate returns false where ctx ends first.
func (s *server) awaitCertificate(ctx context.Context) bool {
	said := false
	err := wait.PollUntilContextCancel(ctx, certificatePoll, true, func(context.Context) (bool, error) {
		_, err := tls.LoadX509KeyPair(filepath.Join(s.certDir, certificateFile), filepath.Join(s.certDir, keyFile))
		if err != nil && !said {
			said = true
			s.log.Info("Waiting for the certificate of the webhooks", "directory", s.certDir, "reason", err.Error())
		}
		return err == nil, nil
	})
	return err == nil
}
