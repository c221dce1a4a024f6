//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	sources "github.com/storageclient/operator/test/documents"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/tuning/verdict"
)

const (
	// effects labels the spec.
	effects = "effects"
	// effectRounds is the number of rounds that is enough for verdicts by counts and by time.
	effectRounds = 12
	effectDir    = "/mnt/effect"
	// workCommand is the measuring workload.
	workCommand = "/usr/local/bin/node-agent workload --path=" + effectDir
	// logWrites is the number of writes to the log of XFS.
	logWrites = "log writes"
)

// way is one of the two configurations that are compared.
type way struct {
	options string
	// prepare is the command before the mount, mounted the command after it.
	prepare, mounted string
	work             string
}

// claim is an effect that a source document describes.
type claim struct {
	// seed is the row of the documents, name describes the comparison. docs/values.md has both.
	seed, name    string
	before, after way
	// from is the source of the mount: cluster.ServerExport by default, a share that starts with //, or a device of the node that starts with /dev.
	from string
	// metric is the count that is compared, want its expected outcome. time is the expected outcome of the time.
	metric     string
	want, time v1alpha1.TrialVerdict
	// network changes how the server sends its packets, distance how the node sends or, if it is policed, receives them.
	network, distance string
	// end restores the node.
	end string
}

// with returns a copy with one change.
func (w way) with(change func(*way)) way {
	change(&w)
	return w
}

// option returns a copy with one more mount option.
func (w way) option(name string) way {
	w.options += "," + name
	return w
}

const (
	effectShare = "//" + cluster.ServerAddress + "/share"
	asShare     = "vers=3.1.1,username=share,password=share"
	distant     = "netem delay 5ms"
	// perConnection limits each connection to 5 MB per second.
	perConnection = "fq maxrate 40mbit"
	// policed drops what exceeds 100 Mb/s and a burst. A sender loses several packets at a time, as with a policer of a provider or a switch with
	// small buffers, but the same ones in each pass: the time of randomly lost packets varies too much.
	policed = "police rate 100mbit burst 300k drop"
)

