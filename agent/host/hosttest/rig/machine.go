// Package rig is a copied host whose boot loaders can be booted in tests.
package rig

import (
	"context"
	"debug/pe"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/efi"
	"github.com/storageclient/operator/agent/host/bootloader/grub"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/bootloader/uki"
	"github.com/storageclient/operator/agent/host/hosttest"
	hostgrub "github.com/storageclient/operator/agent/host/hosttest/grub"
	"github.com/storageclient/operator/agent/host/journal"
)

// Machine is a copied host that can be booted.
type Machine struct {
	T        *testing.T
	Dir      string
	FS       host.FS
	Commands *hosttest.Commands
	Facts    MemoryFacts
	// Journalled is true if the journal of the tree stores the facts.
	Journalled bool
	Subject    *life.Subject
	// Names are the names of the GRUB that a test starts.
	Names *loader.Place
	boots int
	// entries is the directory of boot loader entries, and Kernel is the kernel of the default entry.
	entries, Kernel string
	// Attended is true if an agent runs after the boot.
	Attended bool
	// Uptime is the value of the boot clock.
	Uptime time.Duration
	// Paused counts the waits for a menu. whilePaused is called during each wait.
	Paused      int
	WhilePaused func()
}

func (m *Machine) BootFiles() map[string]string {
	m.T.Helper()
	files := hosttest.ReadTree(m.T, m.Dir, "/boot", "/efi", "/etc", "/var/lib/storage-client", hosttest.OneShotVariable)
	// No system reads the file of a killed sed.
	maps.DeleteFunc(files, func(name, _ string) bool {
		return path.Base(name) == hosttest.SedLeftover || strings.HasPrefix(name, "/var/lib/") && name != loader.RecordForm.File
	})
	return files
}

func (m *Machine) BootEntry(inodes int) {
	m.T.Helper()
	for line := range strings.Lines(m.Read(RockyEntry)) {
		if options, ok := strings.CutPrefix(line, "options "); ok {
			m.BootWith("BOOT_IMAGE=(hd0,msdos1)/vmlinuz "+strings.TrimSpace(options), inodes)
		}
	}
}

// PowerEntry starts GRUB like blsMenu, and returns the entry that it boots: of the environment block, or else the highest name.
func (m *Machine) PowerEntry() (name, options string) {
	m.T.Helper()
	if m.entries == SystemdEntries {
		return m.powerSystemdBoot()
	}
	env := grubcfg.Environment(m.Read(BlsEnv))
	files, err := m.FS.Glob(bls.EntriesDir, "*.conf")
	if err != nil {
		m.T.Fatal(err)
	}
	file := slices.Max(slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == bls.OnceEntry }))
	for _, choice := range []string{env.Value("saved_entry"), env.Value(grubcfg.NextEntry)} {
		if choice != "" && slices.Contains(files, path.Join(bls.EntriesDir, choice+".conf")) {
			file = path.Join(bls.EntriesDir, choice+".conf")
		}
	}
	if env.Value(grubcfg.NextEntry) != "" {
		// save_env keeps the line of an empty variable.
		text := strings.Replace(string(env), grubcfg.NextEntry+"="+env.Value(grubcfg.NextEntry)+"\n", grubcfg.NextEntry+"=\n", 1)
		m.Write(BlsEnv, hostgrub.PadBlock(strings.TrimRight(text, "#")))
	}
	return strings.TrimSuffix(path.Base(file), ".conf"), bls.EntryOptions(m.Read(file))
}

// StartEntry starts GRUB, the kernel and the agent, unless the arguments make the kernel panic. The machine then starts again.
func (m *Machine) StartEntry() string {
	m.T.Helper()
	for range 3 {
		name, options := m.PowerEntry()
		if strings.Contains(options, PanicArgument) {
			continue
		}
		inodes := 262144
		if arg, ok := argument.Last(host.ParseArguments(options), Ihash); ok {
			_, err := fmt.Sscan(arg.Value, &inodes)
			if err != nil {
				m.T.Fatal(err)
			}
		}
		switch {
		case m.hasImages():
			m.SetVariable("LoaderEntrySelected", strings.TrimSuffix(name, ".efi")+map[bool]string{true: ".conf", false: ".efi"}[name == bls.OnceID])
			m.BootWith(options, inodes)
		case m.entries == SystemdEntries:
			m.Write(efi.Vars+"LoaderEntrySelected"+efi.LoaderGUID, hosttest.EncodeVariable(name+".conf"))
			m.BootWith(`initrd=\token\initrd `+options, inodes)
		default:
			m.BootWith("BOOT_IMAGE=(hd0,msdos1)/vmlinuz-5.14.0-427.13.1.el9_4.x86_64 "+options, inodes)
		}
		return name
	}
	m.T.Fatal("the machine does not start")
	return ""
}

// ExpectInDefaults checks whether all permanent entries and the arguments of later kernels have an argument.
func (m *Machine) ExpectInDefaults(arg string, want bool) {
	m.T.Helper()
	if m.hasImages() && slices.Contains(strings.Fields(m.AddonOptions()), arg) != want {
		m.T.Errorf("the addon has %s: %t", arg, !want)
	}
	files, err := m.FS.Glob(m.entries, "*.conf")
	if err != nil {
		m.T.Fatal(err)
	}
	for _, file := range append(files, bls.LaterFile) {
		if m.hasImages() {
			continue
		}
		if path.Base(file) != path.Base(bls.OnceEntry) && slices.Contains(strings.Fields(m.Read(file)), arg) != want {
			m.T.Errorf("%s has %s: %t", file, arg, !want)
		}
	}
}

