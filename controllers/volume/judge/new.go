package judge

import (
	"fmt"

	"github.com/storageclient/operator/tuning/text"
)

// AmongOthers judges a volume that does not exist yet among the others as they are now. stopped says which of them keeps it
// from getting its options, since it could not be mounted with what the same volume rules declare; empty: none. recall is what the ledger
// remembers under the key of a FailedSet, nil for nothing.
func AmongOthers(volume *Judged, others *Others, recall func(key string) *FailedSet) (v Verdict, stopped string) {
	if v = others.serversFor(volume).Judge(volume); v.Action != ActionWrite {
		return v, ""
	}
	if failed := others.failedWith(v.Set); failed != nil {
		return v, stoppedText(v, failed)
	}
	for _, key := range []string{v.Set, keyOfSet(v.Set, SourceOf(volume.Volume).Server)} {
		if failed := recall(key); failed != nil {
			return v, stoppedText(v, failed)
		}
	}
	return v, ""
}

func stoppedText(v Verdict, failed *FailedSet) string {
	why := failed.String()
	if failed.Server == "" {
		why = "PersistentVolume " + why
	}
	return fmt.Sprintf("mountOptions are left unchanged: the options of %s are stopped: %s", text.List(v.Profiles), why)
}
