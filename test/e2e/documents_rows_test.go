//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/advice"
)

// item is one value of the node that belongs to a row.
type item struct {
	// name is the key in documentsFacts.
	name string
	// want is the value once the setting is effective.
	want string
	// tried is the value until the first healthy boot, if it differs: the kernel argument is set for one boot first.
	tried string
	// later is true if a running node cannot have the value. It becomes effective with the next mount or boot.
	later bool
	// drift is a shell command that sets another value. Empty if no live change is possible or allowed.
	drift string
}

type row struct {
	id, what string
	items    []item
	// rules contains the IDs of the advice that the profile must get for this row. knows contains the advice for which this profile gives
	// no reason.
	rules, knows []string
	// says contains parts of the message that the operator must report, in a warning at admission or for a setting.
	says []string
	// other is the place that covers a row without a setting.
	other string
}

// sysctlItem drifts to the previous value, or to another one if the previous value is the desired one.
func sysctlItem(name, want, other string) item {
	return item{name: name, want: want, drift: fmt.Sprintf("sysctl -q -w %s='%s'", name, other)}
}

func mounted(name, want string) item { return item{name: name, want: want, later: true} }

func driftedWindow(volume string) string {
	return fmt.Sprintf(`point=$(grep -o ' [^ ]*/volumes/kubernetes.io~nfs/%s-%s ' /proc/self/mountinfo)
echo 128 >/sys/class/bdi/$(mountpoint -d $point)/read_ahead_kb`, documents, volume)
}

// The files that the profile brings to the node.
const (
	grubFile   = "/etc/default/grub.d/zz-storage-client.cfg"
	otherFiles = " /etc/modprobe.d/zz-storage-client.conf /etc/nfs.conf.d/zz-storage-client.conf /etc/nfsmount.conf.d/zz-storage-client.conf" +
		" /etc/sysctl.d/zz-storage-client.conf /etc/systemd/system/mnt-disks-data.mount.d/storage-client.conf"
)

