package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/storageclient/operator/test/patience"
)

// sshTimeout bounds a command on a machine; importing an image is the longest.
const sshTimeout = 4 * time.Minute

// Machine is a virtual machine with one CPU: under software emulation on two cores, two are slower.
type Machine struct {
	// Name is the host name, and the Node's name if the machine is a node.
	Name string
	// Address is the machine's IPv4 address.
	Address string

	dirs   Dirs
	index  int
	memory int // MiB
	// taints are the taints with which its kubelet registers.
	taints string
}

func newMachine(dirs Dirs, index, memory int) *Machine {
	return &Machine{Name: fmt.Sprintf("node%d", index), Address: fmt.Sprintf("10.99.0.%d", 10+index), dirs: dirs, index: index, memory: memory}
}

func (m *Machine) tap() string      { return fmt.Sprintf("tap%d", m.index) }
func (m *Machine) podRange() string { return fmt.Sprintf("10.244.%d.0/24", m.index) }
func (m *Machine) disk() string     { return filepath.Join(m.dirs.disks(), m.Name+".qcow2") }
func (m *Machine) seed() string     { return filepath.Join(m.dirs.disks(), m.Name+".seed.tar") }

// ConsolePath is the path of the file with all output of the serial console.
func (m *Machine) ConsolePath() string { return filepath.Join(m.dirs.Logs(), m.Name+".console") }

// GRUBStarts counts how often GRUB has started since the machine was powered on.
func (m *Machine) GRUBStarts() (int, error) {
	console, err := os.ReadFile(m.ConsolePath())
	return bytes.Count(cursorMoves.ReplaceAll(console, nil), []byte("GRUB loading")), err
}

// cursorMoves matches the escape sequences that the firmware's serial console prints between any two letters.
var cursorMoves = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

func (m *Machine) Run(ctx context.Context, script string) (string, error) {
	return m.ssh(ctx, strings.NewReader(script), "sh", "-eu")
}

func (m *Machine) ssh(ctx context.Context, stdin io.Reader, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(sshTimeout))
	defer cancel()
	args := []string{"-q", "-i", m.dirs.key("ssh"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=20", "root@" + m.Address, "--"}
	cmd := exec.CommandContext(ctx, "ssh", append(args, argv...)...)
	cmd.Stdin = stdin
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w: %s", m.Name, strings.Join(argv, " "), err, stderr(err))
	}
	return string(out), nil
}

// stderr returns the end of a failed command's standard error.
func stderr(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return tail(exit.Stderr)
	}
	return ""
}

// startMachines creates an overlay on the base disk and a seed disk for each machine, and powers all of them on.
func (c *Cluster) startMachines(ctx context.Context) error {
	base, err := baseDisk(c.dirs)
	if err != nil {
		return err
	}
	for _, m := range c.Machines() {
		if err := c.writeSeed(m); err != nil {
			return fmt.Errorf("write seed of %s: %w", m.Name, err)
		}
		if err := command(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-b", base.disk(), "-F", "raw", m.disk()); err != nil {
			return err
		}
		if err := c.powerOn(m); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) powerOn(m *Machine) error {
	argv := append(c.accel.qemu(m.memory), "-name", m.Name,
		"-drive", "file="+m.disk()+",if=virtio,cache=unsafe",
		"-drive", "file="+m.seed()+",format=raw,if=virtio,readonly=on",
		"-netdev", "tap,id=net0,ifname="+m.tap()+",script=no,downscript=no",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net0,romfile=,mac=52:54:00:99:00:%02x", m.index),
		"-chardev", "file,id=console,append=on,path="+m.ConsolePath(), "-serial", "chardev:console")
	return c.start(m.Name, argv...)
}

// PowerCycle cuts a machine's power and starts it again. Data that the machine has not written to its disk is lost.
func (c *Cluster) PowerCycle(m *Machine) error {
	if err := c.stop(m.Name); err != nil {
		return err
	}
	return c.powerOn(m)
}

// writeSeed writes the tar archive that the machine unpacks over its root, once: name, address and keys.
func (c *Cluster) writeSeed(m *Machine) error {
	files := map[string][]byte{
		"etc/hostname": []byte(m.Name + "\n"),
		"etc/hosts":    fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n", m.Address, m.Name),
		"etc/systemd/network/10-node.network": fmt.Appendf(nil, "[Match]\nName=en*\n\n[Network]\nAddress=%s/24\nGateway=%s\n"+
			"LinkLocalAddressing=no\nIPv6AcceptRA=no\n", m.Address, hostAddress),
	}
	copies := map[string]string{"root/.ssh/authorized_keys": "ssh.pub"}
	if m != c.Server {
		files["etc/kubernetes/env"] = fmt.Appendf(nil, "NODE_NAME=%s\nNODE_IP=%s\nNODE_LABELS=%s\nNODE_TAINTS=%s\n", m.Name, m.Address, nodeLabels, m.taints)
		files["etc/cni/net.d/10-bridge.conflist"] = fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "bridge", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, m.podRange())
		copies["etc/kubernetes/kubelet.conf"] = m.Name + ".conf"
		copies["etc/kubernetes/node.crt"] = m.Name + ".crt"
		copies["etc/kubernetes/node.key"] = m.Name + ".key"
		copies["etc/kubernetes/ca.crt"] = "ca.crt"
	}
	for path, name := range copies {
		data, err := os.ReadFile(c.dirs.key(name))
		if err != nil {
			return err
		}
		files[path] = data
	}
	archive, err := tarOf(files)
	if err != nil {
		return err
	}
	return os.WriteFile(m.seed(), archive, 0o600)
}

