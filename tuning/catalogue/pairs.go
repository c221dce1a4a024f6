package catalogue

// counterparts are pairs of sysctls: the kernel clears one when the other is written. The parameter that is not 0 is effective (torvalds/linux
// mm/page-writeback.c and mm/util.c).
var counterparts = map[string]string{
	"vm.dirty_ratio":            "vm.dirty_bytes",
	"vm.dirty_bytes":            "vm.dirty_ratio",
	"vm.dirty_background_ratio": "vm.dirty_background_bytes",
	"vm.dirty_background_bytes": "vm.dirty_background_ratio",
	"vm.overcommit_ratio":       "vm.overcommit_kbytes",
	"vm.overcommit_kbytes":      "vm.overcommit_ratio",
}

// Counterpart returns the sysctl that the kernel clears when the given one is written. Empty if there is none.
func Counterpart(sysctl string) string { return counterparts[sysctl] }

// CounterpartKey returns the key of the Counterpart of a sysctl's key. Empty if there is none.
func CounterpartKey(key string) string {
	name, isSysctl := Key(key).In(Sysctls)
	if other := Counterpart(name); isSysctl && other != "" {
		return SysctlKey(other)
	}
	return ""
}
