// Package snapshot reads the input of verdicts on volumes from the manager's cache. Its users are the volume controller, the status of
// profiles, the specs of nodes, and the webhook.
package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list;watch

// Reader reads snapshots.
type Reader struct {
	// Reader is the manager's client, which reads its own writes, or its cache. A writer of the ledger must use the client: the cache may show the
	// restore of a volume before the removal of its ledger entry. That would look like a replaced volume.
	client.Reader
	// Allow holds the parameters that are accepted beyond the catalogue.
	Allow catalogue.AllowList
	// Probes returns the results of probes. Nil disables probes.
	Probes func() map[plan.ProbeKey]plan.Probe
	// VolumeIndex returns all volumes as cached by KeepCached. If it is nil or returns nil, they are listed for each new volume.
	VolumeIndex func() *judge.VolumeIndex
	// Reserver creates the reservations of new volumes that are canaries. Nil disables them.
	Reserver client.Writer
	// Memory caches results of earlier snapshots. Readers of the same input share it. Nil disables the cache of verdicts.
	Memory *Memory

	defaultMemory Memory
	ledger        ledger.Reader
}

// Memory caches results of earlier snapshots: compiled profiles, and the verdict on each volume. It is safe for concurrent use.
type Memory struct {
	// Cluster is the UID of the cluster, for the marks on volumes. Empty if it is unknown. It is set before the first use.
	Cluster types.UID

	compiler judge.Compiler
	verdicts *judge.Memory
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{verdicts: &judge.Memory{}} }

func (r *Reader) memory() *Memory { return cmp.Or(r.Memory, &r.defaultMemory) }

