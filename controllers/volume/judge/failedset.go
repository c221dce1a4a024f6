package judge

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// FailedSet is what the ledger remembers of a set of options with which a volume could not be mounted. Volumes go, and whoever declares
// their annotations takes ours off: neither makes the options any better.
type FailedSet struct {
	FailedMount
	// Volume is the name of the one that could not be mounted; Protocol and FSType are its source's, beside the driver.
	Volume   string                  `json:"volume"`
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

// String says which volume could not be mounted with what.
func (f *FailedSet) String() string {
	return fmt.Sprintf("%s could not be mounted with %s", f.Volume, f.FailedMount)
}
