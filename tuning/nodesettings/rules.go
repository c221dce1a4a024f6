package nodesettings

import (
	v1alpha1 "github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// Protocols are the kinds of options of the volumes that a rule can be meant for.
func Protocols(rule *v1alpha1.VolumeRule) []mountoptions.Protocol {
	return protocolsOf(&rule.Selector, optionsOf(rule))
}

// Options are a rule's mount options as plain text.
func Options(rule *v1alpha1.VolumeRule) []string { return optionsOf(rule) }

// SlotsFor is what FromNconnect stands for: requests in flight a connection, by the number of connections; 0 where the
// table changes nothing. See slotsFor.
func SlotsFor(nconnect int) int { return slotsFor(nconnect) }
