package nodesettings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const fsTypeXFS = "xfs"

// families are the kinds of mount options in the order of messages.
var families = []mountoptions.Protocol{mountoptions.NFS, mountoptions.SMB, mountoptions.XFS, mountoptions.Generic}

// Protocols returns the kinds of mount options of the volumes that a rule can select.
func Protocols(rule *v1alpha1.VolumeRule) []mountoptions.Protocol {
	return protocolsOf(&rule.Selector, Options(rule.MountOptions))
}

// protocolsOf returns the kinds of mount options of the volumes that a selector can select. If a selector has no protocols, file
// systems or known drivers, it is the kind that fits the options best.
func protocolsOf(s *v1alpha1.VolumeSelector, options []string) []mountoptions.Protocol {
	known := slices.ContainsFunc(s.Drivers, func(name string) bool { return len(drivers.Protocols(name)) > 0 })
	if len(s.Protocols)+len(s.FSTypes) == 0 && !known {
		return []mountoptions.Protocol{bestFor(options)}
	}
	protocols := s.Protocols
	if len(protocols) == 0 {
		protocols = protocolsOfDrivers(s)
	} else if spoken := protocolsOfDrivers(s); len(s.Drivers) > 0 {
		protocols = slices.DeleteFunc(slices.Clone(protocols), func(p v1alpha1.VolumeProtocol) bool { return !slices.Contains(spoken, p) })
	}
	onDisk := slices.Contains(protocols, v1alpha1.ProtocolBlock)
	fits := map[mountoptions.Protocol]bool{
		mountoptions.NFS:     slices.Contains(protocols, v1alpha1.ProtocolNFS),
		mountoptions.SMB:     slices.Contains(protocols, v1alpha1.ProtocolSMB),
		mountoptions.XFS:     onDisk && (len(s.FSTypes) == 0 || slices.Contains(s.FSTypes, fsTypeXFS)),
		mountoptions.Generic: onDisk && slices.ContainsFunc(s.FSTypes, func(t string) bool { return t != fsTypeXFS }),
	}
	fitting := slices.DeleteFunc(slices.Clone(families), func(p mountoptions.Protocol) bool { return !fits[p] })
	if i := slices.Index(fitting, mountoptions.NFS); i >= 0 {
		fitting[i] = clientOf(s.Drivers)
	}
	return fitting
}

// clientOf returns the NFS family that all drivers mount with. If they differ, or one of them is unknown, it returns the kernel's
// family.
func clientOf(names []string) mountoptions.Protocol {
	all := lists.Distinct(lists.Each(names, drivers.Families)...)
	if len(all) == 1 && !slices.ContainsFunc(names, func(name string) bool { return len(drivers.Protocols(name)) == 0 }) {
		return all[0]
	}
	return mountoptions.NFS
}

// bestFor returns the first kind with the fewest problems in the options.
func bestFor(options []string) mountoptions.Protocol {
	strangers := func(p mountoptions.Protocol) int {
		return len(lists.Filter(options, func(o string) bool { return !p.Knows(o) }))
	}
	errors := func(p mountoptions.Protocol) int { return len(mountoptions.Errors(p, options)) }
	return slices.MinFunc(families, func(a, b mountoptions.Protocol) int {
		if order := cmp.Compare(strangers(a), strangers(b)); order != 0 {
			return order // explanations of unknown options take long
		}
		return cmp.Compare(errors(a), errors(b))
	})
}

// protocolsOfDrivers returns the protocols of a selector's drivers. Without drivers, the file systems determine the protocol. An unknown
// driver counts as NFS, or as a block driver if the selector has file systems. controllers/volume uses the same rule.
func protocolsOfDrivers(s *v1alpha1.VolumeSelector) (all []v1alpha1.VolumeProtocol) {
	if len(s.Drivers) == 0 {
		return protocolsOfUnknown(s)
	}
	for _, driver := range s.Drivers {
		spoken := drivers.Protocols(driver)
		if len(spoken) == 0 {
			spoken = protocolsOfUnknown(s)
		}
		all = append(all, spoken...)
	}
	return all
}

func protocolsOfUnknown(s *v1alpha1.VolumeSelector) []v1alpha1.VolumeProtocol {
	if len(s.FSTypes) > 0 {
		return []v1alpha1.VolumeProtocol{v1alpha1.ProtocolBlock}
	}
	return []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}
}

// checkDrivers reports options that a driver of a rule changes. If all drivers change an option, it is an error, otherwise a
// warning.
func checkDrivers(s *v1alpha1.VolumeSelector, protocols []mountoptions.Protocol, options []string) (all []mountoptions.Problem) {
	if len(protocols) != 1 {
		return nil
	}
	found := map[string][]string{}
	for _, name := range s.Drivers {
		volume := drivers.Volume{Driver: name, Attributes: map[string]string{"protocol": strings.ToLower(string(protocols[0]))}}
		wanted, _ := protocols[0].WithoutDriverVersion(options, volume.PassedOptions(nil))
		for _, problem := range volume.Check(protocols[0], wanted) {
			found[problem.Option] = append(found[problem.Option], name)
			problem.Message = name + ": " + problem.Message
			all = append(all, problem)
		}
	}
	for i := range all {
		all[i].Warning = len(found[all[i].Option]) < len(s.Drivers)
	}
	return all
}

// checkOptions checks options against several protocols. A problem with all protocols is an error, a problem with some of them is
// a warning.
func checkOptions(protocols []mountoptions.Protocol, options []string) []mountoptions.Problem {
	if len(protocols) == 1 {
		return mountoptions.Validate(protocols[0], options)
	}
	var all []mountoptions.Problem
	wrong := map[string][]mountoptions.Protocol{}
	for _, protocol := range protocols {
		for _, problem := range mountoptions.Validate(protocol, options) {
			if !problem.Warning && !slices.Contains(wrong[problem.Option], protocol) {
				wrong[problem.Option] = append(wrong[problem.Option], protocol)
			}
			problem.Message = fmt.Sprintf("%s: %s", protocol, problem.Message)
			all = append(all, problem)
		}
	}
	for i := range all {
		if problem := &all[i]; !problem.Warning && len(wrong[problem.Option]) < len(protocols) {
			problem.Warning = true
			problem.Message += "; set the protocol in selector.protocols, or the file system in selector.fsTypes"
		}
	}
	slices.SortStableFunc(all, func(a, b mountoptions.Problem) int {
		return strings.Compare(a.Option, b.Option)
	})
	return all
}

// checkProtection reports each option that is omitted to protect volumes once, also for several protocols.
func checkProtection(protocols []mountoptions.Protocol, options []string, policy v1alpha1.ConflictPolicy) (problems []mountoptions.Problem) {
	for _, protocol := range protocols {
		problems = lists.AddMissing(problems, protocol.CheckProtection(options, policy)...)
	}
	return problems
}
