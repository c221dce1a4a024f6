//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/storageclient/operator/agent/sample"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/tuning/recommend"
)

// sampled labels the spec.
const sampled = "sample"

// planted is a bottleneck, or its absence, with the expected findings of a sample.
type planted struct {
	name string
	// server and serverEnd are run on the server, node on the node before the mount, and nodeEnd after the unmount.
	server, serverEnd, node, nodeEnd string
	// export is the mounted export, options are its mount options.
	export, options string
	readAheadKiB    int
	// work contains the flags of "node-agent workload".
	work string
	// rules contains the rules of the expected findings. Empty for a healthy mount.
	rules []string
}

const (
	randomReads = "--name=ReadRandom --path=/mnt/sample/data --direct --block-kib=4 --workers=32"
)

// delays adds a delay to the packets of a machine.
func delays(how string) (begin, end string) {
	device := `device=$(ip -o -4 addr | grep '10\.' | grep -v ' lo ' | awk '{print $2}' | head -n 1)` + "\n"
	return device + "modprobe sch_netem\ntc qdisc replace dev $device root netem " + how, device + "tc qdisc del dev $device root"
}

func plantedBottlenecks() []planted {
	slow, notSlow := delays("delay 10ms")
	lossy, notLossy := delays("loss 2%")
	return []planted{
		{name: "a healthy mount, NFSv4.1", export: "/srv/sample", options: "vers=4.1", work: "--name=ReadRandom --path=/mnt/sample/data --direct --block-kib=4 --workers=2 --pause=1ms"},
		{name: "a healthy mount, NFSv3", export: "/srv/sample", options: "vers=3", work: "--name=ReadRandom --path=/mnt/sample/data --direct --block-kib=4 --workers=2 --pause=1ms"},
		{
			name: "a large directory, listed again and again", export: "/srv/sample", options: "vers=4.1",
			work: "--name=ListDirectory --path=/mnt/sample/many --pause=4s", rules: []string{"AttributeRevalidation"},
		},
		{
			name: "the same, with actimeo=30", export: "/srv/sample", options: "vers=4.1,actimeo=30",
			work: "--name=ListDirectory --path=/mnt/sample/many --pause=4s",
		},
		{
			name: "two slots, NFSv3", export: "/srv/sample", options: "vers=3", work: randomReads, rules: []string{"FewSlots"},
			node:    "modprobe nfs\nsysctl -qw sunrpc.tcp_slot_table_entries=2 sunrpc.tcp_max_slot_table_entries=2",
			nodeEnd: "sysctl -qw sunrpc.tcp_max_slot_table_entries=65536",
		},
		{
			name: "two slots of the session, NFSv4.1", export: "/srv/sample", options: "vers=4.1", work: randomReads, rules: []string{"FewSessionSlots"},
			node:    "modprobe nfs\necho 2 >/sys/module/nfs/parameters/max_session_slots",
			nodeEnd: "echo 64 >/sys/module/nfs/parameters/max_session_slots",
		},
		{
			name: "a slow disk of the server", export: "/srv/slow", options: "vers=3", rules: []string{"BusyServer"},
			work: "--name=CreateUnlink --path=/mnt/sample --allow-writes --workers=4",
		},
		{
			name: "a slow network", export: "/srv/sample", options: "vers=4.1", server: slow, serverEnd: notSlow,
			work: "--name=ReadRandom --path=/mnt/sample/data --direct --block-kib=4 --workers=2", rules: []string{"SlowNetwork"},
		},
		{
			name: "a network that loses packets", export: "/srv/sample", options: "vers=4.1,rsize=524288", readAheadKiB: 1024, server: lossy, serverEnd: notLossy,
			work: "--name=ReadSequential --path=/mnt/sample/data", rules: []string{"PacketLoss"},
		},
		{
			name: "a read-ahead that is too large", export: "/srv/sample", options: "vers=4.1,rsize=524288", readAheadKiB: 15360,
			work: "--name=ReadRandom --path=/mnt/sample/data --block-kib=64 --workers=2", rules: []string{"LargeReadAhead"},
		},
		{
			name: "a read-ahead that is too small", export: "/srv/sample", options: "vers=4.1,rsize=1048576", readAheadKiB: 128,
			work: "--name=ReadSequential --path=/mnt/sample/data", rules: []string{"SmallReadAhead"},
		},
		{
			name: "small writes, each waited for", export: "/srv/sample", options: "vers=4.1",
			work: "--name=WriteSequential --path=/mnt/sample --allow-writes --sync --block-kib=4", rules: []string{"SynchronousWrites"},
		},
	}
}

