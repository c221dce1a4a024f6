// Package controlplane starts a control plane on this machine without any right: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler are the real ones. Pods are played by kwok.
package controlplane

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// NodeAnnotation on a Node makes kwok play its pods and renew its lease.
const NodeAnnotation = "kwok.x-k8s.io/node"

// stopTimeout is how long a process may take to end before it is killed.
const stopTimeout = 10 * time.Second

//go:embed stages.yaml
var stages []byte

// Options say where the programs are.
type Options struct {
	// Binaries holds etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
	Binaries string
	// Kwok is the kwok binary.
	Kwok string
	// Dir takes logs, keys and the kubeconfig. It must exist.
	Dir string
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Config is an administrator's way to the API server.
	Config *rest.Config
	// Kubeconfig is the same, as a file.
	Kubeconfig string

	dir         string
	environment *envtest.Environment
	processes   []*Process
}

// Start starts everything and returns once the API server answers. What was started is stopped again on an error.
func Start(options Options) (*ControlPlane, error) {
	p := &ControlPlane{
		dir:         options.Dir,
		Kubeconfig:  filepath.Join(options.Dir, "kubeconfig"),
		environment: &envtest.Environment{BinaryAssetsDirectory: options.Binaries},
	}
	// The controllers speak under the names of their own service accounts, whose tokens the API server must sign.
	p.environment.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "RBAC")
	if err := p.start(options); err != nil {
		return nil, fmt.Errorf("start the control plane: %w (logs are in %s)", err, joinStop(p, options.Dir))
	}
	return p, nil
}

func joinStop(p *ControlPlane, dir string) string {
	if err := p.Stop(); err != nil {
		return dir + ", and " + err.Error()
	}
	return dir
}

func (p *ControlPlane) start(options Options) error {
	config, err := p.environment.Start()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	p.Config = config
	admin, err := p.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.Kubeconfig, kubeconfig, 0o600); err != nil {
		return err
	}
	stageFile := filepath.Join(options.Dir, "stages.yaml")
	if err := os.WriteFile(stageFile, stages, 0o600); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{
			filepath.Join(options.Binaries, "kube-controller-manager"), "--kubeconfig=" + p.Kubeconfig,
			"--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400",
		},
		{
			filepath.Join(options.Binaries, "kube-scheduler"), "--kubeconfig=" + p.Kubeconfig,
			"--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400",
		},
		{
			options.Kwok, "--kubeconfig=" + p.Kubeconfig, "--config=" + stageFile,
			"--manage-nodes-with-annotation-selector=" + NodeAnnotation + "=fake", "--node-lease-duration-seconds=40",
		},
	} {
		if _, err := p.Run(argv...); err != nil {
			return err
		}
	}
	return nil
}

// Process is a program that was started beside the control plane.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

// Run starts a program, with its output in a file of the control plane's directory. It ends with the control plane,
// and with this process, whatever becomes of it.
func (p *ControlPlane) Run(argv ...string) (*Process, error) {
	name := filepath.Base(argv[0])
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	process := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(process.done)
		defer log.Close()
		_ = cmd.Wait() // how it ended stands in its log
	}()
	p.processes = append(p.processes, process)
	return process, nil
}

// Kill ends the process at once, as a crash would.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.Kill()
	}
}

// Stop ends everything, what was started last first.
func (p *ControlPlane) Stop() error {
	for i := len(p.processes) - 1; i >= 0; i-- {
		p.processes[i].stop()
	}
	return p.environment.Stop()
}
