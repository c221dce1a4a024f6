package drivers

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/mountoptions"
)

var azureNFSVolume = Volume{Driver: "file.csi.azure.com", Attributes: map[string]string{"Protocol": "nfs"}}

func TestPassedOptions(t *testing.T) {
	for name, test := range map[string]struct {
		volume  Volume
		options string
		want    string
	}{
		"the kubelet sorts and drops repetitions": {Volume{Driver: "kubernetes.io/nfs"}, "soft hard nconnect=4 hard", "hard nconnect=4 soft"},
		// It depends only on the pod's claim.
		"the kubelet adds nothing for readOnly": {Volume{Driver: "kubernetes.io/nfs", ReadOnly: true}, "vers=3", "vers=3"},
		"csi-driver-nfs adds nothing for it":    {Volume{Driver: "nfs.csi.k8s.io", ReadOnly: true}, "vers=3", "vers=3"},
		"csi-driver-nfs keeps the order":        {Volume{Driver: "nfs.csi.k8s.io"}, "soft hard", "soft hard"},
		"csi-driver-nfs puts the class's last": {Volume{Driver: "nfs.csi.k8s.io", Attributes: map[string]string{"mountoptions": "hard,nconnect=1"}},
			"nconnect=4", "nconnect=4 hard,nconnect=1"},
		"Azure Files over NFS sorts, gives a version and its defaults": {azureNFSVolume, "nconnect=4 hard",
			"hard nconnect=4 vers=4,minorversion=1,sec=sys actimeo=30 noresvport"},
		"Azure Files over NFS adds no second actimeo": {azureNFSVolume, "actimeo=60 noresvport", "actimeo=60 noresvport vers=4,minorversion=1,sec=sys"},
		"Azure Files over SMB adds its defaults":      {Volume{Driver: "file.csi.azure.com"}, "vers=3.1.1", "vers=3.1.1 file_mode=0777 dir_mode=0777 mfsymlinks nosharesock actimeo=30"},
		"Azure Files over SMB leaves timers alone":    {Volume{Driver: "file.csi.azure.com"}, "acregmax=60", "acregmax=60 file_mode=0777 dir_mode=0777 mfsymlinks nosharesock"},
		"an unknown driver":                           {Volume{Driver: "example.com"}, "b a", "b a"},
		"EFS puts tls first, has small letters and gives what is missing": {Volume{Driver: "efs.csi.aws.com"}, "IAM nocto nocto",
			"tls iam nocto nfsvers=4.1 rsize=1048576 wsize=1048576 timeo=600 retrans=2 noresvport hard"},
		"S3 Files has another version": {Volume{Driver: "efs.csi.aws.com", Handle: "s3files:fs-1::fsap-1"}, "soft rsize=65536 wsize=65536 timeo=60 retrans=1 noresvport",
			"tls soft rsize=65536 wsize=65536 timeo=60 retrans=1 noresvport nfsvers=4.2"},
		"EFS without a tunnel, and all that it would give": {Volume{Driver: "efs.csi.aws.com", Attributes: map[string]string{"encryptInTransit": "false"}},
			"vers=4.0 rsize=65536 wsize=65536 timeo=60 retrans=1 noresvport soft", "vers=4.0 rsize=65536 wsize=65536 timeo=60 retrans=1 noresvport soft"},
		"Azure Blob over NFS sorts with its own":             {Volume{Driver: "blob.csi.azure.com", Attributes: map[string]string{"protocol": "nfs"}}, "nconnect=4 hard", "hard nconnect=4 sec=sys,vers=3,nolock"},
		"Filestore puts the class's parameter last":          {Volume{Driver: "filestore.csi.storage.gke.io", Attributes: map[string]string{"mountOptions": "hard"}}, "nconnect=2", "nconnect=2 hard"},
		"vSphere's file volumes get a version":               {Volume{Driver: "csi.vsphere.vmware.com", Attributes: map[string]string{"type": "vSphere CNS File Volume"}}, "nconnect=4", "nconnect=4 hard sec=sys vers=4 minorversion=1"},
		"PowerScale puts rw last":                            {Volume{Driver: "csi-isilon.dellemc.com"}, "hard ro", "hard ro rw"},
		"VAST has the class's where there is none":           {Volume{Driver: "csi.vastdata.com", Attributes: map[string]string{"mount_options": "vers=4.1,nconnect=8"}}, "", "nconnect=8 vers=4.1"},
		"VAST has the list alone where there is one":         {Volume{Driver: "csi.vastdata.com", Attributes: map[string]string{"mount_options": "vers=4.1"}}, "hard", "hard"},
		"disks with XFS may be mounted next to their copies": {Volume{Driver: "ebs.csi.aws.com", FSType: "xfs"}, "noatime noatime", "noatime nouuid"},
		"disks with ext4":                                    {Volume{Driver: "disk.csi.azure.com", FSType: "ext4"}, "noatime", "noatime"},
	} {
		t.Run(name, func(t *testing.T) {
			options := strings.Fields(test.options)
			before := slices.Clone(options)
			check.Equal(t, "result", strings.Fields(test.want), test.volume.PassedOptions(options), cmpopts.EquateEmpty())
			if diff := cmp.Diff(before, options); diff != "" {
				t.Errorf("got the volume's list changed: %s", diff)
			}
		})
	}
}

