//go:build attack

package attack

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// ceilings are the limits during the attacks on them.
var ceilings = map[string]string{
	"node.sysctls.allowed":                     "net.*\nvm.*\nsunrpc.tcp_max_slot_table_entries",
	"node.sysctls.maximum":                     "net.core.rmem_max: 33554432",
	"node.sysctls.minimum":                     "vm.dirty_writeback_centisecs: 100",
	"node.kernelArguments.allowed":             "ihash_entries",
	"node.kernelArguments.maximum":             "ihash_entries: 16777216",
	"node.kernelModules.maximum":               "nfs/max_session_slots: 256",
	"node.sunrpc.maximum":                      "1024",
	"readAheadKiB.maximum":                     "16384",
	"node.tuned.allowed":                       "latency-performance",
	"node.nfsMountDefaults.servers.allowed":    "filer1",
	"node.filesystems.mountPoints.allowed":     "/mnt/*",
	"volumes.claimNamespaces.allowed":          tenantNamespace,
	"mountOptions.forbidden":                   "soft",
	"mountOptions.maximum":                     "nconnect: 8",
	"volumes.onConflict.allowed":               "KeepVolume",
	"volumes.gitOpsOwned.allowed":              "ReportOnly",
	"includeControlPlane.allowed":              "false",
	"rollout.maxUnavailable.maximum":           "10%",
	"rollout.maxConcurrentLive.maximum":        "10%",
	"rollout.volumes.maxPerStep.maximum":       "10%",
	"rollout.volumes.soakSeconds.minimum":      "60",
	"rollout.canary.soakSeconds.minimum":       "30",
	"rollout.failureThreshold.maximum":         "3",
	"rollout.drain.deleteEmptyDirData.allowed": "false",
	"rollout.reboot.policy.allowed":            "OnApproval\nNever",
	"rollout.reboot.restoreReboot.allowed":     "false",
}

// beyondCeilings is a profile beyond the limits. Its denial shows that the limits are effective.
var beyondCeilings = profileOf("beyond", func(p *v1alpha1.StorageClientProfile) { p.Spec.Node = sysctls("net.core.rmem_max", "2147483647") })

