package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/cluster/sandbox"
)

const (
	// rebootLabel is the label of the nodes to reboot.
	rebootLabel = "scale-reboots"
	profileName = "scale"
	// firstManager is the name of the first manager.
	firstManager = "manager"
)

var declaredOptions = []v1alpha1.MountOption{"nconnect=4", "nocto", "actimeo=30"}

// rebooting returns the number of nodes to reboot.
func (w *world) rebooting() int { return max(w.Nodes/100, 1) }

// addSurroundings adds volumes, of which nine in ten already have the declared options, and a pod on each node to reboot.
func (w *world) addSurroundings(ctx context.Context) error {
	w.progress("adding %d volumes", w.Volumes)
	if err := inParallel(w.Volumes, func(i int) error { return w.Client.Create(ctx, volumeObject(i)) }); err != nil {
		return err
	}
	if err := inParallel(w.rebooting(), func(i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Names[i*len(w.Names)/w.rebooting()]}}
		return w.Client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, rebootLabel)))
	}); err != nil {
		return err
	}
	if err := w.addWebhook(ctx); err != nil {
		return err
	}
	labels := map[string]string{"app": "batch"}
	return w.Client.Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "batch"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(w.rebooting())), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{rebootLabel: v1alpha1.True},
				Containers:   []corev1.Container{{Name: "batch", Image: "example/batch:1"}},
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
				}},
			}},
		},
	})
}

func volumeObject(i int) *corev1.PersistentVolume {
	options := []string{"nconnect=4", "nocto", "actimeo=30"}
	if i%10 == 0 {
		options = []string{"hard"}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pvc-%05d", i)},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")},
			MountOptions: options, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "nfs",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "nfs.csi.k8s.io", VolumeHandle: fmt.Sprintf("filer#share#%d", i),
				VolumeAttributes: map[string]string{"server": "filer.example.com", "share": fmt.Sprintf("/share/%d", i)},
			}},
		},
	}
}

// startTuning starts the manager and declares the first settings.
func (w *world) startTuning(ctx context.Context) error {
	if err := w.startManager(ctx, firstManager); err != nil {
		return err
	}
	w.profile = &v1alpha1.StorageClientProfile{
		ObjectMeta: metav1.ObjectMeta{Name: profileName},
		Spec: v1alpha1.StorageClientProfileSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{sandbox.PoolLabel: sandbox.Pool}},
			Node:         &v1alpha1.NodeTuning{Sysctls: w.firstSysctls()},
			Rollout: v1alpha1.Rollout{
				MaxUnavailable: ptr.To(intstr.FromString("100%")), MaxConcurrentLive: ptr.To(intstr.FromString("100%")),
				Canary: &v1alpha1.Canary{SoakSeconds: ptr.To[int32](0)}, SettleSeconds: ptr.To[int32](0),
				Reboot: v1alpha1.Reboot{Policy: v1alpha1.RebootAutomatic},
				Volumes: &v1alpha1.VolumeRollout{
					MaxPerStep: ptr.To(intstr.FromString("100%")), SoakSeconds: ptr.To[int32](0), Probe: v1alpha1.ProbeNever, OnNoEvidence: v1alpha1.NoEvidenceProceed,
				},
			},
		},
	}
	if err := w.Client.Create(ctx, w.profile); err != nil {
		return err
	}
	return w.await(ctx, "all nodes to be tuned", func(ctx context.Context) (bool, error) {
		err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.profile), w.profile)
		return isDone(w.profile, w.Nodes), err
	})
}

// firstSysctls returns two sysctls, or the number in the run.
func (w *world) firstSysctls() map[string]v1alpha1.SettingText {
	out := map[string]v1alpha1.SettingText{"vm.dirty_ratio": "30", "net.core.rmem_max": "16777216"}
	for len(out) < w.Settings {
		out[fmt.Sprintf("fs.scale.s%d", len(out))] = "1"
	}
	return out
}

func isDone(profile *v1alpha1.StorageClientProfile, nodes int) bool {
	return meta.IsStatusConditionTrue(profile.Status.Conditions, v1alpha1.ConditionReady) && int(profile.Status.Nodes.UpToDate) == nodes
}

func (w *world) declareVolumes(ctx context.Context) error {
	return w.change(ctx, "all volumes to be as declared", func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Volumes = []v1alpha1.VolumeRule{{Name: "nfs", Selector: v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}, MountOptions: declaredOptions}}
	}, func(p *v1alpha1.StorageClientProfile) bool { return int(p.Status.Volumes.UpToDate) == w.Volumes })
}

func (w *world) changeLive(ctx context.Context) error {
	return w.change(ctx, "the live change", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.Sysctls["vm.dirty_ratio"] = "40" },
		func(p *v1alpha1.StorageClientProfile) bool { return isDone(p, w.Nodes) })
}

func (w *world) changeNetwork(ctx context.Context) error {
	return w.change(ctx, "the live change of the network", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node.Sysctls["net.core.rmem_max"] = "33554432" },
		func(p *v1alpha1.StorageClientProfile) bool { return isDone(p, w.Nodes) })
}