// Options that apply only to empty mountOptions are not lost silently.
func TestMissingForBackend(t *testing.T) {
	vast := Volume{Driver: "csi.vastdata.com", Attributes: map[string]string{"mount_options": "vers=4.1,nolock"}}
	trident := Volume{Driver: "csi.trident.netapp.io", Attributes: map[string]string{"protocol": "file"}}
	for name, test := range map[string]struct {
		volume         Volume
		original, list string
		want           string
	}{
		"VAST's attribute has options that the list lacks": {vast, "", "vers=3", "nolock"},
		"and options that it has":                          {vast, "", "vers=3 nolock", ""},
		"a list that was not empty":                        {vast, "hard", "hard nocto", ""},
		"a list that stays empty":                          {vast, "", "", ""},
		"Trident's version":                                {trident, "", "nocto", "nfsvers"},
		"Trident with a version":                           {trident, "", "nocto vers=3", ""},
		"another driver":                                   {Volume{Driver: "nfs.csi.k8s.io"}, "", "nocto", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.volume.MissingForBackend(test.volume.Source().Options(), strings.Fields(test.original), strings.Fields(test.list))
			check.Equal(t, "missing options", test.want, got)
		})
	}
}

func TestLooksLike(t *testing.T) {
	for name, test := range map[string]struct {
		volume  Volume
		options string
		want    v1alpha1.VolumeProtocol
	}{
		"its name":                    {Volume{Driver: "csi-nfs.example.com"}, "", nfs},
		"a part of its name only":     {Volume{Driver: "confs.example.com"}, "", ""},
		"its file system type":        {Volume{Driver: "example.com", FSType: "cifs"}, "", smb},
		"an attribute":                {Volume{Driver: "example.com", Attributes: map[string]string{"Protocol": "NFS"}}, "", nfs},
		"its options":                 {Volume{Driver: "example.com"}, "hard nfsvers=3", nfs},
		"options of both protocols":   {Volume{Driver: "example.com"}, "actimeo=30", ""},
		"a share's address":           {Volume{Driver: "example.com", Attributes: map[string]string{"source": "//filer/a"}}, "", smb},
		"an address with backslashes": {Volume{Driver: "example.com", Attributes: map[string]string{"source": `\\filer\a`}}, "", smb},
		"a disk":                      {Volume{Driver: "example.com", FSType: "xfs"}, "", block},
		"what provisioners give":      {Volume{Driver: "example.com", FSType: "ext4"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "similar driver", test.want, test.volume.LooksLike(strings.Fields(test.options)))
		})
	}
}

func TestProtectedOptions(t *testing.T) {
	for name, test := range map[string]struct {
		volume Volume
		want   string
	}{
		"nothing":                          {Volume{Driver: "smb.csi.k8s.io"}, ""},
		"a read-only volume of any driver": {Volume{Driver: "smb.csi.k8s.io", ReadOnly: true}, "ro"},
		"the driver's own options": {Volume{Driver: "nfs.csi.k8s.io", Attributes: map[string]string{"mountOptions": "sec=krb5p"}},
			"sec=krb5p"},
		"the driver's own options come last": {Volume{Driver: "nfs.csi.k8s.io", ReadOnly: true, Attributes: map[string]string{"mountOptions": "rw"}},
			"ro rw"},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", strings.Fields(test.want), test.volume.ProtectedOptions(), cmpopts.EquateEmpty())
		})
	}
}

