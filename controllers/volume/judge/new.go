package judge

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/tuning/text"
)

// AmongOthers judges a volume that does not exist yet among the others as they are now. stopped says which of them keeps it
// from getting its options, since it could not be mounted with what the same volume rules declare; empty: none. recall is what the ledger
// remembers under the key of a FailedSet, nil for nothing.
func AmongOthers(volume *Judged, others []corev1.PersistentVolume, recall func(key string) *FailedSet) (v Verdict, stopped string) {
	servers := NewServers()
	if volume.bringsNconnect {
		for i := range others {
			servers.add(others[i].Name, demandOf(&others[i], others[i].Spec.MountOptions))
		}
		servers.Add(volume)
	}
	if v = servers.Judge(volume); v.Action != ActionWrite {
		return v, ""
	}
	for i := range others {
		if failed := FailedMountOf(&others[i]); failed.Stops() && failed.Set == v.Set {
			return v, stoppedText(v, &FailedSet{FailedMount: *failed, Volume: others[i].Name})
		}
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