func tarOf(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// startNFSServer serves ServerExport. It starts the server by name, because enabling it at boot would make every machine a server. With
// the memory of this machine, nfsd would limit requests to 64 KiB. Storage services accept 1 MiB.
func (c *Cluster) startNFSServer(ctx context.Context) error {
	script := "echo " + strconv.Quote(ServerExport+" *(rw,no_root_squash,no_subtree_check,insecure)") + ` >/etc/exports
systemctl start proc-fs-nfsd.mount
[ "$(cat /proc/fs/nfsd/threads)" != 0 ] || echo 1048576 >/proc/fs/nfsd/max_block_size
systemctl start rpcbind nfs-server
`
	return c.poll(ctx, 2*time.Second, func() error {
		_, err := c.Server.Run(ctx, script)
		return err
	})
}

// Import imports image archives into the image store of every node.
func (c *Cluster) Import(ctx context.Context, archives ...string) error {
	members := c.Members()
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { errs[i] = m.load(ctx, archives) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (m *Machine) load(ctx context.Context, archives []string) error {
	for _, archive := range archives {
		if err := m.loadOne(ctx, archive); err != nil {
			return fmt.Errorf("import %s: %w", archive, err)
		}
	}
	return nil
}

func (m *Machine) loadOne(ctx context.Context, archive string) error {
	return m.receive(ctx, archive, "ctr --namespace=k8s.io images import -")
}

// Copy copies an executable file to the machine.
func (m *Machine) Copy(ctx context.Context, file, to string) error {
	if err := m.receive(ctx, file, "cat >"+to); err != nil {
		return fmt.Errorf("copy %s to %s: %w", file, m.Name, err)
	}
	_, err := m.Run(ctx, "chmod 755 "+to)
	return err
}

// receive sends a file to a command's standard input over a bare connection. SSH only encrypts two MB per second under software
// emulation.
func (m *Machine) receive(ctx context.Context, name, command string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", hostAddress+":0")
	if err != nil {
		return err
	}
	var sendErr error
	var sent sync.WaitGroup
	sent.Go(func() { sendErr = serveOnce(ctx, listener, file) })
	port := listener.Addr().(*net.TCPAddr).Port
	_, err = m.ssh(ctx, nil, fmt.Sprintf(`bash -c "%s </dev/tcp/%s/%d"`, command, hostAddress, port))
	closeErr := listener.Close()
	sent.Wait()
	return errors.Join(err, closeErr, sendErr)
}

// serveOnce writes content to the first connection until ctx ends, because the machine's end of it outlives its SSH session. It ignores
// the error of a listener that is closed before a connection arrives.
func serveOnce(ctx context.Context, listener net.Listener, content io.Reader) error {
	connection, err := listener.Accept()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	_, err = io.Copy(connection, content)
	if !stop() {
		return errors.Join(err, context.Cause(ctx))
	}
	return errors.Join(err, connection.Close())
}
