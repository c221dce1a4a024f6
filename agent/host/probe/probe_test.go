package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/test/check"
)

// fakeKernel is a kernel in a separate network namespace, with one server.
type fakeKernel struct {
	looks int64
	t     *testing.T
	// reject returns the error of a mount. If it is nil, every mount works. transports is the number of connections of a mount. If it is
	// zero, a mount gets as many connections as it requests.
	reject     func(data string) error
	transports int
	readErr    error
	// explanation is the kernel's message about an error.
	explanation string
	// leftover is the number of checks during which an earlier mount remains in the namespace.
	leftover int
	// shared is true if another mount has the same device.
	shared     bool
	network    string
	prepareErr error
	// ignoresIdentifier is true if a write does not change the identifier.
	ignoresIdentifier bool

	// readAhead is the window of the current mount. pageKiB is the page size. changedTo is the window that another program sets during the work.
	readAhead, pageKiB, changedTo int
	// nested is true if the work enters a nested export, which has the kernel's default window.
	nested bool

	// sysctls are the sysctls of the network namespace, by file. keeps are the sysctls that a write does not change. changes are set during the work.
	sysctls, changes map[string]string
	keeps            string
	// tcp are the connections in the network namespace.
	tcp    []sockets.Socket
	tcpErr error

	// load is the load of the last work. workers are its results. Nil means one.
	load    workload.Load
	workers []workload.Pass
	// workErr is the error of a workload. listed is the number of requests that the workload made on the mount.
	workErr error
	listed  int

	identifier string
	mounted    string
	log        []string
}

func (k *fakeKernel) resolve(_ context.Context, _, server string) ([]netip.Addr, error) {
	if server == "nowhere" {
		return nil, &net.DNSError{Err: "no such host", Name: server, IsNotFound: true}
	}
	return []netip.Addr{server4}, nil
}

func (k *fakeKernel) clientAddr(netip.Addr) (netip.Addr, error) { return client4, nil }

func (k *fakeKernel) prepare() error { return k.prepareErr }

func (k *fakeKernel) mount(source, target, _ string, _ uintptr, data string) error {
	if k.identifier == "" {
		k.t.Error("the mount uses the identifier of the host")
	}
	if k.mounted != "" {
		k.t.Error("two mounts exist at the same time")
	}
	k.log, k.readAhead = append(k.log, "mount "+source+" "+data), 128
	if k.reject != nil {
		if err := k.reject(data); err != nil {
			return err
		}
	}
	if target != volumeDir {
		k.t.Errorf("unexpected mount point %s", target)
	}
	k.mounted, k.listed = data, 0
	return nil
}

func (k *fakeKernel) explain(string, attempt) string { return k.explanation }

func (k *fakeKernel) unmount(string) error {
	k.log = append(k.log, "unmount")
	k.mounted = ""
	return nil
}

func (k *fakeKernel) readRoot(_ string, user int) error {
	if user != 1000 {
		k.t.Errorf("unexpected user %d", user)
	}
	return k.readErr
}

func (k *fakeKernel) device(string) (string, error) {
	if k.shared {
		return "0:20", nil
	}
	return "0:55", nil
}

func (k *fakeKernel) readLink(string) (string, error) { return k.network, nil }

