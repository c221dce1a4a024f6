package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestOneEventForEachChange(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))
	server := func(state v1alpha1.ServerState) *v1alpha1.ServerStatus {
		s := v1alpha1.ServerStatus{Server: "filer1", Protocol: v1alpha1.ServerNFS, State: state, Since: &since}
		if state == v1alpha1.ServerSilent {
			s.Message, s.Volumes, s.PodUIDs = "Check the server", []string{"pv1"}, []string{"u1", "u2"}
		}
		return &s
	}
	forgetting := server(v1alpha1.ServerAnswering)
	forgetting.Forgetting = true
	stale := server(v1alpha1.ServerAnswering)
	stale.Reason, stale.Message, stale.Volumes = v1alpha1.ServerReasonStaleHandles, "Restart", []string{"pv1"}
	smb := server(v1alpha1.ServerAnswering)
	smb.Protocol = v1alpha1.ServerSMB
	for name, test := range map[string]struct {
		before, after *v1alpha1.ServerStatus
		want          []string
	}{
		"nothing happened": {before: server(v1alpha1.ServerAnswering), after: server(v1alpha1.ServerIdle)},
		"it falls silent": {
			before: server(v1alpha1.ServerAnswering), after: server(v1alpha1.ServerSilent),
			want: []string{"Warning StorageUnreachable NFS server filer1 does not respond since 2026-11-23T08:00:00Z: Check the server (1 volume pv1; 2 pods)"},
		},
		"it is silent when it is seen first": {
			after: server(v1alpha1.ServerStuck), want: []string{"Warning StorageUnreachable NFS server filer1 has overdue requests since 2026-11-23T08:00:00Z"},
		},
		"it stays so": {before: server(v1alpha1.ServerSilent), after: server(v1alpha1.ServerStuck)},
		"it is back": {
			before: server(v1alpha1.ServerSilent), after: server(v1alpha1.ServerAnswering),
			want: []string{"Normal StorageReachable NFS server filer1 has no overdue requests for the first time since 2026-11-23T08:00:00Z"},
		},
		"its mounts were removed":          {before: server(v1alpha1.ServerSilent)},
		"the other protocol of one server": {before: smb, after: server(v1alpha1.ServerAnswering)},
		"its handles become stale": {
			before: server(v1alpha1.ServerAnswering), after: stale,
			want: []string{"Warning StorageHandlesStale NFS server filer1 returns stale file handles since 2026-11-23T08:00:00Z: Restart (1 volume pv1)"},
		},
		"they stay so":                          {before: stale, after: stale},
		"the server keeps discarding it":        {before: forgetting, after: forgetting},
		"the server starts to discard it again": {before: server(v1alpha1.ServerAnswering), after: forgetting, want: []string{"Warning StorageClientForgotten NFS server filer1 keeps discarding this node's client; another client uses the same client ID, and both lose locks and open files; compare the host names and machine IDs of the server's clients"}},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			clientNode := func(s *v1alpha1.ServerStatus) *v1alpha1.StorageClientNode {
				n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
				if s != nil {
					n.Status.Servers = []v1alpha1.ServerStatus{*s}
				}
				return n
			}
			(&Reporter{Recorder: recorder}).ReportChanges(clientNode(test.before), clientNode(test.after))
			var got []string
			for len(recorder.Events) > 0 {
				got = append(got, strings.TrimSpace(<-recorder.Events))
			}
			check.Equal(t, "events", test.want, got)
		})
	}
}

func TestDuplicateClientIDsAreReported(t *testing.T) {
	clientNode := func(node, name string) *v1alpha1.StorageClientNode {
		n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		n.Status.NFS4ClientName = name
		return n
	}
	scheme := runtime.NewScheme()
	check.NoError(t, v1alpha1.AddToScheme(scheme))
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(clientNode("n1", "x"), clientNode("n2", "x"), clientNode("n3", "id/x"), clientNode("n4", "")).Build()
	for name, test := range map[string]struct {
		before, after *v1alpha1.StorageClientNode
		want          int
	}{
		"the ID becomes a duplicate": {clientNode("n1", ""), clientNode("n1", "x"), 1},
		"it stays a duplicate":       {clientNode("n1", "x"), clientNode("n1", "x"), 0},
		"it has a unique ID":         {clientNode("n3", "x"), clientNode("n3", "id/x"), 0},
		"it has no client ID":        {clientNode("n4", "x"), clientNode("n4", ""), 0},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			(&Reporter{Recorder: recorder, Reader: reader}).ReportChanges(test.before, test.after)
			if len(recorder.Events) != test.want {
				t.Fatalf("got %d events, want %d", len(recorder.Events), test.want)
			}
			if test.want > 0 {
				const want = `Warning StorageClientNamesake The node shares the NFSv4 client ID "x" with node n2; on a server that both mount, `
				if got := <-recorder.Events; !strings.HasPrefix(got, want) {
					t.Errorf("%s", got)
				}
			}
		})
	}
}

