package status

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
)

var update = flag.Bool("update", false, "write the states that GitOps engines judge instead of comparing with them")

// statesFile contains a profile's conditions for every reason in the API. test/gitops evaluates them with the libraries of Argo CD, Flux
// and kstatus.
const statesFile = "../../../test/gitops/testdata/states.txt"

// statesOf returns reports of idle and active profiles, by the name of the constant whose reason they show.
func statesOf() map[string]Report {
	automatic := policy(v1alpha1.RebootAutomatic)
	change := func(r Report, change func(*Report)) Report { change(&r); return r }
	volumes := func(s plan.Summary) Report {
		return change(newWorld(nil).node("a", nil).report(), func(r *Report) { r.volumes = s })
	}
	blocked := func(reason string) Report {
		return volumes(plan.Summary{Matched: 1, Blocked: 1, BlockedExamples: []plan.Note{{Volume: "v", Reason: reason}}})
	}
	excepted := func(reason string) Report {
		return volumes(plan.Summary{Matched: 1, Exceptions: 1, ExceptionExamples: []plan.Note{{Volume: "v", Reason: reason}}})
	}
	idle := newWorld(nil).node("a", nil).report()
	inDeletion := newWorld(deleting).node("a", nil).report()
	rival := newWorld(nil)
	other := *rival.profiles[0].DeepCopy()
	other.Name, other.Spec.Node = "rival", &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.rmem_max": "1048576"}}
	rival.profiles = append(rival.profiles, other)

	states := map[string]Report{
		"ReasonPending":             newWorld(nil).bare("a").report(),
		"ReasonUpToDate":            idle,
		"ReasonReadyWithExceptions": newWorld(nil).node("a", state(bootKey, v1alpha1.SettingClamped)).report(),
		"ReasonExceptions": newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.OnUnsupported = v1alpha1.UnsupportedFail }).
			node("a", state(bootKey, v1alpha1.SettingClamped)).report(),
		"ReasonNothingMatched":     newWorld(nil).report(),
		"ReasonPlanMode":           newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }).bare("a").report(),
		"ReasonRebootPending":      newWorld(automatic).node("a", rebootDue(v1alpha1.RolloutReasonWindowsDisjoint)).report(),
		"ReasonRollingOut":         newWorld(nil).bare("a").report(),
		"ReasonWaitingForWindow":   newWorld(automatic).node("a", rebootDue(v1alpha1.ReasonWaitingForWindow)).report(),
		"ReasonWaitingForApproval": newWorld(nil).node("a", rebootDue("")).report(),
		"ReasonWaitingForBudget":   newWorld(automatic).node("a", rebootDue(v1alpha1.ReasonWaitingForBudget)).report(),
		"ReasonRestoring":          inDeletion,
		"ReasonInvalid": change(newWorld(nil).bare("a").report(), func(r *Report) {
			r.invalidReason, r.invalidMessage = v1alpha1.ReasonInvalid, "why"
		}),
		"ReasonFailureThreshold": newWorld(nil).node("a", state("sysctl/net.core.rmem_max", v1alpha1.SettingFailed)).report(),
		"ReasonNodesFailed": newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.FailureThreshold = new(int32(2)) }).
			node("a", state("sysctl/net.core.rmem_max", v1alpha1.SettingFailed)).report(),
		"ReasonFenceMissing": change(newWorld(nil).bare("a").report(), func(r *Report) { r.snapshot.FenceMissing = "why" }),
		"ReasonConfigMapImmutable": change(newWorld(automatic).node("a", rebootDue(v1alpha1.RolloutReasonConfigMapImmutable)).report(), func(r *Report) {
			r.snapshot.Immutable = []string{v1alpha1.BudgetConfigMap}
		}),
		"ReasonWaitingForEvidence": volumes(plan.Summary{Matched: 2, UpToDate: 1, Evidence: plan.AwaitedEvidence{Waiting: 1, Until: now, Volumes: []plan.AwaitedVolume{{Name: "v"}}}}),
		"ReasonPausedByField":      newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true }).bare("a").report(),
		"ReasonPausedByAnnotation": newWorld(nil).bare("a").pauseAll().report(),
		"ReasonNotPaused":          idle,
		"ReasonIdle":               idle,
		"ReasonProgressing":        idle,
		"ReasonSettingConflict":    rival.node("a", nil).report(),
		"ReasonVolumeConflict":     blocked(v1alpha1.VolumeReasonConflict),
		"ReasonNoConflict":         idle,
		"ReasonStaleMounts":        change(idle, func(r *Report) { r.volumes.Stale = plan.Stale{Count: 1, Nodes: []string{"a"}} }),
		"ReasonAllEffective":       idle,

		"VolumeReasonNotSelected":       idle,
		"VolumeReasonIgnored":           idle,
		"VolumeReasonHeld":              excepted(v1alpha1.VolumeReasonHeld),
		"VolumeReasonUpToDate":          volumes(plan.Summary{Matched: 1, UpToDate: 1}),
		"VolumeReasonKeepsOwnValue":     excepted(v1alpha1.VolumeReasonKeepsOwnValue),
		"VolumeReasonOptionsMerged":     volumes(plan.Summary{Matched: 1}),
		"VolumeReasonConflict":          blocked(v1alpha1.VolumeReasonConflict),
		"VolumeReasonDeclaredElsewhere": excepted(v1alpha1.VolumeReasonDeclaredElsewhere),
		"VolumeReasonLegacyAnnotation":  blocked(v1alpha1.VolumeReasonLegacyAnnotation),
		"VolumeReasonNoClass":           blocked(v1alpha1.VolumeReasonNoClass),
		"VolumeReasonWrongProtocol":     blocked(v1alpha1.VolumeReasonWrongProtocol),
		"VolumeReasonNoMount":           blocked(v1alpha1.VolumeReasonNoMount),
		"VolumeReasonInvalidOptions":    blocked(v1alpha1.VolumeReasonInvalidOptions),
		"VolumeReasonRestored":          change(inDeletion, func(r *Report) { r.volumes.Unrestored = []string{"v"} }),
		"VolumeReasonReleased":          change(inDeletion, func(r *Report) { r.volumes.Unrestored = []string{"v"} }),
		"VolumeReasonFailedMount":       volumes(plan.Summary{Matched: 1, UpToDate: 1, Stopped: "v could not be mounted"}),
	}
	for name, reason := range reasonsOfAPI("RolloutReason") {
		states[name] = rolloutState(reason)
	}
	return states
}

