//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const (
	// unhealthy labels the spec.
	unhealthy = "health"
	// toldWithin is how soon a server that does not answer is told, from the first request without an answer; clearedWithin how soon it
	// is no more, once the server is back.
	toldWithin, clearedWithin = 120 * time.Second, 60 * time.Second
)

// outage is a way in which a storage server stops answering a node.
type outage struct {
	name string
	// server is the server's name in the node's mounts.
	server   string
	protocol v1alpha1.ServerProtocol
	// begin and end are run on the server, or on the node.
	onNode     bool
	begin, end string
	state      []v1alpha1.ServerState
	reasons    []string
	// forgiven is true where the kernel may mend it by itself.
	forgiven bool
}

// outages are played one after the other. The mounts of the node write and read all the time.
var outages = []outage{
	{
		name: "the NFS service is stopped", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS,
		begin: "systemctl stop nfs-server", end: "systemctl start nfs-server",
		state: []v1alpha1.ServerState{v1alpha1.ServerSilent}, reasons: []string{v1alpha1.ServerReasonConnectionRefused},
	},
	{
		name: "a firewall drops what goes to NFS", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS,
		begin: "iptables -I INPUT -p tcp --dport 2049 -j DROP", end: "iptables -D INPUT -p tcp --dport 2049 -j DROP",
		state: []v1alpha1.ServerState{v1alpha1.ServerSilent}, reasons: []string{v1alpha1.ServerReasonUnreachable},
	},
	{
		name: "the server's disk is frozen", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS,
		begin: "fsfreeze -f /srv/nfs/disk", end: "fsfreeze -u /srv/nfs/disk",
		state:   []v1alpha1.ServerState{v1alpha1.ServerSilent, v1alpha1.ServerStuck},
		reasons: []string{v1alpha1.ServerReasonNoAnswer, v1alpha1.ServerReasonRequestsStuck, v1alpha1.ServerReasonTransportStuck},
	},
	{
		name: "one of four connections is cut", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS, onNode: true,
		begin: `port=$(ss -Htn dst ` + cluster.ServerAddress + `:2049 | awk '{print $4}' | sed 's/.*://' | head -n 1)
echo $port >/run/cut
iptables -I OUTPUT -p tcp --sport $port --dport 2049 -j DROP`,
		end:   `iptables -D OUTPUT -p tcp --sport $(cat /run/cut) --dport 2049 -j DROP`,
		state: []v1alpha1.ServerState{v1alpha1.ServerStuck}, reasons: []string{v1alpha1.ServerReasonTransportStuck}, forgiven: true,
	},
	{
		name: "the SMB service is stopped", server: cluster.ServerAddress, protocol: v1alpha1.ServerSMB,
		begin: "systemctl stop smbd", end: "systemctl start smbd",
		state: []v1alpha1.ServerState{v1alpha1.ServerSilent}, reasons: []string{v1alpha1.ServerReasonConnectionRefused},
	},
}

// expectHealthTold plays the outages on one node whose pod and mounts work all the time, and watches the agent: it is never seen in
// uninterruptible sleep.
func expectHealthTold(ctx SpecContext) {
	installOperator(ctx)
	node := nodes.Nodes[0]
	serveSMB(ctx)
	run(ctx, nodes.Server, `echo empty >`+cluster.ServerExport+`/greeting
truncate -s 256M /var/tmp/disk
mkfs.ext4 -q /var/tmp/disk
mkdir -p /srv/nfs/disk
mount -o loop /var/tmp/disk /srv/nfs/disk
echo '/srv/nfs/disk *(rw,no_root_squash,no_subtree_check,insecure,fsid=77)' >>/etc/exports
exportfs -ra`)
	eventually(ctx, podStart, "the webhook takes the profile", func(g Gomega) {
		_, err := kubectl(ctx, "apply", "-f", "testdata/health.yaml")
		g.Expect(err).NotTo(HaveOccurred())
	})
	eventually(ctx, podStart, "the pod runs", func(g Gomega) {
		var pods corev1.PodList
		g.Expect(api.List(ctx, &pods)).To(Succeed())
		g.Expect(pods.Items).To(ContainElement(And(HaveField("Namespace", "health"), HaveField("Status.Phase", corev1.PodRunning))))
	})
	run(ctx, node, `
mkdir -p /mnt/disk /mnt/smb
mount -t nfs4 -o vers=4.1,hard,nconnect=4 `+cluster.ServerAddress+`:/srv/nfs/disk /mnt/disk
mount -t cifs -o username=share,password=share //`+cluster.ServerAddress+`/share /mnt/smb
cat >/usr/local/sbin/health-work <<'WORK'
#!/bin/sh
# One process each: one that hangs holds up no other.
for i in 1 2 3 4 5 6 7 8; do
	for dir in /mnt/disk /mnt/smb; do
		(while :; do date >$dir/work-$i 2>/dev/null; cat $dir/work-$i >/dev/null 2>&1; sleep 1; done) &
	done
done
wait
WORK
chmod +x /usr/local/sbin/health-work
systemd-run --quiet --collect --unit=health-work /usr/local/sbin/health-work
cat >/usr/local/sbin/health-watch <<'WATCH'
#!/bin/sh
# Says when a thread of the agent is in uninterruptible sleep twice in a row, half a second apart.
last=
while :; do
	now=
	for stat in /proc/$(pgrep -o -x node-agent)/task/*/stat; do
		read -r line <"$stat" 2>/dev/null || continue
		case "$line" in *') D '*) now="$now ${line%% *}" ;; esac
	done
	for thread in $now; do
		case " $last " in *" $thread "*) echo "thread $thread is in state D: $(cat /proc/$thread/wchan 2>/dev/null)" ;; esac
	done
	last=$now
	sleep 0.5
done
WATCH
chmod +x /usr/local/sbin/health-watch
systemd-run --quiet --collect --unit=health-watch --property=StandardOutput=file:/run/health-watch.log /usr/local/sbin/health-watch`)
	record := startRecording(ctx, node)
	eventually(ctx, podStart, "the node has its servers, and all of them answer", func(g Gomega) {
		g.Expect(getSCN(ctx, g, node.Name).Status.Servers).To(HaveLen(2))
		g.Expect(storageReachable(ctx, g, node.Name).Status).To(Equal(corev1.ConditionTrue))
		for _, s := range getSCN(ctx, g, node.Name).Status.Servers {
			g.Expect(s.State).To(Equal(v1alpha1.ServerAnswering), "%+v", s)
		}
	})
	for _, o := range outages {
		playOutage(ctx, node, o)
	}
	record()
	out, err := node.Run(ctx, "systemctl is-active health-watch; pgrep -x node-agent >/dev/null && cat /run/health-watch.log")
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.TrimSpace(out)).To(Equal("active"), "the agent was in uninterruptible sleep")
}

