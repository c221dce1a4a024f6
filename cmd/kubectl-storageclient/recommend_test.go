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
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const toolsUID = "0123"

// tools returns a claim that is bound to pv1, the volume that cluster mounts on n1.
func tools(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "tools", UID: toolsUID, Labels: map[string]string{"role": "tools"}}}
	c.Spec.VolumeName, c.Spec.StorageClassName, c.Status.Phase = "pv1", ptr.To("nfs"), corev1.ClaimBound
	for _, f := range change {
		f(c)
	}
	return c
}

// mounted returns cluster with the claim.
func mounted(claim *corev1.PersistentVolumeClaim, more ...client.Object) []client.Object {
	objects := cluster()
	objects[0].(*corev1.Node).Labels[corev1.LabelHostname] = "host-1"
	objects[1].(*v1alpha1.StorageClientNode).Status.Mounts[0].Protocol = "NFSv4.1"
	objects[2].(*corev1.PersistentVolume).Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "tools", UID: toolsUID}
	return append(append(objects, claim), more...)
}

// listSample returns a one-minute sample of a workload that lists a directory repeatedly.
func listSample(operation string, count int64) v1alpha1.MountSample {
	return v1alpha1.MountSample{
		MountPoint: "/mnt", Volume: "pv1", Server: "filer", Export: "/", Protocol: "NFSv4.1", Options: []string{"rw", "acregmin=3"}, MinRoundTripMicros: 1400,
		Events:     v1alpha1.EventSample{Listings: 35},
		Operations: []v1alpha1.OperationSample{{Name: operation, Count: count, BytesSent: 200 * count, BytesReceived: 200 * count, RoundTripMillis: count}},
	}
}

func nodeSample(node string, mounts ...v1alpha1.MountSample) v1alpha1.TrialSample {
	return v1alpha1.TrialSample{Node: node, Milliseconds: 60000, Mounts: mounts}
}

// watched returns the status of a completed trial with samples.
func watched(samples ...v1alpha1.TrialSample) v1alpha1.StorageClientTrialStatus {
	status := standing(v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "A client setting helps", 0)
	status.Samples = samples
	return status
}

// checkNoTrials fails the test if a trial still exists.
func checkNoTrials(t *testing.T, r result) {
	t.Helper()
	if remaining := trialsLeft(t, r); len(remaining) > 0 {
		t.Errorf("got remaining trials: %v", remaining)
	}
}

// appliable returns the profiles in the output after it checks that the manager would accept them.
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
	funcs := fakeManager(
		standing("", v1alpha1.TrialReasonWaiting, "Requesting samples from n1", 0), standing("", v1alpha1.TrialReasonRunning, "Counting on n1", 0), watched(nodeSample("n1", listSample("GETATTR", 16387))))
	var made v1alpha1.StorageClientTrial
	funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		err := c.Create(ctx, o, opts...)
		if trial, ok := o.(*v1alpha1.StorageClientTrial); ok {
			made = *trial
		}
		return err
	}
	r := execute(t, funcs, mounted(tools(), eda()), "recommend", "tools", "--window", "1m")
	check.NoError(t, r.err)
	want := "Created StorageClientTrial eda/" + made.Name + `
Requesting samples from n1
Counting on n1
A client setting helps
eda/tools, volume pv1, 60 s on 1 node:

NODE   MOUNT     PROTOCOL   SECONDS   VERDICT
n1     filer:/   NFSv4.1    60        273 operations per second, small operations take 1.0 ms. A client setting helps.

AttributeRevalidation (Client): The client requests attributes that have not changed.
  n1: 16387 of 16387 operations requested attributes, and 0 changes were found, expected: up to 16387 fewer requests per minute
  risk:    changes by other clients become visible 30 to 60 s later
  source:  measured on Linux 6.1 with knfsd: GETATTR per entry of a listing: 1.0 without, 0.001 with actimeo=30

A client setting helps: the profile below declares it.

Advice for eda
RULE            SEVERITY   TEXT
nocto-meaning   Warning    spec.volumes[0].mountOptions[1]: a file that another client has changed may still be read from the cache after it is opened; writes are still flushed at close. Use it on volumes that are mostly read: select them by label, or by accessModes [ReadOnlyMany]

# Save this, review the changes with: kubectl storageclient plan -f FILE, and apply it with: kubectl apply -f FILE
# profile eda, rule nfs: mountOptions [acregmin=30]
# profile eda, rule nfs: onConflict stays KeepVolume, so a volume with another value keeps it
# profile eda, rule nfs: all volumes that it selects get the same changes
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
    - acregmin=30
    - nocto
    name: nfs
    selector:
      protocols:
      - NFS
`
	check.Equal(t, "result", want, r.out)
	appliable(t, r.out)
	checkNoTrials(t, r)
	if !strings.HasPrefix(made.Name, "recommend-") || made.Spec.ClaimName != "tools" || made.Spec.Workload.Name != v1alpha1.WorkloadObserve || made.Spec.Window() != 60 || made.Spec.Timeout() != 360 {
		t.Errorf("made %s: %+v", made.Name, made.Spec)
	}
}