// ExpectEntryBootable checks the state after a kill: within two starts, GRUB boots with the arguments of the running kernel or fewer.
func (m *Machine) ExpectEntryBootable(n int) {
	m.T.Helper()
	defer m.keepSelection()()
	// The last argument is the previous value of a promotion.
	running := host.ParseArguments(m.Read(loader.CommandLine) + " " + Ihash + "=1048576")
	for range 2 {
		_, options := m.PowerEntry()
		if options != "" && len(argument.Without(host.ParseArguments(options), running)) == 0 {
			return
		}
	}
	m.T.Errorf("after a kill at write %d: GRUB never boots the running arguments", n)
}

// ExpectRunningDefault checks that the default entry has exactly the arguments of the running kernel after a kill.
func (m *Machine) ExpectRunningDefault(n int) {
	m.T.Helper()
	defer m.keepSelection()()
	if m.entries == SystemdEntries {
		m.Remove(hosttest.OneShotVariable)
	} else {
		m.Write(BlsEnv, string(grubcfg.Environment(m.Read(BlsEnv)).With(grubcfg.NextEntry, "")))
	}
	_, options := m.PowerEntry()
	running, passed := host.ParseArguments(m.Read(loader.CommandLine)), host.ParseArguments(options)
	running = slices.DeleteFunc(running, func(arg host.Argument) bool { return arg.Is("BOOT_IMAGE") || arg.Is("initrd") })
	// An addon cannot keep a value that the trial replaces.
	replaced := func(arg host.Argument) bool { return m.hasImages() && (arg.Is(Ihash) || arg.Is("audit")) }
	additional, missing := argument.Without(passed, running), slices.DeleteFunc(argument.Without(running, passed), replaced)
	if len(additional)+len(missing) > 0 {
		m.T.Errorf("after a kill at write %d: the default entry has %v and lacks %v", n, additional, missing)
	}
}

func (m *Machine) SetMode(name string, mode os.FileMode) {
	m.T.Helper()
	if err := os.Chmod(filepath.Join(m.Dir, name), mode); err != nil {
		m.T.Fatal(err)
	}
}

// FailTrial boots the entry that is booted once with a permit. It does not come up, and the machine starts again.
func (m *Machine) FailTrial() {
	m.T.Helper()
	m.PrepareReboot()
	if name, _ := m.PowerEntry(); name != bls.OnceID {
		m.T.Errorf("booted %s instead of the trial", name)
	}
	m.StartEntry()
}

// ExpectDisarmed checks that the next boot is not a trial, and that the block has every other byte.
func (m *Machine) ExpectDisarmed(block string) {
	m.T.Helper()
	if environment := m.Read(BlsEnv); grubcfg.Environment(environment).Value(grubcfg.NextEntry) == bls.OnceID && len(environment) == grubcfg.EnvSize {
		m.T.Error("the trial is selected")
	} else if environment != block && len(environment) == grubcfg.EnvSize {
		want := grubcfg.Environment(block).With(grubcfg.NextEntry, "")
		if diff := cmp.Diff(string(want), string(grubcfg.Environment(environment).With(grubcfg.NextEntry, ""))); diff != "" {
			m.T.Errorf("environment block (-want +got):\n%s", diff)
		}
	}
	if name := m.StartEntry(); name == bls.OnceID {
		m.T.Error("the machine booted the trial")
	}
}

func (m *Machine) AddArgument(argument string) {
	m.Write(loader.CommandLine, strings.TrimSpace(m.Read(loader.CommandLine))+" "+argument+"\n")
}

// NewKernel installs a kernel. Its package runs update-grub.
func (m *Machine) NewKernel(version string) {
	m.T.Helper()
	for _, kind := range []string{"vmlinuz", "initrd.img"} {
		m.Write("/boot/"+kind+"-"+version, "")
	}
	m.MakeGrubCfg()
}

func (m *Machine) MakeGrubCfg() {
	m.T.Helper()
	if _, err := m.Commands.Run(m.T.Context(), "grub-mkconfig", "-o", grubcfg.Debian); err != nil {
		m.T.Fatal(err)
	}
}

// RestoreByHand restores a user's copy of the menu. Then the agent stages again.
func (m *Machine) RestoreByHand() {
	m.T.Helper()
	before := m.Read(grubcfg.Debian)
	m.Apply(Settings(Ihash, Seed))
	m.Write(grubcfg.Debian, before)
	m.Apply(Settings(Ihash, Seed))
}

// InstallOldGrubby replaces grubby with a version that always edits /etc/default/grub, like 8.40-41 and 8.40-42.
func (m *Machine) InstallOldGrubby() { m.Write(GrubbyScript, "getopt ...\n") }

func (m *Machine) Modes() map[string]os.FileMode {
	m.T.Helper()
	modes := map[string]os.FileMode{}
	for name := range m.BootFiles() {
		info, err := os.Lstat(filepath.Join(m.Dir, name))
		if err != nil {
			m.T.Fatal(err)
		}
		modes[name] = info.Mode()
	}
	return modes
}

