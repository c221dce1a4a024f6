package volume

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Gatherer reads what Decide has to know about volumes, and judges each version of a profile once. The zero value is
// ready, for one allow-list and any number of goroutines.
type Gatherer struct {
	mu     sync.Mutex
	judged map[version]*profile
}

// version names a profile as it was at one time.
type version struct {
	name            string
	uid             types.UID
	resourceVersion string
}

// Gather reads for one volume, which need not exist yet. reader is the manager's cache; namespace is the manager's,
// whose pause annotation holds everything.
func (g *Gatherer) Gather(ctx context.Context, reader client.Reader, allow catalogue.AllowList, namespace string, pv *corev1.PersistentVolume) (Input, error) {
	profiles, err := readProfiles(ctx, reader, namespace, func(list []v1alpha1.StorageClientProfile, pausedAll bool) Profiles {
		return g.compile(list, allow, pausedAll)
	})
	if err != nil {
		return Input{}, err
	}
	return inputFor(ctx, reader, profiles, pv)
}

func inputFor(ctx context.Context, reader client.Reader, profiles Profiles, pv *corev1.PersistentVolume) (Input, error) {
	in := Input{Volume: pv, Profiles: profiles}
	var err error
	if in.Claim, err = claimNamedBy(ctx, reader, pv); err != nil {
		return Input{}, err
	}
	if pv.Spec.StorageClassName == "" {
		return in, nil
	}
	var class storagev1.StorageClass
	err = reader.Get(ctx, client.ObjectKey{Name: pv.Spec.StorageClassName}, &class)
	if client.IgnoreNotFound(err) != nil {
		return Input{}, fmt.Errorf("get StorageClass %s: %w", pv.Spec.StorageClassName, err)
	}
	in.Class = class.MountOptions
	return in, nil
}

// AmongOthers holds a decision about a volume that does not exist yet against the options that the other volumes of its
// server have now. It reads only where the decision is about connections.
func AmongOthers(ctx context.Context, reader client.Reader, pv *corev1.PersistentVolume, d Decision) (Decision, error) {
	if server, _ := connectionOf(pv, d.Options); server == "" || !carriesNconnect(d) {
		return d, nil
	}
	var all corev1.PersistentVolumeList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return Decision{}, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	others := newServers()
	for i := range all.Items {
		others.put(&all.Items[i], Decision{})
	}
	others.put(pv, d)
	return others.judge(pv, d), nil
}

// compile is Compile, but for what it has judged before. What it does not meet again, it forgets.
func (g *Gatherer) compile(profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList, pausedAll bool) Profiles {
	g.mu.Lock()
	defer g.mu.Unlock()
	met := make(map[version]*profile, len(profiles))
	out := compile(profiles, pausedAll, func(p *v1alpha1.StorageClientProfile) *profile {
		v := version{name: p.Name, uid: p.UID, resourceVersion: p.ResourceVersion}
		known, ok := g.judged[v]
		if !ok {
			known = judge(p, allow)
		}
		met[v] = known
		return known
	})
	g.judged = met
	return out
}

// KeepCached has the cache hold what Gather and AmongOthers read from its start on. Otherwise a replica that does not lead, and so
// runs no controllers, would fill its cache at the first question.
func KeepCached(ctx context.Context, informers cache.Informers) error {
	for _, object := range []client.Object{
		&v1alpha1.StorageClientProfile{}, &corev1.Namespace{}, &storagev1.StorageClass{}, &corev1.PersistentVolume{}, claimMetadata(),
	} {
		if _, err := informers.GetInformer(ctx, object); err != nil {
			return fmt.Errorf("cache %T: %w", object, err)
		}
	}
	return nil
}

// claimNamedBy reads the claim that a volume names, nil if there is none.
func claimNamedBy(ctx context.Context, reader client.Reader, pv *corev1.PersistentVolume) (*metav1.PartialObjectMetadata, error) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil, nil
	}
	claim := claimMetadata()
	if err := reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, claim); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get PersistentVolumeClaim %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return claim, nil
}

// claimMetadata asks for labels and annotations only: a cluster's claims are many, and nothing else of them matters.
func claimMetadata() *metav1.PartialObjectMetadata {
	claim := &metav1.PartialObjectMetadata{}
	claim.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	return claim
}