// A fleet whose nodes all report their client name at once, after an upgrade: the StorageClientNodes are listed once, not for each name.
func TestNamesOfAFleetAreReadOnce(t *testing.T) {
	for name, nameOf := range map[string]func(int) string{
		"unique names":              func(i int) string { return fmt.Sprint("Linux NFSv4.1 node-", i) },
		"one name for all":          func(int) string { return "Linux NFSv4.1 localhost" },
		"pairs with the same name":  func(i int) string { return fmt.Sprint("Linux NFSv4.1 pair-", i/2) },
		"names that were different": func(i int) string { return fmt.Sprint("Linux NFSv4.1 node-", i%7) },
	} {
		t.Run(name, func(t *testing.T) {
			const nodes = 300
			reader := &countingReader{}
			recorder := events.NewFakeRecorder(nodes)
			r := &Reporter{Recorder: recorder, Reader: reader}
			warned := 0
			seen := map[string]int{}
			for i := range nodes {
				before := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
				if name == "names that were different" {
					before.Status.NFS4ClientName = fmt.Sprint("Linux NFSv4.1 old-", i)
				}
				after := before.DeepCopy()
				after.Status.NFS4ClientName = nameOf(i)
				r.ReportChanges(before, after)
				if seen[nameOf(i)] > 0 {
					warned++
				}
				seen[nameOf(i)]++
			}
			check.Equal(t, "lists", 1, reader.lists)
			if len(recorder.Events) != warned {
				t.Errorf("got %d events, want %d", len(recorder.Events), warned)
			}
		})
	}
}

func TestADeletedOrRenamedNodeIsNoDuplicate(t *testing.T) {
	named := func(node, name string) *v1alpha1.StorageClientNode {
		n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		n.Status.NFS4ClientName = name
		return n
	}
	recorder := events.NewFakeRecorder(10)
	r := &Reporter{Recorder: recorder, Reader: &countingReader{}}
	r.ReportChanges(named("n1", ""), named("n1", "x"))
	r.ReportChanges(named("n2", ""), named("n2", "y"))
	r.ReportDeletion(named("n1", "x"))
	r.ReportChanges(named("n2", "y"), named("n2", "z"))
	r.ReportChanges(named("n3", ""), named("n3", "x"))
	r.ReportChanges(named("n3", "x"), named("n3", "y"))
	if len(recorder.Events) > 0 {
		t.Errorf("got event %s, want none", <-recorder.Events)
	}
	if r.ReportChanges(named("n4", ""), named("n4", "z")); len(recorder.Events) != 1 {
		t.Errorf("got %d events for a duplicate, want 1", len(recorder.Events))
	}
}

// Nodes without a client name share none. Names without a node are removed, because each boot may bring another name.
func TestOnlyCurrentNamesAreKept(t *testing.T) {
	named := func(node, name string) *v1alpha1.StorageClientNode {
		n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		n.Status.NFS4ClientName = name
		return n
	}
	recorder, reader := events.NewFakeRecorder(10), &countingReader{items: []v1alpha1.StorageClientNode{*named("n9", "")}}
	r := &Reporter{Recorder: recorder, Reader: reader}
	r.ReportDeletion(named("n1", "x"))
	r.ReportChanges(named("n2", "x"), named("n2", ""))
	if reader.lists > 0 {
		t.Errorf("got %d lists before the first name", reader.lists)
	}
	for i := range 5 {
		for _, node := range []string{"n1", "n2"} {
			r.ReportChanges(named(node, ""), named(node, fmt.Sprint(node, i)))
			r.ReportChanges(named(node, fmt.Sprint(node, i)), named(node, ""))
		}
	}
	if len(recorder.Events) > 0 || len(r.nodes) > 0 {
		t.Errorf("got %d events and the names %v, want none", len(recorder.Events), r.nodes)
	}
}

// The other nodes keep a name that one node no longer has.
func TestANameStaysWithItsOtherNodes(t *testing.T) {
	named := func(node, name string) *v1alpha1.StorageClientNode {
		n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		n.Status.NFS4ClientName = name
		return n
	}
	recorder := events.NewFakeRecorder(10)
	r := &Reporter{Recorder: recorder, Reader: &countingReader{items: []v1alpha1.StorageClientNode{*named("n1", "x"), *named("n2", "x"), *named("n3", "x")}}}
	r.ReportChanges(named("n1", "x"), named("n1", "y"))
	r.ReportDeletion(named("n3", "x"))
	if r.ReportChanges(named("n4", ""), named("n4", "x")); len(recorder.Events) != 1 || !strings.Contains(<-recorder.Events, "with node n2;") {
		t.Error("n4 does not share its name with n2 alone")
	}
}

// The names of a read are in the order of the cache. A failed read is repeated with the next name.
func TestNamesAreReadInAnyOrder(t *testing.T) {
	named := func(node, name string) *v1alpha1.StorageClientNode {
		n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		n.Status.NFS4ClientName = name
		return n
	}
	recorder := events.NewFakeRecorder(10)
	reader := &countingReader{items: []v1alpha1.StorageClientNode{*named("n3", "x"), *named("n1", "x"), *named("n2", "x")}, failures: 1}
	r := &Reporter{Recorder: recorder, Reader: reader}
	if r.ReportChanges(named("n4", ""), named("n4", "x")); len(recorder.Events) > 0 {
		t.Errorf("after a failed read: got event %s", <-recorder.Events)
	}
	r.ReportChanges(named("n4", ""), named("n4", "y"))
	for _, node := range []string{"n1", "n2", "n3"} {
		r.ReportDeletion(named(node, "x"))
	}
	if r.ReportChanges(named("n5", ""), named("n5", "x")); reader.lists != 2 || len(recorder.Events) > 0 {
		t.Errorf("got %d lists, %d events; want 2, 0", reader.lists, len(recorder.Events))
	}
}

// countingReader returns an error for the first failures lists, then its items.
type countingReader struct {
	client.Reader
	lists, failures int
	items           []v1alpha1.StorageClientNode
}

func (c *countingReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if c.lists++; c.lists <= c.failures {
		return errors.New("no list")
	}
	list.(*v1alpha1.StorageClientNodeList).Items = c.items
	return nil
}