// playOutage begins one, waits until it is told, and ends it.
func playOutage(ctx context.Context, node *cluster.Machine, o outage) {
	GinkgoHelper()
	where := nodes.Server
	if o.onNode {
		where = node
	}
	run(ctx, where, o.begin)
	began := time.Now()
	ended := false
	defer func() {
		if !ended {
			_, _ = where.Run(context.WithoutCancel(ctx), o.end)
		}
	}()
	var told v1alpha1.ServerStatus
	eventually(ctx, toldWithin, o.name+": it is told", func(g Gomega) {
		condition := storageReachable(ctx, g, node.Name)
		g.Expect(condition.Status).To(Equal(corev1.ConditionFalse), condition.Message)
		told = serverOf(ctx, g, node.Name, o)
		g.Expect(o.state).To(ContainElement(told.State), "%+v", told)
		g.Expect(o.reasons).To(ContainElement(told.Reason), "%+v", told)
	})
	By(fmt.Sprintf("%s: told after %s: %s, %s: %s", o.name, time.Since(began).Round(time.Second), told.State, told.Reason, storageReachable(ctx, Default, node.Name).Message))
	if o.server == cluster.ServerAddress && o.protocol == v1alpha1.ServerNFS {
		Expect(told.Volumes).To(ContainElement("busy"))
		Expect(told.PodUIDs).NotTo(BeEmpty())
	}
	run(ctx, where, o.end)
	ended = true
	back := time.Now()
	eventually(ctx, clearedWithin, o.name+": it is over", func(g Gomega) {
		condition := storageReachable(ctx, g, node.Name)
		g.Expect(condition.Status).To(Equal(corev1.ConditionTrue), condition.Message)
	})
	By(fmt.Sprintf("%s: cleared after %s", o.name, time.Since(back).Round(time.Second)))
	eventually(ctx, 5*time.Minute, "the mounts work again", func(g Gomega) {
		s := serverOf(ctx, g, node.Name, o)
		g.Expect(s.State).To(Equal(v1alpha1.ServerAnswering), "%+v", s)
		g.Expect(s.Reason).To(Equal(v1alpha1.ServerReasonAnswering), "%+v", s)
	})
}

func serverOf(ctx context.Context, g Gomega, node string, o outage) v1alpha1.ServerStatus {
	GinkgoHelper()
	for _, s := range getSCN(ctx, g, node).Status.Servers {
		if s.Server == o.server && s.Protocol == o.protocol {
			return s
		}
	}
	g.Expect(o.server).To(BeEmpty(), "no such server on %s", node)
	return v1alpha1.ServerStatus{}
}

func storageReachable(ctx context.Context, g Gomega, node string) corev1.NodeCondition {
	GinkgoHelper()
	for _, c := range getNode(ctx, g, node).Status.Conditions {
		if c.Type == v1alpha1.StorageReachableNodeCondition {
			return c
		}
	}
	g.Expect(node).To(BeEmpty(), "no condition on %s", node)
	return corev1.NodeCondition{}
}

func run(ctx context.Context, m *cluster.Machine, script string) {
	GinkgoHelper()
	out, err := m.Run(ctx, script)
	Expect(err).NotTo(HaveOccurred(), out)
}

// startRecording has the node write down every ten seconds what the agent goes by. The returned function fetches it into the run's logs:
// that is where the recorded samples of the agent's tests come from.
func startRecording(ctx context.Context, node *cluster.Machine) (fetch func()) {
	GinkgoHelper()
	run(ctx, node, `cat >/usr/local/sbin/health-record <<'RECORD'
#!/bin/sh
mkdir -p /run/health-record
while :; do
	{
		echo "=== $(date +%s)"
		for file in /proc/1/mountinfo /proc/1/mountstats /proc/fs/cifs/DebugData /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks \
			/sys/kernel/debug/sunrpc/rpc_clnt/*/xprt/info /sys/kernel/sunrpc/xprt-switches/switch-*/xprt-*/dstaddr \
			/sys/kernel/sunrpc/xprt-switches/switch-*/xprt-*/xprt_info; do
			echo "--- $file"
			cat "$file" 2>/dev/null
		done
	} >>/run/health-record/samples
	sleep 10
done
RECORD
chmod +x /usr/local/sbin/health-record
systemd-run --quiet --collect --unit=health-record /usr/local/sbin/health-record`)
	return func() {
		GinkgoHelper()
		out, err := node.Run(ctx, "cat /run/health-record/samples")
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dirs.Run, "logs", "health-samples.txt"), []byte(out), 0o600)).To(Succeed())
	}
}
