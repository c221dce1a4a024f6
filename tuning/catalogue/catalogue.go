// Package catalogue contains the parameters of a node that affect its storage clients: their values, effects, costs and sources.
// It prevents the author of a profile from becoming root on the nodes. Parameters that are neither in the catalogue nor in the
// operator's allow-list are rejected. No key or value contains a byte with a special meaning in a generated file.
//
// The package has no side effects: it uses no cluster, host or clock. Mount options are in package mountoptions.
package catalogue

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Kind is the format of a parameter's value.
type Kind string

const (
	// Integer is one decimal number.
	Integer Kind = "Integer"
	// IntegerList is a list of Fields numbers, separated by single spaces.
	IntegerList Kind = "IntegerList"
	// Text is one word.
	Text Kind = "Text"
	// Ports are ports and ranges of ports in ascending order, separated by commas, as the kernel shows them.
	Ports Kind = "Ports"
	// Flag is 0 or 1.
	Flag Kind = "Flag"
	// ProfileName is the name of a tuned profile.
	ProfileName Kind = "ProfileName"
	// Identity is FromNode: each node derives the client ID of its NFSv4 client.
	Identity Kind = "Identity"
	// NFSOptions are NFS mount options, separated by commas.
	NFSOptions Kind = "NFSOptions"
	// FilesystemOptions are a file system type, which may be empty, a colon and mount options, separated by commas.
	FilesystemOptions Kind = "FilesystemOptions"
)

// Parameter describes one parameter.
type Parameter struct {
	// Key is the canonical key, e.g. sysctl/net.core.rmem_max.
	Key string
	// Kind is the format of the value.
	Kind Kind
	// Min and Max are the limits of each number of the value, in Unit.
	Min, Max int64
	// Fields is the number of numbers in an IntegerList.
	Fields int
	// Ascending reports whether no number of an IntegerList may be smaller than the number before it.
	Ascending bool
	// Least is the minimum of each number with which a node works, in Unit, if the kernel accepts smaller numbers. Empty if every
	// accepted number works.
	Least []int64
	// LeastSpan is the minimum count of values in a range from the first number to the second. Zero if the value is not a range.
	LeastSpan int64
	// LeastReason describes the effect of numbers below Least, or of a narrower range.
	LeastReason string
	// Low is the recommended minimum of each number, in Unit. Smaller values work but are rarely intended. Users are warned with
	// LowHazard.
	Low []int64
	// LowHazard describes the effect of a value below Low.
	LowHazard string
	// Grows reports whether tuning usually raises the parameter. A number below the node's original value is then probably a mistake.
	Grows bool
	// Unit is the unit of a number.
	Unit string
	// Default is the kernel's default. Empty if it depends on the node.
	Default string
	// TakesEffect is the event that makes a changed value effective.
	TakesEffect v1alpha1.SettingEffect
	// Module is the kernel module of the parameter. Empty if the parameter always exists.
	Module string
	// Hazard describes a risk of values other than the default, or the reason why they have no effect. Users are warned with it.
	Hazard string
	// HazardAbove limits Hazard to values whose first number is larger.
	HazardAbove int64
	// Note is additional information, not a warning.
	Note string
	// Source is the reference for the range, the default and the hazard.
	Source string
	// Since and Until are the first and the last kernel version with the parameter. Empty for all versions from 5.10 to 7.3.
	Since, Until string
}

// Warning returns the warnings about a value. Empty if there are none, or if the value is the kernel's default.
func (p Parameter) Warning(value string) string {
	v := ParseValue(value)
	if v.Text == p.Default {
		return ""
	}
	var warnings []string
	numbers := Numbers(v.Text)
	if len(numbers) == 0 || p.HazardAbove == 0 || numbers[0] > p.HazardAbove {
		warnings = append(warnings, p.Hazard)
	}
	if !v.AtLeast && firstBelow(numbers, p.Low) >= 0 {
		warnings = append(warnings, p.LowHazard)
	}
	return strings.TrimSpace(strings.Join(warnings, " "))
}

