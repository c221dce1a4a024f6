package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"time"
)

const (
	// commandTimeout ends a host command that hangs. grub-mkconfig takes 11 s on a node with two slow cores, and several times that on a node with
	// many kernels.
	commandTimeout = 3 * time.Minute
	// pipeTimeout is the time to wait for output after the command itself has exited.
	pipeTimeout = 5 * time.Second
	// maxStdout limits the standard output that is kept, in bytes. The kernel log of one boot is well under 1 MiB.
	maxStdout = 16 << 20
	// maxStderr limits the end of standard error that is kept for the error text, in bytes.
	maxStderr = 2 << 10
)

// commandPath lists the directories in which commands are looked up, in this order.
var commandPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// environment is the complete environment of host commands. systemctl must use the message bus. At the socket of systemd itself, it requests the
// process ID of the other end. A container without the host's processes does not get that ID, and systemctl gives up ("Failed to connect to bus: No
// data available").
var environment = []string{"PATH=" + strings.Join(commandPath, ":"), "LC_ALL=C", "SYSTEMCTL_FORCE_BUS=1"}

// Commands runs commands of the host in the host's root by chroot(2), unless the root is already /. The environment is fixed, and time and output are
// limited. It implements Runner.
type Commands struct {
	fs FS
}

var _ Runner = Commands{}

// NewCommands returns a runner for the host of that file system.
func NewCommands(fs FS) Commands { return Commands{fs: fs} }

// Run runs a command to its end and returns its standard output. A name without a slash is looked up in the host's root, not in the container's. A
// missing command is exec.ErrNotFound. Output that is too long is an error, and its start is returned. When the context or three minutes are over, the command and its children are killed.
func (c Commands) Run(ctx context.Context, argv ...string) ([]byte, error) {
	if len(argv) == 0 {
		return nil, errors.New("run: no command")
	}
	file, err := c.lookPath(argv[0])
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	stdout, stderr := &head{limit: maxStdout}, &tail{limit: maxStderr}
	cmd := exec.CommandContext(ctx, file)
	cmd.Args = argv
	cmd.Env = environment
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.fs.Dir() != "/" {
		cmd.SysProcAttr.Chroot = c.fs.Dir()
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeTimeout
	err = cmd.Run()
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil && stdout.cut {
		return stdout.buf.Bytes(), commandError(argv, fmt.Errorf("more than %d bytes of output", maxStdout), nil)
	}
	if err != nil {
		return nil, commandError(argv, err, stderr.buf)
	}
	return stdout.buf.Bytes(), nil
}

func commandError(argv []string, err error, stderr []byte) error {
	command := strings.Join(argv, " ")
	if text := strings.TrimSpace(string(stderr)); text != "" {
		return fmt.Errorf("run %s: %w: %s", command, err, text)
	}
	return fmt.Errorf("run %s: %w", command, err)
}

func (c Commands) lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range commandPath {
		file := path.Join(dir, name)
		info, err := c.fs.Stat(file)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("run %s: %w", name, exec.ErrNotFound)
}

type head struct {
	buf   bytes.Buffer
	limit int
	cut   bool
}

func (h *head) Write(p []byte) (int, error) {
	keep := min(len(p), h.limit-h.buf.Len())
	h.cut = h.cut || keep < len(p)
	h.buf.Write(p[:keep])
	return len(p), nil
}

type tail struct {
	buf   []byte
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	t.buf = t.buf[max(0, len(t.buf)-t.limit):]
	return len(p), nil
}
