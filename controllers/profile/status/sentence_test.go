package status

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
)

const longName = "azure-netapp-files-eda-westeurope"

// cloudNames returns typical node names of clouds.
func cloudNames() []string {
	var out []string
	for i := range 60 {
		out = append(out, fmt.Sprintf("aks-eda-28463518-vmss0000%02d.internal.cloudapp.example.net", i))
	}
	return out
}

// largeStates returns reports of profiles with long names, many nodes, and volumes with long names.
func largeStates() map[string]Report {
	fleet := func(change func(*v1alpha1.StorageClientProfile), node func(*corev1.Node, *v1alpha1.StorageClientNode)) Report {
		w := newWorld(change)
		for _, name := range cloudNames() {
			w.node(name, node)
		}
		r := w.report()
		r.profile.Name = longName
		return r
	}
	saying := func(phase v1alpha1.RolloutPhase) func(*corev1.Node, *v1alpha1.StorageClientNode) {
		return func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
			rebootDue(v1alpha1.RolloutReasonDrainBlocked)(n, s)
			s.Status.Rollout.Phase, s.Status.Rollout.Message = phase, "Pod eda/simulation-"+n.Name+" is kept by PodDisruptionBudget eda/simulation, which allows no disruption"
			if phase == v1alpha1.RolloutDraining {
				n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p"}`}
			}
		}
	}
	with := func(r Report, change func(*Report)) Report { change(&r); return r }
	idle := fleet(nil, nil)
	notes := func(reason string) (out []plan.Note) {
		for i := range 3 {
			out = append(out, plan.Note{Volume: fmt.Sprintf("pvc-3f0b6a52-8c1d-4a54-9b0c-5c6f1c2d3e4%d", i), Reason: reason, Message: "nconnect stays 2 (profile wants 8; onConflict: KeepVolume)"})
		}
		return out
	}
	claim := types.NamespacedName{Namespace: "electronic-design-automation", Name: "projects"}
	awaited := func(pods ...corev1.Pod) Report {
		return with(idle, func(r *Report) {
			volumes := plan.AwaitedEvidence{Waiting: 40, Until: now}
			for _, note := range notes("") {
				volumes.Volumes = append(volumes.Volumes, plan.AwaitedVolume{Name: note.Volume, VolumeClaim: claim, Server: "anf-account-1.westeurope.example.net"})
			}
			r.volumes, r.pods = plan.Summary{Matched: 40, Evidence: volumes}, map[types.NamespacedName][]corev1.Pod{claim: pods}
		})
	}
	deleted := fleet(deleting, nil)
	return map[string]Report{
		"large: new":       with(fleet(nil, nil), func(r *Report) { r.nodes.behind = cloudNames() }),
		"large: draining":  fleet(policy(v1alpha1.RebootAutomatic), saying(v1alpha1.RolloutDraining)),
		"large: waiting":   fleet(policy(v1alpha1.RebootAutomatic), saying(v1alpha1.RolloutWaiting)),
		"large: approval":  fleet(nil, rebootDue("")),
		"large: never":     fleet(policy(v1alpha1.RebootNever), rebootDue("")),
		"large: plan mode": fleet(func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }, rebootDue("")),
		"large: failed":    fleet(nil, state("sysctl/net.core.rmem_max", v1alpha1.SettingFailed)),
		"large: another profile failed": with(fleet(nil, nil), func(r *Report) {
			r.nodes.behind = cloudNames()
			for _, name := range cloudNames() {
				r.nodes.stuck = append(r.nodes.stuck, waitingNode{node: name, message: "StorageClientProfile " + longName + "-2: stopped; settings failed on " + cloudNames()[0]})
			}
			r.nodes.stuckBy = cloudNames()[0]
		}),
		"large: exceptions":  fleet(nil, refusedBoot),
		"large: kept values": with(idle, func(r *Report) { r.volumes = plan.Summary{Matched: 40, Exceptions: 40, ExceptionExamples: notes("")} }),
		"large: blocked": with(idle, func(r *Report) {
			r.volumes = plan.Summary{Matched: 40, Blocked: 40, BlockedExamples: notes(v1alpha1.VolumeReasonConflict)}
		}),
		"large: mount failed": with(idle, func(r *Report) {
			r.volumes = plan.Summary{Matched: 40, Stopped: `pvc-3f0b6a52 could not be mounted with ["hard","nocto"] (driver kubernetes.io/nfs): the event says "MountVolume.SetUp failed for volume 'pvc-3f0b6a52' : mount failed: exit status 32 Output: mount.nfs: an incorrect mount option was specified"`}
		}),
		"large: evidence":          awaited(podOf(claim.Namespace, "a", "ReplicaSet", "simulation-frontend-6d5"), podOf(claim.Namespace, "b", "StatefulSet", "simulation-backend")),
		"large: evidence, no pods": awaited(),
		"large: conflict": with(idle, func(r *Report) {
			r.nodes.conflicts = []string{"sysctl/net.core.rmem_max: profiles " + longName + ", " + longName + "-2 and " + longName + "-3 want 16777216 and 33554432 (keeping 16777216)"}
		}),
		"large: stale": with(idle, func(r *Report) {
			r.volumes.Stale = plan.Stale{Count: 60, Nodes: cloudNames()}
		}),
		"large: invalid": with(idle, func(r *Report) {
			r.invalidReason, r.invalidMessage = v1alpha1.ReasonInvalid, strings.Repeat(`spec.node.sysctls[net.ipv4.tcp_rmem]: "1000 1000 1000": must be at least 4096; `, 3)
		}),
		"large: immutable": with(fleet(policy(v1alpha1.RebootAutomatic), rebootDue("")), func(r *Report) {
			r.snapshot.Immutable = []string{v1alpha1.BudgetConfigMap, v1alpha1.FailuresConfigMap}
		}),
		"large: restoring": with(deleted, func(r *Report) {
			r.removal.nodes = map[string][]string{restoringNode: cloudNames(), cannotReachNode: cloudNames()}
			r.volumes.Unrestored = []string{"pvc-3f0b6a52-8c1d-4a54-9b0c-5c6f1c2d3e4f"}
		}),
	}
}

