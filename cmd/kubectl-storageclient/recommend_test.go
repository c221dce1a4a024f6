package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const toolsUID = "0123"

// tools is a claim that is bound to pv1, which cluster has mounted on n1.
func tools(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "tools", UID: toolsUID, Labels: map[string]string{"role": "tools"}}}
	c.Spec.VolumeName, c.Spec.StorageClassName, c.Status.Phase = "pv1", ptr.To("nfs"), corev1.ClaimBound
	for _, f := range change {
		f(c)
	}
	return c
}

// mounted is cluster with the claim.
func mounted(claim *corev1.PersistentVolumeClaim, more ...client.Object) []client.Object {
	objects := cluster()
	objects[0].(*corev1.Node).Labels[corev1.LabelHostname] = "host-1"
	objects[1].(*v1alpha1.StorageClientNode).Status.Mounts[0].Protocol = "NFSv4.1"
	objects[2].(*corev1.PersistentVolume).Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "tools", UID: toolsUID}
	return append(append(objects, claim), more...)
}

// listing is a minute of a directory that is listed again and again.
func listing(operation string, count int64) v1alpha1.MountSample {
	return v1alpha1.MountSample{
		MountPoint: "/mnt", Volume: "pv1", Server: "filer", Export: "/", Protocol: "NFSv4.1", Options: []string{"rw", "acregmin=3"}, MinRoundTripMicros: 1400,
		Operations: []v1alpha1.OperationSample{{Name: operation, Count: count, BytesSent: 200 * count, BytesReceived: 200 * count, RoundTripMillis: count}},
	}
}

func finished(mounts ...v1alpha1.MountSample) v1alpha1.NodeSampleStatus {
	return v1alpha1.NodeSampleStatus{Phase: v1alpha1.SampleFinished, Milliseconds: 60000, Mounts: mounts}
}

// answering plays manager and agents: a node's answers, one a look.
func answering(t *testing.T, byNode map[string][]v1alpha1.NodeSampleStatus) interceptor.Funcs {
	t.Helper()
	looks := map[string]int{}
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, key, o, opts...)
		clientNode, ok := o.(*v1alpha1.StorageClientNode)
		if !ok || err != nil {
			return err
		}
		var claim corev1.PersistentVolumeClaim
		if err := c.Get(ctx, client.ObjectKey{Namespace: "eda", Name: "tools"}, &claim); err != nil {
			return err
		}
		request, err := v1alpha1.DecodeSampleRequest(claim.Annotations[v1alpha1.SampleAnnotation])
		if err != nil {
			t.Errorf("the nodes are followed without a request: %v", err)
			return err
		}
		answer := byNode[key.Name][min(looks[key.Name], len(byNode[key.Name])-1)]
		looks[key.Name]++
		answer.ID = request.SampleID(toolsUID)
		clientNode.Spec.Sample, clientNode.Status.Sample = &v1alpha1.NodeSample{ID: answer.ID}, &answer
		return nil
	}}
}

func answers(t *testing.T, statuses ...v1alpha1.NodeSampleStatus) interceptor.Funcs {
	t.Helper()
	return answering(t, map[string][]v1alpha1.NodeSampleStatus{"n1": statuses})
}

// asksNothing says that no request is left behind.
func asksNothing(t *testing.T, r result) {
	t.Helper()
	var claim corev1.PersistentVolumeClaim
	if err := r.client.Get(context.Background(), client.ObjectKey{Namespace: "eda", Name: "tools"}, &claim); err != nil {
		t.Fatal(err)
	}
	if value, left := claim.Annotations[v1alpha1.SampleAnnotation]; left {
		t.Errorf("the request is left behind: %s", value)
	}
}

// appliable takes the profiles out of what is printed, and holds them to what the manager takes.
func appliable(t *testing.T, out string) []v1alpha1.StorageClientProfile {
	t.Helper()
	var profiles []v1alpha1.StorageClientProfile
	for _, document := range strings.Split(out, "---\n")[1:] {
		var p v1alpha1.StorageClientProfile
		if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		for _, problem := range nodesettings.Validate(&p, catalogue.AllowList{}) {
			if !problem.Warning {
				t.Errorf("%s: %s", p.Name, problem)
			}
		}
		profiles = append(profiles, p)
	}
	return profiles
}

