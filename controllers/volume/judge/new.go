package judge

import (
	"fmt"

	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/text"
)

// EvaluateNew evaluates a volume that does not exist yet among the current volumes. stopped explains why it does not get its options: a failed
// mount of another volume, or a probe. Empty if it gets them. find returns the record of a set.
func EvaluateNew(volume *Evaluation, index *VolumeIndex, find func(set, server string) *optionset.Record) (v Verdict, stopped string) {
	if v = index.serversFor(volume).Evaluate(volume); v.Action != ActionWrite {
		return v, ""
	}
	server := SourceOf(volume.Volume).Server
	reason := RejectionText(find(v.Set, server), server)
	if reason == "" {
		return v, ""
	}
	return v, fmt.Sprintf("mountOptions stay unchanged; the options of %s are stopped: %s", text.List(v.Profiles), reason)
}

// RejectionText explains why no further volume of a server gets an option set, regardless of other evidence. Empty if volumes may get it.
func RejectionText(set *optionset.Record, server string) string {
	switch set.State(server) {
	case optionset.Suspected, optionset.Failing, optionset.Disputed:
		b := set.BlameOf(set.BlamedVolume())
		return fmt.Sprintf("PersistentVolume %s could not be mounted with %s", b.Volume, BlameText(set, *b))
	case optionset.Rejected:
		return set.Rejected[server].Text
	case optionset.Untried, optionset.Probing, optionset.Works, optionset.Canary:
	}
	return ""
}
