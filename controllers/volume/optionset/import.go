package optionset

import (
	"cmp"
	"maps"
	"slices"

	"github.com/storageclient/operator/tuning/lists"
)

// Add adds the observations of another record. Known observations and results stay.
func (r *Record) Add(other *Record) {
	worked, rejected := maps.Clone(other.Worked), maps.Clone(other.Rejected)
	maps.DeleteFunc(worked, func(server string, _ Evidence) bool { return r.State(server) == Rejected })
	maps.DeleteFunc(rejected, func(server string, _ Blame) bool { return r.State(server) == Works })
	r.Evidence = cmp.Or(r.Evidence, other.Evidence)
	r.Worked = unite(r.Worked, worked)
	r.Rejected = unite(r.Rejected, rejected)
	r.Closed = unite(r.Closed, other.Closed)
	if len(r.Cleared) == 0 {
		r.Cleared = slices.Clone(other.Cleared)
	}
	if len(r.Blames) == 0 {
		r.Blames = lists.Filter(other.Blames, func(b Blame) bool { return !r.hasResult(b) })
	}
}

// hasResult reports whether another cause explains a failure, or its cause stays unknown.
func (r *Record) hasResult(b Blame) bool {
	closedAt, isClosed := r.Closed[b.Volume]
	return isClosed && !b.Since.After(closedAt) || !r.Counts(b.Failure)
}

func unite[V any](known, additional map[string]V) map[string]V {
	for key, value := range additional {
		if _, found := known[key]; !found {
			known = with(known, key, value)
		}
	}
	return known
}