func (m *Machine) ExpectAsBefore(files map[string]string, modes map[string]os.FileMode) {
	m.T.Helper()
	if diff := cmp.Diff(files, m.BootFiles()); diff != "" {
		m.T.Errorf("files (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(modes, m.Modes()); diff != "" {
		m.T.Errorf("modes (-before +after):\n%s", diff)
	}
	if m.FS.Exists(bls.EntryCopies) {
		m.T.Errorf("%s remains", bls.EntryCopies)
	}
	if saved := m.Facts.KeptFiles(); len(saved) > 0 {
		m.T.Errorf("got %d saved files, want none", len(saved))
	}
}

// LaterKernel returns the arguments that kernel-install gives to the next kernel.
func (m *Machine) LaterKernel() string {
	m.T.Helper()
	for _, file := range bls.LaterFiles {
		if m.FS.Exists(file) {
			return strings.Join(strings.Fields(m.Read(file)), " ")
		}
	}
	_, args, _ := strings.Cut(strings.TrimSpace(m.Read(loader.CommandLine)), " ")
	return args
}

const (
	Ihash  = "ihash_entries"
	Seed   = "16777216"
	Debian = "debian-12"
	Rocky  = "rocky-9"
	Ubuntu = "ubuntu-24.04-cloudimg"
	// Azure is a copied Debian with the boot configuration of Azure Linux 3.
	Azure = "azure-linux-3"
)

// MemoryFacts stores boot facts in memory, with the semantics of the journal.
type MemoryFacts map[string]string

func (f MemoryFacts) BootFact(bootID, name string) (string, bool) {
	value, ok := f[bootID+" "+name]
	return value, ok
}

func (f MemoryFacts) SetBootFact(bootID, name, value string) error {
	f[bootID+" "+name] = value
	return nil
}

const KeptFiles = "files"

func (f MemoryFacts) KeptFiles() map[string]host.FileRecord {
	saved := map[string]host.FileRecord{}
	if err := json.Unmarshal([]byte(f[KeptFiles]), &saved); err != nil {
		return nil
	}
	return saved
}

func (f MemoryFacts) KeepFiles(files map[string]host.FileRecord) error {
	data, err := json.Marshal(files)
	f[KeptFiles] = string(data)
	return err
}

func New(t *testing.T, fixture string) *Machine {
	t.Helper()
	m := &Machine{T: t, Dir: hosttest.CopyHost(t, fixture), Facts: MemoryFacts{}, Names: grub.DebianPlace}
	m.Commands = &hosttest.Commands{Dir: m.Dir, KernelLog: KernelLog(262144)}
	fs, err := host.OpenFS(m.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	m.FS = fs
	m.Restart()
	return m
}

// Restart simulates a restart of the agent.
func (m *Machine) Restart() { m.Subject = m.On(m.FS) }

func (m *Machine) On(fs host.FS) *life.Subject {
	var facts loader.BootFacts = m.Facts
	if m.Journalled {
		records := journal.New(fs)
		if err := records.Load(); err != nil && !errors.Is(err, ErrCrash) {
			m.T.Fatal(err)
		}
		facts = records
	}
	s := life.New(fs, m.Commands, facts, sixteenth, bootloader.Kinds)
	s.Attend(m.Attended)
	s.BootClock = m
	s.Pause = func(time.Duration) {
		if m.Paused++; m.WhilePaused != nil {
			m.WhilePaused()
		}
	}
	return s
}

// SinceBoot implements host.BootClock.
func (m *Machine) SinceBoot() (time.Duration, error) { return m.Uptime, nil }

// sixteenth permits sizes up to 1/16 of memory.
func sixteenth(_ string, entries, memory uint64) (uint64, bool) {
	largest := uint64(1) << (bits.Len64(memory/16/8) - 1)
	return min(life.PowerAbove(entries), largest), life.PowerAbove(entries) > largest
}

func KernelLog(inodes int) string {
	return fmt.Sprintf(`Linux version 6.1.0-25-amd64
Dentry cache hash table entries: 524288 (order: 10, 4194304 bytes, linear)
Inode-cache hash table entries: %d (order: 9, %d bytes, linear)
`, inodes, inodes*8)
}

func (m *Machine) Grub() grubcfg.Files {
	return grubcfg.Files{Base: loader.Base{Host: m.Subject.Host, At: m.Names}}
}

// Boot boots the first entry of the menu with an inode hash table of the given size. The agent starts with the machine.
func (m *Machine) Boot(inodes int) {
	m.T.Helper()
	line := grubcfg.Parse(m.Read(m.Names.Menu)).Lines[0]
	m.BootWith("BOOT_IMAGE="+line.Kernel+" "+argument.Join(line.Args), inodes)
}

func (m *Machine) BootWith(cmdline string, inodes int) {
	m.T.Helper()
	m.boots++
	m.Write(loader.CommandLine, cmdline+"\n")
	m.Write("/proc/sys/kernel/random/boot_id", fmt.Sprintf("boot-%d\n", m.boots))
	m.Commands.KernelLog = KernelLog(inodes)
	m.Restart()
}

func (m *Machine) Read(name string) string { m.T.Helper(); return hosttest.ReadFile(m.T, m.Dir, name) }

func (m *Machine) Write(name, data string) { m.T.Helper(); hosttest.WriteFile(m.T, m.Dir, name, data) }

func (m *Machine) Replace(name, from, to string) {
	m.T.Helper()
	data := m.Read(name)
	if !strings.Contains(data, from) {
		m.T.Fatalf("%s does not contain %q", name, from)
	}
	m.Write(name, strings.ReplaceAll(data, from, to))
}

func (m *Machine) Remove(name string) {
	m.T.Helper()
	if err := os.RemoveAll(filepath.Join(m.Dir, name)); err != nil {
		m.T.Fatal(err)
	}
}

func (m *Machine) Apply(desired []host.Setting) {
	m.T.Helper()
	if err := m.Subject.Apply(m.T.Context(), desired); err != nil {
		m.T.Fatal(err)
	}
}

func (m *Machine) Observe(name, value string) host.Observation {
	m.T.Helper()
	return m.Subject.Observe(m.T.Context(), Settings(name, value))[0]
}

func (m *Machine) Restore(name string, original host.Original) host.Observation {
	m.T.Helper()
	return m.Subject.Restore(m.T.Context(), map[string]host.Original{name: original})[0]
}

// MenusMade returns the number of runs of grub-mkconfig.
func (m *Machine) MenusMade() int {
	n := 0
	for _, command := range m.Commands.Ran {
		if strings.HasPrefix(command, m.Names.Mkconfig[0]) {
			n++
		}
	}
	return n
}

// AgentFiles returns all files that may contain data of the agent.
func (m *Machine) AgentFiles() map[string]string {
	m.T.Helper()
	files := map[string]string{}
	for name, data := range hosttest.ReadTree(m.T, m.Dir, "/etc/default/grub.d", "/etc/grub.d", path.Dir(m.Names.Menu)) {
		if strings.Contains(name, "storage-client") {
			files[name] = data
		}
	}
	return files
}

func Settings(pairs ...string) []host.Setting {
	var list []host.Setting
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, host.Setting{Name: pairs[i], Value: pairs[i+1]})
	}
	return list
}

