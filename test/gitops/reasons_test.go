package gitops

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// judgement contains the health of a state from each engine: Argo CD with its script, kstatus, and Flux with the expressions of
// config/flux.
type judgement struct {
	argo          string
	kstatus, flux status.Status
}

var (
	done   = judgement{"Healthy", status.CurrentStatus, status.CurrentStatus}
	stuck  = judgement{"Degraded", status.FailedStatus, status.FailedStatus}
	active = judgement{"Progressing", status.InProgressStatus, status.InProgressStatus}
	// waits continues after an approval, or when the window opens.
	waits = judgement{"Suspended", status.InProgressStatus, status.InProgressStatus}
	// held and planned do not start because of a user's setting. kstatus has no status for that.
	held    = judgement{"Suspended", status.InProgressStatus, status.FailedStatus}
	planned = judgement{"Suspended", status.InProgressStatus, status.CurrentStatus}
	leaves  = judgement{"Progressing", status.TerminatingStatus, status.InProgressStatus}
)

// judgementOf contains the expected health from the engines, for each reason constant of the API.
var judgementOf = map[string]judgement{
	"ReasonPending": active, "ReasonRollingOut": active, "ReasonWaitingForBudget": active,
	"ReasonUpToDate": done, "ReasonReadyWithExceptions": done, "ReasonNothingMatched": done, "ReasonStaleMounts": done,
	"ReasonNotPaused": done, "ReasonIdle": done, "ReasonProgressing": done, "ReasonNoConflict": done, "ReasonAllEffective": done,
	"ReasonWaitingForEvidence": waits, "ReasonWaitingForWindow": waits, "ReasonWaitingForApproval": waits,
	"ReasonPlanMode": planned, "ReasonPausedByField": held, "ReasonPausedByAnnotation": held,
	"ReasonExceptions": stuck, "ReasonRebootPending": stuck, "ReasonInvalid": stuck, "ReasonFailureThreshold": stuck, "ReasonNodesFailed": stuck,
	"ReasonFenceMissing": stuck, "ReasonConfigMapImmutable": stuck, "ReasonSettingConflict": stuck, "ReasonVolumeConflict": stuck,
	"ReasonRestoring": leaves,

	"RolloutReasonNothingToDo": done, "RolloutReasonRestoredAtNextBoot": done, "RolloutReasonEffectiveAtNextBoot": done,
	"RolloutReasonSettingsFailed": done, "RolloutReasonNodePaused": done, "RolloutReasonNodeIgnored": done,
	"RolloutReasonNeverDisrupt": done, "RolloutReasonRebootPolicyNever": done,
	"RolloutReasonApplying": active, "RolloutReasonAgentSilent": active, "RolloutReasonSettingsChanging": active,
	"RolloutReasonNodeUnavailable": active, "RolloutReasonNodeDeleting": active, "RolloutReasonNodeLeaving": active,
	"RolloutReasonNodeInMaintenance": active, "RolloutReasonCordonedByOthers": active, "RolloutReasonCordonLost": active,
	"RolloutReasonProfileGone": active, "RolloutReasonWaitingForBudget": active, "RolloutReasonWaitingForZone": active,
	"RolloutReasonWaitingForCanary": active, "RolloutReasonLastControlPlaneNode": active, "RolloutReasonOnlyManagerNode": active, "RolloutReasonOnlySchedulableNode": active,
	"RolloutReasonWaitingForControlPlane": active,
	"RolloutReasonManagerNodeLast":        active, "RolloutReasonClaimed": active, "RolloutReasonLeavingLoadBalancers": active,
	"RolloutReasonDraining": active, "RolloutReasonDrainBlocked": active, "RolloutReasonDrainError": active, "RolloutReasonBackingOff": active,
	"RolloutReasonWaitingForPods": active, "RolloutReasonMountsBusy": active, "RolloutReasonVolumesInUse": active, "RolloutReasonDrainTimedOut": active, "RolloutReasonStorageUnreachable": active,
	"RolloutReasonPermitGiven": active, "RolloutReasonHostBusy": active, "RolloutReasonRebootStarted": active, "RolloutReasonPermitRefused": active,
	"RolloutReasonWaitingForNode": active, "RolloutReasonSettling": active, "RolloutReasonAccepted": active,
	"RolloutReasonWaitingForApproval": waits, "RolloutReasonWaitingForWindow": waits,
	"RolloutReasonWindowsDisjoint": stuck, "RolloutReasonCanaryFailed": stuck, "RolloutReasonFailureThreshold": stuck, "RolloutReasonConfigMapImmutable": stuck,
	"RolloutReasonRebootWithoutEffect": stuck, "RolloutReasonRebootTimedOut": stuck, "RolloutReasonAttemptsUsedUp": stuck, "RolloutReasonNodeLost": stuck,

	"VolumeReasonNotSelected": done, "VolumeReasonIgnored": done, "VolumeReasonHeld": done, "VolumeReasonUpToDate": done,
	"VolumeReasonKeepsOwnValue": done, "VolumeReasonDeclaredElsewhere": done,
	"VolumeReasonOptionsMerged": active,
	"VolumeReasonConflict":      stuck, "VolumeReasonLegacyAnnotation": stuck, "VolumeReasonWrongProtocol": stuck, "VolumeReasonNoClass": stuck, "VolumeReasonNoMount": stuck,
	"VolumeReasonInvalidOptions": stuck, "VolumeReasonFailedMount": stuck,
	"VolumeReasonRestored": leaves, "VolumeReasonReleased": leaves,
}

