//go:build attack

package attack

import (
	"fmt"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

// sampleOrder returns a patch that requests a sample from a node.
func sampleOrder(seconds int) string {
	return fmt.Sprintf(`{"spec":{"sample":{"id":"s1","seconds":%d,"volumes":["pv-1"],"startBefore":"2099-01-01T00:00:00Z"}}}`, seconds)
}

// sampleAnswer returns a patch that reports a sample with this number of mounts.
func sampleAnswer(mounts int) string {
	list := make([]string, 0, mounts)
	for i := range mounts {
		list = append(list, fmt.Sprintf(`{"mountPoint":"/mnt/%d","volume":"pv-1"}`, i))
	}
	return `{"status":{"rebootRequired":false,"sample":{"id":"s1","phase":"Finished","mounts":[` + strings.Join(list, ",") + `]}}}`
}

// sampleAttacks are attacks on requests for samples and on their results.
func sampleAttacks() []attack {
	own, asked := mergeStatus(clientNode("node-1"), sampleAnswer(1)), merge(clientNode("node-1"), sampleOrder(60))
	observing := func(name string, window int32) func(*actor) error {
		return create(trialOf(tenantNamespace, name, func(s *v1alpha1.StorageClientTrialSpec) {
			s.Profile, s.Workload = "", v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadObserve, WindowSeconds: &window}
		}))
	}
	observes := observing("observes", 60)
	const noRight = `cannot patch resource "storageclientnodes"`
	return []attack{
		{id: "agent-orders-sample", by: agentOne, tries: "request a sample from itself", stop: byRBAC, want: noRight, try: asked, twin: own},
		{id: "agent-sample-of-another-node", by: agentOne, tries: "report a sample for node-2",
			stop: byAgentFence, want: "only its own StorageClientNode", try: mergeStatus(clientNode("node-2"), sampleAnswer(1)), twin: own},
		{id: "agent-sample-too-large", by: agentOne, tries: "report a sample with too many mounts",
			stop: byCRD, want: "status.sample.mounts", try: mergeStatus(clientNode("node-1"), sampleAnswer(33)), twin: own},
		{id: "manager-sample-too-long", by: manager, tries: "have a node observe for days",
			stop: byCRD, want: "spec.sample.seconds", try: merge(clientNode("node-1"), sampleOrder(86400)), twin: asked},
		{id: "manager-forges-sample", by: manager, tries: "report a sample instead of an agent",
			stop: byManagerFence, want: "only rollout", try: mergeStatus(clientNode("node-1"), sampleAnswer(1)), twin: asked},
		{id: "viewer-orders-sample", by: viewer, tries: "request a sample from a node", stop: byRBAC, want: noRight, try: asked, twin: get(clientNode("node-1"))},
		{id: "editor-orders-sample", by: editor, tries: "request a sample from a node", stop: byRBAC, want: noRight, try: asked, twin: get(clientNode("node-1"))},
		{id: "tenant-orders-sample", by: tenant, tries: "request a sample of any volume from a node", stop: byRBAC, want: noRight, try: asked, twin: observes},
		{id: "tenant-observes-for-days", by: tenant, tries: "have nodes observe for days", stop: byCRD, want: "spec.workload.windowSeconds", try: observing("days", 86400), twin: observes},
		{id: "tenant-forges-recommendation", by: tenant, tries: "write the recommendations of a trial", stop: byRBAC, want: `cannot patch resource "storageclienttrials/status"`, twin: observes,
			try: mergeStatus(trialOf(tenantNamespace, "mine"), `{"status":{"recommendations":[{"text":"nconnect=16"}]}}`)},
		{id: "tenant-observes", by: tenant, tries: "have nodes observe the mounts of its own volume", stop: notStopped, try: observes},
		{id: "manager-asks", by: manager, tries: "request a sample of any volume from any node, for up to an hour", stop: notStopped, try: asked},
	}
}
