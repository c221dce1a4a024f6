package store

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestTheClientNodeCacheKeepsTheComparedFields(t *testing.T) {
	since := ptr.To(metav1.NewTime(time.Unix(1, 0)))
	clientNode := &v1alpha1.StorageClientNode{}
	sample := v1alpha1.NodeSampleStatus{ID: "asked", Mounts: []v1alpha1.MountSample{{Volume: "pv", Server: "filer"}}}
	clientNode.Status.Sample = sample.DeepCopy()
	full := v1alpha1.MountStatus{
		MountPoint: "/var/lib/kubelet/x", Volume: "pv", PodUIDs: []string{"u"}, Server: "filer", Protocol: "NFSv4.1", Options: []string{"nconnect=4"}, State: v1alpha1.MountStale,
		Message: "restart", Connections: 4, SlotLimit: 64, ReadAheadKiB: 128, ReadAheadState: v1alpha1.SettingFailed, Since: since, Used: true,
	}
	for value, i := reflect.ValueOf(full), 0; i < value.NumField(); i++ {
		if value.Field(i).IsZero() {
			t.Errorf("set %s of the mount, so that the cache keeps it", value.Type().Field(i).Name)
		}
	}
	clientNode.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/data", Server: "filer", Protocol: "NFSv4.1", Options: []string{"rw"}}, full}
	if _, err := NewClientNodeTransform()(clientNode); err != nil {
		t.Fatal(err)
	}
	full.MountPoint, full.PodUIDs = "", nil
	want := []v1alpha1.MountStatus{{Server: "filer", Protocol: "NFSv4.1"}, full}
	check.Equal(t, "mounts", want, clientNode.Status.Mounts)
	check.Equal(t, "the cache drops samples that observing trials need", &sample, clientNode.Status.Sample)
}

// largeNode returns a StorageClientNode with 128 mounts and 64 settings, as the watch delivers it.
func largeNode(t testing.TB, number int) *v1alpha1.StorageClientNode {
	t.Helper()
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", number)}}
	for i := range 64 {
		key := fmt.Sprintf("sysctl/net.example.key%d", i)
		clientNode.Spec.Settings = append(clientNode.Spec.Settings, v1alpha1.NodeSetting{Key: key, Value: "4096 1048576 16777216", Profile: "p", OnRemoval: v1alpha1.DeletionRestore})
		clientNode.Status.Settings = append(clientNode.Status.Settings, v1alpha1.SettingStatus{
			Key: key, Desired: "4096 1048576 16777216", Observed: "4096 1048576 16777216", Original: "4096 131072 6291456", TakesEffect: v1alpha1.EffectLive, State: v1alpha1.SettingInSync,
		})
	}
	for i := range 128 {
		uid := fmt.Sprintf("%08d-%04d-4000-8000-000000000000", number, i)
		clientNode.Status.Mounts = append(clientNode.Status.Mounts, v1alpha1.MountStatus{
			MountPoint: "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/pvc-" + uid + "/mount", Volume: fmt.Sprintf("pvc-%d", i), PodUIDs: []string{uid},
			Server: "filer.example.com", Protocol: "NFSv4.1", Options: []string{
				"rw", "relatime", "vers=4.1", "rsize=1048576", "wsize=1048576", "namlen=255", "hard", "proto=tcp", "nconnect=4", "timeo=600", "retrans=2", "sec=sys",
			}, Connections: 4, SlotLimit: 64, ReadAheadKiB: 1024, Used: true, State: v1alpha1.MountEffective,
		})
	}
	data, err := json.Marshal(clientNode)
	check.NoError(t, err)
	read := &v1alpha1.StorageClientNode{}
	check.NoError(t, json.Unmarshal(data, read))
	return read
}

