// Package mountoptions describes the mount options of NFS, SMB, XFS and other file systems: their values, their
// synonyms, and their appearance in a mount. It validates the options of a profile, merges them into the options of a
// volume, and compares them with a mount. Each protocol has a table; the algorithms are the same for all tables.
//
// The package interprets options like the kernel: the last option of a kind wins. The kubelet's NFS plugin sorts the
// options; CSI drivers keep their order. The result of Merge means the same in both cases.
//
// All functions are pure: they do not access the cluster, the host or the clock.
package mountoptions

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/internal/decimal"
	"github.com/storageclient/operator/tuning/lists"
)

// Protocol is the client family of a volume.
type Protocol string

const (
	// NFS is the Linux NFS client, in all versions of the protocol.
	NFS Protocol = "NFS"
	// SMB is the Linux SMB client, mount.cifs.
	SMB Protocol = "SMB"
	// XFS is an XFS file system on a block device.
	XFS Protocol = "XFS"
	// Generic is any other file system on a block device. Only options that all file systems support are known.
	Generic Protocol = "Generic"
)

// Option is one mount option.
type Option struct {
	// Name is the part before the first "=".
	Name string
	// Value is the part after it.
	Value string
	// HasValue distinguishes "name=" from "name".
	HasValue bool
}

// String returns the option as mount expects it.
func (o Option) String() string {
	if o.HasValue {
		return o.Name + "=" + o.Value
	}
	return o.Name
}

// Parse parses mount options. One entry can contain several options, separated by commas; commas between double quotes
// do not separate. Parse skips empty entries, which mount ignores.
func Parse(list []string) []Option { return lists.Each(SplitOptions(list), parseOne) }

func parseOne(text string) Option {
	name, value, found := strings.Cut(text, "=")
	return Option{Name: name, Value: value, HasValue: found}
}

// SplitOptions returns the same mount options with one option in each entry.
func SplitOptions(list []string) []string { return slices.Concat(lists.Each(list, split)...) }

// Sets reports whether the options contain a value for the given option or one of its synonyms.
func (p Protocol) Sets(options []string, option string) bool {
	t := tableOf(p)
	_, ok := t.resolve(Parse(options))[t.keyOf(parseOne(option))]
	return ok
}

func split(entry string) (parts []string) {
	quoted, begin := false, 0
	for i := 0; i <= len(entry); i++ {
		switch {
		case i == len(entry) || entry[i] == ',' && !quoted:
			if i > begin {
				parts = append(parts, entry[begin:i])
			}
			begin = i + 1
		case entry[i] == '"':
			quoted = !quoted
		}
	}
	return parts
}

func texts(options []Option) []string { return lists.Each(options, Option.String) }

// Nconnect returns the number of server connections that the options request from a client of NFS: 1 to 16 from the kernel's,
// up to 64 from VAST's. It returns false if the options do not contain nconnect, or if the client does not accept the number.
func (p Protocol) Nconnect(options []string) (int, bool) {
	t := tableOf(p)
	n, err := decimal.Parse(t.resolve(Parse(options))[keyNconnect])
	if s := t.specs[keyNconnect]; err != nil || n < s.Min || n > s.Max {
		return 0, false
	}
	return int(n), true
}

// TransportOptions are the options that the first mount of a server sets for all later mounts. While one mount remains
// on the node, mounts of the same server, Version and Proto share its connections. They ignore their own options.
type TransportOptions struct {
	// Version is the version of NFS, for example 4.1. Empty if mount negotiates it.
	Version string
	// Proto is the transport protocol. Defaults to tcp.
	Proto string
	// Nconnect is the number of connections. Zero if unset.
	Nconnect int
	// NoResvPort reports whether the connections use an unprivileged port.
	NoResvPort bool
}

// Transport returns the transport options of a client of NFS.
func (p Protocol) Transport(options []string) TransportOptions {
	state := nfs.resolve(Parse(options))
	nconnect, _ := p.Nconnect(options)
	return TransportOptions{
		Version: state[keyVersion], Proto: cmp.Or(state[keyProto], "tcp"), Nconnect: nconnect, NoResvPort: state[keyResvPort] == "noresvport",
	}
}