func claims() []claim {
	list := way{options: "vers=4.1", work: workCommand + "/many --name=ListDirectory"}
	twice := list.with(func(w *way) { w.work += " && sleep 3.5 && " + w.work })
	names := list.with(func(w *way) { w.work = workCommand + "/many --name=ListNames" })
	// again repeats a command after the time for which the client keeps attributes.
	again := func(command string) way {
		return way{options: "vers=4.1", mounted: command + " >/dev/null\nsleep 3.5", work: command}
	}
	ls := func(how string) way { return way{options: "vers=4.1", work: "ls " + how + " " + effectDir + "/many"} }
	readAhead := func(options string, kib int) way {
		return way{
			options: options, work: workCommand + "/data --name=ReadSequential",
			mounted: fmt.Sprintf("udevadm settle; echo %d >/sys/class/bdi/$(mountpoint -d %s)/read_ahead_kb", kib, effectDir),
		}
	}
	large := "vers=4.1,rsize=1048576"
	random := way{options: "vers=4.1", work: workCommand + "/data --name=ReadRandom --direct --workers=16 --max-bytes=4194304"}
	readers := func(options string, workers int) way {
		return way{options: options, work: fmt.Sprintf(workCommand+"/data --name=ReadSequential --direct --block-kib=256 --max-bytes=8388608 --workers=%d", workers)}
	}
	slots := func(n int) way {
		return random.with(func(w *way) {
			w.options, w.prepare = "vers=3", fmt.Sprintf("sysctl -qw sunrpc.tcp_slot_table_entries=2 sunrpc.tcp_max_slot_table_entries=%d", n)
		})
	}
	// burst writes after the connection was idle.
	burst := func(slowStart int) way {
		write := "dd if=/dev/zero of=" + effectDir + "/writable/dd bs=1M conv=notrunc,fsync count="
		return way{
			options: "vers=4.1,wsize=262144", work: write + "4", mounted: write + "16 2>/dev/null\nsleep 1",
			prepare: fmt.Sprintf("sysctl -qw net.ipv4.tcp_slow_start_after_idle=%d", slowStart),
		}
	}
	sack := func(on int) way {
		return readAhead("vers=4.1,rsize=262144", 1024).with(func(w *way) {
			w.prepare = fmt.Sprintf("sysctl -qw net.ipv4.tcp_sack=%d net.ipv4.tcp_dsack=%d", on, on)
		})
	}
	opens := way{options: "vers=3", work: "for i in 1 2 3; do cat " + effectDir + "/few/*; done"}
	create := func(options string) way {
		return way{options: options, work: workCommand + "/writable --name=CreateUnlink --allow-writes"}
	}
	writes := way{options: "vers=4.1,sync", work: "dd if=/dev/zero of=" + effectDir + "/writable/dd bs=8k count=512 conv=notrunc 2>&1"}
	reads := func(options, cached string) way {
		return way{options: options, work: "cat " + effectDir + "/data/1 && " + workCommand + "/data --name=ReadSequential" + cached}
	}
	copies := func(options, how string) way {
		return way{options: options, work: workCommand + "/data --name=CopyFiles --allow-writes" + how}
	}
	xfs := func(options string) way {
		return way{options: "noatime,nodiratime,noquota" + options, work: workCommand + " --name=CreateUnlink --allow-writes --workers=10 && sync -f " + effectDir}
	}
	lsAgain, duAgain := again("ls -l "+effectDir+"/large"), again("du -s "+effectDir+"/tree")
	listAgain := again(workCommand + "/many --name=ListDirectory")
	return []claim{
		{
			seed: "A1", name: "5,000 files, 1 ms away, `ls -l` again after 3.5 s; `actimeo=30`", before: lsAgain, after: lsAgain.option("actimeo=30"),
			metric: "GETATTR", want: verdict.Better, time: verdict.Better, network: "netem delay 1ms",
		},
		{
			seed: "A2", name: "16 MiB in sequence by read-ahead, 5 ms away, 5 MB/s for each connection; `nconnect=4`",
			before: readAhead(large, 15360), after: readAhead(large+",nconnect=4", 15360), time: verdict.Better, network: perConnection, distance: distant,
		},
		{seed: "A5", name: "`ls --color=always` → `never`", before: ls("--color=always"), after: ls("--color=never"), metric: verdict.Bytes, want: verdict.NoDifference},
		{seed: "A5", name: "`ls -1` → `ls -1U`", before: ls("--color=never -1"), after: ls("--color=never -1U"), metric: verdict.Bytes, want: verdict.NoDifference},
		{
			seed: "A5", name: "`ls -l` → `ls -1f`, fresh mount", before: ls("-l"), after: ls("-1f"), metric: verdict.Bytes, want: verdict.NoDifference,
			time: verdict.Better,
		},
		{
			seed: "A7", name: "attributes of all → names only, fresh mount", before: list, after: names, metric: verdict.Operations,
			want: verdict.NoDifference,
		},
		{
			seed: "A7", name: "attributes at the end → interleaved with the names, listed twice 3.5 s apart", before: twice, after: twice.with(func(w *way) {
				w.work = strings.ReplaceAll(w.work, "ListDirectory", "Interleaved")
			}), metric: verdict.Operations, want: verdict.Better, time: verdict.Better,
		},
		{
			seed: "A8", name: "`nconnect=4`, 5 ms away, 5 MB/s for each connection: 1 → 16 readers", before: readers("vers=4.1,nconnect=4", 1),
			after: readers("vers=4.1,nconnect=4", 16), time: verdict.Better, network: perConnection, distance: distant,
		},
		{
			seed: "A8", name: "16 readers of 4 KiB, 5 ms away, no limit for a connection; `nconnect=4`", before: random, after: random.option("nconnect=4"),
			time: verdict.NoDifference, network: distant,
		},
		{
			seed: "A9", name: "2,000 files listed again after 3.5 s with `AT_STATX_DONT_SYNC`", before: listAgain, after: listAgain.with(func(w *way) {
				w.work += " --cached"
			}), metric: "GETATTR", want: verdict.Better, time: verdict.Better,
		},
		{
			seed: "A10", name: "`du` of 2,000 files in 40 directories, again after 3.5 s; `actimeo=30`", before: duAgain, after: duAgain.option("actimeo=30"),
			metric: "GETATTR", want: verdict.Better, time: verdict.Better,
		},
		{
			seed: "B1", name: "2,000 files created and removed; `logbufs=8,logbsize=256k`", from: "/dev/effect", before: xfs(""),
			after: xfs(",logbufs=8,logbsize=256k"), metric: logWrites, want: verdict.Better,
		},
		{seed: "B1", name: "the same; `logbufs=8` alone", from: "/dev/effect", before: xfs(""), after: xfs(",logbufs=8"), metric: logWrites, want: verdict.NoDifference},
		{
			seed: "C1", name: "100 files read three times, NFSv3; `nocto`", before: opens, after: opens.option("nocto"), metric: "GETATTR",
			want: verdict.Better, time: verdict.Better,
		},
		{
			seed: "C5", name: "4 MiB written after 1 s without work, 20 ms away; `tcp_slow_start_after_idle=0`", before: burst(1), after: burst(0),
			time: verdict.Better, network: "netem delay 20ms", end: "sysctl -qw net.ipv4.tcp_slow_start_after_idle=1",
		},
		{
			seed: "C7", name: "16 MiB in sequence, 5 ms away, packets above 100 Mb/s dropped; `tcp_sack=0`, `tcp_dsack=0`", before: sack(1), after: sack(0),
			time: verdict.Worse, network: distant, distance: policed, end: "sysctl -qw net.ipv4.tcp_sack=1 net.ipv4.tcp_dsack=1",
		},
		{
			seed: "C9", name: "16 readers, NFSv3, 5 ms away, 5 MB/s for each connection; `nconnect=8`", before: readers("vers=3", 16),
			after: readers("vers=3,nconnect=8", 16), time: verdict.Better, network: perConnection, distance: distant,
		},
		{
			seed: "C10", name: "16 readers of 4 KiB, 5 ms away, NFSv3; 2 → 128 slots", before: slots(2), after: slots(128), time: verdict.Better,
			network: distant,
		},
		{
			seed: "C11", name: "200 files created and removed; NFS 4.1 → NFSv3", before: create("vers=4.1"), after: create("vers=3"),
			metric: verdict.Operations, want: verdict.Better,
		},
		{
			seed: "C12", name: "16 MiB copied by the client; `rsize` and `wsize` 65536 → 262144", before: copies("vers=4.1,rsize=65536,wsize=65536", " --through-client"),
			after: copies("vers=4.1,rsize=262144,wsize=262144", " --through-client"), metric: verdict.Operations, want: verdict.Better,
		},
		{
			seed: "C13", name: "512 blocks of 8 KiB; `sync` → `async`", before: writes, after: writes.with(func(w *way) { w.options = "vers=4.1" }),
			metric: "WRITE", want: verdict.Better, time: verdict.Better,
		},
		{
			seed: "D1", name: "16 MiB in sequence, 5 ms away; read-ahead 128 → 1,024 KiB", before: readAhead(large, 128), after: readAhead(large, 1024),
			metric: "READ", want: verdict.Better, time: verdict.Better, network: distant,
		},
		{
			seed: "D1", name: "the same; 1,024 → 15,360 KiB", before: readAhead(large, 1024), after: readAhead(large, 15360), time: verdict.NoDifference,
			network: distant,
		},
		{
			seed: "D3", name: "read a second time: from the client's cache → evicted first", before: reads("vers=4.1", " --cached"), after: reads("vers=4.1", ""),
			metric: verdict.Bytes, want: verdict.Worse,
		},
		{
			seed: "D3", name: "the same over SMB", from: effectShare, before: reads(asShare, " --cached"), after: reads(asShare, ""), metric: verdict.Bytes,
			want: verdict.Worse,
		},
		{
			seed: "D4", name: "16 MiB copied: read and written → `copy_file_range`, NFS 4.2", before: copies("vers=4.2", " --through-client"),
			after: copies("vers=4.2", ""), metric: verdict.Bytes, want: verdict.Better, time: verdict.Better,
		},
		{
			seed: "D4", name: "the same over SMB", from: effectShare, before: copies(asShare, " --through-client"), after: copies(asShare, ""),
			metric: verdict.Bytes, want: verdict.Better,
		},
	}
}

