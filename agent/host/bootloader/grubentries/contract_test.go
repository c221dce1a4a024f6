package grubentries_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/grubentries"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

// Files are read as the real kernel-install of this machine reads them: the scripts that it runs, and the arguments that it gives to a new kernel.
// systemd 252 and 262 agree.
func TestFilesAreReadAsKernelInstallReadsThem(t *testing.T) {
	m := rig.NewTryingRocky(t)
	run := hosttest.Tool(t, m.Dir, "kernel-install")
	for _, name := range []string{"sh", "cat", "chown", "cp", "grep", "install", "mkdir", "mktemp", "mountpoint", "rm", "sort", "stat", "tr"} {
		hosttest.Tool(t, m.Dir, name)
	}
	const entryScript, mark, added = "/usr/lib/kernel/install.d/90-loaderentry.install", "/ran", "/boot/loader/entries/new-6.1.0.conf"
	makeEntry, err := os.ReadFile(entryScript)
	check.NoError(t, err)
	for name, data := range map[string]string{
		"/dev/null": "", "/tmp/x": "", "/var/tmp/x": "", "/etc/machine-id": "8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7\n", "/etc/kernel/entry-token": "new\n",
		"/etc/kernel/install.conf": "layout=bls\n", "/boot/vmlinuz-6.1.0": strings.Repeat("kernel", 100), "/tool/grub2-mkconfig": "#!/tool/sh\necho made >" + mark + "\n",
		loader.DefaultFile: "GRUB_CMDLINE_LINUX=\"\"\n",
	} {
		m.Write(name, data)
	}
	hosttest.WriteLink(t, m.Dir, "/bin/sh", "/tool/sh")
	m.SetMode("/tool/grub2-mkconfig", 0o755)
	check.NoError(t, os.Chtimes(filepath.Join(m.Dir, loader.DefaultFile), time.Time{}, time.Now().Add(time.Hour)))
	words := []string{"", rig.Ihash + "=" + rig.Seed, "ro  quiet\t", rig.Ihash + "=7", "x" + rig.Ihash + "=" + rig.Seed}
	if strings.Contains(string(makeEntry), "grep -Gv") {
		// Since systemd 254.
		words = append(words, "# "+rig.Ihash+"="+rig.Seed, " #")
	}
	for seed := range uint64(40) {
		tree := hosttest.Tree{
			Rand: rand.New(rand.NewPCG(seed, 1)), Directories: []string{"/etc/kernel/install.d", "/usr/lib/kernel/install.d"},
			Names: []string{"10-a.install", "20-grub.install", "9-z.install", "Z.install", "30-b.install.bak"},
			Lines: []string{"", ":", "true", "grub2-mkconfig -o " + grubcfg.Grub2, "# grub2-mkconfig", "test -d /boot && grub2-mkconfig"},
		}
		tree.Write(t, m.Dir, "/etc/other")
		for file, data := range hosttest.ReadTree(t, m.Dir, append(tree.Directories, "/etc/other")...) {
			info, err := os.Lstat(filepath.Join(m.Dir, file))
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if data != "" {
				m.Write(file, "#!/bin/sh\n"+data)
			}
			// Before systemd 254, a file without permission to run also masks files with its name.
			if file == "/etc/other" || strings.HasPrefix(file, "/etc/") || tree.IntN(4) > 0 {
				m.SetMode(file, 0o755)
			}
		}
		files := hosttest.ReadTree(t, m.Dir, tree.Directories...)
		m.Write(entryScript, string(makeEntry))
		m.SetMode(entryScript, 0o755)
		declared := false
		for _, file := range []string{"/etc/kernel/cmdline", "/usr/lib/kernel/cmdline"} {
			m.Remove(file)
			if tree.IntN(2) > 0 {
				declared = true
				m.Write(file, words[tree.IntN(len(words))]+"\n"+words[tree.IntN(len(words))]+"\n")
			}
		}
		m.Remove(added)
		m.Remove(mark)
		b := grubbyOf(m).Loader
		later, from, err := b.LaterArguments()
		check.NoError(t, err)
		rewritten := grubentries.RewrittenArguments(b) != nil

		out := run("--verbose", "add", "6.1.0", "/boot/vmlinuz-6.1.0")
		if strings.Contains(out, "Function not implemented") {
			t.Skip("kernel-install is NOT compared with: since systemd 254 it needs the /proc of a kernel")
		}
		if _, err := os.Stat(filepath.Join(m.Dir, mark)); rewritten != (err == nil) {
			t.Errorf("seed %d: got rewritten %t, but kernel-install makes a menu: %t\n%s%v", seed, rewritten, err == nil, out, files)
		}
		arg := host.NewArgument(words[1])
		if got := slices.Contains(host.ParseArguments(bls.EntryOptions(m.Read(added))), arg); declared && got != argument.Has(later, arg) {
			t.Errorf("seed %d: got %v from %s, kernel-install writes\n%s\n%v", seed, later, from, m.Read(added), hosttest.ReadTree(t, m.Dir, "/etc/kernel", "/usr/lib/kernel/cmdline"))
		}
	}
}