func (k *fakeKernel) readFile(name string) (string, error) {
	if value, ok := k.sysctls[strings.TrimPrefix(name, "/proc/sys/net/ipv4/")]; ok {
		return strings.ReplaceAll(value, " ", "\t") + "\n", nil
	}
	switch name {
	case identifierFile:
		if k.ignoresIdentifier {
			return "(null)\n", nil
		}
		return k.identifier + "\n", nil
	case sysfsDir + "/class/bdi/0:55/read_ahead_kb":
		return fmt.Sprintln(k.readAhead), nil
	case sysfsDir + "/class/bdi/0:56/read_ahead_kb":
		return "128\n", nil
	case volumesFile:
		header := "NV SERVER   PORT DEV          FSID                              FSC\n"
		if k.leftover > 0 {
			return header + "v4 c0000207  801 0:44         0:0                               no \n", nil
		}
		return header, nil
	case mountstatsFile:
		n := k.transports
		if l, _ := parseList(strings.Split(k.mounted, ",")); n == 0 {
			n = l.nconnect
		}
		nested := ""
		if k.nested && k.listed > 0 {
			nested = "device filer:/e/n mounted on " + volumeDir + "/n with fstype nfs4 statvers=1.1\n\tper-op statistics\n\t     GETATTR: 7 7 0 700 1400 0 9 9 0\n"
		}
		return nested + "device tmpfs mounted on /tmp with fstype tmpfs\ndevice filer:/e mounted on " + volumeDir + " with fstype nfs4 statvers=1.1\n\topts:\trw,vers=4.1\n" +
			strings.Repeat("\txprt:\ttcp 0 1 1 0 0 4 4 0\n", n) +
			fmt.Sprintf("\tper-op statistics\n\t     GETATTR: %d %[1]d 0 %d %d 0 9 9 0\n", k.listed+1, 100*(k.listed+1), 200*(k.listed+1)), nil
	case mountinfoFile:
		text := fmt.Sprintf("30 20 0:20 / /tmp rw - tmpfs tmpfs rw\n31 30 %s / %s rw - nfs4 filer:/e rw\n", map[bool]string{true: "0:20", false: "0:55"}[k.shared], volumeDir)
		if k.nested && k.listed > 0 {
			text += "32 31 0:56 / " + volumeDir + "/n rw - nfs4 filer:/e/n rw\n"
		}
		return text, nil
	}
	return "", syscall.ENOENT
}

func (k *fakeKernel) writeFile(name, data string) error {
	if name == sysfsDir+"/class/bdi/0:55/read_ahead_kb" {
		k.log = append(k.log, "read-ahead "+data)
		kib, err := strconv.Atoi(data)
		k.readAhead = kib / max(k.pageKiB, 4) * max(k.pageKiB, 4)
		return err
	}
	if file, ok := strings.CutPrefix(name, "/proc/sys/net/ipv4/"); ok {
		k.log = append(k.log, file+"="+strings.TrimSpace(data))
		if file != k.keeps {
			k.sysctls[file] = strings.TrimSpace(data)
		}
		return nil
	}
	if name != identifierFile {
		k.t.Errorf("unexpected write to %s", name)
	}
	if !k.ignoresIdentifier {
		k.identifier = data
	}
	return nil
}

func (k *fakeKernel) connections() ([]sockets.Socket, error) { return k.tcp, k.tcpErr }

func (k *fakeKernel) newName() string { return "0123" }

func (k *fakeKernel) pause(time.Duration) { k.leftover-- }

func (k *fakeKernel) wait(_ context.Context, d time.Duration) {
	k.log = append(k.log, "wait "+d.String())
}

// now advances the clock by one second at each call.
func (k *fakeKernel) now() time.Time {
	k.looks++
	return time.Unix(1700000000+k.looks, 0)
}

func (k *fakeKernel) makeReadOnly(string, uintptr) error {
	k.log = append(k.log, "read-only")
	return nil
}

func (k *fakeKernel) workAs(_ context.Context, user int, o workload.Options) (workload.Result, error) {
	k.log = append(k.log, fmt.Sprintf("work %s in %q as %d", o.Name, o.Path, user))
	if k.workErr != nil {
		return workload.Result{}, k.workErr
	}
	k.listed += 50
	maps.Copy(k.sysctls, k.changes)
	if k.changedTo > 0 {
		k.readAhead = k.changedTo
	}
	if k.load = o.Load; k.workers != nil {
		return workload.Result{Passes: k.workers}, nil
	}
	return workload.Result{Passes: []workload.Pass{{Seconds: 0.5, Units: 50}}}, nil
}

func (k *fakeKernel) run(order Order) Result {
	if k.network == "" {
		k.network = "net:[2]"
	}
	order.ID, order.Path, order.FSType, order.User = "a", "/e", "nfs", 1000
	if order.Server == "" {
		order.Server = "filer"
	}
	if order.HostNetwork == "" {
		order.HostNetwork = "net:[1]"
	}
	r := newWork(k, order).run(context.Background())
	if k.mounted != "" {
		k.t.Error("a mount remains")
	}
	return r
}

