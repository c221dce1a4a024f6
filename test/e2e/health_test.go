//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/test/patience"
)

const (
	// unhealthy labels the specs, and is the name of their namespace and first profile.
	unhealthy = "health"
	// identity is the name of the profile that sets an NFSv4 client ID, and the label of its nodes.
	identity      = "identity"
	identityLabel = "e2e.local/identity"
	// reportedWithin is the maximum time until an unresponsive server is reported, from the first pending request. clearedWithin is the
	// maximum time until the report is cleared, once the server is back.
	reportedWithin, clearedWithin = 120 * time.Second, 60 * time.Second
	// flappingWithin is the maximum time until a duplicate NFSv4 client ID is reported. knfsd expires the first client after a lease.
	flappingWithin = 10 * time.Minute
	// tunnelAddress is the address of a tunnel on the node, as with EFS and Azure Files.
	tunnelAddress = "127.0.0.1"
)

// outage is a way in which a storage server stops responding to a node.
type outage struct {
	name string
	// server is the server's name in the mounts of node.
	server   string
	protocol v1alpha1.ServerProtocol
	node     *cluster.Machine
	// begin and end are commands that run on a machine.
	on         *cluster.Machine
	begin, end string
	states     []v1alpha1.ServerState
	reasons    []string
	// volume is the affected volume. Empty if the mounts belong to no volume.
	volume string
	// unasked is the time after the start during which the kernel may send no request.
	unasked time.Duration
}

var _ = Describe("Storage that does not respond", Ordered, ContinueOnFailure, Label(unhealthy), func() {
	BeforeAll(setUpStorage, NodeTimeout(patience.Of(20*time.Minute)))

	It("is reported within two minutes if an NFS or SMB service stops, and is cleared when the service returns", func(ctx SpecContext) {
		playOutages(ctx, outage{
			name: "the NFS service is stopped", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS, node: nodes.Nodes[0], on: nodes.Server,
			begin: "systemctl stop nfs-server", end: "systemctl start nfs-server",
			states: []v1alpha1.ServerState{v1alpha1.ServerSilent}, reasons: []string{v1alpha1.ServerReasonConnectionRefused}, volume: "busy",
		}, outage{
			name: "the SMB service is stopped", server: cluster.ServerAddress, protocol: v1alpha1.ServerSMB, node: nodes.Nodes[0], on: nodes.Server,
			begin: "systemctl stop smbd", end: "systemctl start smbd",
			states: []v1alpha1.ServerState{v1alpha1.ServerSilent}, reasons: []string{v1alpha1.ServerReasonConnectionRefused},
		})
	})

	It("is reported if a firewall drops packets to NFS", func(ctx SpecContext) {
		playOutages(ctx, outage{
			name: "a firewall drops what goes to NFS", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS, node: nodes.Nodes[0], on: nodes.Server,
			begin: "iptables -I INPUT -p tcp --dport 2049 -j DROP", end: "iptables -D INPUT -p tcp --dport 2049 -j DROP",
			states: []v1alpha1.ServerState{v1alpha1.ServerSilent}, reasons: []string{v1alpha1.ServerReasonUnreachable}, volume: "busy",
		})
	})

	It("is reported if the server's disk is frozen, and the network is not named as the cause", func(ctx SpecContext) {
		playOutages(ctx, outage{
			name: "the server's disk is frozen", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS, node: nodes.Nodes[0], on: nodes.Server,
			begin: "fsfreeze -f /srv/nfs/disk", end: "fsfreeze -u /srv/nfs/disk",
			states:  []v1alpha1.ServerState{v1alpha1.ServerSilent, v1alpha1.ServerStuck},
			reasons: []string{v1alpha1.ServerReasonNoAnswer, v1alpha1.ServerReasonRequestsStuck}, volume: "busy",
		})
	})

	It("is reported if one of four connections is cut, and if a tunnel's process is gone", func(ctx SpecContext) {
		playOutages(ctx, outage{
			name: "one of four connections is cut", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS, node: nodes.Nodes[0], on: nodes.Nodes[0],
			begin: `port=$(ss -Htn state established dst ` + cluster.ServerAddress + ` dport = :2049 | awk '{print $3}' | sed 's/.*://' | head -n 1)
echo $port >/run/cut
iptables -I INPUT -p tcp --sport 2049 --dport $port -j DROP`,
			end:    `iptables -D INPUT -p tcp --sport 2049 --dport $(cat /run/cut) -j DROP`,
			states: []v1alpha1.ServerState{v1alpha1.ServerStuck}, reasons: []string{v1alpha1.ServerReasonTransportStuck}, volume: "busy",
		}, outage{
			name: "the tunnel's process is gone", server: tunnelAddress, protocol: v1alpha1.ServerNFS, node: nodes.Nodes[1], on: nodes.Nodes[1],
			begin: "systemctl stop health-tunnel", end: startTunnel,
			states: []v1alpha1.ServerState{v1alpha1.ServerSilent}, reasons: []string{v1alpha1.ServerReasonTunnelGone},
		})
	})

	It("is reported if a server responds but no longer knows the files of a mount", func(ctx SpecContext) {
		playOutages(ctx, outage{
			name: "an export is another one", server: cluster.ServerAddress, protocol: v1alpha1.ServerNFS, node: nodes.Nodes[0], on: nodes.Server,
			begin: "sed -i s/fsid=78/fsid=79/ /etc/exports; exportfs -ra; exportfs -f", end: "sed -i s/fsid=79/fsid=78/ /etc/exports; exportfs -ra; exportfs -f",
			states: []v1alpha1.ServerState{v1alpha1.ServerAnswering}, reasons: []string{v1alpha1.ServerReasonStaleHandles},
			// The kernel caches a directory for acdirmax. Until then it only sends requests that also fail for other reasons.
			unasked: time.Minute,
		})
	})

	It("never has the agent in uninterruptible sleep, nor any reading over its limit", func(ctx SpecContext) {
		for _, node := range nodes.Nodes {
			out, err := node.Run(ctx, "systemctl is-active health-watch; wc -l </run/health-watch.seen; cat /run/health-watch.log")
			Expect(err).NotTo(HaveOccurred())
			lines := strings.Split(strings.TrimSpace(out), "\n")
			Expect(lines).To(HaveLen(2), "the agent of %s was in uninterruptible sleep", node.Name)
			Expect(lines[0]).To(Equal("active"))
			By(node.Name + ": checked the agent's threads " + lines[1] + " times")
		}
		eventually(ctx, podStart, "the agents' logs are read", func(g Gomega) {
			logs, err := kubectl(ctx, "logs", "-n", v1alpha1.AgentNamespace, "-l", "app.kubernetes.io/component=node-agent", "--tail=-1", "--prefix")
			g.Expect(err).NotTo(HaveOccurred())
			Expect(logs).NotTo(ContainSubstring("Still reading the counters"))
		})
	})

	It("names two nodes with the same host name, and the server that repeatedly loses their state", expectFlapping)

	It("is named by the drain that it blocks, and a unique NFSv4 client ID of the node ends the flapping", expectIdentity)

	It("leaves no client ID when the profile is gone", expectIdentityUndone)
})

