package simnode

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/storageclient/operator/agent/host/hosttest/grub"
	"github.com/storageclient/operator/tuning/catalogue"
)

// KernelVersion is the release that a simulated machine reports.
const KernelVersion = "6.1.0-sim-amd64"

const (
	kernelImage = "/boot/vmlinuz-" + KernelVersion
	rootArgs    = "root=UUID=51a1ed00-0000-4000-8000-000000000000 ro"
	pageSize    = 4096
)

// Options are the properties of a simulated machine.
type Options struct {
	// MemoryBytes is the machine's memory. Default 16 GiB.
	MemoryBytes int64
	// BrokenArguments are names of kernel arguments that the simulated kernel ignores.
	BrokenArguments []string
	// HangingArguments are names of kernel arguments with which the simulated kernel hangs. A power cycle then starts the machine again.
	HangingArguments []string
}

// Machine is a simulated host.
type Machine struct {
	dir     string
	options Options

	mu     sync.Mutex
	bootID string
	boots  int
	log    []string
}

// sysctls are the initial values of the simulated kernel (defaults of Linux 6.1 on a small machine).
var sysctls = map[string]string{
	"net.core.rmem_max":                  "212992",
	"net.core.rmem_default":              "212992",
	"net.core.wmem_max":                  "212992",
	"net.core.wmem_default":              "212992",
	"net.core.optmem_max":                "20480",
	"net.core.somaxconn":                 "4096",
	"net.core.netdev_max_backlog":        "1000",
	"net.ipv4.tcp_rmem":                  "4096\t131072\t6291456",
	"net.ipv4.tcp_wmem":                  "4096\t16384\t4194304",
	"net.ipv4.tcp_mem":                   "190000\t254000\t380000",
	"net.ipv4.tcp_window_scaling":        "1",
	"net.ipv4.tcp_timestamps":            "1",
	"net.ipv4.tcp_sack":                  "1",
	"net.ipv4.tcp_dsack":                 "1",
	"net.ipv4.tcp_fack":                  "0",
	"net.ipv4.tcp_low_latency":           "0",
	"net.ipv4.tcp_no_metrics_save":       "0",
	"net.ipv4.tcp_slow_start_after_idle": "1",
	"net.ipv4.ip_local_port_range":       "32768\t60999",
	"net.ipv4.route.flush":               "",
	"vm.dirty_expire_centisecs":          "3000",
	"vm.dirty_writeback_centisecs":       "500",
	"vm.dirty_ratio":                     "20",
	"vm.dirty_background_ratio":          "10",
	"sunrpc.tcp_slot_table_entries":      "2",
	"sunrpc.tcp_max_slot_table_entries":  "65536",
	"sunrpc.udp_slot_table_entries":      "16",
}

// moduleParameters are the parameters of loaded modules that are not sysctls.
var moduleParameters = map[string]string{
	"nfs/max_session_slots":    "64",
	"nfs/max_session_cb_slots": "16",
}

// files are the files of a Debian 12 host that the agent reads.
var files = map[string]string{
	"/etc/os-release": "ID=debian\nVERSION_ID=\"12\"\n",
	"/etc/default/grub": "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n" +
		"GRUB_CMDLINE_LINUX=\"console=ttyS0\"\n",
	"/boot/grub/grubenv": grub.PadBlock(grub.EmptyBlock),
	kernelImage:          "kernel",
	"/boot/initrd.img":   "initrd",
	// The agent looks for the directory that Debian's script reads; the script itself is simulated.
	"/usr/sbin/grub-mkconfig":                            "#!/bin/sh\n# simulated: reads ${sysconfdir}/default/grub.d/*.cfg\n",
	"/lib/modules/" + KernelVersion + "/modules.dep":     "kernel/net/sunrpc/sunrpc.ko:\nkernel/fs/nfs/nfs.ko: kernel/net/sunrpc/sunrpc.ko\n",
	"/lib/modules/" + KernelVersion + "/modules.builtin": "",
	"/proc/1/mountinfo":                                  "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n",
	"/proc/1/mountstats":                                 "device /dev/vda1 mounted on / with fstype ext4\n",
}

// directories exist from the beginning.
var directories = []string{
	"/etc/default/grub.d", "/etc/grub.d", "/etc/modprobe.d", "/etc/sysctl.d", "/boot/grub", "/var/lib", "/run", "/sys/class/bdi",
	"/sys/kernel/sunrpc/xprt-switches",
}