// Values describes the values that the parameter accepts, e.g. "1–1024 requests in flight per session".
func (p Parameter) Values() string {
	span := fmt.Sprintf("%d–%d", p.Min, p.Max)
	if p.Min == p.Max {
		span = strconv.FormatInt(p.Min, 10)
	}
	switch p.Kind {
	case Flag:
		return "0 or 1"
	case Integer:
		if len(p.Least) > 0 {
			span = fmt.Sprintf("%d–%d", p.Least[0], p.Max)
		}
		return strings.TrimSpace(span + " " + p.Unit)
	case IntegerList:
		values := strings.TrimSpace(fmt.Sprintf("%d numbers, each %s %s", p.Fields, span, p.Unit))
		if len(p.Least) > 0 {
			values += ", at least " + join(p.Least)
		}
		if p.LeastSpan > 0 {
			values += fmt.Sprintf(", a range of at least %d", p.LeastSpan)
		}
		return values
	case Ports:
		return "ports and ranges in ascending order, for example 10250,30000-32767"
	case Identity:
		return string(v1alpha1.NFS4UniqueIDFromNode)
	case ProfileName:
		return "the name of a tuned profile"
	case NFSOptions, FilesystemOptions:
		return "mount options"
	default:
		return "text"
	}
}

// Lookup returns the parameter with this canonical key. The catalogue does not list servers and mount points: it accepts every key
// with a server or a mount point.
func Lookup(key string) (Parameter, bool) {
	i, found := slices.BinarySearchFunc(parameters, key, func(p Parameter, key string) int {
		return strings.Compare(p.Key, key)
	})
	if !found {
		return lookupHostMounts(key)
	}
	return parameters[i], true
}

// All returns every parameter, sorted by key.
func All() []Parameter {
	return slices.Clone(parameters)
}

// Effect returns the event that makes a setting effective. For keys that only an allow-list admits, it is the usual event of the
// subject. It is Live for such module parameters, because the agent writes writable parameters immediately.
func Effect(key string) v1alpha1.SettingEffect {
	if p, ok := Lookup(key); ok {
		return p.TakesEffect
	}
	if Key(key).AtBoot() {
		return v1alpha1.EffectReboot
	}
	return v1alpha1.EffectLive
}

const (
	sourceIPSysctl  = "kernel Documentation/networking/ip-sysctl.rst; tcp(7)"
	sourceNet       = "kernel Documentation/admin-guide/sysctl/net.rst; socket(7)"
	sourceVM        = "kernel Documentation/admin-guide/sysctl/vm.rst"
	sourceSunrpc    = "measured on 6.1 and 6.18: 1 and 65537 are rejected; kernel net/sunrpc/xprtsock.c"
	sourceSession   = "kernel fs/nfs/super.c and nfs4session.h; Azure NetApp Files, concurrency best practices"
	sourceHashTable = "kernel Documentation/admin-guide/kernel-parameters.txt; measured on 6.1 and 6.18; Azure Files, large directories"

	noteBuffers = "Little effect on NFS over TCP: its buffers are sized by tcp_rmem and tcp_wmem."
	noteSlots   = "Limits each connection, for NFSv3 and 4.0 only; NFSv4.1 and 4.2 use nfs.max_session_slots. A connection keeps the " +
		"limit that it was opened with."
	noteSessions    = "NFSv4.1 and 4.2 only. One table per session, shared by all connections and mounts of a server; the server may grant less."
	hazardTCPMemory = "The first number is granted to every socket even when memory is short: if it is large, many sockets use up the node's memory."
	lowTCPBuffers   = "Buffers below 64 KiB keep a connection far below the network's speed; the kernel's default buffers are larger."
	hazardNoEffect  = "The kernel accepts the value but does not use it."
)

const (
	noteReadAheadNFS   = "nfs is NFSv3, nfs4 is all later versions. The default is 128 KiB regardless of rsize; before kernel 5.4 it was 15 times rsize."
	noteReadAheadSMB   = "The default depends on rsize and the option rasize."
	noteReadAheadBlock = "Applies to the whole disk, so also to other file systems on it."
)