// documentRows contains the recommendations of the four documents in their order, with the figures of the documents: A, Azure Files with
// large directories; B, XFS; C, Azure NetApp Files for HPC and EDA; D, requests and prefetch.
var documentRows = []row{
	{id: "A0", what: "fewer files in a directory", knows: []string{"spread-directories"}},
	{id: "A1", what: "actimeo=30 on large directories", knows: []string{"actimeo-scope"}, items: []item{
		mounted("large acregmin", "30"), mounted("large acregmax", "30"), mounted("large acdirmin", "30"), mounted("large acdirmax", "30")}},
	{id: "A2", what: "nconnect=4", items: []item{mounted("large nconnect", "4"), mounted("large connections", "4")}},
	{id: "A3", what: "ihash_entries=16777216 by GRUB", knows: []string{"boot-argument-file"}, items: []item{
		{name: "menu entries", want: "2 of 2", tried: "2 of 3"},
		{name: "recovery entries", want: "0 of 1"},
		{name: "ihash_entries", want: "16777216", later: true}}},
	{id: "A4", what: "the hash in the kernel log", items: []item{{name: "inode hash", want: strings.TrimPrefix(tunedHash, hashLine), later: true}}},
	{id: "A5", what: "ls unaliased and unsorted", knows: []string{"unsorted-listing"}},
	{id: "A6", what: "copy from a snapshot", knows: []string{"copy-from-snapshot"}},
	{id: "A7", what: "getdents64, then statx at once", knows: []string{"interleave-statx"}},
	{id: "A8", what: "more I/O depth", rules: []string{"nconnect-single"}},
	{id: "A9", what: "statx from the cache", knows: []string{"statx-cached"}},
	{id: "A10", what: "recursive listings", knows: []string{"recursive-listing"}},
	{id: "B1", what: "XFS rw,noatime,nodiratime,logbufs=8,logbsize=256k,noquota", says: []string{"\"logbufs=8\": is the kernel's default", "\"nodiratime\": is implied by noatime", "\"noquota\": is the default without quotas"}, items: []item{
		{name: "disk noatime", want: "noatime", drift: "mount -o remount,relatime /mnt/disks/data"},
		{name: "disk logbsize", want: "256k", later: true},
		{name: "disk logbufs", want: "8"},
		{name: "disk noquota", want: "noquota"}}},
	{id: "B2", what: "a remount does not apply them", knows: []string{"next-mount-only"}, says: []string{"logbsize staged: takes effect when systemd mounts it again"}},
	{id: "B3", what: "log of version 2, read before logbsize is staged", other: "with a log of version 1 nothing is staged, see agent/host/filesystems",
		items: []item{{name: "disk log", want: "version=2"}}},
	{id: "B4", what: "2 MB of memory a file system", knows: []string{"xfs-memory"}, says: []string{"its log buffers use 8 x 256k = 2048 KiB of memory"}},
	{id: "C1", what: "nocto,actimeo=600 for tools", knows: []string{"nocto-meaning"}, items: []item{
		mounted("tools nocto", "nocto"), mounted("tools acregmin", "600"), mounted("tools acregmax", "600"),
		mounted("tools acdirmin", "600"), mounted("tools acdirmax", "600")}},
	{id: "C2", what: "tuned latency-performance", rules: []string{"tuned-overlap"}, says: []string{"the declared sysctls override it: they are applied after it"}, items: []item{
		{name: "tuned", want: "active, enabled latency-performance", drift: tunedApart}}},
	{id: "C3", what: "socket buffers", rules: []string{"tcp-minimum"}, items: []item{
		sysctlItem("net.core.wmem_max", "16777216", "212992"), sysctlItem("net.core.wmem_default", "1048576", "212992"),
		sysctlItem("net.core.rmem_max", "16777216", "212992"), sysctlItem("net.core.rmem_default", "1048576", "212992"),
		sysctlItem("net.ipv4.tcp_rmem", "1048576 8388608 16777216", "4096 131072 6291456"),
		sysctlItem("net.ipv4.tcp_wmem", "1048576 8388608 16777216", "4096 16384 4194304"),
		sysctlItem("net.core.optmem_max", "2048000", "20480"), sysctlItem("net.core.somaxconn", "65535", "4096")}},
	{id: "C4", what: "tcp_mem in pages", rules: []string{"tcp-mem"}, items: []item{
		sysctlItem("net.ipv4.tcp_mem", "4096 89600 4194304", "20000 30000 40000")}},
	{id: "C5", what: "TCP", rules: []string{"sysctl-no-effect", "route-flush", "port-range"}, says: []string{"ran once; an action has no value to read back"}, items: []item{
		sysctlItem("net.ipv4.tcp_window_scaling", "1", "0"), sysctlItem("net.ipv4.tcp_timestamps", "0", "1"),
		sysctlItem("net.ipv4.tcp_no_metrics_save", "1", "0"), sysctlItem("net.ipv4.tcp_low_latency", "1", "0"),
		sysctlItem("net.ipv4.ip_local_port_range", "1024 65000", "32768 60999"),
		sysctlItem("net.ipv4.tcp_slow_start_after_idle", "0", "1"), sysctlItem("net.core.netdev_max_backlog", "300000", "1000")}},
	{id: "C6", what: "write-back", items: []item{
		sysctlItem("vm.dirty_expire_centisecs", "100", "3000"), sysctlItem("vm.dirty_writeback_centisecs", "100", "500"),
		sysctlItem("vm.dirty_ratio", "20", "30"), sysctlItem("vm.dirty_background_ratio", "5", "10")}},
	{id: "C7", what: "selective acknowledgements off", rules: []string{"sack-off", "sysctl-no-effect"}, items: []item{
		sysctlItem("net.ipv4.tcp_sack", "0", "1"), sysctlItem("net.ipv4.tcp_dsack", "0", "1"), sysctlItem("net.ipv4.tcp_fack", "0", "1")}},
	{id: "C8", what: "persist the sysctls", knows: []string{"sysctl-files"}, items: []item{
		{name: "our files", want: grubFile + otherFiles, tried: grubFile + " /etc/grub.d/42_storage-client" + otherFiles,
			drift: "rm /etc/sysctl.d/zz-storage-client.conf /etc/nfsmount.conf.d/zz-storage-client.conf /etc/systemd/system/mnt-disks-data.mount.d/storage-client.conf"}}},
	{id: "C9", what: "nconnect=8 on a kernel from 5.3 on", knows: []string{"nconnect-kernel", "server-budget"}, items: []item{
		mounted("eda nconnect", "8"), mounted("eda connections", "8")}},
	{id: "C10", what: "slots to match nconnect", rules: []string{"slots-per-connection"}, knows: []string{"slots-sessions", "slots-spelling"}, says: []string{"ignored by NFSv4.1 and later: 10.99.0.13, 10.99.0.23"}, items: []item{
		{name: "sunrpc.tcp_max_slot_table_entries", want: "512", drift: "sysctl -q -w sunrpc.tcp_max_slot_table_entries=65536"},
		mounted("eda slots", "512")}},
	{id: "C11", what: "NFSv3 for metadata", knows: []string{"metadata-on-nfs41"}, items: []item{mounted("eda vers", "3")}},
	{id: "C12", what: "rsize and wsize 262144", items: []item{mounted("eda rsize", "262144"), mounted("eda wsize", "262144")}},
	{id: "C13", what: "async, not sync", items: []item{mounted("eda sync", "")}},
	{id: "C14", what: "hard with intr, not soft", rules: []string{"intr-no-effect"}, says: []string{"\"intr\": has had no effect since kernel 2.6.25"}, items: []item{
		mounted("eda hard", "hard"), mounted("eda soft", ""), mounted("eda intr", "")}},
	{id: "C15", what: "MTU 1,500", knows: []string{"mtu"}},
	{id: "C16", what: "the whole example", items: []item{
		mounted("eda nconnect", "8"), mounted("eda nocto", "nocto"), mounted("eda acregmin", "600"), mounted("eda acdirmax", "600"),
		mounted("eda hard", "hard"), mounted("eda rsize", "262144"), mounted("eda wsize", "262144"), mounted("eda vers", "3"), mounted("eda proto", "tcp")}},
	{id: "C17", what: "larger values for more memory", knows: []string{"tcp-buffers"}},
	{id: "C18", what: "test with your own work", knows: []string{"test-first"}, other: "as the profile for large directories " + oneByOne},
	{id: "D1", what: "requests that divide the read-ahead", knows: []string{"read-ahead-below-rsize", "read-ahead-tail", "server-chunk"}, items: []item{
		{name: "large read-ahead", want: "15360", drift: driftedWindow("large")},
		{name: "eda read-ahead", want: "15360", drift: driftedWindow("eda")},
		mounted("host mount read-ahead", "15360"), mounted("READs of 128 MiB", "129")}},
	{id: "D2", what: "per-operation figures", knows: []string{"watch-operations"}},
	{id: "D3", what: "tests with cold caches", knows: []string{"watch-operations"}, other: "a warm cache would answer without a READ",
		items: []item{mounted("READs of 128 MiB", "129")}},
	{id: "D4", what: "copy on the server", knows: []string{"server-copy"}},
	{id: "D5", what: "one size, computed once", knows: []string{"server-sizes"}},
	{id: "-", what: "nfsMountDefaults: retrans=3 for mounts of a server", items: []item{
		{name: "host mount retrans", want: "3", later: true}, mounted("large retrans", "3")}},
}

