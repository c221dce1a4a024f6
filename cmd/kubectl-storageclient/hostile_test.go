package main

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/hostile"
)

// poison fills all strings of an object except those by which the API server finds and selects it.
func poison(o client.Object, suffix bool) {
	namespace, name, uid, labels, owners := o.GetNamespace(), o.GetName(), o.GetUID(), o.GetLabels(), o.GetOwnerReferences()
	annotations := maps.Clone(o.GetAnnotations())
	original := o.DeepCopyObject()
	hostile.Fill(reflect.ValueOf(o).Elem(), hostile.Text, suffix, 9)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(uid)
	o.SetLabels(labels)
	o.SetOwnerReferences(owners)
	o.SetFinalizers(original.(client.Object).GetFinalizers())
	o.SetGenerateName("")
	o.SetResourceVersion("")
	o.SetDeletionTimestamp(nil)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["example.com/note"], annotations["tuning.storageclient.dev/note"] = hostile.Text, hostile.Text
	o.SetAnnotations(annotations)
	switch o := o.(type) {
	case *v1alpha1.StorageClientProfile:
		o.Status.Plan.Hash, o.Status.ObservedGeneration = planOfEDA, o.Generation
	case *corev1.Pod:
		o.Spec.NodeName = original.(*corev1.Pod).Spec.NodeName
	case *corev1.PersistentVolume:
		// A volume has one source.
		spec := &original.(*corev1.PersistentVolume).Spec
		hostile.Fill(reflect.ValueOf(&spec.PersistentVolumeSource).Elem(), hostile.Text, suffix, 0)
		o.Spec.PersistentVolumeSource, o.Spec.ClaimRef, o.Spec.VolumeMode = spec.PersistentVolumeSource, spec.ClaimRef, nil
		o.Status.Phase, o.Spec.StorageClassName = corev1.VolumeBound, ""
	}
}

// operatorObjects returns a cluster with the operator's Pods, its recorded failures, and volumes of two protocols.
func operatorObjects() []client.Object {
	objects := append(tunedCluster(), eda())
	objects[0].(*corev1.Node).Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.77.0.1"}}
	objects[0].SetAnnotations(map[string]string{v1alpha1.NeverDisruptAnnotation: "true"})
	csi := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-csi"}}
	csi.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "smb.csi.k8s.io", VolumeHandle: "nas.example.com#share", VolumeAttributes: map[string]string{"source": "//nas.example.com/share", "protocol": "smb"},
		NodeStageSecretRef: &corev1.SecretReference{Namespace: "eda", Name: "smb-login"},
	}
	csi.Spec.MountOptions = []string{"vers=3.1.1", "username=joe", "password=hunter2"}
	manager := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: "manager-0"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "agent-n1"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	failures := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.FailuresConfigMap}, Data: map[string]string{"eda": "{}"}}
	return append(objects, csi, manager, agent, failures)
}

// hostileCluster returns a cluster with hostile texts in empty fields, or in all fields with a suffix. Without spec, the spec of profiles
// stays valid, so that commands continue after its validation.
func hostileCluster(suffix, spec bool) []client.Object {
	objects := append(operatorObjects(), tools(), rollingNode(v1alpha1.RolloutFailed, "x"))
	objects[len(objects)-1].SetName("n9")
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, Provisioner: "nfs.csi.k8s.io"}
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "old"}}
	objects = append(objects, class, trial)
	for _, o := range objects {
		poison(o, suffix)
		if p, ok := o.(*v1alpha1.StorageClientProfile); ok {
			p.Status.Nodes.Failed = 1
			if !spec {
				p.Spec = eda().Spec
			}
			p.Status.LostNodes[0].Since = &metav1.Time{Time: at()}
		}
	}
	return objects
}

var ownColours = regexp.MustCompile("\x1b\\[(0|1|31|32|33)m")

// everyCommand returns each command of the plugin, in each format of text. Further formats are further rows.
func everyCommand(dir string) [][]string {
	return [][]string{
		{"status"}, {"status", "eda", "--pods"}, {"status", "--nodes"}, {"plan", "eda"}, {"plan", "eda", "-o", "wide"}, {"plan", "-f", dir}, {"plan", "-f", dir, "-o", "wide"},
		{"plan", "-f", dir, "-o", "markdown"}, {"approve", "eda"}, {"pause", "eda"}, {"resume", "eda"}, {"retry", "eda"}, {"get", "eda"}, {"node", "n1"}, {"node", "n1", "-o", "wide"},
		{"node", "n9"}, {"volumes"}, {"volumes", "eda", "-o", "wide"}, {"diff", "eda"}, {"diff", "eda", "-o", "wide"}, {"servers"}, {"servers", "-o", "wide"},
		{"recommend", "tools", "--window", "1m"}, {"trial", "tools", "--profile", "eda"}, {"trial", "tools", "--profile", "eda", "-o", "wide"},
		{"version"}, {"options"}, {"explain", "x" + hostile.Text}, {"explain", "actimeo"}, {"completion", "bash"}, {"help"},
		{"status", "none" + hostile.Text}, {"plan", "none"}, {"node", "none"}, {"volumes", "--volume", "none"}, {"status", "-o", "x" + hostile.Text}, {"unknown" + hostile.Text}, {"status", "--unknown" + hostile.Text},
		{"plan", "-f", dir + "/none" + hostile.Text},
	}
}