// expectEffects measures the effects that the source documents claim, on one node without the operator. SCO_RECORD=DIR saves the results, from which
// docs/values.md is written.
func expectEffects(ctx SpecContext) {
	node := nodes.Nodes[0]
	copyAgent(ctx, node)
	serveSMB(ctx)
	run(ctx, nodes.Server, `
cd `+cluster.ServerExport+`
mkdir -p large many few data writable tree
chmod 777 writable data
seq -f large/file-%05.0f 5000 | xargs touch
seq -f many/file-%05.0f 2000 | xargs touch
for i in $(seq 40); do mkdir tree/$i; seq -f tree/$i/file-%02.0f 50 | xargs touch; done
for i in $(seq 100); do echo $i >few/file-$i; done
for i in 1 2; do dd if=/dev/urandom of=data/$i bs=1M count=8 2>/dev/null; done
touch writable/dd
cp -r data /srv/share`)
	run(ctx, node, `
modprobe -a nfs cifs
truncate -s 512M /var/tmp/effect
mkfs.xfs -q /var/tmp/effect
ln -s $(losetup -f --show /var/tmp/effect) /dev/effect
mkdir -p `+effectDir)
	kernel, err := node.Run(ctx, "uname -r")
	Expect(err).NotTo(HaveOccurred())
	all := sources.Effects{Kernel: strings.TrimSpace(kernel), Rounds: effectRounds}
	var wrong []string
	for _, c := range claims() {
		By(c.seed + ": " + c.name)
		Expect(c.want+c.time).NotTo(BeEmpty(), "expected outcomes")
		e := c.effect(ctx)
		all.Effects = append(all.Effects, e)
		GinkgoWriter.Println(e)
		wrong = append(wrong, c.differences(e)...)
	}
	By("A3: boots with few and with many buckets")
	e := effectOfBuckets(ctx, node)
	all.Effects = append(all.Effects, e)
	wrong = append(wrong, claim{seed: e.Row, name: e.Compared, time: verdict.Better}.differences(e)...)
	keepRecord("effects.json", []byte(all.String()))
	Expect(wrong).To(BeEmpty())
}

