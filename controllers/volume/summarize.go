package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/controllers/internal/read"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// Snapshot is what is known of all volumes at one time. Its objects are shared with the cache: read only.
type Snapshot struct {
	Volumes []corev1.PersistentVolume
	Claims  map[types.NamespacedName]*metav1.PartialObjectMetadata
	// Classes holds the mount options of each StorageClass.
	Classes  map[string][]string
	Profiles Profiles
}

// ReadSnapshot lists volumes, claims, classes and profiles. reader is the manager's cache; namespace is the manager's.
func ReadSnapshot(ctx context.Context, reader client.Reader, allow catalogue.AllowList, namespace string) (Snapshot, error) {
	return readSnapshot(ctx, reader, namespace, func(list []v1alpha1.StorageClientProfile, pausedAll bool) Profiles {
		return Compile(list, allow, pausedAll)
	})
}

type compiler func(list []v1alpha1.StorageClientProfile, pausedAll bool) Profiles

func readSnapshot(ctx context.Context, reader client.Reader, namespace string, compile compiler) (Snapshot, error) {
	s := Snapshot{Claims: map[types.NamespacedName]*metav1.PartialObjectMetadata{}, Classes: map[string][]string{}}
	var err error
	if s.Profiles, err = readProfiles(ctx, reader, namespace, compile); err != nil {
		return Snapshot{}, err
	}
	var volumes corev1.PersistentVolumeList
	if err := reader.List(ctx, &volumes, client.UnsafeDisableDeepCopy); err != nil {
		return Snapshot{}, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	s.Volumes = volumes.Items
	claims := metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := reader.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return Snapshot{}, fmt.Errorf("list PersistentVolumeClaims: %w", err)
	}
	for i := range claims.Items {
		s.Claims[client.ObjectKeyFromObject(&claims.Items[i])] = &claims.Items[i]
	}
	var classes storagev1.StorageClassList
	if err := reader.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return Snapshot{}, fmt.Errorf("list StorageClasses: %w", err)
	}
	for i := range classes.Items {
		s.Classes[classes.Items[i].Name] = classes.Items[i].MountOptions
	}
	return s, nil
}

func readProfiles(ctx context.Context, reader client.Reader, namespace string, compile compiler) (Profiles, error) {
	var profiles v1alpha1.StorageClientProfileList
	if err := reader.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return Profiles{}, fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	pausedAll, err := read.IsEverythingPaused(ctx, reader, namespace)
	if err != nil {
		return Profiles{}, err
	}
	return compile(profiles.Items, pausedAll), nil
}

// decide judges all volumes, each among the others of its server. Steps are left aside.
func (s Snapshot) decide() []Decision {
	decisions, all := make([]Decision, len(s.Volumes)), newServers()
	for i := range s.Volumes {
		decisions[i] = Decide(s.input(&s.Volumes[i]))
		all.put(&s.Volumes[i], decisions[i])
	}
	for i := range s.Volumes {
		decisions[i] = all.judge(&s.Volumes[i], decisions[i])
	}
	return decisions
}

