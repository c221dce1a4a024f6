//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const (
	// mountOptions labels the spec, and is the name of its profile and namespace.
	mountOptions = "mount-options"
	// volumesPerPod is the number of volumes that one pod mounts.
	volumesPerPod = 20
)

// variant is a combination of mount options with its own mount.
type variant struct {
	protocol mountoptions.Protocol
	index    int
	list     []string
	// refusal is the error message of mount. Empty if the mount succeeded.
	refusal string
	// device is the block device of an XFS volume.
	device string
	// observed contains the effective options from the kernel, reported the options in the StorageClientNode.
	observed, reported []string
	// options contains the cases whose options the list combines. Nil for a single case.
	options []optionCase
}

// variants contains the distinct lists of a protocol's cases, by the text of the list.
type variants struct {
	protocol mountoptions.Protocol
	byList   map[string]*variant
	all      []*variant
}

func variantsOf(p mountoptions.Protocol) *variants {
	v := &variants{protocol: p, byList: map[string]*variant{}}
	for _, c := range casesOf(p) {
		v.add(c.wanted())
		if c.noOther == "" {
			v.add(c.without())
		}
	}
	return v
}

func (v *variants) add(list []string) {
	key := strings.Join(list, ",")
	if v.byList[key] == nil {
		v.byList[key] = &variant{protocol: v.protocol, index: len(v.all), list: list}
		v.all = append(v.all, v.byList[key])
	}
}

func (v *variants) of(list []string) *variant { return v.byList[strings.Join(list, ",")] }

// together combines the options that the kernel accepts into as few lists as possible, without conflicts within a list. A mount by a
// kubelet takes seconds under emulation.
func (v *variants) together() *variants {
	out := &variants{protocol: v.protocol, byList: map[string]*variant{}}
	for _, c := range casesOf(v.protocol) {
		if v.of(c.wanted()).refusal != "" {
			continue
		}
		at := slices.IndexFunc(out.all, func(group *variant) bool { return group.takes(c) })
		if at < 0 {
			at = len(out.all)
			out.all = append(out.all, &variant{protocol: v.protocol, index: 500 + at, list: slices.Clone(c.needs)})
		}
		group := out.all[at]
		group.list, group.options = append(group.list, c.option), append(group.options, c)
	}
	return out
}

// combinationsPerProtocol is the number of lists of several options that are mounted by hand.
const combinationsPerProtocol = 70

// combinations returns lists of two to six options that the kernel accepts one by one, in random order: options that add up, reset each other or
// include each other. The seed is fixed. A list has at most one version, and no option that the first mount of an address fixes.
func (v *variants) combinations() *variants {
	var pool []string
	for _, c := range casesOf(v.protocol) {
		if v.of(c.wanted()).refusal == "" && !fixesConnections(c.wanted()) {
			pool = lists.AddMissing(pool, c.wanted()...)
		}
	}
	out := &variants{protocol: v.protocol, byList: map[string]*variant{}}
	chance := rand.New(rand.NewPCG(35, 0))
	for len(out.all) < combinationsPerProtocol {
		var list []string
		for range 2 + chance.IntN(5) {
			list = append(list, pool[chance.IntN(len(pool))])
		}
		if len(v.protocol.Refused(list)) == 0 && out.of(list) == nil {
			out.add(list)
			out.all[len(out.all)-1].index += 800
		}
	}
	return out
}

// wrong returns a line for each mounted list that the engine reads in another way than the kernel, and prints the numbers.
func (v *variants) wrong() (out []string) {
	mounted := 0
	for _, one := range v.all {
		if one.refusal != "" {
			fmt.Printf("%s, rejected: %s: %s\n", v.protocol, strings.Join(one.list, ","), one.refusal)
			continue
		}
		mounted++
		for _, d := range v.protocol.Compare(one.list, one.observed) {
			if !d.Limited {
				out = append(out, fmt.Sprintf("%s, a mount with %s: %s; shown: %s", v.protocol, strings.Join(one.list, ","), d, strings.Join(one.observed, ",")))
			}
		}
	}
	fmt.Printf("%s: %d of %d lists of several options were mounted, %d differences\n", v.protocol, mounted, len(v.all), len(out))
	return out
}

