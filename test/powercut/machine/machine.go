// Package machine is a host on which the agent makes changes until a power cut or a kill stops it at a random moment. It reports its
// progress, and checks the remaining state afterwards.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/api/v1alpha1"
)

const (
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

// The progress messages of a machine, each on a separate line.
const (
	Checked   = "CHECKED"
	restoring = "RESTORING"
	restored  = "RESTORED"
	doing     = "DOING"
	did       = "DID"
	// Failed is followed by the error.
	Failed = "FAIL"
)

// Orders is the start of a line of input for a guest. The rest is its State as JSON.
const Orders = "orders "

// State is the progress that a machine has reported. The machine receives it when it starts again.
type State struct {
	// Done is the last change that the agent reported as done. Doing is the last change that started.
	Done, Doing int
	// Restored is true if everything was restored after Done. Restoring is true if the restore started.
	Restored, Restoring bool
	// Proven lists the changes after Done whose arguments have booted.
	Proven []int
	// Permit is the state of the permit to boot the trial of the change in Doing.
	Permit Permit
}

// Permit is the state of a permit to boot the trial of a change.
type Permit int

// A permit is given in several writes.
const (
	None Permit = iota
	Giving
	Given
)

// Hear processes a line of output from the machine.
func (s *State) Hear(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	n, err := strconv.Atoi(rest)
	switch word {
	case Failed:
		return errors.New(rest)
	case restoring:
		s.Restoring = true
	case restored:
		*s = State{Done: s.Doing, Doing: s.Doing, Restored: true}
	case doing:
		if err == nil {
			s.Doing = n
		}
	case permitting:
		s.Permit = Giving
	case permitted:
		s.Permit = Given
	case powered:
		s.Permit = None
	case booted:
		if err == nil {
			s.Proven = append(s.Proven, n)
		}
	case did:
		if err == nil {
			*s = State{Done: n, Doing: n}
		}
	}
	return nil
}

// Host is a host whose root is a directory. BootLive creates the files that are not part of its disk, and Run makes changes until a step fails.
type Host interface {
	BootLive() error
	Run(out io.Writer) error
	// Check checks the state that a cut has left. Restore restores everything, and compares all files with their original content.
	Check() error
	Restore() error
	CompareFiles() error
}

// Open opens a host with the progress that it reported before it was stopped.
func Open(root string, state State) (Host, error) {
	files, err := host.OpenFS(root)
	if err != nil {
		return nil, err
	}
	if files.Exists(environment) || files.Exists(EFIPartition) {
		return newTrials(root, state, files), nil
	}
	return &Machine{State: state, root: root, fs: files}, nil
}

// Machine is a host whose agent stages arguments without a trial.
type Machine struct {
	State
	root string
	fs   host.FS
}

// Run checks the current state, restores everything after every second change, and then makes changes until a step fails.
func (m *Machine) Run(out io.Writer) error {
	if err := m.Check(); err != nil {
		return err
	}
	fmt.Fprintln(out, Checked)
	if m.Doing%2 == 0 {
		fmt.Fprintln(out, restoring)
		if err := m.Restore(); err != nil {
			return fmt.Errorf("restore after change %d: %w", m.Doing, err)
		}
		fmt.Fprintln(out, restored)
	}
	for n := m.Doing + 1; ; n++ {
		fmt.Fprintln(out, doing, n)
		if err := m.change(n); err != nil {
			return fmt.Errorf("change %d: %w", n, err)
		}
		fmt.Fprintln(out, did, n)
	}
}

// BootLive simulates systemd-sysctl and GRUB at a boot. It sets the values of the drop-in and the arguments of the menu.
func (m *Machine) BootLive() error {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	if err := os.WriteFile(m.root+"/proc/sys/kernel/random/boot_id", id, 0o644); err != nil {
		return err
	}
	if value := between(m.read(sysctls), rmemMax+" = "); value != "" {
		if err := os.WriteFile(m.root+"/proc/sys/net/core/rmem_max", []byte(value+"\n"), 0o644); err != nil {
			return err
		}
	}
	_, args, _ := strings.Cut(between(m.read(grubCfg), "\tlinux\t"), " ")
	if found := m.bootEntries(); len(found) > 0 {
		args = between(m.read(found[0]), "\noptions ")
	}
	return os.WriteFile(m.root+"/proc/cmdline", []byte("BOOT_IMAGE=/boot/vmlinuz "+args+"\n"), 0o644)
}

func (m *Machine) read(name string) string {
	data, err := os.ReadFile(m.root + name)
	if err != nil {
		return ""
	}
	return string(data)
}

// between returns the rest of the line after from.
func between(text, from string) string {
	_, rest, found := strings.Cut(text, from)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// value returns the value that change n sets. Every seventh change restores everything.
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

func (m *Machine) local() agent.Local {
	runner := &hosttest.Commands{Dir: m.root, KernelLog: kernelLog}
	local := agent.NewMachine(m.fs, runner, "/var/lib/kubelet")
	// The server responds. Settings are proven before they are kept, and the power may be cut in between.
	local.Servers = func() ([]connect.Server, error) { return []connect.Server{{Name: "filer1"}}, nil }
	local.AskServer = func(context.Context, connect.Server) error { return nil }
	return agent.Local{
		Machine: local,
		Clock:   clock.RealClock{},
		Allowed: agent.Allowed{Parameters: []string{"kernelArgument/" + argument}},
	}
}

func (m *Machine) change(n int) error {
	if value(n) == "" {
		return m.Restore()
	}
	r, err := m.local().Run(context.Background(), localreport.Apply, []v1alpha1.StorageClientProfile{profile(n)})
	if err == nil && !r.AsDeclared {
		err = fmt.Errorf("not as declared: %+v", r.Settings)
	}
	return err
}

// Restore restores everything and checks that no changes of the agent remain.
func (m *Machine) Restore() error {
	r, err := m.local().Run(context.Background(), localreport.Restore, nil)
	if err != nil {
		return err
	}
	if !r.AsDeclared {
		return fmt.Errorf("not restored: %+v", r.Settings)
	}
	for _, name := range []string{sysctls, grub, blsArguments} {
		if m.fs.Exists(name) {
			return fmt.Errorf("%s still exists", name)
		}
	}
	if err := m.CompareFiles(); err != nil {
		return err
	}
	if strings.Contains(m.read(grubCfg), argument) {
		return errors.New("the menu still has the argument")
	}
	if got, want := m.read("/proc/sys/net/core/rmem_max"), m.read(pristine+"/sys/net/core/rmem_max"); got != want {
		return fmt.Errorf("%s is %q, was %q", rmemMax, got, want)
	}
	return nil
}

// Check checks that each file has its content from before or after the interrupted change. The journal must contain the originals of all
// values in the agent's files.
func (m *Machine) Check() error {
	var allowed []string
	for n := m.Done; n <= m.Doing; n++ {
		if n == m.Done && (n == 0 || m.Restored) {
			allowed = append(allowed, "")
		} else {
			allowed = append(allowed, value(n))
		}
	}
	if m.Restoring {
		allowed = append(allowed, "")
	}
	found := map[string]string{sysctls: between(m.read(sysctls), rmemMax+" = ")}
	menus := m.bootEntries()
	if len(menus) > 0 {
		// After an interrupted change, the arguments that it replaces follow.
		found[blsArguments], _, _ = strings.Cut(between(m.read(blsArguments), argument+"="), " ")
		menus = m.readEntries(menus, found)
	} else {
		found[grub] = strings.TrimSuffix(between(m.read(grub), argument+"="), `"`)
		found[grubCfg] = between(m.read(grubCfg), argument+"=")
		menus = []string{grub, grubCfg}
	}
	for name, got := range found {
		if !slices.Contains(allowed, got) {
			return fmt.Errorf("%s has %q, which is not one of %q", name, got, allowed)
		}
		if data := m.read(name); data != "" && !strings.HasSuffix(data, "\n") {
			return fmt.Errorf("%s is incomplete: %q", name, data)
		}
	}
	if len(m.bootEntries()) == 0 {
		if err := m.checkMenu(found[grubCfg]); err != nil {
			return err
		}
	}
	return m.checkJournal(found, menus)
}

// checkMenu checks a menu that is generated as a whole.
func (m *Machine) checkMenu(value string) error {
	menu := m.read(grubCfg)
	if n := strings.Count(menu, argument+"="); n != strings.Count(menu, argument+"="+value+"\n") && value != "" {
		return fmt.Errorf("the menu's entries differ:\n%s", menu)
	}
	if !strings.Contains(menu, menuEnd) {
		return fmt.Errorf("the menu ends after %d bytes", len(menu))
	}
	return nil
}

func (m *Machine) checkJournal(found map[string]string, menus []string) error {
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
		"sysctl/" + rmemMax:          {Present: true, Value: strings.TrimSpace(m.read(pristine + "/sys/net/core/rmem_max"))},
		"kernelArgument/" + argument: {},
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if entries[key].Original != originals[key] {
			return fmt.Errorf("the journal's original of %s is %+v, was %+v", key, entries[key].Original, originals[key])
		}
	}
	for key, names := range map[string][]string{"sysctl/" + rmemMax: {sysctls}, "kernelArgument/" + argument: menus} {
		for _, name := range names {
			if _, recorded := entries[key]; found[name] != "" && !recorded {
				return fmt.Errorf("%s has %q, but the journal does not contain %s", name, found[name], key)
			}
		}
	}
	return nil
}