func (s Snapshot) input(pv *corev1.PersistentVolume) Input {
	in := Input{Volume: pv, Class: s.Classes[pv.Spec.StorageClassName], Profiles: s.Profiles}
	if ref := pv.Spec.ClaimRef; ref != nil {
		in.Claim = s.Claims[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
	}
	return in
}

// Note tells why one volume stands where it stands.
type Note struct {
	Volume, Reason, Message string
}

// Volume is a volume that carries options of a profile.
type Volume struct {
	Name string
	// Wanted are the profile's options that stand in the volume's list.
	Wanted []string
}

// Summary is what a profile's status tells of its volumes.
type Summary struct {
	// Matched, UpToDate and Blocked are the counts of status.volumes. The rest of Matched is yet to be written, or held
	// by a pause.
	Matched, UpToDate, Blocked int32
	// BlockedExamples are the first three blocked volumes by name.
	BlockedExamples []Note
	// Unrestored are the names of the volumes that carry the profile in their annotation and have still to be put back.
	// Those that are left alone for good are not among them: the finalizer may go when the list is empty.
	Unrestored []string
	// Volumes are those that carry the profile's options, for StaleMounts.
	Volumes []Volume
	// Stopped says which volume could not be mounted, with what and why, so that no other volume gets the options; empty: none.
	Stopped string
	// Step says what the volumes that are yet to be written wait for; empty: nothing is known.
	Step string
	// Servers are the servers of the matched NFS volumes with what these ask of them, each combination once.
	Servers []advice.Server
}

// Conflict reports whether a volume is blocked, and a message that names at most three of them with their reasons.
func (s Summary) Conflict() (message string, conflict bool) {
	if s.Blocked == 0 {
		return "", false
	}
	var parts []string
	for _, n := range s.BlockedExamples {
		parts = append(parts, fmt.Sprintf("%s: %s: %s", n.Volume, n.Reason, n.Message))
	}
	message = strings.Join(parts, "; ")
	if more := int(s.Blocked) - len(parts); more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	return message, true
}

// Summarize judges all volumes for one profile, as Decide does for the reconciler. A profile that is paused or in
// mode Plan is judged as if it acted, so that its counts tell what it would find; one that is stalled or being deleted
// counts nothing.
func Summarize(name string, s Snapshot) Summary {
	const examples = 3
	var out Summary
	judged := s
	var differs bool
	judged.Profiles, differs = s.Profiles.acting(name)
	for i, d := range judged.decide() {
		pv := &s.Volumes[i]
		out.add(name, pv.Name, d)
		out.addServer(name, pv, d)
		if !refusalOf(pv).of(name) && !slices.Contains(CarriedProfiles(pv), name) {
			continue
		}
		if differs {
			d = Decide(s.input(pv))
		}
		if d.State == StatePending || d.State == StateHeld || d.Action == ActionRelease {
			out.Unrestored = append(out.Unrestored, pv.Name)
		}
	}
	out.addSteps(s.Profiles.get(name), s.Volumes)
	slices.Sort(out.Unrestored)
	slices.SortFunc(out.BlockedExamples, func(a, b Note) int { return strings.Compare(a.Volume, b.Volume) })
	out.BlockedExamples = out.BlockedExamples[:min(examples, len(out.BlockedExamples))]
	return out
}

// addSteps tells how the steps of an acting profile stand.
func (s *Summary) addSteps(p *profile, volumes []corev1.PersistentVolume) {
	if p == nil || p.leaving {
		return
	}
	var refused, last []string
	var since time.Time
	first := true
	for i := range volumes {
		pv := &volumes[i]
		if r := refusalOf(pv); r.refuses(p) {
			refused = append(refused, fmt.Sprintf("%s could not be mounted with %s", pv.Name, *r))
		}
		mark := markOf(pv)
		if mark == nil || mark.Rules[p.name] != p.rulesHash || !carriesOurs(pv) {
			continue
		}
		first = first && (since.IsZero() || since.Equal(mark.Since))
		if mark.Since.After(since) {
			since, last = mark.Since, nil
		}
		if mark.Since.Equal(since) {
			last = append(last, pv.Name)
		}
	}
	s.Stopped = text.Join(refused, "; ")
	if p.hold == nil && len(last) > 0 && s.Matched > s.UpToDate+s.Blocked {
		s.Step = soaking(last, first, since.Add(p.soak()))
	}
}

// addServer notes the server of a matched volume. Options count as they will stand once the profile is carried out.
func (s *Summary) addServer(profile string, pv *corev1.PersistentVolume, d Decision) {
	source := SourceOf(pv)
	if source.Server == "" || source.Protocol != v1alpha1.ProtocolNFS || !slices.Contains(d.Profiles, profile) {
		return
	}
	options := d.Options
	if d.Action == ActionNone {
		options = pv.Spec.MountOptions
	}
	transport := mountoptions.Transport(options)
	server := advice.Server{Name: source.Server, Version: transport.Version, Nconnect: transport.Nconnect}
	if !slices.Contains(s.Servers, server) {
		s.Servers = append(s.Servers, server)
	}
}

func (s *Summary) add(profile, volume string, d Decision) {
	if !slices.Contains(d.Profiles, profile) {
		return
	}
	s.Matched++
	switch d.State {
	case StateUpToDate:
		s.UpToDate++
		s.Volumes = append(s.Volumes, Volume{Name: volume, Wanted: d.Carried[profile]})
	case StateBlocked:
		s.Blocked++
		s.BlockedExamples = append(s.BlockedExamples, Note{Volume: volume, Reason: d.Reason, Message: d.Message})
	case StatePending, StateHeld, StateUnselected:
	}
}