const (
	fewBuckets, manyBuckets = 4096, 16777216
	// listHuge lists a directory of 300,000 files three times, each on a fresh mount. The node is its own server, so that neither a network nor the
	// memory of the server limits the time.
	listHuge = `
mkdir -p /srv/huge
mount -t tmpfs -o size=600m,nr_inodes=400000 huge /srv/huge
mkdir /srv/huge/d
seq -f /srv/huge/d/file-%06.0f 300000 | xargs touch
systemctl start nfs-server
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=90 '*:/srv/huge'
for i in 1 2 3; do
	mount -t nfs -o vers=4.1 127.0.0.1:/srv/huge ` + effectDir + `
	began=$(date +%s%N)
	` + workCommand + `/d --name=Interleaved >/tmp/effect.out
	echo $(($(date +%s%N) - began))
	umount ` + effectDir + `
done`
)

// effectOfBuckets boots a node with few and with many buckets of the inode hash table, each twice. The time is better if each listing with many buckets
// is faster than each with few. The result has the third fastest listing of six, and the range of the ratios of all pairs.
func effectOfBuckets(ctx context.Context, node *cluster.Machine) sources.Effect {
	GinkgoHelper()
	seconds := map[int][]float64{}
	for _, n := range []int{fewBuckets, manyBuckets, fewBuckets, manyBuckets} {
		bootWith(ctx, node, fmt.Sprintf("ihash_entries=%d", n))
		text, err := node.Run(ctx, listHuge)
		Expect(err).NotTo(HaveOccurred())
		for _, took := range strings.Fields(text) {
			nanoseconds, err := strconv.ParseFloat(took, 64)
			Expect(err).NotTo(HaveOccurred(), text)
			seconds[n] = append(seconds[n], nanoseconds/1e9)
		}
	}
	few, many := seconds[fewBuckets], seconds[manyBuckets]
	Expect(few).To(HaveLen(6))
	Expect(many).To(HaveLen(6))
	slices.Sort(few)
	slices.Sort(many)
	r := verdict.Result{Metric: verdict.Seconds, Before: few[2], After: many[2], Low: many[0] / few[5], High: many[5] / few[0], Outcome: verdict.Undecided}
	if r.High < 1 {
		r.Outcome = verdict.Better
	}
	e := sources.Effect{Row: "A3", Compared: "300,000 files listed; `ihash_entries` 4,096 → 16,777,216", Server: "knfsd"}
	e.Add([]verdict.Result{r}, verdict.Seconds)
	return e
}

