package measure

import (
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
)

func TestCountSeparatesWritesFromOtherRequests(t *testing.T) {
	from := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	request := func(verb, resource, subresource string, code int) controlplane.Request {
		return controlplane.Request{User: "u", Verb: verb, Resource: resource, Subresource: subresource, Code: code, At: from, Live: true}
	}
	dry, early, others, cached := request("create", "pods", "eviction", 201), request("patch", "nodes", "", 200), request("patch", "nodes", "", 200), request("list", "pods", "", 200)
	dry.DryRun, early.At, others.User, cached.Live = true, from.Add(-time.Second), "v", false
	got := Count([]controlplane.Request{
		request("patch", "nodes", "", 200), request("patch", "nodes", "status", 409), request("create", "pods", "eviction", 201), dry, early, others, cached,
		request("list", "pods", "", 200), request("get", "nodes", "", 200), request("watch", "nodes", "", 200), request("update", "leases", "", 200),
		request("create", "tokenreviews", "", 201),
	}, "u", from, from.Add(time.Second))
	want := Requests{Writes: 2, Conflicts: 1, Evictions: 1, DryRuns: 1, Lists: 2, LivePodLists: 1, Gets: 1, Watches: 1, Kinds: map[string]int{
		"patch nodes -> 200": 1, "patch nodes/status -> 409": 1, "create pods/eviction -> 201": 1, "dry run: create pods/eviction -> 201": 1,
		"list pods -> 200": 2, "get nodes -> 200": 1, "watch nodes -> 200": 1, "create tokenreviews -> 201": 1,
	}}
	check.Equal(t, "requests", want, got)
}
