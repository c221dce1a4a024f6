// Package program contains code that several programs share.
package program

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// Strings is the value of a flag that can be repeated.
type Strings []string

// String implements flag.Value.
func (s *Strings) String() string { return strings.Join(*s, ",") }

// Set implements flag.Value.
func (s *Strings) Set(value string) error {
	*s = append(*s, value)
	return nil
}

// Build returns the information about the build, and its commit. The commit is empty if it is unknown.
func Build() (info *debug.BuildInfo, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return &debug.BuildInfo{GoVersion: "unknown", Main: debug.Module{Version: "unknown"}}, ""
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			revision = setting.Value
		}
	}
	return info, revision
}

// DecodeStrictly decodes a profile in YAML or JSON. An unknown field is an error. The error of a field that was removed has its successor.
func DecodeStrictly(document []byte, into *v1alpha1.StorageClientProfile) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	strict := serializer.SerializerOptions{Yaml: true, Strict: true}
	_, _, err := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, strict).Decode(document, nil, into)
	return nameRemoved(err)
}

// Limits in bytes of one input, of all inputs, and of a document with its aliases replaced.
const (
	maxInput  = 8 << 20
	maxInputs = 64 << 20
)

// ErrAliases is the error of Parse for a document of hostile size.
var ErrAliases = fmt.Errorf("aliases make the document larger than %d bytes: replace them with their content", maxInput)

// Inputs reads the files that a user names.
type Inputs struct {
	Stdin io.Reader
	total int
}

// Read returns the content of a file, a pipe or standard input ("-"). It opens no device, socket or directory.
func (in *Inputs) Read(path string) ([]byte, error) {
	reader, size := in.Stdin, 0
	if path != "-" {
		info, err := os.Stat(path)
		if err == nil && info.Mode().Type()&^fs.ModeNamedPipe != 0 {
			err = fmt.Errorf("neither a file nor a pipe (mode %s)", info.Mode())
		}
		if err != nil {
			return nil, err
		}
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		reader, size = file, int(info.Size())
	}
	limit := min(maxInput, maxInputs-in.total)
	data, err := io.ReadAll(io.LimitReader(reader, int64(limit)+1))
	if len(data) > limit {
		return nil, fmt.Errorf("input has %d bytes or more: split it; the limits are %d bytes, and %d for all inputs", max(size, len(data)), maxInput, maxInputs)
	}
	in.total += len(data)
	return data, err
}

// Await returns the result of f, or early if the context ends: neither a read nor a parser can be interrupted.
func Await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Parse decodes a document. It checks the size first, because decoders copy the content of each alias.
func Parse(document []byte) (content map[string]any, err error) {
	if bytes.ContainsRune(document, '*') {
		var root goyaml.Node
		if err := goyaml.Unmarshal(document, &root); err != nil {
			return nil, err
		}
		if sizeOf(&root, map[*goyaml.Node]int{}) > maxInput {
			return nil, ErrAliases
		}
	}
	err = yaml.Unmarshal(document, &content)
	return content, err
}

// sizeOf returns the size of a node with its aliases replaced, at most one more than the limit.
func sizeOf(n *goyaml.Node, known map[*goyaml.Node]int) int {
	n = cmp.Or(n.Alias, n)
	if _, found := known[n]; !found {
		known[n] = 0 // Decoders reject a node that contains itself.
		size := len(n.Value) + 1
		for _, child := range n.Content {
			size = min(size+sizeOf(child, known), maxInput+1)
		}
		known[n] = size
	}
	return known[n]
}

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