// bootWith boots a machine again, with another kernel argument.
func bootWith(ctx context.Context, m *cluster.Machine, argument string) {
	GinkgoHelper()
	name, _, _ := strings.Cut(argument, "=")
	run(ctx, m, "sed -i 's/ "+name+`=[0-9]*//; s/^\([[:space:]]*linux[[:space:]].*\)/\1 `+argument+"/' /boot/grub/grub.cfg\nsync\nsystemd-run --quiet --on-active=1 systemctl reboot")
	eventually(ctx, rebootAll, m.Name+" has booted with "+argument, func(g Gomega) {
		line, err := m.Run(ctx, "cat /proc/cmdline")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(strings.Fields(line)).To(ContainElement(argument))
	})
}

// effect measures a claim.
func (c claim) effect(ctx context.Context) sources.Effect {
	GinkgoHelper()
	defer shape(ctx, nodes.Server, c.network)()
	defer shape(ctx, nodes.Nodes[0], c.distance)()
	passes := c.measure(ctx)
	run(ctx, nodes.Nodes[0], c.end)
	keepPasses(c, passes)
	server := map[string]string{"nfs": "knfsd", "cifs": "Samba", "xfs": "–"}[c.fsType()]
	e := sources.Effect{Row: c.seed, Compared: c.name, Server: server}
	e.Add(verdict.Evaluate(passes, verdict.Goal{Metric: c.metric}, verdict.Work{Unit: "run"}).Results, verdict.Operations, verdict.Bytes, verdict.Seconds, c.metric)
	return e
}

// shape changes how a machine sends its packets, until end is called.
func shape(ctx context.Context, m *cluster.Machine, how string) (end func()) {
	GinkgoHelper()
	if how == "" {
		return func() {}
	}
	begin, undo := shapes(how)
	run(ctx, m, begin)
	return func() { run(ctx, m, undo) }
}

// differences compares the outcomes with the expected ones. A difference that is expected not to be shown may be undecided.
func (c claim) differences(e sources.Effect) (wrong []string) {
	for metric, want := range map[string]v1alpha1.TrialVerdict{c.metric: c.want, verdict.Seconds: c.time} {
		if want == "" {
			continue
		}
		got := e.Result(metric).Outcome
		if got != want && (want != verdict.NoDifference || got != verdict.Undecided) {
			wrong = append(wrong, fmt.Sprintf("%s, %s: %s is %q, want %s", c.seed, c.name, metric, got, want))
		}
	}
	return wrong
}

// copyAgent copies the node agent to a node as a command-line program.
func copyAgent(ctx context.Context, node *cluster.Machine) {
	GinkgoHelper()
	Expect(node.Copy(ctx, findProgram("node-agent"), "/usr/local/bin/node-agent")).To(Succeed())
}

// findProgram returns the path of a program that run.sh built and no image contains.
func findProgram(name string) string {
	GinkgoHelper()
	program := filepath.Join(os.Getenv("SCO_PROGRAMS"), name)
	Expect(program).To(BeAnExistingFile(), "test/e2e/run.sh builds it when SCO_E2E_LABELS is set")
	return program
}