func TestRecommendEndsWithTheChangedProfile(t *testing.T) {
	running := v1alpha1.NodeSampleStatus{Phase: v1alpha1.SampleRunning}
	r := execute(t, answers(t, running, running, finished(listing("GETATTR", 16387))), mounted(tools(), eda()), "recommend", "tools")
	if r.err != nil {
		t.Fatal(r.err)
	}
	want := `Asked n1 for 1m0s of eda/tools, volume pv1.
n1 measures, until about 00:01:00
n1 has answered
eda/tools, volume pv1, 60 s on 1 node:

NODE   MOUNT     PROTOCOL   SECONDS   VERDICT
n1     filer:/   NFSv4.1    60        273 operations a second, small ones take 1.0 ms. A setting of the client helps.

AttributeRevalidation (Client): The client asks for attributes that have not changed.
  n1: 16387 of 16387 operations asked for attributes, and 0 changes were found, expected: up to 16387 fewer requests a minute
  against: what other clients change is seen up to 30 s later
  source:  measured on Linux 6.1 with knfsd: GETATTR an entry of a listing 1.0 without, 0.001 with actimeo=30

A setting of the client helps: the profile below declares it.

# Save this, see what it changes with: kubectl storageclient plan -f FILE, and apply it with: kubectl apply -f FILE
# profile eda, rule nfs: mountOptions [actimeo=30]
# profile eda, rule nfs: onConflict stays KeepVolume, so a volume that says otherwise keeps its own value
# profile eda, rule nfs: all volumes that it selects get the same
---
apiVersion: tuning.storageclient.dev/v1alpha1
kind: StorageClientProfile
metadata:
  name: eda
spec:
  node:
    kernelArguments:
    - ihash_entries=16777216
  nodeSelector:
    matchLabels:
      pool: eda
  volumes:
  - mountOptions:
    - actimeo=30
    - nocto
    name: nfs
    selector:
      protocols:
      - NFS
`
	if diff := cmp.Diff(want, r.out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	appliable(t, r.out)
	asksNothing(t, r)
}

func TestRecommendEndsWithANewProfileWhereNoneSelectsTheVolume(t *testing.T) {
	other := eda()
	other.Spec.Volumes, other.Spec.Priority = nil, 7
	second := tools(func(c *corev1.PersistentVolumeClaim) { c.Name, c.UID, c.Spec.VolumeName = "more", "4567", "pv2" })
	pv2 := cluster()[2].(*corev1.PersistentVolume)
	pv2.Name = "pv2"
	r := execute(t, answers(t, finished(listing("GETATTR", 16387))), mounted(tools(), other, second, pv2), "recommend", "tools", "-o", "yaml")
	if r.err != nil {
		t.Fatal(r.err)
	}
	var got struct {
		Summary  string
		Notes    []string
		Mounts   []struct{ Node string }
		Proposal struct {
			Profiles []v1alpha1.StorageClientProfile
		}
	}
	_, report, _ := strings.Cut(r.out, "has answered\n")
	if err := yaml.Unmarshal([]byte(report), &got); err != nil {
		t.Fatalf("%v:\n%s", err, report)
	}
	want := v1alpha1.StorageClientProfileSpec{Priority: 8, Volumes: []v1alpha1.VolumeRule{{
		Name: "recommended", MountOptions: []v1alpha1.MountOption{"actimeo=30"}, OnConflict: v1alpha1.ConflictUseProfile,
		Selector: v1alpha1.VolumeSelector{ClaimNamespaces: []string{"eda"}, ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "tools"}}},
	}}}
	want.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: []string{"host-1"}}}
	if len(got.Proposal.Profiles) != 1 || len(got.Mounts) != 1 || got.Mounts[0].Node != "n1" {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff(want, got.Proposal.Profiles[0].Spec); diff != "" || got.Proposal.Profiles[0].Name != "recommended-eda-tools" {
		t.Errorf("%s (-want +got):\n%s", got.Proposal.Profiles[0].Name, diff)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "selects more too") {
		t.Errorf("notes are %q", got.Notes)
	}
	r = execute(t, answers(t, finished(listing("GETATTR", 16387))), mounted(tools(), other), "recommend", "tools")
	if profiles := appliable(t, r.out); len(profiles) != 1 {
		t.Errorf("%s", r.out)
	}
	if r := execute(t, answers(t, finished(listing("GETATTR", 16387))), mounted(tools(), other), "recommend", "tools", "-o", "name"); !strings.HasSuffix(r.out, "\nstorageclientprofile.tuning.storageclient.dev/recommended-eda-tools\n") {
		t.Errorf("names: %s", r.out)
	}
}