func TestValidMountOptions(t *testing.T) {
	k := &fakeKernel{t: t}
	r := k.run(Order{Options: []string{"nfsvers=4.1", "nconnect=4"}, OwnOptions: []string{"nfsvers=4.1"}})
	if !r.Tried || !r.Succeeded || r.Missing() != nil || r.Own != nil {
		t.Errorf("result: got %+v", r)
	}
	if r.Transports != 4 || r.Identifier != "storage-client-trial-0123" || len(r.Proofs) != 5 || !slices.Contains(r.Observed, "vers=4.1") {
		t.Errorf("result: got %+v", r)
	}
	want := []string{"mount filer:/e nconnect=4,vers=4.1,addr=192.0.2.7,clientaddr=10.1.2.3", "unmount"}
	check.Equal(t, "calls", want, k.log)
}

func TestKernelMessageForRejectedOptions(t *testing.T) {
	k := &fakeKernel{t: t, explanation: "nfs: Unknown parameter 'nconect'", reject: func(data string) error {
		if strings.Contains(data, "nconect") {
			return syscall.EINVAL
		}
		return nil
	}}
	r := k.run(Order{Options: []string{"nfsvers=4.1", "nconect=4"}, OwnOptions: []string{"nfsvers=4.1"}})
	if want := "mount(2): invalid argument: nfs: Unknown parameter 'nconect'"; !r.Tried || r.Succeeded || r.Message != want {
		t.Errorf("result: got %+v, want %q", r, want)
	}
	if r.Own == nil || !r.Own.Succeeded {
		t.Errorf("the original mount options of the volume were not tried: %+v", r.Own)
	}
}

func TestFailureWithTheOriginalOptionsIsReported(t *testing.T) {
	k := &fakeKernel{t: t, reject: func(string) error { return syscall.EPERM }}
	r := k.run(Order{Options: []string{"nfsvers=4.1", "nconnect=4"}, OwnOptions: []string{"nfsvers=4.1"}})
	if r.Succeeded || r.Own == nil || r.Own.Succeeded || r.Own.Message != "mount(2): operation not permitted" {
		t.Errorf("result: got %+v, with the original options %+v", r, r.Own)
	}
}

func TestAVersionIsNegotiated(t *testing.T) {
	for name, test := range map[string]struct {
		reject func(data string) error
		works  bool
		want   string
		tries  int
	}{
		"the server has 4.1 only": {func(data string) error {
			if strings.Contains(data, "vers=4.1") {
				return nil
			}
			return syscall.EPROTONOSUPPORT
		}, true, "", 2},
		"the server has 3 only": {func(data string) error {
			if strings.Contains(data, "vers=3") {
				return nil
			}
			return syscall.EPROTONOSUPPORT
		}, true, "", 4},
		"the server is away":                     {func(string) error { return syscall.ETIMEDOUT }, false, "mount(2): connection timed out", 1},
		"the path is not there, not by 3 either": {func(string) error { return syscall.ENOENT }, false, "mount(2): no such file or directory", 2},
		"no version supports the options":        {func(string) error { return syscall.EINVAL }, false, "mount(2): invalid argument", 4},
	} {
		t.Run(name, func(t *testing.T) {
			k := &fakeKernel{t: t, reject: test.reject}
			r := k.run(Order{Options: []string{"hard"}, OwnOptions: []string{"hard"}})
			mounts := 0
			for _, call := range k.log {
				if strings.HasPrefix(call, "mount") {
					mounts++
				}
			}
			if r.Succeeded != test.works || r.Message != test.want || mounts != test.tries {
				t.Errorf("got %d mounts, result %+v; want %d and %q", mounts, r, test.tries, test.want)
			}
		})
	}
}

