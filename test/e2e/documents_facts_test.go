//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/storageclient/operator/test/e2e/cluster"
)

// documentsVolumes contains the application's volumes, without the namespace in their names.
var documentsVolumes = []string{"large", "tools", "eda"}

// observeDocuments is a script that reads the values of all rows from a node by SSH, independent of the operator. %s are sysctls.
const observeDocuments = `
section() { printf '\n=== %%s\n' "$1"; }
section cmdline; cat /proc/cmdline
section inodeHash; journalctl --dmesg --boot --output=cat | grep -o 'Inode-cache hash table entries.*'
section menu; grep -E '^\s*linux\s' /boot/grub/grub.cfg
section kernel; uname -r
section sysctls; for name in %s; do sysctl "$name" 2>/dev/null || true; done
section tuned; systemctl is-active tuned || true; systemctl is-enabled tuned || true; cat /etc/tuned/active_profile 2>/dev/null || true
section disk; grep ' /mnt/disks/data ' /proc/mounts | cut -d ' ' -f 4
section diskLog; xfs_info /mnt/disks/data | grep -o 'version=[0-9]*' || true
section etc
find /etc -xdev ! -name .updated -printf '%%y %%m %%U:%%G %%p %%l\n' | sort
find /etc -xdev -type f ! -name .updated -exec sha256sum {} + | sort -k 2
section ours; find /etc -name '*storage-client*' | sort
section mountstats; cat /proc/self/mountstats
section readAhead
while read -r _ _ device _ point _ rest; do
	case " $rest" in *" - nfs"*) echo "$point $(cat "/sys/class/bdi/$device/read_ahead_kb")" ;; esac
done </proc/self/mountinfo
section transports
# A connection without requests for five minutes is closed, and then shows no slots. This asks every server.
stat --file-system /var/lib/kubelet/pods/*/volumes/kubernetes.io~nfs/* >/dev/null
for transport in /sys/kernel/sunrpc/xprt-switches/*/xprt-*; do
	echo "$(cat "$transport/dstaddr") $(grep -E '^(dst_port|max_num_slots)=' "$transport/xprt_info" | sort | tr '\n' ' ')"
done
`

// documentsFacts returns the node's values by the names that the rows use, and all files below /etc.
func documentsFacts(ctx context.Context, m *cluster.Machine) (values map[string]string, etc string) {
	GinkgoHelper()
	f := sectionsOf(ctx, m, fmt.Sprintf(observeDocuments, strings.Join(documentsSysctls(), " ")))
	values = sysctls(f["sysctls"])
	values["kernel"] = f["kernel"]
	for _, argument := range f.arguments() {
		if name, value, found := strings.Cut(argument, "="); found && name == "ihash_entries" {
			values[name] = value
		}
	}
	values["inode hash"] = strings.TrimPrefix(f["inodeHash"], hashLine)
	normal, recovery := f.menuEntries()
	staged := func(line string) bool { return !strings.Contains(line+" ", " ihash_entries=16777216 ") }
	values["menu entries"] = fmt.Sprintf("%d of %d", len(slices.DeleteFunc(slices.Clone(normal), staged)), len(normal))
	values["recovery entries"] = fmt.Sprintf("%d of %d", len(slices.DeleteFunc(slices.Clone(recovery), staged)), len(recovery))
	tuned := append(strings.Split(f["tuned"], "\n"), "")
	values["tuned"] = strings.TrimSpace(fmt.Sprintf("%s, %s %s", tuned[0], tuned[1], tuned[2]))
	diskValues(values, strings.Split(f["disk"], ","))
	values["disk log"] = f["diskLog"]
	values["our files"] = strings.ReplaceAll(f["ours"], "\n", " ")
	for _, name := range documentsVolumes {
		volumeValues(values, name, f)
	}
	return values, f["etc"]
}

func diskValues(values map[string]string, options []string) {
	for _, name := range []string{"logbufs", "logbsize", "noquota", "noatime", "nodiratime"} {
		values["disk "+name] = optionOf(options, name)
	}
}