func TestRecommendEndsWithANewProfileWhereNoneSelectsTheVolume(t *testing.T) {
	other := eda()
	other.Spec.Volumes, other.Spec.Priority = nil, 7
	second := tools(func(c *corev1.PersistentVolumeClaim) { c.Name, c.UID, c.Spec.VolumeName = "more", "4567", "pv2" })
	pv2 := cluster()[2].(*corev1.PersistentVolume)
	pv2.Name = "pv2"
	r := execute(t, fakeManager(watched(nodeSample("n1", listSample("GETATTR", 16387)))), mounted(tools(), other, second, pv2), "recommend", "tools", "-o", "yaml")
	check.NoError(t, r.err)
	var got struct {
		Summary  string
		Notes    []string
		Mounts   []struct{ Node string }
		Proposal struct {
			Profiles []v1alpha1.StorageClientProfile
		}
	}
	_, report, _ := strings.Cut(r.out, "A client setting helps\n")
	if err := yaml.Unmarshal([]byte(report), &got); err != nil {
		t.Fatalf("%v:\n%s", err, report)
	}
	want := v1alpha1.StorageClientProfileSpec{Priority: 8, Volumes: []v1alpha1.VolumeRule{{
		Name: "recommended", MountOptions: []v1alpha1.MountOption{"acregmin=30"}, OnConflict: v1alpha1.ConflictUseProfile,
		Selector: v1alpha1.VolumeSelector{ClaimNamespaces: []string{"eda"}, ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "tools"}}},
	}}}
	want.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: []string{"host-1"}}}
	if len(got.Proposal.Profiles) != 1 || len(got.Mounts) != 1 || got.Mounts[0].Node != "n1" {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff(want, got.Proposal.Profiles[0].Spec); diff != "" || got.Proposal.Profiles[0].Name != "recommended-eda-tools" {
		t.Errorf("%s (-want +got):\n%s", got.Proposal.Profiles[0].Name, diff)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "also selects more") {
		t.Errorf("got notes %q", got.Notes)
	}
	r = execute(t, fakeManager(watched(nodeSample("n1", listSample("GETATTR", 16387)))), mounted(tools(), other), "recommend", "tools")
	if profiles := appliable(t, r.out); len(profiles) != 1 {
		t.Errorf("%s", r.out)
	}
	if r := execute(t, fakeManager(watched(nodeSample("n1", listSample("GETATTR", 16387)))), mounted(tools(), other), "recommend", "tools", "-o", "name"); !strings.HasSuffix(r.out, "\nstorageclientprofile.tuning.storageclient.dev/recommended-eda-tools\n") {
		t.Errorf("names: %s", r.out)
	}
}

