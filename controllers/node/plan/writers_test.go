package plan

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/catalogue"
)

// writers are the packages that write the fields of a StorageClientNode's spec. Each field has one writer.
var writers = map[string]string{
	"Settings": "node", "Hash": "node", "BootHash": "node", "Release": "node", "Canary": "node", "Volumes": "nodevolumes", "RebootPermit": "rollout",
	"Trial": "trial", "Sample": "trial",
}

func TestEachFieldOfASpecHasOneWriter(t *testing.T) {
	kind := reflect.TypeFor[v1alpha1.StorageClientNodeSpec]()
	for i := range kind.NumField() {
		name := kind.Field(i).Name
		if writers[name] == "" {
			t.Errorf("no package writes field %s: add it to Write.Into, or name its writer here", name)
			continue
		}
		var empty, filled v1alpha1.StorageClientNodeSpec
		reflect.ValueOf(&filled).Elem().Field(i).Set(nonzero(kind.Field(i).Type))
		written := filled
		Write{}.Into(&written)
		if isWritten := !reflect.DeepEqual(written, filled); isWritten != (writers[name] == "node") {
			t.Errorf("%s: written %t, and its writer is %s", name, isWritten, writers[name])
		}
		// Canary alone is no reason for a write: it is written together with the settings.
		if differs := !sameSpec(filled, empty); differs != (writers[name] == "node" && name != "Canary") {
			t.Errorf("%s: compared %t, and its writer is %s", name, differs, writers[name])
		}
	}
}

func nonzero(kind reflect.Type) reflect.Value {
	switch kind.Kind() {
	case reflect.Pointer:
		return reflect.New(kind.Elem())
	case reflect.Slice:
		return reflect.MakeSlice(kind, 1, 1)
	case reflect.Bool:
		return reflect.ValueOf(true).Convert(kind)
	default:
		return reflect.ValueOf("x").Convert(kind)
	}
}

func TestWhatOthersWriteIsNoChangeOfSettings(t *testing.T) {
	profile := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{v1alpha1.Finalizer}}}
	profile.Spec.AllNodes = true
	profile.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.somaxconn": "4096"}}
	set := fleet.NewProfileSet([]v1alpha1.StorageClientProfile{profile}, catalogue.AllowList{})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	desired := set.Desired(node, nil)
	for name, change := range map[string]func(*v1alpha1.StorageClientNodeSpec){
		"nothing": func(*v1alpha1.StorageClientNodeSpec) {},
		"a sample request of a trial that observes": func(s *v1alpha1.StorageClientNodeSpec) { s.Sample = &v1alpha1.NodeSample{ID: "x", Seconds: 60} },
		"an order":               func(s *v1alpha1.StorageClientNodeSpec) { s.Trial = &v1alpha1.NodeTrial{ID: "x"} },
		"a permit":               func(s *v1alpha1.StorageClientNodeSpec) { s.RebootPermit = &v1alpha1.RebootPermit{ID: "x"} },
		"read-ahead of a volume": func(s *v1alpha1.StorageClientNodeSpec) { s.Volumes = []v1alpha1.NodeVolume{{Name: "v"}} },
	} {
		t.Run(name, func(t *testing.T) {
			clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n", Generation: 3}}
			clientNode.Spec = v1alpha1.StorageClientNodeSpec{Settings: desired.Settings, Hash: desired.Hash, BootHash: desired.BootHash, Canary: true}
			change(&clientNode.Spec)
			clientNode.Status.ObservedGeneration = 3
			step := For(Snapshot{Node: node, ClientNode: clientNode, AgentReady: true, Profiles: set, Desired: set.Desired(node, clientNode)})
			if _, stays := step.(Stay); !stays {
				t.Errorf("got step %s, want none", step)
			}
		})
	}
}
