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
)

// Name is that of the webhooks' Service, Secret and both configurations in config/webhook.
const Name = "storage-client-webhook"

const (
	caName       = "storage-client-webhook-ca"
	organization = "storage-client-operator"

	caCertificateKey = "ca.crt"
	caPrivateKeyKey  = "ca.key"

	caLifetime     = 10 * 365 * 24 * time.Hour
	serverLifetime = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced.
	renewBefore = 90 * 24 * time.Hour
	// startBefore dates certificates back, for API servers whose clock is behind.
	startBefore = time.Hour

	checkInterval = 12 * time.Hour
	conflictRetry = time.Second
)

// CertificateReconciler keeps an authority and a serving certificate in the Secret that all replicas serve with, and has the
// webhook configurations trust the authority. Only the leader runs it.
//
// It makes and judges certificates with cert-controller's functions. It is a controller of its own, because
// cert-controller's reads every Secret of the namespace, writes through the manager's client, which would wait for a
// cache of the whole cluster's Secrets, and ends the manager where Secret or mount are missing.
type CertificateReconciler struct {
	client.Client
	Clock clock.PassiveClock
	// ManagerNamespace holds Secret and Service.
	ManagerNamespace string
}

// The rights to write are in roles of their own, which the components cert-manager and webhook-ca empty.
// +kubebuilder:rbac:groups="",namespace=storage-client-system,resources=secrets,resourceNames=storage-client-webhook,verbs=patch,roleName=storage-client-manager-certificates
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,resourceNames=storage-client-webhook,verbs=list;watch;patch,roleName=storage-client-manager-certificates

// Reconcile renews what is missing, wrong or near its end, and makes it known. Without the Secret, which is part of
// the manifest, there is nothing to do.
func (r *CertificateReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var secret corev1.Secret
	if err := r.Get(ctx, req.NamespacedName, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("get Secret %s: %w", req.NamespacedName, err)
	}
	err := r.renewCertificates(ctx, &secret)
	if err == nil {
		err = r.publishAuthority(ctx, secret.Data[caCertificateKey])
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: checkInterval}, nil
}

// renewCertificates leaves an authority that is still good, so that a new serving certificate is trusted at once by whoever trusted
// the one before.
func (r *CertificateReconciler) renewCertificates(ctx context.Context, secret *corev1.Secret) error {
	maker := r.newRotator()
	authority, err := r.readAuthority(secret.Data)
	if err == nil && r.isGood(secret.Data[caCertificateKey], secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], maker.DNSName, maker.ExtKeyUsages) {
		return nil
	}
	now := r.Clock.Now()
	if err != nil {
		log.FromContext(ctx).Info("Creating a new CA for the webhooks", "reason", err.Error())
		if authority, err = maker.CreateCACert(now.Add(-startBefore), now.Add(caLifetime)); err != nil {
			return fmt.Errorf("create the webhooks' CA: %w", err)
		}
	}
	certificate, key, err := maker.CreateCertPEM(authority, now.Add(-startBefore), now.Add(serverLifetime))
	if err != nil {
		return fmt.Errorf("create the webhooks' certificate: %w", err)
	}
	before := client.MergeFromWithOptions(secret.DeepCopy(), client.MergeFromWithOptimisticLock{})
	secret.Data = map[string][]byte{
		caCertificateKey: authority.CertPEM, caPrivateKeyKey: authority.KeyPEM, corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key,
	}
	if err := r.Patch(ctx, secret, before, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	log.FromContext(ctx).Info("Renewed the webhooks' certificate", "until", now.Add(serverLifetime))
	return nil
}

// newRotator holds the names that certificates are made out to.
func (r *CertificateReconciler) newRotator() *rotator.CertRotator {
	return &rotator.CertRotator{
		CAName: caName, CAOrganization: organization, DNSName: fmt.Sprintf("%s.%s.svc", Name, r.ManagerNamespace),
		ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// readAuthority reads the authority out of the Secret, and says why it cannot be used any longer.
func (r *CertificateReconciler) readAuthority(data map[string][]byte) (*rotator.KeyPairArtifacts, error) {
	certificate, key := data[caCertificateKey], data[caPrivateKeyKey]
	if len(certificate) == 0 || len(key) == 0 {
		return nil, errors.New("there is none yet")
	}
	if !r.isGood(certificate, certificate, key, caName, nil) {
		return nil, errors.New("it is damaged or near its end")
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	private, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("its key is not an RSA key")
	}
	return &rotator.KeyPairArtifacts{Cert: pair.Leaf, Key: private, CertPEM: certificate, KeyPEM: key}, nil
}

// isGood says whether a certificate is right now and will be for a while.
func (r *CertificateReconciler) isGood(authority, certificate, key []byte, name string, usages *[]x509.ExtKeyUsage) bool {
	good, err := rotator.ValidCert(authority, certificate, key, name, usages, r.Clock.Now().Add(renewBefore))
	return err == nil && good
}

// publishAuthority has both configurations trust the authority. One that is not installed needs none.
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
	if err := r.Get(ctx, client.ObjectKey{Name: Name}, configuration); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
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
	var configs []*admissionregistrationv1.WebhookClientConfig
	switch c := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			configs = append(configs, &c.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			configs = append(configs, &c.Webhooks[i].ClientConfig)
		}
	}
	return configs
}
