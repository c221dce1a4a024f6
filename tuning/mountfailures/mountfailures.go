// Package mountfailures knows what the kubelet, drivers of volumes and mount's helpers say of a mount that failed: whether a text
// speaks of the options of the mount, or of something that no option brings about. It is pure: no cluster, no host, no clock.
package mountfailures

import (
	"regexp"
	"strings"
)

// Cause is what a text puts a failed mount down to.
type Cause string

const (
	// Options is said of a text that speaks of the options.
	Options Cause = "Options"
	// Elsewhere is said of a text that names something else which is in the way whatever the options are.
	Elsewhere Cause = "Elsewhere"
	// Unknown is said of all others, and of those that options and other things alike bring about: only a mount with other options
	// tells.
	Unknown Cause = "Unknown"

	// unreached is of a text that says that nobody answers: Elsewhere, unless the options have the server asked in another way.
	unreached Cause = "Unreached"
)

// row is a text, as part of a message in lower case, with what it says.
type row struct {
	text  string
	cause Cause
}

// rows are in the order in which they are asked: the first that is found counts. Those who print them:
//
//   - kubelet: kubernetes pkg/volume/csi (csi_client.go, csi_attacher.go, csi_mounter.go, csi_plugin.go), pkg/volume/util,
//     pkg/kubelet/volumemanager, pkg/volume/util/operationexecutor, staging/src/k8s.io/mount-utils;
//   - nfs: nfs-utils utils/mount/error.c, stropts.c, network.c and support/nfs; EINVAL is "an incorrect mount option", and so is the
//     lack of rpc.statd or rpc.gssd, which is told in a line before it;
//   - cifs: cifs-utils mount.cifs.c and resolve_host.c, with strerror(3) of what the kernel says;
//   - mount: util-linux libmount/src/context_mount.c and hook_mount.c, with what fsconfig(2) left in the log of the new mount;
//   - probe: the trial runner of this operator (agent/host/probe), with what mount(2) and the kernel say; rpc.statd and rpc.gssd, which
//     mount.nfs also reports as EINVAL, are not asked there;
//   - grpc: google.golang.org/grpc status codes, as drivers pass them to the kubelet.
var rows = []row{
	// kubelet: the driver, the volume's attachment, what the pod needs beside the volume.
	{"not found in the list of registered csi drivers", Elsewhere},
	{"error while dialing", Elsewhere},
	{"code = unavailable", Elsewhere},
	{"code = unimplemented", Elsewhere},
	{"code = unauthenticated", Elsewhere},
	{"code = resourceexhausted", Elsewhere},
	{"already exists", Elsewhere},
	{"operation is already in progress", Elsewhere},
	{"failed to find the secret", Elsewhere},
	{"couldn't get secret", Elsewhere},
	{"references non-existent secret", Elsewhere},
	{"secretref", Elsewhere},
	{"configmap", Elsewhere},
	{"volume attachment is being deleted", Elsewhere},
	{"volumeattachment", Elsewhere},
	{"multi-attach error", Elsewhere},
	{"not yet attached", Elsewhere},
	{"error processing pvc", Elsewhere},
	{"object-cache", Elsewhere},
	{"no space left on device", Elsewhere},
	{"too many open files", Elsewhere},
	{"failed to prepare subpath", Elsewhere},
	{"newmounter initialization failed", Elsewhere},
	// mount: no helper for the file system on that node; the same line speaks of a bad option.
	{"you might need a /sbin/mount.", Elsewhere},
	{"executable file not found", Elsewhere},
	{"unknown filesystem type", Elsewhere},
	{"special device", Elsewhere},
	{"already mounted or mount point busy", Elsewhere},
	{"structure needs cleaning", Elsewhere},
	{"fsck", Elsewhere},
	// nfs and cifs: the server cannot be reached, found, or has not what is mounted. A list with another version, transport or port may be
	// what it does not answer.
	{"failed to resolve server", Elsewhere},
	{"could not resolve address", Elsewhere},
	{"name or service not known", Elsewhere},
	{"temporary failure in name resolution", Elsewhere},
	// mount.nfs with retry=0, where no name server has answered.
	{"resource temporarily unavailable", unreached},
	{"no route to host", unreached},
	{"network is unreachable", unreached},
	{"host is down", unreached},
	{"connection refused", unreached},
	{"connection reset", unreached},
	{"connection timed out", unreached},
	{"connection failed", unreached},
	{"stale file handle", Elsewhere},
	{"reason given by server: no such file or directory", Elsewhere},
	{"no such file or directory", Elsewhere},
	// Either: a version 3 that is declared needs rpc.statd, sec=krb5 rpc.gssd, and a server that is asked for what it does not offer
	// says the same as one that lets nobody in, or is just starting.
	{"rpc.statd is not running", Unknown},
	{"rpc.gssd", Unknown},
	{"requested nfs version or transport protocol is not supported", Unknown},
	{"protocol not supported", Unknown},
	{"access denied by server", Unknown},
	{"permission denied", Unknown},
	{"operation not permitted", Unknown},
	{"timed out", unreached},
	// csi-driver-nfs and csi-driver-smb, WaitUntilTimeout and mountWithTimeout: mount has not come back.
	{"timeout after", unreached},
	{"deadlineexceeded", unreached},
	{"deadline exceeded", unreached},
	// The options.
	{"an incorrect mount option was specified", Options},
	{"unknown parameter", Options},
	{"bad value for", Options},
	{"unsupported parameter", Options},
	{"unrecognized mount option", Options},
	{"unknown mount option", Options},
	{"invalid mount option", Options},
	{"bad nfs mount parameter", Options},
	{"conflicting nfs version options", Options},
	{"conflicting mount options", Options},
	{"mount options are not supported", Options},
	{"multiple version options not permitted", Options},
	{"parsing error on", Options},
	{"mount error(22): invalid argument", Options},
	{"mount(2): invalid argument", Options},
}

// CauseOf says what a message puts a failed mount down to. asksOtherwise is whether the list has the server asked in another way than
// the one of before: by another version, transport or port, or over more connections. One that nobody answers may then be to blame for it.
func CauseOf(message string, asksOtherwise bool) Cause {
	switch cause := find(message); {
	case cause != unreached:
		return cause
	case asksOtherwise:
		return Unknown
	}
	return Elsewhere
}

// command is all that stands before what a command that a kubelet or a driver has run has said.
var command = regexp.MustCompile(`(?s)^.*Mounting command: .*?Output: (Running scope as unit: \S+\s+)?`)

// Brief is what mount has said, where a message tells, and else the message: a condition has no room for both.
func Brief(message string) string { return command.ReplaceAllString(message, "") }

func find(message string) Cause {
	message = strings.ToLower(message)
	for _, r := range rows {
		if strings.Contains(message, r.text) {
			return r.cause
		}
	}
	return Unknown
}
