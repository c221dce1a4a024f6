package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
)

// operatorObjects returns a cluster with the operator and with all data that a bundle must not contain.
func operatorObjects() []client.Object {
	objects := append(tunedCluster(), eda())
	objects[0].(*corev1.Node).Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.77.0.1"}}
	objects[0].SetAnnotations(map[string]string{"flannel.example/public-ip": "10.77.0.2", v1alpha1.NeverDisruptAnnotation: "true"})
	objects[2].(*corev1.PersistentVolume).Spec.NFS.Path = "/exports/tapeout"
	csi := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-csi"}}
	csi.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "smb.csi.k8s.io", VolumeHandle: "nas.example.com#share", VolumeAttributes: map[string]string{"source": "//nas.example.com/share", "protocol": "smb"},
		NodeStageSecretRef: &corev1.SecretReference{Namespace: "eda", Name: "smb-login"},
	}
	csi.Spec.MountOptions = []string{"vers=3.1.1", "username=joe", "password=hunter2"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "smb-login"}, Data: map[string][]byte{"password": []byte("hunter2")}}
	manager := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: "manager-0"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	manager.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager", RestartCount: 1}}
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "agent-n1"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	agent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node-agent"}}
	failures := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.FailuresConfigMap}, Data: map[string]string{"eda": "{}"}}
	event := func(name, reporter string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, ReportingController: reporter, Reason: name, Message: "mount of filer:/exports/tapeout failed",
			InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolume", Name: "pv1"}}
	}
	return append(objects, csi, secret, manager, agent, failures, event("Ours", v1alpha1.ManagerFieldManager), event("Theirs", "kubelet"))
}

// unpack reads an archive. It returns the texts by file name, without the directory.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		out[name] = string(data)
	}
}

// failOnSecretRead fails the test if the command reads a Secret.
func failOnSecretRead(t *testing.T) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, secret := o.(*corev1.Secret); secret {
				t.Errorf("got a read of Secret %s", key)
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, secrets := list.(*corev1.SecretList); secrets {
				t.Error("got a list of Secrets")
			}
			return c.List(ctx, list, options...)
		},
	}
}

func TestSupportBundleContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	r := execute(t, failOnSecretRead(t), operatorObjects(), "support-bundle", "-f", file)
	if r.err != nil || !strings.HasPrefix(r.out, "Wrote "+file+" (") || !strings.HasSuffix(r.out, "Review it before you send it.\n") {
		t.Fatalf("error %v, output:\n%s", r.err, r.out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got error %v, mode %v: other users can read the file", err, info.Mode())
	}
	files := unpack(t, file)
	var names []string
	for name, text := range files {
		names = append(names, name)
		for _, never := range []string{"hunter2", "username=joe", "10.1.2.3", "10.77.0", "filer", "nas.example.com", "tapeout", "last-applied"} {
			if strings.Contains(text, never) {
				t.Errorf("%s contains %q:\n%s", name, never, text)
			}
		}
	}
	slices.Sort(names)
	want := []string{
		"README.txt", "configmaps/storage-client-failures.yaml", "events.yaml", "logs/agent-n1/node-agent.log", "logs/manager-0/manager-previous.log",
		"logs/manager-0/manager.log", "nodes.yaml", "operator.yaml", "persistentvolumes.yaml", "pods/agents.yaml", "pods/manager.yaml", "profiles.yaml",
		"storageclientnodes.yaml", "volumes-judged.yaml",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name, parts := range map[string][]string{
		"persistentvolumes.yaml":       {"nodeStageSecretRef: eda/smb-login", "path: source-", "server: server-1", "password=REDACTED", "protocol: smb"},
		"storageclientnodes.yaml":      {"server: server-1", "original: \"212992\""},
		"nodes.yaml":                   {"never-disrupt", "pool: eda", "bootID: boot-2"},
		"events.yaml":                  {"reason: Ours", "mount of server-1:source-"},
		"logs/manager-0/manager.log":   {"log of storage-client-system/manager-0 manager false: address-1 server-1"},
		"logs/agent-n1/node-agent.log": {"log of storage-client-agent/agent-n1 node-agent false"},
		"README.txt":                   {"No Secret was read.", "Omitted:\n", "ConfigMap storage-client-rollout: configmaps \"storage-client-rollout\" not found"},
	} {
		for _, part := range parts {
			if !strings.Contains(files[name], part) {
				t.Errorf("%s lacks %q:\n%s", name, part, files[name])
			}
		}
	}
	if strings.Contains(files["events.yaml"], "Theirs") || strings.Contains(files["nodes.yaml"], "flannel") {
		t.Error("got data in the bundle that does not belong to the operator")
	}
	if second := execute(t, interceptor.Funcs{}, operatorObjects(), "support-bundle", "-f", file); second.err == nil || !strings.Contains(second.err.Error(), "exists") {
		t.Errorf("for an existing file: got error %v", second.err)
	}
}

func TestSupportBundleWithAddresses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	r := execute(t, interceptor.Funcs{}, operatorObjects(), "support-bundle", "-f", file, "--no-redact")
	if r.err != nil || !strings.Contains(r.out, "It contains addresses, servers, and mount sources.") {
		t.Fatalf("error %v, output:\n%s", r.err, r.out)
	}
	files := unpack(t, file)
	if text := files["persistentvolumes.yaml"]; !strings.Contains(text, "/exports/tapeout") || !strings.Contains(text, "//nas.example.com/share") || strings.Contains(text, "hunter2") {
		t.Errorf("volumes:\n%s", text)
	}
}

func TestSupportBundleReportsMissingPermissions(t *testing.T) {
	for want, funcs := range map[string]interceptor.Funcs{
		"Nodes: things is forbidden":                       forbid[*corev1.NodeList](),
		"events: things is forbidden":                      forbid[*corev1.EventList](),
		"PersistentVolumes: things is forbidden":           forbid[*corev1.PersistentVolumeList](),
		"the manager's Pods and logs: things is forbidden": forbid[*corev1.PodList](),
	} {
		file := filepath.Join(t.TempDir(), "bundle.tar.gz")
		r := execute(t, funcs, operatorObjects(), "support-bundle", "-f", file)
		if r.err != nil || !strings.Contains(r.out, want) || !strings.Contains(unpack(t, file)["README.txt"], want) {
			t.Errorf("error %v, output lacks %q:\n%s", r.err, want, r.out)
		}
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if r := execute(t, forbid[*v1alpha1.StorageClientProfileList](), operatorObjects(), "support-bundle", "-f", file); r.err == nil {
		t.Error("got a bundle for a user who may not list profiles")
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got a file after the failure: %v", err)
	}
}

func TestSupportBundleOnTheStandardOutput(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, operatorObjects(), "support-bundle", "-f", "-")
	file := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, []byte(r.out), 0o600); r.err != nil || err != nil {
		t.Fatal(r.err, err)
	}
	if files := unpack(t, file); len(files) < 10 {
		t.Errorf("files: %v", files)
	}
}
