//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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
	"github.com/storageclient/operator/test/patience"
)

const (
	// csiDrivers labels the spec, and is the name of its profile. Its volumes are in the namespace of the previous spec.
	csiDrivers = "csi"
	// programsVariable names the environment variable with the directory into which run.sh built the drivers from the source trees in
	// CSI_SOURCES.
	programsVariable = "SCO_CSI_PROGRAMS"
	// nodesOnlyAddress is a server address that exports only to the nodes.
	nodesOnlyAddress = "10.99.0.64"

	nfsDriver, smbDriver = "nfs.csi.k8s.io", "smb.csi.k8s.io"
	smbSecret            = "share"
	// nfsClass and smbClass are the StorageClasses whose volumes the drivers provision.
	nfsClass, smbClass = "nfs-provisioned", "smb-provisioned"
)

var (
	csiPrograms = map[string]string{nfsDriver: "nfsplugin", smbDriver: "smbplugin"}
	smbOptions  = []string{"vers=3.0", "uid=1000"}
)

// expectDrivers applies a profile to existing and new volumes of real drivers. A probe in a separate network namespace tests NFS. SMB, and an NFS
// server that accepts only nodes, have no probe that works: a pod must mount the first volume. The spec also covers the restore.
func expectDrivers(ctx SpecContext) {
	startDriversOrSkip(ctx)
	serveSMB(ctx)
	serveEvidence(ctx)
	serveNodesOnly(ctx)
	DeferCleanup(func(ctx context.Context) {
		mustKubectl(ctx, "delete", "storageclientprofile", csiDrivers, "--ignore-not-found", "--timeout=90s")
		cleanUpEvidence(ctx)
	}, NodeTimeout(patience.Of(8*time.Minute)))
	mustKubectl(ctx, "create", "namespace", evident)
	mustKubectl(ctx, "create", "secret", "generic", smbSecret, "-n", evident, "--from-literal=username=share", "--from-literal=password=share")
	node, other := nodes.Nodes[0], nodes.Nodes[1]
	createEvident(ctx, "nfs-old", csiNFS(cluster.ServerAddress, "/srv/evidence/a"), evidentOptions, "")
	createEvident(ctx, "nfs-closed", csiNFS(nodesOnlyAddress, "/srv/nodes-only"), evidentOptions, "")
	createEvident(ctx, "smb-old", csiSMB("smb-old"), smbOptions, "")
	createEvident(ctx, "smb-older", csiSMB("smb-older"), smbOptions, "")
	mustKubectl(ctx, "create", "-f", "testdata/csi-classes.yaml")
	claimProvisioned(ctx, "nfs-provisioned-old", nfsClass)
	claimProvisioned(ctx, "smb-provisioned-old", smbClass)
	old := []string{"nfs-old", "nfs-closed", "smb-old", "smb-older", "nfs-provisioned-old", "smb-provisioned-old"}
	for _, name := range old {
		createPod(ctx, name, node.Name)
	}
	waitUntilAllRun(ctx, old...)
	pods := podsOf(ctx)

	mustKubectl(ctx, "create", "-f", "testdata/csi.yaml")
	expectWrittenInTurn(ctx, pods)
	expectNewOfDrivers(ctx, other)

	originals := map[string][]string{"nfs-old": evidentOptions, "nfs-closed": evidentOptions, "nfs-new": evidentOptions, "smb-old": smbOptions, "smb-older": smbOptions, "smb-new": smbOptions}
	for _, age := range []string{"old", "new"} {
		originals[volumeOf(ctx, Default, "nfs-provisioned-"+age)], originals[volumeOf(ctx, Default, "smb-provisioned-"+age)] = evidentOptions, smbOptions
	}
	mustKubectl(ctx, "delete", "storageclientprofile", csiDrivers, "--wait=false")
	waitUntilGone(ctx, podStart, csiDrivers)
	for name, options := range originals {
		volume := getVolume(ctx, Default, name)
		Expect(volume.Spec.MountOptions).To(Equal(options), name)
		Expect(operatorAnnotations(volume.Annotations)).To(BeEmpty(), name)
	}
}

// startDriversOrSkip installs the operator and runs the drivers if their source trees are available.
func startDriversOrSkip(ctx context.Context) {
	GinkgoHelper()
	dir := os.Getenv(programsVariable)
	if dir == "" {
		Skip("CSI_SOURCES is not set: the CSI drivers of NFS and SMB are NOT tried. Set it to a directory with the source trees csi-driver-nfs, csi-driver-smb and external-provisioner")
	}
	installOperator(ctx)
	if !driversStarted {
		startDrivers(ctx, dir)
		driversStarted = true
	}
}

