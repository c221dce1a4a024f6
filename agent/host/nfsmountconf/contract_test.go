package nfsmountconf

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

// passed matches the options that mount.nfs passes to the kernel.
var passed = regexp.MustCompile(`trying text-based options '(.*?),?(?:vers=4(?:\.2,|,minorversion=1,))?addr=`)

// The files are read as the real mount.nfs of this machine reads them. The options are its own, and -f mounts nothing.
func TestFilesAreReadAsMountReadsThem(t *testing.T) {
	dir, fs := hosttest.OpenHost(t, "debian-12")
	run := hosttest.Tool(t, dir, "mount.nfs")
	program, err := os.ReadFile(filepath.Join(dir, "tool", "mount.nfs"))
	check.NoError(t, err)
	hosttest.WriteFile(t, dir, "/usr/sbin/mount.nfs", string(program))
	hosttest.WriteFile(t, dir, "/dev/null", "")
	hosttest.WriteFile(t, dir, "/mnt/a/x", "")
	for seed := range uint64(200) {
		tree := hosttest.Tree{
			Rand: rand.New(rand.NewPCG(seed, 1)), Directories: []string{directory},
			Names: []string{"a.conf", "b.conf", "zz-storage-client.conf", "zzz.conf", "Z.conf", "c.conf.bak"},
			Lines: []string{
				"[ NFSMount_Global_Options ]", "[nfsmount_global_options]", `[ Server "127.0.0.2" ]`, `[server "127.0.0.3"]`, `[ MountPoint "/mnt/a" ]`,
				`[MountPoint "/mnt/b"]`, `[Server "127.0.0.4"]`, "", "# hard=True", ";hard=True", "nconnect=4", "Nconnect = 8", "nconnect=\"2\"", "hard=True",
				"soft=true", "cto=False", "nocto=True", "ac=True", "actimeo=30", "actimeo = 60", "rsize=8192", "resvport=False",
			},
		}
		if seed >= 150 {
			tree.Lines = append(tree.Lines[:8:8],
				`[ Server "127.0.0.2" ] # filer`, `[ Server "127.0.0.2"`, "[Server 127.0.0.3]", `[Server "127.0.0.2"] hard=True`, `[Server '127.0.0.3']`, `[SERVER "127.0.0.2"]`,
				`[MountPoint "/mnt/a/"]`, "[]", "[ NFSMount_Global_Options", "\tnconnect=4", "nconnect=4 # four", "nconnect=4;8", "nconnect", "=4", `nconnect="4`, "local_lock=flock", "wsize=0x10K", "rsize=010m",
				"Sec=krb5:sys", "Defaultvers=4.1", "bg=True", "timeo=100\\", "retrans==2", "acl=False", "lookupcache=\"pos\" x", "rsize=8k", "nosharecache=True",
				"sharecache=false", "intr=TRUE", "soft=yes", "hard=0", "mountport=635", "include = /mnt/a/x", "port=2049\r",
			)
		}
		tree.Write(t, dir, mainFile)
		all := readAll(fs)
		for _, server := range []string{"127.0.0.2", "127.0.0.3"} {
			out := run("-v", "-f", server+":/x", "/mnt/a")
			found := passed.FindStringSubmatch(out)
			if found == nil {
				t.Fatalf("seed %d: mount.nfs prints no options:\n%s", seed, out)
			}
			if diff := cmp.Diff(found[1], strings.Join(all.optionsOf(server, "/mnt/a"), ",")); diff != "" {
				t.Errorf("seed %d, %s (-mount.nfs +agent):\n%s\n%v", seed, server, diff, hosttest.ReadTree(t, dir, directory, mainFile))
			}
		}
	}
}