// setCeilings sets the limits as the administrator. Without entries there are no limits.
func setCeilings(t *testing.T, c *cluster, wanted map[string]string) {
	t.Helper()
	object := configMap(v1alpha1.ManagerNamespace, "storage-client-guardrails")
	check.NoError(t, c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	object.Data = wanted
	check.NoError(t, c.admin.Update(t.Context(), object))
	await(t, "the limits to be effective", func() bool {
		return apierrors.IsForbidden(c.admin.Create(t.Context(), beyondCeilings.DeepCopy(), client.DryRunAll)) == (len(wanted) > 0)
	})
}

// roll declares a rollout with one change.
func roll(change func(*v1alpha1.Rollout)) func(*actor) error {
	return declare(func(s *v1alpha1.StorageClientProfileSpec) { change(&s.Rollout) })
}

func share(text string) *intstr.IntOrString { return ptr.To(intstr.Parse(text)) }

func guardrailAttacks() []attack {
	beyond := func(id, tries, ceiling string, try, twin func(*actor) error) attack {
		return attack{id: id, by: editor, tries: tries, stop: byGuardrails, want: ceiling, try: try, twin: twin}
	}
	readAheadOf := func(size int32) func(*actor) error {
		return tuning(func(n *v1alpha1.NodeTuning) {
			n.ReadAhead = []v1alpha1.ReadAhead{{FSTypes: []string{"ext4"}, SizeKiB: size}}
		})
	}
	slots := func(count string) func(*actor) error {
		return tuning(func(n *v1alpha1.NodeTuning) {
			n.Sysctls = map[string]v1alpha1.SettingText{"sunrpc.tcp_max_slot_table_entries": v1alpha1.SettingText(count)}
		})
	}
	conflict := func(policy v1alpha1.ConflictPolicy) func(*actor) error {
		return rule(func(r *v1alpha1.VolumeRule) {
			r.MountOptions, r.OnConflict = []v1alpha1.MountOption{"nconnect=4"}, policy
		})
	}
	gitOps := func(policy v1alpha1.GitOpsPolicy) func(*actor) error {
		return rule(func(r *v1alpha1.VolumeRule) {
			r.MountOptions, r.GitOpsOwned = []v1alpha1.MountOption{"nconnect=4"}, policy
		})
	}
	namespaces := func(names ...string) func(*actor) error {
		return rule(func(r *v1alpha1.VolumeRule) {
			r.MountOptions, r.Selector.ClaimNamespaces = []v1alpha1.MountOption{"nconnect=4"}, names
		})
	}
	reboots := func(policy v1alpha1.RebootPolicy) func(*actor) error {
		return roll(func(r *v1alpha1.Rollout) { r.Reboot.Policy = policy })
	}
	unavailable := func(text string) func(*actor) error {
		return roll(func(r *v1alpha1.Rollout) { r.MaxUnavailable = share(text) })
	}
	live := func(text string) func(*actor) error {
		return roll(func(r *v1alpha1.Rollout) { r.MaxConcurrentLive = share(text) })
	}
	step := func(text string) func(*actor) error {
		return roll(func(r *v1alpha1.Rollout) { r.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: share(text)} })
	}
	volumeSoak := func(seconds int32) func(*actor) error {
		return roll(func(r *v1alpha1.Rollout) { r.Volumes = &v1alpha1.VolumeRollout{SoakSeconds: ptr.To(seconds)} })
	}
	soak := func(seconds int32) func(*actor) error {
		return roll(func(r *v1alpha1.Rollout) { r.Canary = &v1alpha1.Canary{SoakSeconds: ptr.To(seconds)} })
	}
	plain := roll(func(*v1alpha1.Rollout) {})
	return []attack{
		beyond("ceiling-sysctl", "exceed the limit of a sysctl", "node.sysctls.maximum", sysctl("net.core.rmem_max", "2147483647"), sysctl("net.core.rmem_max", "33554432")),
		beyond("ceiling-sysctl-floor", "turn off write-back", "node.sysctls.minimum", sysctl("vm.dirty_writeback_centisecs", "0"), sysctl("vm.dirty_writeback_centisecs", "100")),
		beyond("ceiling-sysctl-name", "declare a sysctl that is not on the list", "node.sysctls.allowed", sysctl("sunrpc.tcp_slot_table_entries", "16"), sysctl("net.ipv4.tcp_sack", "1")),
		beyond("ceiling-argument", "spend the memory of nodes on a hash table", "node.kernelArguments.maximum", argument("ihash_entries=1073741824"), argument("ihash_entries=16777216")),
		beyond("ceiling-argument-name", "declare a kernel argument that is not on the list", "node.kernelArguments.allowed", argument("dhash_entries=1048576"), argument("ihash_entries=1048576")),
		beyond("ceiling-module", "exceed the limit of a module parameter", "node.kernelModules.maximum", module("nfs", "max_session_slots", "1024"), module("nfs", "max_session_slots", "256")),
		beyond("ceiling-slots", "declare too many slots", "node.sunrpc.maximum", slots("65536"), slots("1024")),
		beyond("ceiling-read-ahead", "read ahead by a gigabyte on ext4", "readAheadKiB.maximum", readAheadOf(1<<20), readAheadOf(16384)),
		beyond("ceiling-tuned", "choose a tuned profile that spins disks down", "node.tuned.allowed", tuned("spindown-disk"), tuned("latency-performance")),
		beyond("ceiling-server", "change the mounts of every server", "node.nfsMountDefaults.servers.allowed", hostMounts("", "nconnect=4"), hostMounts("filer1", "nconnect=4")),
		beyond("ceiling-mount-point", "remount a system directory", "node.filesystems.mountPoints.allowed", filesystem("/var/lib/kubelet", "noatime"), filesystem("/mnt/data", "noatime")),
		beyond("ceiling-namespace", "change the volumes of kube-system", "volumes.claimNamespaces.allowed", namespaces("kube-system"), namespaces(tenantNamespace)),
		beyond("ceiling-all-namespaces", "change the volumes of all namespaces", "volumes.claimNamespaces.allowed", namespaces(), namespaces(tenantNamespace)),
		beyond("ceiling-option", "cause I/O errors if servers are slow: soft", "mountOptions.forbidden", mountOptions("soft"), mountOptions("hard")),
		beyond("ceiling-option-value", "open too many connections to a server", "mountOptions.maximum", mountOptions("nconnect=16"), mountOptions("nconnect=8")),
		beyond("ceiling-conflict", "overwrite the original options of volumes", "volumes.onConflict.allowed", conflict(v1alpha1.ConflictUseProfile), conflict(v1alpha1.ConflictKeepVolume)),
		beyond("ceiling-gitops", "overwrite options that Git manages", "volumes.gitOpsOwned.allowed", gitOps(v1alpha1.GitOpsPatch), gitOps(v1alpha1.GitOpsReportOnly)),
		beyond("ceiling-control-plane", "reach the control plane", "includeControlPlane.allowed", declare(func(s *v1alpha1.StorageClientProfileSpec) { s.IncludeControlPlane = true }), plain),
		beyond("ceiling-unavailable", "take all nodes out of service at once", "rollout.maxUnavailable.maximum", unavailable("100%"), unavailable("10%")),
		beyond("ceiling-live", "change all nodes at once", "rollout.maxConcurrentLive.maximum", live("100%"), live("10%")),
		beyond("ceiling-volumes", "change all volumes at once", "rollout.volumes.maxPerStep.maximum", step("100%"), step("10%")),
		beyond("ceiling-volume-soak", "continue without waiting for a volume", "rollout.volumes.soakSeconds.minimum", volumeSoak(0), volumeSoak(60)),
		beyond("ceiling-soak", "continue without waiting for the canary", "rollout.canary.soakSeconds.minimum", soak(0), soak(30)),
		beyond("ceiling-failures", "continue while nodes fail", "rollout.failureThreshold.maximum",
			roll(func(r *v1alpha1.Rollout) { r.FailureThreshold = ptr.To[int32](5000) }), roll(func(r *v1alpha1.Rollout) { r.FailureThreshold = ptr.To[int32](3) })),
		beyond("ceiling-empty-dir", "delete the data of emptyDir volumes", "rollout.drain.deleteEmptyDirData.allowed",
			roll(func(r *v1alpha1.Rollout) { r.Drain.DeleteEmptyDirData = true }), plain),
		beyond("ceiling-automatic", "reboot nodes without an approval", "rollout.reboot.policy.allowed", reboots(v1alpha1.RebootAutomatic), reboots(v1alpha1.RebootNever)),
		beyond("ceiling-restore-reboot", "have nodes rebooted on deletion", "rollout.reboot.restoreReboot.allowed",
			roll(func(r *v1alpha1.Rollout) { r.Reboot.RestoreReboot = true }), plain),
		beyond("ceiling-update", "change a stored profile beyond a limit", "node.sysctls.maximum",
			merge(profile("fleet"), `{"spec":{"node":{"sysctls":{"net.core.rmem_max":"2147483647"}}}}`),
			merge(profile("fleet"), `{"spec":{"node":{"sysctls":{"net.core.rmem_max":"33554432"}}}}`)),
		beyond("ceiling-while-deleting", "delete a profile, and then make it reboot nodes and delete the data of their Pods", "rollout.drain.deleteEmptyDirData.allowed",
			inTurn(remove(profile("leaving")), merge(profile("leaving"), `{"spec":{"rollout":{"drain":{"deleteEmptyDirData":true},"reboot":{"restoreReboot":true}}}}`)),
			inTurn(remove(profile("leaving")), merge(profile("leaving"), `{"metadata":{"annotations":{"`+v1alpha1.PausedAnnotation+`":"true"}}}`))),
		{id: "ceiling-within", by: editor, tries: "choose any value within the limits", stop: notStopped, try: sysctl("net.core.rmem_max", "33554432")},
	}
}

// awaitPolicies waits until the API server has compiled the policies, which takes some time. If one is missing, the attacks fail.
func awaitPolicies(t *testing.T, people map[string]*actor) {
	t.Helper()
	for _, stops := range []struct {
		by   string
		try  func(*actor) error
		stop string
	}{
		{by: agentOne, try: onlyTry(reportOf("node-2")), stop: byAgentFence},
		{by: manager, try: onlyTry(merge(node("node-1"), `{"metadata":{"labels":{"a":"b"}}}`)), stop: byManagerFence},
		{by: author, try: onlyTry(approve("boots")), stop: byApproval},
	} {
		if !waitFor(t, func() bool { return isStop(stoppedBy(stops.try(people[stops.by].as(t))), stops.stop) }) {
			t.Logf("%s is not effective yet", stops.stop)
		}
	}
}