var driversStarted bool

// serveNodesOnly adds an address to the server. Its export accepts the nodes, but not their pods' network.
func serveNodesOnly(ctx context.Context) {
	GinkgoHelper()
	_, err := nodes.Server.Run(ctx, fmt.Sprintf(`
mkdir -p /srv/nodes-only
grep -q '^/srv/nodes-only ' /etc/exports || echo '/srv/nodes-only 10.99.0.0/24(rw,no_root_squash,no_subtree_check,fsid=77)' >>/etc/exports
exportfs -ra
device=$(ip -o -4 address show | awk '/ 10\.99\.0\.13\// {print $2}')
ip address replace %s/24 dev "$device"
`, nodesOnlyAddress))
	Expect(err).NotTo(HaveOccurred())
}

func csiNFS(server, share string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: nfsDriver, VolumeHandle: server + share,
		VolumeAttributes: map[string]string{"server": server, "share": share}}}
}

func csiSMB(handle string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: smbDriver, VolumeHandle: handle,
		VolumeAttributes:   map[string]string{"source": "//" + cluster.ServerAddress + "/share"},
		NodeStageSecretRef: &corev1.SecretReference{Namespace: evident, Name: smbSecret}}}
}

// startDriver runs a driver, and the registrar that registers it with the kubelet.
const startDriver = `mkdir -p PLUGIN
systemd-run --quiet --collect --unit=PROGRAM --setenv=PATH=/usr/sbin:/usr/bin:/sbin:/bin PROGRAM --endpoint=unix://PLUGIN/csi.sock --nodeid=NODE -v=2
until [ -S PLUGIN/csi.sock ]; do sleep 0.2; done
systemd-run --quiet --collect --unit=PROGRAM-registrar registrar /var/lib/kubelet/plugins_registry/DRIVER-reg.sock DRIVER PLUGIN/csi.sock
`

// startDrivers runs both drivers on each node, and registers them with its kubelet.
func startDrivers(ctx context.Context, dir string) {
	GinkgoHelper()
	mustKubectl(ctx, "create", "-f", "testdata/csi-drivers.yaml")
	for _, m := range nodes.Members() {
		Expect(m.Copy(ctx, findProgram("registrar"), "/usr/local/bin/registrar")).To(Succeed())
		start := startDriver
		if m == nodes.Nodes[0] {
			start += provisioner
			Expect(m.Copy(ctx, filepath.Join(dir, "csi-provisioner"), "/usr/local/bin/csi-provisioner")).To(Succeed())
			Expect(m.Copy(ctx, dirs.Kubeconfig(), "/run/provisioner.kubeconfig")).To(Succeed())
		}
		for driver, program := range csiPrograms {
			Expect(m.Copy(ctx, filepath.Join(dir, program), "/usr/local/bin/"+program)).To(Succeed())
			plugin := "/var/lib/kubelet/plugins/" + driver
			_, err := m.Run(ctx, strings.NewReplacer("PLUGIN", plugin, "PROGRAM", program, "DRIVER", driver, "NODE", m.Name).Replace(start))
			Expect(err).NotTo(HaveOccurred())
		}
	}
	eventually(ctx, 2*time.Minute, "both drivers are registered with all kubelets", func(g Gomega) {
		for _, m := range nodes.Members() {
			known := mustKubectl(ctx, "get", "csinode", m.Name, "-o", "jsonpath={.spec.drivers[*].name}")
			g.Expect(strings.Fields(known)).To(ConsistOf(nfsDriver, smbDriver), m.Name)
		}
	})
}

// provisioner runs next to each driver of one node, and creates the volumes' directories on the server.
const provisioner = `systemd-run --quiet --collect --unit=PROGRAM-provisioner --setenv=PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	csi-provisioner --csi-address=PLUGIN/csi.sock --kubeconfig=/run/provisioner.kubeconfig --extra-create-metadata --timeout=60s -v=2
`

// claimProvisioned creates a claim of a StorageClass, and waits until its driver has created the volume.
func claimProvisioned(ctx context.Context, name, class string) {
	GinkgoHelper()
	Expect(api.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: evident}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: evidentSize},
	}})).To(Succeed())
	eventually(ctx, podStart, "class "+class+" has provisioned a volume for "+name, func(g Gomega) {
		g.Expect(volumeOf(ctx, g, name)).NotTo(BeEmpty())
	})
}