// measure runs each round as one script, so that the connection to the node has no effect on the result.
func (c claim) measure(ctx context.Context) (passes []v1alpha1.TrialPass) {
	GinkgoHelper()
	for round := range slices.Chunk(verdict.Schedule(effectRounds, uint64(len(c.name))), 3) {
		script := []string{"exec 2>&1"}
		for _, slot := range round {
			script = append(script, c.script(slot.Arm))
		}
		text, err := nodes.Nodes[0].Run(ctx, strings.Join(script, "\n"))
		Expect(err).NotTo(HaveOccurred(), text)
		parts := strings.Split(text, "=== pass\n")[1:]
		Expect(parts).To(HaveLen(len(round)), text)
		for i, part := range parts {
			passes = append(passes, v1alpha1.TrialPass{Round: round[i].Round, Arm: round[i].Arm, Phases: []v1alpha1.TrialPassPhase{c.phaseOf(part)}})
		}
	}
	return passes
}

const shellStats = "cat /proc/self/mountstats /proc/fs/cifs/Stats /sys/fs/xfs/loop*/stats/stats 2>/dev/null || true\n"

func (c claim) fsType() string {
	switch {
	case strings.HasPrefix(c.from, "//"):
		return "cifs"
	case c.from != "":
		return "xfs"
	}
	return "nfs"
}

func (c claim) script(arm v1alpha1.TrialArm) string {
	w := c.before
	if arm == v1alpha1.ArmAfter {
		w = c.after
	}
	from := cmp.Or(c.from, cluster.ServerAddress+":"+cluster.ServerExport)
	return w.prepare + "\nmount -t " + c.fsType() + " -o " + w.options + " " + from + " " + effectDir + "\n" + w.mounted + "\necho === pass\n" + shellStats + `
echo === work
began=$(date +%s%N)
{ ` + w.work + `; } >/tmp/effect.out 2>&1 || { cat /tmp/effect.out; exit 1; }
echo === nanoseconds $(($(date +%s%N) - began))
` + shellStats + "umount " + effectDir
}

// phaseOf parses the output of one pass.
func (c claim) phaseOf(text string) v1alpha1.TrialPassPhase {
	GinkgoHelper()
	before, rest, _ := strings.Cut(text, "=== work\n")
	_, rest, _ = strings.Cut(rest, "=== nanoseconds ")
	took, after, found := strings.Cut(rest, "\n")
	Expect(found).To(BeTrue(), text)
	nanoseconds, err := strconv.ParseInt(took, 10, 64)
	Expect(err).NotTo(HaveOccurred(), text)
	p, counts := v1alpha1.TrialPassPhase{Name: "Work", Units: 1, Microseconds: nanoseconds / 1000}, map[string]int64{}
	add := func(stats string, sign int64) {
		operations := mounts.CountsAt(stats, effectDir)
		if c.fsType() == "cifs" {
			operations, _ = mounts.CountsOfShare(stats, c.from)
		}
		for _, o := range operations {
			counts[o.Name] += sign * int64(o.Count)
			p.BytesSent += sign * int64(o.BytesSent)
			p.BytesReceived += sign * int64(o.BytesReceived)
		}
		// "log WRITES BLOCKS ...", see xfs_stats_format in fs/xfs/xfs_stats.c.
		if _, line, found := strings.Cut(stats, "\nlog "); found && c.fsType() == "xfs" {
			writes, err := strconv.ParseInt(strings.Fields(line)[0], 10, 64)
			Expect(err).NotTo(HaveOccurred(), line)
			counts[logWrites] += sign * writes
		}
	}
	add(before, -1)
	add(after, 1)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		p.Operations = append(p.Operations, v1alpha1.TrialOperation{Name: name, Count: counts[name]})
	}
	return p
}

func keepPasses(c claim, passes []v1alpha1.TrialPass) {
	GinkgoHelper()
	data, err := json.Marshal(passes)
	Expect(err).NotTo(HaveOccurred())
	keepRecord(strings.NewReplacer(" ", "-", ",", "", ":", "", ";", "", "/", "-", "`", "", "→", "").Replace("effect-"+c.seed+"-"+c.name)+".json", data)
}