// Users who may read only the claim, or not even the claim, still get a proposal. The proposal lists the missing information.
func TestRecommendWithTheLeastRights(t *testing.T) {
	for name, test := range map[string]struct {
		mayReadTheClaim bool
		selector        v1alpha1.VolumeSelector
		note            string
	}{
		"the claim": {true, v1alpha1.VolumeSelector{ClaimNamespaces: []string{"eda"}, ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "tools"}}},
			"a profile may already select it"},
		"trials alone": {false, v1alpha1.VolumeSelector{ClaimNamespaces: []string{"eda"}}, "the rule of the new profile selects its whole namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			funcs := fakeManager(watched(nodeSample("n1", listSample("GETATTR", 16387))))
			get := funcs.Get
			funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				_, isClaim := o.(*corev1.PersistentVolumeClaim)
				if _, isTrial := o.(*v1alpha1.StorageClientTrial); !isTrial && !(isClaim && test.mayReadTheClaim) {
					return forbidden("persistentvolumes")
				}
				return get(ctx, c, key, o, opts...)
			}
			funcs.List = func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				t.Errorf("lists %T", list)
				return nil
			}
			r := execute(t, funcs, mounted(tools(), eda()), "recommend", "tools")
			check.NoError(t, r.err)
			profiles := appliable(t, r.out)
			if len(profiles) != 1 || profiles[0].Spec.NodeSelector.MatchExpressions[0].Values[0] != "n1" || !strings.Contains(r.out, test.note) {
				t.Fatalf("%s", r.out)
			}
			check.Equal(t, "selector", test.selector, profiles[0].Spec.Volumes[0].Selector)
		})
	}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "x", errors.New("no"))
}

func TestRecommendWithoutAProposal(t *testing.T) {
	smb := v1alpha1.MountSample{MountPoint: "/mnt", Volume: "pv1", Server: "filer", Export: "/", Protocol: "SMB3.1.1", Requests: 9000}
	slow := listSample("READ", 600)
	slow.Operations[0].RoundTripMillis, slow.Bytes.DirectRead, slow.Bytes.WireRead = 600*105, 1<<20, 1<<20
	opens := listSample("OPEN", 16387)
	few := listSample("READ", 600)
	few.Bytes.DirectRead, few.Bytes.WireRead = 1<<20, 1<<20
	for name, test := range map[string]struct {
		mounts []v1alpha1.MountSample
		want   string
	}{
		"healthy":                    {[]v1alpha1.MountSample{few}, "The mounts are healthy: no problems found"},
		"a busy server":              {[]v1alpha1.MountSample{slow}, "No client setting will help"},
		"idle":                       {[]v1alpha1.MountSample{listSample("GETATTR", 9)}, "Too few operations for a result"},
		"not NFS":                    {[]v1alpha1.MountSample{smb}, "requests only for NFS"},
		"an unsafe option":           {[]v1alpha1.MountSample{opens}, "check with the owner of the programs"},
		"an unsafe option is listed": {[]v1alpha1.MountSample{opens}, "declare it yourself if it is safe: [vers=3] (OpenAndClose)"},
		"one is idle, and one well":  {[]v1alpha1.MountSample{listSample("GETATTR", 9), few}, "The mounts are healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, fakeManager(watched(nodeSample("n1", test.mounts...))), mounted(tools(), eda()), "recommend", "tools")
			if r.err != nil || !strings.Contains(r.out, test.want) || strings.Contains(r.out, "---") {
				t.Errorf("%v, want %q:\n%s", r.err, test.want, r.out)
			}
			checkNoTrials(t, r)
		})
	}
}

func TestNodesWithoutASampleAreNamed(t *testing.T) {
	status := watched(nodeSample("n1", listSample("GETATTR", 16387)), v1alpha1.TrialSample{Node: "n2", Message: "the agent restarted during the measurement; request a new sample"})
	status.NodesOmitted, status.Samples[0].MountsOmitted = 3, 2
	r := execute(t, fakeManager(status), mounted(tools(), eda()), "recommend", "tools")
	for _, want := range []string{"No sample: the agent restarted during", "60 s on 1 node:", "Not measured, because 2 are enough: 3 nodes.", "2 mounts omitted"} {
		if r.err != nil || !strings.Contains(r.out, want) {
			t.Errorf("%v, want %q:\n%s", r.err, want, r.out)
		}
	}
}

