package nodesettings

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// checkSlots reports slot tables that have no effect, or another effect than expected.
func checkSlots(p *v1alpha1.StorageClientProfile) (problems []Problem) {
	nconnect := profileNconnect(p)
	warn := func(d declaration, message string) {
		problems = append(problems, Problem{Field: d.field, Value: d.text, Message: message, Warning: true})
	}
	tables := map[string]int{}
	for _, d := range declarations(p, nconnect) {
		if d.key != keyTCPSlots && d.key != keyTCPMaxSlots {
			continue
		}
		tables[d.key], _ = strconv.Atoi(d.value)
		if sessionsOnly(p) {
			warn(d, "has no effect: the volumes use NFSv4.1 or 4.2 only; set max_session_slots of the module nfs")
		}
		if initial, limit := tables[keyTCPSlots], tables[keyTCPMaxSlots]; limit > 0 && initial > limit {
			warn(d, fmt.Sprintf("has no effect: a connection starts with %d slots, more than this limit of %d", initial, limit))
		}
	}
	if fromNconnect := declaresFromNconnect(p); fromNconnect && nconnect > 0 && SlotsFor(nconnect) == 0 {
		warn(declaration{field: fieldTCPMaxSlots, text: v1alpha1.FromNconnect},
			fmt.Sprintf("has no effect with nconnect=%d: the table ends at 8, and each connection may have 65536 requests in flight", nconnect))
	}
	return problems
}

func declaresFromNconnect(p *v1alpha1.StorageClientProfile) bool {
	if p.Spec.Node == nil || p.Spec.Node.Sunrpc == nil {
		return false
	}
	limit := p.Spec.Node.Sunrpc.TCPMaxSlotTableEntries
	return limit != nil && limit.Type == intstr.String && limit.StrVal == v1alpha1.FromNconnect
}

// sessionsOnly reports whether every rule of the profile requests a version of NFS with sessions.
func sessionsOnly(p *v1alpha1.StorageClientProfile) bool {
	return len(p.Spec.Volumes) > 0 && !slices.ContainsFunc(p.Spec.Volumes, func(rule v1alpha1.VolumeRule) bool {
		version := mountoptions.Transport(Options(rule.MountOptions)).Version
		return version != "4.1" && version != "4.2"
	})
}
