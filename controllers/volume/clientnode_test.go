package volume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestCacheOfClientNodesKeepsWhatIsComparedWithVolumes(t *testing.T) {
	since := ptr.To(metav1.Now())
	clientNode := &v1alpha1.StorageClientNode{}
	clientNode.Status.Mounts = []v1alpha1.MountStatus{
		{MountPoint: "/data", Server: "filer", Options: []string{"rw"}},
		{MountPoint: "/var/lib/kubelet/x", Volume: "pv", Server: "filer", Options: []string{"nconnect=4"}, State: v1alpha1.MountStale, Connections: 4, SlotLimit: 64, ReadAheadKiB: 128, Since: since, Used: true},
	}
	if _, err := CacheTransformClientNode(clientNode); err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.MountStatus{{MountPoint: "/var/lib/kubelet/x", Volume: "pv", Server: "filer", Options: []string{"nconnect=4"}, State: v1alpha1.MountStale, Connections: 4, SlotLimit: 64, ReadAheadKiB: 128, Since: since, Used: true}}
	if diff := cmp.Diff(want, clientNode.Status.Mounts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
