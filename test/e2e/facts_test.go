//go:build e2e

package e2e

import (
	"context"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/storageclient/operator/test/e2e/cluster"
)

// facts contains the observations from a machine: the text of each section of the output, by the section's name.
type facts map[string]string

// observe is a script that reads the state of a machine by SSH, independent of the operator.
const observe = `
section() { printf '\n=== %s\n' "$1"; }
section cmdline; cat /proc/cmdline
section inodeHash; journalctl --dmesg --boot --output=cat | grep -o 'Inode-cache hash table entries.*'
section sysctls; sysctl net.core.rmem_max net.ipv4.tcp_rmem vm.dirty_background_ratio
section slots; modprobe sunrpc; sysctl sunrpc.tcp_slot_table_entries sunrpc.tcp_max_slot_table_entries
section etc; find /etc -xdev -type f ! -name .updated -exec sha256sum {} + | sort -k 2
section grub; sha256sum </boot/grub/grub.cfg; sha256sum </boot/grub/grubenv
section menu; grep -E '^\s*linux\s' /boot/grub/grub.cfg
section trial; grub-editenv - list | grep storage_client || true; grep storage-client /boot/grub/grub.cfg || true; find /etc/grub.d -name '*storage-client*'
section ours; find /etc -name '*storage-client*'; if [ -e /var/lib/storage-client ]; then find /var/lib/storage-client -type f; fi
section mounts; grep ' nfs4 ' /proc/mounts || true
section mountstats; cat /proc/self/mountstats
`

func factsOf(ctx context.Context, m *cluster.Machine) facts {
	GinkgoHelper()
	return sectionsOf(ctx, m, observe)
}

// allFacts returns the observations from every node of the cluster. It reads all nodes at the same time.
func allFacts(ctx context.Context) map[string]facts {
	GinkgoHelper()
	var mu sync.Mutex
	var group sync.WaitGroup
	all := map[string]facts{}
	for _, m := range nodes.Members() {
		group.Go(func() {
			defer GinkgoRecover()
			found := factsOf(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			all[m.Name] = found
		})
	}
	group.Wait()
	Expect(all).To(HaveLen(len(nodes.Members())))
	return all
}

// sectionsOf runs a script on a machine. The script starts each section of its output with "=== NAME".
func sectionsOf(ctx context.Context, m *cluster.Machine, script string) facts {
	GinkgoHelper()
	out, err := m.Run(ctx, script)
	Expect(err).NotTo(HaveOccurred())
	found := facts{}
	for _, section := range strings.Split("\n"+out, "\n=== ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		found[name] = strings.TrimSpace(text)
	}
	return found
}

// arguments returns the words of the running kernel's command line.
func (f facts) arguments() []string { return strings.Fields(f["cmdline"]) }

// menuEntries returns the kernel command lines of the boot menu, the recovery entries separately.
func (f facts) menuEntries() (normal, recovery []string) {
	for _, line := range strings.Split(f["menu"], "\n") {
		if words := strings.Fields(line); strings.Contains(" "+strings.Join(words, " ")+" ", " single ") {
			recovery = append(recovery, line)
		} else {
			normal = append(normal, line)
		}
	}
	return normal, recovery
}

// nfsMount is a mount of the test's volume from /proc/self/mountstats, which includes defaults.
type nfsMount struct {
	options    []string
	transports int
}

// volumeMounts returns the mounts of a PersistentVolume under the kubelet's directory.
func (f facts) volumeMounts(volume string) []nfsMount {
	var found []nfsMount
	in := false
	for _, line := range strings.Split(f["mountstats"], "\n") {
		if strings.HasPrefix(line, "device ") {
			in = strings.Contains(line, "/volumes/kubernetes.io~nfs/"+volume+" with fstype nfs4 ")
			if in {
				found = append(found, nfsMount{})
			}
		}
		if !in {
			continue
		}
		last := &found[len(found)-1]
		if options, ok := strings.CutPrefix(line, "\topts:\t"); ok {
			last.options = strings.Split(options, ",")
		}
		if strings.HasPrefix(line, "\txprt:\t") {
			last.transports++
		}
	}
	return found
}

// transports returns the numbers of connections of a volume's mounts.
func (f facts) transports(volume string) []int {
	var counts []int
	for _, mount := range f.volumeMounts(volume) {
		counts = append(counts, mount.transports)
	}
	return counts
}

// mountLines returns the lines of /proc/mounts for a PersistentVolume under the kubelet's directory.
func (f facts) mountLines(volume string) []string {
	var found []string
	for _, line := range strings.Split(f["mounts"], "\n") {
		if strings.Contains(line, "/volumes/kubernetes.io~nfs/"+volume+" ") {
			found = append(found, line)
		}
	}
	return found
}
