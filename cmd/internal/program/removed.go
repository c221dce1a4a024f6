package program

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/storageclient/operator/tuning/lists"
)

// removed contains the fields that earlier builds had, without the indexes of lists, and what to use instead.
var removed = map[string]string{
	"spec.node.sunrpc": `in node.sysctls, set sunrpc.tcp_max_slot_table_entries: "N" (or FromNconnect) instead of tcpMaxSlotTableEntries; ` +
		`in node.kernelModules, set {name: sunrpc, parameters: {tcp_slot_table_entries: "N"}} instead of tcpSlotTableEntries`,
	"spec.rollout.drain.doNotDisruptPods":        "a pod that forbids its disruption always blocks the drain; remove its annotation, or delete the pod",
	"spec.rollout.drain.force":                   "a pod without a controller always blocks the drain; delete it once its work is done",
	"spec.rollout.drain.gracePeriodSeconds":      "each pod always has its own grace period; change terminationGracePeriodSeconds of the pod",
	"spec.rollout.drain.onTimeout":               "a node always returns to service when its drain times out; raise rollout.drain.timeoutSeconds to wait longer",
	"spec.rollout.drain.waitForJobs":             "a drain always waits for pods of Jobs; delete a Job that must not delay it",
	"spec.rollout.ignoreUnavailableAfterSeconds": "an unavailable node always counts against the budget; delete its Node if it will not return",
	"spec.rollout.onNodeFailure":                 "a failed node always stays cordoned until a user uncordons it",
	"spec.volumes.serverChunkKiB":                "set the annotation tuning.storageclient.dev/server-chunk-kib of the profile",
}

// RemovedFieldError reports a field that only earlier builds had.
type RemovedFieldError struct{ Path, Successor string }

// Error implements error.
func (e *RemovedFieldError) Error() string {
	return fmt.Sprintf("field %s no longer exists: %s", e.Path, e.Successor)
}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// nameRemoved replaces the errors of a strict decoder about removed fields. The decoder has no type for unknown fields, only a text.
func nameRemoved(err error) error {
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return err
	}
	return runtime.NewStrictDecodingError(lists.Each(strict.Errors(), func(problem error) error {
		path, _ := strings.CutPrefix(problem.Error(), "unknown field ")
		path = strings.Trim(path, `"`)
		if successor, ok := removed[listIndex.ReplaceAllString(path, "")]; ok {
			return &RemovedFieldError{path, successor}
		}
		return problem
	}))
}
