package volume

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// failedMountReason is the kubelet's for a volume that it could not mount for a pod, kubelet its name as an event's source.
	failedMountReason = "FailedMount"
	kubelet           = "kubelet"
	// maxNamespaces is up to how many namespaces are asked one by one, rather than the whole cluster at once.
	maxNamespaces = 8
	// pageSize is how many objects of a list are read at a time, maxPodLookups up to how many pods are read one by one rather than
	// with all of their namespace.
	pageSize      = 500
	maxPodLookups = 50
	// maxMessage is how many bytes of an event's message are read, maxFailureText how many are kept of one that counts.
	maxMessage     = 4096
	maxFailureText = 256
)

var (
	// namedVolume is how the kubelet names the volume: MountVolume.SetUp failed for volume "pv1".
	namedVolume = regexp.MustCompile(`volume "([^"]+)"`)
	// unmountedVolumes is how it names the pod's own volumes: unmounted volumes=[data], unattached volumes=[data token].
	unmountedVolumes = regexp.MustCompile(`unmounted volumes=\[([^\]]*)\]`)
	// varying is what differs between texts of one failure: the pod's UID, the list that was tried, the unit in which a kubelet has systemd run
	// mount, what is said of many texts, and where to read on, which a text may have no room for.
	varying = regexp.MustCompile(`(?s)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|Mounting arguments: .*?(Output:|$)|run-[0-9a-z-]+\.scope|^\(combined from similar events\): |\s*dmesg\(1\).*$`)
)

// failedMount is what is kept of an event that tells of a failed mount: there may be many.
type failedMount struct {
	pod    types.NamespacedName
	podUID types.UID
	// node is where the kubelet runs that the event says it is from.
	node        string
	first, last time.Time
	// told is from when on the API server has the event, which only the server writes.
	told    time.Time
	message string
	// volumes are those that the message names; unmounted are the pod's own names of those that it waits for.
	volumes, unmounted []string
	// failure is the same for all events of one failure: which pod it was is left out, where the message names the volume.
	failure string
}

// volumeClaimKey is the PersistentVolumeClaim of a volume that is bound.
func volumeClaimKey(pv *corev1.PersistentVolume) (types.NamespacedName, bool) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, true
}

// inspectFailedMounts returns the failed mounts of watched volumes since they got their lists, as far as events do not put them down to
// something else than the options. Events are read live and with a field selector: they are too many to cache. Which are believed, see
// witnesses.
func inspectFailedMounts(ctx context.Context, reader client.Reader, watched []plan.Watched) (map[string]plan.Failure, error) {
	out := map[string]plan.Failure{}
	if len(watched) == 0 {
		return out, nil
	}
	told, err := readFailedMounts(ctx, reader, namespacesOf(watched))
	if err != nil {
		return nil, err
	}
	before := findFailures(told)
	asksOtherwise := slices.ContainsFunc(watched, func(w plan.Watched) bool { return w.AsksOtherwise })
	told = slices.DeleteFunc(keepRecent(told, watched), func(f *failedMount) bool {
		return mountfailures.CauseOf(f.message, asksOtherwise) == mountfailures.Elsewhere
	})
	w, err := askPods(ctx, reader, told)
	if err != nil {
		return nil, err
	}
	byClaim := groupByClaim(watched)
	for _, f := range told {
		for _, volume := range w.volumesOf(f.pod, byClaim) {
			known, found := out[volume.Volume.Name]
			cause := mountfailures.CauseOf(f.message, volume.AsksOtherwise)
			switch {
			case cause == mountfailures.Elsewhere, found && (known.SpeaksOfOptions || cause == mountfailures.Unknown),
				!f.mayConcern(volume), before[f.failure].Before(volume.Since):
				continue
			}
			confirmed, err := w.confirm(ctx, f, volume.Volume)
			if err != nil {
				return nil, err
			}
			if confirmed {
				out[volume.Volume.Name] = plan.Failure{Text: failureText(f.message), Kind: f.kindOn(volume.Volume), SpeaksOfOptions: cause == mountfailures.Options}
			}
		}
	}
	return out, nil
}