// Options that pass Check keep their meaning for mount, and mount accepts them, for every driver and every merge.
func TestCheckHoldsForEveryDriver(t *testing.T) {
	draw := []string{"actimeo=30", "actimeo=60", "acregmin=5", "acregmax=90", "acdirmax=60", "nocto", "noac", "nconnect=4", "vers=3", "vers=4", "vers=4.1",
		"nfsvers=4.2", "minorversion=1", "hard", "soft", "sec=krb5", "sec=sys", "resvport", "noresvport", "rsize=262144", "sync", "async", "ro", "rw"}
	volumes := []Volume{azureNFSVolume, {Driver: "kubernetes.io/nfs"}, {Driver: "kubernetes.io/nfs", ReadOnly: true}, {Driver: "nfs.csi.k8s.io"},
		{Driver: "nfs.csi.k8s.io", ReadOnly: true, Attributes: map[string]string{"mountOptions": "nconnect=2,vers=4.1"}}, {Driver: "csi.trident.netapp.io"},
		{Driver: "efs.csi.aws.com"}, {Driver: "fsx.openzfs.csi.aws.com"}, {Driver: "csi-isilon.dellemc.com"}, {Driver: "csi-isilon.dellemc.com", ReadOnly: true},
		{Driver: "csi.vsphere.vmware.com", Attributes: map[string]string{"type": "vSphere CNS File Volume"}},
		{Driver: "blob.csi.azure.com", Attributes: map[string]string{"protocol": "nfs"}}, {Driver: "csi.vastdata.com", Attributes: map[string]string{"mount_options": "vers=3,nconnect=2"}},
		{Driver: "filestore.csi.storage.gke.io", Attributes: map[string]string{"mountOptions": "hard,vers=3"}}}
	rapid.Check(t, func(t *rapid.T) {
		volume := rapid.SampledFrom(volumes).Draw(t, "volume")
		drawn := rapid.SliceOfN(rapid.SampledFrom(draw), 0, 6).Draw(t, "wanted")
		desired, _ := mountoptions.NFS.WithoutDriverVersion(drawn, volume.PassedOptions(nil))
		merged := mountoptions.NFS.Merge(nil, desired, v1alpha1.ConflictUseProfile, nil).Options
		if len(volume.Check(mountoptions.NFS, merged)) > 0 {
			return
		}
		passed := volume.PassedOptions(merged)
		var flat []string
		for _, o := range mountoptions.Parse(passed) {
			flat = append(flat, o.String())
		}
		if differences := mountoptions.NFS.Compare(merged, flat); len(differences) > 0 {
			t.Fatalf("%s: got %v from %v: %+v", volume.Driver, passed, merged, differences)
		}
		for _, p := range mountoptions.Validate(mountoptions.NFS, flat) {
			if strings.Contains(p.Message, "more than one version") {
				t.Fatalf("%s: got %v from %v: %s", volume.Driver, passed, merged, p.Message)
			}
		}
		if volume.ReadOnly && slices.Contains(merged, "rw") {
			t.Fatalf("%s: got %v for a read-only volume", volume.Driver, passed)
		}
	})
}

// Every fact of a driver has a source.
func TestFactsHaveSources(t *testing.T) {
	file := regexp.MustCompile(`^[\w./-]+/[\w.-]+[:,]`)
	for name, read := range readings() {
		if len(rowsByDriver[name]) == 0 {
			t.Errorf("%s: got no row in the table, although its source was read", name)
		}
		if !strings.ContainsAny(read.Release, "0123456789") || strings.Count(read.Repo, "/") != 1 {
			t.Errorf("%s: got release %q of %q", name, read.Release, read.Repo)
		}
		for _, fact := range []string{read.Staging, read.Handle, read.Source, read.Order, read.Appends, read.Replaces, read.ReadOnly} {
			if !file.MatchString(fact) && fact != unknown {
				t.Errorf("%s: got %q, which does not name a file of the source", name, fact)
			}
		}
		for _, r := range rowsByDriver[name] {
			if r.reads == atPublish && !strings.Contains(read.Staging, "for each pod") || r.reads == atStage && !strings.Contains(read.Staging, "once per node") {
				t.Errorf("%s: got %q, but mountOptions are read for %s", name, read.Staging, r.reads)
			}
		}
	}
}

