package catalogue

import (
	"slices"
	"strings"
)

// Subjects: the first part of every key.
const (
	Sysctls         = "sysctl"
	Modules         = "module"
	KernelArguments = "kernelArgument"
	// ReadAheads are read-ahead windows by file system type, e.g. readAhead/nfs4.
	ReadAheads = "readAhead"
	// Tuned has one key, the profile of tuned.
	Tuned = "tuned"
	// NFSDefaults are options of the host's own NFS mounts by server, e.g. nfsMountDefaults/filer1.
	NFSDefaults = "nfsMountDefaults"
	// Filesystems are mount options of host file systems by mount point, e.g. filesystem/mnt/disks/*.
	Filesystems = "filesystem"
)

// Key is the key of a setting: its subject, a slash and its name there. It stays the text that the API and the journal hold: a
// release also meets keys of subjects that it does not know.
type Key string

// KeyOf is the key of a name of a subject.
func KeyOf(subject, name string) string { return subject + "/" + name }

// Cut returns both parts of a key. Of a text without a slash, all is the subject.
func (k Key) Cut() (subject, name string) {
	subject, name, _ = strings.Cut(string(k), "/")
	return subject, name
}

// Subject is the first part of a key.
func (k Key) Subject() string {
	subject, _ := k.Cut()
	return subject
}

// In returns the name of a key of a subject, and false for a key of another.
func (k Key) In(subject string) (string, bool) { return strings.CutPrefix(string(k), subject+"/") }

// AtBoot reports whether nothing but a boot brings a setting into effect.
func (k Key) AtBoot() bool {
	_, is := k.In(KernelArguments)
	return is
}

var subjects = []string{Sysctls, Modules, KernelArguments, ReadAheads, Tuned, NFSDefaults, Filesystems}

// NFS4UniqueIDKey is the key of what an NFSv4 client introduces itself by, beside its host name.
const NFS4UniqueIDKey = Modules + "/nfs/nfs4_unique_id"

// AllServers stands for every server in a key of NFSDefaults.
const AllServers = "_all"

// slotTableSysctls are sysctls that are parameters of the module sunrpc under another name.
var slotTableSysctls = []string{"sunrpc.tcp_max_slot_table_entries", "sunrpc.tcp_slot_table_entries", "sunrpc.udp_slot_table_entries"}

// SysctlKey is the canonical key of a sysctl. The slot tables of sunrpc are keyed as module parameters: the sysctl
// exists only while the module is loaded.
func SysctlKey(name string) string {
	if slices.Contains(slotTableSysctls, name) {
		module, parameter, _ := strings.Cut(name, ".")
		return ModuleKey(module, parameter)
	}
	return KeyOf(Sysctls, name)
}

// ModuleKey is the canonical key of a module's parameter. The kernel takes '-' and '_' in such names for the same.
func ModuleKey(module, parameter string) string {
	return KeyOf(Modules, strings.ReplaceAll(module+"/"+parameter, "-", "_"))
}

// KernelArgumentKey is the canonical key and the value of a kernel argument. A flag has no value.
func KernelArgumentKey(argument string) (key, value string) {
	name, value, _ := strings.Cut(argument, "=")
	return KeyOf(KernelArguments, name), value
}

// ReadAheadKey is the canonical key of the read-ahead of mounts of one type.
func ReadAheadKey(fsType string) string { return KeyOf(ReadAheads, fsType) }

// TunedKey is the canonical key of the profile of tuned.
const TunedKey = Tuned + "/profile"

// NFSDefaultsKey is the canonical key of the options of the host's own mounts of a server; "" stands for all servers.
// mount.nfs takes no notice of case in a server's name.
func NFSDefaultsKey(server string) string {
	if server == "" {
		server = AllServers
	}
	return KeyOf(NFSDefaults, strings.ToLower(server))
}

// FilesystemKey is the canonical key of the options of host file systems. The mount point is absolute and may be a glob.
func FilesystemKey(mountPoint string) string { return Filesystems + mountPoint }

// FilesystemValue is the value of such a key: the file system type, which may be empty, a colon and the options.
func FilesystemValue(fsType string, options []string) string {
	return fsType + ":" + strings.Join(options, ",")
}

// ParseFilesystemValue cuts such a value apart.
func ParseFilesystemValue(value string) (fsType string, options []string) {
	fsType, list, _ := strings.Cut(value, ":")
	return fsType, ParseOptions(list)
}

// ParseOptions cuts a list of mount options apart, as NFSDefaults and Filesystems hold it.
func ParseOptions(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// CanonicalValue is a value with single blanks between its fields and none around it, as the kernel means it.
func CanonicalValue(value string) string {
	return strings.Join(strings.Fields(value), " ")
}
