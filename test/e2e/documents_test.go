//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const (
	documents = "documents"
	// documentsLabel is the label of the one node that their profile selects.
	documentsLabel = "e2e.local/documents"

	// healing is the maximum duration of drift: the agent checks every 30 seconds.
	healing = 90 * time.Second
	// tunedHealing is longer, because tuned needs time to start.
	tunedHealing = 3 * time.Minute
)

// phase is the time of an observation.
type phase string

const (
	before    phase = "before"
	applied   phase = "applied"
	persisted phase = "persisted"
	healed    phase = "healed"
	undone    phase = "undone"
)

// proof contains the observations of the node and the reports of the operator, by phase.
type proof struct {
	node   *cluster.Machine
	values map[phase]map[string]string
	etc    map[phase]string
	// advice is by its ID. said contains the warnings at admission and the messages of settings.
	advice map[string]string
	said   []string
	// volumes contains their original mount options.
	volumes map[string][]string
	notes   []string
}

// rows is the proof of the story. prepareDocuments sets it.
var rows *proof

// expectDocumentsApplied declares all rows for one node. It expects everything except the reboot, which requires an approval.
func expectDocumentsApplied(ctx SpecContext) {
	p := rows
	boots := len(watched.boots(p.node.Name))
	p.said = strings.Split(mustKubectl(ctx, "create", "-f", "testdata/documents-profile.yaml"), "\n")
	eventually(ctx, 2*podStart, "the node waits for its reboot, and the volumes have their mount options", func(g Gomega) {
		profile := getProfile(ctx, g, documents)
		g.Expect(conditionOf(g, profile, v1alpha1.ConditionReady).Reason).To(Equal(v1alpha1.ReasonRebootPending))
		g.Expect(profile.Status.Volumes.UpToDate).To(Equal(int32(len(documentsVolumes))))
		g.Expect(getSCN(ctx, g, p.node.Name).Status.RebootRequiredBy).To(Equal([]string{"kernelArgument/ihash_entries"}))
	})
	p.await(ctx, applied, 2*time.Minute)
	for _, said := range getProfile(ctx, Default, documents).Status.Advice {
		p.advice[said.ID] = strings.TrimPrefix(p.advice[said.ID]+" | "+said.Text, " | ")
	}
	p.listen(ctx)
	Expect(watched.boots(p.node.Name)).To(HaveLen(boots), "boots before the approval")
	Expect(p.wrongAt(applied)).To(BeEmpty())
}

func approveDocuments(ctx context.Context) {
	GinkgoHelper()
	mustKubectl(ctx, "patch", "storageclientprofile", documents, "--type=merge", `-p={"spec":{"rollout":{"reboot":{"policy":"Automatic"}}}}`)
}

// expectDocumentsPersisted expects all rows after the reboot.
func expectDocumentsPersisted(ctx SpecContext) {
	p := rows
	eventually(ctx, rebootAll, "the profile of the documents is Ready", func(g Gomega) {
		ready := conditionOf(g, getProfile(ctx, g, documents), v1alpha1.ConditionReady)
		g.Expect(ready.Status).To(Equal(metav1.ConditionTrue), "%s: %s", ready.Reason, ready.Message)
	})
	waitForDocumentsApp(ctx)
	p.await(ctx, persisted, time.Minute)
	p.probe(ctx, persisted)
	p.listen(ctx)
	Expect(p.wrongAt(persisted)).To(BeEmpty())
}

func expectDocumentsHealed(ctx SpecContext) {
	rows.heal(ctx, rows.drift(), "all of it but tuned", healing)
	By("tuned was stopped by hand: it starts in a minute under emulation, and the declared sysctls override its own")
	rows.heal(ctx, "systemctl stop tuned", "tuned", tunedHealing)
	Expect(rows.wrongAt(healed)).To(BeEmpty())
}