// NewMachine creates a machine in an empty directory and boots it.
func NewMachine(dir string, options Options) (*Machine, error) {
	if options.MemoryBytes == 0 {
		options.MemoryBytes = 16 << 30
	}
	m := &Machine{dir: dir, options: options}
	for _, name := range directories {
		if err := os.MkdirAll(m.hostPath(name), 0o755); err != nil {
			return nil, fmt.Errorf("lay out the simulated machine: %w", err)
		}
	}
	for name, data := range files {
		if err := m.writeFile(name, data); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(m.hostPath("/usr/sbin/grub-mkconfig"), 0o755); err != nil {
		return nil, fmt.Errorf("lay out the simulated machine: %w", err)
	}
	if err := m.makeMenu("/boot/grub/grub.cfg"); err != nil {
		return nil, err
	}
	return m, m.Boot()
}

// Boot simulates firmware, GRUB, kernel, and systemd: live values are lost, and the values in files become effective.
func (m *Machine) Boot() error {
	args, err := m.bootArguments()
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.bootID = newUUID()
	m.boots++
	m.log = m.kernelLog(args)
	bootID := m.bootID
	m.mu.Unlock()

	values := map[string]string{
		"/proc/sys/kernel/random/boot_id": bootID + "\n",
		"/proc/sys/kernel/osrelease":      KernelVersion + "\n",
		"/proc/cmdline":                   "BOOT_IMAGE=" + kernelImage + " " + strings.Join(args, " ") + "\n",
		"/proc/meminfo":                   fmt.Sprintf("MemTotal: %15d kB\n", m.options.MemoryBytes>>10),
	}
	for key, value := range sysctls {
		values["/proc/sys/"+strings.ReplaceAll(key, ".", "/")] = value + "\n"
	}
	for name, value := range moduleParameters {
		module, parameter, _ := strings.Cut(name, "/")
		values["/sys/module/"+module+"/parameters/"+parameter] = value + "\n"
	}
	for key, value := range sysctls {
		if parameter, ok := strings.CutPrefix(key, "sunrpc."); ok {
			values["/sys/module/sunrpc/parameters/"+parameter] = value + "\n"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := m.writeFile(name, values[name]); err != nil {
			return err
		}
	}
	return m.startUserSpace()
}

// startUserSpace simulates modprobe and systemd-sysctl.
func (m *Machine) startUserSpace() error {
	options, err := m.readLines("/etc/modprobe.d", ".conf")
	if err != nil {
		return err
	}
	for _, line := range options {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "options" {
			continue
		}
		for _, option := range words[2:] {
			name, value, _ := strings.Cut(option, "=")
			if err := m.writeFile("/sys/module/"+words[1]+"/parameters/"+name, value+"\n"); err != nil {
				return err
			}
			if words[1] == "sunrpc" {
				if err := m.writeFile("/proc/sys/sunrpc/"+name, value+"\n"); err != nil {
					return err
				}
			}
		}
	}
	assignments, err := m.readLines("/etc/sysctl.d", ".conf")
	if err != nil {
		return err
	}
	for _, line := range assignments {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		key = strings.TrimPrefix(strings.TrimSpace(key), "-")
		if err := m.writeFile("/proc/sys/"+strings.ReplaceAll(key, ".", "/"), strings.TrimSpace(value)+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// kernelLog returns the log lines of the simulated kernel about its hash tables.
func (m *Machine) kernelLog(args []string) []string {
	var log []string
	for _, table := range []struct{ name, argument string }{
		{"Dentry cache", "dhash_entries"}, {"Inode-cache", "ihash_entries"},
	} {
		entries := m.hashEntries(table.argument, args)
		bytes := entries * 8
		order := 0
		for int64(pageSize)<<order < bytes {
			order++
		}
		log = append(log, fmt.Sprintf("%s hash table entries: %d (order: %d, %d bytes, linear)", table.name, entries, order, bytes))
	}
	return log
}

func (m *Machine) hashEntries(argument string, args []string) int64 {
	var requested int64
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if name == argument && !slices.Contains(m.options.BrokenArguments, name) {
			if _, err := fmt.Sscanf(value, "%d", &requested); err != nil {
				requested = 0
			}
		}
	}
	grant, _ := catalogue.HashSize(argument, requested, m.options.MemoryBytes, pageSize)
	return grant.Granted
}

// BootID returns the ID of the current boot.
func (m *Machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootID
}

// Boots returns the number of boots, including the first.
func (m *Machine) Boots() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boots
}

// Log returns the kernel log of the current boot.
func (m *Machine) Log() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.log, "\n") + "\n"
}

// Read returns a file of the machine, without the white space around it.
func (m *Machine) Read(name string) (string, error) {
	data, err := os.ReadFile(m.hostPath(name))
	return strings.TrimSpace(string(data)), err
}

// Root returns the directory with the root file system of the machine.
func (m *Machine) Root() string { return m.dir }

func (m *Machine) hostPath(name string) string { return filepath.Join(m.dir, name) }

func (m *Machine) writeFile(name, data string) error {
	if err := os.MkdirAll(filepath.Dir(m.hostPath(name)), 0o755); err != nil {
		return fmt.Errorf("write %s of the simulated machine: %w", name, err)
	}
	if err := os.WriteFile(m.hostPath(name), []byte(data), 0o644); err != nil {
		return fmt.Errorf("write %s of the simulated machine: %w", name, err)
	}
	return nil
}

// readLines returns the lines of the files in a directory, sorted by file name and without comments.
func (m *Machine) readLines(dir, suffix string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(m.hostPath(dir), "*"+suffix))
	if err != nil {
		return nil, fmt.Errorf("list %s of the simulated machine: %w", dir, err)
	}
	slices.Sort(names)
	var lines []string
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read %s of the simulated machine: %w", name, err)
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
	}
	return lines, nil
}

func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // crypto/rand never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
