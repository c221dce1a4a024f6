package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/webhook"
)

// webhookCalls is the number of webhook calls about new volumes.
const webhookCalls = 2000

// addWebhook adds the objects for which the manager keeps a certificate. No service of the sandbox leads to the manager, so the
// measurement calls the webhook directly.
func (w *world) addWebhook(ctx context.Context) error {
	var err error
	if w.webhookPort, err = freePort(ctx); err != nil {
		return err
	}
	for _, file := range []string{"config/webhook/secret.yaml", "config/webhook/service.yaml"} {
		if err := w.ApplyFile(ctx, filepath.Join(w.settings.Root, file)); err != nil {
			return err
		}
	}
	const name = "storage-client-webhook"
	unreachable := &metav1.LabelSelector{MatchLabels: map[string]string{"sandbox": "never"}}
	to := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: v1alpha1.ManagerNamespace, Name: name}}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}},
	}}
	none := ptr.To(admissionregistrationv1.SideEffectClassNone)
	for _, object := range []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "a.tuning.storageclient.dev", AdmissionReviewVersions: []string{"v1"}, ClientConfig: to, ObjectSelector: unreachable, Rules: rules, SideEffects: none,
		}}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "b.tuning.storageclient.dev", AdmissionReviewVersions: []string{"v1"}, ClientConfig: to, ObjectSelector: unreachable, Rules: rules, SideEffects: none,
		}}},
	} {
		if err := w.Client.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// askWebhook calls the webhook over HTTPS about new volumes, one after the other, and records the response times.
func (w *world) askWebhook(ctx context.Context) error {
	asker := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the certificate is for the service, which does not exist here
	}}
	if err := w.await(ctx, "the evidence for the volumes' options", func(ctx context.Context) (bool, error) {
		err := w.proveOptions(ctx)
		return err == nil, client.IgnoreAlreadyExists(retryConflict(err))
	}); err != nil {
		return err
	}
	if err := w.await(ctx, "the webhook to respond", func(ctx context.Context) (bool, error) {
		_, err := w.askOnce(ctx, asker, 0)
		return err == nil, nil
	}); err != nil {
		return err
	}
	var took []time.Duration
	for i := range webhookCalls {
		each, err := w.askOnce(ctx, asker, i)
		if err != nil {
			return err
		}
		took = append(took, each)
	}
	slices.Sort(took)
	w.Webhook = &latencies{Calls: webhookCalls, Median: milliseconds(took[len(took)/2]), P99: milliseconds(took[len(took)*99/100])}
	return nil
}

// proveOptions records a pod's mount with the options that volumes carry: the webhook adds only proven options.
func (w *world) proveOptions(ctx context.Context) error {
	var volumes corev1.PersistentVolumeList
	if err := w.Client.List(ctx, &volumes); err != nil {
		return err
	}
	var pages corev1.ConfigMapList
	if err := w.Client.List(ctx, &pages, client.InNamespace(v1alpha1.ManagerNamespace)); err != nil {
		return err
	}
	changes := ledger.Changes{}
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		mark := judge.MarkOf(pv)
		if mark == nil {
			continue
		}
		set := judge.SetOf(judge.SourceOf(pv), mark.Set, mark.RuleSet, mark.Rules)
		set.Next(optionset.Event{Kind: optionset.Mounted, Blame: optionset.Blame{Volume: pv.Name, Text: "a node has mounted " + pv.Name}})
		for key, value := range set.Encode() {
			changes[types.UID(key)] = ledger.KeepSet(value)
		}
	}
	writes, _ := new(ledger.Reader).Read(pages.Items).Apply(changes)
	for _, write := range writes {
		write.Page.Namespace = v1alpha1.ManagerNamespace
		if write.Page.ResourceVersion == "" {
			return w.Client.Create(ctx, write.Page)
		}
		if err := w.Client.Update(ctx, write.Page); err != nil {
			return err
		}
	}
	return nil
}

// retryConflict returns nil for a conflict with the manager, after which the next attempt reads again.
func retryConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (w *world) askOnce(ctx context.Context, asker *http.Client, i int) (time.Duration, error) {
	volume := volumeObject(i * 10)
	volume.Name, volume.APIVersion, volume.Kind = fmt.Sprintf("new-%05d", i), "v1", "PersistentVolume"
	object, err := json.Marshal(volume)
	if err != nil {
		return 0, err
	}
	review, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(volume.Name), Kind: metav1.GroupVersionKind{Version: "v1", Kind: "PersistentVolume"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, Name: volume.Name, Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("https://127.0.0.1:%d%s", w.webhookPort, webhook.VolumePath), bytes.NewReader(review))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := asker.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	took := time.Since(began)
	var reply admissionv1.AdmissionReview
	if err != nil || json.Unmarshal(body, &reply) != nil || reply.Response == nil || len(reply.Response.Patch) == 0 {
		return 0, fmt.Errorf("the webhook does not merge options into a new volume: %s, %s, %w", response.Status, body, err)
	}
	return took, nil
}
