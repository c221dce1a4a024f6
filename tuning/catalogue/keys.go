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
)

// slotTableSysctls are sysctls that are parameters of the module sunrpc under another name.
var slotTableSysctls = []string{"sunrpc.tcp_max_slot_table_entries", "sunrpc.tcp_slot_table_entries", "sunrpc.udp_slot_table_entries"}

// SysctlKey is the canonical key of a sysctl. The slot tables of sunrpc are keyed as module parameters: the sysctl
// exists only while the module is loaded.
func SysctlKey(name string) string {
	if slices.Contains(slotTableSysctls, name) {
		module, parameter, _ := strings.Cut(name, ".")
		return ModuleKey(module, parameter)
	}
	return Sysctls + "/" + name
}

// ModuleKey is the canonical key of a module's parameter. The kernel takes '-' and '_' in such names for the same.
func ModuleKey(module, parameter string) string {
	return Modules + "/" + strings.ReplaceAll(module+"/"+parameter, "-", "_")
}

// KernelArgumentKey is the canonical key and the value of a kernel argument. A flag has no value.
func KernelArgumentKey(argument string) (key, value string) {
	name, value, _ := strings.Cut(argument, "=")
	return KernelArguments + "/" + name, value
}

// CanonicalValue is a value with single blanks between its fields and none around it, as the kernel means it.
func CanonicalValue(value string) string {
	return strings.Join(strings.Fields(value), " ")
}

// Split returns the subject and the name of a key. It returns false for a key of no subject.
func Split(key string) (subject, name string, ok bool) {
	subject, name, ok = strings.Cut(key, "/")
	return subject, name, ok && slices.Contains([]string{Sysctls, Modules, KernelArguments}, subject)
}
