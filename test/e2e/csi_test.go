//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const (
	// csiDrivers labels the spec, and is the name of its profile. Its volumes are in the namespace of the spec before it.
	csiDrivers = "csi"
	// driversVariable names a directory with the drivers' programs. They are no modules that the project can build.
	driversVariable = "CSI_DRIVERS"

	nfsDriver, smbDriver = "nfs.csi.k8s.io", "smb.csi.k8s.io"
	smbSecret            = "share"
)

var (
	csiPrograms = map[string]string{nfsDriver: "nfsplugin", smbDriver: "smbplugin"}
	smbOptions  = []string{"vers=3.0", "uid=1000"}
)

// expectDrivers plays a profile against the drivers themselves: volumes that are there and new ones, of NFS by a probe and of SMB by a
// pod's mount, a list that mount.cifs refuses, and the way back.
func expectDrivers(ctx SpecContext) {
	dir := os.Getenv(driversVariable)
	if dir == "" {
		Skip(driversVariable + " is not set: the CSI drivers of NFS and SMB are NOT tried. Set it to a directory with nfsplugin and smbplugin, built for linux/amd64")
	}
	installOperator(ctx)
	startDrivers(ctx, dir)
	serveSMB(ctx)
	serveEvidence(ctx)
	DeferCleanup(func(ctx context.Context) {
		mustKubectl(ctx, "delete", "storageclientprofile", csiDrivers, "--ignore-not-found", "--timeout=90s")
		cleanUpEvidence(ctx)
	}, NodeTimeout(6*time.Minute))
	mustKubectl(ctx, "create", "namespace", evident)
	mustKubectl(ctx, "create", "secret", "generic", smbSecret, "-n", evident, "--from-literal=username=share", "--from-literal=password=share")
	node, other := nodes.Nodes[0], nodes.Nodes[1]
	createEvident(ctx, "nfs-old", csiNFS("a"), evidentOptions, "")
	createEvident(ctx, "smb-old", csiSMB("smb-old"), smbOptions, "")
	createEvident(ctx, "smb-older", csiSMB("smb-older"), smbOptions, "")
	for _, name := range []string{"nfs-old", "smb-old", "smb-older"} {
		createPod(ctx, name, node.Name)
	}
	waitUntilAllRun(ctx, "nfs-old", "smb-old", "smb-older")
	pods := podsOf(ctx)

	mustKubectl(ctx, "create", "-f", "testdata/csi.yaml")
	expectProbedAndAwaited(ctx, node, pods)
	expectNewOfDrivers(ctx, other)
	expectRefusedByDriver(ctx, other)

	mustKubectl(ctx, "delete", "storageclientprofile", csiDrivers, "--wait=false")
	waitUntilGone(ctx, podStart, csiDrivers)
	for name, options := range map[string][]string{"nfs-old": evidentOptions, "nfs-new": evidentOptions, "smb-old": smbOptions, "smb-older": smbOptions, "smb-new": smbOptions, "smb-bad": smbOptions} {
		volume := getVolume(ctx, Default, name)
		Expect(volume.Spec.MountOptions).To(Equal(options), name)
		Expect(ours(volume.Annotations)).To(BeEmpty(), name)
	}
}

func csiNFS(dir string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: nfsDriver, VolumeHandle: "nfs-" + dir,
		VolumeAttributes: map[string]string{"server": cluster.ServerAddress, "share": "/srv/evidence/" + dir}}}
}

func csiSMB(handle string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: smbDriver, VolumeHandle: handle,
		VolumeAttributes:   map[string]string{"source": "//" + cluster.ServerAddress + "/share"},
		NodeStageSecretRef: &corev1.SecretReference{Namespace: evident, Name: smbSecret}}}
}

// startDrivers runs both drivers on each node, and makes them known to its kubelet.
func startDrivers(ctx context.Context, dir string) {
	GinkgoHelper()
	registrar := filepath.Join(GinkgoT().TempDir(), "registrar")
	build := exec.CommandContext(ctx, "go", "build", "-o", registrar, "./registrar")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	mustKubectl(ctx, "create", "-f", "testdata/csi-drivers.yaml")
	for _, m := range nodes.Nodes {
		Expect(m.Copy(ctx, registrar, "/usr/local/bin/registrar")).To(Succeed())
		for driver, program := range csiPrograms {
			Expect(m.Copy(ctx, filepath.Join(dir, program), "/usr/local/bin/"+program)).To(Succeed())
			plugin := "/var/lib/kubelet/plugins/" + driver
			_, err := m.Run(ctx, strings.NewReplacer("PLUGIN", plugin, "PROGRAM", program, "DRIVER", driver, "NODE", m.Name).Replace(`
mkdir -p PLUGIN
systemd-run --quiet --collect --unit=PROGRAM --setenv=PATH=/usr/sbin:/usr/bin:/sbin:/bin PROGRAM --endpoint=unix://PLUGIN/csi.sock --nodeid=NODE -v=2
until [ -S PLUGIN/csi.sock ]; do sleep 0.2; done
systemd-run --quiet --collect --unit=PROGRAM-registrar registrar /var/lib/kubelet/plugins_registry/DRIVER-reg.sock DRIVER PLUGIN/csi.sock
`))
			Expect(err).NotTo(HaveOccurred())
		}
	}
	eventually(ctx, 2*time.Minute, "both kubelets know both drivers", func(g Gomega) {
		for _, m := range nodes.Nodes {
			known := mustKubectl(ctx, "get", "csinode", m.Name, "-o", "jsonpath={.spec.drivers[*].name}")
			g.Expect(strings.Fields(known)).To(ConsistOf(nfsDriver, smbDriver), m.Name)
		}
	})
}

