package sysctl

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

// logged matches the lines in which systemd-sysctl logs its writes.
var logged = regexp.MustCompile(`(?m)^Setting '/proc/sys/(\S+)' to '(.*)'`)

// The files are read as the real systemd-sysctl reads them: the agent's value is InSync only if it is the last value that the program writes.
func TestFilesAreReadAsSystemdReadsThem(t *testing.T) {
	dir, fs := hosttest.OpenHost(t, "debian-12")
	run := hosttest.Tool(t, dir, "systemd-sysctl")
	hosttest.WriteFile(t, dir, systemdSysctl[0], "")
	hosttest.WriteFile(t, dir, "/dev/null", "")
	names := []string{"net.core.rmem_max", "net.ipv4.conf.eth0/1.forwarding", "fs.file-max"}
	for seed := range uint64(200) {
		tree := hosttest.Tree{
			Rand: rand.New(rand.NewPCG(seed, 1)), Directories: directories,
			Names: []string{"10-a.conf", "99-sysctl.conf", "Z.conf", "zz-a.conf", "zz.conf", "zzz-b.conf", "zzzz.conf", "zzz.conf.bak"},
			Lines: []string{
				"", "# net.core.rmem_max = 7", ";fs.file-max=7", "  # x", "net.core.rmem_max", "=7", "-=7", "junk line",
				"net.core.rmem_max = 7", "net/core/rmem_max=8", " -net.core.rmem_max= 9 ", "/net/core/rmem_max = 6", "net.core/rmem_max = 5", "-net.core.rmem_max",
				"net.core.rmem_max=1024", "net.core.rmem_max = 1024 # good", "net.core.rmem_max = 0x400", "net.core.rmem_max =", "net.core.*=3", "*/core/rmem_max = 3",
				"net.ipv4.conf.eth0/1.forwarding = 7", "net/ipv4/conf/eth0.1/forwarding=1024", "net.ipv4.conf.*.forwarding = 3", "-net/ipv4/conf/eth0.1/forwarding",
				"fs.file-max = 7", "fs/file-max=1024", "fs.file-max\t=\t1024\t", "fs.file-max = 7 ; 8", "fs.file-max=1024=7", "fs.file-max = 1024\\",
			},
		}
		if seed >= 150 {
			tree.Lines = append(tree.Lines,
				"net.core.rmem_max 7", "net.core.rmem_max: 7", "net.core.rmem_max = 7\r", "net.core.rmem_max=\"7\"", "- net.core.rmem_max = 7", "--net.core.rmem_max=7",
				"net.core.?mem_max = 3", "net.core.[rw]mem_max=3", "net.core.{rmem_max,x} = 3", "net..core.rmem_max = 7", ".net.core.rmem_max = 7", "net.core.rmem_max. = 7",
				"net.core.rmem_max = 02000", "net.core.rmem_max = 01024", "net.core.rmem_max = +1024", "net.core.rmem_max = -1024", "net.core.rmem_max = 1024 2048",
				"\ufefffs.file-max = 7", "fs.file-max = 7 \\", "fs.file-max \\", "Fs.file-max = 7", "fs.file_max = 7", "/proc/sys/fs/file-max = 7", "fs.file-max = %i",
				"net.ipv4.conf.eth0.1.forwarding = 7", "net.ipv4.conf.all.forwarding = 7", "net.ipv4.conf.*/1.forwarding=7",
			)
		}
		tree.Write(t, dir, SystemConf)
		for _, name := range names {
			file, err := procFile(name)
			check.NoError(t, err)
			hosttest.WriteFile(t, dir, file, "7\n")
		}
		s, desired := New(fs), hosttest.Settings(names[0], "1024", names[1], "1024", names[2], "1024")
		hosttest.Apply(t, s, desired)
		observed, written := s.Observe(t.Context(), desired), map[string]string{}
		out := run()
		for _, line := range logged.FindAllStringSubmatch(out, -1) {
			written["/proc/sys/"+line[1]] = line[2]
		}
		for _, o := range observed {
			file, err := procFile(o.Name)
			check.NoError(t, err)
			// The kernel reads the first field as a number.
			first, _, _ := strings.Cut(written[file]+" ", " ")
			want := host.Shadowed
			if first == "1024" || first == "0x400" || first == "02000" {
				want = host.InSync
			}
			if o.State != want {
				t.Errorf("seed %d: %s: got %s (%s); systemd-sysctl writes %q\n%s", seed, o.Name, o.State, o.Message, written[file], describe(t, dir, out))
			}
		}
	}
}

func describe(t *testing.T, dir, out string) string {
	t.Helper()
	return fmt.Sprintf("%v\n%s", hosttest.ReadTree(t, dir, append(directories, SystemConf)...), out)
}