// startTunnel forwards a port of the node, like the tunnels of EFS and Azure Files. Stopping it ends all connections.
const startTunnel = `systemd-run --quiet --collect --unit=health-tunnel systemd-socket-activate -l ` + tunnelAddress + `:20049 /lib/systemd/systemd-socket-proxyd ` + cluster.ServerAddress + `:2049
until ss -Hltn 'sport = :20049' | grep -q .; do sleep 0.2; done
`

// work uses directories continuously, each in its own process, so that a hanging process does not block the others. Each program start
// takes time under software emulation.
const work = `
cat >/usr/local/sbin/health-work <<'WORK'
#!/bin/sh
for dir in "$@"; do
	for i in 1 2 3 4; do
		file=$dir/work-$$-$i
		(while :; do echo $i >$file; read -r line <$file; sleep 2; done) 2>/dev/null &
	done
done
wait
WORK
chmod +x /usr/local/sbin/health-work
`

// watchAgent prints a line if a thread of the agent is in uninterruptible sleep twice in a row, half a second apart.
const watchAgent = `
cat >/usr/local/sbin/health-watch <<'WATCH'
#!/bin/sh
last=
pid=
while :; do
	if ! [ -d "/proc/${pid:-none}" ]; then
		pid=$(pgrep -o -x node-agent) || { sleep 1; continue; }
	fi
	now=
	for stat in /proc/$pid/task/*/stat; do
		read -r line <"$stat" 2>/dev/null || continue
		case "$line" in *') D '*) now="$now ${line%% *}" ;; esac
	done
	for thread in $now; do
		case " $last " in *" $thread "*) echo "thread $thread is in state D: $(cat /proc/$thread/wchan 2>/dev/null)" ;; esac
	done
	last=$now
	echo >>/run/health-watch.seen
	sleep 0.5
done
WATCH
chmod +x /usr/local/sbin/health-watch
systemd-run --quiet --collect --unit=health-watch --property=StandardOutput=file:/run/health-watch.log /usr/local/sbin/health-watch
`