// Effect returns the event after which a changed option takes effect. This is the next mount. For options that the
// first mount of a server sets, all mounts of the server must leave the node first. A remount does not help: the kernel
// rejects it or ignores the option.
func (p Protocol) Effect(option string) v1alpha1.SettingEffect {
	if t := tableOf(p); slices.Contains(t.Transport, t.keyOf(parseOne(option))) {
		return v1alpha1.EffectNewTransport
	}
	return v1alpha1.EffectNextMount
}

// keyOf returns the subject of an option. Options with the same key are synonyms or alternatives; the last one wins.
// The key of an unknown option is its name.
func (t *table) keyOf(o Option) string {
	if s, ok := t.specs[o.Name]; ok {
		return s.Key
	}
	return o.Name
}

// groupOf returns the merge group of an option. Options that affect each other are in one group.
func (t *table) groupOf(o Option) string {
	key := t.keyOf(o)
	return cmp.Or(t.Groups[key], key)
}

// resolve interprets options like the kernel, in their order: see fs/nfs/fs_context.c and fs/smb/client/fs_context.c. It returns the effective
// value of each key, independent of spelling. actimeo becomes its timers, and the version and the channels one number. A size is in bytes; the
// value of a flag is its name.
func (t *table) resolve(options []Option) map[string]string {
	state := map[string]string{}
	for _, o := range options {
		key, value := t.keyOf(o), o.Value
		s, known := t.specs[o.Name]
		if known && !o.HasValue {
			value = s.Value
		}
		value = s.meaning(value)
		if twin := twins[o.Name]; twin != "" && !o.HasValue {
			value = twin
		}
		switch {
		case key == keyActimeo:
			t.setTimers(state, value)
		case known && s.Kind == size:
			state[key] = inBytes(value)
		case key == keyLock:
			state[key], state[keyLocalLock] = value, localLocks[value]
		case key == keyLocalLock:
			state[key] = joinLocks(state[key], value)
		case o.Name == flagMultichannel && number(state[key]) > 1: // the number stays
		case key == keySec && t.Groups[keySign] == keySec:
			setFlavor(state, value)
		default:
			state[key] = value
		}
	}
	if t.OneVersionOnly {
		resolveVersion(state)
	}
	dropDefaultLock(state)
	// nfs_get_tree_common of fs/nfs/super.c makes such a mount synchronous, regardless of async.
	if state[keyCache] == flagNoac && t.Groups[keySync] == groupCache {
		state[keySync] = keySync
	}
	return state
}

// dropDefaultLock removes lock next to a local lock. It is the default, and would reset local_lock in a sorted list, and in any order in newer
// kernels (nfs_try_mount_request of fs/nfs/super.c).
func dropDefaultLock(state map[string]string) {
	if state[keyLock] == keyLock && state[keyLocalLock] != localLocks[keyLock] {
		delete(state, keyLock)
	}
}

// setFlavor sets sec of SMB. It also resets signing, which sign or a flavor that ends in i sets.
func setFlavor(state map[string]string, flavor string) {
	state[keySec] = flavor
	if delete(state, keySign); strings.HasSuffix(flavor, "i") {
		state[keySign] = keySign
	}
}

// optionOf returns the option that sets a key to a resolved value.
func (t *table) optionOf(key, value string) Option {
	if s, known := t.specs[value]; known && s.Kind == flag && s.Key == key && s.Value == value || twins[key] == value {
		return Option{Name: cmp.Or(value, key)}
	}
	return Option{Name: key, Value: value, HasValue: true}
}

// MeansSame reports whether the kernel treats mount options in two lists in the same way, in their order and sorted.
func (p Protocol) MeansSame(a, b []string) bool {
	t, first, second := tableOf(p), Parse(a), Parse(b)
	return maps.Equal(t.resolve(first), t.resolve(second)) && maps.Equal(t.resolve(sortOptions(first)), t.resolve(sortOptions(second))) &&
		len(t.contradictions(first)) == len(t.contradictions(second)) && slices.Equal(t.hiddenValues(first), t.hiddenValues(second))
}

// hiddenValues returns the options whose value counts although the kernel does not show it.
func (t *table) hiddenValues(options []Option) []Option {
	return lists.Filter(options, func(o Option) bool { return t.specs[o.Name].Same["*"] != "" })
}