const messagesFile = "testdata/messages.txt"

// TestEveryMessageIsShortAndContainsTheCommand pins the condition messages of every state.
func TestEveryMessageIsShortAndContainsTheCommand(t *testing.T) {
	typed := []string{
		v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonPausedByAnnotation, v1alpha1.ReasonStaleMounts, v1alpha1.ReasonNothingMatched, v1alpha1.ReasonNodesFailed,
		v1alpha1.ReasonFailureThreshold, v1alpha1.ReasonConfigMapImmutable, v1alpha1.ReasonReadyWithExceptions, v1alpha1.ReasonExceptions, v1alpha1.ReasonVolumeConflict,
		v1alpha1.ReasonPlanMode,
	}
	states := statesOf()
	maps.Copy(states, largeStates())
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(states)) {
		r := states[name]
		seen := map[string]bool{}
		for _, c := range r.conditions(nil, 1, metav1.NewTime(now)) {
			if len(c.Message) > maxMessage {
				t.Errorf("%s: message of %s has %d bytes: %s", name, c.Type, len(c.Message), c.Message)
			}
			if c.Message == "" || seen[c.Message] {
				continue
			}
			seen[c.Message] = true
			lines = append(lines, fmt.Sprintf("%s: %s=%s/%s: %s", name, c.Type, c.Status, c.Reason, c.Message))
			if slices.Contains(typed, c.Reason) && !strings.Contains(c.Message, "kubectl ") {
				t.Errorf("%s: got %s without a command: %s", name, c.Type, c.Message)
			}
			if strings.HasSuffix(c.Message, "…") {
				t.Errorf("%s: got %s cut without the command for the rest: %s", name, c.Type, c.Message)
			}
		}
		if limit := r.planStatus(v1alpha1.Plan{}, 1, now).LimitedBy; len(limit) > maxMessage {
			t.Errorf("%s: got %d bytes in limitedBy: %s", name, len(limit), limit)
		}
	}
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		check.NoError(t, os.MkdirAll(filepath.Dir(messagesFile), 0o755))
		check.NoError(t, os.WriteFile(messagesFile, []byte(got), 0o600))
	}
	want, err := os.ReadFile(messagesFile)
	check.NoError(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs from the conditions, run with -update (-want +got):\n%s", messagesFile, diff)
	}
}

// A long name must not displace the message or cut a command in the middle. A long message with a command does not point to another
// command.
func TestALongMessageWithACommand(t *testing.T) {
	r := newWorld(nil).node("a", rebootDue("")).report()
	message := "kubectl replace " + strings.Repeat("m", maxMessage)
	v := verdict{status: metav1.ConditionTrue, reason: v1alpha1.ReasonConfigMapImmutable, message: message}
	if got := r.conditionMessage(v); !strings.HasSuffix(got, "; more: kubectl storageclient status "+r.profile.Name) {
		t.Errorf("without a command: got %q", got)
	}
	v.hasCommand = true
	if got := r.conditionMessage(v); strings.Contains(got, "more: ") || len(got) > maxMessage {
		t.Errorf("with a command: got %q", got)
	}
}

func TestANameOfMaximumLength(t *testing.T) {
	r := newWorld(nil).node("a", rebootDue("")).report()
	r.profile.Name = strings.Repeat("p", 253)
	check.Equal(t, "message of the condition", needsApproval, r.conditionMessage(asTrue(v1alpha1.ReasonWaitingForApproval, needsApproval)))
}
