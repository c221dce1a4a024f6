package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

// Azure Blob is recognized by the driver under any name, and by the server of a volume of another driver. All volumes share one cache of merged lists.
func TestNoPathToAzureBlobGetsNconnect(t *testing.T) {
	inTree := func(server string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: server, Path: "/acct/data"}}
	}
	csi := func(driver, handle string, attributes ...string) corev1.PersistentVolumeSource {
		source := byCSI(driver, "", map[string]string{})
		source.CSI.VolumeHandle = handle
		for i := 0; i < len(attributes); i += 2 {
			source.CSI.VolumeAttributes[attributes[i]] = attributes[i+1]
		}
		return source
	}
	drivers := []string{"kubernetes.io/nfs", "nfs.csi.k8s.io", "nfs2.csi.k8s.io", "blob.csi.azure.com", "blob2.csi.azure.com", "blob.csi.example.com", "freenas-nfs", "file2.csi.azure.com",
		"file.csi.azure.com"}
	rule := builders.Selecting(v1alpha1.VolumeSelector{Drivers: drivers, Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}})
	all := profiles(builders.NFSProfile("p", []string{"nconnect=4", "actimeo=60"}, rule))
	for name, test := range map[string]struct {
		source  corev1.PersistentVolumeSource
		options []string
		gets    bool
	}{
		"in-tree, another server":                     {source: inTree("filer.example.com"), gets: true},
		"in-tree":                                     {source: inTree("acct.blob.core.windows.net")},
		"in-tree, upper case":                         {source: inTree("Acct.Blob.Core.Windows.NET")},
		"in-tree, absolute name":                      {source: inTree("acct.blob.core.windows.net.")},
		"in-tree, China":                              {source: inTree("acct.blob.core.chinacloudapi.cn")},
		"in-tree, US government":                      {source: inTree("acct.blob.core.usgovcloudapi.net")},
		"in-tree, private link":                       {source: inTree("acct.privatelink.blob.core.windows.net")},
		"in-tree, zonal endpoint":                     {source: inTree("acct.z12.blob.storage.azure.net")},
		"in-tree, Azure Files":                        {source: inTree("acct.file.core.windows.net"), gets: true},
		"in-tree, a name that only looks like it":     {source: inTree("blob.example.com"), gets: true},
		"in-tree, a label that contains blob":         {source: inTree("acct.myblob.core.windows.net"), gets: true},
		"csi-driver-nfs":                              {source: csi("nfs.csi.k8s.io", "h", "server", "acct.blob.core.windows.net", "share", "/acct/data")},
		"csi-driver-nfs by another name":              {source: csi("nfs2.csi.k8s.io", "h", "server", "acct.blob.core.windows.net", "share", "/acct/data")},
		"csi-driver-nfs, another server":              {source: csi("nfs.csi.k8s.io", "h", "server", "filer", "share", "/data"), gets: true},
		"democratic-csi":                              {source: csi("freenas-nfs", "h", "node_attach_driver", "nfs", "provisioner_driver", "x", "server", "filer", "share", "/d"), gets: true},
		"the driver, upper case":                      {source: csi("blob.csi.azure.com", "rg#acct#data", "Protocol", "AZNFS")},
		"the driver, protocol nfsv3":                  {source: csi("blob.csi.azure.com", "rg#acct#data", "protocol", "NFSv3")},
		"the driver, a server of the user's choice":   {source: csi("blob.csi.azure.com", "h", "protocol", "nfs", "server", "10.1.2.3")},
		"the driver, several options in one":          {source: csi("blob.csi.azure.com", "rg#acct#data", "protocol", "nfs"), options: []string{"hard,nolock"}},
		"the driver by another name":                  {source: csi("blob2.csi.azure.com", "rg#acct#data", "protocol", "nfs", "containerName", "data", "storageAccount", "acct")},
		"the driver by another name, static":          {source: csi("blob.csi.example.com", "any", "protocol", "aznfs", "containername", "data", "storageaccount", "acct")},
		"the driver by another name, from the handle": {source: csi("blob.csi.example.com", "rg#acct#data#pvc-1#ns", "protocol", "nfs", "containerName", "data")},
		"Azure Files by another name":                 {source: csi("file2.csi.azure.com", "rg#acct#share#", "protocol", "nfs", "shareName", "share"), gets: true},
		"Azure Files":                                 {source: csi("file.csi.azure.com", "rg#acct#share#", "protocol", "nfs", "shareName", "share"), gets: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := Volume(Input{Volume: sourced(test.options, test.source), Profiles: all})
			if gets := slices.ContainsFunc(d.Options, func(o string) bool { return strings.Contains(o, "nconnect") }); gets != test.gets || !slices.Contains(d.Options, "actimeo=60") {
				t.Errorf("got options %v: %s; want nconnect %t, and actimeo", d.Options, d.Message, test.gets)
			}
			if source := SourceOf(sourced(nil, test.source)); source.Protocol != v1alpha1.ProtocolNFS {
				t.Errorf("got source %+v, want NFS", source)
			}
		})
	}
	for name, protocol := range map[string]string{"fuse": "fuse", "fuse2": "fuse2", "no protocol": ""} {
		for _, driver := range []string{"blob.csi.azure.com", "blob2.csi.azure.com"} {
			d := Volume(Input{Volume: sourced([]string{"-o allow_other"}, csi(driver, "rg#a#c", "protocol", protocol, "containerName", "c")), Profiles: all})
			if diff := cmp.Diff([]string(nil), d.Options); diff != "" || d.Action == ActionWrite {
				t.Errorf("%s, %s: got %s (-want +got):\n%s", name, driver, d.Action, diff)
			}
		}
	}
}