// Read lists volumes, the ledger, PersistentVolumeClaims, classes and profiles.
func (r *Reader) Read(ctx context.Context) (plan.Snapshot, error) {
	s := plan.Snapshot{Memory: r.memory().verdicts, Cluster: r.memory().Cluster}
	var err error
	if s.Classes, err = r.readClasses(ctx); err != nil {
		return plan.Snapshot{}, err
	}
	if s.Profiles, err = r.readProfiles(ctx, s.Classes); err != nil {
		return plan.Snapshot{}, err
	}
	if s.Volumes, err = ListVolumes(ctx, r.Reader); err != nil {
		return plan.Snapshot{}, err
	}
	// Users of the plugin may lack the right to read ConfigMaps: they only see the annotations.
	if s.Ledger, err = r.ReadLedger(ctx, r.Reader); err != nil && !apierrors.IsForbidden(err) {
		return plan.Snapshot{}, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	volumeClaims, err := objects.All[*metav1.PartialObjectMetadata](ctx, r.Reader, list)
	if err != nil {
		return plan.Snapshot{}, fmt.Errorf("list PersistentVolumeClaims: %w", err)
	}
	s.VolumeClaims = lists.Map(volumeClaims, func(volumeClaim *metav1.PartialObjectMetadata) (types.NamespacedName, *metav1.PartialObjectMetadata) {
		return client.ObjectKeyFromObject(volumeClaim), volumeClaim
	})
	if r.Probes != nil {
		s.Probes = r.Probes()
	}
	return s, nil
}

// ReadLedger reads the ledger, the second copy of the volumes' records.
func (r *Reader) ReadLedger(ctx context.Context, reader client.Reader) (*ledger.Ledger, error) {
	var pages corev1.ConfigMapList
	if err := reader.List(ctx, &pages, client.InNamespace(v1alpha1.ManagerNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ConfigMaps in namespace %s: %w", v1alpha1.ManagerNamespace, err)
	}
	return r.ledger.Read(pages.Items), nil
}

// ListVolumes lists all volumes. It shares them with the cache if the reader is a cache.
func ListVolumes(ctx context.Context, reader client.Reader) ([]*corev1.PersistentVolume, error) {
	volumes, err := objects.All[*corev1.PersistentVolume](ctx, reader, &corev1.PersistentVolumeList{})
	if err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	return volumes, nil
}

// Cluster returns the UID of the cluster. Empty if it is unknown.
func (r *Reader) Cluster() types.UID { return r.memory().Cluster }

// EvaluateNew evaluates a volume that does not exist yet. leftOut explains why it does not get its options. Empty if it gets them: they are proven, or
// the volume is reserved as their canary. A dry run reserves nothing. It reads other volumes only if its options would change.
func (r *Reader) EvaluateNew(ctx context.Context, pv *corev1.PersistentVolume, isDryRun bool) (v judge.Verdict, leftOut string, err error) {
	classes, err := r.readClasses(ctx)
	if err != nil {
		return judge.Verdict{}, "", err
	}
	profiles, err := r.readProfiles(ctx, classes)
	if err != nil {
		return judge.Verdict{}, "", err
	}
	in := judge.Input{Volume: pv, Profiles: profiles}
	if in.VolumeClaim, err = r.readVolumeClaim(ctx, pv); err != nil {
		return judge.Verdict{}, "", err
	}
	in.Class, in.HasClass = classes[pv.Spec.StorageClassName]
	evaluation := judge.Evaluate(in)
	if evaluation.Verdict.Action != judge.ActionWrite {
		return evaluation.Verdict, "", nil
	}
	index, err := r.readVolumeIndex(ctx)
	if err != nil {
		return judge.Verdict{}, "", err
	}
	var pages corev1.ConfigMapList
	if err := r.List(ctx, &pages, client.InNamespace(v1alpha1.ManagerNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return judge.Verdict{}, "", fmt.Errorf("list ConfigMaps in namespace %s: %w", v1alpha1.ManagerNamespace, err)
	}
	v, leftOut, isUnproven := judge.EvaluateNew(evaluation, index, func(set, server string) *optionset.Record {
		return optionset.Decode(ledger.FindSets(pages.Items, optionset.Keys(set, server)))[set]
	})
	if isUnproven && pv.Name != "" && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID != "" {
		isProbed := plan.MayProbeNew(profiles, pv, v)
		mayCreate := !isDryRun && r.Reserver != nil && !index.HasSource(v.Set) && !isProbed
		if v.IsCanary, err = r.reserve(ctx, pv, v.Set, pages.Items, index, mayCreate); v.IsCanary {
			leftOut = ""
		}
	}
	return v, leftOut, err
}

// reserve reports whether a new volume has its reservation, from now on or since an earlier attempt to create the volume. It evaluates all volumes
// unless a known volume can give evidence.
func (r *Reader) reserve(
	ctx context.Context, pv *corev1.PersistentVolume, set string, objects []corev1.ConfigMap, index *judge.VolumeIndex, mayCreate bool,
) (bool, error) {
	reservation := judge.ReservationFor(pv, set)
	for _, known := range ledger.ReservationsIn(objects) {
		if known.Data["set"] == set {
			return maps.Equal(known.Data, reservation.Data), nil
		}
	}
	if !mayCreate {
		return false, nil
	}
	s, err := r.Read(ctx)
	if err != nil {
		return false, err
	}
	if source := plan.SourceOfEvidence(s, set); source != "" {
		index.NoteSource(set, source)
		return false, nil
	}
	err = r.Reserver.Create(ctx, reservation, client.FieldOwner(v1alpha1.ManagerFieldManager))
	return err == nil, client.IgnoreAlreadyExists(err)
}

func (r *Reader) readVolumeIndex(ctx context.Context) (*judge.VolumeIndex, error) {
	if r.VolumeIndex != nil {
		if cached := r.VolumeIndex(); cached != nil {
			return cached, nil
		}
	}
	volumes, err := ListVolumes(ctx, r.Reader)
	return judge.NewVolumeIndex(volumes), err
}

func (r *Reader) readClasses(ctx context.Context) (map[string][]string, error) {
	var classes storagev1.StorageClassList
	if err := r.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list StorageClasses: %w", err)
	}
	optionsOf := func(class *storagev1.StorageClass) (string, []string) { return class.Name, class.MountOptions }
	return lists.Map(lists.Pointers(classes.Items), optionsOf), nil
}

// readVolumeClaim reads the PersistentVolumeClaim that a volume names. Nil if there is none.
func (r *Reader) readVolumeClaim(ctx context.Context, pv *corev1.PersistentVolume) (*metav1.PartialObjectMetadata, error) {
	key, named := judge.ClaimOf(pv)
	if !named {
		return nil, nil
	}
	volumeClaim := VolumeClaimMetadata()
	if found, err := read.Find(ctx, r.Reader, key, volumeClaim); !found {
		return nil, err
	}
	return volumeClaim, nil
}

func (r *Reader) readProfiles(ctx context.Context, classes map[string][]string) (*judge.Profiles, error) {
	profiles, err := read.Profiles(ctx, r)
	if err != nil {
		return nil, err
	}
	pausedAll, _, err := read.IsEverythingPaused(ctx, r.Reader)
	if err != nil {
		return nil, err
	}
	return r.memory().compiler.Compile(profiles, r.Allow, pausedAll, classes), nil
}

// KeepCached starts the informers for all objects that a Reader reads. Otherwise a replica that is not the leader runs no controllers, and its
// cache would fill only at the first request. The returned function returns all volumes for the evaluation of new ones. Nil until all are
// known.
func KeepCached(ctx context.Context, informers cache.Informers) (func() *judge.VolumeIndex, error) {
	for _, object := range []client.Object{
		&v1alpha1.StorageClientProfile{}, &corev1.Namespace{}, &storagev1.StorageClass{}, VolumeClaimMetadata(), &corev1.ConfigMap{},
	} {
		if _, err := informers.GetInformer(ctx, object); err != nil {
			return nil, fmt.Errorf("cache %T: %w", object, err)
		}
	}
	volumes, err := informers.GetInformer(ctx, &corev1.PersistentVolume{})
	if err != nil {
		return nil, fmt.Errorf("cache PersistentVolumes: %w", err)
	}
	index := judge.NewVolumeIndex(nil)
	registration, err := volumes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { updateVolume(index, object) },
		UpdateFunc: func(_, object any) { updateVolume(index, object) },
		DeleteFunc: func(object any) {
			if name, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
				index.Remove(name.Name)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch PersistentVolumes: %w", err)
	}
	return func() *judge.VolumeIndex {
		if !registration.HasSynced() {
			return nil
		}
		return index
	}, nil
}

func updateVolume(index *judge.VolumeIndex, object any) {
	if pv, ok := object.(*corev1.PersistentVolume); ok {
		index.Update(pv)
	}
}

// VolumeClaimMetadata limits PersistentVolumeClaims to labels and annotations: a cluster has many of them, and no other field matters.
func VolumeClaimMetadata() *metav1.PartialObjectMetadata {
	volumeClaim := &metav1.PartialObjectMetadata{}
	volumeClaim.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	return volumeClaim
}
