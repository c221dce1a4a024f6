//go:build attack

package attack

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// trialOf returns a trial of the tenant's claim.
func trialOf(namespace, name string, changes ...func(*v1alpha1.StorageClientTrialSpec)) *v1alpha1.StorageClientTrial {
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	trial.Spec = v1alpha1.StorageClientTrialSpec{ClaimName: "data", Profile: "p", Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadListDirectory}}
	for _, change := range changes {
		change(&trial.Spec)
	}
	return trial
}

// workOrder returns a patch that orders work from a node.
func workOrder(user int, work string) string {
	return fmt.Sprintf(`{"spec":{"trial":{"id":"a-1","kind":"Trial","volume":"pv-1","server":"filer","path":"/e","fsType":"nfs","runAsUser":%d,"timeoutSeconds":60,`+
		`"work":{%s},"passes":[{"round":1,"arm":"Before"}]}}}`, user, work)
}

// trialAttacks are attacks on trials and their results.
func trialAttacks() []attack {
	mine, ordered := create(trialOf(tenantNamespace, "mine")), merge(clientNode("node-1"), workOrder(1000, `"name":"ListDirectory"`))
	own := func(s *v1alpha1.StorageClientTrialSpec) {
		s.Profile, s.MountOptions = "", []v1alpha1.MountOption{"nocto"}
	}
	root := func(s *v1alpha1.StorageClientTrialSpec) { user := int64(0); s.Workload.RunAsUser = &user }
	out := func(s *v1alpha1.StorageClientTrialSpec) { s.Workload.Path = "../other" }
	writes := func(s *v1alpha1.StorageClientTrialSpec) { s.Workload.Name = v1alpha1.WorkloadWriteSequential }
	many := func(s *v1alpha1.StorageClientTrialSpec) { s.Workload.Workers = 4096 }
	large := func(s *v1alpha1.StorageClientTrialSpec) {
		s.Workload.Name, s.Workload.TrialLoad = v1alpha1.WorkloadReadSequential, v1alpha1.TrialLoad{Workers: 64, BlockKiB: 16384}
	}
	return []attack{
		{id: "tenant-tries-options", by: tenant, tries: "have a node mount its volume with any options", stop: byTryPolicy, want: "may not try their own mount options", twin: mine,
			try: create(trialOf(tenantNamespace, "own", own))},
		{id: "tenant-tries-read-ahead", by: tenant, tries: "have a node mount its volume with any read-ahead", stop: byTryPolicy, want: "may not try their own read-ahead", twin: mine,
			try: create(trialOf(tenantNamespace, "window", func(s *v1alpha1.StorageClientTrialSpec) { s.Profile, s.ReadAheadKiB = "", 1<<20 }))},
		{id: "tenant-tries-sysctls", by: tenant, tries: "have a node mount its volume with any sysctls", stop: byTryPolicy, want: "may not try their own sysctls", twin: mine,
			try: create(trialOf(tenantNamespace, "sysctls", func(s *v1alpha1.StorageClientTrialSpec) {
				s.Profile, s.Sysctls = "", map[string]v1alpha1.SettingText{"net.ipv4.tcp_rmem": "4096 1048576 16777216"}
			}))},
		{id: "tenant-trial-elsewhere", by: tenant, tries: "try a claim of another namespace", stop: byRBAC, want: `cannot create resource "storageclienttrials"`, twin: mine,
			try: create(trialOf(v1alpha1.ManagerNamespace, "mine"))},
		{id: "tenant-trial-as-root", by: tenant, tries: "have a trial work as root", stop: byCRD, want: "spec.workload.runAsUser", twin: mine, try: create(trialOf(tenantNamespace, "root", root))},
		{id: "tenant-trial-leads-out", by: tenant, tries: "have a trial work outside of the volume", stop: byCRD, want: "spec.workload.path", twin: mine, try: create(trialOf(tenantNamespace, "out", out))},
		{id: "tenant-trial-writes", by: tenant, tries: "have a trial write without allowWrites", stop: byCRD, want: "spec.workload.allowWrites", twin: mine, try: create(trialOf(tenantNamespace, "writes", writes))},
		{id: "tenant-trial-workers", by: tenant, tries: "have a trial work with thousands of workers", stop: byCRD, want: "spec.workload.workers", twin: mine, try: create(trialOf(tenantNamespace, "many", many))},
		{id: "tenant-trial-buffers", by: tenant, tries: "have a trial use the memory of its node", stop: byCRD, want: "workers times blockKiB", twin: mine, try: create(trialOf(tenantNamespace, "large", large))},
		{id: "tenant-orders-work", by: tenant, tries: "order work from a node", stop: byRBAC, want: `cannot patch resource "storageclientnodes"`, twin: mine, try: ordered},
		{id: "agent-orders-work", by: agentOne, tries: "order work from its node", stop: byRBAC, want: `cannot patch resource "storageclientnodes"`, try: ordered,
			twin: mergeStatus(clientNode("node-1"), `{"status":{"rebootRequired":false,"trial":{"id":"a-1","phase":"Finished"}}}`)},
		{id: "manager-work-as-root", by: manager, tries: "have a node's trial work as root", stop: byCRD, want: "spec.trial", twin: ordered,
			try: merge(clientNode("node-1"), workOrder(0, `"name":"ListDirectory"`))},
		{id: "manager-work-leads-out", by: manager, tries: "have a node's trial work outside of the volume", stop: byCRD, want: "spec.trial.work.path", twin: ordered,
			try: merge(clientNode("node-1"), workOrder(1000, `"name":"ListDirectory","path":"../a"`))},
		{id: "manager-creates-trial", by: manager, tries: "create a trial", stop: byRBAC, want: `cannot create resource "storageclienttrials"`, twin: ordered,
			try: create(trialOf(tenantNamespace, "forged"))},
		{id: "tenant-trial", by: tenant, tries: "have a node list its own volume repeatedly, next to its Pods", stop: notStopped, try: mine},
		{id: "manager-orders-work", by: manager, tries: "have a node read any volume as any user except root, for up to ten minutes", stop: notStopped, try: ordered},
	}
}
