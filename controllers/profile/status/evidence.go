package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/text"
)

// Pod is a pod that uses a volume that is to be mounted.
type Pod struct {
	Name string
	// Controller is what runs it, as kubectl takes it: deployment/web. Empty where kubectl cannot restart it.
	Controller string
	// Bare is whether nothing makes another one once it is deleted.
	Bare bool
}

// awaitsEvidence reports whether all that volumes wait for is a mount.
func (r Report) awaitsEvidence() bool { return r.volumes.AwaitsEvidence(r.now) }

// AwaitedClaims are the PersistentVolumeClaims of the volumes that are to be mounted, where nothing goes on without. Who uses them is
// to be told.
func (r Report) AwaitedClaims() []types.NamespacedName {
	if !r.awaitsEvidence() || r.IsDeleting() {
		return nil
	}
	var out []types.NamespacedName
	for _, v := range r.volumes.Evidence.Volumes {
		if v.VolumeClaim.Name != "" {
			out = append(out, v.VolumeClaim)
		}
	}
	return out
}

// WithPods is the report with the pods that use the awaited volumes.
func (r Report) WithPods(pods map[types.NamespacedName][]Pod) Report {
	r.pods = pods
	return r
}

// evidenceMessage says which mount is waited for, and how to give it, in about so many bytes. hasCommand is true if it contains a command.
func (r Report) evidenceMessage(room int) (message string, hasCommand bool) {
	awaited := r.volumes.Evidence
	names := make([]string, len(awaited.Volumes))
	for i, v := range awaited.Volumes {
		names[i] = v.Name
	}
	if len(names) == 0 {
		return "", false
	}
	named := strings.Join(names, " or ")
	if rest := len(names) - 1; rest > 0 && len(named) > maxNames {
		named = fmt.Sprintf("%s or %s", names[0], text.Count(rest, "other"))
	}
	message = fmt.Sprintf("%s for a pod to mount %s with its new options", waitText(awaited.Waiting), named)
	for _, v := range awaited.Volumes {
		if remedy, hasCommand := r.remedyFor(v, room-len(message+": ")); remedy != "" {
			return message + ": " + remedy, hasCommand
		}
	}
	return message + ": no pod uses it: start one that does, or set rollout.volumes.onNoEvidence to Proceed", false
}

// maxNames is how many bytes the names of volumes have, one aside.
const maxNames = 60

func waitText(volumes int32) string {
	if volumes == 1 {
		return "1 volume waits"
	}
	return fmt.Sprintf("%d volumes wait", volumes)
}

// remedyFor says how to have a volume mounted anew, with as many of the ways and of what is to be known as there is room for; empty
// where no pod uses it. hasCommand is true if it contains a command.
func (r Report) remedyFor(v plan.AwaitedVolume, room int) (remedy string, hasCommand bool) {
	pods := r.pods[v.VolumeClaim]
	if len(pods) == 0 {
		return "", false
	}
	var commands []string
	for _, p := range pods {
		switch namespace := v.VolumeClaim.Namespace; {
		case p.Bare:
			commands = append(commands, fmt.Sprintf("recreate pod %s/%s", namespace, p.Name))
		case p.Controller != "":
			commands = append(commands, fmt.Sprintf("kubectl rollout restart -n %s %s", namespace, p.Controller))
		default:
			commands = append(commands, fmt.Sprintf("kubectl delete pod -n %s %s", namespace, p.Name))
		}
	}
	slices.Sort(commands)
	commands = slices.Compact(commands)
	const restart = "restart one of its pods"
	remedy = restart + ": " + text.Join(commands, ", or ")
	if len(remedy) > room {
		remedy = restart + ": " + commands[0]
	}
	if len(remedy) > room {
		// No half of a command.
		return restart, false
	}
	var notes []string
	if v.Server != "" {
		notes = append(notes, "; nconnect shows only on a node that has nothing else of "+v.Server+" mounted")
	}
	if !v.MountsPerPod {
		notes = append(notes, "; a node mounts it anew once no pod there uses it")
	}
	for _, note := range notes {
		if len(remedy+note) <= room {
			remedy += note
		}
	}
	return remedy, slices.ContainsFunc(pods, func(p Pod) bool { return !p.Bare })
}

// evidenceDue is in how long a soak ends after which only a mount goes on; 0: none does.
func (r Report) evidenceDue(now time.Time) time.Duration {
	if r.volumes.Evidence.Waiting == 0 {
		return 0
	}
	return max(0, r.volumes.Evidence.Until.Sub(now))
}
