package nodesettings

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1alpha1 "github.com/storageclient/operator/api/v1alpha1"
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
		"a driver that nobody knows":             {v1alpha1.VolumeSelector{Drivers: []string{"example.com"}}, []mountoptions.Protocol{mountoptions.NFS}},
		"a driver of blocks":                     {v1alpha1.VolumeSelector{Drivers: []string{"kubernetes.io/iscsi"}}, []mountoptions.Protocol{mountoptions.XFS}},
		"a file system":                          {v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}, []mountoptions.Protocol{mountoptions.XFS}},
		"blocks with a file system":              {v1alpha1.VolumeSelector{Protocols: protocols{block}, FSTypes: []string{"ext4", "xfs"}}, []mountoptions.Protocol{mountoptions.XFS}},
		"a file system whose options no one has": {v1alpha1.VolumeSelector{Protocols: protocols{block}, FSTypes: []string{"ext4"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, protocolsOf(&test.selector), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidateBySelector(t *testing.T) {
	at := func(selector v1alpha1.VolumeSelector, options ...v1alpha1.MountOption) []string {
		return answers(volume(options...), func(s *v1alpha1.StorageClientProfileSpec) { s.Volumes[0].Selector = selector })
	}
	azure := v1alpha1.VolumeSelector{Drivers: []string{"file.csi.azure.com"}}
	for name, test := range map[string]struct {
		got, want []string
	}{
		"an option of both protocols": {at(azure, "actimeo=30"), nil},
		"an option of one of them": {at(azure, "actimeo=30", "nconnect=4"),
			[]string{"warning: spec.volumes[0].mountOptions[1]: SMB: is not known; mount fails on an option that the kernel does not know; name the protocol in selector.protocols"}},
		"an option of none": {at(azure, "logbsize=256k"), []string{
			"error: spec.volumes[0].mountOptions[0]: NFS: is not known; mount fails on an option that the kernel does not know",
			"error: spec.volumes[0].mountOptions[0]: SMB: is not known; mount fails on an option that the kernel does not know"}},
		"an XFS option where XFS is named": {at(v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}, "logbsize=256k"), nil},
		"an NFS option where XFS is named": {at(v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}, "nocto"),
			[]string{"error: spec.volumes[0].mountOptions[0]: is not known; mount fails on an option that the kernel does not know"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
