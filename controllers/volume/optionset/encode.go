package optionset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// failedPrefix starts the keys of failures, as SET for a failed mount and as SET.SERVER for a refused probe. setPrefix starts the keys of
	// all else. An earlier release reads the former, and removes the latter.
	failedPrefix, setPrefix = "failed.", "set."
	// maxWorked is the maximum number of servers whose probes are recorded. The newest are.
	maxWorked = 16
	// maxBytes is the maximum size of an entry with its lists of mount options. A longer one is recorded without them.
	maxBytes = 8 << 10
)

// IsKey reports whether the key of an entry of the ledger is that of a set of options.
func IsKey(key string) bool {
	return strings.HasPrefix(key, failedPrefix) || strings.HasPrefix(key, setPrefix)
}

// IsEvidenceKey reports whether the entry of a key may be left out: what it holds can be observed again.
func IsEvidenceKey(key string) bool { return strings.HasPrefix(key, setPrefix) }

// Keys returns the keys of all entries that tell how a set stands on a server.
func Keys(set, server string) []string {
	return []string{failedPrefix + set, failedPrefix + set + "." + hashOf(server), setPrefix + set}
}

func hashOf(server string) string {
	sum := sha256.Sum256([]byte(server))
	return hex.EncodeToString(sum[:6])
}