// respond returns a manager that completes each trial with hostile texts.
func respond() interceptor.Funcs {
	status := standing(v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, hostile.Text, 6)
	status.Samples = []v1alpha1.TrialSample{nodeSample("n1", listSample("GETATTR", 16387)), {Node: "n2"}}
	status.Results = make([]v1alpha1.TrialResult, 2)
	status.Results[0].Decides = true
	hostile.Fill(reflect.ValueOf(&status).Elem(), hostile.Text, false, 9)
	return fakeManager(standing("", hostile.Text, hostile.Text, 0), status)
}

func TestNoCommandPrintsControlCharactersOfObjects(t *testing.T) {
	dir := write(t, map[string]string{"eda.yaml": edaFile, "other.yaml": "kind: Other" + `"\x1b[2J"` + "\nmetadata: {name: \"\\e[2J\\nFORGED\"}\n"})
	for name, round := range map[string]struct{ suffix, spec bool }{
		"in empty fields": {false, true}, "in all fields": {true, true}, "except for specs of profiles": {true, false},
	} {
		for _, args := range everyCommand(dir) {
			formats := [][]string{args}
			if slices.Contains([]string{"status", "plan", "get", "node", "volumes", "diff", "servers", "recommend", "trial"}, args[0]) && !slices.Contains(args, "-o") {
				for _, format := range []string{"json", "yaml", "name"} {
					formats = append(formats, append(slices.Clone(args), "-o", format))
				}
			}
			for _, args := range formats {
				t.Run(name+" "+strings.Join(args, " "), func(t *testing.T) {
					r := execute(t, respond(), hostileCluster(round.suffix, round.spec), args...)
					hostile.Check(t, r.out)
					coloured := executeIn(t, &environment{colours: true}, respond(), hostileCluster(round.suffix, round.spec), args...)
					hostile.Check(t, ownColours.ReplaceAllString(coloured.out, ""))
					if args[len(args)-1] != "name" && showsTexts[args[0]] && !slices.Contains(args, "none") && !(round.spec && args[0] == "volumes") && !strings.Contains(r.out, `\u001b`) {
						t.Errorf("got no text of an object: %v\n%s", r.err, r.out)
					}
				})
			}
		}
	}
}

// showsTexts are the commands whose output must contain a hostile text: the test would prove nothing if they failed early.
var showsTexts = map[string]bool{"retry": true, "node": true, "servers": true, "trial": true, "recommend": true, "volumes": true, "get": true}

// refuseAll returns errors of an API server, a webhook, or a proxy for all requests of a kind.
func refuseAll(err error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		},
		List:   func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err },
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return err },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return err
		},
	}
}

func TestNoCommandPrintsControlCharactersOfErrors(t *testing.T) {
	dir := write(t, map[string]string{"eda.yaml": edaFile})
	for name, err := range map[string]error{
		"the API server": apierrors.NewInternalError(errors.New(hostile.Text + "\xff")),
		"a webhook":      apierrors.NewForbidden(corev1.Resource("things"+hostile.Text), hostile.Text, errors.New(hostile.Text)),
		"a connection":   errors.New(hostile.Text),
	} {
		full, writes := refuseAll(err), refuseAll(err)
		writes.Get, writes.List = nil, nil
		for _, funcs := range []interceptor.Funcs{full, writes} {
			for _, args := range everyCommand(dir) {
				t.Run(name+" "+strings.Join(args, " "), func(t *testing.T) {
					hostile.Check(t, execute(t, funcs, append(operatorObjects(), tools()), args...).out)
				})
			}
		}
	}
}

func TestAWatchPrintsNoControlCharacters(t *testing.T) {
	tree := view.Tree{Name: hostile.Text, Summary: hostile.Text, LimitedBy: hostile.Text, Notes: []string{hostile.Text}, Matched: 1, Lost: []v1alpha1.LostNode{{Name: hostile.Text, Reason: hostile.Text, Message: hostile.Text}}}
	tree.Nodes = make([]overview.Progress, 3)
	for i := range tree.Nodes {
		hostile.Fill(reflect.ValueOf(&tree.Nodes[i]).Elem(), hostile.Text, false, 5)
	}
	screen := func() (view.Screen, bool) { return view.Screen{Width: 80, Height: 24, Colour: true}, true }
	var out strings.Builder
	d := &screenDisplay{out: &out, size: screen}
	check.NoError(t, errors.Join(d.show(tree, at()), d.close(hostile.Text)))
	text := ownColours.ReplaceAllString(out.String(), "")
	for _, own := range []string{enterScreen, leaveScreen, home, clearLine, clearRest, "\r\n"} {
		text = strings.ReplaceAll(text, own, "\n")
	}
	hostile.Check(t, text)
	out.Reset()
	lines := &lineDisplay{out: &out}
	check.NoError(t, errors.Join(lines.show(tree, at()), lines.close(hostile.Text)))
	hostile.Check(t, out.String())
}