// All facts about a driver except its name have a source.
func TestFactsWithoutSourcesAreUnknown(t *testing.T) {
	for _, r := range table {
		if _, read := readings()[r.driver]; !read && (r.changes.apply != nil || r.additional.read != nil || r.path.read != nil || r.client != "" || r.empty.Text != "") {
			t.Errorf("%s: got no source of the facts", r.driver)
		}
	}
}

// The document of drivers names a time by its text, which the reference shows.
func TestEachDriverReadsOptionsAtAKnownTime(t *testing.T) {
	for _, r := range table {
		if r.reads != "" && !slices.Contains([]step{atPublish, atStage, atAttach}, r.reads) {
			t.Errorf("%s: got %q", r.driver, r.reads)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		volume Volume
		want   mountoptions.Protocol
	}{
		"NFS":                  {Volume{Driver: "kubernetes.io/nfs"}, mountoptions.NFS},
		"SMB":                  {Volume{Driver: "smb.csi.k8s.io"}, mountoptions.SMB},
		"a disk with XFS":      {Volume{Driver: "ebs.csi.aws.com", FSType: "xfs"}, mountoptions.XFS},
		"a disk with ext4":     {Volume{Driver: "ebs.csi.aws.com", FSType: "ext4"}, mountoptions.Generic},
		"a disk with whatever": {Volume{Driver: "kubernetes.io/local-volume"}, mountoptions.Generic},
		"an unknown driver":    {Volume{Driver: "example.com", FSType: "xfs"}, ""},
		"hostPath":             {Volume{Driver: "kubernetes.io/host-path"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "options", test.want, test.volume.Source().Options())
		})
	}
}

func TestMountedPath(t *testing.T) {
	nfsCSI := func(attributes map[string]string) Volume {
		return Volume{Driver: "nfs.csi.k8s.io", Handle: "any", Attributes: attributes}
	}
	azure := func(handle string, attributes map[string]string) Volume {
		attributes["protocol"] = "nfs"
		return Volume{Driver: "file.csi.azure.com", Handle: handle, Attributes: attributes}
	}
	for name, test := range map[string]struct {
		volume       Volume
		server, path string
	}{
		"in-tree NFS":                       {Volume{Driver: "kubernetes.io/nfs", Host: "filer", Path: "/a"}, "filer", "/a"},
		"nfs.csi.k8s.io":                    {nfsCSI(map[string]string{"server": "filer", "share": "/a"}), "filer", "/a"},
		"nfs.csi.k8s.io with a directory":   {nfsCSI(map[string]string{"Server": "filer", "Share": "/a/", "subDir": "b/c"}), "filer", "/a/b/c"},
		"nfs.csi.k8s.io of an address":      {nfsCSI(map[string]string{"server": "[2001:db8::1]", "share": "a"}), "2001:db8::1", "/a"},
		"nfs.csi.k8s.io with a placeholder": {nfsCSI(map[string]string{"server": "filer", "share": "/a", "subDir": "${pvc.metadata.name}"}), "filer", ""},
		"Azure Files of NFS by its handle": {azure("group#account#share###ns", map[string]string{}),
			"account.file.core.windows.net", "/account/share"},
		"Azure Files of NFS by its attributes": {azure("unique", map[string]string{"server": "10.0.0.4", "storageAccount": "acc", "shareName": "s", "folderName": "f"}),
			"10.0.0.4", "/acc/s/f"},
		"Azure Files of NFS with encryption": {azure("group#account#share", map[string]string{"encryptInTransit": "true"}), "account.file.core.windows.net", ""},
		"Azure Files of SMB":                 {Volume{Driver: "file.csi.azure.com", Handle: "group#account#share"}, "account.file.core.windows.net", ""},
		"SMB":                                {Volume{Driver: "smb.csi.k8s.io", Attributes: map[string]string{"source": "//filer/a"}}, "filer", ""},
		"a driver that names no server":      {Volume{Driver: "csi.trident.netapp.io", Attributes: map[string]string{"protocol": "file"}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "server", test.server, test.volume.Source().Server)
			if got := test.volume.MountedPath(); got != test.path {
				t.Errorf("got path %q, want %q", got, test.path)
			}
		})
	}
}

