//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/storageclient/operator/api/v1alpha1"
)

// podLogs copies the logs of the operator's pods to files, because the logs of an evicted pod are deleted with it.
type podLogs struct {
	dir    string
	client kubernetes.Interface

	mu       sync.Mutex
	followed map[string]bool
}

// followPodLogs copies the log of every container of the operator's namespaces that starts while the timeline's watches run.
func followPodLogs(config *rest.Config, watches *timeline) {
	GinkgoHelper()
	kube, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	logs := &podLogs{dir: filepath.Join(dirs.Logs(), "pods"), client: kube, followed: map[string]bool{}}
	Expect(os.MkdirAll(logs.dir, 0o755)).To(Succeed())
	watches.on(&corev1.Pod{}, func(object any) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Namespace != v1alpha1.ManagerNamespace && pod.Namespace != v1alpha1.AgentNamespace {
			return
		}
		for _, container := range pod.Status.ContainerStatuses {
			if container.State.Running != nil {
				logs.follow(pod, container)
			}
		}
	})
}

func (l *podLogs) follow(pod *corev1.Pod, container corev1.ContainerStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := fmt.Sprintf("%s.%s.%s.%d.log", pod.Spec.NodeName, pod.Name, container.Name, container.RestartCount)
	if l.followed[name] {
		return
	}
	l.followed[name] = true
	go func() {
		if err := l.copy(pod, container.Name, filepath.Join(l.dir, name)); err != nil {
			fmt.Fprintf(GinkgoWriter, "Logs of %s: %v\n", name, err)
		}
	}()
}

func (l *podLogs) copy(pod *corev1.Pod, container, path string) error {
	options := &corev1.PodLogOptions{Container: container, Follow: true}
	stream, err := l.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(context.Background())
	if err != nil {
		return err
	}
	defer stream.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, stream)
	return errors.Join(err, file.Close())
}
