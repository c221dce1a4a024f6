package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/hostile"
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

// secrets are texts of several forms that must not be in a bundle, wherever they were.
var secrets = []string{
	"hunter2", "password='my dear secret, 1'", "nas", "ip-10-0-1-2", "10.1.2.3", "10-1-2-3", "fd00::12", "filer.acme.example:/vol/tapeout", "//nas.acme.example/share$", "joe@acme.example", "AKIAIOSFODNN7EXAMPLE",
	"eyJhbGciOi.J9.x", "acme-tapeout", "6.1.0-acme", "v1.2.3-acme", "vers=4.1,password=acme", "--token=acme", "Acme GNU/Linux 12", `{"state": "acme", "acme": 5}`, "2026-09-01 acme", "5 acme", "sysctl/acme", "module/acme/acme",
}

// plant returns a cluster in which each name, label and text is or contains a secret.
func plant(t *testing.T, secret string, suffix bool) []client.Object {
	t.Helper()
	objects := operatorObjects()
	for i, o := range objects {
		labels, namespace, name := o.GetLabels(), o.GetNamespace(), o.GetName()
		hostile.Fill(reflect.ValueOf(o).Elem(), secret, suffix, 9)
		if _, isSecret := o.(*corev1.Secret); isSecret {
			continue
		}
		if configMap, isConfigMap := o.(*corev1.ConfigMap); isConfigMap {
			configMap.Data = map[string]string{secret: `{"retry": "` + url.QueryEscape(secret) + `"}`, "a" + secret: secret}
			configMap.BinaryData = nil
		}
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		o.SetDeletionTimestamp(nil)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[secret], labels[corev1.LabelTopologyZone] = secret, secret
		o.SetLabels(labels)
		o.SetAnnotations(map[string]string{secret: secret, v1alpha1.DisruptionAnnotation: secret, v1alpha1.FailedMountOptionsAnnotation: `["` + url.QueryEscape(secret) + `"]`})
		o.SetName(fmt.Sprint(secret, i))
		if _, isPod := o.(*corev1.Pod); namespace == v1alpha1.ManagerNamespace || namespace == v1alpha1.AgentNamespace {
			if o.SetNamespace(namespace); !isPod {
				o.SetName(name)
			}
		}
	}
	return objects
}

func TestSupportBundleContainsNoPlantedSecret(t *testing.T) {
	for _, secret := range secrets {
		for _, suffix := range []bool{false, true} {
			env := &environment{readLog: func(context.Context, client.ObjectKey, string, bool) (string, error) {
				at := "2026-09-01T00:00:00Z "
				return at + `{"time":"2026-09-01T00:00:00Z","level":"` + secret + `","msg":"` + secret + `","error":"` + secret + `","node":"` + secret + `","` + secret + `":5}` + "\n" +
					at + "time=" + secret + ` level=INFO msg="Rebooting the host" ` + secret + "=" + secret + " hash=" + secret + ` error="` + secret + `"` + "\n" +
					at + secret + "\n" + secret + "\n\t" + secret + ".go:5\npanic: " + secret + "\n" + secret + "=" + secret + " level=" + secret + "\n", nil
			}}
			file := filepath.Join(t.TempDir(), "bundle.tar.gz")
			r := executeIn(t, env, interceptor.Funcs{}, plant(t, secret, suffix), "support-bundle", "-f", file)
			if r.err != nil {
				t.Fatal(r.err)
			}
			files := unpack(t, file)
			if len(files) < 12 {
				t.Errorf("got the files %v", slices.Sorted(maps.Keys(files)))
			}
			for name, text := range files {
				for _, never := range []string{secret, url.QueryEscape(secret), "acme", "Acme"} {
					if i := strings.Index(text, never); i >= 0 || strings.Contains(name, never) {
						t.Errorf("%s contains %q: %s", name, never, text[max(0, i-80):min(len(text), i+60)])
					}
				}
			}
		}
	}
}

func TestSupportBundleContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	env := &environment{readLog: func(_ context.Context, _ client.ObjectKey, container string, _ bool) (string, error) {
		if container == "manager" {
			return `2026-09-01T00:00:00.5Z {"time":"2026-09-01T00:00:00Z","level":"INFO","msg":"Permitted a reboot","Node":"n1","permit":"0123456789abcdef","secret":"x"}` + "\n", nil
		}
		return "2026-09-01T00:00:00Z time=2026-09-01T00:00:00.000Z level=ERROR msg=\"Cannot apply settings; no settings changed on this node\" generation=5 error=\"open /vol\"\n" +
			"2026-09-01T00:00:00Z goroutine 5 [running]:\n2026-09-01T00:00:00Z \tgithub.com/storageclient/operator/agent/pass.go:185 +0x1d\n", nil
	}}
	r := executeIn(t, env, failOnSecretRead(t), operatorObjects(), "support-bundle", "-f", file)
	if r.err != nil || !strings.HasPrefix(r.out, "Wrote "+file+" (") || !strings.HasSuffix(r.out, "Review it before you send it.\n") {
		t.Fatalf("error %v, output:\n%s", r.err, r.out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got error %v, mode %v: other users can read the file", err, info.Mode())
	}
	files := unpack(t, file)
	for name, parts := range map[string][]string{
		"profiles.yaml":                           {"ihash_entries=16777216", "nocto", "hash: " + planOfEDA, "reason: UpToDate", "nodesToReboot: 1", "observedGeneration: 1"},
		"persistentvolumes.yaml":                  {"driver: smb.csi.k8s.io", "path: source-", "server: server-1", "vers=3.1.1", "password=text-", "protocol: smb", "volumeHandle: source-"},
		"storageclientnodes.yaml":                 {"server: server-1", "original: \"212992\"", "key: sysctl/net.core.rmem_max", "state: Shadowed", "kernelVersion: 6.1.0", "count: 2", "phase: Waiting", "reason: WaitingForApproval", "slotLimit: 64", "protocol: NFSv4.1", "readAhead/nfs4"},
		"nodes.yaml":                              {"tuning.storageclient.dev/never-disrupt: \"true\"", "type: Ready", "topology.kubernetes.io/zone: label-", "kubernetes.io/os: linux"},
		"events.yaml":                             {"reason: ", "kind: PersistentVolume", "name: volume-"},
		"volumes-judged.yaml":                     {"state: UpToDate", "- nocto"},
		"operator.yaml":                           {"plugin:"},
		"logs/pod-1/manager.log":                  {`{"Node":"node-1","at":"2026-09-01T00:00:00.5Z","level":"INFO","msg":"Permitted a reboot","permit":"0123456789abcdef","time":"2026-09-01T00:00:00Z"}`},
		"logs/pod-2/node-agent.log":               {`"msg":"Cannot apply settings; no settings changed on this node"`, `"generation":"5"`, `"error":"text-`, "goroutine 5 [running]:", `\tgithub.com/storageclient/operator/agent/pass.go:185"`},
		"README.txt":                              {"No Secret was read.", "Omitted:\n", "ConfigMap storage-client-rollout: NotFound"},
		"configmaps/storage-client-failures.yaml": {"profile-1: "},
		"pods/agents.yaml":                        {"nodeName: node-1", "name: node-agent"},
		"pods/manager.yaml":                       {"restartCount: 1"},
		"logs/pod-1/manager-previous.log":         {"Permitted a reboot"},
	} {
		for _, part := range parts {
			if !strings.Contains(files[name], part) {
				t.Errorf("%s lacks %q:\n%s", name, part, files[name])
			}
		}
	}
	if len(files) != 14 {
		t.Errorf("got %d files: %v", len(files), slices.Sorted(maps.Keys(files)))
	}
	if strings.Contains(files["events.yaml"], "kubelet") || strings.Contains(files["nodes.yaml"], "flannel") {
		t.Error("got data in the bundle that does not belong to the operator")
	}
	if second := execute(t, interceptor.Funcs{}, operatorObjects(), "support-bundle", "-f", file); second.err == nil || !strings.Contains(second.err.Error(), "exists") {
		t.Errorf("for an existing file: got error %v", second.err)
	}
}

func TestSupportBundleWithAddresses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	r := execute(t, interceptor.Funcs{}, operatorObjects(), "support-bundle", "-f", file, "--no-redact")
	if r.err != nil || !strings.Contains(r.out, "It contains names, addresses, servers, and mount sources.") {
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
		if r.err != nil || !strings.Contains(r.out, want) || !strings.Contains(unpack(t, file)["README.txt"], strings.Replace(want, "things is forbidden", "Forbidden", 1)) {
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