// Who may read nothing but the claim and the nodes gets a proposal, and is told what it does not know.
func TestRecommendWithTheLeastRights(t *testing.T) {
	funcs := answers(t, finished(listing("GETATTR", 16387)))
	get := funcs.Get
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		switch o.(type) {
		case *corev1.PersistentVolume, *corev1.Node:
			return forbidden("persistentvolumes")
		}
		return get(ctx, c, key, o, opts...)
	}
	r := execute(t, funcs, mounted(tools(), eda()), "recommend", "tools")
	if r.err != nil {
		t.Fatal(r.err)
	}
	profiles := appliable(t, r.out)
	if len(profiles) != 1 || profiles[0].Spec.NodeSelector.MatchExpressions[0].Values[0] != "n1" || !strings.Contains(r.out, "whether a profile selects it already is not known") {
		t.Errorf("%s", r.out)
	}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "x", errors.New("no"))
}

func TestWhatRecommendSaysWithoutAProfile(t *testing.T) {
	smb := v1alpha1.MountSample{MountPoint: "/mnt", Volume: "pv1", Server: "filer", Export: "/", Protocol: "SMB3.1.1", Requests: 9000}
	slow := listing("READ", 600)
	slow.Operations[0].RoundTripMillis, slow.Bytes.DirectRead, slow.Bytes.WireRead = 600*105, 1<<20, 1<<20
	opens := listing("OPEN", 16387)
	few := listing("READ", 600)
	few.Bytes.DirectRead, few.Bytes.WireRead = 1<<20, 1<<20
	for name, test := range map[string]struct {
		mounts []v1alpha1.MountSample
		want   string
	}{
		"healthy":                   {[]v1alpha1.MountSample{few}, "The mounts are healthy: nothing stands out"},
		"a busy server":             {[]v1alpha1.MountSample{slow}, "No setting of the client will help"},
		"idle":                      {[]v1alpha1.MountSample{listing("GETATTR", 9)}, "Too little was done to say anything"},
		"not NFS":                   {[]v1alpha1.MountSample{smb}, "are known of NFS alone"},
		"what may not be safe":      {[]v1alpha1.MountSample{opens}, "only somebody who knows the programs can tell"},
		"that is listed as well":    {[]v1alpha1.MountSample{opens}, "to be declared by hand if it is safe: [vers=3] (OpenAndClose)"},
		"one is idle, and one well": {[]v1alpha1.MountSample{listing("GETATTR", 9), few}, "The mounts are healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, answers(t, finished(test.mounts...)), mounted(tools(), eda()), "recommend", "tools")
			if r.err != nil || !strings.Contains(r.out, test.want) || strings.Contains(r.out, "---") {
				t.Errorf("%v, want %q:\n%s", r.err, test.want, r.out)
			}
			asksNothing(t, r)
		})
	}
}

func TestNodesThatGiveNoSampleAreNamed(t *testing.T) {
	n2 := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	n2.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/mnt", Volume: "pv1"}}
	failed := v1alpha1.NodeSampleStatus{Phase: v1alpha1.SampleFailed, Message: "the agent was started anew within the window: ask again"}
	r := execute(t, answering(t, map[string][]v1alpha1.NodeSampleStatus{"n1": {finished(listing("GETATTR", 16387))}, "n2": {failed}}), mounted(tools(), eda(), n2), "recommend", "tools")
	if r.err != nil || !strings.Contains(r.out, "No sample: the agent was started anew") || !strings.Contains(r.out, "60 s on 1 node:") {
		t.Errorf("%v:\n%s", r.err, r.out)
	}
	r = execute(t, answering(t, map[string][]v1alpha1.NodeSampleStatus{"n1": {failed}, "n2": {failed}}), mounted(tools(), eda(), n2), "recommend", "tools")
	if r.err == nil || !strings.Contains(r.err.Error(), "no node has told what its mounts do:\nn1: the agent was started anew") {
		t.Errorf("%v:\n%s", r.err, r.out)
	}
	asksNothing(t, r)
}