// takes reports whether an option can join a list. Options that affect connections stay alone.
func (v *variant) takes(c optionCase) bool {
	return !fixesConnections(v.list) && !fixesConnections(c.wanted()) && slices.Equal(v.options[0].needs, c.needs) &&
		!slices.ContainsFunc(v.options, c.clashes)
}

func fixesConnections(list []string) bool {
	return slices.ContainsFunc(list, func(o string) bool { return strings.HasPrefix(o, "nconnect=") || strings.HasSuffix(o, "resvport") })
}

func (v *variant) volume() string {
	return fmt.Sprintf("%s-%03d", strings.ToLower(string(v.protocol)), v.index)
}

// server is the address to mount from. An option that the first mount of an address fixes has its own address.
func (v *variant) server() string {
	if fixesConnections(v.list) {
		return fmt.Sprintf("10.99.0.%d", 100+v.index%100)
	}
	return cluster.ServerAddress
}

// expectMountOptions mounts every option of the engine that the kernel accepts. The engine then evaluates the mounts that the kernel
// shows. It uses the node without a manager of the operator.
func expectMountOptions(ctx SpecContext) {
	installOperator(ctx)
	node := nodes.Small
	DeferCleanup(cleanUpMountOptions, node, NodeTimeout(patience.Of(4*time.Minute)))
	for _, p := range []mountoptions.Protocol{mountoptions.NFS, mountoptions.XFS, mountoptions.SMB} {
		Expect(untried(p)).To(BeEmpty(), "options of %s without a case", p)
	}
	mustKubectl(ctx, "create", "namespace", mountOptions)
	Expect(api.Create(ctx, &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: mountOptions},
		Spec: v1alpha1.StorageClientProfileSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node.Name}}}})).To(Succeed())

	var judgements []*judgement
	nfs := variantsOf(mountoptions.NFS)
	exportVariants(ctx, nfs)
	By(fmt.Sprintf("%d NFS option lists, mounted by hand on %s: which does its kernel reject?", len(nfs.all), node.Name))
	byHand := func(v *variant) string {
		return fmt.Sprintf("mount -t nfs -o %s %s:/srv/mount-options/%s /mnt/mount-options", strings.Join(v.list, ","), v.server(), v.volume())
	}
	try(ctx, node, nfs, byHand)
	nfsCombined := nfs.combinations()
	exportVariants(ctx, nfsCombined)
	By(fmt.Sprintf("%d lists of several NFS options, mounted by hand", len(nfsCombined.all)))
	try(ctx, node, nfsCombined, byHand)
	wrong := nfsCombined.wrong()
	nfsTogether := nfs.together()
	By(fmt.Sprintf("the accepted options, as %d lists, mounted by the kubelet through PersistentVolumes", len(nfsTogether.all)))
	exportVariants(ctx, nfsTogether)
	mountByKubelet(ctx, node, nfsTogether)
	judgements = append(judgements, evaluate(nfs, nfsTogether))

	xfs := variantsOf(mountoptions.XFS)
	By(fmt.Sprintf("%d XFS option lists, mounted by hand", len(xfs.all)))
	_, err := node.Run(ctx, `
mkdir -p /var/lib/mount-options
cd /var/lib/mount-options
truncate -s 64M one
mkfs.xfs --unsupported -q one
losetup --find --show one >one.device
`)
	Expect(err).NotTo(HaveOccurred())
	ofXFS := func(v *variant) string {
		return "mount -t xfs " + optionFlag(v.list) + " $(cat /var/lib/mount-options/one.device) /mnt/mount-options"
	}
	try(ctx, node, xfs, ofXFS)
	xfsCombined := xfs.combinations()
	By(fmt.Sprintf("%d lists of several XFS options, mounted by hand", len(xfsCombined.all)))
	try(ctx, node, xfsCombined, ofXFS)
	wrong = append(wrong, xfsCombined.wrong()...)
	xfsTogether := xfs.together()
	makeDisks(ctx, node, xfsTogether)
	By(fmt.Sprintf("the accepted options, as %d lists, mounted by the kubelet through local volumes", len(xfsTogether.all)))
	mountByKubelet(ctx, node, xfsTogether)
	judgements = append(judgements, evaluate(xfs, xfsTogether))

	By("SMB, mounted only by hand: the kubelet has no plugin for it")
	serveSMB(ctx)
	smb := variantsOf(mountoptions.SMB)
	ofSMB := func(v *variant) string {
		return "mount -t cifs -o " + strings.Join(append([]string{"username=share,password=share"}, v.list...), ",") + " //" + cluster.ServerAddress + "/share /mnt/mount-options"
	}
	try(ctx, node, smb, ofSMB)
	judgements = append(judgements, evaluate(smb, nil))
	smbCombined := smb.combinations()
	By(fmt.Sprintf("%d lists of several SMB options, mounted by hand", len(smbCombined.all)))
	try(ctx, node, smbCombined, ofSMB)
	wrong = append(wrong, smbCombined.wrong()...)

	for _, j := range judgements {
		wrong = append(wrong, j.wrong()...)
	}
	Expect(wrong).To(BeEmpty())
}

