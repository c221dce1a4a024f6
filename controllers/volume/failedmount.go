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
)

const (
	// failedMountReason is the kubelet's for a volume that it could not mount for a pod.
	failedMountReason = "FailedMount"
	// maxNamespaces is up to how many namespaces are asked one by one, rather than the whole cluster at once.
	maxNamespaces = 8
	// eventsPerRequest and maxPodLookups bound what one look asks of the API server.
	eventsPerRequest = 500
	maxPodLookups    = 50
)

var (
	// namedVolume is how the kubelet names the volume: MountVolume.SetUp failed for volume "pv1".
	namedVolume = regexp.MustCompile(`volume "([^"]+)"`)
	// unmountedVolumes is how it names the pod's own volumes: unmounted volumes=[data], unattached volumes=[data token].
	unmountedVolumes = regexp.MustCompile(`unmounted volumes=\[([^\]]*)\]`)
	podUID           = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// claimKey is the claim of a volume that is bound.
func claimKey(pv *corev1.PersistentVolume) (types.NamespacedName, bool) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, true
}

// failedMounts are the texts of events that tell of a failed mount of a watched volume since its step began. Events are
// read live and with a field selector: they are too many to cache.
func failedMounts(ctx context.Context, reader client.Reader, volumes []judged) (map[string]string, error) {
	out := map[string]string{}
	if len(volumes) == 0 {
		return out, nil
	}
	all, err := failedMountEvents(ctx, reader, namespacesOf(volumes))
	if err != nil {
		return nil, err
	}
	before := failuresBefore(all)
	lookups := maxPodLookups
	for _, j := range volumes {
		for i := range all {
			e := &all[i]
			if _, known := out[j.pv.Name]; known || !mayConcern(e, j) || before.had(e, j.mark.Since) {
				continue
			}
			if !namedVolume.MatchString(e.Message) {
				if lookups--; lookups < 0 {
					continue
				}
				uses, err := podUses(ctx, reader, e, j.pv)
				if err != nil {
					return nil, err
				}
				if !uses {
					continue
				}
			}
			out[j.pv.Name] = failureText(e.Message)
		}
	}
	return out, nil
}

func namespacesOf(volumes []judged) []string {
	var out []string
	for _, j := range volumes {
		if claim, bound := claimKey(j.pv); bound {
			out = append(out, claim.Namespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func failedMountEvents(ctx context.Context, reader client.Reader, namespaces []string) ([]corev1.Event, error) {
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

// mayConcern says whether an event may tell of a volume's mount since its step began. One that was seen before does not
// count, however often it is seen again. One that names another volume is of that.
func mayConcern(e *corev1.Event, j judged) bool {
	claim, bound := claimKey(j.pv)
	if !bound || e.Reason != failedMountReason || e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.Namespace != claim.Namespace ||
		began(e).Before(j.mark.Since) {
		return false
	}
	named := namedVolume.FindAllStringSubmatch(e.Message, -1)
	return len(named) == 0 || slices.ContainsFunc(named, func(match []string) bool { return match[1] == j.pv.Name })
}

// began is when an event was first seen.
func began(e *corev1.Event) time.Time {
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

func failuresBefore(all []corev1.Event) failures {
	out := failures{}
	for i := range all {
		key := failureKey(&all[i])
		if first, known := out[key]; !known || began(&all[i]).Before(first) {
			out[key] = began(&all[i])
		}
	}
	return out
}

func (f failures) had(e *corev1.Event, since time.Time) bool { return f[failureKey(e)].Before(since) }

// failureKey leaves out which pod it was, where the text names the volume.
func failureKey(e *corev1.Event) string {
	key := e.InvolvedObject.Namespace + "/" + podUID.ReplaceAllString(e.Message, "")
	if !namedVolume.MatchString(e.Message) {
		key += "/" + e.InvolvedObject.Name
	}
	return key
}

// podUses asks whether the event's pod uses the volume, for a text that does not name it. A pod that is gone cannot be
// asked, and fails no more.
func podUses(ctx context.Context, reader client.Reader, e *corev1.Event, pv *corev1.PersistentVolume) (bool, error) {
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
	claim, _ := claimKey(pv)
	unmounted := unmountedVolumes.FindStringSubmatch(e.Message)
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		ours := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
			v.Ephemeral != nil && pod.Name+"-"+v.Name == claim.Name
		return ours && (len(unmounted) == 0 || slices.Contains(strings.Fields(unmounted[1]), v.Name))
	}), nil
}

// failureText is an event's message on one line, cut to what an annotation and a condition may carry.
func failureText(message string) string {
	text := strings.Join(strings.Fields(message), " ")
	return strings.ToValidUTF8(text[:min(maxFailureText, len(text))], "")
}
