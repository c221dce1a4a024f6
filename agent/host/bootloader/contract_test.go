package bootloader

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
)

// Files are read as the real kernel-install of this machine reads them: the scripts that it runs, and the arguments that it gives to a new kernel.
// systemd 252 and 262 agree.
func TestFilesAreReadAsKernelInstallReadsThem(t *testing.T) {
	m := newTryingRocky(t)
	run := hosttest.Tool(t, m.dir, "kernel-install")
	for _, name := range []string{"sh", "cat", "chown", "cp", "grep", "install", "mkdir", "mktemp", "mountpoint", "rm", "sort", "stat", "tr"} {
		hosttest.Tool(t, m.dir, name)
	}
	const entryScript, mark, added = "/usr/lib/kernel/install.d/90-loaderentry.install", "/ran", "/boot/loader/entries/new-6.1.0.conf"
	makeEntry, err := os.ReadFile(entryScript)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"/dev/null": "", "/tmp/x": "", "/var/tmp/x": "", "/etc/machine-id": "8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7\n", "/etc/kernel/entry-token": "new\n",
		"/etc/kernel/install.conf": "layout=bls\n", "/boot/vmlinuz-6.1.0": strings.Repeat("kernel", 100), "/tool/grub2-mkconfig": "#!/tool/sh\necho made >" + mark + "\n",
		defaultFile: "GRUB_CMDLINE_LINUX=\"\"\n",
	} {
		m.write(name, data)
	}
	hosttest.WriteLink(t, m.dir, "/bin/sh", "/tool/sh")
	m.setMode("/tool/grub2-mkconfig", 0o755)
	if err := os.Chtimes(filepath.Join(m.dir, defaultFile), time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	words := []string{"", ihash + "=" + seed, "ro  quiet\t", ihash + "=7", "x" + ihash + "=" + seed}
	if strings.Contains(string(makeEntry), "grep -Gv") {
		// Since systemd 254.
		words = append(words, "# "+ihash+"="+seed, " #")
	}
	for seed := range uint64(40) {
		tree := hosttest.Tree{
			Rand: rand.New(rand.NewPCG(seed, 1)), Directories: []string{"/etc/kernel/install.d", "/usr/lib/kernel/install.d"},
			Names: []string{"10-a.install", "20-grub.install", "9-z.install", "Z.install", "30-b.install.bak"},
			Lines: []string{"", ":", "true", "grub2-mkconfig -o " + grub2Cfg, "# grub2-mkconfig", "test -d /boot && grub2-mkconfig"},
		}
		tree.Write(t, m.dir, "/etc/other")
		for file, data := range hosttest.ReadTree(t, m.dir, append(tree.Directories, "/etc/other")...) {
			info, err := os.Lstat(filepath.Join(m.dir, file))
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if data != "" {
				m.write(file, "#!/bin/sh\n"+data)
			}
			// Before systemd 254, a file without permission to run also masks files with its name.
			if file == "/etc/other" || strings.HasPrefix(file, "/etc/") || tree.IntN(4) > 0 {
				m.setMode(file, 0o755)
			}
		}
		files := hosttest.ReadTree(t, m.dir, tree.Directories...)
		m.write(entryScript, string(makeEntry))
		m.setMode(entryScript, 0o755)
		declared := false
		for _, file := range []string{"/etc/kernel/cmdline", "/usr/lib/kernel/cmdline"} {
			m.remove(file)
			if tree.IntN(2) > 0 {
				declared = true
				m.write(file, words[tree.IntN(len(words))]+"\n"+words[tree.IntN(len(words))]+"\n")
			}
		}
		m.remove(added)
		m.remove(mark)
		b := grubbyOf(m).entryLoader
		later, from, err := b.laterArguments()
		if err != nil {
			t.Fatal(err)
		}
		rewritten := rewrittenArguments(b) != nil

		out := run("--verbose", "add", "6.1.0", "/boot/vmlinuz-6.1.0")
		if strings.Contains(out, "Function not implemented") {
			t.Skip("kernel-install is NOT compared with: since systemd 254 it needs the /proc of a kernel")
		}
		if _, err := os.Stat(filepath.Join(m.dir, mark)); rewritten != (err == nil) {
			t.Errorf("seed %d: got rewritten %t, but kernel-install makes a menu: %t\n%s%v", seed, rewritten, err == nil, out, files)
		}
		arg := host.NewArgument(words[1])
		if got := slices.Contains(host.ParseArguments(entryOptions(m.read(added))), arg); declared && got != hasArgument(later, arg) {
			t.Errorf("seed %d: got %v from %s, kernel-install writes\n%s\n%v", seed, later, from, m.read(added), hosttest.ReadTree(t, m.dir, "/etc/kernel", "/usr/lib/kernel/cmdline"))
		}
	}
}

func (m *machine) setMode(name string, mode os.FileMode) {
	m.t.Helper()
	if err := os.Chmod(filepath.Join(m.dir, name), mode); err != nil {
		m.t.Fatal(err)
	}
}
