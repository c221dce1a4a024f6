//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/sample"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/recommend"
)

// sampled labels the spec.
const sampled = "sample"

// planted is a bottleneck, or its absence, with the expected findings of a sample.
type planted struct {
	name string
	// server and serverEnd are run on the server, node on the node before the mount, after on the node or afterOnServer on the server five
	// seconds after the work has started, and nodeEnd on the node after the unmount.
	server, serverEnd, node, after, afterOnServer, nodeEnd string
	// from is the server and the export of the mount, options are its mount options. A source that starts with // is a share.
	from, options string
	readAheadKiB  int
	// work contains the flags of "node-agent workload", or is a script that starts with "#!".
	work string
	// rules contains the rules of the expected findings. Empty for a healthy mount. ready are the changes that a profile may contain without
	// the decision of a user.
	rules, ready []string
}

const (
	fromSample  = cluster.ServerAddress + ":/srv/sample"
	fromSlow    = cluster.ServerAddress + ":/srv/slow"
	lightReads  = "--name=ReadRandom --path=/mnt/sample/data --direct --block-kib=4 --workers=2 --pause=1ms"
	randomReads = "--name=ReadRandom --path=/mnt/sample/data --direct --block-kib=4 --workers=32"
	listing     = "--name=ListDirectory --path=/mnt/sample/many --pause=4s"
	largeWrites = "--name=WriteSequential --path=/mnt/sample --allow-writes --direct --block-kib=1024 --workers=16"
	largeReads  = "--name=ReadSequential --path=/mnt/sample/data --direct --block-kib=1024 --workers=16"
	// opens opens files again and again.
	opens = "#!/bin/sh\nfiles=$(seq -f /mnt/sample/many/file-%05.0f 400)\nwhile :; do cat $files; done"
	// device sets the name of the device of the nodes' network.
	device = `device=$(ip -o -4 addr | grep '10\.' | grep -v ' lo ' | awk '{print $2}' | head -n 1)` + "\n"
)

// shapes changes how a machine sends its packets or, with a policer, which ones it receives.
func shapes(how string) (begin, end string) {
	if strings.HasPrefix(how, "police ") {
		return device + "modprobe -a sch_ingress cls_matchall act_police\ntc qdisc replace dev $device ingress\n" +
			"tc filter add dev $device ingress matchall action " + how, device + "tc qdisc del dev $device ingress"
	}
	return device + "modprobe sch_" + strings.Fields(how)[0] + "\ntc qdisc replace dev $device root " + how, device + "tc qdisc del dev $device root"
}

// unit runs a script in the background.
func unit(name, script string) (begin, end string) {
	return "systemd-run --quiet --collect --unit=" + name + " sh -c '" + script + "'", "systemctl stop " + name
}

// tunnel forwards a port of the node to the server, as stunnel does.
func tunnel() (begin, end string) {
	return "systemd-run --quiet --collect --unit=sample-tunnel --socket-property=ListenStream=127.0.0.1:20049 " +
		"/lib/systemd/systemd-socket-proxyd " + cluster.ServerAddress + ":2049", "systemctl stop sample-tunnel.socket sample-tunnel.service"
}

// slots sets the maximum number of slots of new sessions.
func slots(n int) string {
	return fmt.Sprintf("modprobe nfs\necho %d >/sys/module/nfs/parameters/max_session_slots", n)
}