func optionFlag(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return "-o " + strings.Join(list, ",")
}

// untried returns the options that the engine knows and a profile may contain, but that no case covers.
func untried(p mountoptions.Protocol) []string {
	var out []string
	for _, known := range p.Known() {
		tried := func(c optionCase) bool { return c.name() == known.Name }
		if known.Rejected == "" && !slices.ContainsFunc(casesOf(p), tried) {
			out = append(out, known.Name)
		}
	}
	return out
}

// exportVariants gives each list its own export, which is a separate file system to the client. Mounts of one file system share a
// superblock if the kernel ignores the difference in their options. They would then show each other's options.
func exportVariants(ctx context.Context, v *variants) {
	GinkgoHelper()
	var script strings.Builder
	script.WriteString("device=$(ip -o -4 address show | awk '/ 10\\.99\\.0\\.13\\// {print $2}')\n")
	for _, one := range v.all {
		if one.server() != cluster.ServerAddress {
			fmt.Fprintf(&script, "ip address replace %s/24 dev \"$device\"\n", one.server())
		}
		fmt.Fprintf(&script, "mkdir -p /srv/mount-options/%s\n", one.volume())
		fmt.Fprintf(&script, "echo '/srv/mount-options/%s *(rw,no_root_squash,no_subtree_check,insecure,sec=sys:none,fsid=%d)' >>/etc/exports\n", one.volume(), 1000+one.index)
	}
	script.WriteString("exportfs -ra\n")
	_, err := nodes.Server.Run(ctx, script.String())
	Expect(err).NotTo(HaveOccurred())
}

// serveSMB starts a Samba server on the machine of the NFS server.
func serveSMB(ctx context.Context) {
	GinkgoHelper()
	_, err := nodes.Server.Run(ctx, `
mkdir -p /srv/share
id share >/dev/null 2>&1 || useradd --no-create-home share
cat >/etc/samba/smb.conf <<CONF
[global]
  server role = standalone server
  server min protocol = SMB2_10
  server multi channel support = yes
  disable netbios = yes
  smb ports = 445
  load printers = no
[share]
  path = /srv/share
  read only = no
  force user = root
CONF
printf 'share\nshare\n' | smbpasswd -s -a share
systemctl start smbd
`)
	Expect(err).NotTo(HaveOccurred())
}

// try mounts each list by hand, one after the other. It saves the options that the kernel shows, or the error message. Every process of
// the script takes time under emulation.
func try(ctx context.Context, node *cluster.Machine, v *variants, command func(*variant) string) {
	GinkgoHelper()
	for chunk := range slices.Chunk(v.all, 25) {
		var script strings.Builder
		script.WriteString(`
mkdir -p /mnt/mount-options
try() {
	printf '\n=== %s\n' "$1"
	if out=$(eval "timeout 40 $2" 2>&1); then
		while read -r _ point _ options _; do
			[ "$point" != /mnt/mount-options ] || echo "mounts $options"
		done </proc/mounts
		on=
		while read -r first options _ _ point _; do
			if [ "$first" = device ]; then on=$point; fi
			[ "$first $on" != "opts: /mnt/mount-options" ] || echo "stats $options"
		done </proc/self/mountstats
		umount -i /mnt/mount-options
	else
		echo "refused $(echo "$out" | tr '\n' ' '); kernel: $(dmesg | tail -n 1)"
	fi
}
`)
		for _, one := range chunk {
			fmt.Fprintf(&script, "try %s '%s'\n", one.volume(), command(one))
		}
		answers := sectionsOf(ctx, node, script.String())
		for _, one := range chunk {
			Expect(answers).To(HaveKey(one.volume()))
			one.take(answers[one.volume()])
		}
	}
}

