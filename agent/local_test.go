package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const (
	flush   = "sysctl/net.ipv4.route.flush"
	slots   = "module/sunrpc/tcp_max_slot_table_entries"
	grubCfg = "/boot/grub/grub.cfg"
	modules = "/etc/modprobe.d/zz-storage-client.conf"
	grub    = "/etc/default/grub.d/zz-storage-client.cfg"
)

// box is a copied host, or an image of it, with the commands for one machine.
type box struct {
	t        *testing.T
	dir      string
	fs       host.FS
	commands *hosttest.Commands
	clock    *machineClock
	// servers are the mounted servers. tryServer returns the result of the n-th new connection to one. Connections work if it is nil.
	servers   []connect.Server
	tryServer func(n int) error
	attempts  int
}

func (b *box) ask() error {
	b.attempts++
	if b.tryServer == nil {
		return nil
	}
	return b.tryServer(b.attempts - 1)
}

func newBox(t *testing.T) *box { return newBoxOf(t, "debian-12") }

// newBoxOf returns a copy of one of the trees.
func newBoxOf(t *testing.T, name string) *box {
	t.Helper()
	b := &box{
		t: t, dir: hosttest.CopyHost(t, name), clock: newMachineClock(),
		servers: []connect.Server{{Name: "filer1", Address: "192.0.2.10:2049", Protocol: connect.NFS, Version: 4}},
	}
	b.commands = hosttest.PrintedCommands(t, name, b.dir)
	fs, err := host.OpenFS(b.dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	b.fs = fs
	return b
}

func kernelLog(inodes int) string {
	return fmt.Sprintf("Inode-cache hash table entries: %d (order: 9, %d bytes, linear)\n"+
		"Dentry cache hash table entries: 524288 (order: 10, 4194304 bytes, linear)\n", inodes, inodes*8)
}

// newImage returns the tree of an image, without files of a running kernel.
func newImage(t *testing.T) *box {
	t.Helper()
	b := newBox(t)
	for _, dir := range []string{"proc", "sys", "run"} {
		check.NoError(t, os.RemoveAll(filepath.Join(b.dir, dir)))
	}
	return b
}

// instantClock is a clock whose waits end at once.
type instantClock struct{ *machineClock }

func (c instantClock) After(d time.Duration) <-chan time.Time {
	over := c.machineClock.After(d)
	c.Step(d)
	return over
}

func (b *box) local(changes bool) Local {
	fs, runner := b.fs, host.Runner(b.commands)
	if !fs.RunsKernel() {
		fs, runner = fs.AsImage(), ImageRunner{Runner: runner}
	}
	if !changes {
		fs = fs.AsReadOnly()
	}
	machine := NewMachine(fs, runner, "/var/lib/kubelet")
	machine.BootClock = b.clock
	machine.Servers = func() ([]connect.Server, error) { return b.servers, nil }
	machine.AskServer = func(context.Context, connect.Server) error { return b.ask() }
	return Local{Machine: machine, Clock: instantClock{b.clock}}
}

func (b *box) tree() map[string]string { return hosttest.ReadTree(b.t, b.dir, "/") }

func (b *box) apply(profiles ...v1alpha1.StorageClientProfile) localreport.Report {
	b.t.Helper()
	r, err := b.local(true).Run(b.t.Context(), localreport.Apply, profiles)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *box) restore() localreport.Report {
	b.t.Helper()
	r, err := b.local(true).Run(b.t.Context(), localreport.Restore, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// compare runs plan or observe, and checks that it does not change the host.
func (b *box) compare(command string, profiles ...v1alpha1.StorageClientProfile) localreport.Report {
	b.t.Helper()
	before := b.tree()
	r, err := b.local(false).Run(b.t.Context(), command, profiles)
	if err != nil {
		b.t.Fatal(err)
	}
	if diff := cmp.Diff(before, b.tree()); diff != "" {
		b.t.Errorf("%s has changed the host (-before +after):\n%s", command, diff)
	}
	return r
}

func profile(name string, sysctls map[string]string, arguments ...string) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{}
	p.Name = name
	p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{}}
	for key, value := range sysctls {
		p.Spec.Node.Sysctls[key] = v1alpha1.SettingText(value)
	}
	for _, argument := range arguments {
		p.Spec.Node.KernelArguments = append(p.Spec.Node.KernelArguments, v1alpha1.KernelArgument(argument))
	}
	return p
}

func eda() v1alpha1.StorageClientProfile {
	return profile("eda", map[string]string{"net.core.rmem_max": "16777216"}, "ihash_entries=1048576")
}

// states returns the states in a report by key, with the action if there is one.
func states(r localreport.Report) map[string]string {
	found := map[string]string{}
	for _, s := range r.Settings {
		found[s.Key] = string(s.State)
		if s.Action != "" {
			found[s.Key] += " " + string(s.Action)
		}
	}
	return found
}

func (b *box) expect(r localreport.Report, asDeclared bool, reboot string, want map[string]string) {
	b.t.Helper()
	if diff := cmp.Diff(want, states(r)); diff != "" {
		b.t.Errorf("%s: states (-want +got):\n%s", r.Command, diff)
	}
	if r.AsDeclared != asDeclared {
		b.t.Errorf("%s: asDeclared is %t: %+v", r.Command, r.AsDeclared, r.Settings)
	}
	if got := strings.Join(r.RebootRequiredBy, " "); got != reboot || r.RebootRequired != (reboot != "") {
		b.t.Errorf("%s: reboot is required by %q, want %q", r.Command, got, reboot)
	}
}

// Only a new menu shows the line, so the boot loader is read after the attempt.
func TestABootMenuWithALineOfAUserIsReportedAsUnsupported(t *testing.T) {
	b := newBox(t)
	menu := strings.Replace(hosttest.ReadFile(t, b.dir, grubCfg), "    set timeout=5\n", "    set timeout=1\n", 1)
	hosttest.WriteFile(t, b.dir, grubCfg, menu)
	for range 2 {
		r := b.apply(profile("p", nil, "ihash_entries=1048576"))
		b.expect(r, false, "", map[string]string{ihash: string(isNotFor)})
		if r.Bootloader.Type != v1alpha1.BootloaderUnsupported || !strings.Contains(r.Bootloader.Message, grubCfg+" line 86 (set timeout=1)") {
			t.Errorf("boot loader: got %+v", r.Bootloader)
		}
	}
	check.Equal(t, "menu", menu, hosttest.ReadFile(t, b.dir, grubCfg))
}

func (b *box) expectText(name, part string) {
	b.t.Helper()
	if got := hosttest.ReadFile(b.t, b.dir, name); !strings.Contains(got, part) {
		b.t.Errorf("%s does not contain %q:\n%s", name, part, got)
	}
}

func (b *box) journal() map[string]host.Original {
	b.t.Helper()
	j := journal.New(b.fs)
	if err := j.Load(); err != nil {
		b.t.Fatal(err)
	}
	originals := map[string]host.Original{}
	for key, entry := range j.Entries() {
		originals[key] = entry.Original
	}
	return originals
}

func TestOneMachineFromPlanToRestore(t *testing.T) {
	b := newBox(t)
	before := b.tree()
	b.expect(b.compare(localreport.Plan, eda()), true, ihash, map[string]string{rmem: "Pending Set", ihash: "Pending Stage"})
	b.expect(b.apply(eda()), true, ihash, map[string]string{rmem: "InSync", ihash: "Pending"})
	b.expectText("/proc/sys/net/core/rmem_max", "16777216")
	b.expectText(grubCfg, "ihash_entries=1048576")
	b.expect(b.compare(localreport.Plan, eda()), true, ihash, map[string]string{rmem: "InSync", ihash: "Pending"})
	b.expect(b.compare(localreport.Observe), false, ihash, map[string]string{rmem: "InSync", ihash: "Pending"})

	hosttest.WriteFile(t, b.dir, "/proc/sys/net/core/rmem_max", "1\n")
	b.expect(b.compare(localreport.Observe, eda()), false, ihash, map[string]string{rmem: "Drifted", ihash: "Pending"})
	b.expect(b.compare(localreport.Plan, eda()), true, ihash, map[string]string{rmem: "Drifted Set", ihash: "Pending"})

	b.expect(b.restore(), true, "", map[string]string{rmem: "InSync", ihash: "InSync"})
	after := b.tree()
	// The menu is generated again, and some bytes may differ.
	delete(before, grubCfg)
	delete(after, grubCfg)
	check.Equal(t, "the host after restore", before, after)
	if strings.Contains(hosttest.ReadFile(t, b.dir, grubCfg), "ihash_entries") {
		t.Error("the menu still has the argument")
	}
}

// A machine that was never tuned has no drift. The plan shows the settings that are already as declared, and the lowered ones.
func TestAPlanOfAMachineThatWasNeverTuned(t *testing.T) {
	b := newBox(t)
	hosttest.WriteFile(t, b.dir, "/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t33554432\n")
	p := profile("p", map[string]string{"net.core.rmem_max": "212992", "net.ipv4.tcp_rmem": "4096 1048576 16777216"})
	r := b.compare(localreport.Plan, p)
	b.expect(r, true, "", map[string]string{rmem: "Pending Set", tcpRmem: "Pending Set"})
	for key, want := range map[string]string{
		rmem:    "effective, but lost at the next boot: not in ",
		tcpRmem: "number 3 decreases from the node's original 33554432 to 16777216",
	} {
		i := slices.IndexFunc(r.Settings, func(s localreport.Setting) bool { return s.Key == key })
		if got := r.Settings[i].Message; !strings.Contains(got, want) {
			t.Errorf("message of %s in the plan: got %q, want it to contain %q", key, got, want)
		}
	}
}

func atLeastOf(name, numbers string) v1alpha1.StorageClientProfile {
	p := profile("least", nil)
	p.Spec.Node.SysctlsAtLeast = map[string]v1alpha1.WholeNumbers{name: v1alpha1.WholeNumbers(numbers)}
	return p
}

func TestOneMachineRaisesOnlySmallerValues(t *testing.T) {
	const live = "/proc/sys/net/ipv4/tcp_rmem"
	b := newBox(t)
	hosttest.WriteFile(t, b.dir, live, "4096\t131072\t33554432\n")
	p := atLeastOf("net.ipv4.tcp_rmem", "4096 1048576 16777216")
	b.expect(b.compare(localreport.Plan, p), true, "", map[string]string{tcpRmem: "Pending Set"})
	b.expect(b.apply(p), true, "", map[string]string{tcpRmem: "InSync"})
	b.expectText(live, "4096 1048576 33554432")
	b.expectText(trace, "net.ipv4.tcp_rmem = 4096 1048576 33554432")
	b.expect(b.apply(p), true, "", map[string]string{tcpRmem: "InSync"})
	b.expect(b.compare(localreport.Observe), true, "", map[string]string{tcpRmem: "InSync"})
	b.expect(b.restore(), true, "", map[string]string{tcpRmem: "InSync"})
	b.expectText(live, "4096 131072 33554432")
}

// The file of an image would lower the default of the kernel that boots it.
func TestAnImageLeavesAtLeastSettingsToTheAgent(t *testing.T) {
	b := newImage(t)
	r := b.apply(atLeastOf("net.ipv4.tcp_rmem", "4096 1048576 16777216"))
	b.expect(r, true, "", map[string]string{tcpRmem: "Pending"})
	if text := r.Settings[0].Message; !strings.Contains(text, "an agent on the running machine raises") {
		t.Errorf("message: got %q", text)
	}
	if data := b.tree()[trace]; strings.Contains(data, "tcp_rmem") {
		t.Errorf("the image has %q", data)
	}
}

func TestAnImageIsBakedWithoutALiveKernel(t *testing.T) {
	b := newImage(t)
	before := b.tree()
	p := eda()
	p.Spec.Node.KernelModules = []v1alpha1.KernelModule{{
		Name: "sunrpc", Parameters: map[string]v1alpha1.SettingText{"tcp_max_slot_table_entries": "128"},
	}}
	b.expect(b.compare(localreport.Plan, p), true, "", map[string]string{rmem: "Pending Set", ihash: "Pending Stage", slots: "Pending Set"})
	r := b.apply(p)
	b.expect(r, true, "", map[string]string{rmem: "Pending", ihash: "Pending", slots: "Pending"})
	if !r.Image || r.BootID != "" {
		t.Errorf("image is %t, boot ID %q", r.Image, r.BootID)
	}
	b.expectText(trace, "net.core.rmem_max = 16777216")
	b.expectText(modules, "options sunrpc tcp_max_slot_table_entries=128")
	b.expectText(grub, "ihash_entries=1048576")
	b.expectText(grubCfg, "ihash_entries=1048576")
	for _, dir := range []string{"proc", "sys", "run"} {
		if _, err := os.Lstat(filepath.Join(b.dir, dir)); !os.IsNotExist(err) {
			t.Errorf("/%s was created: %v", dir, err)
		}
	}
	check.Equal(t, "journal", map[string]host.Original{rmem: {}, ihash: {}, slots: {}}, b.journal())
	b.expect(b.compare(localreport.Observe, p), true, "", map[string]string{rmem: "Pending", ihash: "Pending", slots: "Pending"})
	b.expect(b.restore(), true, "", map[string]string{rmem: "InSync", ihash: "InSync", slots: "InSync"})
	after := b.tree()
	delete(before, grubCfg)
	delete(after, grubCfg)
	check.Equal(t, "the image after restore", before, after)
}

func TestUnsupportedSettingsInAnImageAreReported(t *testing.T) {
	b := newImage(t)
	hosttest.WriteFile(t, b.dir, "/etc/sysctl.d/50-own.conf", "net.core.rmem_max = 4194304\n")
	r := b.apply(profile("p", map[string]string{"net.ipv4.route.flush": "1", "net.core.rmem_max": "16777216"}))
	b.expect(r, false, "", map[string]string{flush: "Unsupported", rmem: "Pending"})
	check.Equal(t, "journal", map[string]host.Original{rmem: {Present: true, Value: "4194304"}}, b.journal())
	if _, err := b.local(true).Machine.Subjects[0].Original(t.Context(), "net.core.wmem_max"); err != nil {
		t.Error(err)
	}
}

// An image is often built with the /proc of the build machine mounted into the tree.
func TestTheBuildMachineOfAnImageIsUnchanged(t *testing.T) {
	b := newBox(t)
	check.NoError(t, os.MkdirAll(filepath.Join(b.dir, "proc/1"), 0o755))
	check.NoError(t, os.Symlink("/", filepath.Join(b.dir, "proc/1/root")))
	before := hosttest.ReadTree(t, b.dir, "/proc", "/sys")
	r := b.apply(eda())
	b.expect(r, true, "", map[string]string{rmem: "Pending", ihash: "Pending"})
	check.Equal(t, "kernel of the build machine", before, hosttest.ReadTree(t, b.dir, "/proc", "/sys"))
	for _, command := range b.commands.Ran {
		if !strings.HasPrefix(command, "grub-mkconfig") {
			t.Errorf("unexpected command %s", command)
		}
	}
}

// firstBoot turns an image into a running node: its drop-ins were read, and the arguments of its menu were passed.
func (b *box) firstBoot(rmemMax string) {
	b.t.Helper()
	hosttest.WriteFile(b.t, b.dir, "/proc/sys/kernel/random/boot_id", "first\n")
	hosttest.WriteFile(b.t, b.dir, "/proc/sys/kernel/osrelease", "6.1.0-25-amd64\n")
	hosttest.WriteFile(b.t, b.dir, "/proc/sys/net/core/rmem_max", rmemMax+"\n")
	hosttest.WriteFile(b.t, b.dir, "/proc/meminfo", "MemTotal:       16000000 kB\n")
	hosttest.WriteFile(b.t, b.dir, "/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz-6.1.0-25-amd64 root=/dev/sda1 ro quiet ihash_entries=1048576\n")
	b.commands.KernelLog = kernelLog(1048576)
}

func TestABakedNodeIsProvenAndNotRebooted(t *testing.T) {
	b := newImage(t)
	b.apply(eda())
	b.firstBoot("16777216")
	before := b.tree()

	w := newWorld(t)
	w.declare(setting(rmem, "16777216"), setting(ihash, "1048576"))
	start := func() *Agent {
		a, err := New(Config{Host: NewHost(b.fs, b.commands, w, "/var/lib/kubelet"), API: w, Clock: w.clock})
		check.NoError(t, err)
		return a
	}
	w.runPass(start())
	if status := w.clientNode.Status; status.RebootRequired || w.state(rmem) != v1alpha1.SettingInSync || w.state(ihash) != v1alpha1.SettingInSync {
		t.Errorf("got reboot required %t, settings %+v", status.RebootRequired, status.Settings)
	}
	check.Equal(t, "originals of the image", map[string]host.Original{rmem: {}, ihash: {}}, b.journal())
	after := b.tree()
	for _, name := range []string{journal.File} {
		// The journal records the owners of the settings, and the sizes of this boot.
		delete(before, name)
		delete(after, name)
	}
	check.Equal(t, "host after the proof", before, after)

	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	w.runPass(start())
	if !w.clientNode.Status.Restored {
		t.Errorf("not restored: %+v", w.clientNode.Status.Settings)
	}
	if b.fs.Exists(trace) || strings.Contains(hosttest.ReadFile(t, b.dir, grubCfg), "ihash_entries") {
		t.Error("the drop-in or the menu still contains the settings of the image")
	}
}

func TestAProfileIsRejectedWithTheMessagesOfTheManager(t *testing.T) {
	planOnly, paused := eda(), eda()
	planOnly.Spec.Mode, paused.Spec.Paused = v1alpha1.ModePlan, true
	tests := map[string]struct {
		profiles []v1alpha1.StorageClientProfile
		want     string
	}{
		"an unknown key": {
			[]v1alpha1.StorageClientProfile{profile("p", map[string]string{"net.core.rmem_mx": "1"})},
			`profile p: spec.node.sysctls[net.core.rmem_mx]: "1": not supported. Did you mean net.core.rmem_max?`,
		},
		"bytes that must not reach a shell": {
			[]v1alpha1.StorageClientProfile{profile("p", nil, "ihash_entries=$(reboot)")}, "spec.node.kernelArguments[0]",
		},
		"mode Plan":          {[]v1alpha1.StorageClientProfile{planOnly}, "spec.mode: Plan makes no changes"},
		"a paused one":       {[]v1alpha1.StorageClientProfile{paused}, "spec.paused"},
		"the same one twice": {[]v1alpha1.StorageClientProfile{eda(), eda()}, "profile eda: given twice"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			before := b.tree()
			_, err := b.local(true).Run(t.Context(), localreport.Apply, test.profiles)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: got %v, want %q", err, test.want)
			}
			check.Equal(t, "the host has changed", before, b.tree())
		})
	}
}