// volumeValues adds the options of a volume's mount from /proc/self/mountstats, which includes defaults.
func volumeValues(values map[string]string, name string, f facts) {
	at := "/volumes/kubernetes.io~nfs/" + documents + "-" + name
	var options []string
	connections, in := 0, false
	for line := range strings.Lines(f["mountstats"]) {
		if strings.HasPrefix(line, "device ") {
			in = strings.Contains(line, at+" with fstype nfs")
		}
		if list, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "\topts:\t"); in && ok {
			options = strings.Split(list, ",")
		}
		if in && strings.HasPrefix(line, "\txprt:\t") {
			connections++
		}
	}
	for _, option := range []string{"vers", "proto", "hard", "soft", "sync", "nocto", "nconnect", "rsize", "wsize", "retrans", "intr",
		"acregmin", "acregmax", "acdirmin", "acdirmax"} {
		values[name+" "+option] = optionOf(options, option)
	}
	values[name+" connections"] = strconv.Itoa(connections)
	for line := range strings.Lines(f["readAhead"]) {
		if point, kib, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasSuffix(point, at) {
			values[name+" read-ahead"] = kib
		}
	}
	values[name+" slots"] = slotsOf(f["transports"], addressOf[name])
}

// slotsOf returns the limits of the connections to an address. If it has no connections, its mounts use the connections of another
// address. NFSv4.1 and later detect that addresses belong to the same server.
func slotsOf(transports, address string) string {
	var limits, all []string
	for line := range strings.Lines(transports) {
		words := strings.Fields(line)
		if len(words) != 3 || words[1] != "dst_port=2049" {
			continue
		}
		limit := strings.TrimPrefix(words[2], "max_num_slots=")
		all = append(all, limit)
		if words[0] == address {
			limits = append(limits, limit)
		}
	}
	if len(limits) == 0 {
		limits = all
	}
	slices.Sort(limits)
	return strings.Join(slices.Compact(limits), " and ")
}

// hashLine is the start of the line in the kernel log that contains the size of the inode hash.
const hashLine = "Inode-cache hash table entries: "

// addressOf contains the server's address from which each volume is mounted.
var addressOf = map[string]string{"large": "10.99.0.13", "tools": "10.99.0.23", "eda": "10.99.0.33"}

// optionOf returns the value of an option, or its name for a flag that is set.
func optionOf(options []string, name string) string {
	found := ""
	for _, o := range options {
		if key, value, _ := strings.Cut(o, "="); key == name {
			found = cmp.Or(value, name)
		}
	}
	return found
}

// probeKeys contains the values that a probe returns.
var probeKeys = []string{"READs of 128 MiB", "host mount read-ahead", "host mount retrans"}

// probe mounts a share by hand, reads a file of 128 MiB in blocks of 64 KiB, and counts the READ operations. The window may be set a
// moment after the mount. It applies to files that are opened later.
func probe(ctx context.Context, m *cluster.Machine, window string) map[string]string {
	GinkgoHelper()
	f := sectionsOf(ctx, m, `
section() { printf '\n=== %s\n' "$1"; }
mount -t nfs -o vers=4.1,rsize=1048576 10.99.0.13:/srv/documents/probe /mnt/probe
file=/sys/class/bdi/$(mountpoint -d /mnt/probe)/read_ahead_kb
for _ in $(seq 20); do
	[ "$(cat "$file")" != `+window+` ] || break
	sleep 1
done
section window; cat "$file"
dd if=/mnt/probe/data of=/dev/null bs=64k status=none
section stats; awk '/^device / {on = $5 == "/mnt/probe"} on' /proc/self/mountstats
umount /mnt/probe
`)
	values := map[string]string{"host mount read-ahead": f["window"]}
	for line := range strings.Lines(f["stats"]) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "READ:":
			values["READs of 128 MiB"] = words[1]
		case len(words) == 2 && words[0] == "opts:":
			values["host mount retrans"] = optionOf(strings.Split(words[1], ","), "retrans")
		}
	}
	Expect(values).To(HaveKey("READs of 128 MiB"), f["stats"])
	return values
}