func plantedBottlenecks() []planted {
	slow, notSlow := shapes("netem delay 10ms")
	lossy, notLossy := shapes("netem loss 2%")
	fewSlots := "modprobe nfs\nsysctl -qw sunrpc.tcp_slot_table_entries=2 sunrpc.tcp_max_slot_table_entries=2"
	manySlots := "sysctl -qw sunrpc.tcp_max_slot_table_entries=65536"
	return []planted{
		{name: "a healthy mount, NFSv4.1", from: fromSample, options: "vers=4.1", work: lightReads},
		{name: "a healthy mount, NFSv3", from: fromSample, options: "vers=3", work: lightReads},
		{
			name: "a large directory, listed again and again", from: fromSample, options: "vers=4.1",
			work: listing, rules: []string{"AttributeRevalidation"}, ready: []string{"acregmin=30"},
		},
		{name: "the same, with actimeo=30", from: fromSample, options: "vers=4.1,actimeo=30", work: listing},
		{
			name: "two slots, NFSv3", from: fromSample, options: "vers=3", work: randomReads, rules: []string{"FewSlots"},
			node: fewSlots, nodeEnd: manySlots, ready: []string{"node.sysctls[sunrpc.tcp_max_slot_table_entries]=128"},
		},
		{
			name: "two slots of the session, NFSv4.1", from: fromSample, options: "vers=4.1", work: randomReads, rules: []string{"FewSessionSlots"},
			node: slots(2), nodeEnd: slots(64), ready: []string{"node.kernelModules.nfs.max_session_slots=180"},
		},
		{
			name: "a slow disk of the server", from: fromSlow, options: "vers=3", rules: []string{"BusyServer"},
			work: "--name=CreateUnlink --path=/mnt/sample --allow-writes --workers=4",
		},
		{
			name: "a slow network", from: fromSample, options: "vers=4.1", server: slow, serverEnd: notSlow,
			work: "--name=ReadRandom --path=/mnt/sample/data --direct --block-kib=4 --workers=2", rules: []string{"SlowNetwork"},
		},
		{
			name: "a network that loses packets", from: fromSample, options: "vers=4.1,rsize=524288", readAheadKiB: 1024, server: lossy, serverEnd: notLossy,
			work: "--name=ReadSequential --path=/mnt/sample/data", rules: []string{"PacketLoss"},
		},
		{
			name: "a read-ahead that is too large", from: fromSample, options: "vers=4.1,rsize=524288", readAheadKiB: 15360,
			work: "--name=ReadRandom --path=/mnt/sample/data --block-kib=64 --workers=2", rules: []string{"LargeReadAhead"},
		},
		{
			name: "a read-ahead that is too small", from: fromSample, options: "vers=4.1,rsize=1048576", readAheadKiB: 128,
			work: "--name=ReadSequential --path=/mnt/sample/data", rules: []string{"SmallReadAhead"}, ready: []string{"readAheadKiB=1024"},
		},
		{
			name: "small writes, each waited for", from: fromSample, options: "vers=4.1",
			work: "--name=WriteSequential --path=/mnt/sample --allow-writes --sync --block-kib=4", rules: []string{"SynchronousWrites"},
		},
	}
}

