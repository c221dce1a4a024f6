// Command guest is the init of the virtual machine of the test of known problems. It reproduces each problem with the running kernel, with NFS servers of
// the same machine, and compares it with the verdict of the registry for this kernel and the real mount. The registry must name a problem if and only if it
// appears. The last line is PASS or FAIL.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/kernellog"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/tuning/knownbad"
)

func main() {
	fmt.Println()
	if err := run(); err != nil {
		fmt.Println("\nFAIL", err)
	} else {
		fmt.Println("\nPASS")
	}
	unix.Sync()
	fmt.Println("power off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
	select {}
}

// machine is the virtual machine, with the release that the registry sees.
type machine struct {
	kernel knownbad.Kernel
	reader mounts.Reader
	log    *kernellog.Follower
}

// finding is the result of one trial: whether the problem appeared, the measured values, and the facts for the registry.
type finding struct {
	appears bool
	// isUnsigned reports that the further sign of the entry is absent. It is false if the trial measures only the sign.
	isUnsigned        bool
	measured          string
	protocol, options string
	// signs are the IDs of the problems of which the agent saw a sign during the trial.
	signs []string
}

func run() error {
	if err := prepare(); err != nil {
		return err
	}
	files, err := host.OpenFS("/")
	if err != nil {
		return err
	}
	release, err := files.ReadValue("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	build, err := files.ReadValue("/proc/version")
	if err != nil {
		return err
	}
	arguments, err := files.ReadValue("/proc/cmdline")
	if err != nil {
		return err
	}
	m := &machine{
		kernel: knownbad.ParseKernel(release, build), reader: mounts.NewReader(files, mounts.DefaultKubeletDir),
		log: kernellog.New(files, knownbad.Logged),
	}
	m.reader.Signs = mountwatch.Signs(files)
	fmt.Printf("##### kernel %s, for the registry %s: %s\n", release, m.kernel, build)
	if err := serve(); err != nil {
		return err
	}
	err = m.checkLog()
	if err != nil {
		err = fmt.Errorf("the kernel log: %w", err)
		fmt.Println("FAIL", release, err)
	}
	if strings.Contains(arguments, " trials=log") {
		return err
	}
	for _, trial := range []struct {
		id  string
		run func(*machine) (finding, error)
	}{
		{"mglru", tryReclaim}, {"xfs-v4-gone", tryWithoutChecksums}, {"xfs-newer-than-kernel", tryNewerFormat}, {"nfs-ro-ignored", tryReadOnly("3")},
		{"nfs-ro-ignored", tryReadOnly("4.1")}, {"nfs-readdir-slow-start", tryListing("3")}, {"nfs-readdir-slow-start", tryListing("4.1")},
		{"nfs-readplus-ganesha", tryReadPlus}, {"nfs-dirdeleg-ganesha", tryDelegations}, {"nfs41-mount-hang", tryMount},
	} {
		found, trialErr := trial.run(m)
		if trialErr == nil {
			trialErr = m.check(trial.id, found)
		}
		if trialErr != nil {
			trialErr = fmt.Errorf("%s: %w", trial.id, trialErr)
			fmt.Println("FAIL", release, trialErr)
		}
		err = errors.Join(err, trialErr)
	}
	return err
}

// check compares the finding of a trial with the registry.
func (m *machine) check(id string, found finding) error {
	entries := knownbad.Entries()
	i := slices.IndexFunc(entries, func(e knownbad.Entry) bool { return e.ID == id })
	if i < 0 {
		return errors.New("the registry has no such entry")
	}
	verdict := entries[i].On(m.kernel)
	concerned := entries[i].Concerns(found.protocol, strings.Split(found.options, ","))
	lines, err := m.log.Read()
	if err != nil {
		return err
	}
	for _, line := range lines {
		found.signs = append(found.signs, line.Sign)
	}
	if entries[i].Sign != nil {
		found.isUnsigned = !slices.Contains(found.signs, id)
	}
	appears := map[bool]string{true: "appears", false: "absent"}[found.appears]
	fmt.Printf("RESULT %s %s %s: %s; the registry says %s, mount concerned %t, sign absent %t\n", m.kernel, id, appears, found.measured, verdict, concerned, found.isUnsigned)
	if named := concerned && !found.isUnsigned && (verdict == knownbad.Affected || verdict == knownbad.Possible); named != found.appears {
		return fmt.Errorf("the problem %s, and the registry says %s for it with %s %s", appears, verdict, found.protocol, found.options)
	}
	return nil
}

// with sets the facts of the mount at a point, as the agent reports them.
func (m *machine) with(found *finding, point string) error {
	table, err := m.reader.Read()
	if err != nil {
		return err
	}
	for _, mount := range table.Mounts {
		if mount.MountPoint == point {
			found.protocol, found.options = mount.Protocol, strings.Join(mount.Options, ",")
			found.signs = append(found.signs, table.Signs...)
			return nil
		}
	}
	return fmt.Errorf("the agent sees no mount at %s", point)
}

func do(name string, args ...string) (string, error) {
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// script runs commands of a shell, for the preparation.
func script(text string) error {
	_, err := do("sh", "-euc", text)
	return err
}

func prepare() error {
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	for _, m := range []struct{ kind, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}} {
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return script("ip link set lo up; for m in nfs nfsv3 nfsv4 nfsd xfs loop; do modprobe $m; done; mkdir -p /mnt/a /mnt/b /mnt/c /srv/knfsd /srv/ganesha")
}

// Two servers: the kernel's at the usual port, and Ganesha.
const ganeshaPort = "12049"

// serve starts both NFS servers, with their files.
func serve() error {
	for i := range names {
		if err := os.WriteFile(fmt.Sprintf("/srv/knfsd/name-%05d", i), nil, 0o600); err != nil {
			return err
		}
	}
	for i := range directories {
		if err := os.MkdirAll(fmt.Sprintf("/srv/ganesha/dir-%02d/%s", i, strings.Join(inside, "-")), 0o700); err != nil {
			return err
		}
		for _, name := range inside {
			if err := os.WriteFile(fmt.Sprintf("/srv/ganesha/dir-%02d/%s", i, name), []byte(name), 0o600); err != nil {
				return err
			}
		}
	}
	return script(`echo '/srv/knfsd *(rw,no_root_squash,insecure,no_subtree_check,fsid=1)' >/etc/exports
cat >/run/ganesha.conf <<END
NFS_CORE_PARAM { Protocols = 4; NFS_Port = ` + ganeshaPort + `; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { Graceless = true; RecoveryBackend = fs; Only_Numeric_Owners = true; }
NFS_KRB5 { Active_krb5 = false; }
LOG { Default_Log_Level = WARN; }
EXPORT { Export_Id = 1; Path = /srv/ganesha; Pseudo = /ganesha; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; FSAL { Name = VFS; } }
END
mount -t nfsd nfsd /proc/fs/nfsd
rpcbind -w
exportfs -ra
rpc.nfsd -L 10 -G 10 -H 127.0.0.1 4
rpc.mountd
ln -sf /proc/self/mounts /etc/mtab
ganesha.nfsd -f /run/ganesha.conf -L /run/ganesha.log -p /run/ganesha.pid`)
}

// mountAt mounts the export of a server until the returned function is called.
func mountAt(point, export, options string) (unmount func() error, err error) {
	if export == "/ganesha" {
		options += ",port=" + ganeshaPort
	}
	if _, err := do("mount", "-t", "nfs", "-o", options, "127.0.0.1:"+export, point); err != nil {
		log, _ := os.ReadFile("/run/ganesha.log")
		return nil, fmt.Errorf("%w; log of Ganesha: %s", err, log)
	}
	return func() error { return script("umount " + point) }, nil
}
