package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/host/workload"
)

const (
	// Mount points in the mount namespace of the process.
	sysfsDir  = workDir + "/sysfs"
	volumeDir = workDir + "/volume"

	identifierFile = sysfsDir + "/fs/nfs/net/nfs_client/identifier"
	networkLink    = "/proc/self/ns/net"
	volumesFile    = "/proc/net/nfsfs/volumes"
	mountstatsFile = "/proc/self/mountstats"
	mountinfoFile  = "/proc/self/mountinfo"

	// The mounts of an earlier order disappear when its process has died, soon but not immediately.
	leftoverTries = 20
	leftoverPause = 250 * time.Millisecond
)

// kernel is the part of the machine that the work needs. machine implements it.
type kernel interface {
	// resolve returns the addresses of a host. network is ip, ip4 or ip6.
	resolve(ctx context.Context, network, server string) ([]netip.Addr, error)
	// clientAddr returns the local address of a connection to the server.
	clientAddr(server netip.Addr) (netip.Addr, error)
	// prepare makes the directories of sysfs and of the volume in the mount namespace of the process, with a sysfs of its network namespace. It makes
	// the kernel load the NFS client.
	prepare() error
	mount(source, target, fsType string, flags uintptr, data string) error
	// explain returns the kernel's messages about the parameters of a mount that it rejected. Empty if there are none.
	explain(source string, a attempt) string
	unmount(target string) error
	// readRoot queries the server, as a user, for the state of the file system and for the entries of its root.
	readRoot(target string, user int) error
	// makeReadOnly makes the mount at a point read-only for programs that work there. It does not change the mount options for server and kernel.
	makeReadOnly(target string, flags uintptr) error
	// workAs runs a workload below the root of the volume's mount, as a user that cannot leave it.
	workAs(ctx context.Context, user int, o workload.Options) (workload.Result, error)
	now() time.Time
	// device returns the device of the file system at a point, as major:minor.
	device(point string) (string, error)
	readLink(name string) (string, error)
	readFile(name string) (string, error)
	writeFile(name, data string) error
	// connections returns the TCP connections of the network namespace.
	connections() ([]sockets.Socket, error)
	newName() string
	pause(d time.Duration)
	// wait is like pause, and also returns when the context is done.
	wait(ctx context.Context, d time.Duration)
}

// Run runs an order in this process, which must have a private mount namespace that ends with it.
func Run(ctx context.Context, order Order) Result { return newWork(machine{}, order).run(ctx) }

type work struct {
	kernel
	order Order
	// prepareOnce calls prepare once, because several passes share its directories.
	prepareOnce func() error
}

func newWork(k kernel, order Order) work {
	return work{kernel: k, order: order, prepareOnce: sync.OnceValue(k.prepare)}
}

func (w work) run(ctx context.Context) Result {
	if len(w.order.Passes) > 0 {
		return w.runPasses(ctx)
	}
	var r Result
	if reason := w.prove(&r); reason != "" {
		r.Message = reason
		return r
	}
	r.Tried = true
	l, err := parseList(w.order.Options)
	if err == nil {
		err = w.tryList(ctx, l, &r)
	}
	if err == nil {
		r.Succeeded = true
		return r
	}
	r.Message = err.Error()
	if !slices.Equal(w.order.OwnOptions, w.order.Options) {
		r.Own = w.tryOwn(ctx)
	}
	return r
}

// prove checks the conditions that must hold before any mount. It returns a message about a condition that does not hold.
func (w work) prove(r *Result) string {
	for _, step := range []func(*Result) Proof{w.proveNetwork, w.proveIdentifier, w.proveNoOther} {
		p := step(r)
		r.Proofs = append(r.Proofs, p)
		if !p.Holds {
			return "not mounted: " + p.Message
		}
	}
	return ""
}

func (w work) proveNetwork(*Result) Proof {
	namespace, err := w.readLink(networkLink)
	switch {
	case err != nil:
		return Proof{Type: OwnNetwork, Message: "cannot read the network namespace: " + err.Error()}
	case w.order.HostNetwork == "":
		return Proof{Type: OwnNetwork, Message: "the order does not contain the network namespace of the node"}
	case namespace == w.order.HostNetwork:
		return Proof{Type: OwnNetwork, Message: "the trial runner is in the network namespace of the node: " +
			"a mount would share connections with other mounts"}
	}
	return Proof{Type: OwnNetwork, Holds: true, Message: namespace + ", the node has " + w.order.HostNetwork}
}