// counterExamples are states in which the sign of a rule appears and its change would harm, or in which a second cause hides the first.
func counterExamples() []planted {
	lossy, notLossy := shapes("netem loss 2%")
	far, notFar := shapes("netem delay 5ms")
	limited, notLimited := shapes("fq maxrate 40mbit")
	writer, noWriter := unit("outside-writer", "while :; do touch /srv/sample/many/file-00007; sleep 2; done")
	writers, noWriters := unit("outside-writer", "cd /srv/sample/many; while :; do touch *; sleep 2; done")
	neighbor, noNeighbor := unit("neighbor", "while :; do :; done")
	proxy, noProxy := tunnel()
	throughProxy := "127.0.0.1:/srv/sample"
	return []planted{
		{
			name: "a listing with an outside writer", from: fromSample, options: "vers=4.1", server: writer, serverEnd: noWriter,
			work: listing, rules: []string{"AttributeRevalidation"},
		},
		{name: "a listing in which most files change", from: fromSample, options: "vers=4.1", server: writers, serverEnd: noWriters, work: listing},
		{
			name: "a listing with long maximum cache times", from: fromSample, options: "vers=4.1,acregmax=600,acdirmax=600",
			work: listing, rules: []string{"AttributeRevalidation"}, ready: []string{"acregmin=30"},
		},
		{
			name: "a program polls files with stat", from: fromSample, options: "vers=4.1", server: writer, serverEnd: noWriter,
			work:  "#!/bin/sh\nfiles=$(seq -f /mnt/sample/many/file-%05.0f 400)\nwhile :; do stat $files >/dev/null; sleep 1; done",
			rules: []string{"AttributeRevalidation"},
		},
		{
			name: "mapped files", from: fromSample, options: "vers=4.1,rsize=524288", readAheadKiB: 15360,
			work: "#!/bin/sh\nexec /usr/local/bin/recorder -map /mnt/sample/data",
		},
		{
			name: "a tunnel with 5 ms behind it", from: throughProxy, options: "vers=4.1,port=20049", node: proxy, nodeEnd: noProxy,
			server: far, serverEnd: notFar, work: lightReads,
		},
		{
			name: "a tunnel whose session has too few slots", from: throughProxy, options: "vers=4.1,port=20049", node: proxy + "\n" + slots(2),
			nodeEnd: noProxy + "\n" + slots(64), server: far, serverEnd: notFar, work: randomReads,
			rules: []string{"FewSessionSlots"}, ready: []string{"node.kernelModules.nfs.max_session_slots=180"},
		},
		{
			name: "a writer over one connection of 40 Mbit per second", from: fromSample, options: "vers=4.1", node: limited, nodeEnd: notLimited,
			work: largeWrites, rules: []string{"FewConnections"}, ready: []string{"nconnect=4"},
		},
		{
			name: "the same writer over 16 connections", from: fromSample, options: "vers=4.1,nconnect=16", node: limited, nodeEnd: notLimited,
			work: largeWrites,
		},
		{name: "16 readers over 16 connections", from: fromSample, options: "vers=4.1,nconnect=16", work: largeReads},
		{name: "16 readers over 4 connections", from: fromSample, options: "vers=4.1,nconnect=4", work: largeReads},
		{
			name: "two slots and a lossy network", from: fromSample, options: "vers=3", server: lossy, serverEnd: notLossy, node: "modprobe nfs\n" +
				"sysctl -qw sunrpc.tcp_slot_table_entries=2 sunrpc.tcp_max_slot_table_entries=2", nodeEnd: "sysctl -qw sunrpc.tcp_max_slot_table_entries=65536",
			work: randomReads, rules: []string{"PacketLoss", "FewSlots"}, ready: []string{"node.sysctls[sunrpc.tcp_max_slot_table_entries]=128"},
		},
		{
			name: "fsync on a slow disk of the server", from: fromSlow, options: "vers=4.1",
			work: "--name=WriteSequential --path=/mnt/sample --allow-writes --sync --block-kib=64",
		},
		{name: "a busy neighbor on the node", from: fromSample, options: "vers=4.1", node: neighbor, nodeEnd: noNeighbor, work: lightReads},
		{
			name: "a server that does not respond", from: fromSample, options: "vers=3",
			work:          "#!/bin/sh\nwhile :; do stat -f /mnt/sample >/dev/null & sleep 2; done",
			afterOnServer: "iptables -I INPUT -p tcp --dport 2049 -j DROP\nsleep 5", serverEnd: "iptables -D INPUT -p tcp --dport 2049 -j DROP",
			rules: []string{"StuckConnection"},
		},
		{
			name: "an idle mount after a failover", from: fromSample, options: "vers=3", work: randomReads,
			afterOnServer: "systemctl restart nfs-server\nsleep 10", after: "systemctl stop sample-work",
		},
		{
			name: "a restart of the server in the window", from: fromSample, options: "vers=4.1", work: lightReads,
			afterOnServer: "systemd-run --quiet --collect --on-active=10 --timer-property=AccuracySec=1s systemctl restart nfs-server",
		},
		{name: "opens, NFSv3", from: fromSample, options: "vers=3", work: opens, rules: []string{"CloseToOpen"}},
		{name: "opens of files that change, NFSv3", from: fromSample, options: "vers=3", server: writers, serverEnd: noWriters, work: opens},
		{name: "opens with delegations, NFSv4.1", from: fromSample, options: "vers=4.1", work: opens},
		{
			name: "requests of 32 KiB", from: fromSample, options: "vers=4.1,rsize=32768", work: "--name=ReadSequential --path=/mnt/sample/data",
			rules: []string{"SmallTransfers"}, ready: []string{"rsize=1048576"},
		},
		{
			name: "files of 8 KiB with requests of at most 32 KiB", from: fromSample, options: "vers=4.1,rsize=32768",
			work: "--name=ReadSequential --path=/mnt/sample/small",
		},
		{
			name: "the option sync and large writes", from: fromSample, options: "vers=4.1,sync",
			work: "--name=WriteSequential --path=/mnt/sample --allow-writes --block-kib=1024",
		},
		{
			name: "a share of Samba, listed again and again", from: "//" + cluster.ServerAddress + "/share", options: "username=share,password=share",
			server: "mkdir -p /srv/share/many && cd /srv/share/many && seq -f file-%05.0f 1000 | xargs touch", work: listing,
		},
	}
}