// setUpStorage starts a pod on the first node that uses a volume continuously, and mounts on both nodes that are also in use.
func setUpStorage(ctx SpecContext) {
	installOperator(ctx)
	node, other := nodes.Nodes[0], nodes.Nodes[1]
	serveSMB(ctx)
	run(ctx, nodes.Server, `echo empty >`+cluster.ServerExport+`/greeting
truncate -s 256M /var/tmp/disk
mkfs.ext4 -q /var/tmp/disk
mkdir -p /srv/nfs/disk
mount -o loop /var/tmp/disk /srv/nfs/disk
mkdir -p /srv/moved
echo '/srv/nfs/disk *(rw,no_root_squash,no_subtree_check,insecure,fsid=77)
/srv/moved *(rw,no_root_squash,no_subtree_check,insecure,fsid=78)' >>/etc/exports
exportfs -ra`)
	eventually(ctx, podStart, "the webhook accepts the profile", func(g Gomega) {
		_, err := kubectl(ctx, "apply", "-f", "testdata/health.yaml")
		g.Expect(err).NotTo(HaveOccurred())
	})
	eventually(ctx, podStart, "the pod runs", func(g Gomega) {
		var pods corev1.PodList
		g.Expect(api.List(ctx, &pods, client.InNamespace(unhealthy))).To(Succeed())
		g.Expect(pods.Items).To(ContainElement(HaveField("Status.Phase", corev1.PodRunning)))
	})
	run(ctx, node, `
mkdir -p /mnt/disk /mnt/moved /mnt/smb
mount -t nfs4 -o vers=4.1,hard,nconnect=4 `+cluster.ServerAddress+`:/srv/nfs/disk /mnt/disk
mount -t nfs4 -o vers=4.1,hard `+cluster.ServerAddress+`:/srv/moved /mnt/moved
mount -t cifs -o username=share,password=share //`+cluster.ServerAddress+`/share /mnt/smb
`+work+`
systemd-run --quiet --collect --unit=health-work /usr/local/sbin/health-work /mnt/disk /mnt/moved /mnt/smb
`+watchAgent)
	run(ctx, other, startTunnel+`
mkdir -p /mnt/tunnel /mnt/disk
mount -t nfs4 -o vers=4.1,hard,port=20049 `+tunnelAddress+`:/srv/nfs /mnt/tunnel
`+work+`
systemd-run --quiet --collect --unit=health-work /usr/local/sbin/health-work /mnt/tunnel
`+watchAgent)
	eventually(ctx, podStart, "the nodes have their servers, and all servers respond", func(g Gomega) {
		for node, count := range map[string]int{node.Name: 2, other.Name: 1} {
			servers := getSCN(ctx, g, node).Status.Servers
			g.Expect(servers).To(HaveLen(count), node)
			g.Expect(servers).To(HaveEach(HaveField("State", v1alpha1.ServerAnswering)), node)
			g.Expect(storageReachable(ctx, g, node).Status).To(Equal(corev1.ConditionTrue), node)
		}
	})
}

// playOutages starts outages of different servers at the same time, waits until each is reported, and ends it.
func playOutages(ctx context.Context, outages ...outage) {
	GinkgoHelper()
	var all sync.WaitGroup
	for _, o := range outages {
		all.Go(func() {
			defer GinkgoRecover()
			playOutage(ctx, o)
		})
	}
	all.Wait()
}