// proveIdentifier gives the NFSv4 client of this network namespace a unique identifier. Without one, it has the host's identifier. A server that sees
// two clients with one identifier removes the state of the first.
func (w work) proveIdentifier(r *Result) Proof {
	failed := func(err error) Proof {
		return Proof{Type: Identifier, Message: "cannot set a unique NFSv4 client identifier: " + err.Error()}
	}
	if err := w.prepareOnce(); err != nil {
		return failed(err)
	}
	name := "storage-client-trial-" + w.newName()
	if err := w.writeFile(identifierFile, name); err != nil {
		return failed(err)
	}
	read, err := w.readFile(identifierFile)
	if err != nil {
		return failed(err)
	}
	if read = strings.TrimSpace(read); read != name {
		return failed(fmt.Errorf("read %q after writing %q", read, name))
	}
	r.Identifier = name
	return Proof{Type: Identifier, Holds: true, Message: name}
}

func (w work) proveNoOther(*Result) Proof {
	var n int
	for range leftoverTries {
		data, err := w.readFile(volumesFile)
		if err != nil {
			return Proof{Type: NoOtherMount, Message: "cannot list the mounts in this network namespace: " + err.Error()}
		}
		if n = countVolumes(data); n == 0 {
			return Proof{Type: NoOtherMount, Holds: true, Message: "no other mount in this network namespace"}
		}
		w.pause(leftoverPause)
	}
	return Proof{Type: NoOtherMount, Message: fmt.Sprintf("%d NFS file systems are already mounted in this network namespace", n)}
}

func (w work) tryList(ctx context.Context, l list, r *Result) error {
	if err := w.mountList(ctx, l); err != nil {
		return err
	}
	defer func() { _ = w.unmount(volumeDir) }()
	w.observe(l, r)
	return w.checkResponse(w.order.User)
}

func (w work) tryOwn(ctx context.Context) *Mount {
	l, err := parseList(w.order.OwnOptions)
	if err == nil {
		err = w.mountList(ctx, l)
	}
	if err == nil {
		defer func() { _ = w.unmount(volumeDir) }()
		err = w.checkResponse(w.order.User)
	}
	if err != nil {
		return &Mount{Message: err.Error()}
	}
	return &Mount{Succeeded: true}
}

// mountList mounts as mount.nfs would. If it tries several versions, it returns the error of the first.
func (w work) mountList(ctx context.Context, l list) error {
	addresses, err := w.resolve(ctx, l.network(), w.order.Server)
	if err != nil {
		return fmt.Errorf("failed to resolve server %s: %w", w.order.Server, err)
	}
	if len(addresses) == 0 {
		return fmt.Errorf("failed to resolve server %s: it has no address", w.order.Server)
	}
	server := addresses[0].Unmap()
	client, err := w.clientAddr(server)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", server, err)
	}
	attempts, err := l.attempts(w.order.FSType, server, client.Unmap())
	if err != nil {
		return err
	}
	return w.mountFirst(ctx, attempts)
}

func (w work) mountFirst(ctx context.Context, attempts []attempt) error {
	from := source(w.order.Server, w.order.Path)
	var first error
	for len(attempts) > 0 {
		if err := ctx.Err(); err != nil {
			return cmp.Or(first, err)
		}
		a := attempts[0]
		err := w.mount(from, volumeDir, a.fsType, a.flags, a.data)
		if err == nil {
			return nil
		}
		if first == nil {
			first = w.describe(from, a, err)
		}
		attempts = remaining(attempts, err)
	}
	return first
}

// describe returns the error of a failed mount with the kernel's messages. mount(2) itself returns only numbers. The kernel explains rejected
// parameters if they are passed one by one.
func (w work) describe(from string, a attempt, err error) error {
	failed := fmt.Errorf("mount(2): %w", err)
	if !errors.Is(err, syscall.EINVAL) {
		return failed
	}
	if reason := w.explain(from, a); reason != "" {
		return fmt.Errorf("%w: %s", failed, reason)
	}
	return failed
}

// observe reads the state of the mount, and proves that it shares no superblock or connection with another mount.
func (w work) observe(l list, r *Result) {
	if data, err := w.readFile(mountstatsFile); err == nil {
		r.Observed, r.Transports = mounts.StatsAt(data, volumeDir)
	}
	transports := Proof{
		Type: Transports, Holds: r.Transports == l.nconnect,
		Message: fmt.Sprintf("%d, the mount options request %d", r.Transports, l.nconnect),
	}
	r.Proofs = append(r.Proofs, w.proveDevice(), transports)
}

func (w work) proveDevice() Proof {
	data, err := w.readFile(mountinfoFile)
	if err != nil {
		return Proof{Type: OwnDevice, Message: err.Error()}
	}
	device, err := w.device(volumeDir)
	if err != nil {
		return Proof{Type: OwnDevice, Message: err.Error()}
	}
	if listed, otherDevices := devicesOf(data, volumeDir); listed != device || slices.Contains(otherDevices, device) {
		return Proof{Type: OwnDevice, Message: "another mount has the same device " + device}
	}
	return Proof{Type: OwnDevice, Holds: true, Message: device}
}

// checkResponse accepts it as a response if the user may not read the root.
func (w work) checkResponse(user int) error {
	err := w.readRoot(volumeDir, user)
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}