// documentsSysctls returns all sysctls of the rows.
func documentsSysctls() []string {
	var names []string
	for _, r := range documentRows {
		for _, i := range r.items {
			if strings.HasPrefix(i.name, "net.") || strings.HasPrefix(i.name, "vm.") || strings.HasPrefix(i.name, "sunrpc.") {
				names = append(names, i.name)
			}
		}
	}
	return names
}

// tunedApart represents the drift that happens after all others.
const tunedApart = ": # tuned is stopped once everything else is put right"

// drift returns a script that changes every live value except for tuned.
func (p *proof) drift() string {
	var script strings.Builder
	for _, r := range documentRows {
		for _, i := range r.items {
			if i.drift != "" {
				script.WriteString(i.drift + "\n")
			}
		}
	}
	return script.String()
}

// expected returns the value that an item must have in a phase. False if the phase requires none.
func (p *proof) expected(i item, at phase) (string, bool) {
	switch {
	case at == undone:
		return p.values[before][i.name], true
	case at == before, at == applied && i.later, at == healed && i.drift == "":
		return "", false
	case at == applied && i.tried != "":
		return i.tried, true
	}
	return i.want, true
}

// wrong describes the difference between an item's value and the expected value in a phase. Empty if there is none.
func (p *proof) wrong(i item, at phase) string {
	want, held := p.expected(i, at)
	values, observed := p.values[at]
	switch got := values[i.name]; {
	case !observed || !held || got == want:
		return ""
	case slices.Contains(probeKeys, i.name) && got == "":
		return "" // the probe runs after all other values are correct
	default:
		return fmt.Sprintf("%s is %q, want %q", i.name, got, want)
	}
}