func TestNoMountWithoutTheProofs(t *testing.T) {
	for name, test := range map[string]struct {
		kernel *fakeKernel
		order  Order
		proof  ProofType
		want   string
	}{
		"the network of the node":             {&fakeKernel{network: "net:[1]"}, Order{}, OwnNetwork, "in the network namespace of the node"},
		"an identifier that does not stay":    {&fakeKernel{ignoresIdentifier: true}, Order{}, Identifier, "read \"(null)\" after"},
		"a kernel without the file":           {&fakeKernel{prepareErr: errors.New("mount sysfs: no such device")}, Order{}, Identifier, "mount sysfs: no such device"},
		"something else mounted and it stays": {&fakeKernel{leftover: leftoverTries + 1}, Order{}, NoOtherMount, "1 NFS file systems are already mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			test.kernel.t = t
			r := test.kernel.run(test.order)
			missing := r.Missing()
			if r.Tried || r.Succeeded || missing == nil || missing.Type != test.proof || !strings.Contains(r.Message, test.want) {
				t.Errorf("result: got %+v, want no %s: %s", r, test.proof, test.want)
			}
			if len(test.kernel.log) > 0 {
				t.Errorf("unexpected mounts: %v", test.kernel.log)
			}
		})
	}
}

func TestOrderWithoutTheNetworkOfTheNode(t *testing.T) {
	k := &fakeKernel{t: t, network: "net:[2]"}
	if r := newWork(k, Order{Server: "filer", Path: "/e", FSType: "nfs"}).run(context.Background()); r.Tried || len(k.log) > 0 {
		t.Errorf("result: got %+v", r)
	}
}

func TestMountsOfAnEarlierOrderAreAwaited(t *testing.T) {
	k := &fakeKernel{t: t, leftover: 3}
	if r := k.run(Order{Options: []string{"vers=4.1"}}); !r.Succeeded || r.Missing() != nil {
		t.Errorf("result: got %+v", r)
	}
}

func TestMountThatSharesConnectionsIsInvalid(t *testing.T) {
	for name, test := range map[string]struct {
		kernel *fakeKernel
		proof  ProofType
	}{
		"fewer connections than requested": {&fakeKernel{transports: 1}, Transports},
		"more connections than requested":  {&fakeKernel{transports: 8}, Transports},
		"the device of another mount":      {&fakeKernel{shared: true}, OwnDevice},
	} {
		t.Run(name, func(t *testing.T) {
			test.kernel.t = t
			r := test.kernel.run(Order{Options: []string{"vers=4.1", "nconnect=4"}})
			if missing := r.Missing(); missing == nil || missing.Type != test.proof {
				t.Errorf("missing: got %+v, want %s", missing, test.proof)
			}
		})
	}
}

func TestResponseOfTheRootDirectory(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		works bool
	}{
		"it is read":                          {nil, true},
		"the user may not read it":            {fmt.Errorf("open the root: %w", syscall.EACCES), true},
		"the user may not send requests":      {fmt.Errorf("statfs: %w", syscall.EPERM), true},
		"the server has lost it":              {fmt.Errorf("statfs: %w", syscall.ESTALE), false},
		"the server fails":                    {fmt.Errorf("read the root: %w", syscall.EIO), false},
		"the server does not respond":         {fmt.Errorf("statfs: %w", syscall.ETIMEDOUT), false},
		"the options make the mount unusable": {fmt.Errorf("statfs: %w", syscall.EREMOTEIO), false},
	} {
		t.Run(name, func(t *testing.T) {
			k := &fakeKernel{t: t, readErr: test.err}
			if r := k.run(Order{Options: []string{"vers=4.1"}}); r.Succeeded != test.works || !r.Tried {
				t.Errorf("result: got %+v", r)
			}
		})
	}
}

func TestAServerWithoutAnAddress(t *testing.T) {
	k := &fakeKernel{t: t}
	r := k.run(Order{Server: "nowhere", Options: []string{"vers=4.1"}})
	if r.Succeeded || !strings.HasPrefix(r.Message, "failed to resolve server nowhere: ") || len(k.log) > 0 {
		t.Errorf("result: got %+v", r)
	}
}
