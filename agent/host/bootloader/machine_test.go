package bootloader

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
)

const (
	ihash  = "ihash_entries"
	seed   = "16777216"
	debian = "debian-12"
	rocky  = "rocky-9"
	ubuntu = "ubuntu-24.04-cloudimg"
	// azure is a copied Debian with the boot configuration of Azure Linux 3.
	azure = "azure-linux-3"
)

// memoryFacts stores boot facts in memory, with the semantics of the journal.
type memoryFacts map[string]string

func (f memoryFacts) BootFact(bootID, name string) (string, bool) {
	value, ok := f[bootID+" "+name]
	return value, ok
}

func (f memoryFacts) SetBootFact(bootID, name, value string) error {
	f[bootID+" "+name] = value
	return nil
}

const keptFiles = "files"

func (f memoryFacts) KeptFiles() map[string]host.FileRecord {
	saved := map[string]host.FileRecord{}
	if err := json.Unmarshal([]byte(f[keptFiles]), &saved); err != nil {
		return nil
	}
	return saved
}

func (f memoryFacts) KeepFiles(files map[string]host.FileRecord) error {
	data, err := json.Marshal(files)
	f[keptFiles] = string(data)
	return err
}

// machine is a copied host that can be booted.
type machine struct {
	t        *testing.T
	dir      string
	fs       host.FS
	commands *hosttest.Commands
	facts    memoryFacts
	// journalled is true if the journal of the tree stores the facts.
	journalled bool
	subject    *Subject
	// names are the names of the GRUB that a test starts.
	names *grubNames
	boots int
	// entries is the directory of boot loader entries, and kernel is the kernel of the default entry.
	entries, kernel string
	// attended is true if an agent runs after the boot.
	attended bool
	// sinceBoot is the value of the boot clock.
	sinceBoot time.Duration
	// paused counts the waits for a menu. whilePaused is called during each wait.
	paused      int
	whilePaused func()
}

func newMachine(t *testing.T, fixture string) *machine {
	t.Helper()
	m := &machine{t: t, dir: hosttest.CopyHost(t, fixture), facts: memoryFacts{}, names: debianNames}
	m.commands = &hosttest.Commands{Dir: m.dir, KernelLog: kernelLog(262144)}
	fs, err := host.OpenFS(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	m.fs = fs
	m.restart()
	return m
}

// restart simulates a restart of the agent.
func (m *machine) restart() { m.subject = m.on(m.fs) }

func (m *machine) on(fs host.FS) *Subject {
	var facts BootFacts = m.facts
	if m.journalled {
		records := journal.New(fs)
		if err := records.Load(); err != nil && !errors.Is(err, errCrash) {
			m.t.Fatal(err)
		}
		facts = records
	}
	s := New(fs, m.commands, facts, sixteenth, Kinds)
	s.Attend(m.attended)
	s.bootClock = m
	s.pause = func(time.Duration) {
		if m.paused++; m.whilePaused != nil {
			m.whilePaused()
		}
	}
	return s
}

// SinceBoot implements host.BootClock.
func (m *machine) SinceBoot() (time.Duration, error) { return m.sinceBoot, nil }

// sixteenth permits sizes up to 1/16 of memory.
func sixteenth(_ string, entries, memory uint64) (uint64, bool) {
	largest := uint64(1) << (bits.Len64(memory/16/8) - 1)
	return min(powerAbove(entries), largest), powerAbove(entries) > largest
}

func kernelLog(inodes int) string {
	return fmt.Sprintf(`Linux version 6.1.0-25-amd64
Dentry cache hash table entries: 524288 (order: 10, 4194304 bytes, linear)
Inode-cache hash table entries: %d (order: 9, %d bytes, linear)
`, inodes, inodes*8)
}

func (m *machine) grub() grubBase { return grubBase{base: base{Host: m.subject.Host, at: m.names}} }

// boot boots the first entry of the menu with an inode hash table of the given size. The agent starts with the machine.
func (m *machine) boot(inodes int) {
	m.t.Helper()
	line := parseMenu(m.read(m.names.menu)).lines[0]
	m.bootWith("BOOT_IMAGE="+line.kernel+" "+joinArguments(line.args), inodes)
}

func (m *machine) bootWith(cmdline string, inodes int) {
	m.t.Helper()
	m.boots++
	m.write(commandLine, cmdline+"\n")
	m.write("/proc/sys/kernel/random/boot_id", fmt.Sprintf("boot-%d\n", m.boots))
	m.commands.KernelLog = kernelLog(inodes)
	m.restart()
}

func (m *machine) read(name string) string { m.t.Helper(); return hosttest.ReadFile(m.t, m.dir, name) }

func (m *machine) write(name, data string) { m.t.Helper(); hosttest.WriteFile(m.t, m.dir, name, data) }

func (m *machine) replace(name, from, to string) {
	m.t.Helper()
	data := m.read(name)
	if !strings.Contains(data, from) {
		m.t.Fatalf("%s does not contain %q", name, from)
	}
	m.write(name, strings.ReplaceAll(data, from, to))
}

func (m *machine) remove(name string) {
	m.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) apply(desired []host.Setting) {
	m.t.Helper()
	if err := m.subject.Apply(m.t.Context(), desired); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) observe(name, value string) host.Observation {
	m.t.Helper()
	return m.subject.Observe(m.t.Context(), settings(name, value))[0]
}

func (m *machine) restore(name string, original host.Original) host.Observation {
	m.t.Helper()
	return m.subject.Restore(m.t.Context(), map[string]host.Original{name: original})[0]
}

// menusMade returns the number of runs of grub-mkconfig.
func (m *machine) menusMade() int {
	n := 0
	for _, command := range m.commands.Ran {
		if strings.HasPrefix(command, m.names.mkconfig[0]) {
			n++
		}
	}
	return n
}

// agentFiles returns all files that may contain data of the agent.
func (m *machine) agentFiles() map[string]string {
	m.t.Helper()
	files := map[string]string{}
	for name, data := range hosttest.ReadTree(m.t, m.dir, "/etc/default/grub.d", "/etc/grub.d", path.Dir(m.names.menu)) {
		if strings.Contains(name, "storage-client") {
			files[name] = data
		}
	}
	return files
}

func settings(pairs ...string) []host.Setting {
	var list []host.Setting
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, host.Setting{Name: pairs[i], Value: pairs[i+1]})
	}
	return list
}

func expect(t *testing.T, got host.Observation, state host.State, parts ...string) {
	t.Helper()
	if got.State != state {
		t.Errorf("state = %s (%s), want %s", got.State, got.Message, state)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			t.Errorf("message: got %q, want it to contain %q", got.Message, part)
		}
	}
	if got.Effect != host.Reboot {
		t.Errorf("effect = %s", got.Effect)
	}
}