// driverMounts are the options and connections of the mounts of a volume below the kubelet's directory, on the server's side of binds.
func driverMounts(ctx context.Context, m *cluster.Machine, fsType, at string) string {
	GinkgoHelper()
	out, err := m.Run(ctx, "awk '$3 ~ /"+fsType+"/ && $2 ~ /"+at+"/ {print $4}' /proc/mounts")
	Expect(err).NotTo(HaveOccurred())
	return out
}

// expectProbedAndAwaited has the volume of NFS written by a probe, and one of SMB, whose pod is started anew to show the list to work.
func expectProbedAndAwaited(ctx context.Context, node *cluster.Machine, pods map[string]string) {
	GinkgoHelper()
	first := ""
	eventually(ctx, probedWithin, "the volume of NFS has its list, and one of SMB", func(g Gomega) {
		g.Expect(getVolume(ctx, g, "nfs-old").Spec.MountOptions).To(Equal(slices.Concat(evidentOptions, probedOptions)))
		var written []string
		for name, list := range optionsOf(ctx, g, "smb-old", "smb-older") {
			if strings.Contains(list, "actimeo=30") {
				written = append(written, name)
			}
		}
		g.Expect(written).To(HaveLen(1))
		first = written[0]
		reconciling := conditionOf(g, getProfile(ctx, g, csiDrivers), v1alpha1.ConditionReconciling)
		g.Expect(reconciling.Reason).To(Equal(v1alpha1.ReasonWaitingForEvidence), reconciling.Message)
	})
	By(conditionOf(Default, getProfile(ctx, Default, csiDrivers), v1alpha1.ConditionReconciling).Message)
	Expect(podsOf(ctx)).To(Equal(pods), "no pod restarts")
	mustKubectl(ctx, "delete", "pod", "-n", evident, first)
	createPod(ctx, first, node.Name)
	waitUntilAllRun(ctx, first)
	eventually(ctx, 4*time.Minute, "both volumes of SMB have the list", func(g Gomega) {
		// The counters of SMB are its share's: only what is done while the mount is watched shows that it works.
		mustKubectl(ctx, "exec", "-n", evident, first, "--", "/workload", "write", "/data/used", first)
		for name, list := range optionsOf(ctx, g, "smb-old", "smb-older") {
			g.Expect(list).To(Equal("vers=3.0,uid=1000,actimeo=30"), name)
		}
	})
}

// expectNewOfDrivers creates a volume of each driver with its pod, which writes to it.
func expectNewOfDrivers(ctx context.Context, node *cluster.Machine) {
	GinkgoHelper()
	createEvident(ctx, "nfs-new", csiNFS("b"), evidentOptions, "")
	createEvident(ctx, "smb-new", csiSMB("smb-new"), smbOptions, "")
	for _, name := range []string{"nfs-new", "smb-new"} {
		createPod(ctx, name, node.Name)
	}
	waitUntilAllRun(ctx, "nfs-new", "smb-new")
	Expect(driverMounts(ctx, node, "nfs4", "nfs-new")).To(And(ContainSubstring("nconnect=4"), ContainSubstring("acregmin=30,acregmax=30")))
	Expect(driverMounts(ctx, node, "cifs", "globalmount")).To(ContainSubstring("actimeo=30"))
	for _, name := range []string{"nfs-new", "smb-new"} {
		mustKubectl(ctx, "exec", "-n", evident, name, "--", "/workload", "write", "/data/written", name)
		Expect(mustKubectl(ctx, "exec", "-n", evident, name, "--", "/workload", "cat", "/data/written")).To(Equal(name))
	}
}

// expectRefusedByDriver has the profile declare for SMB what the nodes' kernel does not know, and a new volume get it.
func expectRefusedByDriver(ctx context.Context, node *cluster.Machine) {
	GinkgoHelper()
	mustKubectl(ctx, "patch", "storageclientprofile", csiDrivers, "--type=json", `-p=[{"op": "replace", "path": "/spec/volumes/1/mountOptions", "value": ["retrans=3"]}]`)
	expectFromWebhook(ctx, evidentVolume("smb-bad", csiSMB("smb-bad"), smbOptions, ""), "retrans=3")
	createEvident(ctx, "smb-bad", csiSMB("smb-bad"), smbOptions, "")
	createPod(ctx, "smb-bad", node.Name)
	eventually(ctx, 8*time.Minute, "the new volume has its own list back, and its pod runs", func(g Gomega) {
		g.Expect(getVolume(ctx, g, "smb-bad").Spec.MountOptions).To(Equal(smbOptions))
		stalled := conditionOf(g, getProfile(ctx, g, csiDrivers), v1alpha1.ConditionStalled)
		g.Expect(stalled.Status).To(Equal(metav1.ConditionTrue), stalled.Message)
		g.Expect(stalled.Message).To(ContainSubstring("smb-bad"))
	})
	By(conditionOf(Default, getProfile(ctx, Default, csiDrivers), v1alpha1.ConditionStalled).Message)
	waitUntilAllRun(ctx, "smb-bad")
}
