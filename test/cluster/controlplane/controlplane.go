// Package controlplane starts a control plane on this machine without root. etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler are real. kwok simulates pods.
package controlplane

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/storageclient/operator/test/patience"
)

// NodeAnnotation on a Node makes kwok simulate its pods and renew its lease.
const NodeAnnotation = "kwok.x-k8s.io/node"

// startTimeout is the maximum time for the start of etcd, and of the API server. An idle machine takes seconds.
const startTimeout = 2 * time.Minute

//go:embed stages.yaml
var stages []byte

// kwok renews leases a sixteenth as often as kubelets, and they may be that much older. With a thousand nodes, leases would otherwise be
// most of the API server's load. A simulated boot reports the Node as not Ready without them.
const (
	leaseSeconds = 640
	gracePeriod  = "800s"
)

// Options contains the paths and the audit settings.
type Options struct {
	// Binaries holds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok.
	Binaries string
	// Dir takes logs, keys and the kubeconfig. It must exist.
	Dir string
	// Audit lets the API server log every write with its user, for Writes.
	Audit bool
	// AuditReads contains users whose reads are logged, in addition to the manager and the agents.
	AuditReads []string
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Config is an administrator's client configuration.
	Config *rest.Config
	// Kubeconfig is the same as a file.
	Kubeconfig string

	dir         string
	environment *envtest.Environment
	processes   []*Process
	// read is the offset up to which LastWrite has read the audit log, lastWrite the result.
	read      int64
	lastWrite time.Time
}

// Start starts all processes and returns once the API server responds. If it fails, it stops the processes again.
func Start(options Options) (*ControlPlane, error) {
	p := &ControlPlane{
		dir:         options.Dir,
		Kubeconfig:  filepath.Join(options.Dir, "kubeconfig"),
		environment: &envtest.Environment{BinaryAssetsDirectory: options.Binaries, ControlPlaneStartTimeout: patience.Of(startTimeout)},
	}
	// The controllers use their own service accounts, so the API server must sign tokens.
	p.environment.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "RBAC")
	if options.Audit {
		if err := p.configureAudit(options.AuditReads); err != nil {
			return nil, fmt.Errorf("prepare the audit log: %w", err)
		}
	}
	if err := p.startAll(options); err != nil {
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

func (p *ControlPlane) startAll(options Options) error {
	config, err := p.environment.Start()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	p.Config = config
	if err := p.AddAdministrator("admin", p.Kubeconfig); err != nil {
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
			"--node-monitor-grace-period=" + gracePeriod,
		},
		{
			filepath.Join(options.Binaries, "kube-scheduler"), "--kubeconfig=" + p.Kubeconfig,
			"--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400",
		},
		{
			filepath.Join(options.Binaries, "kwok"), "--kubeconfig=" + p.Kubeconfig, "--config=" + stageFile,
			"--manage-nodes-with-annotation-selector=" + NodeAnnotation + "=fake", fmt.Sprintf("--node-lease-duration-seconds=%d", leaseSeconds),
		},
	} {
		if _, err := p.Run(argv...); err != nil {
			return err
		}
	}
	return nil
}

// AddAdministrator writes the kubeconfig of a user with all rights and a unique name in the audit log.
func (p *ControlPlane) AddAdministrator(name, file string) error {
	admin, err := p.environment.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		return err
	}
	return os.WriteFile(file, kubeconfig, 0o600)
}

// Run starts a program, with its output in a file of the control plane's directory that is named after it. The program ends with the
// control plane, and with this process in any case.
func (p *ControlPlane) Run(argv ...string) (*Process, error) {
	return p.RunAs(filepath.Base(argv[0]), argv...)
}

// RunAs does the same as Run under another name. A reused name appends to the same file.
func (p *ControlPlane) RunAs(name string, argv ...string) (*Process, error) {
	process, err := startProcess(name, filepath.Join(p.dir, name+".log"), argv)
	if err != nil {
		return nil, err
	}
	p.processes = append(p.processes, process)
	return process, nil
}

// Processes returns the processes except for etcd and the API server, in the order of their start. It includes finished processes.
func (p *ControlPlane) Processes() []*Process { return p.processes }

// Stop stops all processes, the last one first.
func (p *ControlPlane) Stop() error {
	for i := len(p.processes) - 1; i >= 0; i-- {
		p.processes[i].terminate()
	}
	return p.environment.Stop()
}