// expectSamples creates bottlenecks on one node and its server, without an operator, and runs the node agent to find them. SCO_RECORD=DIR
// saves the samples. tuning/recommend/testdata contains samples from such a run.
func expectSamples(ctx SpecContext) {
	node := nodes.Nodes[0]
	copyAgent(ctx, node)
	run(ctx, nodes.Server, `
mkdir -p /srv/sample/data /srv/sample/many /srv/slow
dd if=/dev/urandom of=/srv/sample/data/file bs=1M count=192 2>/dev/null
cd /srv/sample/many && seq -f file-%05.0f 5000 | xargs touch
truncate -s 128M /var/tmp/slow
modprobe dm-delay
loop=$(losetup -f --show /var/tmp/slow)
mkfs.ext4 -q $loop
dmsetup create slow --table "0 $(blockdev --getsz $loop) delay $loop 0 0 $loop 0 40"
mount /dev/mapper/slow /srv/slow
chmod 777 /srv/slow /srv/sample
echo '/srv/sample *(rw,async,no_root_squash,no_subtree_check,insecure,fsid=81)' >>/etc/exports
echo '/srv/slow *(rw,sync,no_root_squash,no_subtree_check,insecure,fsid=82)' >>/etc/exports
systemctl stop nfs-server
echo 1048576 >/proc/fs/nfsd/max_block_size
systemctl start nfs-server`)
	var lines, wrong []string
	for _, p := range plantedBottlenecks() {
		By(p.name)
		found := p.sample(ctx)
		lines = append(lines, fmt.Sprintf("%-45s %s", p.name, strings.Join(found, " ")))
		if !slices.Equal(found, p.rules) {
			wrong = append(wrong, fmt.Sprintf("%s: found %q, want %q", p.name, found, p.rules))
		}
	}
	AddReportEntry("samples", strings.Join(lines, "\n"))
	Expect(wrong).To(BeEmpty())
}

// sample creates the bottleneck, runs the workload, takes a sample, and removes the bottleneck.
func (p planted) sample(ctx SpecContext) []string {
	node := nodes.Nodes[0]
	run(ctx, nodes.Server, p.server)
	run(ctx, node, p.node+`
mkdir -p /mnt/sample
mount -t nfs -o `+p.options+` `+cluster.ServerAddress+`:`+p.export+` /mnt/sample
# The rules of nfs-utils set it too, once they notice the mount.
udevadm settle
if [ `+fmt.Sprint(p.readAheadKiB)+` != 0 ]; then
	echo `+fmt.Sprint(p.readAheadKiB)+` >/sys/class/bdi/$(mountpoint -d /mnt/sample)/read_ahead_kb
fi
systemd-run --quiet --collect --unit=sample-work /usr/local/bin/node-agent workload `+p.work+` --for=10m
sleep 5`)
	began := time.Now()
	text, err := node.Run(ctx, "/usr/local/bin/node-agent observe --window 30s -o json")
	Expect(err).NotTo(HaveOccurred(), text)
	run(ctx, node, "systemctl stop sample-work\numount /mnt/sample\nrmdir /mnt/sample\n"+p.nodeEnd)
	run(ctx, nodes.Server, p.serverEnd)
	var report sample.Report
	Expect(json.Unmarshal([]byte(text), &report)).To(Succeed(), text)
	var rules []string
	mounts := 0
	for _, m := range report.Mounts {
		if m.MountPoint != "/mnt/sample" {
			continue
		}
		mounts++
		p.keep(m.Sample)
		if p.readAheadKiB != 0 {
			Expect(m.ReadAheadKiB).To(Equal(p.readAheadKiB), "read-ahead in the sample")
		}
		fmt.Fprintf(GinkgoWriter, "%s, %.0f s: %s\n", p.name, time.Since(began).Seconds(), m.Verdict.Summary)
		for _, f := range m.Verdict.Findings {
			rules = append(rules, f.Rule)
			fmt.Fprintf(GinkgoWriter, "  %s: %s\n", f.Rule, f.Seen)
		}
	}
	Expect(mounts).To(Equal(1), "mounts in the sample: %s", text)
	return rules
}

// keep saves a sample for the test that evaluates the rules on it.
func (p planted) keep(s recommend.Sample) {
	GinkgoHelper()
	data, err := json.MarshalIndent(map[string]any{"planted": p.name, "rules": append([]string{}, p.rules...), "sample": s}, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	keepRecord(strings.NewReplacer(" ", "-", ",", "", "=", "-").Replace(p.name)+".json", append(data, '\n'))
}
