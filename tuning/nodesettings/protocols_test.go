package nodesettings

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/mountoptions"
)

func TestProtocolsOf(t *testing.T) {
	const nfs, smb, block = v1alpha1.ProtocolNFS, v1alpha1.ProtocolSMB, v1alpha1.ProtocolBlock
	type protocols = []v1alpha1.VolumeProtocol
	for name, test := range map[string]struct {
		selector v1alpha1.VolumeSelector
		want     []mountoptions.Protocol
	}{
		"nothing named is NFS":                   {want: []mountoptions.Protocol{mountoptions.NFS}},
		"the protocol":                           {v1alpha1.VolumeSelector{Protocols: protocols{smb}}, []mountoptions.Protocol{mountoptions.SMB}},
		"several protocols":                      {v1alpha1.VolumeSelector{Protocols: protocols{smb, nfs}}, []mountoptions.Protocol{mountoptions.NFS, mountoptions.SMB}},
		"a driver of two protocols":              {v1alpha1.VolumeSelector{Drivers: []string{"file.csi.azure.com"}}, []mountoptions.Protocol{mountoptions.NFS, mountoptions.SMB}},
		"a driver of two protocols, and one":     {v1alpha1.VolumeSelector{Drivers: []string{"file.csi.azure.com"}, Protocols: protocols{nfs}}, []mountoptions.Protocol{mountoptions.NFS}},
		"an unknown driver":                      {v1alpha1.VolumeSelector{Drivers: []string{"example.com"}}, []mountoptions.Protocol{mountoptions.NFS}},
		"a driver of blocks":                     {v1alpha1.VolumeSelector{Drivers: []string{"kubernetes.io/iscsi"}}, []mountoptions.Protocol{mountoptions.XFS}},
		"a file system":                          {v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}, []mountoptions.Protocol{mountoptions.XFS}},
		"blocks with a file system":              {v1alpha1.VolumeSelector{Protocols: protocols{block}, FSTypes: []string{"ext4", "xfs"}}, []mountoptions.Protocol{mountoptions.XFS, mountoptions.Generic}},
		"a file system without specific options": {v1alpha1.VolumeSelector{Protocols: protocols{block}, FSTypes: []string{"ext4"}}, []mountoptions.Protocol{mountoptions.Generic}},
		"an unknown driver of a disk":            {v1alpha1.VolumeSelector{Drivers: []string{"example.com"}, FSTypes: []string{"xfs"}}, []mountoptions.Protocol{mountoptions.XFS}},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, protocolsOf(&test.selector, []string{"nconnect=4"}), cmpopts.EquateEmpty())
		})
	}
}