// states returns the conditions for each reason from controllers/profile/status.
func states(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for line := range strings.Lines(read(t, "testdata/states.txt")) {
		words := strings.Fields(line)
		metadata := map[string]any{"name": "p", "generation": int64(1)}
		var conditions []any
		for _, word := range words[1:] {
			if word == "deleting" {
				metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
				continue
			}
			name, rest, _ := strings.Cut(word, "=")
			value, reason, _ := strings.Cut(rest, "/")
			conditions = append(conditions, map[string]any{"type": name, "status": value, "reason": reason, "message": ""})
		}
		out[words[0]] = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tuning.storageclient.dev/v1alpha1", "kind": "StorageClientProfile", "metadata": metadata,
			"status": map[string]any{"observedGeneration": int64(1), "conditions": conditions},
		}}
	}
	return out
}

func TestEveryReasonHasAHealth(t *testing.T) {
	script, all := read(t, filepath.Join(dir, "health.lua")), states(t)
	evaluators := fluxEvaluators(t)
	for _, name := range reasonsOfAPI(t) {
		t.Run(name, func(t *testing.T) {
			want, found := judgementOf[name]
			object := all[name]
			if !found || object == nil {
				t.Fatalf("got a row here: %t, a state: %t; add a row here, and a state in controllers/profile/status/states_test.go", found, object != nil)
			}
			var got judgement
			got.argo, _ = runHealth(t, script, object)
			result, err := status.Compute(object)
			if err != nil {
				t.Fatal(err)
			}
			got.kstatus = result.Status
			for file, evaluator := range evaluators {
				if result, err = evaluator.Evaluate(context.Background(), object); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				if got.flux = result.Status; got != want {
					t.Errorf("%s: got %+v, want %+v", file, got, want)
				}
			}
		})
	}
	if len(judgementOf) != len(reasonsOfAPI(t)) {
		t.Errorf("got %d reasons, the API has %d", len(judgementOf), len(reasonsOfAPI(t)))
	}
}

// An engine must not wait for a profile without progress. The exception is a wait for a user, which kstatus can only show as in progress.
func TestNoIdleStateIsInProgress(t *testing.T) {
	for name, object := range states(t) {
		conditions := map[string]string{}
		list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, c := range list {
			condition, isMap := c.(map[string]any)
			if !isMap {
				t.Fatalf("%s: got a condition of type %T", name, c)
			}
			conditions[condition["type"].(string)] = condition["status"].(string)
		}
		if conditions["Reconciling"] == "True" || conditions["Paused"] == "True" {
			continue
		}
		result, err := status.Compute(object)
		health, _ := runHealth(t, read(t, filepath.Join(dir, "health.lua")), object)
		if err != nil || result.Status == status.InProgressStatus || health == "Progressing" {
			t.Errorf("%s makes no progress: got %v from kstatus (%v), %s from Argo CD", name, result, err, health)
		}
	}
}

// fluxEvaluators returns Flux's evaluators for the Kustomizations of config/flux, which are parsed with Flux's API types.
func fluxEvaluators(t *testing.T) map[string]*cel.StatusEvaluator {
	t.Helper()
	out := map[string]*cel.StatusEvaluator{}
	for document := range strings.SplitSeq(read(t, "../../config/flux/pools.yaml"), "\n---\n") {
		var kustomization kustomizev1.Kustomization
		if err := yaml.UnmarshalStrict([]byte(document), &kustomization); err != nil {
			t.Fatal(err)
		}
		spec := kustomization.Spec
		if spec.Prune || !spec.Wait || len(spec.HealthCheckExprs) != 1 || spec.HealthCheckExprs[0].Kind != "StorageClientProfile" ||
			spec.HealthCheckExprs[0].APIVersion != "tuning.storageclient.dev/v1alpha1" {
			t.Fatalf("%s: got %+v", kustomization.Name, spec)
		}
		evaluator, err := cel.NewStatusEvaluator(&spec.HealthCheckExprs[0].HealthCheckExpressions)
		if err != nil {
			t.Fatal(err)
		}
		out[kustomization.Name] = evaluator
	}
	if len(out) != 2 {
		t.Fatalf("got %d Kustomizations", len(out))
	}
	return out
}

// reasonsOfAPI returns the names of the reason constants in the source of the API. It skips the reasons of Node conditions, because no
// engine applies Nodes.
func reasonsOfAPI(t *testing.T) []string {
	t.Helper()
	named := regexp.MustCompile(`^(Reason|RolloutReason|VolumeReason)[A-Z]`)
	files, err := filepath.Glob("../../api/v1alpha1/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, isValue := n.(*ast.ValueSpec); isValue {
				for _, name := range spec.Names {
					if named.MatchString(name.Name) {
						names = append(names, name.Name)
					}
				}
			}
			return true
		})
	}
	slices.Sort(names)
	if len(names) < 50 {
		t.Fatalf("got only %d reasons: %v", len(names), names)
	}
	return names
}