// expectDocumentsUndone expects the original values after the profiles are deleted.
func expectDocumentsUndone(ctx SpecContext) {
	p := rows
	remountDocuments(ctx)
	p.await(ctx, undone, time.Minute)
	p.probe(ctx, undone)
	for _, name := range documentsVolumes {
		volume := getVolume(ctx, Default, documents+"-"+name)
		Expect(volume.Spec.MountOptions).To(Equal(p.volumes[name]), "of PersistentVolume %s", volume.Name)
		Expect(operatorAnnotations(volume.Annotations)).To(BeEmpty(), "of PersistentVolume %s", volume.Name)
	}
	Expect(linesBeyond(p.etc[before], p.etc[undone])).To(BeEmpty(), "lines that are missing below /etc")
	Expect(linesBeyond(p.etc[undone], p.etc[before])).To(BeEmpty(), "lines that were added below /etc")
	Expect(p.failures()).To(BeEmpty())
}

// prepareDocuments creates the server's exports, an XFS file system in the node's fstab, and an application with volumes. It reads all
// values of the rows from the node.
func prepareDocuments(ctx SpecContext) {
	p := &proof{node: nodes.Nodes[0], values: map[phase]map[string]string{}, etc: map[phase]string{},
		advice: map[string]string{}, volumes: map[string][]string{}}
	rows = p
	createApp(ctx) // its replicas take half a minute, and start in the meantime
	_, err := nodes.Server.Run(ctx, `
device=$(ip -o -4 address show | awk '/ 10\.99\.0\.13\// {print $2}')
for n in 23 33; do ip address replace 10.99.0.$n/24 dev "$device"; done
fsid=100
for name in large tools eda probe; do
	mkdir -p /srv/documents/$name
	fsid=$((fsid + 1))
	grep -q "^/srv/documents/$name " /etc/exports || echo "/srv/documents/$name *(rw,no_root_squash,no_subtree_check,insecure,fsid=$fsid)" >>/etc/exports
done
truncate -s 128M /srv/documents/probe/data
exportfs -ra
`)
	Expect(err).NotTo(HaveOccurred())
	_, err = p.node.Run(ctx, `
mkdir -p /var/lib/documents /mnt/disks/data /mnt/probe
truncate -s 512M /var/lib/documents/xfs.img
mkfs.xfs -q /var/lib/documents/xfs.img
echo '/var/lib/documents/xfs.img /mnt/disks/data xfs loop,nofail 0 0' >>/etc/fstab
systemctl daemon-reload
systemctl start mnt-disks-data.mount
modprobe sunrpc
`)
	Expect(err).NotTo(HaveOccurred())
	mustKubectl(ctx, "label", "node", p.node.Name, documentsLabel+"=true", "--overwrite")
	mustKubectl(ctx, "create", "-f", "testdata/documents-app.yaml")
	waitForDocumentsApp(ctx)
	for _, name := range documentsVolumes {
		p.volumes[name] = getVolume(ctx, Default, documents+"-"+name).Spec.MountOptions
	}
	p.observe(ctx, before, true)
}

func cleanUpDocuments(ctx context.Context, node *cluster.Machine) {
	GinkgoHelper()
	mustKubectl(ctx, "delete", "--ignore-not-found", "-f", "testdata/documents-app.yaml")
	mustKubectl(ctx, "label", "node", node.Name, documentsLabel+"-")
	_, err := node.Run(ctx, `
systemctl stop mnt-disks-data.mount
sed -i '\|^/var/lib/documents/xfs.img |d' /etc/fstab
systemctl daemon-reload
rm -r /var/lib/documents
rmdir /mnt/disks/data /mnt/disks /mnt/probe
`)
	Expect(err).NotTo(HaveOccurred())
}