func Expect(t *testing.T, observed host.Observation, state host.State, parts ...string) {
	t.Helper()
	if observed.State != state {
		t.Errorf("state = %s (%s), want %s", observed.State, observed.Message, state)
	}
	for _, part := range parts {
		if !strings.Contains(observed.Message, part) {
			t.Errorf("message: got %q, want it to contain %q", observed.Message, part)
		}
	}
	if observed.Effect != host.Reboot {
		t.Errorf("effect = %s", observed.Effect)
	}
}

// AddKernel writes the entry of another kernel. Its initramfs is missing while dracut makes it.
func (m *Machine) AddKernel(version string, complete bool) (entry string) {
	m.T.Helper()
	rename := strings.NewReplacer("5.14.0-427.13.1.el9_4.x86_64", version)
	entry = rename.Replace(RockyEntry)
	m.Write(entry, rename.Replace(m.Read(RockyEntry)))
	m.Write("/boot/vmlinuz-"+version, "kernel")
	if complete {
		m.Write("/boot/initramfs-"+version+".img", "initrd")
	}
	return entry
}

// ExpectUnsupported checks that the agent reports the host as unsupported with a message, and changes no file for an argument.
func (m *Machine) ExpectUnsupported(message string) {
	m.T.Helper()
	if found := m.Subject.Detect(); found.Type != loader.Unsupported || !strings.Contains(found.Message, message) {
		m.T.Errorf("got %+v, want %q", found, message)
	}
	before := m.BootFiles()
	m.Apply(Settings(Ihash, Seed))
	Expect(m.T, m.Observe(Ihash, Seed), host.Unsupported, message)
	if diff := cmp.Diff(before, m.BootFiles()); diff != "" {
		m.T.Errorf("files (-want +got):\n%s", diff)
	}
}

// Check is a drift check of the agent: it stages drifted arguments again.
func (m *Machine) Check(desired []host.Setting) host.Observation {
	m.T.Helper()
	observed := m.Subject.Observe(m.T.Context(), desired)[0]
	if observed.State == host.Drifted {
		if err := m.Subject.Apply(m.T.Context(), desired); err != nil {
			m.T.Errorf("staging failed: %v", err)
		}
		observed = m.Subject.Observe(m.T.Context(), desired)[0]
	}
	return observed
}

// InstallKernel writes the files of a kernel like "kernel-install add".
func (m *Machine) InstallKernel(version string) (entry string) {
	m.T.Helper()
	dir := "/" + SystemdToken + "/" + version
	m.Write("/efi"+dir+"/linux", "kernel")
	m.Write("/efi"+dir+"/initrd.img-"+version, "initrd")
	entry = SystemdEntries + "/" + SystemdToken + "-" + version + ".conf"
	m.Write(entry, "# Boot Loader Specification type#1 entry\n# File created by /usr/lib/kernel/install.d/90-loaderentry.install (systemd 257.9-1~deb13u1)\n"+
		"title      Debian GNU/Linux 13 (trixie)\nversion    "+version+"\nmachine-id "+SystemdToken+"\nsort-key   debian\n"+
		"options    "+strings.TrimSpace(m.Read(bls.LaterFile))+" systemd.machine_id="+SystemdToken+"\n"+
		"linux      "+dir+"/linux\ninitrd     "+dir+"/initrd.img-"+version+"\n")
	return entry
}

// SetVariable sets a variable of systemd-boot.
func (m *Machine) SetVariable(name, text string) {
	m.T.Helper()
	m.Write(efi.Vars+name+efi.LoaderGUID, hosttest.EncodeVariable(text))
}

func (m *Machine) OneShot() string {
	m.T.Helper()
	text, err := efi.Variable(m.FS, efi.OneShot)
	if err != nil {
		m.T.Fatal(err)
	}
	return text
}