func (v *variant) take(output string) {
	var stats, mounts []string
	for line := range strings.Lines(output) {
		kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "refused":
			v.refusal = text
		case "stats":
			stats = strings.Split(text, ",")
		case "mounts":
			mounts = strings.Split(text, ",")
		}
	}
	v.observed = joined(stats, mounts)
	if v.refusal == "" && len(v.observed) == 0 {
		v.refusal = "mount reported no error, but mounted no file system: " + output
	}
}

// joined adds the flags of a mount to the options of its superblock.
func joined(stats, mounts []string) []string {
	all := slices.Clone(stats)
	for _, o := range mounts {
		if !slices.Contains(all, o) && (o != "rw" || !slices.Contains(all, "ro")) {
			all = append(all, o)
		}
	}
	return all
}

// makeDisks creates a file system for each list of XFS, each on its own loop device.
func makeDisks(ctx context.Context, node *cluster.Machine, v *variants) {
	GinkgoHelper()
	for chunk := range slices.Chunk(v.all, 25) {
		var script strings.Builder
		script.WriteString("cd /var/lib/mount-options\n")
		for _, one := range chunk {
			fmt.Fprintf(&script, "truncate -s 64M %[1]s\nmkfs.xfs --unsupported -q %[1]s >/dev/null 2>&1\nprintf '\\n=== %[1]s\\n'\nlosetup --find --show %[1]s\n", one.volume())
		}
		devices := sectionsOf(ctx, node, script.String())
		for _, one := range chunk {
			one.device = devices[one.volume()]
			Expect(one.device).To(HavePrefix("/dev/loop"))
		}
	}
}

// mountByKubelet mounts every list that the kernel accepts through a PersistentVolume, and reads the effective options.
func mountByKubelet(ctx context.Context, node *cluster.Machine, v *variants) {
	GinkgoHelper()
	number := 0
	for chunk := range slices.Chunk(v.all, volumesPerPod) {
		number++
		pod := podOf(fmt.Sprintf("%s-%d", strings.ToLower(string(v.protocol)), number), node.Name)
		for _, one := range chunk {
			Expect(api.Create(ctx, one.persistentVolume(node.Name))).To(Succeed())
			Expect(api.Create(ctx, one.claim())).To(Succeed())
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: one.volume(), VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: one.volume()}}})
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
				corev1.VolumeMount{Name: one.volume(), MountPath: "/" + one.volume()})
		}
		Expect(api.Create(ctx, pod)).To(Succeed())
	}
	eventually(ctx, 2*podStart, "all pods run with their volumes", func(g Gomega) {
		var pods corev1.PodList
		g.Expect(api.List(ctx, &pods, client.InNamespace(mountOptions))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(number))
		for _, pod := range pods.Items {
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "%s: %+v", pod.Name, pod.Status.Conditions)
		}
	})
	readInForce(ctx, node, v)
	readReported(ctx, node, v)
	mustKubectl(ctx, "delete", "pod", "-n", mountOptions, "--all", "--wait=false")
	eventually(ctx, podStart, "the pods are gone", func(g Gomega) {
		var pods corev1.PodList
		g.Expect(api.List(ctx, &pods, client.InNamespace(mountOptions))).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	})
}