func TestDriversWithNamesThatUsersChoose(t *testing.T) {
	democratic := func(kind string) map[string]string {
		return map[string]string{"node_attach_driver": kind, "provisioner_driver": "freenas-api-" + kind, "server": "192.0.2.20", "share": "/mnt/tank/pvc-1"}
	}
	nfsShare, smbShare := map[string]string{"server": "192.0.2.5", "share": "/pool", "subdir": "pvc-3"}, map[string]string{"source": "//192.0.2.9/s"}
	for name, test := range map[string]struct {
		volume   Volume
		protocol v1alpha1.VolumeProtocol
		server   string
		reads    step
	}{
		"democratic-csi, NFS":        {Volume{Driver: "nfs", Attributes: democratic("nfs")}, nfs, "192.0.2.20", atStage},
		"democratic-csi, SMB":        {Volume{Driver: "smb-democratic-csi-truenas", Attributes: democratic("smb")}, smb, "192.0.2.20", atStage},
		"democratic-csi, iSCSI":      {Volume{Driver: "truenas.example.com", Attributes: democratic("iscsi")}, block, "", atStage},
		"democratic-csi, no client":  {Volume{Driver: "zfs", Attributes: democratic("zfs-local")}, "", "", ""},
		"democratic-csi, its name":   {Volume{Driver: "org.democratic-csi.nfs", Attributes: democratic("nfs")}, nfs, "192.0.2.20", atStage},
		"a second csi-driver-nfs":    {Volume{Driver: "nfs2.csi.k8s.io", Attributes: nfsShare}, nfs, "192.0.2.5", atPublish},
		"a second csi-driver-smb":    {Volume{Driver: "smb-b.csi.k8s.io", Attributes: smbShare}, smb, "192.0.2.9", atStage},
		"democratic-csi, a client":   {Volume{Driver: "org.democratic-csi.nfs-client", Attributes: democratic("nfs")}, nfs, "192.0.2.20", atStage},
		"democratic-csi, NVMe":       {Volume{Driver: "freenas-nvmeof", Attributes: democratic("nvmeof")}, block, "", atStage},
		"an IPv6 server":             {Volume{Driver: "nfs-ha.csi.k8s.io", Attributes: map[string]string{"server": "[fd00::5]", "share": "/"}}, nfs, "fd00::5", atPublish},
		"other cases":                {Volume{Driver: "nfs3.csi.k8s.io", Attributes: map[string]string{"Server": "filer", "SHARE": "/a", "subDir": "${pvc.metadata.name}"}}, nfs, "filer", atPublish},
		"a UNC with backslashes":     {Volume{Driver: "smb.csi.k8s.io", Attributes: map[string]string{"source": `\\192.0.2.9\s`}}, smb, "192.0.2.9", atStage},
		"both slashes":               {Volume{Driver: "smb2.csi.k8s.io", Attributes: map[string]string{"source": `//files.example.com\s/a`}}, smb, "files.example.com", atStage},
		"a directory of a share":     {Volume{Driver: "smb-2.csi.k8s.io", Attributes: map[string]string{"source": "//files/s/a/b"}}, smb, "files", atStage},
		"a name in capitals":         {Volume{Driver: "NFS2.csi.k8s.io", Attributes: nfsShare}, nfs, "192.0.2.5", atPublish},
		"a source without a share":   {Volume{Driver: "smb2.csi.k8s.io", Attributes: map[string]string{"source": "//files"}}, smb, "files", atStage},
		"a disk of the project":      {Volume{Driver: "disk.csi.k8s.io", Attributes: map[string]string{"server": "a"}}, "", "", ""},
		"one attribute alone":        {Volume{Driver: "x", Attributes: map[string]string{"node_attach_driver": "nfs"}}, "", "", ""},
		"no attributes":              {Volume{Driver: "nfs2.csi.k8s.io"}, "", "", ""},
		"another domain":             {Volume{Driver: "nfs2.example.com", Attributes: nfsShare}, "", "", ""},
		"a driver of the table":      {Volume{Driver: "efs.csi.aws.com", Attributes: democratic("smb")}, nfs, "", atPublish},
		"no driver":                  {Volume{Attributes: democratic("nfs")}, "", "", ""},
		"a host path in other words": {Volume{Driver: "hostpath.csi.k8s.io", Attributes: map[string]string{"kind": "fast"}}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			source := test.volume.Source()
			if source.Protocol != test.protocol || source.Server != test.server || test.volume.row().reads != test.reads || source.Driver != test.volume.Driver {
				t.Errorf("got %+v, read %s", source, test.volume.row().reads)
			}
		})
	}
}

