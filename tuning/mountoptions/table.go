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
	keyLock         = "lock"
	keyLocalLock    = "local_lock"
	keyMaxConnect   = "max_connect"
	keyMinorVersion = "minorversion"
	keyNconnect     = "nconnect"
	keyProto        = "proto"
	keyResvPort     = "resvport"
	keyRsize        = "rsize"
	keySec          = "sec"
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
	// warns returns the warning for a specific value, by key.
	warns map[string]func(Option) string
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
	// declined contains the values that a mount can have although another one is desired, as key=value, with the reason.
	declined map[string]string
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

// section is a section of options.yaml. Rejected contains options that profiles must not set, separated by blanks, by the reason. The other fields
// have the meaning of the fields of table with the same names.
type section struct {
	Source                                string
	Options                               map[string]spec
	Rejected                              map[string]string
	Timers                                []string
	TimerDefaults, Implied, Hidden        map[string]string
	Declined                              map[string]string
	Never, OnlyV3, Transport, Granted     []string
	ActimeoYields, OneVersionOnly, Rounds bool
	Unknown                               string
	Protections                           []protectionRow
}

//go:embed options.yaml
var document []byte

var documents = embedded.Parse[map[string]section]("table of mount options", document)

// read completes a table with the sections of options.yaml that apply to it.
func read(name string, t *table) *table {
	d := documents[name]
	t.timers, t.timerDefaults, t.actimeoYields, t.oneVersionOnly, t.rounds = d.Timers, d.TimerDefaults, d.ActimeoYields, d.OneVersionOnly, d.Rounds
	t.never, t.onlyV3, t.transport, t.granted = setOf(d.Never), setOf(d.OnlyV3), setOf(d.Transport), setOf(d.Granted)
	t.implied, t.hidden, t.unknown = d.Implied, overlay(twins, d.Hidden), d.Unknown
	t.declined = overlay(documents["common"].Declined, d.Declined)
	t.protections = lists.Each(slices.Concat(documents["common"].Protections, d.Protections), protectionRow.read)
	t.specs = specsOf("common")
	if name == "XFS" || name == "local" {
		maps.Copy(t.specs, specsOf("local"))
	}
	return t.addOptions(name)
}

// addOptions adds the options of a section, and keeps the other options of the table.
func (t *table) addOptions(name string) *table {
	t.specs, t.source = overlay(t.specs, specsOf(name)), documents[name].Source
	t.rejected = overlay(t.rejected, rejectedBy(name))
	return t
}

func setOf(names []string) map[string]bool {
	return lists.Map(names, func(name string) (string, bool) { return name, true })
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
		known := Known{Name: name, Key: s.Key, TakesEffect: p.Effect(name), Hazard: s.Warning, Note: s.Note, Since: s.Since, Source: t.source,
			Values: s.values(), Default: cmp.Or(s.Initial, t.timerDefaults[s.Key], t.hidden[s.Key])}
		all = append(all, known)
	}
	reasons := maps.Clone(alwaysRejected)
	maps.Copy(reasons, t.rejected)
	for name, reason := range reasons {
		all = append(all, Known{Name: name, Key: name, Rejected: reason, Source: t.source})
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