func playOutage(ctx context.Context, o outage) {
	run(ctx, o.on, o.begin)
	began := time.Now()
	ended := false
	defer func() {
		if !ended {
			_, _ = o.on.Run(context.WithoutCancel(ctx), o.end)
		}
	}()
	named := string(o.protocol) + " server " + o.server + " "
	var status v1alpha1.ServerStatus
	eventually(ctx, reportedWithin+o.unasked, o.name+": the outage is reported", func(g Gomega) {
		condition := storageReachable(ctx, g, o.node.Name)
		g.Expect(condition.Status).To(Equal(corev1.ConditionFalse), condition.Message)
		g.Expect(condition.Message).To(ContainSubstring(named))
		status = serverOf(ctx, g, o)
		g.Expect(o.states).To(ContainElement(status.State), "%+v", status)
		g.Expect(o.reasons).To(ContainElement(status.Reason), "%+v", status)
	})
	By(fmt.Sprintf("%s: reported after %.0f s: %s, %s: %s", o.name, time.Since(began).Seconds(), status.State, status.Reason, storageReachable(ctx, Default, o.node.Name).Message))
	if o.volume != "" {
		Expect(status.Volumes).To(ContainElement(o.volume))
		Expect(status.PodUIDs).NotTo(BeEmpty())
	}
	run(ctx, o.on, o.end)
	ended = true
	back := time.Now()
	eventually(ctx, clearedWithin, o.name+": the report is cleared", func(g Gomega) {
		g.Expect(storageReachable(ctx, g, o.node.Name).Message).NotTo(ContainSubstring(named))
	})
	By(fmt.Sprintf("%s: cleared after %.0f s", o.name, time.Since(back).Seconds()))
	eventually(ctx, 5*time.Minute, o.name+": the mounts work again", func(g Gomega) {
		s := serverOf(ctx, g, o)
		g.Expect(s.State).To(Equal(v1alpha1.ServerAnswering), "%+v", s)
		g.Expect(s.Reason).To(Equal(v1alpha1.ServerReasonAnswering), "%+v", s)
	})
	By(fmt.Sprintf("%s: the mounts work again after %.0f s", o.name, time.Since(back).Seconds()))
}

// expectFlapping sets the same host name on both nodes. Both mount one server.
func expectFlapping(ctx SpecContext) {
	node, other := nodes.Nodes[0], nodes.Nodes[1]
	run(ctx, other, `systemctl stop health-work
for i in $(seq 20); do umount /mnt/tunnel && break; sleep 1; done
systemctl stop health-tunnel
hostname `+node.Name+`
mount -t nfs4 -o vers=4.1,hard `+cluster.ServerAddress+`:/srv/nfs/disk /mnt/disk
systemd-run --quiet --collect --unit=health-work /usr/local/sbin/health-work /mnt/disk
`)
	began := time.Now()
	eventually(ctx, flappingWithin, "both nodes are named, and the server repeatedly loses the state of both", func(g Gomega) {
		forgetting := 0
		for _, m := range nodes.Nodes {
			scn := getSCN(ctx, g, m.Name)
			g.Expect(scn.Status.NFS4ClientName).To(Equal(node.Name), m.Name)
			for _, s := range scn.Status.Servers {
				if s.Forgetting {
					forgetting++
				}
			}
		}
		g.Expect(forgetting).To(Equal(2))
		events := mustKubectl(ctx, "get", "events", "-A", "-o", "jsonpath={range .items[*]}{.reason}{\"\\t\"}{.message}{\"\\n\"}{end}")
		g.Expect(events).To(And(ContainSubstring("StorageClientNamesake"), ContainSubstring("StorageClientForgotten")))
	})
	By(fmt.Sprintf("duplicate client ID: reported after %.0f s", time.Since(began).Seconds()))
}

