// Command guest is the init of the virtual machine of the power cut test. It checks what the last cut has left, puts
// everything back in every second boot, and then changes settings until the power is cut. What it prints is for the
// driver: READY, when it waits for what it had said before the cut, CHECKED, RESTORING, RESTORED, DOING n before a change, DID n when the agent has said that it is done, FAIL.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	root      = "/host"
	rmemMax   = "net.core.rmem_max"
	sysctls   = "/etc/sysctl.d/zz-storage-client.conf"
	grub      = "/etc/default/grub.d/zz-storage-client.cfg"
	grubCfg   = "/boot/grub/grub.cfg"
	menuEnd   = "### END /etc/grub.d/4"
	pristine  = "/pristine"
	argument  = "audit_backlog_limit"
	kernelLog = "Inode-cache hash table entries: 262144 (order: 9, 2097152 bytes, linear)\n" +
		"Dentry cache hash table entries: 524288 (order: 10, 4194304 bytes, linear)\n"
)

func main() {
	// The firmware has left the cursor in the middle of a line.
	fmt.Println()
	err := run()
	fmt.Println("FAIL", strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
	// The driver ends the machine; the end of init would be a panic of the kernel.
	for {
		time.Sleep(time.Hour)
	}
}

func run() error {
	// The machine is frozen here and thawed for each cut: nothing is known of the disk yet.
	fmt.Println("READY")
	var orders [4]int
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		// The first line may lack its beginning.
		if n, _ := fmt.Sscanf(input.Text(), "orders %d %d %d %d.", &orders[0], &orders[1], &orders[2], &orders[3]); n == len(orders) {
			break
		}
	}
	if err := prepare(); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	files, err := host.OpenFS(root)
	if err != nil {
		return err
	}
	if err := checkPairs(); err != nil {
		return fmt.Errorf("the kernel's coupled values: %w", err)
	}
	m := &machine{fs: files, done: orders[0], doing: orders[1], restored: orders[2] == 1, restoring: orders[3] == 1}
	if err := m.check(); err != nil {
		return fmt.Errorf("after change %d was done and %d begun: %w", m.done, m.doing, err)
	}
	fmt.Println("CHECKED")
	if m.doing%2 == 0 {
		fmt.Println("RESTORING")
		if err := m.restore(); err != nil {
			return fmt.Errorf("restore after change %d: %w", m.doing, err)
		}
		fmt.Println("RESTORED")
	}
	for n := m.doing + 1; ; n++ {
		fmt.Println("DOING", n)
		if err := m.change(n); err != nil {
			return fmt.Errorf("change %d: %w", n, err)
		}
		fmt.Println("DID", n)
	}
}

