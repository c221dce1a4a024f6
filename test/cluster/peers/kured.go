package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kured runs one process for each node, as its DaemonSet would. Each process has its own mount and process namespaces: it reads its token
// from a fixed path, and enters the mounts of process 1 for the reboot command. Here this command only creates a file. The harness
// simulates the end of the process at the reboot, its restart, and the sentinel file.
type kured struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

const (
	kuredNamespace = "kube-system"
	// kuredPeriod is the interval between its checks of the sentinel and the lock. Its default is an hour.
	kuredPeriod = time.Minute
)

func (*kured) name() string { return "kured" }

func (*kured) users() []string { return []string{"system:serviceaccount:" + kuredNamespace + ":kured"} }

func (*kured) describe() string {
	return fmt.Sprintf("one process a node, --concurrency as the budget, --period=%s instead of an hour", kuredPeriod)
}

func (k *kured) stop() {
	if k.cancel != nil {
		k.cancel()
		k.wait.Wait()
	}
}

func (k *kured) prepare(ctx context.Context, w *world) error {
	meta := metav1.ObjectMeta{Namespace: kuredNamespace, Name: "kured"}
	labels := map[string]string{"app": "kured"}
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		// The annotation of this DaemonSet is the lock. The processes replace its pods.
		&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"no-such-node": "true"}, Containers: []corev1.Container{{Name: "kured", Image: "example/kured:1"}},
			}},
		}},
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "delete", "get"}},
			{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get", "update"}},
			{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kured"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: kuredNamespace, Name: "kured"}},
		},
	} {
		if err := w.Client.Create(ctx, object); err != nil {
			return err
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](6 * 3600)}}
	if err := w.Client.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, request); err != nil {
		return err
	}
	secrets := k.path(w, "secrets")
	if err := os.MkdirAll(secrets, 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(secrets, "token"), []byte(request.Status.Token), 0o600),
		os.WriteFile(filepath.Join(secrets, "ca.crt"), w.Plane.Config.CAData, 0o600),
		k.startProcesses(ctx, w),
	)
}

func (*kured) path(w *world, name string) string { return filepath.Join(w.dir, "kured", name) }

// startProcesses starts the processes, which have no work yet.
func (k *kured) startProcesses(ctx context.Context, w *world) error {
	if os.Getuid() != 0 {
		return errors.New("kured's processes need their own mount namespaces, which require root")
	}
	ctx, k.cancel = context.WithCancel(ctx)
	for i, node := range w.Names {
		k.wait.Go(func() {
			if err := k.playNode(ctx, w, node, i); err != nil && ctx.Err() == nil {
				w.progress("%s: %v", node, err)
			}
		})
	}
	return nil
}

// inPod gives a process the environment of kured's pod.
const inPod = `mount --make-rprivate / && mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount &&
cp "$SECRETS"/* /run/secrets/kubernetes.io/serviceaccount/ && mount -t proc proc /proc && exec "$@"`

// playNode runs the process of a node until it requests a reboot, simulates the reboot, and starts the next process.
func (k *kured) playNode(ctx context.Context, w *world, node string, number int) error {
	server, err := url.Parse(w.Plane.Config.Host)
	if err != nil {
		return err
	}
	requested := k.path(w, node+".reboot")
	log, err := os.Create(k.path(w, node+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--", "sh", "-c", inPod, "sh",
			w.settings.kured, "--node-id="+node, "--ds-namespace="+kuredNamespace, "--ds-name=kured", fmt.Sprintf("--concurrency=%d", w.budget),
			"--period="+kuredPeriod.String(), "--reboot-sentinel="+k.path(w, node+".required"), "--reboot-command=/usr/bin/touch "+requested,
			"--metrics-host=127.0.0.1", fmt.Sprintf("--metrics-port=%d", 21000+number))
		cmd.Env = append(os.Environ(), "SECRETS="+k.path(w, "secrets"), "KUBERNETES_SERVICE_HOST="+server.Hostname(), "KUBERNETES_SERVICE_PORT="+server.Port())
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		err := awaitFile(ctx, requested, ended)
		_ = cmd.Process.Kill() // the machine shuts down, or the measurement is over
		if err != nil {
			return err
		}
		if err := errors.Join(os.Remove(requested), os.Remove(k.path(w, node+".required"))); err != nil {
			return err
		}
		if err := w.Light.Reboot(ctx, node); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// awaitFile waits until a file exists. It returns an error if the process exits before.
func awaitFile(ctx context.Context, file string, ended <-chan error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return fmt.Errorf("the process has exited: %w", err)
		case <-tick.C:
		}
	}
}

// begin marks every node as in need of a reboot.
func (k *kured) begin(_ context.Context, w *world) error {
	for _, node := range w.Names {
		if err := os.WriteFile(k.path(w, node+".required"), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (*kured) says(ctx context.Context, w *world, lost string) string {
	daemonSet := &appsv1.DaemonSet{}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: kuredNamespace, Name: "kured"}, daemonSet); err != nil {
		return err.Error()
	}
	if lost == "" {
		return "no node has gone down yet"
	}
	return nodeSays(ctx, w, lost) + "; the lock: " + daemonSet.Annotations["weave.works/kured-node-lock"]
}