func TestNamesThatTheManagerIsGiven(t *testing.T) {
	for text, want := range map[string]bool{
		"share.example.com=nfs.csi.k8s.io": true, "ceph.example.com=a.nfs.csi.ceph.com": true, "nfs.csi.k8s.io=nfs.csi.k8s.io": true,
		"share.example.com=smb.csi.k8s.io": false, "efs.csi.aws.com=nfs.csi.k8s.io": false, "share.example.com": false, "=nfs.csi.k8s.io": false,
		"share.example.com=none.example.com": false, "": false,
		"*.example.com=nfs.csi.k8s.io": false, "share.*=nfs.csi.k8s.io": false,
	} {
		t.Run(text, func(t *testing.T) {
			before := maps.Clone(rowsByDriver)
			t.Cleanup(func() { rowsByDriver = before })
			check.NoError(t, AddName("share.example.com=nfs.csi.k8s.io"))
			if err := AddName(text); (err == nil) != want || err != nil && !strings.Contains(err.Error(), strconv.Quote(text)) {
				t.Errorf("got %v", err)
			}
			v := Volume{Driver: "share.example.com", Attributes: map[string]string{"server": "192.0.2.5", "share": "/pool"}}
			if source := v.Source(); source.Protocol != nfs || source.Server != "192.0.2.5" || source.Driver != v.Driver || !v.MountsPerPod() {
				t.Errorf("got %+v", source)
			}
			if got := Protocols(v.Driver); !slices.Equal(got, []v1alpha1.VolumeProtocol{nfs}) {
				t.Errorf("protocols of a rule: got %v", got)
			}
		})
	}
}

// spellings are names and addresses of servers, each in several spellings.
var spellings = map[string][]string{
	"filer.example.com": {"filer.example.com", "filer.example.com.", "FILER.example.com", "Filer.Example.Com."},
	"fd00::1":           {"fd00::1", "[fd00::1]", "fd00:0:0::1", "FD00:0000::0001", "[fd00:0:0:0:0:0:0:1]"},
	"fe80::1%eth0":      {"fe80::1%eth0", "[fe80::1%eth0]"},
	"192.0.2.1":         {"192.0.2.1"},
}

func TestServerIdentity(t *testing.T) {
	for want, all := range spellings {
		for _, server := range all {
			if got := ServerIdentity(server); got != want {
				t.Errorf("%s: got %s, want %s", server, got, want)
			}
			for driver, v := range map[string]Volume{
				"kubernetes.io/nfs": {Host: server, Path: "/data"},
				"nfs.csi.k8s.io":    {Attributes: map[string]string{"server": server, "share": "/data"}},
				"smb.csi.k8s.io":    {Attributes: map[string]string{"source": "//" + server + "/share"}},
			} {
				v.Driver = driver
				if got := v.Source().Server; got != want {
					t.Errorf("%s, volume of %s: got %s, want %s", server, driver, got, want)
				}
			}
		}
	}
	for _, different := range []string{"filer", "filer.example.com:20049", "010.0.2.1", "::ffff:192.0.2.1", ""} {
		if got := ServerIdentity(different); got != different {
			t.Errorf("%q: got %q", different, got)
		}
	}
}