// powerSystemdBoot starts systemd-boot, which unsets its variable first, and returns the entry that it boots: the selected one, or else the highest
// version.
func (m *Machine) powerSystemdBoot() (name, options string) {
	m.T.Helper()
	files, err := m.FS.Glob(SystemdEntries, "*.conf")
	if err != nil {
		m.T.Fatal(err)
	}
	images, err := m.FS.Glob(ImagesDir, "*.efi")
	if err != nil {
		m.T.Fatal(err)
	}
	byName := func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) }
	file := slices.MaxFunc(append(slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == SystemdOnce }), images...), byName)
	if selected := path.Join(SystemdEntries, m.OneShot()); slices.Contains(files, selected) {
		file = selected
	}
	m.Remove(hosttest.OneShotVariable)
	if slices.Contains(images, file) {
		return path.Base(file), m.stubOptions(file, "")
	}
	options = bls.EntryOptions(m.Read(file))
	if image := efi.EntryField(&loader.Entry{Text: m.Read(file)}, "efi"); image != "" {
		options = m.stubOptions("/efi"+image, options)
	}
	return strings.TrimSuffix(path.Base(file), ".conf"), options
}

// keepSelection returns a function that selects the same next boot as now.
func (m *Machine) keepSelection() (restore func()) {
	m.T.Helper()
	if m.entries != SystemdEntries {
		block := m.Read(BlsEnv)
		return func() { m.Write(BlsEnv, block) }
	}
	selected := m.OneShot()
	return func() {
		m.Remove(hosttest.OneShotVariable)
		if selected != "" {
			m.SetVariable(efi.OneShot, selected)
		}
	}
}

// SetLoaderPartition mounts the device 8:15 at a directory, and names the device of the partition that systemd-boot was loaded from.
func (m *Machine) SetLoaderPartition(dir, number string) {
	m.T.Helper()
	const id = "1b2c3d4e-0000-4000-8000-000000000001"
	m.SetVariable("LoaderDevicePartUUID", strings.ToUpper(id))
	m.Write("/dev/sdx1", "")
	if !m.FS.Exists("/dev/disk/by-partuuid/" + id) {
		hosttest.WriteLink(m.T, m.Dir, "/dev/disk/by-partuuid/"+id, "../../sdx1")
	}
	m.Write("/sys/class/block/sdx1/dev", number+"\n")
	m.Write("/proc/1/mountinfo", "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n90 25 0:36 / "+dir+
		" rw,relatime shared:40 - autofs systemd-1 rw\n91 90 8:15 / "+dir+" rw,relatime shared:41 - vfat /dev/sda15 rw\n")
}

// CopyMenu simulates grub-mkconfig while it copies a new menu in place. The file contains only the start of the menu, up to the end of a
// section.
func (m *Machine) CopyMenu() {
	m.T.Helper()
	whole := m.Read(grubcfg.Debian)
	const end = "### END /etc/grub.d/10_linux ###\n"
	start, _, found := strings.Cut(whole, end)
	if !found || !grubcfg.Parse(start+end).Whole {
		m.T.Fatal("the start of the menu is not a complete section")
	}
	m.Write(grubcfg.Debian+".new", whole)
	m.Write(grubcfg.Debian, start+end)
}

func (m *Machine) Crashing(at int) (*life.Subject, *Crash) {
	c := &Crash{at: at}
	s := m.On(m.FS.WithHook(func(host.Op, string) error { return c.step() }))
	s.Runner = &crashingRunner{Crash: c, Commands: m.Commands}
	return s, c
}

func (m *Machine) makeTrying() {
	m.T.Helper()
	m.Attended = true
	probe := strings.Replace(m.Names.Mkconfig[0], "mkconfig", "probe", 1)
	m.Commands.Output = map[string]string{probe + " --target=abstraction " + path.Dir(m.Names.Menu): "\n", probe + " --target=fs " + path.Dir(m.Names.Menu): "ext2\n"}
	m.Write(m.Grub().Env(), hostgrub.PadBlock(hostgrub.EmptyBlock+"saved_entry=0\n"))
	m.Write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n# for custom entries\n")
	m.UpdateGrub()
	m.Restart()
}

// UpdateGrub generates the menu like the installation of a kernel.
func (m *Machine) UpdateGrub() {
	m.T.Helper()
	if err := os.Chmod(filepath.Join(m.Dir, "/etc/grub.d/40_custom"), 0o755); err != nil {
		m.T.Fatal(err)
	}
	if _, err := m.Commands.Run(m.T.Context(), m.Names.Mkconfig[0], "-o", m.Names.Menu); err != nil {
		m.T.Fatal(err)
	}
	m.Commands.Ran = nil
}

// PrepareReboot prepares a permitted reboot like the agent.
func (m *Machine) PrepareReboot() {
	m.T.Helper()
	if err := m.Subject.Rearm(true); err != nil {
		m.T.Fatal(err)
	}
}

// ReplaceInMenus replaces a text in the current menu and in all menus that grub-mkconfig makes later.
func (m *Machine) ReplaceInMenus(text, instead string) {
	m.Commands.AfterMenu = func(name string) { m.Replace(name, text, instead) }
	m.UpdateGrub()
}

// Power starts GRUB. The kernel hangs afterwards.
func (m *Machine) Power() hostgrub.Boot {
	m.T.Helper()
	boot, err := hostgrub.Start(m.Dir)
	if err != nil {
		m.T.Fatal(err)
	}
	return boot
}

