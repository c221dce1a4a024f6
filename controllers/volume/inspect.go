package volume

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// failedMountReason is the kubelet's for a volume that it could not mount for a pod.
	failedMountReason = "FailedMount"
	// maxNamespaces is up to how many namespaces are asked one by one, rather than the whole cluster at once.
	maxNamespaces = 8
	// eventsPerRequest and maxPodLookups bound what one inspection asks of the API server.
	eventsPerRequest = 500
	maxPodLookups    = 50
	// maxFailureText is how many bytes of a FailedMount event's message are kept.
	maxFailureText = 256
)

var (
	// namedVolume is how the kubelet names the volume: MountVolume.SetUp failed for volume "pv1".
	namedVolume = regexp.MustCompile(`volume "([^"]+)"`)
	// unmountedVolumes is how it names the pod's own volumes: unmounted volumes=[data], unattached volumes=[data token].
	unmountedVolumes = regexp.MustCompile(`unmounted volumes=\[([^\]]*)\]`)
	podUID           = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// volumeClaimKey is the PersistentVolumeClaim of a volume that is bound.
func volumeClaimKey(pv *corev1.PersistentVolume) (types.NamespacedName, bool) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, true
}

// inspectFailedMounts returns the texts of events that tell of a failed mount of a watched volume since its batch began. Events are
// read live and with a field selector: they are too many to cache.
func inspectFailedMounts(ctx context.Context, reader client.Reader, watched []plan.Watched) (map[string]string, error) {
	out := map[string]string{}
	if len(watched) == 0 {
		return out, nil
	}
	all, err := listFailedMountEvents(ctx, reader, namespacesOf(watched))
	if err != nil {
		return nil, err
	}
	before := findFailures(all)
	lookups := maxPodLookups
	for _, w := range watched {
		for i := range all {
			e := &all[i]
			if _, known := out[w.Volume.Name]; known || !mayConcern(e, w) || before.hasSeen(e, w.Since) {
				continue
			}
			if !namedVolume.MatchString(e.Message) {
				if lookups--; lookups < 0 {
					continue
				}
				uses, err := doesPodUse(ctx, reader, e, w.Volume)
				if err != nil {
					return nil, err
				}
				if !uses {
					continue
				}
			}
			out[w.Volume.Name] = failureText(e.Message)
		}
	}
	return out, nil
}

func namespacesOf(watched []plan.Watched) []string {
	var out []string
	for _, w := range watched {
		if volumeClaim, bound := volumeClaimKey(w.Volume); bound {
			out = append(out, volumeClaim.Namespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func listFailedMountEvents(ctx context.Context, reader client.Reader, namespaces []string) ([]corev1.Event, error) {
	if len(namespaces) > maxNamespaces {
		namespaces = []string{corev1.NamespaceAll}
	}
	var out []corev1.Event
	for _, namespace := range namespaces {
		for token := ""; ; {
			var page corev1.EventList
			err := reader.List(ctx, &page, client.InNamespace(namespace), client.Limit(eventsPerRequest), client.Continue(token),
				client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("reason", failedMountReason)})
			if err != nil {
				return nil, fmt.Errorf("list events of failed mounts in namespace %q: %w", namespace, err)
			}
			out = append(out, page.Items...)
			if token = page.Continue; token == "" {
				break
			}
		}
	}
	return out, nil
}

// mayConcern says whether an event may tell of a volume's mount since its batch began. One that was seen before does not
// count, however often it is seen again. One that names another volume is of that.
func mayConcern(e *corev1.Event, w plan.Watched) bool {
	volumeClaim, bound := volumeClaimKey(w.Volume)
	if !bound || e.Reason != failedMountReason || e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.Namespace != volumeClaim.Namespace ||
		firstSeen(e).Before(w.Since) {
		return false
	}
	named := namedVolume.FindAllStringSubmatch(e.Message, -1)
	return len(named) == 0 || slices.ContainsFunc(named, func(match []string) bool { return match[1] == w.Volume.Name })
}

// firstSeen is when an event was first seen.
func firstSeen(e *corev1.Event) time.Time {
	switch {
	case !e.FirstTimestamp.IsZero():
		return e.FirstTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// failures knows when each failure was first seen: the same text for another pod is the same failure, and one that was
// there before a write is not the write's fault.
type failures map[string]time.Time

func findFailures(all []corev1.Event) failures {
	out := failures{}
	for i := range all {
		key := keyOf(&all[i])
		if first, known := out[key]; !known || firstSeen(&all[i]).Before(first) {
			out[key] = firstSeen(&all[i])
		}
	}
	return out
}

func (f failures) hasSeen(e *corev1.Event, since time.Time) bool { return f[keyOf(e)].Before(since) }

// keyOf leaves out which pod it was, where the text names the volume.
func keyOf(e *corev1.Event) string {
	key := e.InvolvedObject.Namespace + "/" + podUID.ReplaceAllString(e.Message, "")
	if !namedVolume.MatchString(e.Message) {
		key += "/" + e.InvolvedObject.Name
	}
	return key
}

// doesPodUse asks whether the event's pod uses the volume, for a text that does not name it. A pod that is gone cannot be
// asked, and fails no more.
func doesPodUse(ctx context.Context, reader client.Reader, e *corev1.Event, pv *corev1.PersistentVolume) (bool, error) {
	var pod corev1.Pod
	key := types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
	if err := reader.Get(ctx, key, &pod); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("get Pod %s: %w", key, err)
	}
	if e.InvolvedObject.UID != "" && e.InvolvedObject.UID != pod.UID {
		return false, nil
	}
	volumeClaim, _ := volumeClaimKey(pv)
	unmounted := unmountedVolumes.FindStringSubmatch(e.Message)
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		ours := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == volumeClaim.Name ||
			v.Ephemeral != nil && pod.Name+"-"+v.Name == volumeClaim.Name
		return ours && (len(unmounted) == 0 || slices.Contains(strings.Fields(unmounted[1]), v.Name))
	}), nil
}

// failureText is an event's message on one line, cut to what an annotation and a condition may carry.
func failureText(message string) string {
	return text.CutBytes(strings.Join(strings.Fields(message), " "), maxFailureText)
}
