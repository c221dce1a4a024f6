package advice

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// pageBytes is the page size of x86, and of most kernels for arm64. Nodes do not report their page size.
	pageBytes = 4096
	mib       = 1 << 20
	gib       = 1 << 30
)

// addHashFindings adds one finding for each hash table, about the affected nodes. worst is the smallest grant on these nodes.
func (s *scope) addHashFindings(judge func(a hashTable, grant catalogue.HashGrant) bool,
	text func(a hashTable, nodes []string, worst catalogue.HashGrant) string,
) {
	for _, a := range s.hashTables() {
		var names []string
		var worst catalogue.HashGrant
		for _, node := range s.Nodes {
			grant, known := catalogue.HashSize(a.argument, a.entries, node.Memory, pageBytes)
			if !known || !judge(a, grant) {
				continue
			}
			if len(names) == 0 || grant.Largest < worst.Largest {
				worst = grant
			}
			names = append(names, node.Name)
		}
		if len(names) > 0 {
			s.add(a.field, text(a, names, worst))
		}
	}
}

func hashClamped(s *scope) {
	s.addHashFindings(
		func(_ hashTable, grant catalogue.HashGrant) bool { return grant.Clamped },
		func(a hashTable, nodes []string, worst catalogue.HashGrant) string {
			return fmt.Sprintf("%d buckets need more than 1/16 of memory on %s, whatever /proc/cmdline shows: these nodes are not rebooted for it; "+
				"the largest value that fits all of them is %d", a.entries, text.InOrder(nodes, ", "), worst.Largest)
		})
}

func hashBelowDefault(s *scope) {
	s.addHashFindings(
		func(a hashTable, grant catalogue.HashGrant) bool { return !grant.Clamped && a.entries <= grant.Default },
		func(a hashTable, nodes []string, _ catalogue.HashGrant) string {
			return fmt.Sprintf("%d buckets are no more than the kernel's default on %s, given their memory: "+
				"leave the argument out for them", a.entries, text.InOrder(nodes, ", "))
		})
}

// hashSmall does not need node data: it compares with the default for 1 GiB, and nodes of Kubernetes have at least this much memory.
func hashSmall(s *scope) {
	for _, a := range s.hashTables() {
		grant, known := catalogue.HashSize(a.argument, 0, gib, pageBytes)
		if known && a.entries > 0 && a.entries < grant.Default {
			s.add(a.field, fmt.Sprintf("%d buckets are fewer than the kernel's default of %d with 1 GiB of memory: "+
				"lookups get slower after a reboot; leave the argument out, or set more than the default", a.entries, grant.Default))
		}
	}
}

func hashRounded(s *scope) {
	for _, a := range s.hashTables() {
		if a.entries > 0 && a.entries&(a.entries-1) != 0 {
			s.add(a.field, fmt.Sprintf("%d is not a power of two: the kernel rounds it up", a.entries))
		}
	}
}

// readAheadWindow applies above four requests: 1024 KiB with the rsize of 256 KiB that guides recommend.
func readAheadWindow(s *scope) {
	const maxRequests = 4
	for _, ahead := range s.readAheads() {
		rsizes := s.rsizes()
		if largest := rsizes[len(rsizes)-1]; ahead.kib*1024 > maxRequests*largest {
			s.add(ahead.field, fmt.Sprintf("%d KiB is %d requests of %d bytes ahead of each file that is read: in two "+
				"published sweeps, 1024 KiB is 45 to 50 %% faster than the default of 128 KiB, and 15360 KiB is slower, although it needs the "+
				"fewest requests; use %d KiB until you have measured more on your own volume",
				ahead.kib, ahead.kib*1024/largest, largest, max(1024, largest/1024)))
		}
	}
}

// readAheadMemory applies well above any published size: 15 MiB for NFS, 32 MiB for disk arrays.
func readAheadMemory(s *scope) {
	const maxKiB = 64 * 1024
	for _, ahead := range s.allReadAheads() {
		if ahead.kib > maxKiB {
			s.add(ahead.field, fmt.Sprintf("%s may be read ahead into memory for each file that is read in sequence, even if only "+
				"a part of it is needed: use 1024 KiB until you have measured more on your own volume", formatSize(ahead.kib*1024)))
		}
	}
}