// volumeOf returns the name of a claim's volume once it is bound.
func volumeOf(ctx context.Context, g Gomega, name string) string {
	GinkgoHelper()
	var volumeClaim corev1.PersistentVolumeClaim
	g.Expect(api.Get(ctx, client.ObjectKey{Namespace: evident, Name: name}, &volumeClaim)).To(Succeed())
	return volumeClaim.Spec.VolumeName
}

// driverMounts returns the options and connections of the mounts of a volume below the kubelet's directory, on the server's side of bind
// mounts.
func driverMounts(ctx context.Context, m *cluster.Machine, fsType, at string) string {
	GinkgoHelper()
	out, err := m.Run(ctx, "awk '$3 ~ /"+fsType+"/ && $2 ~ /"+at+"/ {print $4}' /proc/mounts")
	Expect(err).NotTo(HaveOccurred())
	return out
}

// expectWrittenInTurn expects the options on all NFS volumes, and on one SMB volume, while no pod restarts. After a new pod has mounted that volume,
// the other SMB volumes get them.
func expectWrittenInTurn(ctx context.Context, pods map[string]string) {
	GinkgoHelper()
	smb := map[string]string{"smb-old": "smb-old", "smb-older": "smb-older", volumeOf(ctx, Default, "smb-provisioned-old"): "smb-provisioned-old"}
	canary := ""
	eventually(ctx, probedWithin, "all NFS volumes and one SMB volume have their mount options", func(g Gomega) {
		for name, list := range optionsOf(ctx, g, "nfs-old", "nfs-closed", volumeOf(ctx, g, "nfs-provisioned-old")) {
			g.Expect(list).To(Equal("vers=4.2,hard,actimeo=30,nconnect=4"), name)
		}
		written := writtenSMB(ctx, g, smb)
		g.Expect(written).To(HaveLen(1))
		canary = written[0]
	})
	Expect(podsOf(ctx)).To(Equal(pods), "pods, and their restart counts")
	for _, name := range []string{canary, "nfs-closed"} {
		By(name + ": " + getVolume(ctx, Default, name).Annotations[v1alpha1.MountOptionsStepAnnotation])
	}
	mustKubectl(ctx, "delete", "pod", "-n", evident, smb[canary])
	createPod(ctx, smb[canary], nodes.Nodes[0].Name)
	waitUntilAllRun(ctx, smb[canary])
	eventually(ctx, probedWithin, "all SMB volumes have their mount options", func(g Gomega) {
		g.Expect(writtenSMB(ctx, g, smb)).To(HaveLen(len(smb)))
	})
	expectNoTrial(ctx)
}

// writtenSMB returns the SMB volumes that have the declared options. Volumes are the keys of pods.
func writtenSMB(ctx context.Context, g Gomega, pods map[string]string) (written []string) {
	for name, list := range optionsOf(ctx, g, slices.Collect(maps.Keys(pods))...) {
		if list == "vers=3.0,uid=1000,actimeo=30" {
			written = append(written, name)
		}
	}
	return written
}

// expectNewOfDrivers creates a volume of each driver with its pod, which writes to it.
func expectNewOfDrivers(ctx context.Context, node *cluster.Machine) {
	GinkgoHelper()
	createEvident(ctx, "nfs-new", csiNFS(cluster.ServerAddress, "/srv/evidence/b"), evidentOptions, "")
	createEvident(ctx, "smb-new", csiSMB("smb-new"), smbOptions, "")
	claimProvisioned(ctx, "nfs-provisioned-new", nfsClass)
	claimProvisioned(ctx, "smb-provisioned-new", smbClass)
	names := []string{"nfs-new", "smb-new", "nfs-provisioned-new", "smb-provisioned-new"}
	for _, name := range names {
		createPod(ctx, name, node.Name)
	}
	waitUntilAllRun(ctx, names...)
	for _, volume := range []string{"nfs-new", volumeOf(ctx, Default, "nfs-provisioned-new")} {
		Expect(driverMounts(ctx, node, "nfs4", volume)).To(And(ContainSubstring("nconnect=4"), ContainSubstring("acregmin=30,acregmax=30")))
	}
	Expect(strings.Fields(driverMounts(ctx, node, "cifs", "globalmount"))).To(And(HaveLen(2), HaveEach(ContainSubstring("actimeo=30"))))
	for _, name := range names {
		mustKubectl(ctx, "exec", "-n", evident, name, "--", "/workload", "write", "/data/written", name)
		Expect(mustKubectl(ctx, "exec", "-n", evident, name, "--", "/workload", "cat", "/data/written")).To(Equal(name))
	}
}