func TestValidateBySelector(t *testing.T) {
	at := func(selector v1alpha1.VolumeSelector, options ...v1alpha1.MountOption) []string {
		return problemsOf(volume(options...), func(s *v1alpha1.StorageClientProfileSpec) { s.Volumes[0].Selector = selector })
	}
	azure := v1alpha1.VolumeSelector{Drivers: []string{"file.csi.azure.com"}}
	azureNFS := v1alpha1.VolumeSelector{Drivers: azure.Drivers, Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}
	for name, test := range map[string]struct {
		got, want []string
	}{
		"an option of both protocols": {at(azure, "actimeo=30"), nil},
		"an option of one of them": {at(azure, "actimeo=30", "nconnect=4"),
			[]string{"warning: spec.volumes[0].mountOptions[1]: SMB: is unknown to this version of the operator, and mount fails on options that the kernel does not know; set the protocol in selector.protocols, or the file system in selector.fsTypes"}},
		"an option of none": {at(azure, "logbsize=256k"), []string{
			"error: spec.volumes[0].mountOptions[0]: NFS: is unknown to this version of the operator, and mount fails on options that the kernel does not know",
			"error: spec.volumes[0].mountOptions[0]: SMB: is unknown to this version of the operator, and mount fails on options that the kernel does not know"}},
		"options of EFS in a rule for EFS": {at(v1alpha1.VolumeSelector{Drivers: []string{"efs.csi.aws.com"}}, "tls", "iam"), nil},
		"options of EFS in a rule for all NFS": {at(v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}, "iam"), []string{
			"error: spec.volumes[0].mountOptions[0]: is unknown to this version of the operator, and mount fails on options that the kernel does not know; EFS's client accepts it: use a separate rule whose selector.drivers is [efs.csi.aws.com]"}},
		"options of EFS in a rule for another driver too": {at(v1alpha1.VolumeSelector{Drivers: []string{"efs.csi.aws.com", "nfs.csi.k8s.io"}}, "iam"), []string{
			"error: spec.volumes[0].mountOptions[0]: is unknown to this version of the operator, and mount fails on options that the kernel does not know; EFS's client accepts it: use a separate rule whose selector.drivers is [efs.csi.aws.com]"}},
		"how EFS is reached is the volume's": {at(v1alpha1.VolumeSelector{Drivers: []string{"efs.csi.aws.com"}}, "mounttargetip=10.0.0.1"), []string{
			"error: spec.volumes[0].mountOptions[0]: is rejected: it sets which server is mounted and how it is reached; only the volume itself may set that"}},
		"connections of VAST in a rule for VAST": {at(v1alpha1.VolumeSelector{Drivers: []string{"csi.vastdata.com"}}, "nconnect=32", "remoteports=dns"), nil},
		"connections of VAST in a rule for others too": {at(v1alpha1.VolumeSelector{Drivers: []string{"csi.vastdata.com", "nfs.csi.k8s.io"}}, "nconnect=32"), []string{
			"error: spec.volumes[0].mountOptions[0]: must be 1 to 16 connections; VAST's client accepts it: use a separate rule whose selector.drivers is [csi.vastdata.com]"}},
		"servers of VAST are the volume's": {at(v1alpha1.VolumeSelector{Drivers: []string{"csi.vastdata.com"}}, "remoteports=10.0.0.1"), []string{
			"error: spec.volumes[0].mountOptions[0]: must be one of dns"}},
		"an XFS option where XFS is named":    {at(v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}, "logbsize=256k"), nil},
		"a class alone, with options of XFS":  {at(v1alpha1.VolumeSelector{StorageClassNames: []string{"fast"}}, "noatime", "logbsize=256k"), nil},
		"a class alone, with options of SMB":  {at(v1alpha1.VolumeSelector{StorageClassNames: []string{"fast"}}, "actimeo=30", "mfsymlinks"), nil},
		"a class alone, with a bad XFS value": {at(v1alpha1.VolumeSelector{StorageClassNames: []string{"fast"}}, "logbsize=256"), []string{"error: spec.volumes[0].mountOptions[0]: must be a power of two from 16k to 256k, or the same in bytes"}},
		"a class alone, with a misspelt option": {at(v1alpha1.VolumeSelector{StorageClassNames: []string{"fast"}}, "nconect=4"), []string{
			"error: spec.volumes[0].mountOptions[0]: is unknown. Did you mean nconnect?"}},
		"an option of XFS where another file system is named": {at(v1alpha1.VolumeSelector{FSTypes: []string{"ext4"}}, "noatime", "logbsize=256k"), []string{
			"error: spec.volumes[0].mountOptions[1]: is not an option that every file system supports: for options of XFS, set fsType xfs"}},
		"another version than the only driver's own": {at(azureNFS, "nconnect=4", "vers=4.2"), []string{
			"error: spec.volumes[0].mountOptions[1]: file.csi.azure.com: the driver adds its own version ([vers=4 minorversion=1]), and mount accepts only one: leave it out"}},
		"another version than one driver's own": {at(v1alpha1.VolumeSelector{Drivers: []string{"file.csi.azure.com", "nfs.csi.k8s.io"}, Protocols: azureNFS.Protocols}, "vers=4.2"), []string{
			"warning: spec.volumes[0].mountOptions[0]: file.csi.azure.com: the driver adds its own version ([vers=4 minorversion=1]), and mount accepts only one: leave it out"}},
		"the driver's own version": {at(azureNFS, "nconnect=4", "vers=4.1"), nil},
		"a timer alone on Azure Files": {at(azureNFS, "acregmax=90"), []string{
			"error: spec.volumes[0].mountOptions[0]: file.csi.azure.com: does not take effect: with the options that the driver adds, or in its order, acregmax is 30"}},
		"an NFS option where XFS is named": {at(v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}, "nocto"),
			[]string{"error: spec.volumes[0].mountOptions[0]: is unknown to this version of the operator, and mount fails on options that the kernel does not know"}},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, test.got, cmpopts.EquateEmpty())
		})
	}
}