// lowersKernel compares with the original values that agents reported, because values in documents are based on old kernels.
func lowersKernel(s *scope) {
	for _, key := range slices.Sorted(maps.Keys(s.settings)) {
		nodes := map[string][]string{}
		for _, node := range s.Nodes {
			i := slices.IndexFunc(node.Settings, func(of v1alpha1.SettingStatus) bool { return of.Key == key })
			if i < 0 {
				continue
			}
			if warning := catalogue.Lowers(key, node.Settings[i].Original, s.settings[key]); warning != "" {
				nodes[warning] = append(nodes[warning], node.Name)
			}
		}
		for _, warning := range slices.Sorted(maps.Keys(nodes)) {
			s.add(fieldOfKey(key), fmt.Sprintf("on %s, %s", text.List(nodes[warning]), warning))
		}
	}
}

// fieldOfKey returns the path of the field for a sysctl or a module parameter.
func fieldOfKey(key string) string {
	subject, name := catalogue.Key(key).Cut()
	if subject == catalogue.Sysctls {
		return sysctlField(name)
	}
	return "spec.node.kernelModules[" + strings.Replace(name, "/", "].parameters[", 1) + "]"
}

func tcpMem(s *scope) {
	field, value, ok := s.sysctl("net.ipv4.tcp_mem")
	pages := text.Numbers(value)
	if !ok || len(pages) != 3 {
		return
	}
	text := fmt.Sprintf("counts pages: memory pressure starts at %s and the limit is %s, for all sockets together", formatSize(pages[1]*pageBytes),
		formatSize(pages[2]*pageBytes))
	if node, known := s.smallestNode(); known {
		// The kernel's default pressure level is 1/16 of memory: net/ipv4/tcp.c, tcp_init_mem.
		text += fmt.Sprintf("; the kernel's default for pressure on %s, with %s of memory, is about %s", node.Name, formatSize(node.Memory),
			formatSize(node.Memory/16))
		if pages[2]*pageBytes > node.Memory {
			text += ", and the limit is more than its memory"
		}
	}
	s.add(field, text)
}

func tcpMinimum(s *scope) {
	const sockets, kernelMinimum = 10000, 4096
	for _, name := range []string{"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"} {
		field, value, ok := s.sysctl(name)
		numbers := text.Numbers(value)
		if !ok || len(numbers) != 3 || numbers[0] <= 16*kernelMinimum {
			continue
		}
		text := fmt.Sprintf("%d sockets may hold %s that the kernel cannot reclaim under memory pressure", sockets, formatSize(sockets*numbers[0]))
		if node, known := s.smallestNode(); known {
			text += fmt.Sprintf("; %s has %s", node.Name, formatSize(node.Memory))
			if node.Sockets > 0 {
				text += fmt.Sprintf(" and %d in use now, which may hold %s", node.Sockets, formatSize(node.Sockets*numbers[0]))
			}
		}
		s.add(field, text+fmt.Sprintf(": use %d as the first number", kernelMinimum))
	}
}

func tcpBuffers(s *scope) {
	node, known := s.smallestNode()
	if !known {
		return
	}
	for _, name := range []string{"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"} {
		field, value, ok := s.sysctl(name)
		if numbers := text.Numbers(value); ok && len(numbers) == 3 {
			s.add(field, fmt.Sprintf("one connection may use %s, 1/%d of the memory of %s, the smallest node: "+
				"for a pool with a faster network, use more in a separate profile", formatSize(numbers[2]), max(1, node.Memory/max(1, numbers[2])), node.Name))
		}
	}
}

// The default port range of NodePort services.
const firstNodePort, lastNodePort = 30000, 32767

func portRange(s *scope) {
	field, value, ok := s.sysctl("net.ipv4.ip_local_port_range")
	if ports := text.Numbers(value); ok && len(ports) == 2 && ports[0] <= lastNodePort && ports[1] >= firstNodePort {
		s.add(field, fmt.Sprintf("includes ports of NodePort services (%d to %d) and, from 10250 on, of the kubelet: "+
			"keep 32768 60999, or reserve the ports in net.ipv4.ip_local_reserved_ports", firstNodePort, lastNodePort))
	}
}