// Failed is the JSON of a failure: below failed.SET in the ledger, and as the annotation of the volume for an earlier release.
type Failed struct {
	Set     string    `json:"set,omitempty"`
	Rules   []string  `json:"rules,omitempty"`
	Driver  string    `json:"driver,omitempty"`
	Options []string  `json:"options,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Failure string    `json:"failure,omitempty"`
	// Suspected is true if the text does not name the options. Settled is true if they are the cause, Acquitted if they are not.
	Suspected bool `json:"suspected,omitempty"`
	Settled   bool `json:"settled,omitempty"`
	Acquitted bool `json:"acquitted,omitempty"`
	// Only the ledger has the rest. An earlier release writes no State, RevertedAt and More.
	Volume     string                  `json:"volume,omitempty"`
	Server     string                  `json:"server,omitempty"`
	Protocol   v1alpha1.VolumeProtocol `json:"protocol,omitempty"`
	FSType     string                  `json:"fsType,omitempty"`
	State      State                   `json:"state,omitempty"`
	RevertedAt time.Time               `json:"revertedAt,omitzero"`
	More       []Failed                `json:"more,omitempty"`
}

// known is the JSON below set.SET in the ledger.
type known struct {
	Set      string                  `json:"set"`
	Rules    []string                `json:"rules"`
	Driver   string                  `json:"driver"`
	Protocol v1alpha1.VolumeProtocol `json:"protocol,omitempty"`
	FSType   string                  `json:"fsType,omitempty"`
	Evidence *Evidence               `json:"evidence,omitempty"`
	Probes   map[string]Evidence     `json:"probes,omitempty"`
	Cleared  []string                `json:"cleared,omitempty"`
	Judged   time.Time               `json:"judged,omitzero"`
}

// Failed returns the JSON of a failed mount, without what is the set's.
func (b Blame) Failed() *Failed {
	return &Failed{
		Options: b.Options, Message: b.Text, Since: b.Since, Failure: b.Failure, Suspected: !b.NamesOptions, Settled: b.Settled,
		Volume: b.Volume, RevertedAt: b.RevertedAt,
	}
}

// Judged returns the failure as an earlier release would leave it after what a volume has shown with its original options.
func (f Failed) Judged(by Kind) *Failed {
	f.Settled = by == OwnMounted || by == NoPodWaits && !f.Suspected
	f.Acquitted = !f.Settled
	if f.Acquitted && by == NoPodWaits {
		f.Failure = ""
	}
	f.Suspected = false
	return &f
}

func (f *Failed) blame(volume string) Blame {
	return Blame{
		Volume: volume, Options: f.Options, Failure: f.Failure, Text: f.Message, NamesOptions: !f.Suspected, Settled: f.Settled,
		Since: f.Since, RevertedAt: f.RevertedAt,
	}
}

// Encode returns the entries of the record, by key. A record of which nothing is known has none.
func (r *Record) Encode() map[string]string {
	out := map[string]string{}
	if len(r.Blames) > 0 {
		f := r.encodeBlame(r.Blames[0])
		f.State = Suspected
		if r.isSettled() {
			f.State = Failing
		}
		for _, b := range r.Blames[1:] {
			f.More = append(f.More, *b.Failed())
		}
		out[f.key()] = f.encode()
	}
	for server, b := range r.Refused {
		f := r.encodeBlame(b)
		f.Server, f.State = server, Rejected
		out[f.key()] = f.encode()
	}
	if r.Evidence != nil || len(r.Worked)+len(r.Cleared) > 0 || !r.JudgedAt.IsZero() {
		out[setPrefix+r.Set] = jsonOf(known{
			Set: r.Set, Rules: r.Rules, Driver: r.Driver, Protocol: r.Protocol, FSType: r.FSType,
			Evidence: r.Evidence, Probes: newest(r.Worked), Cleared: r.Cleared, Judged: r.JudgedAt,
		})
	}
	return out
}

func (r *Record) encodeBlame(b Blame) *Failed {
	f := b.Failed()
	f.Set, f.Rules, f.Driver, f.Protocol, f.FSType = r.Set, r.Rules, r.Driver, r.Protocol, r.FSType
	return f
}

func (f *Failed) encode() string {
	whole := jsonOf(f)
	if len(whole) <= maxBytes {
		return whole
	}
	f.Options = nil
	for i := range f.More {
		f.More[i].Options = nil
	}
	return jsonOf(f)
}

// newest returns the newest probes.
func newest(worked map[string]Evidence) map[string]Evidence {
	if len(worked) <= maxWorked {
		return worked
	}
	servers := slices.SortedFunc(maps.Keys(worked), func(a, b string) int {
		if c := worked[b].At.Compare(worked[a].At); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	out := map[string]Evidence{}
	for _, server := range servers[:maxWorked] {
		out[server] = worked[server]
	}
	return out
}

// Decode reads the entries of sets, by key, and returns the records by set. It skips an entry that it cannot read, or that has another key.
func Decode(entries map[string]string) map[string]*Record {
	out := map[string]*Record{}
	for key, value := range entries {
		switch {
		case strings.HasPrefix(key, failedPrefix):
			decodeFailed(out, key, value)
		case strings.HasPrefix(key, setPrefix):
			decodeKnown(out, key, value)
		}
	}
	return out
}

func decodeFailed(out map[string]*Record, key, value string) {
	f := &Failed{}
	if err := json.Unmarshal([]byte(value), f); err != nil || f.Set == "" || key != f.key() {
		return
	}
	r := recordOf(out, Record{Set: f.Set, Rules: f.Rules, Driver: f.Driver, Protocol: f.Protocol, FSType: f.FSType})
	if f.Server != "" {
		put(&r.Refused, f.Server, f.blame(f.Volume))
		return
	}
	r.isEarlier = f.State == ""
	r.Blames = []Blame{f.blame(f.Volume)}
	for i := range f.More {
		r.Blames = append(r.Blames, f.More[i].blame(f.More[i].Volume))
	}
}

func (f *Failed) key() string {
	if f.Server == "" {
		return failedPrefix + f.Set
	}
	return failedPrefix + f.Set + "." + hashOf(f.Server)
}

func decodeKnown(out map[string]*Record, key, value string) {
	k := known{}
	if err := json.Unmarshal([]byte(value), &k); err != nil || k.Set == "" || key != setPrefix+k.Set {
		return
	}
	r := recordOf(out, Record{Set: k.Set, Rules: k.Rules, Driver: k.Driver, Protocol: k.Protocol, FSType: k.FSType})
	r.Evidence, r.Worked, r.Cleared, r.JudgedAt = k.Evidence, k.Probes, k.Cleared, k.Judged
}

func recordOf(out map[string]*Record, identity Record) *Record {
	if out[identity.Set] == nil {
		out[identity.Set] = &identity
	}
	return out[identity.Set]
}

// Earlier is what a volume carries of a set of options for an earlier release, or since one.
type Earlier struct {
	Volume, Server string
	// Evidence is the text of what has shown the options to work that the volume has. Empty if nothing has. Probed is true if a probe has.
	Evidence string
	Probed   bool
	// At is the time at which the volume got the options.
	At time.Time
	// Cleared is the failure that the volume also had with its original options. Empty if there is none.
	Cleared string
	// Failed is the failed mount of a volume that has its original options back. Nil if there is none.
	Failed *Failed
}

// Import adds what the record does not hold: evidence, cleared failures, and failed mounts that have not been judged since.
func (r *Record) Import(e Earlier) {
	_, worked := r.Worked[e.Server]
	e.Evidence = text.CutBytes(e.Evidence, maxText)
	switch {
	case e.Evidence == "":
	case !e.Probed && r.Evidence == nil:
		r.Evidence = &Evidence{Text: e.Evidence, Volume: e.Volume, At: e.At}
	case e.Probed && !worked:
		put(&r.Worked, e.Server, Evidence{Text: e.Evidence, At: e.At})
	}
	if e.Cleared != "" {
		r.importCleared(e.Cleared)
	}
	if e.Failed != nil {
		r.importFailed(e.Volume, e.Failed)
	}
}

func (r *Record) importCleared(failure string) {
	r.clear(failure)
	if r.isEarlier {
		r.Blames = slices.DeleteFunc(r.Blames, func(b Blame) bool { return b.Failure == failure })
	}
}

func (r *Record) importFailed(volume string, f *Failed) {
	b := f.blame(volume)
	b.RevertedAt = b.Since
	isJudged := !r.JudgedAt.IsZero() && !b.Since.After(r.JudgedAt)
	known := r.BlameOf(volume)
	switch {
	case f.Acquitted && f.Failure != "":
		r.importCleared(f.Failure)
	case f.Acquitted:
	case known != nil && r.isEarlier && !f.Settled:
		*known = b
	case known != nil, isJudged, !r.Counts(b.Failure), len(r.Blames) == maxBlames:
	case f.Settled && !r.isSettled():
		r.Blames = []Blame{b}
	case !r.isSettled(), r.isEarlier:
		r.Blames = append(r.Blames, b)
	}
}

func jsonOf(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings, booleans and times
	}
	return string(data)
}