// expectIdentity applies a profile with a client ID, stops the NFS service, and reboots the node. The drain must report its cause. After
// the service returns, the node boots, and its client has a unique name.
func expectIdentity(ctx SpecContext) {
	node := nodes.Nodes[0]
	mustKubectl(ctx, "apply", "-f", "testdata/identity.yaml")
	mustKubectl(ctx, "label", "node", node.Name, identityLabel+"=true", "--overwrite")
	eventually(ctx, podStart, "the client ID waits for a boot", func(g Gomega) {
		var pods corev1.PodList
		g.Expect(api.List(ctx, &pods, client.InNamespace(unhealthy), client.MatchingLabels{"app": "slow"})).To(Succeed())
		g.Expect(pods.Items).To(ContainElement(HaveField("Status.Phase", corev1.PodRunning)))
		g.Expect(getSCN(ctx, g, node.Name).Status.RebootRequired).To(BeTrue())
		g.Expect(readIdentity(ctx, g, node)).To(BeEmpty())
	})
	run(ctx, nodes.Server, "systemctl stop nfs-server")
	stopped := time.Now()
	started := false
	defer func() {
		if !started {
			_, _ = nodes.Server.Run(context.WithoutCancel(ctx), "systemctl start nfs-server")
		}
	}()
	mustKubectl(ctx, "patch", "storageclientprofile", identity, "--type=merge", `--patch={"spec":{"rollout":{"reboot":{"policy":"Automatic"}}}}`)
	var message string
	eventually(ctx, reportedWithin, "the drain names server and pod", func(g Gomega) {
		rollout := getSCN(ctx, g, node.Name).Status.Rollout
		g.Expect(rollout).NotTo(BeNil())
		g.Expect(rollout.Phase).To(Equal(v1alpha1.RolloutDraining), rollout.Message)
		g.Expect(rollout.Reason).To(Equal(v1alpha1.RolloutReasonStorageUnreachable), rollout.Message)
		g.Expect(rollout.Message).To(And(ContainSubstring("NFS server "+cluster.ServerAddress), ContainSubstring("Pod "+unhealthy+"/slow")))
		message = rollout.Message
	})
	By(fmt.Sprintf("the drain reports after %.0f s: %s", time.Since(stopped).Seconds(), message))
	run(ctx, nodes.Server, "systemctl start nfs-server")
	started = true
	name := "storage-client-" + string(getNode(ctx, Default, node.Name).UID)
	eventually(ctx, rebootAll, node.Name+" has booted with its client ID", func(g Gomega) {
		g.Expect(getSCN(ctx, g, node.Name).Status.Rollout.Phase).To(Equal(v1alpha1.RolloutUpToDate))
		g.Expect(readIdentity(ctx, g, node)).To(Equal(name))
	})
	run(ctx, node, `mount -t nfs4 -o vers=4.1,hard `+cluster.ServerAddress+`:/srv/nfs/disk /mnt/disk
systemd-run --quiet --collect --unit=health-work /usr/local/sbin/health-work /mnt/disk`)
	eventually(ctx, podStart, "the server shows the client ID", func(g Gomega) {
		g.Expect(getSCN(ctx, g, node.Name).Status.NFS4ClientName).To(Equal(name + "/" + node.Name))
		out, err := nodes.Server.Run(ctx, "cat /proc/fs/nfsd/clients/*/info")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(out).To(ContainSubstring(name + "/" + node.Name))
	})
	introduced := introductions(ctx)
	Consistently(func(g Gomega) {
		g.Expect(introductions(ctx)).To(Equal(introduced), "EXCHANGE_ID of each node")
		for _, s := range getSCN(ctx, g, node.Name).Status.Servers {
			g.Expect(s.Forgetting).To(BeFalse())
		}
	}).WithContext(ctx).WithTimeout(90 * time.Second).WithPolling(10 * time.Second).Should(Succeed())
}

// introductions returns how often the NFSv4.1 client of each node has sent its client ID to the server.
func introductions(ctx context.Context) string {
	GinkgoHelper()
	var counts []string
	for _, m := range nodes.Nodes {
		out, err := m.Run(ctx, `awk '$1 == "EXCHANGE_ID:" && $2 > most {most = $2} END {print most + 0}' /proc/1/mountstats`)
		Expect(err).NotTo(HaveOccurred())
		counts = append(counts, m.Name+": "+strings.TrimSpace(out))
	}
	return strings.Join(counts, ", ")
}

func readIdentity(ctx context.Context, g Gomega, m *cluster.Machine) string {
	GinkgoHelper()
	out, err := m.Run(ctx, "cat /sys/module/nfs/parameters/nfs4_unique_id")
	g.Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(out)
}

func expectIdentityUndone(ctx SpecContext) {
	node := nodes.Nodes[0]
	mustKubectl(ctx, "delete", "storageclientprofile", identity, "--wait=false")
	waitUntilGone(ctx, rebootAll, identity)
	eventually(ctx, podStart, "the node is in service without a client ID", func(g Gomega) {
		g.Expect(stateOf(getNode(ctx, g, node.Name)).available()).To(BeTrue())
		g.Expect(readIdentity(ctx, g, node)).To(BeEmpty())
	})
	out, err := node.Run(ctx, "grep -rl nfs4_unique_id /etc/modprobe.d || true")
	Expect(err).NotTo(HaveOccurred())
	Expect(out).To(BeEmpty())
	run(ctx, nodes.Nodes[1], "hostname "+nodes.Nodes[1].Name)
}

