//go:build attack

package attack

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/webhook"
)

// declare creates a profile with one change.
func declare(change func(*v1alpha1.StorageClientProfileSpec)) func(*actor) error {
	return create(profileOf("mine", func(p *v1alpha1.StorageClientProfile) { change(&p.Spec) }))
}

func sysctl(key, value string) func(*actor) error {
	return declare(func(s *v1alpha1.StorageClientProfileSpec) { s.Node = sysctls(key, value) })
}

func tuning(change func(*v1alpha1.NodeTuning)) func(*actor) error {
	return declare(func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node = &v1alpha1.NodeTuning{}
		change(s.Node)
	})
}

func argument(text string) func(*actor) error {
	return tuning(func(n *v1alpha1.NodeTuning) {
		n.KernelArguments = []v1alpha1.KernelArgument{v1alpha1.KernelArgument(text)}
	})
}

func module(name, parameter, value string) func(*actor) error {
	return tuning(func(n *v1alpha1.NodeTuning) {
		n.KernelModules = []v1alpha1.KernelModule{{Name: name, Parameters: map[string]v1alpha1.SettingText{parameter: v1alpha1.SettingText(value)}}}
	})
}

func tuned(name string) func(*actor) error {
	return tuning(func(n *v1alpha1.NodeTuning) { n.Tuned = &v1alpha1.Tuned{Profile: name} })
}

func filesystem(mountPoint string, options ...v1alpha1.MountOption) func(*actor) error {
	return tuning(func(n *v1alpha1.NodeTuning) {
		n.Filesystems = []v1alpha1.Filesystem{{MountPoint: mountPoint, FSType: "xfs", MountOptions: options}}
	})
}

func hostMounts(server string, options ...v1alpha1.MountOption) func(*actor) error {
	return tuning(func(n *v1alpha1.NodeTuning) {
		n.NFSMountDefaults = []v1alpha1.NFSMountDefaults{{Server: server, Options: options}}
	})
}

// rule creates a profile with a rule for the tenant's NFS volumes.
func rule(change func(*v1alpha1.VolumeRule)) func(*actor) error {
	return declare(func(s *v1alpha1.StorageClientProfileSpec) {
		r := v1alpha1.VolumeRule{Name: "nfs", Selector: v1alpha1.VolumeSelector{
			Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}, ClaimNamespaces: []string{tenantNamespace},
		}}
		change(&r)
		s.Volumes = []v1alpha1.VolumeRule{r}
	})
}

func mountOptions(options ...v1alpha1.MountOption) func(*actor) error {
	return rule(func(r *v1alpha1.VolumeRule) { r.MountOptions = options })
}