func TestSeveralProfilesMergeAsOnANode(t *testing.T) {
	b := newBox(t)
	low, high := profile("low", map[string]string{"net.core.rmem_max": "1048576", "net.core.wmem_max": "1048576"}),
		profile("high", map[string]string{"net.core.rmem_max": "16777216"})
	high.Spec.Priority = 10
	b.expect(b.apply(low, high), true, "", map[string]string{rmem: "InSync", wmem: "InSync"})
	b.expectText(trace, "net.core.rmem_max = 16777216")

	other := profile("other", map[string]string{"net.core.rmem_max": "8388608"})
	other.Spec.Priority = 10
	r := b.apply(low, high, other)
	b.expect(r, false, "", map[string]string{rmem: "InSync", wmem: "InSync"})
	want := []nodesettings.Conflict{{Key: rmem, Profiles: []string{"high", "other"}, Values: []string{"16777216", "8388608"}, Kept: "16777216"}}
	check.Equal(t, "conflicts", want, r.Conflicts)
	b.expect(b.compare(localreport.Plan, high), true, "", map[string]string{rmem: "InSync", wmem: "Drifted PutBack"})
	b.expect(b.apply(high), true, "", map[string]string{rmem: "InSync", wmem: "InSync"})
	b.expectText("/proc/sys/net/core/wmem_max", "212992")
}
