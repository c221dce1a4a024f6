// Package mountfailures classifies error messages of the kubelet, volume drivers and mount helpers. It determines whether a failed
// mount is caused by its options or by another problem. All functions are pure: they do not access the cluster, the host or the clock.
package mountfailures

import (
	"regexp"
	"strings"
)

// Cause is the cause of a failed mount according to a message.
type Cause string

const (
	// Options means that the mount options are the cause.
	Options Cause = "Options"
	// Elsewhere means that another problem is the cause, independent of the options.
	Elsewhere Cause = "Elsewhere"
	// Unknown is the cause in all other messages, and in messages that both options and other problems produce. Only a mount with
	// other options can show the difference.
	Unknown Cause = "Unknown"

	// unreached means that the server does not respond. It becomes Elsewhere, unless the options contact the server in a different way.
	unreached Cause = "Unreached"
)

// row maps a part of a message, in lower case, to its cause.
type row struct {
	text  string
	cause Cause
}

// rows are in matching order: the first match wins. Sources of the messages:
//
//   - kubelet: kubernetes pkg/volume/csi (csi_client.go, csi_attacher.go, csi_mounter.go, csi_plugin.go), pkg/volume/util,
//     pkg/kubelet/volumemanager, pkg/volume/util/operationexecutor, staging/src/k8s.io/mount-utils;
//   - nfs: nfs-utils utils/mount/error.c, stropts.c, network.c and support/nfs. EINVAL becomes "an incorrect mount option", and so
//     does a missing rpc.statd or rpc.gssd, which a previous line reports;
//   - cifs: cifs-utils mount.cifs.c and resolve_host.c, with strerror(3) of the kernel's error;
//   - mount: util-linux libmount/src/context_mount.c and hook_mount.c, with the messages of fsconfig(2) in the log of the new mount;
//   - probe: the trial runner of this operator (agent/host/probe), with the errors of mount(2) and the kernel. It does not use
//     rpc.statd or rpc.gssd, whose absence mount.nfs also reports as EINVAL;
//   - grpc: google.golang.org/grpc status codes, as drivers pass them to the kubelet.
var rows = []row{
	// kubelet: the driver, the attachment of the volume, other requirements of the pod.
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
	// mount: the node has no helper for the file system; the same message mentions a bad option.
	{"you might need a /sbin/mount.", Elsewhere},
	{"executable file not found", Elsewhere},
	{"unknown filesystem type", Elsewhere},
	{"special device", Elsewhere},
	{"already mounted or mount point busy", Elsewhere},
	{"structure needs cleaning", Elsewhere},
	{"fsck", Elsewhere},
	// nfs and cifs: the server is unreachable or unknown, or does not have the mounted path. Options with another version, transport or
	// port can prevent a response.
	{"failed to resolve server", Elsewhere},
	{"could not resolve address", Elsewhere},
	{"name or service not known", Elsewhere},
	{"temporary failure in name resolution", Elsewhere},
	// mount.nfs with retry=0, if no name server responded.
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
	// Either: a declared version 3 needs rpc.statd, and sec=krb5 needs rpc.gssd. A server rejects unsupported options with the same
	// message as unauthorized clients, or while it starts.
	{"rpc.statd is not running", Unknown},
	{"rpc.gssd", Unknown},
	{"requested nfs version or transport protocol is not supported", Unknown},
	{"protocol not supported", Unknown},
	{"access denied by server", Unknown},
	{"permission denied", Unknown},
	{"operation not permitted", Unknown},
	{"timed out", unreached},
	// csi-driver-nfs and csi-driver-smb, WaitUntilTimeout and mountWithTimeout: mount did not return.
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

// CauseOf returns the cause of a failed mount according to a message. changesTransport reports whether the options use another version,
// transport or port, or more connections than the previous options. If so, the options can be the reason that the server does not
// respond.
func CauseOf(message string, changesTransport bool) Cause {
	switch cause := find(message); {
	case cause != unreached:
		return cause
	case changesTransport:
		return Unknown
	}
	return Elsewhere
}

// command matches the text before the output of a command that the kubelet or a driver ran.
var command = regexp.MustCompile(`(?s)^.*Mounting command: .*?Output: (Running scope as unit: \S+\s+)?`)

// Brief returns the output of mount if the message contains it, otherwise the message. The message of a condition has no space for
// both.
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
