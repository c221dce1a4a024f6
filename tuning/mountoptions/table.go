package mountoptions

import (
	"cmp"
	_ "embed"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/lists"
)

// Keys that the code refers to.
const (
	keyActimeo      = "actimeo"
	keyCache        = "ac"
	keyChannels     = "max_channels"
	keyLock         = "lock"
	keyLocalLock    = "local_lock"
	keyMaxConnect   = "max_connect"
	keyMinorVersion = "minorversion"
	keyNconnect     = "nconnect"
	keyProto        = "proto"
	keyResvPort     = "resvport"
	keyRsize        = "rsize"
	keySec          = "sec"
	keySign         = "sign"
	keySync         = "sync"
	keyTimeo        = "timeo"
	keyVersion      = "vers"
	keyWsize        = "wsize"

	groupCache = "attribute cache"

	flagAsync        = "async"
	flagMultichannel = "multichannel"
	flagNoac         = "noac"
	flagNolock       = "nolock"

	// versionDefault leaves the version of SMB to client and server.
	versionDefault = "default"
)

type table struct {
	// section contains the section of options.yaml. Hidden and Declined also have the entries for all protocols.
	section
	// specs maps the names of the options that a profile can set to their description.
	specs map[string]spec
	// rejected contains the options of this protocol that profiles must not set, with the reason.
	rejected map[string]string
	// warns returns the warning for a specific value, by key.
	warns map[string]func(Option) string
	// protections are the protections that options affect. Profiles cannot weaken them.
	protections []protection
	checks      []func(*table, []Option) []Problem
}

var tables = map[Protocol]*table{NFS: nfs, EFS: efs, VAST: vast, SMB: smb, XFS: xfs, Generic: generic}

// tableOf returns the table of a protocol. For an unknown protocol it is empty, so the key of every option is its name.
func tableOf(p Protocol) *table {
	if t, ok := tables[p]; ok {
		return t
	}
	return &table{}
}

// Kinds of options. An option without a kind is a flag.
const (
	flag  = ""
	count = "count"
	word  = "word"
	words = "words" // several, separated by colons
	size  = "size"  // a power of two in bytes, or with the suffix k, m or g
)

// spec describes an option that profiles can set.
type spec struct {
	// Key is the subject of the option.
	Key string
	// Value is the value of Key that the option sets if it has no value.
	Value string
	Kind  string
	// Min and Max are the bounds of a count, in Unit.
	Min, Max int64
	Unit     string
	// Words are the accepted values; "*" is any text.
	Words []string
	// Same maps values to other values with the same meaning, as the kernel shows them; "*" is any value.
	Same map[string]string
	// Removed contains words that only old kernels accepted, with the message for the user.
	Removed map[string]string
	// Initial is the kernel's default if hidden and timerDefaults do not contain it.
	Initial string
	// Since is the first kernel that has the option. Empty if all kernels from 5.10 to 7.3 have it.
	Since string
	// Warning is the warning for every use of the option. Warnings contains the warnings for single values.
	Warning  string
	Warnings map[string]string
	// Note is additional information that is not a warning.
	Note string
}

// section is a section of options.yaml.
type section struct {
	Source  string
	Options map[string]spec
	// Rejected contains options that profiles must not set, separated by blanks, by the reason.
	Rejected map[string]string
	// Timers are the timers of the attribute cache that actimeo sets, in output order. TimerDefaults are the kernel's defaults in seconds.
	Timers        []string
	TimerDefaults map[string]string
	// Groups maps keys to the group of options that affect each other. A key without an entry is a separate group.
	Groups map[string]string
	// ActimeoYields reports whether actimeo has no effect after a timer is set.
	ActimeoYields bool
	// OneVersionOnly reports whether mount rejects several versions, even equal ones. minorversion counts as a version. Set for NFS only.
	OneVersionOnly bool
	// Implied maps an option to another option that includes it.
	Implied map[string]string
	// Never contains keys that the kernel never shows, and keys that have no effect on the file system even if they are shown.
	Never []string
	// OnlyV3 contains keys that have no effect on NFSv4, which does not show them.
	OnlyV3 []string
	// Hidden maps keys to their default, which the kernel does not show.
	Hidden map[string]string
	// Declined contains the values that a mount can have although another one is desired, as key=value, with the reason.
	Declined map[string]string
	// Transport contains keys that the first mount of a server sets for all mounts.
	Transport []string
	// Granted contains keys whose value the kernel or the server can reduce. Rounds reports whether the kernel rounds them.
	Granted []string
	Rounds  bool
	// Unknown is the message for an unknown option. Empty if mount fails on unknown options.
	Unknown     string
	Protections []protectionRow
}

//go:embed options.yaml
var document []byte

var documents = embedded.Parse[map[string]section]("table of mount options", document)

