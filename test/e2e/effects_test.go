//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/storageclient/operator/agent/host/mounts"
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
	// seed is the row of the documents, name describes the comparison.
	seed, name    string
	before, after way
	// export is the mounted export, or a device of the node if it starts with /dev.
	export string
	// metric is the basis of the verdict, want the expected verdict. An empty want accepts any.
	metric string
	want   verdict.Outcome
	// delayed adds a delay of 5 ms to the server's packets.
	delayed bool
}

// with returns a copy with one change.
func (w way) with(change func(*way)) way {
	change(&w)
	return w
}

func claims() []claim {
	list := way{options: "vers=4.1", work: workCommand + "/many --name=ListDirectory"}
	twice := list.with(func(w *way) { w.work += " && sleep 5 && " + w.work })
	names := list.with(func(w *way) { w.work = workCommand + "/many --name=ListNames" })
	ls := func(how string) way { return way{options: "vers=4.1", work: "ls " + how + " " + effectDir + "/many"} }
	readAhead := func(kib int) way {
		return way{
			options: "vers=4.1,rsize=1048576", work: workCommand + "/data --name=ReadSequential --block-kib=64",
			mounted: fmt.Sprintf("udevadm settle; echo %d >/sys/class/bdi/$(mountpoint -d %s)/read_ahead_kb", kib, effectDir),
		}
	}
	random := way{options: "vers=4.1", work: workCommand + "/data --name=ReadRandom --direct --workers=16 --max-bytes=4194304"}
	slots := func(n int) way {
		return way{
			options: "vers=3", work: workCommand + "/data --name=ReadRandom --direct --workers=16 --max-bytes=4194304",
			prepare: fmt.Sprintf("sysctl -qw sunrpc.tcp_slot_table_entries=2 sunrpc.tcp_max_slot_table_entries=%d", n),
		}
	}
	opens := way{options: "vers=3", work: "for i in 1 2 3; do cat " + effectDir + "/few/*; done"}
	writes := way{options: "vers=4.1,sync", work: "dd if=/dev/zero of=" + effectDir + "/writable/dd bs=8k count=512 conv=notrunc 2>&1"}
	reads := way{options: "vers=4.1", work: "cat " + effectDir + "/data/1 && " + workCommand + "/data --name=ReadSequential --cached"}
	copies := way{options: "vers=4.2", work: workCommand + "/data --name=CopyFiles --allow-writes --through-client"}
	xfs := func(options string) way {
		return way{options: options, work: workCommand + " --name=CreateUnlink --allow-writes --workers=10 && sync -f " + effectDir}
	}
	return []claim{
		{seed: "A1", name: "a directory listed again after 5 s: actimeo=30", before: twice, after: twice.with(func(w *way) { w.options += ",actimeo=30" }), metric: "GETATTR", want: verdict.Better},
		{seed: "A5", name: "ls --color=always -> ls --color=never", before: ls("--color=always"), after: ls("--color=never"), metric: verdict.Bytes},
		{seed: "A5", name: "ls -1 -> ls -1U", before: ls("--color=never -1"), after: ls("--color=never -1U"), metric: verdict.Bytes, want: verdict.NoDifference},
		{seed: "A5", name: "ls -l -> ls -1f", before: ls("-l"), after: ls("-1f"), metric: verdict.Bytes},
		{seed: "A7", name: "names with attributes -> names only", before: list, after: names, metric: verdict.Operations},
		{seed: "A7", name: "attributes at the end -> interleaved, listed twice", before: twice, after: twice.with(func(w *way) {
			w.work = strings.ReplaceAll(w.work, "ListDirectory", "Interleaved")
		}), metric: verdict.Operations},
		{seed: "A9", name: "listed again after 5 s: AT_STATX_DONT_SYNC", before: twice, after: twice.with(func(w *way) {
			w.work = strings.ReplaceAll(w.work, "ListDirectory", "ListDirectory --cached")
		}), metric: "GETATTR", want: verdict.Better},
		{seed: "A8", name: "16 readers, 5 ms away: nconnect=4", before: random, after: random.with(func(w *way) { w.options += ",nconnect=4" }), delayed: true},
		{seed: "C1", name: "files opened again: nocto (NFSv3)", before: opens, after: opens.with(func(w *way) { w.options += ",nocto" }), metric: "GETATTR", want: verdict.Better},
		{seed: "D1", name: "read in sequence, 5 ms away: read-ahead 128 -> 1024 KiB", before: readAhead(128), after: readAhead(1024), metric: "READ", want: verdict.Better, delayed: true},
		{seed: "D1", name: "read in sequence, 5 ms away: read-ahead 1024 -> 15360 KiB", before: readAhead(1024), after: readAhead(15360), delayed: true},
		{seed: "C10", name: "16 readers, 5 ms away: 2 -> 128 slots (NFSv3)", before: slots(2), after: slots(128), metric: verdict.Seconds, want: verdict.Better, delayed: true},
		{seed: "C13", name: "written in blocks of 8 KiB: sync -> async", before: writes, after: writes.with(func(w *way) { w.options = "vers=4.1" }), metric: "WRITE", want: verdict.Better},
		{seed: "D3", name: "a file read twice: the second time from the cache -> evicted first", before: reads, after: reads.with(func(w *way) { w.work = strings.ReplaceAll(w.work, " --cached", "") }), metric: verdict.Bytes, want: verdict.Worse},
		{seed: "D4", name: "copied: read and written -> copy_file_range", before: copies, after: copies.with(func(w *way) { w.work = strings.ReplaceAll(w.work, " --through-client", "") }), metric: verdict.Bytes, want: verdict.Better},
		{seed: "B1", name: "XFS, 2,000 files created and removed: logbsize=256k with logbufs=8, noatime, nodiratime, noquota", before: xfs("noatime,nodiratime,noquota"), after: xfs("noatime,nodiratime,noquota,logbufs=8,logbsize=256k"), export: "/dev/effect"},
		{seed: "B1", name: "the same: logbufs=8 alone", before: xfs("noatime,nodiratime,noquota"), after: xfs("noatime,nodiratime,noquota,logbufs=8"), export: "/dev/effect"},
	}
}

