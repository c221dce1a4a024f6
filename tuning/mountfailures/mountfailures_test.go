package mountfailures

import "testing"

func TestCauseOf(t *testing.T) {
	const (
		setUp  = `MountVolume.SetUp failed for volume "a" : mount failed: exit status 32 Mounting command: mount Mounting arguments: -t nfs -o hard,nocto filer:/data /m Output: `
		device = `MountVolume.MountDevice failed for volume "a" : `
		cifs   = device + "rpc error: code = Internal desc = volume(v) mount \"//s/x\" on \"/g\" failed with mount failed: exit status 32 Output: "
		block  = device + "rpc error: code = Internal desc = mount failed: exit status 32 Output: "
	)
	for name, test := range map[string]struct {
		text string
		want Cause
	}{
		"the driver is not registered":                   {device + "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name file.csi.azure.com not found in the list of registered CSI drivers", Elsewhere},
		"the driver is being upgraded":                   {setUp[:47] + `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /csi/csi.sock: connect: connection refused"`, Elsewhere},
		"a secret is missing":                            {device + "fetching NodeStageSecretRef default/azure-secret failed: kubernetes.io/csi: failed to find the secret azure-secret in the namespace default with error: secrets \"azure-secret\" not found", Elsewhere},
		"the server is down":                             {setUp + "mount.nfs: Connection refused", Elsewhere},
		"the server is not answering":                    {setUp + "mount.nfs: Connection timed out for filer:/data on /m", Elsewhere},
		"there is no route":                              {setUp + "mount.nfs: No route to host", Elsewhere},
		"the name is not known":                          {setUp + "mount.nfs: Failed to resolve server filer: Name or service not known", Elsewhere},
		"the path is missing":                            {setUp + "mount.nfs: mounting filer:/data failed, reason given by server: No such file or directory", Elsewhere},
		"a claim is not bound yet":                       {"Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error processing PVC eda/web: PVC is not bound", Elsewhere},
		"no name server responds":                        {setUp + "mount.nfs: Resource temporarily unavailable", Elsewhere},
		"a local disk is missing":                        {`MountVolume.NewMounter initialization failed for volume "a" : path "/mnt/disk" does not exist`, Elsewhere},
		"an operation is in progress":                    {device + "rpc error: code = Aborted desc = An operation with the given Volume ID a already exists", Elsewhere},
		"the attachment is deleted":                      {setUp[:47] + "volume attachment is being deleted", Elsewhere},
		"there is no helper, together with a bad option": {setUp + "mount: /m: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.", Elsewhere},
		"the kubelet waits":                              {"Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: timed out waiting for the condition", Elsewhere},
		"the driver took too long":                       {device + "rpc error: code = DeadlineExceeded desc = context deadline exceeded", Elsewhere},
		"csi-driver-nfs took too long":                   {setUp[:47] + "rpc error: code = Internal desc = mount volume a to /m timeout after 110s", Elsewhere},
		"an SMB server is down":                          {cifs + "mount error(112): Host is down", Elsewhere},
		"an SMB server has no name":                      {cifs + "mount error: could not resolve address for s: Unknown error", Elsewhere},

		"access is denied, which sec may bring about":     {setUp + "mount.nfs: access denied by server while mounting filer:/data", Unknown},
		"the version is not supported, or nfsd is down":   {setUp + "mount.nfs: requested NFS version or transport protocol is not supported", Unknown},
		"rpc.statd, which a version 3 needs":              {setUp + "mount.nfs: rpc.statd is not running but is required for remote locking. mount.nfs: Either use '-o nolock' to keep locks local, or start statd. mount.nfs: an incorrect mount option was specified", Unknown},
		"an SMB server rejects the user, or the security": {cifs + "mount error(13): Permission denied", Unknown},
		"XFS, by the old mount":                           {block + "mount: /g: wrong fs type, bad option, bad superblock on /dev/sdb, missing codepage or helper program, or other error.", Unknown},
		"no reason":                                       {`MountVolume.SetUp failed for volume "a" : mount failed: exit status 32`, Unknown},

		"NFS, an option that the kernel rejects": {setUp + "mount.nfs: an incorrect mount option was specified", Options},
		"NFS, with the mount point":              {setUp + "mount.nfs: an incorrect mount option was specified for /m", Options},
		"NFS, two versions":                      {setUp + "mount.nfs: multiple version options not permitted", Options},
		"SMB":                                    {cifs + "mount error(22): Invalid argument", Options},
		"XFS, by the new mount":                  {block + "mount: /g: fsconfig() failed: xfs: Unknown parameter 'logbsise'.", Options},
		"the kubelet's own plugins":              {`MountVolume.SetUp failed for volume "a" : Mount options are not supported for this volume type`, Options},
	} {
		t.Run(name, func(t *testing.T) {
			if got := CauseOf(test.text, false); got != test.want {
				t.Errorf("%s: got cause %s, want %s", test.text, got, test.want)
			}
		})
	}
}

