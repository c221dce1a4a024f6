package nodesettings

import (
	"fmt"
	"slices"
	"strings"

	v1alpha1 "github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const fsTypeXFS = "xfs"

// driverProtocols are the protocols of drivers that do not speak NFS alone.
var driverProtocols = map[string][]v1alpha1.VolumeProtocol{
	"smb.csi.k8s.io":             {v1alpha1.ProtocolSMB},
	"file.csi.azure.com":         {v1alpha1.ProtocolNFS, v1alpha1.ProtocolSMB},
	"csi.trident.netapp.io":      {v1alpha1.ProtocolNFS, v1alpha1.ProtocolSMB, v1alpha1.ProtocolBlock},
	"kubernetes.io/iscsi":        {v1alpha1.ProtocolBlock},
	"kubernetes.io/fc":           {v1alpha1.ProtocolBlock},
	"kubernetes.io/local-volume": {v1alpha1.ProtocolBlock},
}

// protocolsOf are the protocols of the volumes that a rule can be meant for, as far as their options are known here.
// Where neither protocols nor drivers nor file systems are named it is meant for NFS, and so is a driver of which
// nothing is known: controllers/volume has it the same way.
func protocolsOf(s *v1alpha1.VolumeSelector) []mountoptions.Protocol {
	meant := s.Protocols
	if len(meant) == 0 {
		meant = driversSpeak(s)
	} else if spoken := driversSpeak(s); len(s.Drivers) > 0 {
		meant = slices.DeleteFunc(slices.Clone(meant), func(p v1alpha1.VolumeProtocol) bool { return !slices.Contains(spoken, p) })
	}
	var protocols []mountoptions.Protocol
	for _, known := range []struct {
		volume  v1alpha1.VolumeProtocol
		options mountoptions.Protocol
	}{{v1alpha1.ProtocolNFS, mountoptions.NFS}, {v1alpha1.ProtocolSMB, mountoptions.SMB}, {v1alpha1.ProtocolBlock, mountoptions.XFS}} {
		otherFileSystem := known.options == mountoptions.XFS && len(s.FSTypes) > 0 && !slices.Contains(s.FSTypes, fsTypeXFS)
		if slices.Contains(meant, known.volume) && !otherFileSystem {
			protocols = append(protocols, known.options)
		}
	}
	return protocols
}

// driversSpeak are the protocols of the drivers that a rule names; without drivers, what its file systems tell.
func driversSpeak(s *v1alpha1.VolumeSelector) []v1alpha1.VolumeProtocol {
	switch {
	case len(s.Drivers) == 0 && slices.Contains(s.FSTypes, fsTypeXFS):
		return []v1alpha1.VolumeProtocol{v1alpha1.ProtocolBlock}
	case len(s.Drivers) == 0:
		return []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}
	}
	var all []v1alpha1.VolumeProtocol
	for _, driver := range s.Drivers {
		spoken, ok := driverProtocols[driver]
		if !ok {
			spoken = []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}
		}
		all = append(all, spoken...)
	}
	return all
}

// checkOptions checks options against several protocols. What is wrong for all of them is an error, what is wrong for
// some a warning.
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
	var problems []mountoptions.Problem
	for _, problem := range all {
		if !problem.Warning && len(wrong[problem.Option]) < len(protocols) {
			problem.Warning = true
			problem.Message += "; name the protocol in selector.protocols"
		}
		problems = append(problems, problem)
	}
	slices.SortStableFunc(problems, func(a, b mountoptions.Problem) int {
		return strings.Compare(a.Option, b.Option)
	})
	return problems
}
