package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

func silentServer(since time.Time, uids ...string) v1alpha1.ServerStatus {
	return v1alpha1.ServerStatus{
		Server: "filer1", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerSilent, Since: &metav1.Time{Time: since}, Volumes: []string{"pv1"}, PodUIDs: uids,
	}
}

func TestNoDrainStartsIfStorageDoesNotRespond(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Node)
		reason string
	}{
		"a server is silent":            {func(*Node) {}, v1alpha1.RolloutReasonStorageUnreachable},
		"requests are stuck":            {func(n *Node) { n.ClientNode.Status.Servers[0].State = v1alpha1.ServerStuck }, v1alpha1.RolloutReasonStorageUnreachable},
		"it is idle":                    {func(n *Node) { n.ClientNode.Status.Servers[0].State = v1alpha1.ServerIdle }, v1alpha1.RolloutReasonClaimed},
		"a report from before the boot": {func(n *Node) { n.BootID = "another" }, v1alpha1.RolloutReasonAgentSilent},
		"while the Node is paused":      {func(n *Node) { n.Paused = true }, v1alpha1.RolloutReasonNodePaused},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.node("a").ClientNode.Status.Servers = []v1alpha1.ServerStatus{silentServer(noon.Add(-time.Minute))}
			c.change(f.node("a"))
			note := For(f.Snapshot).Notes["a"]
			if note.Reason != c.reason {
				t.Errorf("got %s (%s), want %s", note.Reason, note.Message, c.reason)
			}
			if c.reason == v1alpha1.RolloutReasonStorageUnreachable && !strings.Contains(note.Message, "because the drain would hang: NFS server filer1") {
				t.Errorf("got message %q, want the reason in it", note.Message)
			}
		})
	}
}

func TestADrainNamesTheServerAndThePodsThatWaitForIt(t *testing.T) {
	for name, c := range map[string]struct {
		since   time.Duration
		drain   DrainProgress
		want    []string
		message string
	}{
		"pods remain": {
			time.Minute, DrainProgress{Reason: v1alpha1.RolloutReasonDraining, Message: "Waiting for pods eda/db, eda/web to terminate", Names: map[string]string{"u1": "eda/db", "u2": "eda/web"}},
			[]string{"a: Draining StorageUnreachable"}, "(1 volume pv1; 2 pods); waiting for it: Pod eda/db. Waiting for pods eda/db, eda/web to terminate",
		},
		"only a mount of the host remains": {time.Minute, DrainProgress{Gone: true}, []string{"a: Draining StorageUnreachable"}, "The node's shutdown would hang"},
		"its time is over": {
			20 * time.Minute, DrainProgress{Reason: v1alpha1.RolloutReasonDraining, Message: "Waiting", Names: map[string]string{"u1": "eda/db"}},
			[]string{"a: Waiting StorageUnreachable"}, "The drain did not finish within 15m0s: NFS server filer1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.cordoned("a", c.since)
			f.node("a").ClientNode.Status.Servers = []v1alpha1.ServerStatus{silentServer(noon.Add(-time.Minute), "u1", "u9")}
			f.node("a").Drain = &c.drain
			got := For(f.Snapshot)
			all := lines(got, "a")
			if all[len(all)-1] != c.want[0] || !strings.Contains(got.Notes["a"].Message, c.message) {
				t.Errorf("got %v (%s), want %s, %q", all, got.Notes["a"].Message, c.want[0], c.message)
			}
			for _, line := range all {
				if strings.Contains(line, "permit") {
					t.Errorf("got %q, want no permit", line)
				}
			}
		})
	}
}

func TestACanaryWhoseStorageWentBeforeTheEndOfItsSoakIsNoEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		lost   time.Duration
		reason string
	}{
		"while it soaked": {19*time.Minute + 30*time.Second, v1alpha1.RolloutReasonWaitingForCanary},
		"while it soaked, and the node's clock is ahead": {10 * time.Minute, v1alpha1.RolloutReasonWaitingForCanary},
		"long after": {8 * time.Minute, v1alpha1.RolloutReasonClaimed},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b")
			f.Profiles[0].Rollout.Canary.Nodes, f.Profiles[0].Rollout.Canary.SoakSeconds = ptr.To[int32](1), ptr.To[int32](60)
			f.finish("a", 20*time.Minute)
			f.node("a").ClientNode.Status.Servers = []v1alpha1.ServerStatus{silentServer(noon.Add(-c.lost))}
			if note := For(f.Snapshot).Notes["b"]; note.Reason != c.reason {
				t.Errorf("got %s (%s), want %s", note.Reason, note.Message, c.reason)
			}
		})
	}
}