func serverOf(ctx context.Context, g Gomega, o outage) v1alpha1.ServerStatus {
	GinkgoHelper()
	for _, s := range getSCN(ctx, g, o.node.Name).Status.Servers {
		if s.Server == o.server && s.Protocol == o.protocol {
			return s
		}
	}
	g.Expect(o.server).To(BeEmpty(), "server in the report of %s", o.node.Name)
	return v1alpha1.ServerStatus{}
}

func storageReachable(ctx context.Context, g Gomega, node string) corev1.NodeCondition {
	GinkgoHelper()
	for _, c := range getNode(ctx, g, node).Status.Conditions {
		if c.Type == v1alpha1.StorageReachableNodeCondition {
			return c
		}
	}
	g.Expect(node).To(BeEmpty(), "condition on %s", node)
	return corev1.NodeCondition{}
}

func run(ctx context.Context, m *cluster.Machine, script string) {
	GinkgoHelper()
	out, err := m.Run(ctx, script)
	Expect(err).NotTo(HaveOccurred(), out)
}

// recorded labels the spec that records healthy servers.
const recorded = "healthy-minutes"

var _ = Describe("Healthy storage", Label(recorded), func() {
	It("is recorded for tests of the agent: many mounts, busy and idle, near and far", expectRecorded)
})

// recordedMounts is the number of servers that each node mounts in addition to the pods' mounts. Each is an address of the same server:
// NFSv3 and 4.0 create a client for each address. NFSv4.1 detects that they are one server, so it is mounted once.
const recordedMounts = 60

// expectRecorded does not need an operator. Half of the nodes are 20 ms away from the server.
func expectRecorded(ctx SpecContext) {
	serveSMB(ctx)
	run(ctx, nodes.Server, fmt.Sprintf(`chmod 777 %s
for i in $(seq %d); do ip address add 10.99.0.$((100 + i))/24 dev $(ip -o route get %s | sed 's/.* dev \([^ ]*\).*/\1/'); done`, cluster.ServerExport, recordedMounts, nodes.Nodes[0].Address))
	var all sync.WaitGroup
	for i, node := range nodes.Nodes {
		all.Go(func() {
			defer GinkgoRecover()
			recordOn(ctx, node, i%2 == 1)
		})
	}
	all.Wait()
}

// recordedFor times the number of mounts and nodes exceeds a thousand minutes.
const recordedFor = 12 * time.Minute

func recordOn(ctx context.Context, node *cluster.Machine, far bool) {
	GinkgoHelper()
	Expect(node.Copy(ctx, findProgram("recorder"), "/usr/local/bin/recorder")).To(Succeed())
	delay := ""
	if far {
		delay = "tc qdisc add dev $(ip -o route get " + cluster.ServerAddress + " | sed 's/.* dev \\([^ ]*\\).*/\\1/') root netem delay 20ms 5ms"
	}
	run(ctx, node, delay+fmt.Sprintf(`
mount_at() { mkdir -p "$1"; at=$1; shift; mount "$@" "$at"; echo "$at" >>/run/recorded; }
mount_at /mnt/recorded/smb -t cifs -o username=share,password=share //%[1]s/share
mount_at /mnt/recorded/v41 -t nfs4 -o vers=4.1,hard,nconnect=4 %[1]s:%[2]s
for i in $(seq %[3]d); do
	case $((i %% 4)) in
	0) options=vers=4.0 ;;
	1) options=vers=3,nolock,nconnect=2 ;;
	2) options=vers=4.0,soft,timeo=100 ;;
	3) options=vers=3,nolock ;;
	esac
	mount_at /mnt/recorded/$i -t nfs -o proto=tcp,$options 10.99.0.$((100 + i)):%[2]s
done
systemd-run --quiet --unit=recorder recorder -o /run/healthy.gz -for %[4]s $(cat /run/recorded)`, cluster.ServerAddress, cluster.ServerExport, recordedMounts, recordedFor))
	time.Sleep(recordedFor)
	eventually(ctx, podStart, "the recorder of "+node.Name+" has finished", func(g Gomega) {
		out, err := node.Run(ctx, "systemctl is-active recorder || true; systemctl is-failed recorder || true; base64 /run/healthy.gz")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(out).To(HavePrefix("inactive\ninactive\n"))
		data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(strings.TrimPrefix(out, "inactive\ninactive\n"), "\n", ""))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(filepath.Join(dirs.Run, "logs", "healthy-"+node.Name+".gz"), data, 0o600)).To(Succeed())
	})
}
