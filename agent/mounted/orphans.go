package mounted

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// orphanAfter is the time for which a mount must be without a pod. Between a mount and the first process of its pod, the kubelet mounts the pod's other
// volumes.
const orphanAfter = 5 * time.Minute

// orphans are the mounts that no pod uses, by mount point. readAt is the time of the next read.
type orphans struct {
	found  map[string]mounts.Orphan
	readAt time.Time
}

// note reads the orphans at most once a minute, because that reads a file of every process.
func (o *orphans) note(read func() []mounts.Orphan, now time.Time) {
	if now.Before(o.readAt) {
		return
	}
	former := o.found
	o.found, o.readAt = map[string]mounts.Orphan{}, now.Add(fullInterval)
	for _, orphan := range read() {
		orphan.Since = now
		if known, ok := former[orphan.MountPoint]; ok {
			orphan.Since = known.Since
		}
		o.found[orphan.MountPoint] = orphan
	}
}

// report adds the finding to the messages of mounts that are orphans for long enough.
func (o *orphans) report(list []v1alpha1.MountStatus, now time.Time) {
	for i := range list {
		m := &list[i]
		if orphan, ok := o.found[m.MountPoint]; ok && now.Sub(orphan.Since) >= orphanAfter {
			message := fmt.Sprintf("orphan: no process of its pod runs on this node (pod %s, server %s, directory last changed %s); do not access it, "+
				"because that can hang. %s", cmp.Or(orphan.PodUID, "unknown: staging mount"), m.Server, orphan.Changed.UTC().Format(time.RFC3339), m.Message)
			m.Message = text.Cut(strings.TrimSpace(message), bounds.Message)
		}
	}
}
