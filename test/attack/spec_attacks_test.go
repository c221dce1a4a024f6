//go:build attack

package attack

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// specAttacks are attacks by writers of a StorageClientNode's spec: the manager, an administrator, a stolen backup. The agent also gets
// specs that the CustomResourceDefinition would reject, because it makes the final check. Its loop runs on a copy of a Debian host.
func specAttacks() []attack {
	readAheadTaken := readAhead("pv-1", 4096)
	good := apply("sysctl/net.core.rmem_max", "16777216")
	reject := func(id, tries, key, value, want string) attack {
		return attack{id: id, by: specWriter, tries: tries, stop: byAgent, want: want, try: apply(key, value), twin: good}
	}
	return []attack{
		reject("spec-init", "boot the node into a shell", "kernelArgument/init", "/bin/sh", "rejected by this node's agent"),
		reject("spec-argument-quote", "break out of the quotes in GRUB's file", "kernelArgument/ihash_entries", `1"; reboot; "`, "rejected by this node's agent"),
		reject("spec-argument-newline", "write a second line into GRUB's file", "kernelArgument/ihash_entries", "1\nGRUB_CMDLINE_LINUX=init=/bin/sh", "rejected by this node's agent"),
		reject("spec-argument-substitution", "run a command when the boot menu is generated", "kernelArgument/ihash_entries", "$(reboot)", "rejected by this node's agent"),
		reject("spec-core-pattern", "have the kernel run a program", "sysctl/kernel.core_pattern", "|/bin/sh", "rejected by this node's agent"),
		reject("spec-sysctl-traversal", "write outside of /proc/sys", "sysctl/net.core/../../../etc/passwd", "x", "rejected by this node's agent"),
		reject("spec-sysctl-path", "write an absolute path", "sysctl//etc/passwd", "x", "rejected by this node's agent"),
		reject("spec-sysctl-newline", "write a second line into sysctl.d", "sysctl/net.core.rmem_max", "1\nkernel.core_pattern = |/bin/sh", "rejected by this node's agent"),
		reject("spec-sysctl-range", "set a value outside the catalogue's range", "sysctl/net.core.rmem_max", "1", "must be"),
		reject("spec-module-install", "write an install line into modprobe.d", "module/nfs/max_session_slots\ninstall", "1", "rejected by this node's agent"),
		reject("spec-module-value", "write an install line into modprobe.d by a value", "module/nfs/max_session_slots", "1\ninstall nfs /bin/sh", "rejected by this node's agent"),
		reject("spec-module-traversal", "write outside of /sys/module", "module/../x", "1", "rejected by this node's agent"),
		reject("spec-tuned", "have tuned load a profile from elsewhere", "tuned/profile", "../../tmp/x", "rejected by this node's agent"),
		reject("spec-filesystem-options", "allow set-user-ID programs on a host file system", "filesystem/mnt/data", "xfs:suid", "rejected by this node's agent"),
		reject("spec-filesystem-traversal", "remount a file system by way of ..", "filesystem/mnt/../etc", "xfs:noatime", "rejected by this node's agent"),
		reject("spec-host-mounts", "allow devices on the host's NFS mounts", "nfsMountDefaults/filer1", "dev", "rejected by this node's agent"),
		reject("spec-unknown", "name an unknown kind of setting", "file/etc/passwd", "x", "rejected by this node's agent"),
		reject("spec-journal-key", "name a key of the agent's journal", "volumeReadAhead/pv-1", "4096", "rejected by this node's agent"),
		{id: "spec-volume-size", by: specWriter, tries: "read ahead by gigabytes", stop: byAgent, want: "must be 4 to 1048576 KiB", try: readAhead("pv-1", 1<<30), twin: readAheadTaken},
		{id: "spec-volume-name", by: specWriter, tries: "name a volume that is a path", stop: byAgent, want: "no mount of that name", try: readAhead("../../etc", 4096), twin: readAheadTaken},
		{id: "spec-permit-other-boot", by: specWriter, tries: "replay a permit of an earlier boot", stop: byAgent, want: "the permit is for boot", twin: good,
			try: permit(v1alpha1.RebootPermit{ID: "p", BootID: "earlier"})},
		{id: "spec-permit-for-nothing", by: specWriter, tries: "reboot a node without a setting that waits for a reboot", stop: byAgent, want: "no setting is waiting for a reboot", twin: good,
			try: permit(v1alpha1.RebootPermit{ID: "p", BootID: ""})},
		{id: "spec-value", by: specWriter, tries: "set any value that the agent's catalogue accepts", stop: notStopped, try: good},
	}
}

// The mount for the tenant's Pod on the copied host, and the boot ID.
const (
	mountLine = "40 25 0:47 / /var/lib/kubelet/pods/3a6c2a80-0d5e-4a52-9a39-8e0f6f0c8b02/volumes/kubernetes.io~nfs/pv-1 " +
		"rw,relatime shared:9 - nfs4 filer.example.com:/export rw,vers=4.1\n"
	mountWindow = "/sys/class/bdi/0:47/read_ahead_kb"
	ownWindow   = "128\n"
	fixtureBoot = "1f6c2a80-0d5e-4a52-9a39-8e0f6f0c8b01"
)

const goodKey = "sysctl/net.core.wmem_max"

// apply passes a setting to an agent, next to a good one. It is stopped if the agent rejects it and only the good one is on the host.
func apply(key, value string) func(*actor) error {
	return func(a *actor) error {
		spec := v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{
			settingOf(goodKey, "16777216"), settingOf(key, value),
		}}
		plain, _ := a.runAgent(v1alpha1.StorageClientNodeSpec{Settings: spec.Settings[:1]})
		files, status := a.runAgent(spec)
		for _, setting := range status.Settings {
			switch {
			case setting.Key == goodKey && setting.State != v1alpha1.SettingInSync:
				a.t.Fatalf("setting %s: got state %s, want InSync: %s", goodKey, setting.State, setting.Message)
			case setting.Key == key && maps.Equal(plain, files) && strings.HasPrefix(setting.Message, "rejected by"):
				return stopped{by: byAgent, message: setting.Message}
			}
		}
		return nil
	}
}