func readInForce(ctx context.Context, node *cluster.Machine, v *variants) {
	GinkgoHelper()
	f := sectionsOf(ctx, node, `
section() { printf '\n=== %s\n' "$1"; }
section mounts; grep '/pods/.*/volumes/kubernetes.io~' /proc/mounts
section stats; grep -E '^device |opts:' /proc/self/mountstats
`)
	for _, one := range v.all {
		at := "/" + one.volume()
		var stats, mounts []string
		in := false
		for line := range strings.Lines(f["stats"]) {
			words := strings.Fields(line)
			if words[0] == "device" {
				in = len(words) > 4 && strings.HasSuffix(words[4], at)
			} else if in {
				stats = strings.Split(words[1], ",")
			}
		}
		for line := range strings.Lines(f["mounts"]) {
			if words := strings.Fields(line); len(words) > 3 && strings.HasSuffix(words[1], at) {
				mounts = strings.Split(words[3], ",")
			}
		}
		Expect(mounts).NotTo(BeEmpty(), "mount of %s, with %v", one.volume(), one.list)
		one.observed = joined(stats, mounts)
	}
}

// readReported waits until the node's agent has reported every mount.
func readReported(ctx context.Context, node *cluster.Machine, v *variants) {
	GinkgoHelper()
	eventually(ctx, podStart, "the StorageClientNode reports the mounts", func(g Gomega) {
		mounts := getSCN(ctx, g, node.Name).Status.Mounts
		for _, one := range v.all {
			at := slices.IndexFunc(mounts, func(m v1alpha1.MountStatus) bool {
				return m.Volume == one.volume() && strings.Contains(m.MountPoint, "/pods/")
			})
			g.Expect(at).To(BeNumerically(">=", 0), "mount of %s in the report", one.volume())
			one.reported = mounts[at].Options
		}
	})
}

func (v *variant) persistentVolume(node string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.volume(), Labels: map[string]string{"for": mountOptions}}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, MountOptions: v.list,
		ClaimRef: &corev1.ObjectReference{Namespace: mountOptions, Name: v.volume()},
	}}
	if v.protocol == mountoptions.NFS {
		volume.Spec.NFS = &corev1.NFSVolumeSource{Server: v.server(), Path: "/srv/mount-options/" + v.volume()}
		return volume
	}
	fsType := "xfs"
	volume.Spec.Local = &corev1.LocalVolumeSource{Path: v.device, FSType: &fsType}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	return volume
}

func (v *variant) claim() *corev1.PersistentVolumeClaim {
	none := ""
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: v.volume(), Namespace: mountOptions}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: &none, VolumeName: v.volume(),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

func podOf(name, node string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: mountOptions}, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: &grace, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "mounts", Image: cluster.WorkloadImage, ImagePullPolicy: corev1.PullNever}},
	}}
}

func cleanUpMountOptions(ctx context.Context, node *cluster.Machine) {
	mustKubectl(ctx, "delete", "storageclientprofile", mountOptions, "--ignore-not-found", "--timeout=90s")
	mustKubectl(ctx, "delete", "namespace", mountOptions, "--ignore-not-found")
	mustKubectl(ctx, "delete", "persistentvolume", "--selector=for="+mountOptions)
	_, err := node.Run(ctx, "losetup --detach-all; rm -rf /var/lib/mount-options; rmdir /mnt/mount-options")
	Expect(err).NotTo(HaveOccurred())
}

// judgement is the evaluation of a protocol's cases by the engine.
type judgement struct {
	protocol mountoptions.Protocol
	results  []result
	// volumes is the number of volumes that a kubelet mounted, options the number of their options. stale lists the wrong reports about
	// them.
	volumes, options int
	stale            []string
}

type result struct {
	optionCase
	// verdict is one of the constants below, note explains it.
	verdict, note string
}

const (
	compared  = "compared"
	limited   = "compared, granted less"
	notShown  = "not shown by the kernel"
	refused   = "rejected by the kernel"
	falseOld  = "FALSE STALE"
	falseGood = "FALSE EFFECTIVE"
	unproven  = "compared, no other mount"
)

// evaluate compares each case with the mount that has the option and with the mount that does not. It prints the table.
func evaluate(v, together *variants) *judgement {
	j := &judgement{protocol: v.protocol}
	for _, c := range casesOf(v.protocol) {
		verdict, note := judgeOne(c, v)
		j.results = append(j.results, result{c, verdict, note})
	}
	if together != nil {
		j.evaluateTogether(together)
	}
	fmt.Print(j)
	return j
}