// parameters is sorted by key; a test checks the order.
var parameters = []Parameter{
	hashTable("dhash_entries", "the directory entry cache", 32768, "8 KiB"),
	hashTable("ihash_entries", "the inode cache", 16384, "16 KiB"),

	sessionSlots("max_session_cb_slots", "16", "Limits callbacks in flight from the server; the connection's own limit may be lower."),
	sessionSlots("max_session_slots", "64", "Limits requests in flight."),
	{Key: NFS4UniqueIDKey, Kind: Identity, TakesEffect: v1alpha1.EffectReboot, Module: "nfs",
		Note: "Declared as nfs4UniqueID. Takes effect when the module is loaded: before the first NFS mount, or at the next boot of a node that " +
			"has NFS mounts. A value that is written to /sys/fs/nfs/net/nfs_client/identifier takes precedence.",
		Source: "kernel Documentation/filesystems/nfs/client-identifier.rst; fs/nfs/nfs4proc.c, nfs4_get_uniquifier"},

	{Key: ModuleKey("nfsv4", "directory_delegations"), Kind: Flag, Max: 1, Default: "1", TakesEffect: v1alpha1.EffectLive, Module: "nfsv4", Since: "6.19",
		Note:   "0 avoids errors with NFS servers on Ganesha before 9.11. Directories that already have a delegation keep it.",
		Source: "kernel fs/nfs/nfs4proc.c; nfs-ganesha#1385"},

	slotTable("tcp_max_slot_table_entries", "65536", 16, "The number of slots that a TCP connection can grow to; tcp_slot_table_entries wins "+
		"if it is larger."),
	slotTable("tcp_slot_table_entries", "2", 2, "The number of slots that a TCP connection starts with."),
	slotTable("udp_slot_table_entries", "16", 16, "The number of slots of a UDP transport."),

	readAhead("cifs", "", noteReadAheadSMB),
	readAhead("ext4", "", noteReadAheadBlock),
	readAhead("nfs", "128", noteReadAheadNFS),
	readAhead("nfs4", "128", noteReadAheadNFS),
	readAhead("smb3", "", noteReadAheadSMB),
	readAhead("xfs", "", noteReadAheadBlock),

	sysctl(Parameter{Key: "net.core.netdev_max_backlog", Grows: true, Kind: Integer, Min: 0, Max: math.MaxInt32, Unit: "packets", Default: "1000",
		Least: []int64{64}, LeastReason: "the kernel processes 64 packets at a time (net.core.dev_weight), and a shorter queue drops most packets of pods",
		Low: []int64{1000}, LowHazard: "A queue shorter than the kernel's default of 1000 drops packets in bursts.",
		Hazard: "A long queue uses memory and adds latency on a busy node.", HazardAbove: 1000, Source: sourceNet + "; net/core/dev.c, " +
			"enqueue_to_backlog"}),
	sysctl(Parameter{Key: "net.core.optmem_max", Grows: true, Kind: Integer, Min: 0, Max: math.MaxInt32, Unit: "bytes",
		Note: "Limits ancillary data of sockets; NFS and SMB do not use it.", Source: sourceNet}),
	sysctl(Parameter{Key: "net.core.rmem_default", Grows: true, Kind: Integer, Min: 2304, Max: math.MaxInt32, Unit: "bytes", Default: "212992",
		Note: noteBuffers, Source: sourceNet}),
	sysctl(Parameter{Key: "net.core.rmem_max", Grows: true, Kind: Integer, Min: 2304, Max: math.MaxInt32, Unit: "bytes", Note: noteBuffers,
		Source: sourceNet}),
	sysctl(Parameter{Key: "net.core.somaxconn", Grows: true, Kind: Integer, Min: 0, Max: math.MaxInt32, Unit: "connections", Default: "4096",
		Note: "Limits the queue of listening sockets: no effect on storage clients.", Source: sourceNet}),
	sysctl(Parameter{Key: "net.core.wmem_default", Grows: true, Kind: Integer, Min: 4608, Max: math.MaxInt32, Unit: "bytes", Default: "212992",
		Note: noteBuffers, Source: sourceNet}),
	sysctl(Parameter{Key: "net.core.wmem_max", Grows: true, Kind: Integer, Min: 4608, Max: math.MaxInt32, Unit: "bytes", Note: noteBuffers,
		Source: sourceNet}),
	sysctl(Parameter{Key: "net.ipv4.ip_local_port_range", Kind: IntegerList, Fields: 2, Ascending: true, Min: 1024, Max: 65535, Unit: "port",
		Default:   "32768 60999",
		LeastSpan: 256, LeastReason: "the host, its daemons and all pods with host networking share these ports, and new connections fail once " +
			"they are used up",
		Hazard: "A wider range than 32768 60999 includes ports that NodePort services (30000 to 32767), the kubelet and host daemons listen on, " +
			"unless net.ipv4.ip_local_reserved_ports covers them. NFS from privileged ports does not use this range.",
		Note: "The kernel prefers one even and one odd port.", Source: sourceIPSysctl + "; kubernetes/kubernetes#111682"}),
	sysctl(Parameter{Key: "net.ipv4.ip_local_reserved_ports", Kind: Ports, Min: 1, Max: 65535,
		Note: "Connections do not use these ports unless they ask for them. List the ports of NodePort services and daemons.", Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.route.flush", Kind: Integer, Min: 1, Max: 1, TakesEffect: v1alpha1.EffectAction,
		Hazard: "An action, not a state: it is executed once and cannot be read back.", Source: sourceIPSysctl + "; mode 0200"}),
	sysctl(Parameter{Key: "net.ipv4.tcp_dsack", Kind: Flag, Max: 1, Default: "1", Hazard: "If off, needless retransmissions are not detected " +
		"and not undone.", Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.tcp_fack", Kind: Flag, Max: 1, Default: "0", Hazard: hazardNoEffect, Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.tcp_low_latency", Kind: Flag, Max: 1, Default: "0", Hazard: hazardNoEffect, Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.tcp_mem", Grows: true, Kind: IntegerList, Fields: 3, Ascending: true, Min: 0, Max: 1 << 40, Unit: "pages",
		Least: []int64{3072, 4096, 6144}, LeastReason: "these are the kernel's defaults with 256 MiB of memory, and all connections of the node share them",
		Hazard: "Counts pages, not bytes, and replaces the values that the kernel derived from the node's memory: 4096 89600 4194304 means " +
			"memory pressure from 350 MiB on, for all sockets together.",
		Source: sourceIPSysctl + "; net/ipv4/tcp.c, tcp_init_mem"}),
	sysctl(Parameter{Key: "net.ipv4.tcp_no_metrics_save", Kind: Flag, Max: 1, Default: "0", Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.tcp_rmem", Grows: true, Kind: IntegerList, Fields: 3, Ascending: true, Min: 1, Max: math.MaxInt32,
		Unit: "bytes", Default: "4096 131072 6291456",
		Least: []int64{1, 2304, 2304}, LeastReason: "new connections carry no data with less, while open connections continue",
		Low: []int64{0, 16384, 65536}, LowHazard: lowTCPBuffers,
		Hazard: hazardTCPMemory, HazardAbove: 65536, Note: "Minimum, default and maximum. Affects only sockets opened afterwards. " +
			"The maximum of kernel 6.18 is 33554432: declare what you need in sysctlsAtLeast.",
		Source: sourceIPSysctl + "; include/net/sock.h, SOCK_MIN_RCVBUF; measured on 6.18: 1000 carries 7 KiB of 1 MiB, 2304 all of it"}),
	sysctl(Parameter{Key: "net.ipv4.tcp_sack", Kind: Flag, Max: 1, Default: "1", Hazard: "If off, every lost packet costs far more " +
		"retransmissions.", Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.tcp_slow_start_after_idle", Kind: Flag, Max: 1, Default: "1", Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.tcp_timestamps", Kind: Integer, Min: 0, Max: 2, Default: "1",
		Hazard: "If off, wrapped sequence numbers are not detected (at 10 Gb/s they wrap within seconds), and buffers are sized less accurately.",
		Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.tcp_window_scaling", Kind: Flag, Max: 1, Default: "1", Hazard: "If off, no connection has more than 64 " +
		"KiB in flight.", Source: sourceIPSysctl}),
	sysctl(Parameter{Key: "net.ipv4.tcp_wmem", Grows: true, Kind: IntegerList, Fields: 3, Ascending: true, Min: 1, Max: math.MaxInt32,
		Unit: "bytes", Default: "4096 16384 4194304",
		Least: []int64{1, 4608, 4608}, LeastReason: "no socket can request less (SO_SNDBUF), and every packet waits for the previous packet",
		Low: []int64{0, 16384, 65536}, LowHazard: lowTCPBuffers,
		Hazard: hazardTCPMemory, HazardAbove: 65536, Note: "Minimum, default and maximum. Affects only sockets opened afterwards.",
		Source: sourceIPSysctl + "; include/net/sock.h, SOCK_MIN_SNDBUF"}),
	sysctl(Parameter{Key: "vm.dirty_background_bytes", Kind: Integer, Min: 1, Max: 1 << 40, Unit: "bytes",
		Note: "Setting it clears vm.dirty_background_ratio. Must be lower than vm.dirty_bytes.", Source: sourceVM}),
	sysctl(Parameter{Key: "vm.dirty_background_ratio", Kind: Integer, Min: 0, Max: 100, Unit: "percent of available memory", Default: "10",
		Note: "Setting it clears vm.dirty_background_bytes. The tuned profile latency-performance sets one or the other too.", Source: sourceVM}),
	sysctl(Parameter{Key: "vm.dirty_bytes", Kind: Integer, Min: 8192, Max: 1 << 40, Unit: "bytes",
		Least: []int64{16 << 20}, LeastReason: "all writers of the node share these bytes, and each write waits for the disk or server once they are used",
		Note: "Setting it clears vm.dirty_ratio. Limits unwritten data in bytes where a percentage is too much on large nodes.", Source: sourceVM}),
	sysctl(Parameter{Key: "vm.dirty_expire_centisecs", Kind: Integer, Min: 0, Max: math.MaxInt32, Unit: "hundredths of a second", Default: "3000",
		Source: sourceVM}),
	sysctl(Parameter{Key: "vm.dirty_ratio", Kind: Integer, Min: 0, Max: 100, Unit: "percent of available memory", Default: "20",
		Least: []int64{1}, LeastReason: "with 0 every write waits for the disk: 80 MB took 36 s instead of 4",
		Note: "Setting it clears vm.dirty_bytes. The tuned profile latency-performance sets one or the other too.", Source: sourceVM}),
	sysctl(Parameter{Key: "vm.dirty_writeback_centisecs", Kind: Integer, Min: 0, Max: math.MaxInt32, Unit: "hundredths of a second", Default: "500",
		Note: "0 turns periodic write-back off.", Source: sourceVM}),

	{Key: TunedKey, Kind: ProfileName, TakesEffect: v1alpha1.EffectLive,
		Note: "Sysctls declared in a StorageClientProfile override the sysctls of the tuned profile.", Source: sourceTuned},
}

