package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

// mountingNodes returns two nodes. One of them gets no response from <filer>.
func mountingNodes() []client.Object {
	n1, n2 := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	n1.Status.Servers = []v1alpha1.ServerStatus{{
		Server: "<filer>", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerSilent, Reason: v1alpha1.ServerReasonUnreachable, Message: "Check the network.", Connections: 4,
	}}
	n1.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/a", Server: "<filer>", Protocol: "NFSv4.1", Volume: "pv1", Connections: 4, Options: []string{"nconnect=4"}}}
	n2.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/a", Server: "<filer>", Protocol: "NFSv4.1", Volume: "pv1", Connections: 1}}
	limits := eda()
	limits.Annotations = map[string]string{v1alpha1.ServerLimitsAnnotation: "connections=4"}
	return []client.Object{n1, n2, limits}
}

func TestServers(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, mountingNodes(), "servers", "-o", "wide")
	want := `SERVER    PROTOCOL   NODES   CONNECTIONS   REQUESTS   VOLUMES   NO-RESPONSE   VERSIONS   DIFFERENT-OPTIONS
<filer>   NFS        2       5 of 4        128        1         1 node        NFSv4.1    nconnect

<filer>: Silent, Unreachable: Check the network; nodes: n1

<filer>: The nodes can exceed the limits of the server: 5 connections of 4

<filer>: Mounts differ in nconnect: - on 1 mount, 4 on 1 mount
`
	if diff := cmp.Diff(want, r.out); r.err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", r.err, diff)
	}
}

func TestServersInOtherFormats(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, mountingNodes(), "servers", "-o", "json")
	var report view.ServerReport
	if err := json.Unmarshal([]byte(r.out), &report); r.err != nil || err != nil || len(report.Servers) != 1 || report.Servers[0].Nodes != 2 {
		t.Errorf("errors %v, %v: %s", r.err, err, r.out)
	}
	if r := execute(t, interceptor.Funcs{}, mountingNodes(), "servers", "-o", "xml"); r.err == nil {
		t.Error("accepts any format")
	}
	if r := execute(t, interceptor.Funcs{}, nil, "servers"); r.err != nil || r.out != "No managed node mounts a storage server.\n" {
		t.Errorf("error %v: %s", r.err, r.out)
	}
}

func TestServersReportStaleHandlesAndDuplicateClientIDs(t *testing.T) {
	objects := mountingNodes()
	n1, n2 := objects[0].(*v1alpha1.StorageClientNode), objects[1].(*v1alpha1.StorageClientNode)
	n1.Status.Servers[0].State, n1.Status.Servers[0].Reason = v1alpha1.ServerAnswering, v1alpha1.ServerReasonStaleHandles
	n2.Status.Servers = []v1alpha1.ServerStatus{{Server: "<filer>", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerAnswering, Connections: 1}}
	n1.Status.NFS4ClientName, n2.Status.NFS4ClientName = "web", "web"
	r := execute(t, interceptor.Funcs{}, objects, "servers")
	for _, want := range []string{
		"<filer>: All requests for known files fail on some mounts; check the export, then restart the pods that use them; nodes: n1\n",
		`<filer>: Nodes n1, n2 use the same NFSv4 client ID "web"; set node.nfs4UniqueID: FromNode` + "\n",
	} {
		if r.err != nil || !strings.Contains(r.out, want) {
			t.Errorf("error %v: no %q in\n%s", r.err, want, r.out)
		}
	}
}