// rolloutState returns the report of a profile with one node and a rollout note with this reason.
func rolloutState(reason string) Report {
	phase := v1alpha1.RolloutWaiting
	switch reason {
	case v1alpha1.RolloutReasonNothingToDo:
		return newWorld(nil).node("a", nil).report()
	case v1alpha1.RolloutReasonRestoredAtNextBoot:
		// The profile no longer owns a setting that was removed from it.
		return newWorld(nil).node("a", func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Status.RebootRequired, s.Status.RebootRequiredBy = true, []string{"kernelArgument/former"}
		}).report()
	case v1alpha1.RolloutReasonEffectiveAtNextBoot:
		return newWorld(nil).node("a", atNextBoot).report()
	case v1alpha1.RolloutReasonSettingsFailed:
		return newWorld(policy(v1alpha1.RebootAutomatic)).node("a", refusedBoot).report()
	case v1alpha1.RolloutReasonConfigMapImmutable:
		r := newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue(reason)).report()
		r.snapshot.Immutable = []string{v1alpha1.BudgetConfigMap}
		return r
	case v1alpha1.RolloutReasonNodeIgnored:
		return newWorld(nil).node("a", func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
			n.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: "true"}
		}).report()
	case v1alpha1.RolloutReasonNeverDisrupt:
		return newWorld(policy(v1alpha1.RebootAutomatic)).node("a", neverDisrupted).report()
	case v1alpha1.RolloutReasonNodePaused:
		return newWorld(policy(v1alpha1.RebootAutomatic)).node("a", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
			rebootDue(reason)(n, s)
			n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
		}).report()
	case v1alpha1.RolloutReasonRebootPolicyNever:
		return newWorld(policy(v1alpha1.RebootNever)).node("a", rebootDue(reason)).report()
	case v1alpha1.RolloutReasonNodeLost:
		w := newWorld(nil).node("a", nil)
		return Evaluate("p", Snapshot{All: w.snapshot(), Failures: *recordedFailures(w, failedNode("gone", "u-gone", time.Minute))}, now)
	case v1alpha1.RolloutReasonRebootWithoutEffect, v1alpha1.RolloutReasonRebootTimedOut, v1alpha1.RolloutReasonAttemptsUsedUp:
		phase = v1alpha1.RolloutFailed
	case v1alpha1.RolloutReasonClaimed:
		phase = v1alpha1.RolloutClaimed
	case v1alpha1.RolloutReasonLeavingLoadBalancers, v1alpha1.RolloutReasonDraining, v1alpha1.RolloutReasonDrainBlocked,
		v1alpha1.RolloutReasonDrainError, v1alpha1.RolloutReasonWaitingForPods, v1alpha1.RolloutReasonMountsBusy, v1alpha1.RolloutReasonVolumesInUse, v1alpha1.RolloutReasonCordonLost,
		v1alpha1.RolloutReasonStorageUnreachable:
		phase = v1alpha1.RolloutDraining
	case v1alpha1.RolloutReasonPermitGiven, v1alpha1.RolloutReasonHostBusy, v1alpha1.RolloutReasonRebootStarted,
		v1alpha1.RolloutReasonWaitingForNode:
		phase = v1alpha1.RolloutRebooting
	case v1alpha1.RolloutReasonSettling:
		phase = v1alpha1.RolloutSettling
	case v1alpha1.RolloutReasonAccepted:
		phase = v1alpha1.RolloutReleasing
	}
	return newWorld(policy(v1alpha1.RebootAutomatic)).node("a", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
		rebootDue(reason)(n, s)
		if s.Status.Rollout.Phase = phase; phase != v1alpha1.RolloutWaiting && phase != v1alpha1.RolloutFailed {
			n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p"}`}
		}
	}).report()
}