// evaluateTogether compares the kubelet's mounts with their lists, as the kernel and the agent report them.
func (j *judgement) evaluateTogether(together *variants) {
	for _, one := range together.all {
		j.volumes, j.options = j.volumes+1, j.options+len(one.options)
		for _, shown := range [][]string{one.observed, one.reported} {
			for _, d := range j.protocol.Compare(one.list, shown) {
				if !d.Limited {
					j.stale = append(j.stale, fmt.Sprintf("a volume with %s: %s is %q, want %q: %s; shown: %s",
						strings.Join(one.list, ","), d.Option, d.Observed, d.Desired, d.Message, strings.Join(shown, ",")))
				}
			}
		}
	}
}

func judgeOne(c optionCase, v *variants) (verdict, note string) {
	with := v.of(c.wanted())
	hidden := slices.Contains(c.protocol.Unverifiable(c.wanted()), c.option)
	verdict = compared
	if hidden {
		verdict = notShown
	}
	if with.refusal != "" {
		verdict, note = refused, with.refusal
	}
	if with.refusal == "" {
		for _, d := range c.protocol.Compare(c.wanted(), with.observed) {
			note = fmt.Sprintf("%s is %q, want %q: %s", d.Option, d.Observed, d.Desired, d.Message)
			if !d.Limited {
				return falseOld, note + "; shown: " + strings.Join(with.observed, ",")
			}
			verdict = limited
		}
	}
	if c.noOther != "" {
		return cmp.Or(map[bool]string{true: unproven}[verdict == compared], verdict), cmp.Or(note, c.noOther)
	}
	without := v.of(c.without())
	switch {
	case without.refusal != "" && verdict == compared:
		return unproven, fmt.Sprintf("%v is rejected: %s", without.list, without.refusal)
	case without.refusal != "" || hidden || verdict == refused && isDefault(c):
		return verdict, note
	case len(c.protocol.Compare(c.claimed(), without.observed)) == 0:
		return falseGood, fmt.Sprintf("a mount with %v counts as a mount with the option; shown: %s", without.list, strings.Join(without.observed, ","))
	}
	return verdict, note
}

// isDefault reports whether an option requests the default of the kernel.
func isDefault(c optionCase) bool {
	_, value, found := strings.Cut(c.option, "=")
	if !found {
		value = c.option
	}
	return slices.ContainsFunc(c.protocol.Known(), func(k mountoptions.Known) bool { return k.Name == c.name() && k.Default == value })
}

func (j *judgement) wrong() []string {
	var out []string
	for _, r := range j.results {
		if r.verdict == falseOld || r.verdict == falseGood {
			out = append(out, fmt.Sprintf("%s %s: %s: %s", j.protocol, r.option, r.verdict, r.note))
		}
	}
	return append(out, j.stale...)
}

// String returns a table with a line for each case, and the counts.
func (j *judgement) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nOptions of %s\n", j.protocol)
	counts, names := map[string]int{}, map[string]bool{}
	for _, r := range j.results {
		counts[r.verdict]++
		names[r.name()] = true
		fmt.Fprintf(&text, "  %-32s %-24s %s\n", r.option, r.verdict, r.note)
	}
	fmt.Fprintf(&text, "%s: %d options known, %d values tried, %d accepted, %d rejected by the kernel; %d compared and distinguished, %d of them granted less, "+
		"%d compared without another mount, %d not shown by the kernel; false stale %d, false effective %d\n", j.protocol, len(names), len(j.results),
		len(j.results)-counts[refused], counts[refused], counts[compared]+counts[limited], counts[limited], counts[unproven], counts[notShown], counts[falseOld], counts[falseGood])
	if j.volumes > 0 {
		fmt.Fprintf(&text, "%s: %d PersistentVolumes with %d options mounted by the kubelet; false stale in the report of the kernel or the agent %d\n",
			j.protocol, j.volumes, j.options, len(j.stale))
		for _, wrong := range j.stale {
			fmt.Fprintf(&text, "  %s\n", wrong)
		}
	}
	return text.String()
}