func authorAttacks() []attack {
	goodSysctl, goodArgument, goodOption := sysctl("net.core.rmem_max", "16777216"), argument("ihash_entries=1048576"), mountOptions("nconnect=4")
	return []attack{
		{id: "argument-init", by: author, tries: "boot nodes into a shell: `init=/bin/sh`",
			stop: byWebhook, want: "spec.node.kernelArguments[0]", try: argument("init=/bin/sh"), twin: goodArgument},
		{id: "argument-mitigations", by: author, tries: "turn off the kernel's protection: `mitigations=off`",
			stop: byWebhook, want: "spec.node.kernelArguments[0]", try: argument("mitigations=off"), twin: goodArgument},
		{id: "argument-substitution", by: author, tries: "run a command when the boot menu is generated: `$(reboot)`",
			stop: byCRD, want: "spec.node.kernelArguments[0]", try: argument("ihash_entries=$(reboot)"), twin: goodArgument},
		{id: "argument-quote", by: author, tries: "break out of the quotes in GRUB's file",
			stop: byCRD, want: "spec.node.kernelArguments[0]", try: argument(`ihash_entries=1";reboot;"`), twin: goodArgument},
		{id: "argument-second", by: author, tries: "hide a second argument behind a space",
			stop: byCRD, want: "spec.node.kernelArguments[0]", try: argument("ihash_entries=1 init=/bin/sh"), twin: goodArgument},
		{id: "argument-shell", by: author, tries: "end the command and start another: `;reboot`",
			stop: byWebhook, want: "spec.node.kernelArguments[0]", try: argument("ihash_entries=1;reboot"), twin: goodArgument},
		{id: "sysctl-core-pattern", by: author, tries: "have the kernel run a program: kernel.core_pattern",
			stop: byWebhook, want: "spec.node.sysctls[kernel.core_pattern]", try: sysctl("kernel.core_pattern", "|/bin/sh"), twin: goodSysctl},
		{id: "sysctl-modprobe", by: author, tries: "have the kernel run a program: kernel.modprobe",
			stop: byWebhook, want: "spec.node.sysctls[kernel.modprobe]", try: sysctl("kernel.modprobe", "/tmp/x"), twin: goodSysctl},
		{id: "sysctl-traversal", by: author, tries: "write outside of /proc/sys: `net/../../etc/passwd`",
			stop: byCRD, want: "spec.node.sysctls", try: sysctl("net/../../etc/passwd", "x"), twin: goodSysctl},
		{id: "sysctl-dots", by: author, tries: "write outside of /proc/sys by dots that become slashes: `net.ipv4.conf.../../x.y`",
			stop: byCRD, want: "spec.node.sysctls", try: sysctl("net.ipv4.conf.../../x.y", "1"), twin: goodSysctl},
		{id: "sysctl-newline", by: author, tries: "write a second line into sysctl.d",
			stop: byCRD, want: "a value must not contain a newline", try: sysctl("net.core.rmem_max", "1\nkernel.core_pattern = |/bin/sh"), twin: goodSysctl},
		{id: "module-unknown", by: author, tries: "set a module's parameter that is not in the catalogue",
			stop: byWebhook, want: "spec.node.kernelModules", try: module("nfs", "callback_tcpport", "22"), twin: module("nfs", "max_session_slots", "128")},
		{id: "module-install", by: author, tries: "write an install line into modprobe.d by a module's name",
			stop: byCRD, want: "spec.node.kernelModules[0].name", try: module("nfs\ninstall nfs /bin/sh", "a", "1"), twin: module("nfs", "max_session_slots", "128")},
		{id: "module-value", by: author, tries: "write an install line into modprobe.d by a value",
			stop: byCRD, want: "a value must not contain a newline", try: module("nfs", "max_session_slots", "1\ninstall nfs /bin/sh"), twin: module("nfs", "max_session_slots", "128")},
		{id: "tuned-traversal", by: author, tries: "have tuned load a profile from elsewhere: `../../tmp/x`",
			stop: byCRD, want: "spec.node.tuned.profile", try: tuned("../../tmp/x"), twin: tuned("latency-performance")},
		{id: "tuned-dots", by: author, tries: "have tuned load the directory above: `..`",
			stop: byWebhook, want: "spec.node.tuned", try: tuned(".."), twin: tuned("latency-performance")},
		{id: "filesystem-traversal", by: author, tries: "remount a file system by way of `..`",
			stop: byWebhook, want: "spec.node.filesystems[0]", try: filesystem("/mnt/../etc", "noatime"), twin: filesystem("/mnt/data", "noatime")},
		{id: "filesystem-root", by: author, tries: "remount the root file system",
			stop: byCRD, want: "spec.node.filesystems[0].mountPoint", try: filesystem("/", "noatime"), twin: filesystem("/mnt/data", "noatime")},
		{id: "filesystem-suid", by: author, tries: "allow set-user-ID programs on a host file system",
			stop: byWebhook, want: "spec.node.filesystems[0]", try: filesystem("/mnt/data", "suid"), twin: filesystem("/mnt/data", "noatime")},
		{id: "host-mounts-dev", by: author, tries: "allow devices on the host's NFS mounts",
			stop: byWebhook, want: "spec.node.nfsMountDefaults[0]", try: hostMounts("filer1", "dev"), twin: hostMounts("filer1", "nconnect=4")},
		{id: "host-mounts-section", by: author, tries: "write another section into nfsmount.conf by a server's name",
			stop: byCRD, want: "spec.node.nfsMountDefaults[0].server", try: hostMounts("a\" ]\n[ x", "nconnect=4"), twin: hostMounts("filer1", "nconnect=4")},
		{id: "option-suid", by: author, tries: "allow set-user-ID programs on tenants' volumes",
			stop: byWebhook, want: "spec.volumes[0].mountOptions[0]", try: mountOptions("suid"), twin: goodOption},
		{id: "option-dev", by: author, tries: "allow devices on tenants' volumes",
			stop: byWebhook, want: "spec.volumes[0].mountOptions[0]", try: mountOptions("dev"), twin: goodOption},
		{id: "option-exec", by: author, tries: "allow programs on tenants' volumes",
			stop: byWebhook, want: "spec.volumes[0].mountOptions[0]", try: mountOptions("exec"), twin: goodOption},
		{id: "option-context", by: author, tries: "change the SELinux label of tenants' volumes",
			stop: byWebhook, want: "spec.volumes[0].mountOptions[0]", try: mountOptions("context=system_u:object_r:etc_t:s0"), twin: goodOption},
		{id: "option-x-systemd", by: author, tries: "have systemd act on a mount: x-systemd.requires=",
			stop: byWebhook, want: "spec.volumes[0].mountOptions[0]", try: mountOptions("x-systemd.requires=evil.service"), twin: goodOption},
		{id: "option-password", by: author, tries: "store a password in an object that all agents can read",
			stop: byWebhook, want: "spec.volumes[0].mountOptions[0]", try: mountOptions("password=secret"), twin: goodOption},
		{id: "option-comma", by: author, tries: "hide an option behind a comma",
			stop: byCRD, want: "spec.volumes[0].mountOptions[0]", try: mountOptions("nconnect=4,suid"), twin: goodOption},
		{id: "option-blank", by: author, tries: "hide an option behind a space",
			stop: byCRD, want: "spec.volumes[0].mountOptions[0]", try: mountOptions("nconnect=4 suid"), twin: goodOption},
		{id: "option-sec", by: author, tries: "remove Kerberos from tenants' volumes: sec=sys",
			stop: byManager, want: "stays out", try: weaken("sec=krb5p", "sec=sys"), twin: weakenNothing},
		{id: "option-read-write", by: author, tries: "make read-only volumes writable: rw",
			stop: byManager, want: "stays out", try: weaken("ro", "rw"), twin: weakenNothing},
		{id: "author-status", by: author, tries: "report a false status of a profile",
			stop: byRBAC, want: `cannot patch resource "storageclientprofiles/status"`, try: mergeStatus(profile("fleet"), `{"status":{"plan":{"hash":"x"}}}`), twin: goodSysctl},
		{id: "author-client-node", by: author, tries: "write a StorageClientNode without a profile and its checks",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`, try: merge(clientNode("node-1"), `{"spec":{"release":true}}`),
			twin: list(&v1alpha1.StorageClientNodeList{})},
		{id: "author-node", by: author, tries: "cordon a Node directly",
			stop: byRBAC, want: `cannot patch resource "nodes"`, try: cordon, twin: goodSysctl},
		{id: "author-volume", by: author, tries: "write a volume's mount options directly",
			stop: byRBAC, want: `cannot patch resource "persistentvolumes"`, try: options, twin: goodOption},
		{id: "author-guardrails", by: author, tries: "raise the guardrails",
			stop: byRBAC, want: `cannot patch resource "configmaps"`, twin: goodSysctl,
			try: merge(configMap(v1alpha1.ManagerNamespace, "storage-client-guardrails"), `{"data":{"rollout.drain.deleteEmptyDirData.allowed":"true"}}`)},
		{id: "author-webhook", by: author, tries: "delete the webhook that validates profiles",
			stop: byRBAC, want: `cannot delete resource "validatingwebhookconfigurations"`, twin: goodSysctl,
			try: remove(thing("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "", webhook.Name))},
		{id: "author-role", by: author, tries: "grant themselves the verb approve", stop: byRBAC, want: `cannot create resource "clusterroles"`, twin: goodSysctl,
			try: create(&rbacv1.ClusterRole{ObjectMeta: named("", "mine"), Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"storageclientprofiles"}, Verbs: []string{"approve"}},
			}})},
		{id: "author-value", by: author, tries: "declare any value that catalogue and guardrails accept, for all workers, live", stop: notStopped,
			try: declare(func(s *v1alpha1.StorageClientProfileSpec) {
				s.NodeSelector, s.AllNodes = metav1.LabelSelector{}, true
				s.Node = sysctls("net.ipv4.tcp_timestamps", "0")
			})},
		{id: "author-deletes", by: author, tries: "delete a profile, which restores the original values", stop: notStopped, try: remove(profile("fleet"))},
	}
}

// Approvals, one for each way to write an approval.
var (
	approveByField = func(name string) func(*actor) error {
		return merge(profile(name), `{"spec":{"rollout":{"reboot":{"approvedPlan":"`+planHash+`"}}}}`)
	}
	approveByPolicy = func(name string) func(*actor) error {
		return merge(profile(name), `{"spec":{"rollout":{"reboot":{"policy":"Automatic"}}}}`)
	}
)

func approve(name string) func(*actor) error {
	return merge(profile(name), `{"metadata":{"annotations":{"`+v1alpha1.ApprovedPlanAnnotation+`":"`+planHash+`"}}}`)
}

// booting returns a profile with a setting that requires a reboot, and with a change.
func booting(change func(*v1alpha1.StorageClientProfile)) func(*actor) error {
	return create(profileOf("mine", func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Node = &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=1048576"}}
		change(p)
	}))
}

func approvalAttacks() []attack {
	byAnnotation := booting(func(p *v1alpha1.StorageClientProfile) {
		p.Annotations = map[string]string{v1alpha1.ApprovedPlanAnnotation: planHash}
	})
	byField := booting(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.ApprovedPlan = planHash })
	automatic := booting(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.Policy = v1alpha1.RebootAutomatic })
	onApproval := booting(func(*v1alpha1.StorageClientProfile) {})
	// An approver has made these profiles automatic.
	running := profile("automatic")
	restoring := profile("restoring")
	return []attack{
		{id: "approve-annotation", by: author, tries: "approve their own plan by annotation",
			stop: byApproval, want: "may not approve", try: approve("boots"), twin: approve("boots"), twinBy: approver},
		{id: "approve-annotation-create", by: author, tries: "create a profile that is approved by annotation",
			stop: byApproval, want: "may not approve", try: byAnnotation, twin: byAnnotation, twinBy: editor},
		{id: "approve-field", by: author, tries: "approve their own plan in spec",
			stop: byApproval, want: "may not approve", try: approveByField("boots"), twin: approveByField("boots"), twinBy: approver},
		{id: "approve-field-create", by: author, tries: "create a profile that is approved in spec",
			stop: byApproval, want: "may not approve", try: byField, twin: byField, twinBy: editor},
		{id: "approve-automatic", by: author, tries: "make a profile's reboots automatic",
			stop: byApproval, want: "may not approve", try: approveByPolicy("boots"), twin: approveByPolicy("boots"), twinBy: approver},
		{id: "approve-automatic-create", by: author, tries: "create a profile whose reboots are automatic",
			stop: byApproval, want: "may not approve", try: automatic, twin: onApproval},
		{id: "approve-change-automatic", by: author, tries: "change settings that require a reboot in an automatic profile",
			stop: byApproval, want: "may not approve", try: merge(running, `{"spec":{"node":{"kernelArguments":["ihash_entries=2097152"]}}}`),
			twin: merge(running, `{"spec":{"node":{"sysctls":{"net.core.rmem_max":"16777216"}}}}`)},
		{id: "approve-more-nodes", by: author, tries: "have an automatic profile select more nodes",
			stop: byApproval, want: "may not approve", try: merge(running, `{"spec":{"nodeSelector":null,"allNodes":true}}`),
			twin: merge(running, `{"spec":{"paused":true}}`)},
		{id: "approve-drain", by: author, tries: "make the drain of an automatic profile more forceful",
			stop: byApproval, want: "may not approve", try: merge(running, `{"spec":{"rollout":{"drain":{"timeoutSeconds":60}}}}`),
			twin: merge(running, `{"spec":{"rollout":{"reboot":{"policy":"OnApproval"}}}}`)},
		{id: "approve-enforce", by: author, tries: "start an automatic profile in mode Plan",
			stop: byApproval, want: "spec.mode: ", try: merge(profile("automatic-plan"), `{"spec":{"mode":"Enforce"}}`),
			twin: merge(running, `{"spec":{"mode":"Plan"}}`)},
		{id: "approve-unpause", by: author, tries: "resume an automatic profile",
			stop: byApproval, want: "spec.paused: ", try: merge(profile("automatic-paused"), `{"spec":{"paused":false}}`),
			twin: merge(profile("automatic-paused"), `{"spec":{"rollout":{"reboot":{"policy":"Never"}}}}`)},
		{id: "approve-unpause-annotation", by: author, tries: "resume an automatic profile by annotation",
			stop: byApproval, want: "metadata.annotations[" + v1alpha1.PausedAnnotation + "]: ",
			try:  merge(profile("automatic-held"), `{"metadata":{"annotations":{"`+v1alpha1.PausedAnnotation+`":null}}}`),
			twin: merge(running, `{"metadata":{"annotations":{"`+v1alpha1.PausedAnnotation+`":"true"}}}`)},
		{id: "approve-retry", by: author, tries: "have nodes that failed under an automatic profile rebooted again",
			stop: byApproval, want: "metadata.annotations[" + v1alpha1.RetryAnnotation + "]: ",
			try:  merge(running, `{"metadata":{"annotations":{"`+v1alpha1.RetryAnnotation+`":"now"}}}`),
			twin: merge(running, `{"metadata":{"annotations":{"`+v1alpha1.ServerChunkAnnotation+`":"1024"}}}`)},
		{id: "approve-older", by: author, tries: "resume an automatic profile under an older approval",
			stop: byApproval, want: "spec.rollout.reboot.policy: OnApproval: ",
			try:  merge(profile("automatic-held"), `{"spec":{"rollout":{"reboot":{"policy":"OnApproval"}}}}`),
			twin: merge(profile("automatic-held"), `{"metadata":{"annotations":{"`+v1alpha1.ApprovedPlanAnnotation+`":null}},"spec":{"rollout":{"reboot":{"policy":"OnApproval"}}}}`)},
		{id: "approve-by-deletion", by: author, tries: "have nodes rebooted by deleting an automatic profile with restoreReboot",
			stop: byApproval, want: "may not approve", try: remove(restoring),
			twin: inTurn(merge(restoring, `{"spec":{"rollout":{"reboot":{"policy":"OnApproval"}}}}`), remove(restoring))},
		{id: "approve-viewer", by: viewer, tries: "approve a plan",
			stop: byRBAC, want: `cannot patch resource "storageclientprofiles"`, try: approve("boots"), twin: get(profile("boots"))},
		{id: "approver-creates", by: approver, tries: "create a profile",
			stop: byRBAC, want: `cannot create resource "storageclientprofiles"`, try: onApproval, twin: approve("boots")},
		{id: "approver-deletes", by: approver, tries: "delete a profile",
			stop: byRBAC, want: `cannot delete resource "storageclientprofiles"`, try: remove(profile("fleet")), twin: approve("boots")},
		{id: "approver-edits", by: approver, tries: "change the spec of a profile: an approval is a patch", stop: notStopped,
			try: merge(profile("fleet"), `{"spec":{"node":{"sysctls":{"net.core.rmem_max":"4194304"}}}}`)},
		{id: "editor-approves-himself", by: editor, tries: "approve their own changes: one role for both", stop: notStopped, try: automatic},
	}
}