// keepRecent leaves out what is of none of the watched volumes, whichever pod tells of it.
func keepRecent(told []*failedMount, watched []plan.Watched) []*failedMount {
	begins, names := map[string]time.Time{}, sets.New[string]()
	for _, w := range watched {
		if volumeClaim, bound := volumeClaimKey(w.Volume); bound {
			names.Insert(w.Volume.Name)
			if first, known := begins[volumeClaim.Namespace]; !known || w.Since.Before(first) {
				begins[volumeClaim.Namespace] = w.Since
			}
		}
	}
	return slices.DeleteFunc(told, func(f *failedMount) bool {
		since, known := begins[f.pod.Namespace]
		return !known || f.first.Before(since) || len(f.volumes) > 0 && !names.HasAny(f.volumes...)
	})
}

func groupByClaim(watched []plan.Watched) map[types.NamespacedName][]plan.Watched {
	out := map[types.NamespacedName][]plan.Watched{}
	for _, w := range watched {
		if volumeClaim, bound := volumeClaimKey(w.Volume); bound {
			out[volumeClaim] = append(out[volumeClaim], w)
		}
	}
	return out
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

// readFailedMount reads an event that has the form of a kubelet's: of a pod of its own namespace by its UID, and from a node
// (kubernetes cmd/kubelet/app/server.go: the source is the component kubelet on the host of the Node's name).
func readFailedMount(e *corev1.Event) (*failedMount, bool) {
	node, source := cmp.Or(e.Source.Host, e.ReportingInstance), cmp.Or(e.Source.Component, e.ReportingController)
	of := e.InvolvedObject
	// The API server does not check the name, and no request can be made for one that is a path.
	if source != kubelet || node == "" || of.Kind != "Pod" || of.UID == "" || of.Namespace != e.Namespace || of.Name == "" ||
		len(content.IsPathSegmentName(of.Name)) > 0 {
		return nil, false
	}
	f := &failedMount{
		pod: types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, podUID: of.UID, node: node,
		first: firstSeen(e), last: lastSeen(e), message: strings.Clone(text.CutBytes(e.Message, maxMessage)),
	}
	f.told = f.first
	if e.CreationTimestamp.After(f.told) {
		f.told = e.CreationTimestamp.Time
	}
	for _, match := range namedVolume.FindAllStringSubmatch(f.message, -1) {
		f.volumes = append(f.volumes, match[1])
	}
	if match := unmountedVolumes.FindStringSubmatch(f.message); len(match) > 0 {
		f.unmounted = append([]string{}, strings.Fields(match[1])...)
	}
	f.failure = of.Namespace + "/" + varying.ReplaceAllString(f.message, "")
	if len(f.volumes) == 0 {
		f.failure += "/" + of.Name
	}
	return f, true
}

func firstSeen(e *corev1.Event) time.Time {
	switch {
	case !e.FirstTimestamp.IsZero():
		return e.FirstTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func lastSeen(e *corev1.Event) time.Time {
	last := firstSeen(e)
	if e.LastTimestamp.After(last) {
		last = e.LastTimestamp.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// mayConcern says whether an event may tell of a volume's mount since its batch began. One that was seen before does not
// count, however often it is seen again. One that names another volume is of that.
func (f *failedMount) mayConcern(w plan.Watched) bool {
	return !f.first.Before(w.Since) && (len(f.volumes) == 0 || slices.Contains(f.volumes, w.Volume.Name))
}

// failures knows when each failure was first told: the same text for another pod is the same failure, and one that was
// there before a write is not the write's fault.
type failures map[string]time.Time

func findFailures(told []*failedMount) failures {
	out := failures{}
	for _, f := range told {
		if first, known := out[f.failure]; !known || f.told.Before(first) {
			out[f.failure] = f.told
		}
	}
	return out
}

// kindOn is the same for all events of one failure of a volume and of others, whichever pod they are of.
func (f *failedMount) kindOn(pv *corev1.PersistentVolume) string {
	sum := sha256.Sum256([]byte(strings.ReplaceAll(varying.ReplaceAllString(f.message, ""), pv.Name, "")))
	return hex.EncodeToString(sum[:6])
}

// failureText is an event's message as an annotation and a condition may carry it.
func failureText(message string) string {
	return text.CutBytes(text.Line(mountfailures.Brief(message)), maxFailureText)
}