// Options that some or all volumes will not get are reported before they are applied.
func TestValidateWarnsOfOptionsThatStricterVolumesDoNotGet(t *testing.T) {
	at := func(policy v1alpha1.ConflictPolicy, selector v1alpha1.VolumeSelector, options ...v1alpha1.MountOption) []string {
		return problemsOf(volume(options...), func(s *v1alpha1.StorageClientProfileSpec) {
			s.Volumes[0].OnConflict, s.Volumes[0].Selector = policy, selector
		})
	}
	only := func(p ...v1alpha1.VolumeProtocol) v1alpha1.VolumeSelector {
		return v1alpha1.VolumeSelector{Protocols: p}
	}
	nfs, smb, xfs := only(v1alpha1.ProtocolNFS), only(v1alpha1.ProtocolSMB), v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}
	const (
		first = "warning: spec.volumes[0].mountOptions[0]: "
		rw    = first + "is left out for volumes with ro: the operator never weakens a mount, regardless of onConflict"
		quota = first + "is the default without quotas; with quotas it drops their state, and the next mount with quotas counts all files again"
	)
	for name, test := range map[string]struct {
		got, want []string
	}{
		"rw over options of volumes":                    {at(v1alpha1.ConflictUseProfile, nfs, "rw"), []string{rw}},
		"rw over options of classes":                    {at(v1alpha1.ConflictUseProfileOverClass, nfs, "rw"), []string{rw}},
		"rw over nothing":                               {at(v1alpha1.ConflictKeepVolume, nfs, "rw"), nil},
		"rw, without onConflict":                        {at("", nfs, "rw"), nil},
		"rw for several protocols is reported once":     {at(v1alpha1.ConflictUseProfile, only(v1alpha1.ProtocolNFS, v1alpha1.ProtocolSMB), "rw"), []string{rw}},
		"a flavour that is not the strongest":           {at(v1alpha1.ConflictUseProfile, nfs, "sec=sys"), []string{first + "is left out for volumes with sec=krb5, sec=krb5i, sec=krb5p: the operator never weakens a mount, regardless of onConflict"}},
		"a flavour that is the strongest":               {at(v1alpha1.ConflictUseProfile, nfs, "sec=krb5p"), nil},
		"no flavour":                                    {at(v1alpha1.ConflictKeepVolume, nfs, "sec=none"), []string{first + "is left out: mounts have sec=sys by default, which is stronger, and the operator never weakens a mount; only a volume itself can set it"}},
		"no encryption":                                 {at(v1alpha1.ConflictUseProfile, nfs, "hard", "xprtsec=none"), []string{"warning: spec.volumes[0].mountOptions[1]: is left out for volumes with xprtsec=mtls, xprtsec=tls: the operator never weakens a mount, regardless of onConflict"}},
		"the version that SMB mounts are sure of":       {at(v1alpha1.ConflictKeepVolume, smb, "vers=2.1"), nil},
		"the newest version of SMB":                     {at(v1alpha1.ConflictUseProfile, smb, "vers=3.1.1"), nil},
		"a version of NFS next to SMB":                  {at(v1alpha1.ConflictUseProfile, only(v1alpha1.ProtocolNFS, v1alpha1.ProtocolSMB), "vers=4.1"), []string{first + "SMB: must be one of 2.1, 3, 3.0, 3.02, 3.1.1, default; set the protocol in selector.protocols, or the file system in selector.fsTypes"}},
		"noquota over quotas":                           {at(v1alpha1.ConflictUseProfile, xfs, "noquota"), []string{quota, first + "is left out for volumes with gqnoenforce, gquota, grpquota and 8 more: the operator never weakens a mount, regardless of onConflict"}},
		"options that can never work are not mentioned": {at(v1alpha1.ConflictUseProfile, nfs, "sec=krb6"), []string{"error: spec.volumes[0].mountOptions[0]: must be one of none, sys, krb5, krb5i, krb5p, several separated by colons"}},
		"ro makes pods fail, whatever onConflict":       {at("", nfs, "ro"), []string{first + "makes the mount read-only: pods that write to it fail"}},
		"ro is the strongest":                           {at(v1alpha1.ConflictUseProfile, xfs, "ro"), []string{first + "makes the mount read-only: pods that write to it fail"}},
		"what has nothing to do with it":                {at(v1alpha1.ConflictUseProfile, nfs, "nocto", "nconnect=4"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, test.got, cmpopts.EquateEmpty())
		})
	}
}
