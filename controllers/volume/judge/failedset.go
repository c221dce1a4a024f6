package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// FailedSet is what the ledger remembers of a set of options with which a volume could not be mounted. Volumes go, and whoever declares
// their annotations takes ours off: neither makes the options any better. Of one that a probe has refused, Message is what it says.
type FailedSet struct {
	FailedMount
	// Volume is the name of the one that could not be mounted; Protocol and FSType are its source's, beside the driver.
	Volume string `json:"volume"`
	// Server is the one that a probe was refused on: of others it says nothing. Empty: it was no probe.
	Server   string                  `json:"server,omitempty"`
	Protocol v1alpha1.VolumeProtocol `json:"protocol,omitempty"`
	FSType   string                  `json:"fsType,omitempty"`
}

// FailedSetOf is what is to be remembered of a volume's failure; nil as long as it is a suspicion, and where it is none.
func FailedSetOf(pv *corev1.PersistentVolume, failed *FailedMount) *FailedSet {
	if !failed.Stops() || failed.Suspected {
		return nil
	}
	source := SourceOf(pv)
	out := &FailedSet{FailedMount: *failed, Volume: pv.Name, Protocol: source.Protocol, FSType: source.FSType}
	out.Settled = true
	return out
}

// RefusedSet is what is to be remembered of a set of options that a probe has refused on a volume's server.
func RefusedSet(pv *corev1.PersistentVolume, v Verdict, message string, at time.Time) *FailedSet {
	source := SourceOf(pv)
	failed := FailedMount{Set: v.Set, Rules: v.Rules, Driver: source.Driver, Options: v.Options, Message: message, Since: at, Settled: true}
	return &FailedSet{FailedMount: failed, Volume: pv.Name, Server: source.Server, Protocol: source.Protocol, FSType: source.FSType}
}

// Key is what it stands under in the ledger.
func (f *FailedSet) Key() string { return keyOfSet(f.Set, f.Server) }

// keyOfSet names a set of options, on one server or on all.
func keyOfSet(set, server string) string {
	if server == "" {
		return set
	}
	sum := sha256.Sum256([]byte(server))
	return set + "." + hex.EncodeToString(sum[:6])
}

// Encode writes it as the ledger holds it. Clusters hold those of former releases.
func (f *FailedSet) Encode() string {
	data, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings, booleans and a time
	}
	return string(data)
}

// DecodeFailedSet reads what the ledger holds; nil where it cannot be read.
func DecodeFailedSet(text string) *FailedSet {
	out := &FailedSet{}
	if err := json.Unmarshal([]byte(text), out); err != nil || out.Set == "" {
		return nil
	}
	return out
}

// IsDeclared says whether the set is still declared, for whichever volumes.
func (f *FailedSet) IsDeclared(ps *Profiles) bool {
	return ps.declares(&f.FailedMount, Source{Driver: f.Driver, Protocol: f.Protocol, FSType: f.FSType})
}

// String says which volume could not be mounted with what, or what the probe says.
func (f *FailedSet) String() string {
	if f.Server != "" {
		return f.Message
	}
	return fmt.Sprintf("%s could not be mounted with %s", f.Volume, f.FailedMount)
}