// tunedSysctls maps tuned's profiles for latency and throughput to their sysctls. Version 2.20 sets ratios; 2.27 and later set bytes.
var tunedSysctls = map[string][]string{
	"latency-performance": {"vm.dirty_background_ratio", "vm.dirty_ratio", "vm.swappiness"},
	"network-latency": {"net.core.busy_poll", "net.core.busy_read", "net.ipv4.tcp_fastopen", "vm.dirty_background_ratio", "vm.dirty_ratio",
		"vm.swappiness"},
	"network-throughput":     {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "vm.dirty_background_ratio", "vm.dirty_ratio", "vm.swappiness"},
	"throughput-performance": {"net.core.somaxconn", "vm.dirty_background_ratio", "vm.dirty_ratio", "vm.swappiness"},
	"virtual-guest":          {"net.core.somaxconn", "vm.dirty_background_ratio", "vm.dirty_ratio", "vm.swappiness"},
}

func tunedOverlap(s *scope) {
	if s.node.Tuned == nil {
		return
	}
	isDeclared := func(name string) bool { _, _, declared := s.sysctl(name); return declared }
	both := lists.Filter(tunedSysctls[s.node.Tuned.Profile], isDeclared)
	if slices.Sort(both); len(both) > 0 {
		s.add("spec.node.tuned.profile", fmt.Sprintf("%s sets %s too: the declared values win, and the agent sets them again if "+
			"tuned changes them; newer versions of tuned set the dirty limits in bytes, and the ratios then "+
			"read 0", s.node.Tuned.Profile, text.InOrder(both, ", ")))
	}
}

func slotsSpelling(s *scope) {
	for _, name := range slices.Sorted(maps.Keys(s.node.Sysctls)) {
		if strings.HasPrefix(name, "sunrpc.") && (strings.Contains(name, "tpc_max_slot") || strings.Contains(name, "max_tcp_slot")) {
			s.add(sysctlField(name), "does not exist in any kernel: use sunrpc.tcp_max_slot_table_entries")
		}
	}
}

func formatSize(bytes int64) string {
	switch {
	case bytes >= 10*gib:
		return fmt.Sprintf("%d GiB", bytes/gib)
	case bytes >= gib:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	case bytes >= mib:
		return fmt.Sprintf("%d MiB", bytes/mib)
	default:
		return fmt.Sprintf("%d KiB", bytes/1024)
	}
}

func (s *scope) nodesOlderThan(version string) []string {
	return lists.Pick(s.Nodes, func(node Node) (string, bool) {
		return node.Name + " (" + node.Kernel + ")", knownbad.IsOlder(node.Kernel, version)
	})
}

// addKnownBad adds the known problems of the nodes' kernels and mounts that lose data, or all others. A problem that needs a sign beyond kernel and
// mount appears only on nodes that show it, even if their release does not show which fixes they have.
func (s *scope) addKnownBad(loses bool) {
	for _, e := range knownbad.Entries() {
		if e.Loses != loses {
			continue
		}
		// Few releases run on many nodes.
		releases := map[release]verdict{}
		var nodes []string
		for _, node := range s.Nodes {
			r := release{node.Kernel, node.Build}
			v, isKnown := releases[r]
			if !isKnown {
				v.kernel = knownbad.ParseKernel(r.name, r.build)
				v.Verdict = e.On(v.kernel)
				releases[r] = v
			}
			if reason := v.reason(e, node); reason != "" {
				nodes = append(nodes, node.Name+" ("+reason+")")
			}
		}
		if len(nodes) > 0 {
			s.add("", e.Advice()+": "+text.List(nodes))
		}
	}
}

// release names a kernel as a node reports it.
type release struct{ name, build string }

// verdict is the verdict of one entry for one kernel.
type verdict struct {
	kernel knownbad.Kernel
	knownbad.Verdict
}

// reason returns why a node with this kernel has a problem, or may have it. Empty if it does not.
func (v verdict) reason(e knownbad.Entry, node Node) string {
	showsSign := slices.Contains(node.Signs, e.ID)
	switch {
	case v.Verdict == knownbad.Clear:
		return ""
	case showsSign && v.Verdict == knownbad.CannotTell:
		return "shows a sign, " + node.Kernel
	case showsSign:
		return "shows a sign, " + v.kernel.String()
	case e.Signed || v.Verdict == knownbad.CannotTell:
		return ""
	case slices.ContainsFunc(node.Mounts, func(m v1alpha1.MountStatus) bool { return e.Concerns(m.Protocol, m.Options) }):
		return strings.ToLower(string(v.Verdict)) + ", " + v.kernel.String()
	}
	return ""
}