// prepare loads the disk's drivers, mounts the disk and gives the tree on it a /proc of its own, as a boot would have
// it.
func prepare() error {
	for _, m := range []struct{ what, where, kind string }{{"proc", "/proc", "proc"}, {"dev", "/dev", "devtmpfs"}} {
		if err := unix.Mount(m.what, m.where, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
	}
	modules, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	for _, name := range modules {
		if err := load(name); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	for range 100 {
		if _, err = os.Stat("/dev/vda"); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	_, fileSystem, _ := strings.Cut(strings.TrimSpace(string(line)), "powercut.filesystem=")
	if err := unix.Mount("/dev/vda", root, fileSystem, 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", root, err)
	}
	if err := unix.Mount("proc", root+"/proc", "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.CopyFS(root+"/proc", os.DirFS(root+pristine)); err != nil {
		return err
	}
	return bootLive()
}

func load(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.FinitModule(int(file.Fd()), "", 0)
	if errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}

// bootLive does what systemd-sysctl and GRUB do at a boot: values of the drop-in, arguments of the menu.
func bootLive() error {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	if err := os.WriteFile(root+"/proc/sys/kernel/random/boot_id", id, 0o644); err != nil {
		return err
	}
	if value := between(read(sysctls), rmemMax+" = "); value != "" {
		if err := os.WriteFile(root+"/proc/sys/net/core/rmem_max", []byte(value+"\n"), 0o644); err != nil {
			return err
		}
	}
	_, args, _ := strings.Cut(between(read(grubCfg), "\tlinux\t"), " ")
	if found := bootEntries(); len(found) > 0 {
		args = between(read(found[0]), "\noptions ")
	}
	return os.WriteFile(root+"/proc/cmdline", []byte("BOOT_IMAGE=/boot/vmlinuz "+args+"\n"), 0o644)
}

func read(name string) string {
	data, err := os.ReadFile(root + name)
	if err != nil {
		return ""
	}
	return string(data)
}

// between is what follows from on its line.
func between(text, from string) string {
	_, rest, found := strings.Cut(text, from)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// machine is the host on the disk.
type machine struct {
	fs host.FS
	// done is the last change that the agent has said is done, doing the last that has begun.
	done, doing int
	// restored is true where everything has been put back since done, restoring where that has begun.
	restored, restoring bool
}

// value is what change n sets. Every seventh change takes everything back.
func value(n int) string {
	if n%7 == 0 {
		return ""
	}
	return strconv.Itoa(1<<20 + n)
}

func profile(n int) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{}
	p.Name = "p"
	p.Spec.Node = &v1alpha1.NodeTuning{
		Sysctls:         map[string]v1alpha1.SettingText{rmemMax: v1alpha1.SettingText(value(n))},
		KernelArguments: []v1alpha1.KernelArgument{v1alpha1.KernelArgument(argument + "=" + value(n))},
	}
	return p
}

func (m *machine) local() agent.Local {
	runner := &hosttest.Commands{Dir: root, KernelLog: kernelLog}
	local := agent.NewHost(m.fs, runner, nil, "/var/lib/kubelet")
	// A server that answers: what is set is proven before it is kept, and the power may be cut in between.
	local.Servers = func() ([]connect.Server, error) { return []connect.Server{{Name: "filer1"}}, nil }
	local.AskServer = func(context.Context, connect.Server) error { return nil }
	return agent.Local{
		Host:    local,
		Clock:   clock.RealClock{},
		Allowed: agent.Allowed{Parameters: []string{"kernelArgument/" + argument}},
	}
}

func (m *machine) change(n int) error {
	if value(n) == "" {
		return m.restore()
	}
	r, err := m.local().Apply(context.Background(), []v1alpha1.StorageClientProfile{profile(n)})
	if err == nil && !r.AsDeclared {
		err = fmt.Errorf("not as declared: %+v", r.Settings)
	}
	return err
}

// restore puts everything back and proves that nothing of ours is left.
func (m *machine) restore() error {
	r, err := m.local().Restore(context.Background(), nil)
	if err != nil {
		return err
	}
	if !r.AsDeclared {
		return fmt.Errorf("not restored: %+v", r.Settings)
	}
	for _, name := range []string{sysctls, grub, blsArguments} {
		if m.fs.Exists(name) {
			return fmt.Errorf("%s is still there", name)
		}
	}
	if err := compareEntries(); err != nil {
		return err
	}
	if strings.Contains(read(grubCfg), argument) {
		return errors.New("the menu still has the argument")
	}
	if got, want := read("/proc/sys/net/core/rmem_max"), read(pristine+"/sys/net/core/rmem_max"); got != want {
		return fmt.Errorf("%s is %q, was %q", rmemMax, got, want)
	}
	return nil
}

// check finds each file as it was before the change that was cut short, or as it is after it, and the originals of
// all that our files hold in the journal.
func (m *machine) check() error {
	var allowed []string
	for n := m.done; n <= m.doing; n++ {
		if n == m.done && (n == 0 || m.restored) {
			allowed = append(allowed, "")
		} else {
			allowed = append(allowed, value(n))
		}
	}
	if m.restoring {
		allowed = append(allowed, "")
	}
	found := map[string]string{sysctls: between(read(sysctls), rmemMax+" = ")}
	menus := bootEntries()
	if len(menus) > 0 {
		found[blsArguments] = between(read(blsArguments), argument+"=")
		menus = m.readEntries(menus, found)
	} else {
		found[grub] = strings.TrimSuffix(between(read(grub), argument+"="), `"`)
		found[grubCfg] = between(read(grubCfg), argument+"=")
		menus = []string{grub, grubCfg}
	}
	for name, got := range found {
		if !slices.Contains(allowed, got) {
			return fmt.Errorf("%s has %q, which is none of %q", name, got, allowed)
		}
		if data := read(name); data != "" && !strings.HasSuffix(data, "\n") {
			return fmt.Errorf("%s is incomplete: %q", name, data)
		}
	}
	if len(bootEntries()) == 0 {
		if err := checkMenu(found[grubCfg]); err != nil {
			return err
		}
	}
	return m.checkJournal(found, menus)
}

// checkMenu looks at a menu that is made as a whole.
func checkMenu(value string) error {
	menu := read(grubCfg)
	if n := strings.Count(menu, argument+"="); n != strings.Count(menu, argument+"="+value+"\n") && value != "" {
		return fmt.Errorf("the menu's entries differ:\n%s", menu)
	}
	if !strings.Contains(menu, menuEnd) {
		return fmt.Errorf("the menu ends after %d bytes", len(menu))
	}
	return nil
}

func (m *machine) checkJournal(found map[string]string, menus []string) error {
	j := journal.New(m.fs, sysctls, grub)
	if err := j.Load(); err != nil {
		return err
	}
	entries := j.Entries()
	if u, open := j.Unconfirmed(); open {
		key := "sysctl/" + rmemMax
		if tried := u.Settings[key].Entry.Applied; tried != "" && found[sysctls] == tried && entries[key].Applied != tried {
			return fmt.Errorf("%s has %q, which is not confirmed", sysctls, tried)
		}
	}
	originals := map[string]host.Original{
		"sysctl/" + rmemMax:          {Present: true, Value: strings.TrimSpace(read(pristine + "/sys/net/core/rmem_max"))},
		"kernelArgument/" + argument: {},
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if entries[key].Original != originals[key] {
			return fmt.Errorf("the journal's original of %s is %+v, was %+v", key, entries[key].Original, originals[key])
		}
	}
	for key, names := range map[string][]string{"sysctl/" + rmemMax: {sysctls}, "kernelArgument/" + argument: menus} {
		for _, name := range names {
			if _, held := entries[key]; found[name] != "" && !held {
				return fmt.Errorf("%s has %q, and the journal does not know %s", name, found[name], key)
			}
		}
	}
	return nil
}
