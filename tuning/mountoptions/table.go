package mountoptions

import (
	"maps"
	"strings"
)

// Keys that the code speaks of.
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

// table is what is known of the options of one protocol.
type table struct {
	// specs are the options that a profile may ask for, by name.
	specs map[string]spec
	// refused are options of this protocol that no profile may bring to a volume, with the reason.
	refused map[string]string
	// timers of the attribute cache that actimeo sets, in the order in which they are written out.
	timers []string
	// timerDefaults are the kernel's own, in seconds.
	timerDefaults map[string]string
	// actimeoYields is true where actimeo sets nothing once a timer is set.
	actimeoYields bool
	// oneVersionOnly is true for NFS: mount refuses several versions, even if they agree, and minorversion is one.
	oneVersionOnly bool
	// implied are options that another one brings along.
	implied map[string]string
	// never are keys that the kernel shows nowhere, and those that mean nothing to the file system, whatever is shown.
	never map[string]bool
	// onlyV3 are keys that mean nothing to NFSv4, which does not show them either.
	onlyV3 map[string]bool
	// hidden are keys that the kernel shows only where they differ from this.
	hidden map[string]string
	// transport are keys that the first mount of a server fixes.
	transport map[string]bool
	// granted are keys of which kernel or server may make less.
	granted map[string]bool
	// rounds is true where the kernel rounds what is granted.
	rounds bool
	// unknown is said of an option that is not known, where that does not mean that mount fails.
	unknown string
	// protections are what options of the protocol protect, and no profile makes weaker.
	protections []protection
	// checks look at a whole list.
	checks []func(*table, []Option) []Problem
	// source is where all of this is known from.
	source string
}

var tables = map[Protocol]*table{NFS: nfs, EFS: efs, VAST: vast, SMB: smb, XFS: xfs, Generic: generic}

// tableOf returns an empty table for a protocol that is not known: every option is then about its own name.
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

// spec is what is known of one option.
type spec struct {
	// key is what the option is about.
	key string
	// value is what a flag says about key.
	value string
	kind  kind
	// min and max bound a count, in unit.
	min, max int64
	unit     string
	// words are the values that a word may have.
	words []string
	// removed are words that kernels took once, with what is to be said about it.
	removed map[string]string
	// initial is the kernel's own value, where hidden and timerDefaults do not tell.
	initial string
	// since is the first kernel in which the option was found; empty where all from 5.10 to 7.3 have it.
	since string
	// warning is what a user should know who asks for it.
	warning string
	// caution is what a user should know who asks for this value; may be nil.
	caution func(Option) string
	// note is what is good to know, and no warning.
	note string
}

const (
	refuseProtection = "weakens the protection of the mount; leave it out"
	refuseLabel      = "sets SELinux labels"
	refuseAddress    = "sets which server is mounted and how it is reached; only the volume itself may set that"
	refuseHelper     = "is for the mount command, not for the file system"
)

// refused are options that no profile may bring to a volume of any protocol, with the reason.
var refused = map[string]string{
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

// refusal says why an option may not be brought to a volume; empty where it may.
func (t *table) refusal(o Option) string {
	if strings.HasPrefix(strings.ToLower(o.Name), "x-") {
		return refuseHelper
	}
	if reason, ok := t.refused[o.Name]; ok {
		return reason
	}
	return refused[o.Name]
}

// common are options of every file system.
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

// twins are flags that the kernel shows where they are off, as nosuid, nodev and noexec: those of one mount, whatever its file system.
var twins = map[string]string{"suid": "suid", "dev": "dev", "exec": "exec"}

// withTwins adds them to what a protocol hides.
func withTwins(hidden map[string]string) map[string]string {
	all := maps.Clone(twins)
	maps.Copy(all, hidden)
	return all
}

// withCommon adds the common options to those of a protocol, whose own say goes first.
func withCommon(specs map[string]spec) map[string]spec { return overlay(common, specs) }

func overlay(base, specs map[string]spec) map[string]spec {
	all := maps.Clone(base)
	maps.Copy(all, specs)
	return all
}

// local are options that file systems on block devices take, whatever their kind.
var local = withCommon(map[string]spec{
	"noatime":     {key: "atime", value: "noatime", note: "Includes nodiratime."},
	"relatime":    {key: "atime", value: "relatime"},
	"strictatime": {key: "atime", value: "strictatime", warning: "updates the access time on every read"},
	"diratime":    {key: "diratime", value: "diratime"},
	"nodiratime":  {key: "diratime", value: "nodiratime"},
	"lazytime":    {key: "lazytime", value: "lazytime"},
})

// generic is from mount(8): flags of the kernel's own layer above all file systems.
var generic = &table{
	source:  "mount(8), filesystem-independent mount options",
	specs:   local,
	unknown: "is not an option that every file system takes: for options of XFS, set fsType xfs",
	implied: map[string]string{"nodiratime": "noatime"},
	never:   map[string]bool{"_netdev": true, "nofail": true},
	hidden:  withTwins(map[string]string{keySync: "async", "atime": "strictatime", "diratime": "diratime"}),
	checks:  []func(*table, []Option) []Problem{checkTwice, checkImplied},

	protections: []protection{access},
}
