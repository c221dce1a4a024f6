package trial

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
)

// claimed binds the volume to a claim, and adds a trial of the claim.
func claimed(objects []client.Object) []client.Object {
	for _, object := range objects {
		switch o := object.(type) {
		case *v1alpha1.StorageClientProfile:
			// A volume in mode Plan needs no probe.
			o.Spec.Mode = v1alpha1.ModePlan
		case *corev1.PersistentVolume:
			o.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "data", UID: "c1"}
			o.Status.Phase = corev1.VolumeBound
		}
	}
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "t", UID: "t1", Generation: 1}}
	trial.Spec = v1alpha1.StorageClientTrialSpec{ClaimName: "data", Profile: "p", Rounds: 1, Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadListDirectory}}
	volumeClaim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "data", UID: "c1"}}
	agent := pod(agentpod.Component)
	agent.Spec.Containers = []corev1.Container{{Name: "node-agent", Image: "registry/node-agent:1"}}
	return append(objects[:len(objects)-1], agent, volumeClaim, trial)
}

func (b bench) trial() *v1alpha1.StorageClientTrial {
	b.t.Helper()
	var trial v1alpha1.StorageClientTrial
	if err := b.Get(b.t.Context(), client.ObjectKey{Namespace: "eda", Name: "t"}, &trial); err != nil {
		b.t.Fatal(err)
	}
	return &trial
}

// playNode does one thing that the control plane, the kubelet or the agent does for a clone.
func (b bench) playNode() {
	b.t.Helper()
	pv, volumeClaim, pod := b.clone()
	clientNode := b.clientNode()
	switch {
	case pv == nil:
		clientNode.Status.Mounts, clientNode.Status.Servers = nil, nil
	case volumeClaim != nil && volumeClaim.Status.Phase == "":
		b.bind(volumeClaim)
		return
	case pod == nil:
		return
	case pod.Status.Phase == "":
		pod.Status.Phase = corev1.PodRunning
	case len(clientNode.Status.Mounts) == 0:
		options := []string{"vers=3.0"}
		if slices.Contains(pv.Spec.MountOptions, "actimeo=30") {
			options = append(options, "acregmax=30", "acdirmax=30")
		}
		clientNode.Status.Servers = []v1alpha1.ServerStatus{{Server: "filer", Protocol: v1alpha1.ServerSMB}}
		clientNode.Status.Mounts = []v1alpha1.MountStatus{{Volume: pv.Name, Server: "filer", Protocol: "SMB3.0", Options: options, Connections: 1}}
	case pod.Status.Phase == corev1.PodRunning:
		phase := v1alpha1.TrialPassPhase{Name: "First", Units: 10, Operations: []v1alpha1.TrialOperation{{Name: "QUERY_INFO", Count: int64(len(pv.Spec.MountOptions))}}}
		again := phase
		again.Name = "Repeated"
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Message: v1alpha1.ClonePass{Phases: []v1alpha1.TrialPassPhase{phase, again}}.Encode(),
		}}}}
	}
	if pod != nil {
		if err := b.Status().Update(b.t.Context(), pod); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.Status().Update(b.t.Context(), clientNode); err != nil {
		b.t.Fatal(err)
	}
}

// An SMB volume goes through a whole trial: once with one manager, and once with a manager that dies after each pass.
func TestATrialByClonesThroughTheAPI(t *testing.T) {
	for name, dies := range map[string]bool{"one manager": false, "one that dies after each pass": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, claimed(share(cluster()))...)
			seen := map[string][]string{}
			for range 120 {
				b.pass()
				b.playNode()
				if pv, _, pod := b.clone(); pod != nil {
					seen[pv.Name] = pv.Spec.MountOptions
				}
				if dies {
					b.Reconciler = b.restarted()
				}
			}
			status := b.trial().Status
			if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.TrialConditionComplete) || status.Rounds != 1 || len(status.Passes) != 3 || status.Route != v1alpha1.RouteClone {
				t.Fatalf("got status %+v, want one complete round by clones", status)
			}
			for _, pass := range status.Passes {
				if want := map[v1alpha1.TrialArm]int64{v1alpha1.ArmAfter: 2}[pass.Arm]; pass.Phases[0].Operations[0].Count != max(want, 1) {
					t.Errorf("%s: got count %d, want %d", pass.Arm, pass.Phases[0].Operations[0].Count, max(want, 1))
				}
			}
			if len(seen) != 3 {
				t.Errorf("got clones %v, want 3", seen)
			}
			if pv, volumeClaim, pod := b.clone(); pv != nil || volumeClaim != nil || pod != nil {
				t.Errorf("got %v, %v, %v; want no clone", pv, volumeClaim, pod)
			}
		})
	}
}

// restarted returns a manager that has just started.
func (b bench) restarted() *Reconciler {
	return &Reconciler{
		Client: b.Client, APIReader: b.APIReader, Clock: b.Clock, Results: &Results{Clock: b.Clock},
	}
}

// A deleted trial leaves nothing, even if its clone is mounted.
func TestADeletedTrialLeavesNoClone(t *testing.T) {
	b := newBench(t, claimed(share(cluster()))...)
	for made := false; !made; {
		b.pass()
		b.playNode()
		_, _, pod := b.clone()
		made = pod != nil && pod.Status.Phase == corev1.PodRunning
	}
	if err := b.Delete(t.Context(), b.trial()); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if pv, volumeClaim, pod := b.clone(); pv != nil || volumeClaim != nil || pod != nil {
		t.Errorf("got %v, %v, %v; want no clone", pv, volumeClaim, pod)
	}
}

// The node itself has mounted the volume under one of the names of its server.
func TestNoCloneIfTheKernelHasTheServerUnderAnotherName(t *testing.T) {
	b := newBench(t, claimed(share(cluster()))...)
	clientNode := b.clientNode()
	clientNode.Status.Servers = []v1alpha1.ServerStatus{{Server: "10.0.0.9", Address: "10.0.0.9:445", Protocol: v1alpha1.ServerSMB}}
	clientNode.Status.Mounts = []v1alpha1.MountStatus{{Volume: "pv1", Server: "10.0.0.9", Protocol: "SMB3.0"}}
	if err := b.Status().Update(t.Context(), clientNode); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		b.pass()
	}
	if pv, _, _ := b.clone(); pv != nil {
		t.Errorf("got clone %s while the node has mounted the server, want none", pv.Name)
	}
	if status := b.trial().Status; len(status.Conditions) == 0 || !strings.Contains(status.Conditions[0].Message, "no mount of filer") {
		t.Errorf("got status %+v, want the mount in the message", status)
	}
}
