package catalogue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Subjects: the first part of every key.
const (
	Sysctls         = "sysctl"
	Modules         = "module"
	KernelArguments = "kernelArgument"
	// ReadAheads are read-ahead windows by file system type, e.g. readAhead/nfs4.
	ReadAheads = "readAhead"
	// Tuned has a single key for the tuned profile.
	Tuned = "tuned"
	// NFSDefaults are options of NFS mounts by the host, for each server, e.g. nfsMountDefaults/filer1.
	NFSDefaults = "nfsMountDefaults"
	// Filesystems are mount options of host file systems by mount point, e.g. filesystem/mnt/disks/*.
	Filesystems = "filesystem"
)

// Key is the key of a setting: its subject, a slash and its name. It remains plain text as in the API and the journal, because a
// release may also read keys of subjects that it does not know.
type Key string

// KeyOf returns the key for a name of a subject.
func KeyOf(subject, name string) string { return subject + "/" + name }

// Cut returns both parts of a key. Without a slash, the whole text is the subject.
func (k Key) Cut() (subject, name string) {
	subject, name, _ = strings.Cut(string(k), "/")
	return subject, name
}

// Subject returns the first part of a key.
func (k Key) Subject() string {
	subject, _ := k.Cut()
	return subject
}

// In returns the name in a key of the subject. It returns false for a key of another subject.
func (k Key) In(subject string) (string, bool) { return strings.CutPrefix(string(k), subject+"/") }

// AtBoot reports whether the setting takes effect only at boot.
func (k Key) AtBoot() bool {
	_, ok := k.In(KernelArguments)
	return ok
}

var subjects = []string{Sysctls, Modules, KernelArguments, ReadAheads, Tuned, NFSDefaults, Filesystems}

// NFS4UniqueIDKey is the key of the client ID of an NFSv4 client.
const NFS4UniqueIDKey = Modules + "/nfs/nfs4_unique_id"

// AllServers represents all servers in a key of NFSDefaults.
const AllServers = "_all"

// slotTableSysctls are sysctls that are parameters of the module sunrpc under another name.
var slotTableSysctls = []string{"sunrpc.tcp_max_slot_table_entries", "sunrpc.tcp_slot_table_entries", "sunrpc.udp_slot_table_entries"}

// SysctlKey returns the canonical key of a sysctl. The slot tables of sunrpc have keys of module parameters, because the sysctls
// exist only while the module is loaded.
func SysctlKey(name string) string {
	if slices.Contains(slotTableSysctls, name) {
		module, parameter, _ := strings.Cut(name, ".")
		return ModuleKey(module, parameter)
	}
	return KeyOf(Sysctls, name)
}

// ModuleKey returns the canonical key of a module's parameter. In such names, '-' and '_' are equivalent for the kernel.
func ModuleKey(module, parameter string) string {
	return KeyOf(Modules, strings.ReplaceAll(module+"/"+parameter, "-", "_"))
}

// KernelArgumentKey returns the canonical key and the value of a kernel argument. A flag has no value.
func KernelArgumentKey(argument string) (key, value string) {
	name, value, _ := strings.Cut(argument, "=")
	return KeyOf(KernelArguments, name), value
}

// TunedKey is the canonical key of the tuned profile.
const TunedKey = Tuned + "/profile"

// NFSDefaultsKey returns the canonical key of the options of the host's mounts of a server. An empty server means all servers.
// mount.nfs ignores the case of a server's name.
func NFSDefaultsKey(server string) string {
	return KeyOf(NFSDefaults, strings.ToLower(cmp.Or(server, AllServers)))
}

// FilesystemKey returns the canonical key of the options of host file systems. The mount point is absolute and may be a glob.
func FilesystemKey(mountPoint string) string { return Filesystems + mountPoint }

// FilesystemValue returns the value for a key of Filesystems: the file system type, which may be empty, a colon and the options.
func FilesystemValue(fsType string, options []string) string {
	return fsType + ":" + strings.Join(options, ",")
}

// ParseFilesystemValue splits a value of FilesystemValue into its parts.
func ParseFilesystemValue(value string) (fsType string, options []string) {
	fsType, list, _ := strings.Cut(value, ":")
	return fsType, ParseOptions(list)
}

// ParseOptions splits mount options in the format of NFSDefaults and Filesystems.
func ParseOptions(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// CanonicalValue returns a value with single spaces between its fields and no space around it.
func CanonicalValue(value string) string { return strings.Join(strings.Fields(value), " ") }

// NeedsConfirmation reports whether a value of the key can break a node's network. The agent then keeps it only after new
// connections have worked with it. Every sysctl of net needs confirmation, and so does the tuned profile, which may set any of
// them.
//
// Single actions do not, because they have no value to restore. Nor do the parameters of sunrpc and nfs: they affect only the
// kernel's RPC transports to storage that are made later. A connection that the agent makes does not use these transports and
// would prove nothing about them.
func NeedsConfirmation(key string) bool {
	switch subject, name := Key(key).Cut(); subject {
	case Sysctls:
		return strings.HasPrefix(name, "net.") && Effect(key) != v1alpha1.EffectAction
	case Tuned:
		return true
	}
	return false
}

// Lowers describes the first number of a value that is lower than the node's original number, if the parameter usually grows. It
// includes a solution. Empty if there is no such number. Defaults of newer kernels grow: a number from a document can be half of a
// newer kernel's default.
func Lowers(key, original, value string) string {
	p, known := Lookup(key)
	had, wanted := Numbers(original), Numbers(value)
	if !known || !p.Grows || len(had) != len(wanted) {
		return ""
	}
	i := firstBelow(wanted, had)
	if i < 0 {
		return ""
	}
	which := ""
	if len(had) > 1 {
		which = fmt.Sprintf("number %d ", i+1)
	}
	remedy := "leave it out, or declare more"
	if Key(key).Subject() == Sysctls {
		remedy = "declare it in sysctlsAtLeast, which keeps a larger original"
	}
	return fmt.Sprintf("%sdecreases from the node's original %d to %d: %s", which, had[i], wanted[i], remedy)
}
