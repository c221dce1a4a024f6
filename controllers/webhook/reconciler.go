// Package webhook handles admission requests of the API server. It reports errors in a profile to its author before the profile is stored. It
// also merges declared mount options into a PersistentVolume before its first mount. It creates and renews its serving certificate.
//
// No other component depends on it. Controllers validate a profile that bypassed it. The volume reconciler evaluates a volume that bypassed
// it, with the same code.
package webhook

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/tuning/lists"
)

// Name is the name of the webhooks' Service, Secret and both configurations in config/webhook.
const Name = "storage-client-webhook"

const (
	caName       = "storage-client-webhook-ca"
	organization = "storage-client-operator"

	caCertificateKey = "ca.crt"
	caPrivateKeyKey  = "ca.key"

	caLifetime     = 10 * 365 * 24 * time.Hour
	serverLifetime = 365 * 24 * time.Hour
	// renewBefore is the remaining lifetime at which a certificate is replaced.
	renewBefore = 90 * 24 * time.Hour
	// startBefore is the backdating of certificates, for API servers with a slow clock.
	startBefore = time.Hour

	checkInterval = 12 * time.Hour
	conflictRetry = time.Second
)

// CertificateReconciler maintains a CA and a serving certificate in the Secret that all replicas serve with. It adds the CA to the webhook
// configurations. Only the leader runs it.
//
// It creates and validates certificates with functions of cert-controller, but not with its reconciler. That reconciler reads every Secret of
// the namespace, and ends the manager if the Secret or mount is missing. It also writes through the manager's client, which would wait for a
// cache of all Secrets of the cluster.
type CertificateReconciler struct {
	client.Client
	Clock clock.PassiveClock
}

// The rights to write are in separate roles, which the components cert-manager and webhook-ca empty.
// +kubebuilder:rbac:groups="",namespace=storage-client-system,resources=secrets,resourceNames=storage-client-webhook,verbs=patch,roleName=storage-client-manager-certificates
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,resourceNames=storage-client-webhook,verbs=list;watch;patch,roleName=storage-client-manager-certificates

// Reconcile renews missing, invalid and expiring certificates, and publishes the CA. Without the Secret, which is part of the manifest, it
// does nothing.
func (r *CertificateReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var secret corev1.Secret
	if found, err := read.Find(ctx, r, req.NamespacedName, &secret); !found {
		return reconcile.Result{}, err
	}
	err := r.renewCertificates(ctx, &secret)
	if err == nil {
		err = r.publishAuthority(ctx, secret.Data[caCertificateKey])
	}
	out := loop.Outcome{Pause: conflictRetry}
	out.Finish(secret.Name, err)
	out.WakeAfter(checkInterval)
	return out.Result()
}

// renewCertificates keeps a valid CA, so that clients that trust the previous certificate trust the new one at once.
func (r *CertificateReconciler) renewCertificates(ctx context.Context, secret *corev1.Secret) error {
	maker := r.newRotator()
	authority, err := r.readAuthority(secret.Data)
	if err == nil && r.isGood(secret.Data[caCertificateKey], secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey],
		maker.DNSName, maker.ExtKeyUsages) {
		return nil
	}
	now := r.Clock.Now()
	if err != nil {
		log.FromContext(ctx).Info("Creating a new CA for the webhooks", "reason", err.Error())
		if authority, err = maker.CreateCACert(now.Add(-startBefore), now.Add(caLifetime)); err != nil {
			return fmt.Errorf("create CA of the webhooks: %w", err)
		}
	}
	certificate, key, err := maker.CreateCertPEM(authority, now.Add(-startBefore), now.Add(serverLifetime))
	if err != nil {
		return fmt.Errorf("create certificate of the webhooks: %w", err)
	}
	before := client.MergeFromWithOptions(secret.DeepCopy(), client.MergeFromWithOptimisticLock{})
	secret.Data = map[string][]byte{
		caCertificateKey: authority.CertPEM, caPrivateKeyKey: authority.KeyPEM, corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key,
	}
	if err := r.Patch(ctx, secret, before, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	log.FromContext(ctx).Info("Renewed the certificate of the webhooks", "until", now.Add(serverLifetime))
	return nil
}

func (r *CertificateReconciler) newRotator() *rotator.CertRotator {
	return &rotator.CertRotator{
		CAName: caName, CAOrganization: organization, DNSName: fmt.Sprintf("%s.%s.svc", Name, v1alpha1.ManagerNamespace),
		ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// readAuthority reads the CA from the Secret. The error explains why the CA cannot be used.
func (r *CertificateReconciler) readAuthority(data map[string][]byte) (*rotator.KeyPairArtifacts, error) {
	certificate, key := data[caCertificateKey], data[caPrivateKeyKey]
	if len(certificate) == 0 || len(key) == 0 {
		return nil, errors.New("the Secret has no CA")
	}
	if !r.isGood(certificate, certificate, key, caName, nil) {
		return nil, errors.New("the CA is invalid or expires soon")
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	private, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("the CA key is not an RSA key")
	}
	return &rotator.KeyPairArtifacts{Cert: pair.Leaf, Key: private, CertPEM: certificate, KeyPEM: key}, nil
}

// isGood reports whether a certificate remains valid for at least renewBefore.
func (r *CertificateReconciler) isGood(authority, certificate, key []byte, name string, usages *[]x509.ExtKeyUsage) bool {
	good, err := rotator.ValidCert(authority, certificate, key, name, usages, r.Clock.Now().Add(renewBefore))
	return err == nil && good
}

// publishAuthority adds the CA to both configurations. It skips a configuration that is not installed.
func (r *CertificateReconciler) publishAuthority(ctx context.Context, authority []byte) error {
	for _, configuration := range []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{},
	} {
		if err := r.patchBundle(ctx, configuration, authority); err != nil {
			return err
		}
	}
	return nil
}

// patchBundle patches with an optimistic lock: a merge patch replaces the list of webhooks as a whole.
func (r *CertificateReconciler) patchBundle(ctx context.Context, configuration client.Object, authority []byte) error {
	if err := r.Get(ctx, client.ObjectKey{Name: Name}, configuration); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("get %T %s: %w", configuration, Name, err)
	}
	before := client.MergeFromWithOptions(configuration.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
	changed := false
	for _, config := range clientConfigs(configuration) {
		if !bytes.Equal(config.CABundle, authority) {
			config.CABundle, changed = authority, true
		}
	}
	if !changed {
		return nil
	}
	if err := r.Patch(ctx, configuration, before, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch %T %s: %w", configuration, Name, err)
	}
	log.FromContext(ctx).Info("Updated the CA bundle of the webhooks", "configuration", fmt.Sprintf("%T", configuration))
	return nil
}

func clientConfigs(configuration client.Object) []*admissionregistrationv1.WebhookClientConfig {
	type clientConfig = admissionregistrationv1.WebhookClientConfig
	switch c := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return lists.Each(lists.Pointers(c.Webhooks), func(w *admissionregistrationv1.ValidatingWebhook) *clientConfig { return &w.ClientConfig })
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return lists.Each(lists.Pointers(c.Webhooks), func(w *admissionregistrationv1.MutatingWebhook) *clientConfig { return &w.ClientConfig })
	}
	return nil
}
