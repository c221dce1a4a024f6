package plan

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

// bound returns a snapshot in which the claim of the lab's trials is bound to a volume.
func bound(pv *corev1.PersistentVolume) volumeplan.Snapshot {
	key := types.NamespacedName{Namespace: "eda", Name: "projects"}
	pv.Status.Phase = corev1.VolumeBound
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: key.Namespace, Name: key.Name, UID: "1"}
	return volumeplan.Snapshot{
		Volumes: []*corev1.PersistentVolume{pv},
		VolumeClaims: map[types.NamespacedName]*metav1.PartialObjectMetadata{
			key: {ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "1"}},
		},
	}
}

func smbVolume() *corev1.PersistentVolume {
	pv := builders.NFSVolume([]string{"vers=3.0"})
	pv.Spec.NFS = nil
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "smb.csi.k8s.io", VolumeAttributes: map[string]string{"source": "//filer/share"}}
	return pv
}

func candidateOptions(options ...v1alpha1.MountOption) func(*v1alpha1.StorageClientTrialSpec) {
	return func(s *v1alpha1.StorageClientTrialSpec) {
		s.Profile = ""
		s.MountOptions = options
	}
}

// The condition of a trial that cannot mount its volume contains the driver, the reason and the workload that needs no mount.
func TestATrialThatCannotMountItsVolume(t *testing.T) {
	for name, test := range map[string]struct {
		pv   *corev1.PersistentVolume
		want string
	}{
		"SMB": {smbVolume(), "The trial cannot mount a volume of driver smb.csi.k8s.io: only NFS can be mounted in a separate network namespace; " +
			"to measure its existing mounts, use workload Observe"},
		"Kerberos": {builders.NFSVolume([]string{"sec=krb5"}), "The trial cannot mount a volume of driver kubernetes.io/nfs: " +
			"sec=krb5 needs the node's rpc.gssd; to measure its existing mounts, use workload Observe"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "n1")
			trial := l.add("a", candidateOptions("actimeo=30"))
			volumes := bound(test.pv)
			l.resolve = func(r *Trial) { *r = Resolve(trial, volumes, nil, catalogue.AllowList{}) }
			l.runTrials()
			expectStatus(t, trial, v1alpha1.TrialConditionFailed, v1alpha1.TrialReasonNotPossible, test.want)
			if slices.ContainsFunc(l.log, func(step string) bool { return !strings.HasPrefix(step, "report ") }) {
				t.Errorf("got steps %v, want only reports", l.log)
			}
		})
	}
}

// A manager of the release before mounted clones of the volume, and recorded their passes one by one.
const statusByClones = `{
	"route": "Clone", "volume": "nfs-volume", "node": "n1", "startTime": "2023-11-14T22:13:20Z", "rounds": 1, "before": ["vers=4.1"], "after": ["vers=4.1", "actimeo=30"],
	"load": {}, "passes": [
		{"round": 1, "arm": "Before", "node": "n1", "phases": [{"name": "First", "units": 1}, {"name": "Repeated", "units": 1}]},
		{"round": 1, "arm": "Again", "node": "n1", "phases": [{"name": "First", "units": 1}, {"name": "Repeated", "units": 1}]},
		{"round": 1, "arm": "After", "node": "n1", "phases": [{"name": "First", "units": 1}, {"name": "Repeated", "units": 1}]},
		{"round": 2, "arm": "Before", "node": "n1", "phases": [{"name": "First", "units": 1}, {"name": "Repeated", "units": 1}]}
	]}`

func TestATrialThatStartedByClones(t *testing.T) {
	for name, test := range map[string]struct {
		pv                        *corev1.PersistentVolume
		condition, reason, remedy string
		passes                    int
	}{
		"of a volume that the trial runner can mount": {builders.NFSVolume([]string{"vers=4.1"}), v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "", 6},
		"of SMB": {smbVolume(), v1alpha1.TrialConditionFailed, v1alpha1.TrialReasonNotPossible, observeRemedy, 4},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "n1")
			trial := l.add("a", candidateOptions("actimeo=30"), func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 2 })
			check.NoError(t, json.Unmarshal([]byte(statusByClones), &trial.Status))
			test.pv.Name = "nfs-volume"
			volumes := bound(test.pv)
			l.resolve = func(r *Trial) { *r = Resolve(trial, volumes, nil, catalogue.AllowList{}) }
			l.runTrials()
			expectStatus(t, trial, test.condition, test.reason, test.remedy)
			if len(trial.Status.Passes) != test.passes {
				t.Errorf("got passes %+v, want %d", trial.Status.Passes, test.passes)
			}
			l.expectClean()
		})
	}
}

