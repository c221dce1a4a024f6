package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Trial is a StorageClientTrial with its current target.
type Trial struct {
	*v1alpha1.StorageClientTrial
	// Volume is the name of the claim's volume, Source the source of its data, Target the mount of the trial.
	Volume string
	Source judge.Source
	Target judge.ProbeTarget
	// Missing describes a requirement that may still be met. Impossible explains why the trial can never run. Both are empty if it can run.
	Missing, Impossible string
	// Excess is true if the trial has no place in the queue of its namespace.
	Excess bool
}

// observeRemedy completes the message of a trial that cannot mount its volume.
const observeRemedy = "to measure its existing mounts, use workload Observe"

// trialProfileName is the name in messages of a candidate that belongs to no profile.
const trialProfileName = "of-this-trial"

// ResolveAll resolves all trials, oldest first. It ignores trials that are being deleted, and resolves only trials in the queues of their namespaces:
// the cost of a pass has a limit for each namespace.
func ResolveAll(
	all []v1alpha1.StorageClientTrial, volumes volumeplan.Snapshot, profiles []*v1alpha1.StorageClientProfile, allow catalogue.AllowList,
) (trials []Trial) {
	slices.SortFunc(all, func(a, b v1alpha1.StorageClientTrial) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	unfinished := map[string]int{}
	for i := range all {
		t := Trial{StorageClientTrial: &all[i]}
		switch {
		case !t.DeletionTimestamp.IsZero():
			continue
		case t.isOver():
		case unfinished[t.Namespace] >= maxQueued:
			t.Excess = true
		default:
			unfinished[t.Namespace]++
			t = Resolve(t.StorageClientTrial, volumes, profiles, allow)
		}
		trials = append(trials, t)
	}
	return trials
}

// Resolve determines the mounts of a trial. After its start, both mount options are fixed, regardless of changes of volume and profile.
func Resolve(
	trial *v1alpha1.StorageClientTrial, volumes volumeplan.Snapshot, profiles []*v1alpha1.StorageClientProfile, allow catalogue.AllowList,
) Trial {
	t := Trial{StorageClientTrial: trial}
	if t.isOver() {
		return t
	}
	pv := volumes.VolumeBoundTo(types.NamespacedName{Namespace: trial.Namespace, Name: trial.Spec.ClaimName})
	if t.observes() {
		return t.resolveObserved(pv)
	}
	if pv == nil {
		t.Missing = t.unboundText()
		return t
	}
	profile := candidateProfile(trial, profiles)
	if profile == nil {
		t.Missing = "StorageClientProfile " + trial.Spec.Profile + " does not exist"
		return t
	}
	t.Volume, t.Source = pv.Name, judge.SourceOf(pv)
	t.Target, t.Impossible = volumes.TrialTarget(pv, profile, allow)
	t.Impossible = cmp.Or(catalogue.TrialProblem(trial.Spec.Sysctls), t.Impossible)
	if t.Impossible == "" && t.Target.Obstacle != "" {
		t.Impossible = fmt.Sprintf("The trial cannot mount a volume of driver %s: %s; %s", t.Source.Driver, t.Target.Obstacle, observeRemedy)
	}
	status := &trial.Status
	switch {
	case status.Volume != "" && status.Volume != t.Volume:
		t.Impossible = "the claim is now bound to another volume, " + t.Volume + "; create a new trial"
	case status.Volume != "":
		t.Target.Options, t.Target.Own = status.After, status.Before
	case t.Impossible == "" && trial.Spec.ReadAheadKiB == 0 && len(trial.Spec.Sysctls) == 0 && slices.Equal(t.Target.Options, t.Target.Own):
		t.Impossible = "the volume already has the mount options of the candidate: " + optionsText(t.Target.Own)
	}
	return t
}

// resolveObserved determines the volume whose mounts nodes count. After the start, the claim must stay bound to it: a user must not learn about
// mounts of another volume.
func (t Trial) resolveObserved(pv *corev1.PersistentVolume) Trial {
	switch recordedVolume := t.Status.Volume; {
	case pv == nil && recordedVolume == "":
		t.Missing = t.unboundText()
	case pv == nil, recordedVolume != "" && recordedVolume != pv.Name:
		t.Impossible = fmt.Sprintf("the claim is no longer bound to volume %s; create a new trial", recordedVolume)
	default:
		t.Volume, t.Source = pv.Name, judge.SourceOf(pv)
	}
	return t
}

func (t Trial) unboundText() string {
	return "PersistentVolumeClaim " + t.Spec.ClaimName + " does not exist or is not bound to a volume"
}

// candidateProfile returns the profile that declares the candidate. A trial's mount options are merged like a rule for its claim.
func candidateProfile(trial *v1alpha1.StorageClientTrial, profiles []*v1alpha1.StorageClientProfile) *v1alpha1.StorageClientProfile {
	if trial.Spec.Profile != "" {
		i := slices.IndexFunc(profiles, func(p *v1alpha1.StorageClientProfile) bool { return p.Name == trial.Spec.Profile })
		if i < 0 {
			return nil
		}
		return profiles[i]
	}
	var readAhead *int32
	// A rule selects a volume only if it has options or a read-ahead. A read-ahead does not change the options.
	if trial.Spec.ReadAheadKiB > 0 || len(trial.Spec.Sysctls) > 0 {
		readAhead = &trial.Spec.ReadAheadKiB
	}
	return &v1alpha1.StorageClientProfile{
		ObjectMeta: metav1.ObjectMeta{Name: trialProfileName, Finalizers: []string{v1alpha1.Finalizer}},
		Spec: v1alpha1.StorageClientProfileSpec{AllNodes: true, Volumes: []v1alpha1.VolumeRule{{
			Name: "candidate", Selector: v1alpha1.VolumeSelector{ClaimNamespaces: []string{trial.Namespace}},
			MountOptions: trial.Spec.MountOptions, ReadAheadKiB: readAhead, OnConflict: v1alpha1.ConflictUseProfile,
		}}},
	}
}