func (p *proof) wrongAt(at phase) []string {
	var found []string
	for _, r := range documentRows {
		for _, i := range r.items {
			if text := p.wrong(i, at); text != "" {
				found = append(found, r.id+": "+text)
			}
		}
	}
	return found
}

// failures lists all rows that do not have the expected values.
func (p *proof) failures() []string {
	var found []string
	for _, at := range []phase{applied, persisted, healed, undone} {
		if p.values[at] == nil {
			found = append(found, string(at)+" was not reached")
		}
		for _, text := range p.wrongAt(at) {
			found = append(found, string(at)+": "+text)
		}
	}
	for _, at := range []phase{before, persisted, undone} {
		for _, key := range probeKeys {
			if p.values[at] != nil && p.values[at][key] == "" {
				found = append(found, fmt.Sprintf("%s: no %s", at, key))
			}
		}
	}
	if reads := p.values[before]["READs of 128 MiB"]; reads != "1024" {
		found = append(found, "before: "+reads+" READs of 128 MiB, want 1024")
	}
	for _, r := range documentRows {
		for _, rule := range r.rules {
			if p.advice[rule] == "" {
				found = append(found, r.id+": the profile's advice lacks "+rule)
			}
		}
		for _, rule := range r.knows {
			if titleOf(rule) == "" {
				found = append(found, r.id+": unknown rule "+rule)
			}
		}
		for _, part := range r.says {
			if p.saying(part) == "" {
				found = append(found, r.id+": the operator does not report: "+part)
			}
		}
	}
	return found
}

func titleOf(rule string) string {
	for _, known := range advice.Rules() {
		if known.ID == rule {
			return known.Title
		}
	}
	return ""
}

// saying returns the line of the operator's reports that contains a text.
func (p *proof) saying(part string) string {
	for _, line := range p.said {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

// table has a line for each row and its values.
func (p *proof) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nThe documents row by row, on a node with kernel %s. later: comes with the next mount or boot; -: not held to.\n", p.values[before]["kernel"])
	fmt.Fprintf(&text, "%-4s %-36s %-26s %-26s %-8s %-9s %-6s %s\n", "row", "value", "before", "declared", "applied", "persisted", "healed", "undone")
	for _, r := range documentRows {
		fmt.Fprintf(&text, "%-4s %s\n", r.id, r.what)
		for _, i := range r.items {
			fmt.Fprintf(&text, "     %-36s %-26s %-26s %-8s %-9s %-6s %s\n", i.name, cmp.Or(p.values[before][i.name], "(none)"), cmp.Or(i.want, "(none)"),
				p.cell(i, applied), p.cell(i, persisted), p.cell(i, healed), p.cell(i, undone))
		}
		for _, rule := range r.rules {
			fmt.Fprintf(&text, "     rule %s: %s\n", rule, cmp.Or(p.advice[rule], "NOT RAISED"))
		}
		for _, rule := range r.knows {
			fmt.Fprintf(&text, "     rule %s, which this profile gives no reason for: %s\n", rule, titleOf(rule))
		}
		for _, part := range r.says {
			fmt.Fprintf(&text, "     reported: %s\n", cmp.Or(p.saying(part), "NOT REPORTED: "+part))
		}
		if r.other != "" {
			fmt.Fprintf(&text, "     %s\n", r.other)
		}
	}
	for _, note := range p.notes {
		fmt.Fprintln(&text, note)
	}
	for _, failure := range p.failures() {
		fmt.Fprintln(&text, "FAILED", failure)
	}
	return text.String()
}

// cell returns yes, or the actual value.
func (p *proof) cell(i item, at phase) string {
	_, held := p.expected(i, at)
	switch {
	case p.values[at] == nil:
		return "?"
	case !held && i.later && at == applied:
		return "later"
	case !held:
		return "-"
	case p.wrong(i, at) != "":
		return "NO: " + cmp.Or(p.values[at][i.name], "(none)")
	}
	return "yes"
}