// The kernel of the node and the driver of the volume are not in the sample.
func TestRecommendChecksKernelAndDriver(t *testing.T) {
	full := v1alpha1.MountSample{
		MountPoint: "/mnt", Volume: "pv1", Server: "10.161.100.100", Export: "/", Protocol: "NFSv3", Options: []string{"rw", "vers=3"},
		Operations:  []v1alpha1.OperationSample{{Name: "READ", Count: 60000, BytesReceived: 60000 << 20, RoundTripMillis: 1200000}},
		Connections: []v1alpha1.ConnectionSample{{Sends: 60000, Answers: 60000}},
	}
	for name, test := range map[string]struct {
		kernel string
		source corev1.PersistentVolumeSource
		want   string
	}{
		"nothing against it":       {"6.12.80", corev1.PersistentVolumeSource{}, "profile below declares it"},
		"a kernel that loses data": {"6.1.70", corev1.PersistentVolumeSource{}, "nfs-congestion-lost-writes"},
		"a driver whose server rejects the option": {"6.12.80", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "blob.csi.azure.com", VolumeHandle: "rg#acct#share", VolumeAttributes: map[string]string{"protocol": "nfs", "server": "acct.blob.core.windows.net"},
		}}, "blob-nfs-nconnect"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := mounted(tools())
			objects[0].(*corev1.Node).Status.NodeInfo.KernelVersion = test.kernel
			objects[2].(*corev1.PersistentVolume).Spec.PersistentVolumeSource = test.source
			r := execute(t, fakeManager(watched(nodeSample("n1", full))), objects, "recommend", "tools")
			if r.err != nil || !strings.Contains(r.out, test.want) || strings.Contains(r.out, "---") != (test.want == "profile below declares it") {
				t.Errorf("%v, want %q:\n%s", r.err, test.want, r.out)
			}
		})
	}
}

func TestRecommendErrors(t *testing.T) {
	denied := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return forbidden("storageclienttrials")
	}}
	failed := standing(v1alpha1.TrialConditionFailed, v1alpha1.TrialReasonNotPossible, "volume pv1 is mounted on none of the 3 nodes that have an agent", 0)
	for name, test := range map[string]struct {
		funcs   interceptor.Funcs
		objects []client.Object
		args    []string
		want    string
	}{
		"a claim that is not there":       {interceptor.Funcs{}, nil, nil, "kubectl get pvc -n eda"},
		"a claim that is not bound":       {interceptor.Funcs{}, mounted(tools(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending })), nil, "eda/tools is not bound to a volume (phase Pending)"},
		"a trial that fails":              {fakeManager(failed), mounted(tools()), nil, "NotPossible: volume pv1 is mounted on none of the 3 nodes that have an agent"},
		"no permission to create a trial": {denied, mounted(tools()), nil, `a Role in eda, as in storage-client-trial-editor: {apiGroups: ["tuning.storageclient.dev"], resources: [storageclienttrials], verbs: [create, get, delete]}`},
		"a window that is too short":      {interceptor.Funcs{}, nil, []string{"--window=9s"}, "from 10s to 1h"},
		"a window that is too long":       {interceptor.Funcs{}, nil, []string{"--window=61m"}, "from 10s to 1h"},
		"a part of a second":              {interceptor.Funcs{}, nil, []string{"--window=10500ms"}, "from 10s to 1h"},
		"an unknown format":               {interceptor.Funcs{}, nil, []string{"-o", "xml"}, "must be text"},
		"more than one claim":             {interceptor.Funcs{}, nil, []string{"other"}, "kubectl get pvc lists"},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, test.funcs, test.objects, append([]string{"recommend", "tools"}, test.args...)...)
			if r.err == nil || !strings.Contains(r.err.Error(), test.want) {
				t.Errorf("got error %v, want %q", r.err, test.want)
			}
			if strings.Count(r.err.Error(), "equest ") > 1 {
				t.Errorf("got the request for permission more than once: %v", r.err)
			}
		})
	}
}

func TestCtrlCLeavesNothingBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, fakeManager(standing("", v1alpha1.TrialReasonRunning, "Counting on n1", 0)), mounted(tools(), eda()))
	var out bytes.Buffer
	env := &environment{
		IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}, now: at, namespace: func() (string, error) { return "eda", nil },
		connect: func() (client.WithWatch, error) { return c, nil },
		ticks: func(time.Duration) (<-chan time.Time, func()) {
			cancel()
			return nil, func() {}
		},
	}
	root := rootCommand(env)
	root.SetArgs([]string{"recommend", "tools"})
	err := root.ExecuteContext(ctx)
	if err == nil || !strings.Contains(err.Error(), "interrupted before the trial finished") || out.Len() > 0 {
		t.Errorf("%v: %s", err, out.String())
	}
	checkNoTrials(t, result{client: c})
}
