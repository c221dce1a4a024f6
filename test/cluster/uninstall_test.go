//go:build kwok

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/patience"
)

// TestUninstallLeavesNothing runs hack/uninstall.sh like "make uninstall": with an unreachable node, and again when the node is
// reachable. It needs the files that "make test-uninstall" builds.
func TestUninstallLeavesNothing(t *testing.T) {
	s, hosts := tunedSandbox(t, 3)
	ctx, cutOff := t.Context(), s.Names[2]
	check.NoError(t, s.Fleet.Disconnect(ctx, cutOff))
	output, err := uninstall(t, s, "TIMEOUT=20")
	if err == nil || !strings.Contains(output, "The operator keeps running") {
		t.Fatalf("got error %v, want an error and \"The operator keeps running\" while a node is not restored:\n%s", err, output)
	}
	if last := output[strings.LastIndex(output, "Not restored after"):]; !strings.Contains(last, cutOff) || strings.Contains(last, s.Names[0]) {
		t.Errorf("want only a wait for %s, got: %s", cutOff, last)
	}
	if got := fingerprints(t, s.Fleet.Machine(cutOff).Root()); cmp.Equal(hosts[cutOff], got) {
		t.Errorf("the unreachable node %s was restored", cutOff)
	}
	daemonSets := &metav1.PartialObjectMetadata{}
	daemonSets.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"})
	agents := client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentDaemonSet}
	if err := s.Client.Get(ctx, agents, daemonSets); err != nil || daemonSets.DeletionTimestamp != nil {
		t.Fatalf("the agents were deleted before all nodes were restored: %v", err)
	}

	check.NoError(t, s.Fleet.Reconnect(ctx, cutOff))
	if output, err = uninstall(t, s, "TIMEOUT=120"); err != nil {
		t.Fatalf("%v:\n%s\n%s", err, output, s.ManagerLog())
	}
	t.Log(output)
	for _, name := range s.Names {
		checkRestored(t, s, name, hosts[name])
	}
	volume := &corev1.PersistentVolume{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: "share"}, volume); err != nil || !slices.Equal(volume.Spec.MountOptions, []string{"hard"}) {
		t.Errorf("got mount options %v of the volume (%v)", volume.Spec.MountOptions, err)
	}
	awaitNoReferences(t, s)
}

// A node that is permanently gone would block the uninstallation. FORCE=1 skips such a node, and only that node.
func TestUninstallByForceSkipsAnUnreachableNode(t *testing.T) {
	s, hosts := tunedSandbox(t, 2)
	reachable, cutOff := s.Names[0], s.Names[1]
	check.NoError(t, s.Fleet.Disconnect(t.Context(), cutOff))
	before := fingerprints(t, s.Fleet.Machine(cutOff).Root())
	output, err := uninstall(t, s, "TIMEOUT=20", "FORCE=1")
	if err != nil || !strings.Contains(output, "FORCE=1: leaving nodes and volumes unchanged") {
		t.Fatalf("%v:\n%s", err, output)
	}
	if diff := cmp.Diff(before, fingerprints(t, s.Fleet.Machine(cutOff).Root())); diff != "" {
		t.Errorf("files of %s changed (-before +after):\n%s", cutOff, diff)
	}
	checkRestored(t, s, reachable, hosts[reachable])
	awaitNoReferences(t, s)
}

// The script must remove the trials that a manager left when it was stopped during its work, and its changes on Nodes.
func TestUninstallRemovesTheObjectsOfAStoppedManager(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	ctx := t.Context()
	s := startSandbox(t, sandbox.Options{Nodes: 1, BootTime: time.Second})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Names[0]}}
	labelled := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true",%q:"true"}}}`, v1alpha1.TrialLabel, v1alpha1.ManagedLabel)
	check.NoError(t, s.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, labelled)))
	const managed, foreign = "StorageClientRollout", "Somebody"
	conditions := []corev1.NodeCondition{
		{Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionTrue, Reason: v1alpha1.NodeReasonTuned},
		{Type: v1alpha1.StorageReachableNodeCondition, Status: corev1.ConditionTrue, Reason: v1alpha1.StorageReasonReachable},
		{Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue, Reason: managed},
		{Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: foreign},
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	check.NoError(t, err)
	check.NoError(t, s.Client.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, patch)))
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cut-off"}, Spec: v1alpha1.StorageClientTrialSpec{
		ClaimName: "projects", Profile: "any", Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadListDirectory},
	}}
	check.NoError(t, s.Client.Create(ctx, trial))
	output, err := uninstall(t, s, "TIMEOUT=60")
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	awaitNoReferences(t, s)
	check.NoError(t, s.Client.Get(ctx, client.ObjectKeyFromObject(node), node))
	reasons := map[string]bool{}
	for _, condition := range node.Status.Conditions {
		reasons[condition.Reason] = true
	}
	if reasons[managed] || !reasons[foreign] {
		t.Errorf("got Node conditions %v, want the condition of %s, and none of the operator", node.Status.Conditions, foreign)
	}
}