func (w *world) editProfile(ctx context.Context) error {
	return w.change(ctx, "the profile's status", func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.SettleSeconds = ptr.To[int32](1) },
		func(p *v1alpha1.StorageClientProfile) bool { return isDone(p, w.Nodes) })
}

// rebootSome declares a kernel argument for one node in a hundred in a second profile.
func (w *world) rebootSome(ctx context.Context) error {
	profile := &v1alpha1.StorageClientProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "scale-boot"},
		Spec: v1alpha1.StorageClientProfileSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{rebootLabel: v1alpha1.True}},
			Node:         &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"}},
			Rollout:      *w.profile.Spec.Rollout.DeepCopy(),
		},
	}
	if err := w.Client.Create(ctx, profile); err != nil {
		return err
	}
	return w.await(ctx, "the reboots", func(ctx context.Context) (bool, error) {
		err := w.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile)
		return isDone(profile, w.rebooting()) && profile.Status.Nodes.Disrupted == 0, err
	})
}

func (w *world) stayIdle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(idleFor):
		return nil
	}
}

func (w *world) startManager(ctx context.Context, name string) error {
	flags := []string{"--leader-elect", "--max-unavailable=5%", `--allow-parameter=sysctl/fs\.scale\.s[0-9]+`}
	if w.webhookPort > 0 {
		port := w.webhookPort
		if name != firstManager {
			port++
		}
		flags = append(flags, fmt.Sprintf("--webhook-port=%d", port))
	}
	if w.settings.pprof != "" && name == firstManager {
		flags = append(flags, "--pprof-bind-address="+w.settings.pprof)
	}
	process, err := w.StartManagerAs(ctx, name, flags...)
	w.managers = append(w.managers, process)
	return err
}

// restartManager kills and restarts the manager, and waits until it has processed an edit.
func (w *world) restartManager(ctx context.Context) error {
	w.managers[0].Kill()
	w.managers = nil
	if err := w.dropLease(ctx); err != nil {
		return err
	}
	if err := w.startManager(ctx, firstManager); err != nil {
		return err
	}
	return w.answerEdit(ctx, 2)
}

// failOver kills the leader while a second manager waits, and waits until that manager has processed an edit.
func (w *world) failOver(ctx context.Context) error {
	if err := w.startManager(ctx, "manager-2"); err != nil {
		return err
	}
	w.managers[0].Kill()
	w.managers = w.managers[1:]
	return w.answerEdit(ctx, 3)
}

// dropLease deletes the lease of a killed manager, so that the measurement does not include the wait for it.
func (w *world) dropLease(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerLease}}
	return client.IgnoreNotFound(w.Client.Delete(ctx, lease))
}

func (w *world) answerEdit(ctx context.Context, settle int32) error {
	return w.change(ctx, "the manager to answer", func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.SettleSeconds = ptr.To(settle) },
		func(p *v1alpha1.StorageClientProfile) bool { return isDone(p, w.Nodes) })
}

// addProfiles adds profiles with rules for volumes. Each profile declares the current settings for a pool. Their names sort after the
// first profile, so its settings stay effective, and no node changes.
func (w *world) addProfiles(ctx context.Context) error {
	err := inParallel(w.settings.profiles, func(i int) error {
		return w.Client.Create(ctx, &v1alpha1.StorageClientProfile{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("with-pool-%d", i)},
			Spec: v1alpha1.StorageClientProfileSpec{
				NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{sandbox.PoolNumberLabel: strconv.Itoa(i)}},
				Node:         &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"vm.dirty_ratio": "40"}},
				Volumes: []v1alpha1.VolumeRule{{
					Name: "nfs", Selector: v1alpha1.VolumeSelector{StorageClassNames: []string{fmt.Sprintf("pool-%d", i)}}, MountOptions: declaredOptions,
				}},
				Rollout: *w.profile.Spec.Rollout.DeepCopy(),
			},
		})
	})
	if err != nil {
		return err
	}
	return w.await(ctx, "all profiles to be evaluated", func(ctx context.Context) (bool, error) {
		profiles := &v1alpha1.StorageClientProfileList{}
		err := w.Client.List(ctx, profiles)
		for i := range profiles.Items {
			if profiles.Items[i].Status.ObservedGeneration != profiles.Items[i].Generation {
				return false, err
			}
		}
		return true, err
	})
}

// inParallel calls a function for each number below n, several at a time.
func inParallel(n int, do func(i int) error) error {
	const atATime = 16
	var group sync.WaitGroup
	errs := make([]error, atATime)
	for k := range atATime {
		group.Go(func() {
			for i := k; i < n && errs[k] == nil; i += atATime {
				errs[k] = do(i)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// findChild finds a program that this process has started.
func findChild(name string) (int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the process has exited
		}
		pid, rest, _ := strings.Cut(string(data), " (")
		program, rest, _ := strings.Cut(rest, ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && program == name[:min(len(name), 15)] && fields[1] == strconv.Itoa(os.Getpid()) {
			return strconv.Atoi(pid)
		}
	}
	return 0, fmt.Errorf("this process has no child %s", name)
}