func waitForDocumentsApp(ctx context.Context) {
	GinkgoHelper()
	eventually(ctx, podStart, "the application of the documents is ready", func(g Gomega) {
		var pods corev1.PodList
		g.Expect(api.List(ctx, &pods, client.InNamespace(documents))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		g.Expect(isReady(pods.Items[0])).To(BeTrue(), "%+v", pods.Items[0].Status.Conditions)
	})
}

// remountDocuments mounts all volumes of the application again. A new pod next to the old one would share its connections. The first
// mount of a server sets nconnect for as long as any mount of it exists.
func remountDocuments(ctx context.Context) {
	GinkgoHelper()
	mustKubectl(ctx, "scale", "deployment", "-n", documents, documents, "--replicas=0")
	eventually(ctx, podStart, "no pod of the documents is left", func(g Gomega) {
		var pods corev1.PodList
		g.Expect(api.List(ctx, &pods, client.InNamespace(documents))).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	})
	mustKubectl(ctx, "scale", "deployment", "-n", documents, documents, "--replicas=1")
	waitForDocumentsApp(ctx)
}

// expectSixteen declares the 16 connections of document C's example. Its table has no slot limit for them.
func expectSixteen(ctx SpecContext) {
	p := rows
	mustKubectl(ctx, "patch", "storageclientprofile", documents, "--type=json",
		`-p=[{"op": "replace", "path": "/spec/volumes/2/mountOptions/1", "value": "nconnect=16"}]`)
	eventually(ctx, 3*time.Minute, "the volume declares 16 connections, and the node no slot limit", func(g Gomega) {
		g.Expect(getVolume(ctx, g, documents+"-eda").Spec.MountOptions).To(ContainElement("nconnect=16"))
		scn := getSCN(ctx, g, p.node.Name)
		g.Expect(scn.Status.Hash).To(Equal(scn.Spec.Hash))
		g.Expect(scn.Spec.Settings).NotTo(ContainElement(HaveField("Key", "module/sunrpc/tcp_max_slot_table_entries")))
	})
	remountDocuments(ctx)
	values, _ := documentsFacts(ctx, p.node)
	p.notes = append(p.notes, fmt.Sprintf("C16 with nconnect=16: %s connections of nconnect=%s, slots of a connection %s, sunrpc.tcp_max_slot_table_entries=%s.",
		values["eda connections"], values["eda nconnect"], values["eda slots"], values["sunrpc.tcp_max_slot_table_entries"]))
	Expect(values).To(And(HaveKeyWithValue("eda connections", "16"), HaveKeyWithValue("eda nconnect", "16"),
		HaveKeyWithValue("sunrpc.tcp_max_slot_table_entries", p.values[before]["sunrpc.tcp_max_slot_table_entries"])))
}

// observe reads the values from the node, with a probe of a host mount if requested.
func (p *proof) observe(ctx context.Context, at phase, withProbe bool) {
	GinkgoHelper()
	probed := p.values[at]
	p.values[at], p.etc[at] = documentsFacts(ctx, p.node)
	maps.Copy(p.values[at], only(probed, probeKeys))
	if withProbe {
		p.probe(ctx, at)
	}
}

// heal runs a script that causes drift, and waits until the drift is corrected.
func (p *proof) heal(ctx context.Context, script, what string, within time.Duration) {
	GinkgoHelper()
	_, err := p.node.Run(ctx, script)
	Expect(err).NotTo(HaveOccurred())
	since := time.Now()
	p.await(ctx, healed, within)
	p.notes = append(p.notes, fmt.Sprintf("Drift of %s was put right after %.0f s.", what, time.Since(since).Seconds()))
}

// listen saves the node's reports about its settings.
func (p *proof) listen(ctx context.Context) {
	GinkgoHelper()
	for _, setting := range getSCN(ctx, Default, p.node.Name).Status.Settings {
		if setting.Message != "" {
			p.said = append(p.said, fmt.Sprintf("%s %s: %s", setting.Key, setting.State, setting.Message))
		}
	}
}

// linesBeyond returns the lines of a text that the other text lacks.
func linesBeyond(text, other string) []string {
	had := map[string]bool{}
	for _, line := range strings.Split(other, "\n") {
		had[line] = true
	}
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return had[line] })
}

func only(values map[string]string, keys []string) map[string]string {
	out := maps.Clone(values)
	maps.DeleteFunc(out, func(key, _ string) bool { return !slices.Contains(keys, key) })
	return out
}

func (p *proof) probe(ctx context.Context, at phase) {
	GinkgoHelper()
	expectedReadAhead := "15360"
	if at == before || at == undone {
		expectedReadAhead = "128"
	}
	maps.Copy(p.values[at], probe(ctx, p.node, expectedReadAhead))
}

// await reads the values until all are as expected in a phase. The table shows the values that are not in time.
func (p *proof) await(ctx context.Context, at phase, within time.Duration) {
	GinkgoHelper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Second) {
		p.observe(ctx, at, false)
		if wrong := p.wrongAt(at); len(wrong) == 0 || time.Now().After(deadline) {
			By(fmt.Sprintf("%s: %d unexpected values: %s", at, len(wrong), strings.Join(wrong, "; ")))
			return
		}
	}
}
