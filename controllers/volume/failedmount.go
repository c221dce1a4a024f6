package volume

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// failedMountReason is the kubelet's event reason for a volume that it could not mount for a pod. kubelet is its name as an event source.
	failedMountReason = "FailedMount"
	kubelet           = "kubelet"
	// maxNamespaces is the maximum number of namespaces to query individually. Beyond it, one query covers the whole cluster.
	maxNamespaces = 8
	// pageSize is the number of objects per page of a list. maxPodLookups is the maximum number of pods to read individually. Beyond it, their
	// whole namespace is read.
	pageSize      = 500
	maxPodLookups = 50
	// maxMessage is the maximum number of bytes read from an event's message, maxFailureText the maximum recorded from a relevant one.
	maxMessage     = 4096
	maxFailureText = 256
)

var (
	// namedVolume matches the volume in the kubelet's message: MountVolume.SetUp failed for volume "pv1".
	namedVolume = regexp.MustCompile(`volume "([^"]+)"`)
	// unmountedVolumes matches the pod's names of its volumes: unmounted volumes=[data], unattached volumes=[data token].
	unmountedVolumes = regexp.MustCompile(`unmounted volumes=\[([^\]]*)\]`)
	// varying matches the parts that differ between messages of one failure. These are the pod's UID, the mount options, the systemd unit of the
	// mount, and the prefix of combined events. It also matches the hint to dmesg(1), since a message may have no space for it.
	varying = regexp.MustCompile(`(?s)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|Mounting arguments: .*?(Output:|$)|run-[0-9a-z-]+\.scope|` +
		`^\(combined from similar events\): |\s*dmesg\(1\).*$`)
)

// failedMount holds the relevant fields of an event about a failed mount: there may be many.
type failedMount struct {
	pod    types.NamespacedName
	podUID types.UID
	// node is the node of the kubelet that the event names as its source.
	node string
	// last is the last failure by the kubelet's clock: only comparable with other times of that node.
	last time.Time
	// created, first and until are the event's creation, the first and the last failure, by the API server's clock.
	created, first, latest time.Time
	message                string
	// volumes are the volumes that the message names. unmounted are the pod's names of the volumes that it waits for.
	volumes, unmounted []string
	// failure is the same for all events of one failure. It excludes the pod if the message names the volume.
	failure string
}

// keepRecent drops failed mounts that concern none of the watched volumes, regardless of the pod.
func keepRecent(failedMounts []*failedMount, watched []plan.Watched) []*failedMount {
	starts, names := map[string]time.Time{}, sets.New[string]()
	for _, w := range watched {
		if volumeClaim, bound := judge.ClaimOf(w.Volume); bound {
			names.Insert(w.Volume.Name)
			start := w.Since
			if !w.Rewritten.IsZero() { // an older event may repeat
				start = time.Time{}
			}
			if first, known := starts[volumeClaim.Namespace]; !known || start.Before(first) {
				starts[volumeClaim.Namespace] = start
			}
		}
	}
	return slices.DeleteFunc(failedMounts, func(f *failedMount) bool {
		start, known := starts[f.pod.Namespace]
		return !known || f.first.Before(start) || len(f.volumes) > 0 && !names.HasAny(f.volumes...)
	})
}

func readFailedMounts(ctx context.Context, reader client.Reader, namespaces []string) ([]*failedMount, error) {
	if len(namespaces) > maxNamespaces {
		namespaces = []string{corev1.NamespaceAll}
	}
	var out []*failedMount
	for _, namespace := range namespaces {
		for token := ""; ; {
			var page corev1.EventList
			err := reader.List(ctx, &page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(token),
				client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("reason", failedMountReason)})
			if err != nil {
				return nil, fmt.Errorf("list events of failed mounts in namespace %q: %w", namespace, err)
			}
			for i := range page.Items {
				if f, ok := readFailedMount(&page.Items[i]); ok {
					out = append(out, f)
				}
			}
			if token = page.Continue; token == "" {
				break
			}
		}
	}
	return out, nil
}

