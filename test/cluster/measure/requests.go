package measure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/test/cluster/controlplane"
)

// Requests contains the numbers of a user's requests by type.
type Requests struct {
	// Writes is the number of writes, except for the separate counts below.
	Writes int `json:"writes"`
	// Evictions is the number of evictions by drains, DryRuns the number of dry runs by drains and the fence. Both are separate from
	// Writes.
	Evictions int `json:"evictions"`
	DryRuns   int `json:"dryRuns"`
	// Lists, Gets and Watches are reads. LivePodLists are lists of pods that the watch cache must not serve.
	Lists        int `json:"lists"`
	Gets         int `json:"gets"`
	Watches      int `json:"watches"`
	LivePodLists int `json:"livePodLists"`
	// Conflicts is the number of writes that were rejected because of a concurrent write.
	Conflicts int `json:"conflicts"`
	// Kinds counts by verb, object and response.
	Kinds map[string]int `json:"kinds"`
}

// Count counts the requests of a user between two times.
func Count(requests []controlplane.Request, user string, from, to time.Time) Requests {
	out := Requests{Kinds: map[string]int{}}
	for _, r := range requests {
		if r.User == user && r.Resource != "" && r.Resource != "leases" && r.Verb != "impersonate" && !r.At.Before(from) && r.At.Before(to) {
			out.add(r)
		}
	}
	return out
}

func (q *Requests) add(r controlplane.Request) {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	kind := fmt.Sprintf("%s %s -> %d", r.Verb, resource, r.Code)
	switch {
	case r.Verb == "list":
		q.Lists++
		if r.Resource == "pods" && r.Live {
			q.LivePodLists++
		}
	case r.Verb == "get":
		q.Gets++
	case r.Verb == "watch":
		q.Watches++
	case r.DryRun:
		q.DryRuns++
		kind = "dry run: " + kind
	case r.Subresource == "eviction":
		q.Evictions++
	case r.Resource == "tokenreviews" || r.Resource == "subjectaccessreviews":
	default:
		q.Writes++
		if r.Code == 409 {
			q.Conflicts++
		}
	}
	q.Kinds[kind]++
}

// Table lists the kinds by descending count, one in each line, with the count for each of the given number of nodes.
func (q Requests) Table(nodes int) string {
	kinds := slices.SortedFunc(maps.Keys(q.Kinds), func(a, b string) int {
		return cmp.Or(q.Kinds[b]-q.Kinds[a], cmp.Compare(a, b))
	})
	var out strings.Builder
	for _, kind := range kinds {
		fmt.Fprintf(&out, "  %7d  %6.2f  %s\n", q.Kinds[kind], float64(q.Kinds[kind])/float64(max(nodes, 1)), kind)
	}
	return out.String()
}
