package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	hostAddress = "10.99.0.1"
	apiServer   = "https://" + hostAddress + ":6443"
	etcdServer  = "http://127.0.0.1:2379"
)

// startControlPlane starts etcd and the API server. The other processes start once the API server is ready, because the controller
// manager exits without it.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := c.start("etcd", c.dirs.binary("etcd"), "--data-dir="+c.dirs.etcd(), "--unsafe-no-fsync",
		"--listen-client-urls="+etcdServer, "--advertise-client-urls="+etcdServer, "--listen-peer-urls=http://127.0.0.1:2380"); err != nil {
		return err
	}
	err := c.start("kube-apiserver", append([]string{c.dirs.binary("kube-apiserver")}, apiServerFlags()...)...)
	if err != nil {
		return err
	}
	err = c.poll(ctx, time.Second, func() error {
		_, err := c.kubectl(ctx, "get", "--raw=/readyz")
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	for _, name := range []string{"controller-manager", "scheduler"} {
		conf := name + ".conf"
		argv := []string{c.dirs.binary("kube-" + name), "--kubeconfig=" + conf, "--authentication-kubeconfig=" + conf,
			"--authorization-kubeconfig=" + conf, "--leader-elect=false"}
		if name == "controller-manager" {
			argv = append(argv, "--use-service-account-credentials", "--service-account-private-key-file=service-accounts.key",
				"--root-ca-file=ca.crt",
				// A busy machine that emulates the nodes renews their leases late, which must not make them NotReady.
				"--node-monitor-grace-period=2m")
		}
		if err := c.start("kube-"+name, argv...); err != nil {
			return err
		}
	}
	return nil
}

// apiServerFlags returns flags with file names relative to the run's keys.
func apiServerFlags() []string {
	return []string{
		"--etcd-servers=" + etcdServer, "--advertise-address=" + hostAddress, "--secure-port=6443",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range=10.96.0.0/16",
		// No machine has a kube-proxy, so the API server connects to webhooks by the addresses of their pods.
		"--enable-aggregator-routing=true",
		"--client-ca-file=ca.crt", "--tls-cert-file=apiserver.crt", "--tls-private-key-file=apiserver.key",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=service-accounts.key", "--service-account-key-file=service-accounts.key",
		// No DNS contains the nodes' names.
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority=ca.crt",
		"--kubelet-client-certificate=kubelet-client.crt", "--kubelet-client-key=kubelet-client.key",
		"--requestheader-client-ca-file=ca.crt", "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=front-proxy.crt", "--proxy-client-key-file=front-proxy.key",
	}
}

// waitForNodes waits until all nodes are Ready.
func (c *Cluster) waitForNodes(ctx context.Context) error {
	return c.poll(ctx, 2*time.Second, func() error {
		const path = `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}`
		out, err := c.kubectl(ctx, "get", "nodes", "-o", path)
		if err != nil {
			return err
		}
		for _, m := range c.Members() {
			if !strings.Contains(out, m.Name+"=True ") {
				return fmt.Errorf("%s is not Ready: the API server returns %q, see %s", m.Name, out, m.ConsolePath())
			}
		}
		return nil
	})
}

func (c *Cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.dirs.Kubectl(), append([]string{"--kubeconfig=" + c.dirs.Kubeconfig()}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr(err))
	}
	return string(out), nil
}