func TestWhatRecommendCannotDo(t *testing.T) {
	refuse := func(verb string) interceptor.Funcs {
		f := interceptor.Funcs{}
		switch verb {
		case "get":
			f.Get = func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return forbidden("persistentvolumeclaims")
			}
		case "list":
			f.List = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return forbidden("storageclientnodes")
			}
		case "patch":
			f.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return forbidden("persistentvolumeclaims")
			}
		}
		return f
	}
	other := v1alpha1.SampleRequest{ID: "a", Seconds: 60, Nodes: []string{"n1"}, Until: metav1.NewTime(at().Add(time.Minute))}
	for name, test := range map[string]struct {
		funcs   interceptor.Funcs
		objects []client.Object
		args    []string
		want    string
	}{
		"a claim that is not there": {interceptor.Funcs{}, nil, nil, "kubectl get pvc -n eda"},
		"a claim that is not bound": {interceptor.Funcs{}, mounted(tools(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending })), nil, "eda/tools is not bound to a volume (phase Pending)"},
		"a volume that is nowhere":  {interceptor.Funcs{}, mounted(tools(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv9" })), nil, "mounted on none of the 1 node"},
		"no right to read claims":   {refuse("get"), mounted(tools()), nil, `a Role in eda: {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get, patch]}`},
		"no right to read nodes":    {refuse("list"), mounted(tools()), nil, `{apiGroups: ["tuning.storageclient.dev"], resources: [storageclientnodes], verbs: [get, list]}`},
		"no right to ask":           {refuse("patch"), mounted(tools()), nil, `a Role in eda: {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get, patch]}`},
		"somebody else measures": {interceptor.Funcs{}, mounted(tools(func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1alpha1.SampleAnnotation: other.Encode()}
		})), nil, "somebody else measures eda/tools until 2026-09-01T00:01:00Z"},
		"a window that is too short": {interceptor.Funcs{}, nil, []string{"--window=9s"}, "from 10s to 1h"},
		"a window that is too long":  {interceptor.Funcs{}, nil, []string{"--window=61m"}, "from 10s to 1h"},
		"a part of a second":         {interceptor.Funcs{}, nil, []string{"--window=10500ms"}, "from 10s to 1h"},
		"a format that there is not": {interceptor.Funcs{}, nil, []string{"-o", "xml"}, "must be text"},
		"more than one claim":        {interceptor.Funcs{}, nil, []string{"other"}, "kubectl get pvc lists"},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, test.funcs, test.objects, append([]string{"recommend", "tools"}, test.args...)...)
			if r.err == nil || !strings.Contains(r.err.Error(), test.want) {
				t.Errorf("error is %v, want %q", r.err, test.want)
			}
			if strings.Count(r.err.Error(), "sk for") > 1 {
				t.Errorf("asks twice: %v", r.err)
			}
		})
	}
}

// An expired request is nobody's, and one that somebody else has made since is left alone.
func TestRequestsOfOthers(t *testing.T) {
	old := v1alpha1.SampleRequest{ID: "a", Seconds: 60, Nodes: []string{"n1"}, Until: metav1.NewTime(at().Add(-time.Second))}
	claim := tools(func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{v1alpha1.SampleAnnotation: old.Encode()}
	})
	r := execute(t, answers(t, finished(listing("GETATTR", 16387))), mounted(claim, eda()), "recommend", "tools")
	if r.err != nil {
		t.Fatal(r.err)
	}
	asksNothing(t, r)

	funcs := answers(t, finished(listing("GETATTR", 16387)))
	get := funcs.Get
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := get(ctx, c, key, o, opts...)
		if _, ok := o.(*v1alpha1.StorageClientNode); ok {
			var live corev1.PersistentVolumeClaim
			if err := c.Get(ctx, client.ObjectKey{Namespace: "eda", Name: "tools"}, &live); err != nil {
				return err
			}
			live.Annotations[v1alpha1.SampleAnnotation] = old.Encode()
			return c.Update(ctx, &live)
		}
		return err
	}
	r = execute(t, funcs, mounted(tools(), eda()), "recommend", "tools")
	var live corev1.PersistentVolumeClaim
	if err := r.client.Get(context.Background(), client.ObjectKey{Namespace: "eda", Name: "tools"}, &live); err != nil || live.Annotations[v1alpha1.SampleAnnotation] != old.Encode() || r.err != nil {
		t.Errorf("%v, %v: %v", r.err, err, live.Annotations)
	}
}

func TestCtrlCLeavesNothingBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, answers(t, v1alpha1.NodeSampleStatus{Phase: v1alpha1.SampleRunning}), mounted(tools(), eda()))
	var out bytes.Buffer
	env := &environment{
		IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}, now: at, namespace: func() (string, error) { return "eda", nil },
		connect: func() (client.Client, error) { return c, nil },
		ticks: func(time.Duration) (<-chan time.Time, func()) {
			cancel()
			return nil, func() {}
		},
	}
	root := rootCommand(env)
	root.SetArgs([]string{"recommend", "tools"})
	err := root.ExecuteContext(ctx)
	if err == nil || !strings.Contains(err.Error(), "the request is taken back") || out.Len() > 0 {
		t.Errorf("%v: %s", err, out.String())
	}
	asksNothing(t, result{client: c})
}