// tunedSandbox starts a cluster with a profile whose nodes and volume are Ready. It also returns the original fingerprints of the
// machines' files.
func tunedSandbox(t *testing.T, nodes int) (*sandbox.Sandbox, map[string]map[string]string) {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	ctx := t.Context()
	s := startSandbox(t, sandbox.Options{Nodes: nodes, BootTime: time.Second})
	hosts := map[string]map[string]string{}
	for _, name := range s.Names {
		hosts[name] = fingerprints(t, s.Fleet.Machine(name).Root())
	}
	if _, err := s.StartManager(ctx, fmt.Sprintf("--max-unavailable=%d", nodes)); err != nil {
		t.Fatal(err)
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "share"}, Spec: corev1.PersistentVolumeSpec{
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, MountOptions: []string{"hard"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "10.0.0.1", Path: "/export"}},
	}}
	profile := profileOf("uninstalled", int32(nodes))
	profile.Spec.Volumes = []v1alpha1.VolumeRule{{
		Name: "all", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}, MountOptions: []v1alpha1.MountOption{"nconnect=4"},
	}}
	profile.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{Probe: v1alpha1.ProbeNever, OnNoEvidence: v1alpha1.NoEvidenceProceed}
	for _, object := range []client.Object{volume, profile} {
		check.NoError(t, s.Client.Create(ctx, object))
	}
	awaitCondition(t, s, "the profile to be Ready", func(ctx context.Context) (bool, error) {
		err := errors.Join(s.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile), s.Client.Get(ctx, client.ObjectKeyFromObject(volume), volume))
		return meta.IsStatusConditionTrue(profile.Status.Conditions, v1alpha1.ConditionReady) && int(profile.Status.Nodes.UpToDate) == nodes &&
			slices.Contains(volume.Spec.MountOptions, "nconnect=4"), err
	})
	checkMachines(t, s, 2, "16777216")
	for name, before := range hosts {
		if cmp.Equal(before, fingerprints(t, s.Fleet.Machine(name).Root())) {
			t.Fatalf("the profile changed no file of %s", name)
		}
	}
	return s, hosts
}

// uninstall runs hack/uninstall.sh with the manifest of all objects that the sandbox installs.
func uninstall(t *testing.T, s *sandbox.Sandbox, env ...string) (string, error) {
	t.Helper()
	binaries := requireEnv(t, "SCO_BINARIES")
	dir := t.TempDir()
	config, err := filepath.Abs("../../config")
	check.NoError(t, err)
	if config, err = filepath.Rel(dir, config); err != nil {
		t.Fatal(err)
	}
	overlay := fmt.Sprintf("resources: [%[1]s/default]\ncomponents: [%[1]s/components/guardrails, %[1]s/components/network-policies]\n", config)
	manifest, access := filepath.Join(dir, "install.yaml"), filepath.Join(dir, "kubeconfig")
	check.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600))
	if out, err := exec.CommandContext(t.Context(), filepath.Join(binaries, "kustomize"), "build", dir, "-o", manifest).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rest := s.Plane.Config
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{Server: rest.Host, CertificateAuthorityData: rest.CAData, CertificateAuthority: rest.CAFile}
	kubeconfig.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: rest.CertData, ClientKeyData: rest.KeyData, ClientCertificate: rest.CertFile, ClientKey: rest.KeyFile, Token: rest.BearerToken,
	}
	kubeconfig.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	kubeconfig.CurrentContext = "test"
	check.NoError(t, clientcmd.WriteToFile(*kubeconfig, access))
	command := exec.CommandContext(t.Context(), "../../hack/uninstall.sh", manifest)
	command.Env = append(os.Environ(), append(env, "KUBECTL="+filepath.Join(binaries, "kubectl")+" --kubeconfig "+access)...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// checkRestored compares a machine's files with those before the operator. The journal remains if the profile does not request a reboot
// to restore. It then contains only the kernel argument of the running kernel.
func checkRestored(t *testing.T, s *sandbox.Sandbox, name string, before map[string]string) {
	t.Helper()
	const journal = "var/lib/storage-client/journal/journal.json"
	after := fingerprints(t, s.Fleet.Machine(name).Root())
	delete(after, journal)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("files of %s (-before +after the operator):\n%s", name, diff)
	}
	left, err := s.Fleet.Machine(name).Read("/" + journal)
	if err != nil || !strings.Contains(left, "kernelArgument/ihash_entries") || strings.Contains(left, "sysctl/") {
		t.Errorf("the journal of %s must contain only the effective kernel argument: got error %v, journal\n%s", name, err, left)
	}
}

// fingerprints returns hashes of a machine's persistent files.
func fingerprints(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, top := range []string{"etc", "boot", "var/lib/storage-client"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			found[name] = fmt.Sprintf("%x", sha256.Sum256(content))
			return err
		})
		check.NoError(t, err)
	}
	return found
}

// awaitNoReferences waits until no object in the API server belongs to the operator. Objects that are deleted with their namespace or
// owner take a moment.
func awaitNoReferences(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	var left []string
	for end := time.Now().Add(patience.Of(time.Minute)); time.Now().Before(end); time.Sleep(time.Second) {
		if left = findReferences(t, s); len(left) == 0 {
			return
		}
	}
	t.Errorf("objects that still refer to the operator: %v", left)
}

// findReferences returns the name of every object that refers to the operator, whatever its owner. Field managers and events do not count.
func findReferences(t *testing.T, s *sandbox.Sandbox) []string {
	t.Helper()
	api, err := discovery.NewDiscoveryClientForConfig(s.Plane.Config)
	check.NoError(t, err)
	lists, err := api.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		t.Fatal(err)
	}
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		check.NoError(t, err)
		for _, kind := range list.APIResources {
			if kind.Kind == "Event" || !slices.Contains(kind.Verbs, "list") {
				continue
			}
			objects := &unstructured.UnstructuredList{}
			objects.SetGroupVersionKind(version.WithKind(kind.Kind + "List"))
			if err := s.Client.List(t.Context(), objects); err != nil {
				if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
					continue // a definition that was just deleted
				}
				t.Fatal(err)
			}
			for i := range objects.Items {
				object := &objects.Items[i]
				object.SetManagedFields(nil)
				text, err := json.Marshal(object)
				check.NoError(t, err)
				if strings.Contains(string(text), "storage-client") || strings.Contains(string(text), "storageclient") {
					found = append(found, kind.Kind+"/"+object.GetName())
				}
			}
		}
	}
	slices.Sort(found)
	return found
}
