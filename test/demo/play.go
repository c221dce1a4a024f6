package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/patience"
)

const (
	pollInterval = 300 * time.Millisecond
	// timeout is the maximum duration of each act. On two cores the longest takes about half a minute.
	timeout = 4 * time.Minute
)

// demo is a sandbox that prints its events.
type demo struct {
	*sandbox.Sandbox
	began time.Time
	// printed contains the last printed line of each node.
	printed map[string]string
}

func (d *demo) printLine(who, format string, args ...any) {
	fmt.Printf("%5.1fs  %-8s %s\n", time.Since(d.began).Seconds(), who, fmt.Sprintf(format, args...))
}

// playStory runs the acts: apply, watch, prove, delete.
func (d *demo) playStory(ctx context.Context) error {
	profile, err := d.applyProfile(ctx)
	if err != nil {
		return err
	}
	if err := d.watchNodes(ctx, profile, d.isReady); err != nil {
		return fmt.Errorf("waiting for the profile to be Ready: %w", err)
	}
	if err := d.proveTuned(ctx, profile.Name); err != nil {
		return err
	}
	if keepRunning() {
		return nil
	}
	d.printLine("user", "kubectl delete scp %s", profile.Name)
	if err := d.Client.Delete(ctx, profile); err != nil {
		return err
	}
	if err := d.watchNodes(ctx, profile, d.isGone); err != nil {
		return fmt.Errorf("waiting for the deletion of the profile: %w", err)
	}
	return d.proveRestored(ctx)
}

// applyProfile applies the profile of document A with the changes of a demo overlay: short waits, and reboots permitted.
func (d *demo) applyProfile(ctx context.Context) (*v1alpha1.StorageClientProfile, error) {
	file := filepath.Join("config", "profiles", "azure-files-large-directories", "profile.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	profile := &v1alpha1.StorageClientProfile{}
	if err := yaml.UnmarshalStrict(data, profile); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	profile.Spec.NodeSelector.MatchLabels = map[string]string{sandbox.PoolLabel: sandbox.Pool}
	rollout := &profile.Spec.Rollout
	rollout.MaxUnavailable = ptr.To(intstr.FromInt32(2))
	rollout.MaxConcurrentLive = ptr.To(intstr.FromString("100%"))
	rollout.Canary = &v1alpha1.Canary{SoakSeconds: ptr.To[int32](2)}
	rollout.SettleSeconds = ptr.To[int32](1)
	rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(intstr.FromString("100%")), SoakSeconds: ptr.To[int32](2), OnNoEvidence: v1alpha1.NoEvidenceProceed}
	rollout.Reboot.Policy = v1alpha1.RebootAutomatic
	d.printLine("user", "kubectl apply -k config/profiles/azure-files-large-directories   (2 nodes at a time, reboots allowed)")
	return profile, d.Client.Create(ctx, profile)
}

// watchNodes prints the note of every node whenever it changes, until done.
func (d *demo) watchNodes(ctx context.Context, profile *v1alpha1.StorageClientProfile, done func(context.Context, string) (bool, error)) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, patience.Of(timeout), true, func(ctx context.Context) (bool, error) {
		clientNodes := &v1alpha1.StorageClientNodeList{}
		if err := d.Client.List(ctx, clientNodes); err != nil {
			return false, err
		}
		for _, clientNode := range clientNodes.Items {
			if line := describeNote(clientNode); line != "" && d.printed[clientNode.Name] != line {
				d.printed[clientNode.Name] = line
				d.printLine(clientNode.Name, "%s", line)
			}
		}
		return done(ctx, profile.Name)
	})
}

func describeNote(clientNode v1alpha1.StorageClientNode) string {
	rollout := clientNode.Status.Rollout
	if rollout == nil || rollout.Phase == "" {
		return ""
	}
	line := fmt.Sprintf("%-10s", rollout.Phase)
	if text := strings.TrimSpace(rollout.Message); text != "" {
		line += " " + text
	}
	return line
}

func (d *demo) isReady(ctx context.Context, name string) (bool, error) {
	profile := &v1alpha1.StorageClientProfile{}
	if err := d.Client.Get(ctx, client.ObjectKey{Name: name}, profile); err != nil {
		return false, err
	}
	if stalled := meta.FindStatusCondition(profile.Status.Conditions, v1alpha1.ConditionStalled); stalled != nil && stalled.Status == "True" {
		return false, fmt.Errorf("the profile is stalled: %s: %s", stalled.Reason, stalled.Message)
	}
	ready := meta.IsStatusConditionTrue(profile.Status.Conditions, v1alpha1.ConditionReady)
	// Ready is based on the values of the nodes. The last node is uncordoned later.
	counts := profile.Status.Nodes
	return ready && profile.Status.ObservedGeneration == profile.Generation && counts.UpToDate == int32(len(d.Names)) && counts.Disrupted == 0, nil
}