func sysctl(p Parameter) Parameter {
	p.Key = KeyOf(Sysctls, p.Key)
	if p.TakesEffect == "" {
		p.TakesEffect = v1alpha1.EffectLive
	}
	return p
}

// slotTable returns a limit of requests in flight. Values below low are rarely intended.
func slotTable(name, value string, low int64, note string) Parameter {
	return Parameter{
		Key: ModuleKey("sunrpc", name), Kind: Integer, Min: 2, Max: 65536, Low: []int64{low},
		LowHazard: "Few requests in flight: many threads of one mount wait for each other.", Unit: "requests in flight per connection", Default: value,
		TakesEffect: v1alpha1.EffectNewTransport, Module: "sunrpc", Note: note + " " + noteSlots, Source: sourceSunrpc,
	}
}

func sessionSlots(name, value, note string) Parameter {
	return Parameter{
		Key: ModuleKey("nfs", name), Kind: Integer, Min: 1, Max: 1024, Grows: true, Low: []int64{16},
		LowHazard: "Few requests in flight: all mounts of a server share them.", Unit: "requests in flight per session", Default: value,
		TakesEffect: v1alpha1.EffectNewTransport, Module: "nfs", Note: note + " " + noteSessions, Source: sourceSession,
	}
}

// hashTable returns a parameter with a minimum for a hash table. If the kernel ignores the suffix of a number, the table can have
// as few as sixteen buckets.
func hashTable(name, cache string, minimum int64, memory string) Parameter {
	return Parameter{
		Key: KeyOf(KernelArguments, name), Kind: Integer, Min: 1024, Max: maxBuckets, Unit: "buckets of 8 bytes",
		Least: []int64{minimum}, LeastReason: "this is the kernel's default with 256 MiB of memory, and fewer make every lookup slower",
		TakesEffect: v1alpha1.EffectReboot,
		Note: "Sizes the hash table of " + cache + ". Rounded up to a power of two, then limited to 1/16 of memory. By default one bucket per " +
			memory + " of memory up to 64 GiB, and fewer beyond: from 1 TiB on, 16777216 has no benefit.",
		Source: sourceHashTable,
	}
}