// A server may reject the network of pods or ports above 1023. The message then names the workload that needs no mount.
func TestATrialWhoseServerRejectsTheRunnersNetwork(t *testing.T) {
	mounted := []v1alpha1.TrialProof{{Type: v1alpha1.ProofTransports, Holds: true}}
	for name, test := range map[string]struct {
		status    v1alpha1.NodeTrialStatus
		isKeptOut bool
		reason    string
	}{
		"the original mount options are denied": {
			status:    v1alpha1.NodeTrialStatus{Message: "Before, round 1: mount(2): operation not permitted"},
			isKeptOut: true, reason: v1alpha1.TrialReasonNotMounted,
		},
		"both are denied": {
			status:    v1alpha1.NodeTrialStatus{Message: "After, round 1: mount(2): operation not permitted", Own: &v1alpha1.TrialMount{Message: "x"}},
			isKeptOut: true, reason: v1alpha1.TrialReasonNotMounted,
		},
		"the candidate alone is denied": {
			status: v1alpha1.NodeTrialStatus{Message: "After, round 1: mount(2): operation not permitted", Own: &v1alpha1.TrialMount{Succeeded: true}},
			reason: v1alpha1.TrialReasonNotMounted,
		},
		"the work fails": {
			status: v1alpha1.NodeTrialStatus{Message: "Again, round 1: no file to read", Proofs: mounted}, reason: v1alpha1.TrialReasonNotMounted,
		},
		"the kernel does not support the option": {
			status: v1alpha1.NodeTrialStatus{Message: "Before, round 1: mount(2): invalid argument: nfs: Unknown parameter 'x'", Cause: v1alpha1.MountFailureOptions},
			reason: v1alpha1.TrialReasonNotMounted,
		},
		"the agent rejects the order": {
			status: v1alpha1.NodeTrialStatus{Phase: v1alpha1.TrialRefused, Message: "rejected by this node's agent"}, reason: v1alpha1.TrialReasonNotPossible,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "n1")
			l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				status := test.status
				if status.ID = order.ID; status.Phase == "" {
					status.Phase = v1alpha1.TrialFinished
				}
				return &status
			}
			trial := l.add("a")
			l.runTrials()
			words := test.status.Message
			if test.isKeptOut {
				words += "; the server may reject mounts from the network of pods; " + observeRemedy
			}
			expectStatus(t, trial, v1alpha1.TrialConditionFailed, test.reason, words)
			for _, c := range trial.Status.Conditions {
				if hasRemedy := strings.HasSuffix(c.Message, observeRemedy); hasRemedy != test.isKeptOut {
					t.Errorf("got message %q, want the remedy: %t", c.Message, test.isKeptOut)
				}
			}
		})
	}
}

// The name of a server may be in the volume only: mount.aznfs mounts from a local address. The recommendation then needs the volume's source.
func TestAnObservingTrialKnowsTheVolumesServer(t *testing.T) {
	var example struct {
		Sample v1alpha1.MountSample `json:"sample"`
	}
	data, err := os.ReadFile("../../../tuning/recommend/testdata/counterexamples/Azure-Blob-through-the-address-of-mount-aznfs.json")
	if err == nil {
		err = json.Unmarshal(data, &example)
	}
	check.NoError(t, err)
	pv := builders.NFSVolume(nil)
	pv.Name, pv.Spec.NFS = "pv-1", nil
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "blob.csi.azure.com", VolumeHandle: "rg#acct#vol1", VolumeAttributes: map[string]string{"protocol": "nfs", "storageAccount": "acct", "server": "acct.blob.core.windows.net"},
	}
	example.Sample.Volume = pv.Name
	l := newWatch(t, "n1")
	l.count = func(_ string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
		return finished(asked, example.Sample)
	}
	trial, volumes := l.observe("a"), bound(pv)
	l.resolve = func(r *Trial) { *r = Resolve(trial, volumes, nil, catalogue.AllowList{}) }
	l.runUntilEnd(trial, 4)
	recommendations := trial.Status.Recommendations
	if len(recommendations) == 0 || !recommendations[0].ByHand || !strings.Contains(recommendations[0].Against, "Azure Blob") {
		t.Errorf("got %+v, want a warning about connections to Azure Blob", recommendations)
	}
}
