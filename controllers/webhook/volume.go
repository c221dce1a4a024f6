package webhook

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/text"
)

// volumeHandler merges declared mount options into new PersistentVolumes, with the same evaluation as for existing ones.
type volumeHandler struct {
	reader  *snapshot.Reader
	decoder admission.Decoder
}

// Handle allows every volume: a rejection would be effective regardless of the failurePolicy. It leaves errors, and all but the first write of
// proven options, to the reconciler.
func (h *volumeHandler) Handle(ctx context.Context, req admission.Request) admission.Response {
	response := admission.Allowed("")
	patch, warning, err := h.patch(ctx, req)
	if warning != "" {
		response = response.WithWarnings(warning)
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Left a new PersistentVolume to the reconciler")
		volumesSeen.WithLabelValues(resultError).Inc()
		return response
	}
	if patch == nil {
		volumesSeen.WithLabelValues(resultUnchanged).Inc()
		return response
	}
	volumesSeen.WithLabelValues(resultMerged).Inc()
	response.Patch, response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	return response
}

// maxEvaluation limits the time until a canary is reserved: the API server waits for 2 s.
const maxEvaluation = time.Second

// patch returns nil for an unchanged volume, with a warning if its options are stopped or not proven yet. No pod depends on a new volume yet, so
// proven options wait for no batch.
func (h *volumeHandler) patch(ctx context.Context, req admission.Request) (patch []byte, warning string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if req.Operation != admissionv1.Create {
		return nil, "", nil
	}
	pv := &corev1.PersistentVolume{}
	if err := h.decoder.Decode(req, pv); err != nil {
		return nil, "", fmt.Errorf("decode PersistentVolume %s: %w", req.Name, err)
	}
	bounded, cancel := context.WithTimeout(ctx, maxEvaluation)
	defer cancel()
	verdict, leftOut, err := h.reader.EvaluateNew(bounded, pv, ptr.Deref(req.DryRun, false))
	if err != nil || leftOut != "" || verdict.Action != judge.ActionWrite {
		return nil, leftOut, err
	}
	log.FromContext(ctx).Info("Merged mount options into a new PersistentVolume", "dryRun", ptr.Deref(req.DryRun, false),
		"canary", verdict.IsCanary, "message", verdict.Message, "profiles", verdict.Profiles)
	return patchFor(pv, verdict, h.reader.Cluster()), "", nil
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patchFor builds the patch directly instead of comparing the volume with a changed copy. A comparison would drop fields that are newer than
// the Go types.
func patchFor(pv *corev1.PersistentVolume, v judge.Verdict, cluster types.UID) []byte {
	annotations := judge.AnnotationsOfCreation(v, cluster)
	operations := []operation{{Op: "add", Path: "/spec/mountOptions", Value: v.Options}}
	if pv.Annotations == nil {
		operations = append(operations, operation{Op: "add", Path: "/metadata/annotations", Value: annotations})
	} else {
		for key, value := range annotations {
			operations = append(operations, operation{Op: "add", Path: "/metadata/annotations/" + pointerEscapes.Replace(key), Value: value})
		}
	}
	return []byte(text.JSON(operations))
}

// pointerEscapes are the escapes of RFC 6901.
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// Results of a request for a new volume, as a label.
const (
	resultMerged    = "merged"
	resultUnchanged = "unchanged"
	resultError     = "error"
)

// volumesSeen counts the requests of all API servers. Each replica counts the requests that it handles.
var volumesSeen = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "storageclient_webhook_volumes_total",
	Help: "Admission requests for new PersistentVolumes, including dry runs: options merged, unchanged, or left to the reconciler after an error.",
}, []string{"result"})

func init() {
	metrics.Registry.MustRegister(volumesSeen)
	for _, result := range []string{resultMerged, resultUnchanged, resultError} {
		volumesSeen.WithLabelValues(result)
	}
}