func settingOf(key, value string) v1alpha1.NodeSetting {
	return v1alpha1.NodeSetting{Key: key, Value: value, Profile: "p", OnRemoval: v1alpha1.DeletionRestore}
}

// readAhead passes a volume to an agent whose node has pv-1 mounted. It is stopped if the mount's window does not change.
func readAhead(name string, size int32) func(*actor) error {
	return func(a *actor) error {
		files, status := a.runAgent(v1alpha1.StorageClientNodeSpec{Volumes: []v1alpha1.NodeVolume{{Name: name, ReadAheadKiB: ptr.To(size)}}})
		message := "no mount of that name"
		for _, mount := range status.Mounts {
			if mount.Volume == name {
				message = mount.Message
			}
		}
		if files[mountWindow] == ownWindow {
			return stopped{by: byAgent, message: message}
		}
		return nil
	}
}

// permit passes a permit to an agent. Without a boot ID it is for the current boot.
func permit(permit v1alpha1.RebootPermit) func(*actor) error {
	return func(a *actor) error {
		if permit.BootID == "" {
			permit.BootID = fixtureBoot
		}
		_, status := a.runAgent(v1alpha1.StorageClientNodeSpec{RebootPermit: &permit})
		if status.Reboot != nil && status.Reboot.Phase == v1alpha1.RebootRefused {
			return stopped{by: byAgent, message: status.Reboot.Message}
		}
		return nil
	}
}

// runAgent runs the agent's loop with a spec on a new host until it reports. It returns the files, without the journal, and the status.
func (a *actor) runAgent(spec v1alpha1.StorageClientNodeSpec) (map[string]string, v1alpha1.StorageClientNodeStatus) {
	a.t.Helper()
	machine := newMachine(a.t, "debian-12")
	status := machine.run(a.t, spec)
	tree := machine.tree(a.t)
	delete(tree, journal.File)
	return tree, status
}

// machine is a copy of a host that has a volume mounted.
type machine struct {
	dir      string
	commands *hosttest.Commands
	// seen has the last content of each file.
	seen map[string]string
}

func newMachine(t *testing.T, name string) *machine {
	t.Helper()
	dir := hosttest.CopyHost(t, name)
	check.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(mountWindow)), 0o755))
	check.NoError(t, os.WriteFile(filepath.Join(dir, mountWindow), []byte(ownWindow), 0o600))
	table, err := os.OpenFile(filepath.Join(dir, "/proc/1/mountinfo"), os.O_APPEND|os.O_WRONLY, 0)
	check.NoError(t, err)
	_, err = table.WriteString(mountLine)
	check.NoError(t, err)
	check.NoError(t, table.Close())
	return &machine{dir: dir, commands: &hosttest.Commands{Dir: dir}, seen: map[string]string{}}
}

func (m *machine) tree(t *testing.T) map[string]string {
	t.Helper()
	return hosttest.ReadTree(t, m.dir, "/")
}

// run starts the agent with a spec and stops it when it has reported.
func (m *machine) run(t *testing.T, spec v1alpha1.StorageClientNodeSpec) v1alpha1.StorageClientNodeStatus {
	t.Helper()
	files, err := host.OpenFS(m.dir)
	check.NoError(t, err)
	defer files.Close()
	api := &oneSpec{clientNode: clientNode("node-1"), reported: make(chan v1alpha1.StorageClientNodeStatus, 16)}
	api.clientNode.UID, api.clientNode.Generation, api.clientNode.Spec = "u", 1, spec
	// A canary proves its values at once.
	api.clientNode.Spec.Canary = true
	machine := agent.NewHost(files, m.commands, noReboot{t}, mounts.DefaultKubeletDir)
	machine.AskServer = func(context.Context, connect.Server) error { return nil }
	loop, err := agent.New(agent.Config{Host: machine, API: api, Clock: clock.RealClock{}})
	check.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { loop.Run(ctx) })
	status := <-api.reported
	cancel()
	running.Wait()
	maps.Copy(m.seen, m.tree(t))
	return status
}

// oneSpec is an API server with one StorageClientNode that accepts any status. It implements agent.API.
type oneSpec struct {
	clientNode *v1alpha1.StorageClientNode
	reported   chan v1alpha1.StorageClientNodeStatus
}

func (o *oneSpec) Get(context.Context) (*v1alpha1.StorageClientNode, time.Time, error) {
	return o.clientNode.DeepCopy(), time.Now(), nil
}

func (o *oneSpec) Follow(ctx context.Context, changed func(*v1alpha1.StorageClientNode)) {
	changed(o.clientNode.DeepCopy())
	<-ctx.Done()
}

// Prove reports a working connection.
func (o *oneSpec) Prove(context.Context, int64, v1alpha1.StorageClientNodeStatus) error { return nil }

func (o *oneSpec) ApplyStatus(_ context.Context, status v1alpha1.StorageClientNodeStatus, _ string) error {
	o.reported <- status
	return nil
}

// noReboot is a logind that fails the test on a reboot. It implements permit.Rebooter.
type noReboot struct{ t *testing.T }

func (n noReboot) FindHolders(context.Context) ([]string, error) { return nil, nil }

func (n noReboot) Reboot(context.Context) error {
	n.t.Error("got a reboot of the host, want none")
	return nil
}