// read completes a table with the sections of options.yaml that apply to it.
func read(name string, t *table) *table {
	common := documents["common"]
	t.section = documents[name]
	t.Hidden, t.Declined = overlay(twins, t.Hidden), overlay(common.Declined, t.Declined)
	t.protections = lists.Each(slices.Concat(common.Protections, t.Protections), protectionRow.read)
	t.specs = specsOf("common")
	if name == "XFS" || name == "local" {
		maps.Copy(t.specs, specsOf("local"))
	}
	return t.addOptions(name)
}

// addOptions adds the options of a section, and keeps the other options of the table.
func (t *table) addOptions(name string) *table {
	t.specs, t.Source = overlay(t.specs, specsOf(name)), documents[name].Source
	t.rejected = overlay(t.rejected, rejectedBy(name))
	return t
}

func specsOf(name string) map[string]spec {
	specs := map[string]spec{}
	for option, s := range documents[name].Options {
		s.Key = cmp.Or(s.Key, option)
		if s.Kind == flag {
			s.Value = cmp.Or(s.Value, option)
		}
		specs[option] = s
	}
	return specs
}

func rejectedBy(name string) map[string]string {
	reasons := map[string]string{}
	for reason, options := range documents[name].Rejected {
		for option := range strings.FieldsSeq(options) {
			reasons[option] = reason
		}
	}
	return reasons
}

const refuseHelper = "is for the mount command, not for the file system"

// alwaysRejected contains options that profiles must not set for any protocol, with the reason.
var alwaysRejected = rejectedBy("common")

// rejectionReason returns the reason why profiles must not set an option. Empty if they can.
func (t *table) rejectionReason(o Option) string {
	if strings.HasPrefix(strings.ToLower(o.Name), "x-") {
		return refuseHelper
	}
	return cmp.Or(t.rejected[o.Name], alwaysRejected[o.Name])
}

// twins are flags of each mount, on all file systems. The kernel shows their negation when they are off: nosuid, nodev and noexec.
var twins = map[string]string{"suid": "suid", "dev": "dev", "exec": "exec"}

func overlay[V any](base, additional map[string]V) map[string]V {
	all := map[string]V{}
	maps.Copy(all, base)
	maps.Copy(all, additional)
	return all
}

// generic is based on mount(8): flags of the kernel's VFS layer.
var generic = read("local", &table{checks: []func(*table, []Option) []Problem{checkTwice, checkImplied}})

// smb is based on fs/smb/client/fs_context.c and connect.c of kernels 6.12 and 7.3, and mount.cifs(8). Options in
// /proc/mounts are based on cifs_show_options of 6.1 and later. Timers are limited to 2^30 jiffies at 1000 jiffies per second, the smallest
// maximum of all kernels.
var smb = read("SMB", &table{
	checks: []func(*table, []Option) []Problem{checkTwice, checkYielding},
})

// xfs is based on fs/xfs/xfs_super.c of kernels 5.10 to 7.3 and xfs(5). A remount only changes access times, ro, and
// inode32 or inode64. For other options, it succeeds without effect.
var xfs = read("XFS", &table{
	checks: []func(*table, []Option) []Problem{checkTwice, checkImplied},
})

// Known describes one option for users.
type Known struct {
	// Name is the name of the option. Key is the subject of the option: options with the same key are synonyms or alternatives.
	Name, Key string
	// Values describes the accepted values. Empty for a flag.
	Values string
	// Default is the kernel's default for Key. Empty if there is none, or if it depends on the server or the node.
	Default string
	// TakesEffect is the event after which a changed value takes effect.
	TakesEffect v1alpha1.SettingEffect
	// Rejected is the reason why profiles must not set the option. Hazard is the warning for users who set it.
	Rejected, Hazard string
	// Note is additional information that is not a warning.
	Note string
	// Since is the first kernel that has the option. Empty if all kernels from 5.10 to 7.3 have it.
	Since string
	// Source is the source of this information.
	Source string
}

// Known returns all known options of a protocol, sorted by name.
func (p Protocol) Known() []Known {
	t := tableOf(p)
	var all []Known
	for name, s := range t.specs {
		known := Known{Name: name, Key: s.Key, TakesEffect: p.Effect(name), Hazard: s.Warning, Note: s.Note, Since: s.Since, Source: t.Source,
			Values: s.values(), Default: cmp.Or(s.Initial, t.TimerDefaults[s.Key], t.Hidden[s.Key])}
		all = append(all, known)
	}
	for name, reason := range overlay(alwaysRejected, t.rejected) {
		all = append(all, Known{Name: name, Key: name, Rejected: reason, Source: t.Source})
	}
	slices.SortFunc(all, func(a, b Known) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Knows reports whether the protocol has an option, even if profiles must not set it.
func (p Protocol) Knows(option string) bool {
	t, o := tableOf(p), parseOne(option)
	_, known := t.specs[o.Name]
	return known || t.rejectionReason(o) != ""
}