// Start starts GRUB, the kernel, and the agent.
func (m *Machine) Start(inodes int) hostgrub.Boot {
	m.T.Helper()
	boot := m.Power()
	m.BootWith("BOOT_IMAGE="+boot.Kernel+" "+strings.Join(boot.Arguments, " "), inodes)
	return boot
}

func (m *Machine) ExpectBoot(boot hostgrub.Boot, previous, tuned bool) {
	m.T.Helper()
	if strings.Contains(strings.Join(boot.Arguments, " "), Ihash) != tuned || (boot.ID == grub.PreviousID) != previous {
		m.T.Errorf("booted %+v, want previous entry %t, argument %t", boot, previous, tuned)
	}
}

func (m *Machine) Tree() map[string]string {
	m.T.Helper()
	return hosttest.ReadTree(m.T, m.Dir, "/etc", "/boot")
}

func (m *Machine) ExpectTree(name string, want map[string]string) {
	m.T.Helper()
	if diff := cmp.Diff(want, m.Tree()); diff != "" {
		m.T.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func (m *Machine) TrialState() string {
	m.T.Helper()
	env, _, err := m.Grub().ReadEnvironment(m.Grub().Env())
	if err != nil {
		m.T.Fatal(err)
	}
	return env.Value(loader.TrialVariable)
}

// ReplaceKernels installs a kernel that becomes the first entry, and then removes the kernel, the initrd or both of the present first entry.
func (m *Machine) ReplaceKernels(removed ...string) {
	m.T.Helper()
	version := strings.TrimPrefix(path.Base(grubcfg.Parse(m.Read(m.Names.Menu)).Lines[0].Kernel), "vmlinuz-")
	for _, kind := range []string{"vmlinuz-", "initrd.img-"} {
		m.Write("/boot/"+kind+"9"+version, "")
	}
	for _, kind := range removed {
		m.Remove("/boot/" + kind + version)
	}
	m.UpdateGrub()
}

// ExpectBootable checks the state after a crash: within two starts, GRUB boots with the arguments of the running kernel.
func (m *Machine) ExpectBootable(n int) {
	m.T.Helper()
	block := m.Read(m.Grub().Env())
	running := host.ParseArguments(m.Read(loader.CommandLine))
	var last []host.Argument
	for range 2 {
		last = argument.FromWords(m.Power().Arguments)
		if len(argument.Without(last, running)) == 0 {
			m.Write(m.Grub().Env(), block)
			return
		}
	}
	m.T.Errorf("after a crash at change %d: GRUB boots %s, and never the running arguments", n, argument.Join(last))
}

func (m *Machine) Rearm(permitted bool) error { return m.Subject.Rearm(permitted) }

// InstallImage writes an image like ukify, with the arguments of later kernels. changed replaces sections; an empty section is left out.
func (m *Machine) InstallImage(version string, changed map[string]string) (file string) {
	m.T.Helper()
	file = ImagesDir + "/" + SystemdToken + "-" + version + ".efi"
	m.writeImage(file, version, changed)
	return file
}

func (m *Machine) writeImage(file, version string, changed map[string]string) {
	m.T.Helper()
	sections := []uki.ImageSection{Part(".text", "code")}
	for _, s := range [][2]string{
		{".sdmagic", "#### LoaderInfo: systemd-stub 257.9-1~deb13u1 ####"}, {".osrel", debianOS}, {".cmdline", strings.TrimSpace(m.Read(bls.LaterFile))},
		{".uname", version}, {".linux", "kernel " + version}, {".profile", ""},
	} {
		data, ok := changed[s[0]]
		if !ok {
			data = s[1]
		}
		if data != "" {
			sections = append(sections, Part(s[0], data))
		}
	}
	data, err := uki.RenderImage(pe.IMAGE_FILE_MACHINE_AMD64, sections)
	if err != nil {
		m.T.Fatal(err)
	}
	m.Write(file, string(data))
}

func (m *Machine) hasImages() bool { return strings.HasSuffix(m.Kernel, ".efi") }

// section returns the text of a section of a file.
func (m *Machine) section(file, name string) string {
	m.T.Helper()
	image, err := pe.Open(filepath.Join(m.Dir, file))
	if err != nil {
		m.T.Fatal(err)
	}
	defer image.Close()
	section := image.Section(name)
	if section == nil {
		return ""
	}
	data, err := section.Data()
	if err != nil {
		m.T.Fatal(err)
	}
	return string(data[:section.VirtualSize])
}

// AddonOptions returns the command line of the agent's addon.
func (m *Machine) AddonOptions() string {
	m.T.Helper()
	if !m.FS.Exists(UkiAddon) {
		return ""
	}
	return m.section(UkiAddon, ".cmdline")
}

// stubOptions returns the command line that systemd-stub gives to the kernel: its load options, or else the command line of the image, and then the addons.
func (m *Machine) stubOptions(image, options string) string {
	m.T.Helper()
	parts := []string{options}
	if options == "" {
		parts = []string{m.section(image, ".cmdline")}
	}
	for _, dir := range []string{"/efi/loader/addons", image + ".extra.d"} {
		addons, err := m.FS.Glob(dir, "*.addon.efi")
		if err != nil {
			m.T.Fatal(err)
		}
		for _, addon := range addons {
			if strings.Trim(m.Read(addon), "\x00") == "" {
				// A power cut has emptied it. The stub ignores a file that it cannot load.
				continue
			}
			if uname := m.section(addon, ".uname"); uname == "" || uname == m.section(image, ".uname") {
				parts = append(parts, m.section(addon, ".cmdline"))
			}
		}
	}
	return strings.Join(parts, " ")
}

// ExpectUntouched checks that the host is unchanged, and that the reported reason contains the parts.
func (m *Machine) ExpectUntouched(before map[string]string, parts ...string) {
	m.T.Helper()
	Expect(m.T, m.Observe(Ihash, Seed), host.Unsupported, append(parts, grubcfg.Debian+" line ", "run update-grub")...)
	if found := m.Subject.Detect(); found.Type != loader.Unsupported || found.MayReboot() || !strings.Contains(found.Message, parts[0]) {
		m.T.Errorf("unexpected boot loader: %+v", found)
	}
	if diff := cmp.Diff(before, m.BootFiles()); diff != "" {
		m.T.Errorf("files (-before +after):\n%s", diff)
	}
	if saved := m.Facts.KeptFiles(); len(saved) > 0 {
		m.T.Errorf("got %d saved files", len(saved))
	}
}

const (
	RockyEntry  = "/boot/loader/entries/8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7-5.14.0-427.13.1.el9_4.x86_64.conf"
	RescueEntry = "/boot/loader/entries/8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7-0-rescue.conf"
)

// NewRocky is a host with two entries and a command line for later kernels.
func NewRocky(t *testing.T) *Machine {
	t.Helper()
	m := New(t, Rocky)
	m.entries, m.Kernel = bls.EntriesDir, RockyKernel
	m.Write(RescueEntry, strings.ReplaceAll(m.Read(RockyEntry), "5.14.0-427.13.1.el9_4.x86_64", "0-rescue"))
	m.Write(bls.LaterFile, "root=/dev/mapper/rl-root ro crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M rd.lvm.lv=rl/root\n")
	return m
}

const (
	BlsEnv  = "/boot/grub2/grubenv"
	blsMenu = `set timeout=5
load_env
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
insmod blscfg
blscfg
`
	PanicArgument = "rdinit"
)

// NewTryingRocky is a host whose GRUB can write to its environment block. An agent runs after each boot.
func NewTryingRocky(t *testing.T) *Machine {
	t.Helper()
	m := NewRocky(t)
	m.Attended = true
	m.Commands.Output = map[string]string{
		"grub2-probe --target=abstraction /boot/grub2": "\n", "grub2-probe --target=fs /boot/grub2": "xfs\n",
	}
	m.Write(grubcfg.Grub2, blsMenu)
	m.Write(BlsEnv, hostgrub.PadBlock(hostgrub.EmptyBlock+"next_entry=\nboot_success=1\nkernelopts=ro\n"))
	for _, file := range []string{RockyEntry, RescueEntry} {
		for line := range strings.Lines(m.Read(file)) {
			if name, ok := strings.CutPrefix(line, "linux "); ok {
				m.Write("/boot"+strings.TrimSpace(name), "kernel")
			} else if name, ok := strings.CutPrefix(line, "initrd "); ok {
				m.Write("/boot"+strings.TrimSpace(name), "initrd")
			}
		}
	}
	m.Restart()
	return m
}

var ErrCrash = errors.New("crash")

const AgentDropIn = `# Written by storage-client-node-agent. What is changed here is overwritten.
GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT ihash_entries=16777216"
`

const (
	RockyKernel = "/boot/vmlinuz-5.14.0-427.13.1.el9_4.x86_64"
	RockyInitrd = "/boot/initramfs-5.14.0-427.13.1.el9_4.x86_64.img"
	Hugepage    = "transparent_hugepage"
)

const (
	// UpstreamScript is a grub2-mkconfig that reads no drop-ins on its own, like the upstream version.
	UpstreamScript = "if test -f ${sysconfdir}/default/grub ; then\n  . ${sysconfdir}/default/grub\nfi\n"
	AzureMenu      = "### BEGIN /etc/grub.d/10_linux ###\nmenuentry 'AzureLinux GNU/Linux' --class azurelinux $menuentry_id_option 'gnulinux-simple-1' {\n" +
		"\tlinux\t/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n}\n### END /etc/grub.d/10_linux ###\n"
)

// AzureFiles contains the boot configuration of Azure Linux 3: microsoft/azurelinux, toolkit/resources/assets/grub2/grub.
var AzureFiles = map[string]string{
	"/etc/os-release":          "NAME=\"Microsoft Azure Linux\"\nID=azurelinux\nPRETTY_NAME=\"Microsoft Azure Linux 3.0\"\n",
	"/usr/sbin/grub2-mkconfig": UpstreamScript,
	"/boot/grub2/grub.cfg":     AzureMenu,
	loader.DefaultFile: "GRUB_TIMEOUT=0\nGRUB_DISABLE_RECOVERY=true\nGRUB_CMDLINE_LINUX=\"lockdown=integrity\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"loglevel=3\"\n" +
		"for dropin in /etc/default/grub.d/*.cfg ; do\n    if [ -e \"$dropin\" ]; then\n        . \"$dropin\"\n    fi\ndone\n",
}

// NewAzure returns an Azure Linux whose GRUB can write to its environment block. An agent runs after each boot.
func NewAzure(t *testing.T) *Machine {
	t.Helper()
	m := New(t, Debian)
	for _, name := range []string{"/boot", "/usr/sbin/grub-mkconfig", "/etc/default"} {
		m.Remove(name)
	}
	for name, data := range AzureFiles {
		m.Write(name, data)
	}
	m.Names = grub.Grub2Place
	m.Write("/boot/vmlinuz-6.6.51.1-5.azl3", "")
	m.Write("/boot/initrd.img-6.6.51.1-5.azl3", "")
	m.Write(loader.CommandLine, "BOOT_IMAGE=/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n")
	m.makeTrying()
	if err := os.Chmod(filepath.Join(m.Dir, grubcfg.Grub2), 0o400); err != nil {
		t.Fatal(err)
	}
	return m
}

const GrubbyScript = "/usr/sbin/grubby"

//go:embed testdata/rhel-9-grub.cfg
var menuOfRHEL string

// NewRHEL is a trying host with the menu that grub2-mkconfig of RHEL 9 writes, and the entries of two kernels and a rescue system.
func NewRHEL(t *testing.T) *Machine {
	t.Helper()
	m := NewTryingRocky(t)
	m.Write(grubcfg.Grub2, menuOfRHEL)
	m.AddKernel("5.14.0-362.8.1.el9_3.x86_64", true)
	m.Restart()
	return m
}

const (
	SystemdEntries = "/efi/loader/entries"
	SystemdOnce    = SystemdEntries + "/" + bls.OnceID + ".conf"
	SystemdToken   = "8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7"
	SystemdEntry   = SystemdEntries + "/" + SystemdToken + "-6.12.9-amd64.conf"
	OlderEntry     = SystemdEntries + "/" + SystemdToken + "-6.12.8-amd64.conf"
	OtherSystem    = SystemdEntries + "/other-6.12.9-amd64.conf"
	SystemdArgs    = "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro console=ttyS0"
)

// NewSystemdBoot is a host with two kernels, whose entries have the form of kernel-install 257. An agent runs after each boot.
func NewSystemdBoot(t *testing.T) *Machine {
	t.Helper()
	m := New(t, Debian)
	m.Attended, m.entries = true, SystemdEntries
	m.Kernel = "/efi/" + SystemdToken + "/6.12.9-amd64/linux"
	m.Remove("/boot/grub")
	m.Remove("/usr/sbin/grub-mkconfig")
	m.Write(bls.LaterFile, SystemdArgs+"\n")
	m.Write("/efi/loader/loader.conf", "timeout 0\n")
	m.InstallKernel("6.12.8-amd64")
	m.InstallKernel("6.12.9-amd64")
	m.Write(efi.Vars+"LoaderInfo"+efi.LoaderGUID, hosttest.EncodeVariable("systemd-boot 257.9-1~deb13u1"))
	m.Write(efi.Vars+"LoaderFeatures"+efi.LoaderGUID, "\x06\x00\x00\x00\xff\x3f\x00\x00\x00\x00\x00\x00")
	m.SetLoaderPartition("/efi", "8:15")
	m.StartEntry()
	return m
}

// Crash stops a subject at the n-th change, including changes by grub-mkconfig, as if the process died.
type Crash struct{ Count, at int }

func (c *Crash) step() error {
	c.Count++
	if c.Count >= c.at {
		return ErrCrash
	}
	return nil
}

// crashingRunner dies before a command or after it.
type crashingRunner struct {
	*Crash
	*hosttest.Commands
}

func (r *crashingRunner) Run(ctx context.Context, argv ...string) ([]byte, error) {
	if argv[0] != "grub-mkconfig" {
		r.BeforeWrite = r.step
		defer func() { r.BeforeWrite = nil }()
		return r.Commands.Run(ctx, argv...)
	}
	if err := r.step(); err != nil {
		return nil, err
	}
	out, err := r.Commands.Run(ctx, argv...)
	if err != nil {
		return nil, err
	}
	return out, r.step()
}

const (
	ProbeAbstraction = "grub-probe --target=abstraction /boot/grub"
	ProbeFS          = "grub-probe --target=fs /boot/grub"
	IhashSeed        = Ihash + "=" + Seed
	GrubEnv          = "/boot/grub/grubenv"
)

// NewTryingMachine returns a machine whose GRUB can write to its environment block. An agent runs after each boot. The block also contains
// a foreign variable.
func NewTryingMachine(t *testing.T, fixture string) *Machine {
	t.Helper()
	if fixture == Azure {
		return NewAzure(t)
	}
	m := New(t, fixture)
	m.makeTrying()
	return m
}

const (
	ImagesDir   = "/efi/EFI/Linux"
	NewestImage = ImagesDir + "/" + SystemdToken + "-6.12.9-amd64.efi"
	OlderImage  = ImagesDir + "/" + SystemdToken + "-6.12.8-amd64.efi"
	UkiAddon    = "/efi/loader/addons/storage-client.addon.efi"
	debianOS    = "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\nVERSION=\"13 (trixie)\"\n"
)

// NewUKI is a host with two unified kernel images, as kernel-install 257 names them. An agent runs after each boot.
func NewUKI(t *testing.T) *Machine {
	t.Helper()
	m := NewSystemdBoot(t)
	m.Remove(SystemdEntries)
	m.Remove("/efi/" + SystemdToken)
	m.Kernel = NewestImage
	m.InstallImage("6.12.8-amd64", nil)
	m.InstallImage("6.12.9-amd64", nil)
	m.SetVariable("StubInfo", "systemd-stub 257.9-1~deb13u1")
	m.Write(uki.SecureBoot, "\x06\x00\x00\x00\x00")
	m.StartEntry()
	return m
}

func Part(name, data string) uki.ImageSection { return uki.ImageSection{Name: name, Data: data} }