func TestNoResponseToOtherOptionsLeavesTheCauseUnknown(t *testing.T) {
	for _, text := range []string{
		"mount.nfs: Connection refused", "mount.nfs: Resource temporarily unavailable", "mount.nfs: Connection timed out", "mount.nfs: No route to host", "mount.nfs: Network is unreachable",
		"mount error(112): Host is down", "rpc error: code = DeadlineExceeded desc = context deadline exceeded", "timeout after 110s",
	} {
		if got := CauseOf(text, true); got != Unknown {
			t.Errorf("%s, with a changed transport: got cause %s", text, got)
		}
		if got := CauseOf(text, false); got != Elsewhere {
			t.Errorf("%s: got cause %s", text, got)
		}
	}
	for text, want := range map[string]Cause{
		`transport: Error while dialing: dial unix /csi/csi.sock: connection refused`: Elsewhere,
		"mount.nfs: an incorrect mount option was specified":                          Options,
	} {
		if got := CauseOf(text, true); got != want {
			t.Errorf("%s: got cause %s, want %s", text, got, want)
		}
	}
}

func TestBriefKeepsTheCause(t *testing.T) {
	for message, want := range map[string]string{
		"MountVolume.SetUp failed for volume \"a\" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs -o hard filer:/data /m\nOutput: mount.nfs: an incorrect mount option was specified\n": "mount.nfs: an incorrect mount option was specified\n",
		"error mount failed: exit status 32\nMounting command: systemd-run\nMounting arguments: --scope -- mount -t xfs /dev/sdb /m\nOutput: Running scope as unit: run-r74da.scope\nmount: /m: wrong fs type":               "mount: /m: wrong fs type",
		"mount failed: exit status 32 Output: x\nMounting command: systemd-run\nMounting arguments: --scope -- mount -t nfs x:/y /m\nOutput: Running scope as unit run-1.scope. mount.nfs: No route to host":                 "mount.nfs: No route to host",
		"Mounting command: mount\nMounting arguments: -t efs x:/ /m\nOutput: Mount attempt 1/3 failed due to timeout after 15 sec, wait 0 sec before next attempt.\nmount.nfs4: Connection reset by peer":                    "mount.nfs4: Connection reset by peer",
		"Mounting command: mount\nMounting arguments: -t nfs x:/ /m\nOutput: Created symlink /run/a → /usr/lib/b.\nmount.nfs: an incorrect mount option was specified":                                                       "mount.nfs: an incorrect mount option was specified",
		"Mounting command: mount\nMounting arguments: -t aznfs x:/ /m\nOutput: \x1b[2;31mMount failed!\x1b[0m":                                                                                                               "Mount failed!",
		"rpc error: code = Unavailable desc = connection error": "rpc error: code = Unavailable desc = connection error",
	} {
		if got := Brief(message); got != want {
			t.Errorf("%q becomes %q, want %q", message, got, want)
		}
	}
}