func TestHowANodeIsFollowed(t *testing.T) {
	start := at()
	request := v1alpha1.SampleRequest{ID: "a", Seconds: 60, Until: metav1.NewTime(start.Add(time.Minute + v1alpha1.SampleGrace))}
	node := func(asked, reported string, phase v1alpha1.SamplePhase) *v1alpha1.StorageClientNode {
		c := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		if asked != "" {
			c.Spec.Sample = &v1alpha1.NodeSample{ID: asked}
		}
		if reported != "" {
			c.Status.Sample = &v1alpha1.NodeSampleStatus{ID: reported, Phase: phase, Message: "the cause"}
		}
		return c
	}
	for name, test := range map[string]struct {
		node        *v1alpha1.StorageClientNode
		progress    progress
		after       time.Duration
		stage, why  string
		hasAnswered bool
	}{
		"nobody has asked it yet":       {node("", "", ""), progress{}, handOver, "waits for the manager", "", false},
		"nobody asks it":                {node("", "", ""), progress{}, handOver + 1, "", "the manager has not asked it within 45s", false},
		"another request goes before":   {node("b", "", ""), progress{}, handOver + 1, "answers another request first", "", false},
		"another request takes long":    {node("b", "", ""), progress{}, v1alpha1.SampleGrace, "", "it was busy with another request", false},
		"the agent is asked":            {node("u-a", "", ""), progress{}, time.Hour, "waits for its agent", "", false},
		"an answer of yesterday":        {node("u-a", "u-z", v1alpha1.SampleFinished), progress{}, 0, "waits for its agent", "", false},
		"the agent does not begin":      {node("u-a", "", ""), progress{asked: start}, handOver + 1, "", "its agent has not begun within 45s: it is silent, or older", false},
		"the window has begun":          {node("u-a", "u-a", v1alpha1.SampleRunning), progress{asked: start}, time.Minute, "measures, until about 00:02:00", "", false},
		"the window should be over":     {node("u-a", "u-a", v1alpha1.SampleRunning), progress{asked: start, begun: start}, time.Minute + late, "measures, until about 00:01:00", "", false},
		"the window does not end":       {node("u-a", "u-a", v1alpha1.SampleRunning), progress{asked: start, begun: start}, time.Minute + late + 1, "", "not ended the window in time", false},
		"it has failed":                 {node("u-a", "u-a", v1alpha1.SampleFailed), progress{}, 0, "", "the cause", false},
		"it has answered":               {node("u-a", "u-a", v1alpha1.SampleFinished), progress{}, 0, "", "", true},
		"the request is taken back":     {node("", "", ""), progress{asked: start, begun: start}, 0, "", "taken back before the agent had answered", false},
		"an answer that is still there": {node("", "u-a", v1alpha1.SampleFinished), progress{}, 0, "waits for the manager", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.progress
			a, done := p.follow(seen{clientNode: test.node, id: "u-a", request: request, since: start, now: start.Add(test.after)})
			if done != (test.stage == "") || p.stage != test.stage || (a.sample != nil) != test.hasAnswered || !strings.Contains(a.why, test.why) || (a.why == "") != (test.why == "") {
				t.Errorf("done %v, stage %q, answer %+v", done, p.stage, a)
			}
		})
	}
}

func TestNoMoreNodesAreAskedThanMayBe(t *testing.T) {
	var nodes []client.Object
	byNode := map[string][]v1alpha1.NodeSampleStatus{"n1": {finished(listing("GETATTR", 16387))}}
	for _, name := range strings.Split("abcdefghijklmnopq", "") {
		n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "m" + name}}
		n.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/mnt", Volume: "pv1"}}
		nodes = append(nodes, n)
		byNode[n.Name] = byNode["n1"]
	}
	r := execute(t, answering(t, byNode), mounted(tools(), append(nodes, eda())...), "recommend", "tools")
	if r.err != nil || !strings.Contains(r.out, "Not asked, since 16 are enough: mq, n1.") || !strings.Contains(r.out, "60 s on 16 nodes:") || !strings.Contains(r.out, "and on 13 more") {
		t.Errorf("%v:\n%s", r.err, r.out)
	}
}
