package mountoptions

import (
	"maps"
	"strings"
)

// Keys that the code refers to.
const (
	keyActimeo      = "actimeo"
	keyCache        = "ac"
	keyCto          = "cto"
	keyDAX          = "dax"
	keyHard         = "hard"
	keyLock         = "lock"
	keyLocalLock    = "local_lock"
	keyLookupCache  = "lookupcache"
	keyMaxConnect   = "max_connect"
	keyMinorVersion = "minorversion"
	keyNconnect     = "nconnect"
	keyProto        = "proto"
	keyResvPort     = "resvport"
	keyRsize        = "rsize"
	keySec          = "sec"
	keySync         = "sync"
	keyTimeo        = "timeo"
	keyVersion      = "vers"
	keyWsize        = "wsize"

	groupCache = "attribute cache"

	flagNoac = "noac"

	// versionDefault leaves the version of SMB to client and server.
	versionDefault = "default"
)

type table struct {
	// specs maps the names of the options that a profile can set to their description.
	specs map[string]spec
	// rejected contains the options of this protocol that profiles must not set, with the reason.
	rejected map[string]string
	// timers are the timers of the attribute cache that actimeo sets, in output order.
	timers []string
	// timerDefaults are the kernel's defaults in seconds.
	timerDefaults map[string]string
	// actimeoYields reports whether actimeo has no effect after a timer is set.
	actimeoYields bool
	// oneVersionOnly reports whether mount rejects several versions, even equal ones. minorversion counts as a version. Set for NFS only.
	oneVersionOnly bool
	// implied maps an option to another option that includes it.
	implied map[string]string
	// never contains keys that the kernel never shows, and keys that have no effect on the file system even if they are shown.
	never map[string]bool
	// onlyV3 contains keys that have no effect on NFSv4, which does not show them.
	onlyV3 map[string]bool
	// hidden maps keys to their default, which the kernel does not show.
	hidden map[string]string
	// transport contains keys that the first mount of a server sets for all mounts.
	transport map[string]bool
	// granted contains keys whose value the kernel or the server can reduce.
	granted map[string]bool
	// rounds reports whether the kernel rounds granted values.
	rounds bool
	// unknown is the message for an unknown option. Empty if mount fails on unknown options.
	unknown string
	// protections are the protections that options affect. Profiles cannot weaken them.
	protections []protection
	checks      []func(*table, []Option) []Problem
	source      string
}

var tables = map[Protocol]*table{NFS: nfs, EFS: efs, VAST: vast, SMB: smb, XFS: xfs, Generic: generic}

// tableOf returns the table of a protocol. For an unknown protocol it is empty, so the key of every option is its name.
func tableOf(p Protocol) *table {
	if t, ok := tables[p]; ok {
		return t
	}
	return &table{}
}

type kind int

const (
	flag kind = iota
	count
	word
	words // several, separated by colons
	size  // a power of two in bytes, or with the suffix k, m or g
)

type spec struct {
	// key is the subject of the option.
	key string
	// value is the value of key that a flag sets.
	value string
	kind  kind
	// min and max are the bounds of a count, in unit.
	min, max int64
	unit     string
	words    []string
	// removed contains words that only old kernels accepted, with the message for the user.
	removed map[string]string
	// initial is the kernel's default if hidden and timerDefaults do not contain it.
	initial string
	// firstKernel is the first kernel that has the option. Empty if all kernels from 5.10 to 7.3 have it.
	firstKernel string
	// warning is the warning for every use of the option.
	warning string
	// caution returns the warning for a specific value. May be nil.
	caution func(Option) string
	// note is additional information that is not a warning.
	note string
}

const (
	refuseProtection = "weakens the protection of the mount; leave it out"
	refuseLabel      = "sets SELinux labels"
	refuseAddress    = "sets which server is mounted and how it is reached; only the volume itself may set that"
	refuseHelper     = "is for the mount command, not for the file system"
)