func (d *demo) isGone(ctx context.Context, name string) (bool, error) {
	err := d.Client.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.StorageClientProfile{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// proveTuned reads all values from machines, Nodes and volumes, independent of the operator.
func (d *demo) proveTuned(ctx context.Context, name string) error {
	fmt.Printf("\nProfile %s is Ready after %.0f s. What changed, read back from the machines and the API:\n\n", name, time.Since(d.began).Seconds())
	fmt.Printf("  %-8s %-6s %-26s %-12s %s\n", "NODE", "BOOTS", "ON THE KERNEL'S COMMAND LINE", "INODE HASH", "BACK IN SERVICE")
	for _, node := range d.Names {
		line, err := d.proveNode(ctx, node)
		if err != nil {
			return err
		}
		fmt.Println("  " + line)
	}
	fmt.Println()
	volumes := &corev1.PersistentVolumeList{}
	if err := d.Client.List(ctx, volumes); err != nil {
		return err
	}
	for _, volume := range volumes.Items {
		fmt.Printf("  %-8s %-40s was %s\n", volume.Name, strings.Join(volume.Spec.MountOptions, ","),
			volume.Annotations[v1alpha1.OriginalMountOptionsAnnotation])
	}
	fmt.Print("\nReal: API server, controller manager, scheduler, evictions, budgets, the manager with its rights, the agent with its loop,\n" +
		"files and checks. Simulated: machines and their boots, GRUB's generator, the kernel log, containers.\n\n")
	return nil
}

func (d *demo) proveNode(ctx context.Context, name string) (string, error) {
	machine := d.Fleet.Machine(name)
	node := &corev1.Node{}
	if err := d.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return "", err
	}
	cmdline, err := machine.Read("/proc/cmdline")
	if err != nil {
		return "", err
	}
	passed := strings.Count(cmdline, "ihash_entries=16777216")
	granted := strings.Contains(machine.Log(), "Inode-cache hash table entries: 16777216 ")
	service := !node.Spec.Unschedulable && node.Annotations[v1alpha1.DisruptionAnnotation] == ""
	if passed != 1 || !granted || !service || machine.Boots() != 2 {
		return "", fmt.Errorf("node %s: command line %q, log %q, unschedulable %v, boots %d: not as in the profile",
			name, cmdline, machine.Log(), node.Spec.Unschedulable, machine.Boots())
	}
	return fmt.Sprintf("%-8s %-6s %-28s %-12s %s", name, "1 more", "ihash_entries=16777216", "128 MiB", "yes"), nil
}

// proveRestored checks that no changes of the operator remain.
func (d *demo) proveRestored(ctx context.Context) error {
	var left []error
	for _, name := range d.Names {
		menu, err := d.Fleet.Machine(name).Read("/boot/grub/grub.cfg")
		if err != nil {
			return err
		}
		if strings.Contains(menu, "ihash_entries") {
			left = append(left, fmt.Errorf("node %s: the boot menu still passes ihash_entries", name))
		}
		node := &corev1.Node{}
		if err := d.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		if node.Spec.Unschedulable || node.Labels[v1alpha1.ManagedLabel] != "" {
			left = append(left, fmt.Errorf("node %s: unschedulable %v, labels %v", name, node.Spec.Unschedulable, node.Labels))
		}
	}
	volume := &corev1.PersistentVolume{}
	if err := d.Client.Get(ctx, client.ObjectKey{Name: "share-1"}, volume); err != nil {
		return err
	}
	if got := strings.Join(volume.Spec.MountOptions, ","); got != "hard,timeo=600" {
		left = append(left, fmt.Errorf("volume share-1: options %s", got))
	}
	if err := errors.Join(left...); err != nil {
		return fmt.Errorf("not restored: %w", err)
	}
	d.printLine("", "profile deleted: kernel arguments removed from the boot menus, original mount options restored, Nodes clean.\n"+
		"               The running kernels keep the hash until their next boot; with restoreReboot: true, the nodes would reboot now")
	return nil
}