// Has reports whether a list has the values of other options, in any spelling.
func (p Protocol) Has(list, options []string) bool {
	t := tableOf(p)
	state := t.resolve(Parse(list))
	for key, value := range t.resolve(Parse(options)) {
		if present, isSet := state[key]; !isSet || present != value {
			return false
		}
	}
	return true
}

// Setting is an option that sets one value. Source is the option that it comes from: actimeo sets several timers.
type Setting struct{ Option, Source string }

// Settings splits options into the values that they come to. It leaves out options without an effect, and keeps the spelling of the others.
func (p Protocol) Settings(options []string) (out []Setting) {
	t, list := tableOf(p), Parse(options)
	state, known := t.resolve(list), map[string]bool{}
	for _, o := range list {
		alone, keys := t.resolve([]Option{o}), t.keysOf(o, state)
		if key := t.keyOf(o); key == keySync && alone[key] == state[key] {
			keys = []string{key}
		}
		for _, key := range keys {
			value, isSet := state[key]
			option, id := t.optionOf(key, value), key
			switch {
			case o.Name == flagMultichannel && number(value) > 1: // max_channels may follow
				option, id = o, o.Name
			case len(keys) == 1 && alone[key] == value:
				option = o
			}
			if isSet && !known[id] {
				known[id] = true
				out = append(out, Setting{option.String(), o.String()})
			}
		}
	}
	return out
}

// meaning returns a value as the kernel shows it.
func (s spec) meaning(value string) string { return cmp.Or(s.Same[value], s.Same["*"], value) }

// localLocks maps lock and nolock to the resulting local_lock (kernel, fs/nfs/fs_context.c; nolock shows
// local_lock=all, measured on 6.1).
var localLocks = map[string]string{keyLock: "none", flagNolock: "all"}

// joinLocks adds a value of local_lock to the previous value: each named kind of lock also becomes local.
func joinLocks(before, value string) string {
	if value == "none" || before == "" || before == "none" || before == value {
		return value
	}
	return "all"
}

// setTimers applies actimeo: it sets all timers. For SMB, it does not change any timer if one of them is already set.
func (t *table) setTimers(state map[string]string, value string) {
	if t.ActimeoYields && t.timerSet(state) != "" {
		return
	}
	for _, timer := range t.Timers {
		state[timer] = value
	}
}

// timerSet returns a timer that differs from the kernel's default. Empty if there is none.
func (t *table) timerSet(state map[string]string) string {
	for _, timer := range t.Timers {
		if value, ok := state[timer]; ok && value != t.TimerDefaults[timer] {
			return timer
		}
	}
	return ""
}

// resolveVersion merges minorversion, the old syntax for the part after the dot, into the version.
func resolveVersion(state map[string]string) {
	minor, ok := state[keyMinorVersion]
	if !ok {
		return
	}
	delete(state, keyMinorVersion)
	if version := state[keyVersion]; version == "" || version == "4" {
		state[keyVersion] = "4." + minor
	}
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// Values returns the effective values in mount options, sorted: of everything that the given options affect, and of version, transport and
// security. Missing values are left out.
func (p Protocol) Values(options, affected []string) (values []string) {
	t := tableOf(p)
	groups, keys := map[string]bool{}, map[string]bool{}
	// Version, transport and security of NFS, SMB and the mount helper of EFS.
	for _, key := range []string{keyVersion, keyProto, keySec, "xprtsec", "tls", "rdma", "seal", "sign"} {
		groups[t.groupOf(Option{Name: key})] = true
	}
	for _, o := range Parse(affected) {
		groups[t.groupOf(o)], keys[t.keyOf(o)] = true, true
	}
	for key, value := range t.resolve(Parse(options)) {
		if groups[t.groupOf(Option{Name: key})] && (key != keySync || keys[key]) { // noac, which includes sync, is a value itself
			values = append(values, key+"="+value)
		}
	}
	slices.Sort(values)
	return values
}

// AttributeSeconds returns the minimum time in seconds that an NFS mount with these options caches the attributes of a
// file (acregmin). Zero if it does not cache them.
func AttributeSeconds(options []string) float64 {
	state := nfs.resolve(Parse(options))
	if state[keyCache] == flagNoac {
		return 0
	}
	seconds, err := strconv.ParseFloat(nfs.timerValue(state, "acregmin"), 64)
	if err != nil {
		return 0
	}
	return seconds
}