// TestStatesForGitOpsEngines pins the conditions for every reason constant of the API, except for the reasons of Nodes. If you add a
// reason, add a state here, and add the expected result of the engines in test/gitops.
func TestStatesForGitOpsEngines(t *testing.T) {
	states := statesOf()
	var names, lines []string
	for name, reason := range reasonsOfAPI("Reason", "RolloutReason", "VolumeReason") {
		names = append(names, name)
		r, found := states[name]
		if !found {
			t.Errorf("got no state for %s", name)
			continue
		}
		line, isShown := []string{name}, false
		if r.IsDeleting() {
			line = append(line, "deleting")
		}
		for _, c := range r.conditions(nil, 1, metav1.NewTime(now)) {
			line = append(line, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
			isShown = isShown || c.Reason == reason
		}
		if strings.HasPrefix(name, "Reason") && !isShown {
			t.Errorf("got a state of %s without this reason: %s", name, line)
		}
		lines = append(lines, strings.Join(line, " "))
	}
	for name := range states {
		if !slices.Contains(names, name) {
			t.Errorf("got a state for %s, which is not a constant of the API", name)
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		check.NoError(t, os.WriteFile(statesFile, []byte(got), 0o600))
	}
	want, err := os.ReadFile(statesFile)
	check.NoError(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs from the manager's conditions, run with -update (-want +got):\n%s", statesFile, diff)
	}
}

// reasonsOfAPI returns the names and values of the API's constants with one of these prefixes. It parses the source of the API.
func reasonsOfAPI(prefixes ...string) map[string]string {
	named := regexp.MustCompile("^(" + strings.Join(prefixes, "|") + ")[A-Z]")
	files, err := filepath.Glob("../../../api/v1alpha1/*.go")
	if err != nil {
		panic(err)
	}
	values, aliases := map[string]string{}, map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		for spec := range constantsIn(parsed) {
			for i, name := range spec.Names {
				if i >= len(spec.Values) {
					continue
				}
				switch value := spec.Values[i].(type) {
				case *ast.BasicLit:
					if text, err := strconv.Unquote(value.Value); err == nil {
						values[name.Name] = text
					}
				case *ast.Ident:
					aliases[name.Name] = value.Name
				}
			}
		}
	}
	out := map[string]string{}
	for name, value := range values {
		if named.MatchString(name) {
			out[name] = value
		}
	}
	for name, of := range aliases {
		if named.MatchString(name) {
			out[name] = values[of]
		}
	}
	return out
}

func constantsIn(file *ast.File) func(yield func(*ast.ValueSpec) bool) {
	return func(yield func(*ast.ValueSpec) bool) {
		for _, declaration := range file.Decls {
			group, isGroup := declaration.(*ast.GenDecl)
			if !isGroup || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				if value, isValue := spec.(*ast.ValueSpec); isValue && !yield(value) {
					return
				}
			}
		}
	}
}
