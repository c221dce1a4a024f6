// Package mountoptions knows the mount options of NFS, SMB, XFS and of file systems in general: which values they take, which of them are one and
// the same thing under several names, how a profile's options and a volume's own become one list, and what the kernel
// shows of them once a volume is mounted. Each protocol has a table; what is done with a table is the same for all.
//
// Options are read the way the kernel reads them, the last one of a kind wins. Not every mounter keeps their order:
// the kubelet's own NFS plugin sorts the list, CSI drivers do not. What Merge writes means the same either way.
//
// It is pure: no cluster, no host, no clock.
package mountoptions

import (
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/internal/decimal"
)

// Protocol is the family of a volume's client.
type Protocol string

const (
	// NFS is the Linux NFS client, in all versions of the protocol.
	NFS Protocol = "NFS"
	// SMB is the Linux SMB client, mount.cifs.
	SMB Protocol = "SMB"
	// XFS is an XFS file system on a block device.
	XFS Protocol = "XFS"
	// Generic is any other file system on a block device: of its options only those are known that every one takes.
	Generic Protocol = "Generic"
)

// Option is one mount option.
type Option struct {
	// Name is the part before the first "=".
	Name string
	// Value is the part after it.
	Value string
	// HasValue tells "name=" from "name".
	HasValue bool
}

// String is the option as a list holds it.
func (o Option) String() string {
	if o.HasValue {
		return o.Name + "=" + o.Value
	}
	return o.Name
}

// Parse reads a list of options. An entry may itself hold several, separated by commas; a comma between double
// quotes separates nothing. Empty entries are left out: mount takes no notice of them.
func Parse(list []string) []Option {
	var options []Option
	for _, entry := range list {
		for _, text := range split(entry) {
			options = append(options, parseOne(text))
		}
	}
	return options
}

func parseOne(text string) Option {
	name, value, found := strings.Cut(text, "=")
	return Option{Name: name, Value: value, HasValue: found}
}

func split(entry string) []string {
	var parts []string
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

func texts(options []Option) []string {
	out := make([]string, 0, len(options))
	for _, o := range options {
		out = append(out, o.String())
	}
	return out
}

// Nconnect returns how many connections to the server the options ask for: 1 to 16. It returns false where they do
// not ask, or ask for a number that no kernel takes.
func Nconnect(options []string) (int, bool) {
	value, ok := nfs.resolve(Parse(options))[keyNconnect]
	if !ok {
		return 0, false
	}
	n, err := decimal.Parse(value)
	if s := nfs.specs[keyNconnect]; err != nil || n < s.min || n > s.max {
		return 0, false
	}
	return int(n), true
}

// TransportOptions are the options that the first mount of a server fixes for the mounts that come after it: while
// one of them is left on the node, a mount of the same server with the same Version and Proto uses the connections
// that are there, whatever it asks for itself.
type TransportOptions struct {
	// Version is the version of NFS, e.g. 4.1; empty where mount negotiates it.
	Version string
	// Proto is the transport protocol, tcp by default.
	Proto string
	// Nconnect is how many connections are opened; 0 where the options do not say.
	Nconnect int
	// NoResvPort is true where the connections do not come from a privileged port.
	NoResvPort bool
}

// Transport returns what the options say about the connections to the server.
func Transport(options []string) TransportOptions {
	state := nfs.resolve(Parse(options))
	nconnect, _ := Nconnect(options)
	t := TransportOptions{Version: state[keyVersion], Proto: state[keyProto], Nconnect: nconnect, NoResvPort: state[keyResvPort] == "noresvport"}
	if t.Proto == "" {
		t.Proto = "tcp"
	}
	return t
}

// Effect says when a changed option takes effect: at the next mount or, for what a server's first mount fixes, once
// every mount of the server has left the node. A remount changes nothing: the kernel refuses it, or takes it and
// does nothing.
func (p Protocol) Effect(option string) v1alpha1.SettingEffect {
	if t := tableOf(p); t.transport[t.keyOf(parseOne(option))] {
		return v1alpha1.EffectNewTransport
	}
	return v1alpha1.EffectNextMount
}

// Effect is Protocol.Effect of NFS.
func Effect(option string) v1alpha1.SettingEffect { return NFS.Effect(option) }

// keyOf is what an option is about: options with one key are one thing under several names, of which the last one
// counts. An option that is not known here is about its own name.
func (t *table) keyOf(o Option) string {
	if s, ok := t.specs[o.Name]; ok {
		return s.key
	}
	return o.Name
}

// groupOf is what has to be merged together: keys that act on each other.
func (t *table) groupOf(o Option) string {
	key := t.keyOf(o)
	if len(t.timers) > 0 && (key == keyActimeo || key == keyCache) || slices.Contains(t.timers, key) {
		return groupCache
	}
	switch {
	case key == keyMinorVersion && t.oneVersionOnly:
		return keyVersion
	case key == keyLocalLock:
		return keyLock
	}
	return key
}

// resolve returns what options say in the end, by key, in terms that do not depend on how it was written: actimeo
// as the timers that it sets, the version as one number, a size in bytes, a flag under its own name.
func (t *table) resolve(options []Option) map[string]string {
	state := map[string]string{}
	for _, o := range options {
		key, value := t.keyOf(o), o.Value
		s, known := t.specs[o.Name]
		if known && !o.HasValue {
			value = s.value
		}
		if twin := twins[o.Name]; twin != "" && !o.HasValue {
			value = twin
		}
		switch {
		case key == keyActimeo:
			t.setTimers(state, value)
		case known && s.kind == size:
			state[key] = inBytes(value)
		case key == keyLookupCache && value == "positive":
			state[key] = "pos"
		case key == keyLock:
			state[key], state[keyLocalLock] = value, localLocks[value]
		case key == keyLocalLock:
			state[key] = joinLocks(state[key], value)
		default:
			state[key] = value
		}
	}
	if t.oneVersionOnly {
		resolveVersion(state)
	}
	return state
}

// localLocks is what lock and nolock make of local_lock (kernel, fs/nfs/fs_context.c; nolock reads local_lock=all, measured on 6.1).
var localLocks = map[string]string{"lock": "none", "nolock": "all"}

// joinLocks is what local_lock makes of what came before it: each kind of lock that it names becomes local too.
func joinLocks(before, value string) string {
	if value == "none" || before == "" || before == "none" || before == value {
		return value
	}
	return "all"
}

// setTimers is what actimeo does: it sets all timers, and for SMB none where one of them is set already.
func (t *table) setTimers(state map[string]string, value string) {
	if t.actimeoYields && t.timerSet(state) != "" {
		return
	}
	for _, timer := range t.timers {
		state[timer] = value
	}
}

// timerSet is a timer that has another value than the kernel's own; empty for none.
func (t *table) timerSet(state map[string]string) string {
	for _, timer := range t.timers {
		if value, ok := state[timer]; ok && value != t.timerDefaults[timer] {
			return timer
		}
	}
	return ""
}

// resolveVersion folds minorversion, the old way to write the part after the dot, into the version.
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