func TestTheCacheSharesEqualStrings(t *testing.T) {
	a, b, keep := largeNode(t, 1), largeNode(t, 2), NewClientNodeTransform()
	for _, clientNode := range []*v1alpha1.StorageClientNode{a, b} {
		want := clientNode.DeepCopy()
		for i := range want.Status.Mounts {
			want.Status.Mounts[i].PodUIDs, want.Status.Mounts[i].MountPoint = nil, ""
		}
		want.Status.Conditions = nil
		if _, err := keep(clientNode); err != nil {
			t.Fatal(err)
		}
		check.Equal(t, "client node", want, clientNode)
	}
	for name, texts := range map[string][2]string{
		"a setting's key":      {a.Spec.Settings[63].Key, b.Spec.Settings[63].Key},
		"a setting's value":    {a.Status.Settings[0].Desired, b.Status.Settings[63].Observed},
		"a mount's volume":     {a.Status.Mounts[127].Volume, b.Status.Mounts[127].Volume},
		"a mount's option":     {a.Status.Mounts[0].Options[11], b.Status.Mounts[127].Options[11]},
		"a setting's original": {a.Status.Settings[0].Original, b.Status.Settings[63].Original},
	} {
		if unsafe.StringData(texts[0]) != unsafe.StringData(texts[1]) {
			t.Errorf("got %s stored twice", name)
		}
	}
	if &a.Status.Mounts[0].Options[0] != &b.Status.Mounts[127].Options[0] {
		t.Error("got equal lists of mount options stored twice")
	}
	if &a.Spec.Settings[0] != &b.Spec.Settings[0] || &a.Status.Settings[0] != &b.Status.Settings[0] {
		t.Error("got equal lists of settings stored twice")
	}
}

func TestVersionsOfANodeShareWhatHasNotChanged(t *testing.T) {
	first, again, other, keep := largeNode(t, 3), largeNode(t, 3), largeNode(t, 3), NewClientNodeTransform()
	other.Status.Mounts[5].State = v1alpha1.MountStale
	other.Spec.Volumes = []v1alpha1.NodeVolume{{Name: "pvc-1"}}
	for _, clientNode := range []*v1alpha1.StorageClientNode{first, again, other} {
		if _, err := keep(clientNode); err != nil {
			t.Fatal(err)
		}
	}
	if &first.Status.Mounts[0] != &again.Status.Mounts[0] {
		t.Error("got equal mounts stored twice")
	}
	if first.Status.Mounts[5].State == v1alpha1.MountStale || other.Status.Mounts[5].State != v1alpha1.MountStale || len(other.Spec.Volumes) != 1 {
		t.Errorf("got a lost change, or a change of an earlier version: %+v", other.Status.Mounts[5])
	}
}

func TestDriftIsNotShared(t *testing.T) {
	var stored []*v1alpha1.StorageClientNode
	keep := NewClientNodeTransform()
	for i := range int32(2) {
		clientNode := largeNode(t, int(4+i))
		clientNode.Status.Settings[0].Drift = &v1alpha1.Drift{Count: i}
		if _, err := keep(clientNode); err != nil {
			t.Fatal(err)
		}
		stored = append(stored, clientNode)
	}
	if stored[0].Status.Settings[0].Drift.Count != 0 || stored[1].Status.Settings[0].Drift.Count != 1 {
		t.Error("got the drift of one node reported for another")
	}
}

// Strings in use are stored once. Unused strings are removed eventually.
func TestSharedStringsAreRemoved(t *testing.T) {
	all := NewPool[string](maxTexts)
	share := func(text string) string { return all.Share(text, func() string { return text }) }
	first := share(strings.Clone("hard"))
	for i := range 10 * maxTexts {
		share(fmt.Sprintf("text %d", i))
		if i%1000 == 0 && unsafe.StringData(share(strings.Clone("hard"))) != unsafe.StringData(first) {
			t.Fatalf("got another copy after %d other strings", i)
		}
	}
	if stored := len(all.young) + len(all.old); stored > 2*maxTexts {
		t.Errorf("got %d strings stored", stored)
	}
}

// BenchmarkCachedNode reports the memory of a node with 128 mounts and 64 settings in the manager, as delivered and as cached.
func BenchmarkCachedNode(b *testing.B) {
	const nodes = 100
	for name, keep := range map[string]func(any) (any, error){
		"as it comes":   func(object any) (any, error) { return object, nil },
		"as it is kept": NewClientNodeTransform(),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				stored := make([]any, 0, nodes)
				before := liveHeap()
				for i := range nodes {
					object, err := keep(largeNode(b, i))
					check.NoError(b, err)
					stored = append(stored, object)
				}
				b.ReportMetric(float64(liveHeap()-before)/nodes/1024, "KiB/node")
				runtime.KeepAlive(stored)
			}
		})
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