// ofGanesha are states of a server in user space.
func ofGanesha() []planted {
	return []planted{
		{name: "Ganesha: a healthy mount", from: fromSample, options: "vers=4.1", work: lightReads},
		{
			name: "Ganesha: a large directory, listed again and again", from: fromSample, options: "vers=4.1", work: listing,
			rules: []string{"AttributeRevalidation"}, ready: []string{"acregmin=30"},
		},
		{
			name: "Ganesha: two slots of the session", from: fromSample, options: "vers=4.1", work: randomReads, node: slots(2), nodeEnd: slots(64),
			rules: []string{"FewSessionSlots"}, ready: []string{"node.kernelModules.nfs.max_session_slots=180"},
		},
		{
			name: "Ganesha: a read-ahead that is too small", from: fromSample, options: "vers=4.1,rsize=1048576", readAheadKiB: 128,
			work: "--name=ReadSequential --path=/mnt/sample/data", rules: []string{"SmallReadAhead"}, ready: []string{"readAheadKiB=1024"},
		},
	}
}

// expectSamples creates bottlenecks on one node and its server, without an operator, and runs the node agent to find them. SCO_RECORD=DIR
// saves the samples. tuning/recommend/testdata contains samples from such a run.
func expectSamples(ctx SpecContext) {
	node := nodes.Nodes[0]
	copyAgent(ctx, node)
	Expect(node.Copy(ctx, findProgram("recorder"), "/usr/local/bin/recorder")).To(Succeed())
	run(ctx, nodes.Server, `
mkdir -p /srv/sample/data /srv/sample/many /srv/sample/small /srv/slow
dd if=/dev/urandom of=/srv/sample/data/file bs=1M count=192 2>/dev/null
cd /srv/sample/many && seq -f file-%05.0f 5000 | xargs touch
head -c 4M /srv/sample/data/file | split --bytes=8K --suffix-length=4 - /srv/sample/small/
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
	serveSMB(ctx)
	var lines, wrong []string
	for _, p := range append(plantedBottlenecks(), counterExamples()...) {
		p.check(ctx, &lines, &wrong)
	}
	run(ctx, nodes.Server, `
systemctl stop nfs-server
cat >/etc/ganesha/ganesha.conf <<CONF
NFSv4 { Graceless = true; }
EXPORT {
  Export_Id = 1;
  Path = /srv/sample;
  Pseudo = /srv/sample;
  Access_Type = RW;
  Squash = No_Root_Squash;
  Protocols = 4;
  FSAL { Name = VFS; }
}
CONF
systemctl start nfs-ganesha`)
	DeferCleanup(func(ctx context.Context) {
		run(ctx, nodes.Server, "systemctl stop nfs-ganesha\nsystemctl start nfs-server")
	})
	for _, p := range ofGanesha() {
		p.check(ctx, &lines, &wrong)
	}
	AddReportEntry("samples", strings.Join(lines, "\n"))
	Expect(wrong).To(BeEmpty())
}

// check takes a sample and compares its findings with the expected ones.
func (p planted) check(ctx SpecContext, lines, wrong *[]string) {
	GinkgoHelper()
	By(p.name)
	rules, ready := p.sample(ctx)
	*lines = append(*lines, fmt.Sprintf("%-55s %s: %s", p.name, strings.Join(rules, " "), strings.Join(ready, " ")))
	if !slices.Equal(rules, p.rules) || !slices.Equal(ready, p.ready) {
		*wrong = append(*wrong, fmt.Sprintf("%s: found %q with %q, want %q with %q", p.name, rules, ready, p.rules, p.ready))
	}
}

// begin plants the bottleneck, mounts and starts the work.
func (p planted) begin(ctx SpecContext) {
	GinkgoHelper()
	node := nodes.Nodes[0]
	run(ctx, nodes.Server, p.server)
	fsType := "nfs"
	if strings.HasPrefix(p.from, "//") {
		fsType = "cifs"
	}
	work := "#!/bin/sh\nexec /usr/local/bin/node-agent workload " + p.work + " --for=10m"
	if strings.HasPrefix(p.work, "#!") {
		work = p.work
	}
	run(ctx, node, p.node+`
mkdir -p /mnt/sample
mount -t `+fsType+` -o `+p.options+` `+p.from+` /mnt/sample
# The rules of nfs-utils set it too, once they notice the mount.
udevadm settle
if [ `+fmt.Sprint(p.readAheadKiB)+` != 0 ]; then
	echo `+fmt.Sprint(p.readAheadKiB)+` >/sys/class/bdi/$(mountpoint -d /mnt/sample)/read_ahead_kb
fi
cat >/usr/local/bin/sample-work <<'WORK'
`+work+`
WORK
chmod 755 /usr/local/bin/sample-work
systemd-run --quiet --collect --unit=sample-work /usr/local/bin/sample-work
sleep 5`)
	run(ctx, nodes.Server, p.afterOnServer)
	run(ctx, node, p.after)
}

// end removes the bottleneck. A server that does not respond responds first.
func (p planted) end(ctx SpecContext) {
	GinkgoHelper()
	run(ctx, nodes.Server, p.serverEnd)
	run(ctx, nodes.Nodes[0], "systemctl stop sample-work 2>/dev/null || true\numount /mnt/sample\nrmdir /mnt/sample\n"+p.nodeEnd)
}

// sample takes a sample during the work, and returns the rules of its findings and the proposed changes.
func (p planted) sample(ctx SpecContext) (rules, ready []string) {
	GinkgoHelper()
	p.begin(ctx)
	began := time.Now()
	text, err := nodes.Nodes[0].Run(ctx, "/usr/local/bin/node-agent observe --window 30s -o json")
	Expect(err).NotTo(HaveOccurred(), text)
	p.end(ctx)
	var report sample.Report
	Expect(json.Unmarshal([]byte(text), &report)).To(Succeed(), text)
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
		for _, profile := range recommend.Propose(recommend.Target{Name: "recommended", Protocol: mountoptions.NFS}, m.Verdict.Findings).Profiles {
			for _, r := range profile.Spec.Volumes {
				ready = append(ready, recommend.Change{MountOptions: r.MountOptions, ReadAheadKiB: ptr.Deref(r.ReadAheadKiB, 0)}.Texts()...)
			}
			ready = append(ready, recommend.Change{Node: profile.Spec.Node}.Texts()...)
		}
	}
	Expect(mounts).To(Equal(1), "mounts in the sample: %s", text)
	return rules, ready
}

// keep saves a sample for the test that evaluates the rules on it.
func (p planted) keep(s recommend.Sample) {
	GinkgoHelper()
	data, err := json.MarshalIndent(map[string]any{
		"planted": p.name, "rules": append([]string{}, p.rules...), "ready": append([]string{}, p.ready...), "sample": s,
	}, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	keepRecord(strings.NewReplacer(" ", "-", ",", "", "=", "-", ":", "").Replace(p.name)+".json", append(data, '\n'))
}
