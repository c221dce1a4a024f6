package optionset

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// failedPrefix starts the keys of failures: SET for a failed mount, SET.SERVER for a rejected probe. setPrefix starts all other keys. An
	// earlier release reads keys with failedPrefix and removes keys with setPrefix.
	failedPrefix, setPrefix = "failed.", "set."
	// maxWorked is the maximum number of servers whose probes are recorded. The oldest stay, so that a record does not change with each probe.
	maxWorked = 16
	// maxBytes is the maximum size of an entry with mount options. A longer one is recorded without them.
	maxBytes = 8 << 10
)

// IsKey reports whether a key of the ledger belongs to an option set.
func IsKey(key string) bool {
	return strings.HasPrefix(key, failedPrefix) || strings.HasPrefix(key, setPrefix)
}

// IsEvidenceKey reports whether the entry of a key may be left out: its content can be observed again.
func IsEvidenceKey(key string) bool { return strings.HasPrefix(key, setPrefix) }

// Keys returns the keys of all entries that hold the state of a set on a server.
func Keys(set, server string) []string {
	return []string{failedKey(set, ""), failedKey(set, server), setPrefix + set}
}

func failedKey(set, server string) string {
	if server == "" {
		return failedPrefix + set
	}
	return failedPrefix + set + "." + text.Hash(server, 6)
}

// Failed is the JSON of a failure, in the ledger and in the volume's annotation for an earlier release. That release sets neither State nor More.
type Failed struct {
	Identity
	Blame
	// Server is the server of a rejected probe. Empty for a failed mount.
	Server string  `json:"server,omitempty"`
	State  State   `json:"state,omitempty"`
	More   []Blame `json:"more,omitempty"`
	// Cluster is the UID of the cluster in which the annotation was written. Empty in the ledger, in annotations of earlier releases, and if it is
	// unknown.
	Cluster types.UID `json:"cluster,omitempty"`
	// Cleared is true in an annotation if the options are not the cause.
	Cleared bool `json:"acquitted,omitempty"`
}

func (f *Failed) encode() string {
	whole := text.JSON(f)
	if len(whole) <= maxBytes {
		return whole
	}
	f.Options, f.More = nil, slices.Clone(f.More)
	for i := range f.More {
		f.More[i].Options = nil
	}
	return text.JSON(f)
}

// EncodeAll returns the entries of records by set, and copies for the previous release, which expects one record for the rules of several sets.
func EncodeAll(records map[string]*Record) map[string]string {
	out := map[string]string{}
	for _, set := range slices.Sorted(maps.Keys(records)) {
		r := records[set]
		maps.Copy(out, r.Encode())
		for key, entry := range r.encode(r.RuleSet) {
			if out[key] == "" || r.Evidence != nil && IsEvidenceKey(key) {
				out[key] = entry
			}
		}
	}
	return out
}

// Encode returns the entries of the record, by key. An empty record and a record without a set have none.
func (r *Record) Encode() map[string]string { return r.encode(r.Set) }

func (r *Record) encode(set string) map[string]string {
	out := map[string]string{}
	if set == "" {
		return out
	}
	if len(r.Blames) > 0 {
		f := Failed{Identity: r.Identity, Blame: r.Blames[0], More: r.Blames[1:], State: Suspected}
		if r.isSettled() {
			f.State = Failing
		}
		out[failedKey(set, "")] = f.encode()
	}
	for server, b := range r.Rejected {
		f := Failed{Identity: r.Identity, Blame: b, Server: server, State: Rejected}
		out[failedKey(set, server)] = f.encode()
	}
	if r.Evidence != nil || len(r.Worked)+len(r.Cleared)+len(r.Closed) > 0 {
		known := *r
		known.Worked = oldestOf(r.Worked)
		out[setPrefix+set] = text.JSON(known)
	}
	return out
}

// oldestOf returns the oldest probes, up to maxWorked.
func oldestOf(worked map[string]Evidence) map[string]Evidence {
	servers := slices.SortedFunc(maps.Keys(worked), func(a, b string) int {
		return cmp.Or(worked[a].At.Compare(worked[b].At), strings.Compare(a, b))
	})
	return lists.Map(servers[:min(maxWorked, len(servers))], func(server string) (string, Evidence) { return server, worked[server] })
}

// Decode returns the records in the entries of sets, by set. It skips an entry that it cannot read, or that has another key. A copy for the
// previous release completes the record: the manager may die between the writes of two pages.
func Decode(entries map[string]string) map[string]*Record {
	out, copies := map[string]*Record{}, map[string]*Record{}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		value := entries[key]
		var f Failed
		var known Record
		err := json.Unmarshal([]byte(value), &f)
		f.Set = cmp.Or(f.Set, f.RuleSet)
		set, records := f.Set, out
		if f.RuleSet != f.Set && slices.Contains(Keys(f.RuleSet, f.Server), key) {
			set, records = f.RuleSet, copies
		}
		switch {
		case err != nil || f.Set == "":
		case key == failedKey(set, f.Server) && f.Server != "":
			r, server := recordIn(records, f.Identity), drivers.ServerIdentity(f.Server)
			if known, isKnown := r.Rejected[server]; !isKnown || known.Since.Before(f.Since) {
				r.Rejected = with(r.Rejected, server, f.Blame)
			}
		case key == failedKey(set, f.Server):
			r := recordIn(records, f.Identity)
			r.Blames = slices.DeleteFunc(append([]Blame{f.Blame}, f.More...), func(b Blame) bool { return b.Volume == "" })
			r.isEarlier = f.State == ""
		case key == setPrefix+set && json.Unmarshal([]byte(value), &known) == nil:
			r := recordIn(records, f.Identity)
			r.Evidence, r.Worked, r.Cleared, r.Closed = known.Evidence, byIdentity(known.Worked), known.Cleared, known.Closed
		}
	}
	for _, r := range slices.Concat(slices.Collect(maps.Values(out)), slices.Collect(maps.Values(copies))) {
		r.dropOlderProbes()
	}
	for _, r := range copies {
		recordIn(out, r.Identity).Add(r)
	}
	return out
}

// dropOlderProbes keeps the newer of two results that were recorded for two spellings of a server.
func (r *Record) dropOlderProbes() {
	for server, rejected := range r.Rejected {
		if worked, known := r.Worked[server]; known && worked.At.After(rejected.Since) {
			delete(r.Rejected, server)
		} else if known {
			delete(r.Worked, server)
		}
	}
}

// byIdentity returns evidence by the identities of servers. The previous release recorded them as the volumes spell them. With two spellings, the newer
// evidence stays.
func byIdentity(worked map[string]Evidence) map[string]Evidence {
	var out map[string]Evidence
	for _, server := range slices.Sorted(maps.Keys(worked)) {
		identity := drivers.ServerIdentity(server)
		if known, isKnown := out[identity]; !isKnown || known.At.Before(worked[server].At) {
			out = with(out, identity, worked[server])
		}
	}
	return out
}

func recordIn(records map[string]*Record, identity Identity) *Record {
	if records[identity.Set] == nil {
		records[identity.Set] = &Record{Identity: identity}
	}
	return records[identity.Set]
}