// readFailedMount reads an event in the form of the kubelet's events: it concerns a pod of the same namespace by UID, and names a node
// (kubernetes cmd/kubelet/app/server.go: the source is the component kubelet on the host of the Node's name).
func readFailedMount(e *corev1.Event) (*failedMount, bool) {
	node, source := cmp.Or(e.Source.Host, e.ReportingInstance), cmp.Or(e.Source.Component, e.ReportingController)
	of := e.InvolvedObject
	// The API server does not validate the name, and a name that is a path is not valid in a request.
	if source != kubelet || node == "" || of.Kind != "Pod" || of.UID == "" || of.Namespace != e.Namespace || of.Name == "" ||
		len(content.IsPathSegmentName(of.Name)) > 0 {
		return nil, false
	}
	f := &failedMount{
		pod: types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, podUID: of.UID, node: node,
		last: lastSeen(e), created: e.CreationTimestamp.Time, message: strings.Clone(text.CutBytes(e.Message, maxMessage)),
	}
	f.setTimes(f.last.Sub(firstSeen(e)), e.ManagedFields)
	f.volumes = lists.Each(namedVolume.FindAllStringSubmatch(f.message, -1), func(match []string) string { return match[1] })
	if match := unmountedVolumes.FindStringSubmatch(f.message); len(match) > 0 {
		f.unmounted = append([]string{}, strings.Fields(match[1])...)
	}
	f.failure = of.Namespace + "/" + varying.ReplaceAllString(f.message, "")
	if len(f.volumes) == 0 {
		f.failure += "/" + of.Name
	}
	return f, true
}

// setTimes converts the time of the first and the last failure to the API server's clock: its time of the last update, and the duration of the
// failure by the kubelet's clock. A kubelet creates a deleted event again with the time of its first failure.
func (f *failedMount) setTimes(duration time.Duration, managers []metav1.ManagedFieldsEntry) {
	f.first, f.latest = f.created, f.created.Add(duration)
	var updated time.Time
	for _, entry := range managers {
		if entry.Time != nil && entry.Time.After(updated) {
			updated = entry.Time.Time
		}
	}
	if updated.IsZero() {
		return
	}
	f.latest = updated
	if first := updated.Add(-duration); first.Before(f.created.Add(-judge.ClockTolerance)) {
		f.first = first
	}
}

func firstSeen(e *corev1.Event) time.Time {
	return cmp.Or(e.FirstTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

func lastSeen(e *corev1.Event) time.Time {
	series := ptr.Deref(e.Series, corev1.EventSeries{})
	return slices.MaxFunc([]time.Time{firstSeen(e), e.LastTimestamp.Time, series.LastObservedTime.Time}, time.Time.Compare)
}

// mayConcern reports whether an event may concern a volume's mount since its batch started. existed is the time of the first event of its failure: if
// that was earlier, the failure has another cause, even if it repeats. Exception: earlier options of the operator may be the cause. The failure then
// counts once a kubelet must have read the volume since the write. An event that names another volume concerns that one.
func (f *failedMount) mayConcern(w plan.Watched, existed time.Time) bool {
	isNew := !f.first.Before(w.Since) && !existed.Before(w.Since)
	isSame := !w.Rewritten.IsZero() && !f.latest.Before(w.Rewritten.Add(retryWithin))
	return (isNew || isSame) && (len(f.volumes) == 0 || slices.Contains(f.volumes, w.Volume.Name))
}

// findFailures returns the time of the first event of each failure. The same text for another pod is the same failure.
func findFailures(failedMounts []*failedMount) map[string]time.Time {
	out := map[string]time.Time{}
	for _, f := range failedMounts {
		if first, known := out[f.failure]; !known || f.created.Before(first) {
			out[f.failure] = f.created
		}
	}
	return out
}

// kindOn returns an identifier that all events of one failure share, for any volume and any pod.
func (f *failedMount) kindOn(pv *corev1.PersistentVolume) string {
	return text.Hash(strings.ReplaceAll(varying.ReplaceAllString(f.message, ""), pv.Name, ""), 6)
}

// failureText returns an event's message in a form that is valid for an annotation and a condition.
func failureText(message string) string {
	return text.CutBytes(text.Line(mountfailures.Brief(message)), maxFailureText)
}

func compareKeys(a, b types.NamespacedName) int {
	return strings.Compare(a.String(), b.String())
}
