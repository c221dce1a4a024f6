package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// office contains a CertificateReconciler and its test environment.
type office struct {
	*CertificateReconciler
	t       *testing.T
	clock   *testclock.FakePassiveClock
	patches int
}

var day = 24 * time.Hour

func newOffice(t *testing.T, objects ...client.Object) *office {
	o := &office{t: t, clock: testclock.NewFakePassiveClock(time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC))}
	counting := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, p client.Patch, opts ...client.PatchOption) error {
		o.patches++
		return c.Patch(ctx, object, p, opts...)
	}}
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).WithInterceptorFuncs(counting).Build()
	o.CertificateReconciler = &CertificateReconciler{Client: c, Clock: o.clock}
	return o
}

func emptySecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: Name}}
}

func configurations() []client.Object {
	meta := metav1.ObjectMeta{Name: Name}
	return []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "a.b.c"}}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "d.e.f"}, {Name: "g.h.i"}}},
	}
}

func (o *office) reconcile() ctrl.Result {
	o.t.Helper()
	result, err := o.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(emptySecret())})
	if err != nil {
		o.t.Fatal(err)
	}
	return result
}

func (o *office) secret() map[string][]byte {
	o.t.Helper()
	secret := emptySecret()
	if err := o.Get(context.Background(), client.ObjectKeyFromObject(secret), secret); err != nil {
		o.t.Fatal(err)
	}
	return secret.Data
}

// trusted returns the CA bundles of the webhook configurations.
func (o *office) trusted() [][]byte {
	o.t.Helper()
	var bundles [][]byte
	for _, c := range configurations() {
		if err := o.Get(context.Background(), client.ObjectKeyFromObject(c), c); err != nil {
			o.t.Fatal(err)
		}
		for _, config := range clientConfigs(c) {
			bundles = append(bundles, config.CABundle)
		}
	}
	return bundles
}

func TestCertificatesAreCreatedAndPublished(t *testing.T) {
	o := newOffice(t, append(configurations(), emptySecret())...)
	if result := o.reconcile(); result.RequeueAfter != checkInterval {
		t.Errorf("got the next check after %s, want %s", result.RequeueAfter, checkInterval)
	}
	data := o.secret()
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	check.NoError(t, err)
	for i, bundle := range o.trusted() {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(bundle) {
			t.Fatalf("got no CA bundle in webhook %d", i)
		}
		for _, now := range []time.Time{o.clock.Now().Add(-time.Minute), o.clock.Now().Add(364 * day)} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "storage-client-webhook.storage-client-system.svc", CurrentTime: now}); err != nil {
				t.Errorf("webhook %d at %s: %v", i, now, err)
			}
		}
	}
	o.reconcile()
	if o.patches != 3 {
		t.Errorf("got %d patches, want one for each object, and none in the second pass", o.patches)
	}
}

func TestCertificatesAreRenewedInTime(t *testing.T) {
	for name, test := range map[string]struct {
		after                   time.Duration
		damage                  func(data map[string][]byte)
		newServer, newAuthority bool
	}{
		"a young one stays":                            {after: 270 * day},
		"an old one goes, the authority stays":         {after: 280 * day, newServer: true},
		"an old authority goes with what it signed":    {after: 10*365*day - 80*day, newServer: true, newAuthority: true},
		"a lost key is replaced":                       {damage: func(d map[string][]byte) { delete(d, "tls.key") }, newServer: true},
		"a foreign certificate is replaced":            {damage: func(d map[string][]byte) { d["tls.crt"], d["tls.key"] = d["ca.crt"], d["ca.key"] }, newServer: true},
		"a lost authority is replaced":                 {damage: func(d map[string][]byte) { delete(d, "ca.key") }, newServer: true, newAuthority: true},
		"an authority that cannot be read is replaced": {damage: func(d map[string][]byte) { d["ca.crt"] = []byte("x") }, newServer: true, newAuthority: true},
		"an authority with another's key is replaced":  {damage: func(d map[string][]byte) { d["ca.key"] = d["tls.key"] }, newServer: true, newAuthority: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t, append(configurations(), emptySecret())...)
			o.reconcile()
			before := o.secret()
			if test.damage != nil {
				damaged := emptySecret()
				check.NoError(t, o.Get(context.Background(), client.ObjectKeyFromObject(damaged), damaged))
				test.damage(damaged.Data)
				check.NoError(t, o.Update(context.Background(), damaged))
			}
			o.clock.SetTime(o.clock.Now().Add(test.after))
			o.reconcile()
			after := o.secret()
			check.Equal(t, "new certificate", test.newServer, !bytes.Equal(before["tls.crt"], after["tls.crt"]))
			if changed := !bytes.Equal(before["ca.crt"], after["ca.crt"]); changed != test.newAuthority {
				t.Errorf("got a new authority %t, want %t", changed, test.newAuthority)
			}
			for _, bundle := range o.trusted() {
				if diff := cmp.Diff(string(after["ca.crt"]), string(bundle)); diff != "" {
					t.Errorf("got another authority in a webhook:\n%s", diff)
				}
			}
		})
	}
}

func TestCertificatesWithoutSecretOrConfigurations(t *testing.T) {
	o := newOffice(t, configurations()...)
	if result := o.reconcile(); result.RequeueAfter != 0 || o.patches != 0 {
		t.Errorf("without the Secret: got %+v, %d patches", result, o.patches)
	}
	o = newOffice(t, emptySecret())
	o.reconcile()
	if len(o.secret()["tls.crt"]) == 0 {
		t.Error("without configurations no certificate is made")
	}
}

func TestCertificatesAreRetriedAfterAConflict(t *testing.T) {
	o := newOffice(t, emptySecret())
	conflict := apierrors.NewConflict(corev1.Resource("secrets"), Name, errors.New("changed"))
	o.Client = interceptor.NewClient(o.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return conflict
		},
	})
	if result := o.reconcile(); result.RequeueAfter != conflictRetry {
		t.Errorf("got requeued after %s, want %s", result.RequeueAfter, conflictRetry)
	}
}