// alwaysRejected contains options that profiles must not set for any protocol, with the reason.
var alwaysRejected = map[string]string{
	"suid": refuseProtection, "dev": refuseProtection, "exec": refuseProtection, "defaults": "includes suid, dev and exec",
	"context": refuseLabel, "fscontext": refuseLabel, "defcontext": refuseLabel, "rootcontext": refuseLabel, "seclabel": refuseLabel,
	"user": refuseProtection, "users": refuseProtection, "owner": refuseProtection, "group": refuseProtection,
	"addr": refuseAddress, "clientaddr": refuseAddress, "mountaddr": refuseAddress, "mounthost": refuseAddress,
	"port": refuseAddress, "mountport": refuseAddress, "mountproto": refuseAddress, "mountvers": refuseAddress,
	"remount": refuseHelper, "bind": refuseHelper, "rbind": refuseHelper, "move": refuseHelper, "auto": refuseHelper, "noauto": refuseHelper,
	"comment": refuseHelper, "fg": refuseHelper,
	"bg":     "reports success before anything is mounted",
	"sloppy": "hides options that the kernel does not know",
}

// rejectionReason returns the reason why profiles must not set an option. Empty if they can.
func (t *table) rejectionReason(o Option) string {
	if strings.HasPrefix(strings.ToLower(o.Name), "x-") {
		return refuseHelper
	}
	if reason, ok := t.rejected[o.Name]; ok {
		return reason
	}
	return alwaysRejected[o.Name]
}

// common are options that all file systems support.
var common = map[string]spec{
	"sync":    {key: keySync, value: "sync", warning: "makes every write wait for the server"},
	"async":   {key: keySync, value: "async"},
	"ro":      {key: "rw", value: "ro", warning: "makes the mount read-only: pods that write to it fail"},
	"rw":      {key: "rw", value: "rw"},
	"nosuid":  {key: "suid", value: "nosuid"},
	"nodev":   {key: "dev", value: "nodev"},
	"noexec":  {key: "exec", value: "noexec"},
	"_netdev": {key: "_netdev", value: "_netdev"},
	"nofail":  {key: "nofail", value: "nofail"},
}

// twins are flags of each mount, on all file systems. The kernel shows their negation when they are off: nosuid, nodev and noexec.
var twins = map[string]string{"suid": "suid", "dev": "dev", "exec": "exec"}

func withTwins(hidden map[string]string) map[string]string {
	all := maps.Clone(twins)
	maps.Copy(all, hidden)
	return all
}

// withCommon adds the common options to the options of a protocol, which have priority.
func withCommon(specs map[string]spec) map[string]spec { return overlay(common, specs) }

func overlay(base, specs map[string]spec) map[string]spec {
	all := maps.Clone(base)
	maps.Copy(all, specs)
	return all
}

// local are options that all file systems on block devices support.
var local = withCommon(map[string]spec{
	"noatime":     {key: "atime", value: "noatime", note: "Includes nodiratime."},
	"relatime":    {key: "atime", value: "relatime"},
	"strictatime": {key: "atime", value: "strictatime", warning: "updates the access time on every read"},
	"diratime":    {key: "diratime", value: "diratime"},
	"nodiratime":  {key: "diratime", value: "nodiratime"},
	"lazytime":    {key: "lazytime", value: "lazytime"},
})

// generic is based on mount(8): flags of the kernel's VFS layer.
var generic = &table{
	source:  "mount(8), filesystem-independent mount options",
	specs:   local,
	unknown: "is not an option that every file system supports: for options of XFS, set fsType xfs",
	implied: map[string]string{"nodiratime": "noatime"},
	never:   map[string]bool{"_netdev": true, "nofail": true},
	hidden:  withTwins(map[string]string{keySync: "async", "atime": "strictatime", "diratime": "diratime"}),
	checks:  []func(*table, []Option) []Problem{checkTwice, checkImplied},

	protections: []protection{access},
}