// expectEffects measures the effects that the source documents claim, on one node without the operator. It prints a table.
func expectEffects(ctx SpecContext) {
	node := nodes.Nodes[0]
	copyAgent(ctx, node)
	run(ctx, nodes.Server, `
cd `+cluster.ServerExport+`
mkdir -p many few data writable
chmod 777 writable data
seq -f many/file-%05.0f 2000 | xargs touch
for i in $(seq 100); do echo $i >few/file-$i; done
for i in 1 2; do dd if=/dev/urandom of=data/$i bs=1M count=8 2>/dev/null; done
touch writable/dd`)
	run(ctx, node, `
modprobe nfs
truncate -s 512M /var/tmp/effect
mkfs.xfs -q /var/tmp/effect
ln -s $(losetup -f --show /var/tmp/effect) /dev/effect
mkdir -p `+effectDir)
	table := []string{fmt.Sprintf("%-7s %-95s %s", "row", "compared", "verdict")}
	var wrong []string
	delay, noDelay := shapes("netem delay 5ms")
	for _, c := range claims() {
		By(c.seed + ": " + c.name)
		if c.delayed {
			run(ctx, nodes.Server, delay)
		}
		passes := c.measure(ctx)
		if c.delayed {
			run(ctx, nodes.Server, noDelay)
		}
		keepPasses(c, passes)
		v := verdict.Evaluate(passes, verdict.Goal{Metric: c.metric}, verdict.Attributes{})
		table = append(table, fmt.Sprintf("%-7s %-95s %s", c.seed, c.name, v.Why))
		for _, r := range v.Results {
			table = append(table, fmt.Sprintf("        %-12s %10.4g -> %-10.4g %-10s %.3g [%.3g, %.3g] %s %s", r.Metric, r.Before, r.After, r.Unit, r.Ratio, r.Low, r.High, r.Outcome, r.Note))
		}
		GinkgoWriter.Println(strings.Join(table[len(table)-1-len(v.Results):], "\n"))
		if c.want != "" && v.Outcome != c.want && (c.want != verdict.Better || v.Outcome != verdict.FewerRequests) {
			wrong = append(wrong, fmt.Sprintf("%s, %s: %s, want %s: %s", c.seed, c.name, v.Outcome, c.want, v.Why))
		}
	}
	AddReportEntry("effects", strings.Join(table, "\n"))
	Expect(wrong).To(BeEmpty())
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
func (c claim) measure(ctx context.Context) (passes []verdict.Pass) {
	GinkgoHelper()
	for round := range slices.Chunk(verdict.Schedule(effectRounds, nil, uint64(len(c.name))), 3) {
		script := []string{"exec 2>&1"}
		for _, slot := range round {
			script = append(script, c.script(slot.Arm))
		}
		text, err := nodes.Nodes[0].Run(ctx, strings.Join(script, "\n"))
		Expect(err).NotTo(HaveOccurred(), text)
		parts := strings.Split(text, "=== pass\n")[1:]
		Expect(parts).To(HaveLen(len(round)), text)
		for i, part := range parts {
			passes = append(passes, verdict.Pass{Round: round[i].Round, Arm: round[i].Arm, Phases: []verdict.Phase{c.phaseOf(part)}})
		}
	}
	return passes
}

const shellStats = "cat /proc/self/mountstats\n"

func (c claim) script(arm verdict.Arm) string {
	w := c.before
	if arm == verdict.After {
		w = c.after
	}
	fsType, device := "nfs", cluster.ServerAddress+":"+cluster.ServerExport
	if c.export != "" {
		fsType, device = "xfs", c.export
	}
	return w.prepare + "\nmount -t " + fsType + " -o " + w.options + " " + device + " " + effectDir + "\n" + w.mounted + "\necho === pass\n" + shellStats + `
echo === work
began=$(date +%s%N)
{ ` + w.work + `; } >/tmp/effect.out 2>&1 || { cat /tmp/effect.out; exit 1; }
echo === nanoseconds $(($(date +%s%N) - began))
` + shellStats + "umount " + effectDir
}

// phaseOf parses the output of one pass.
func (c claim) phaseOf(text string) verdict.Phase {
	GinkgoHelper()
	before, rest, _ := strings.Cut(text, "=== work\n")
	_, rest, _ = strings.Cut(rest, "=== nanoseconds ")
	took, after, found := strings.Cut(rest, "\n")
	Expect(found).To(BeTrue(), text)
	nanoseconds, err := strconv.ParseFloat(took, 64)
	Expect(err).NotTo(HaveOccurred(), text)
	p := verdict.Phase{Name: "Work", Units: 1, Unit: "run", Seconds: nanoseconds / 1e9, Counts: map[string]float64{}}
	add := func(mountstats string, sign float64) {
		for _, o := range mounts.CountsAt(mountstats, effectDir) {
			p.Counts[o.Name] += sign * float64(o.Count)
			p.Counts[verdict.BytesSent] += sign * float64(o.BytesSent)
			p.Counts[verdict.BytesReceived] += sign * float64(o.BytesReceived)
		}
	}
	add(before, -1)
	add(after, 1)
	return p
}

func keepPasses(c claim, passes []verdict.Pass) {
	GinkgoHelper()
	data, err := json.Marshal(passes)
	Expect(err).NotTo(HaveOccurred())
	keepRecord(strings.NewReplacer(" ", "-", ",", "", ":", "", "/", "-", ">", "").Replace("effect-"+c.seed+"-"+c.name)+".json", data)
}
