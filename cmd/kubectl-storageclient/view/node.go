package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// NodeReport is the output of "node".
type NodeReport struct {
	Name string `json:"name"`
	// Summary describes the state of the node in the rollout in one sentence.
	Summary string `json:"summary"`
	// Remarks describe unreliable parts of this report.
	Remarks       []string                `json:"remarks,omitempty"`
	KernelVersion string                  `json:"kernelVersion,omitempty"`
	Bootloader    *v1alpha1.Bootloader    `json:"bootloader,omitempty"`
	Rollout       *v1alpha1.RolloutStatus `json:"rollout,omitempty"`
	// RebootRequiredBy contains the keys of settings that require a reboot. Reboot is the agent's result for a permit.
	RebootRequiredBy []string               `json:"rebootRequiredBy,omitempty"`
	Reboot           *v1alpha1.RebootStatus `json:"reboot,omitempty"`
	Settings         []NodeSetting          `json:"settings"`
	Mounts           []NodeMount            `json:"mounts"`
	MountsOmitted    int32                  `json:"mountsOmitted,omitempty"`
	// BusyMounts delay a reboot.
	BusyMounts []v1alpha1.BusyMount `json:"busyMounts,omitempty"`
	// Unknown lists data that could not be read.
	Unknown []string `json:"unknown,omitempty"`
}

// NodeSetting is one setting of a node, with its desired and observed values.
type NodeSetting struct {
	Key string `json:"key"`
	// Wanted is the desired value. Empty for a setting that is being restored.
	Wanted   string `json:"wanted"`
	InForce  string `json:"inForce"`
	Original string `json:"original,omitempty"`
	// Profile is the profile that declares the setting. Empty if there is none.
	Profile     string                  `json:"profile,omitempty"`
	OnRemoval   v1alpha1.DeletionPolicy `json:"onRemoval,omitempty"`
	TakesEffect v1alpha1.SettingEffect  `json:"takesEffect,omitempty"`
	// State is empty until the agent has reported the setting.
	State v1alpha1.SettingState `json:"state,omitempty"`
	// Message explains why the state is not InSync, and names the conflicting file.
	Message string          `json:"message,omitempty"`
	Drift   *v1alpha1.Drift `json:"drift,omitempty"`
}

// NodeMount is one mount of a node.
type NodeMount struct {
	v1alpha1.MountStatus `json:",inline"`
	// Pods are the pods that use the mount: namespace/name, or the UID if the name is unknown.
	Pods []string `json:"pods,omitempty"`
}

// NewNodeReport returns the report of a node. node is nil if the Node is missing or could not be read. clientNode is nil if the node
// is not managed. pods maps UIDs to namespace/name.
func NewNodeReport(name string, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, pods map[string]string, now time.Time) NodeReport {
	r := NodeReport{Name: name, Settings: []NodeSetting{}, Mounts: []NodeMount{}}
	if clientNode == nil {
		r.Summary = name + " is not managed" + tunedText(node) + "."
		return r
	}
	status := clientNode.Status
	r.KernelVersion, r.Bootloader, r.Rollout, r.Reboot = status.KernelVersion, status.Bootloader, status.Rollout, status.Reboot
	r.RebootRequiredBy, r.BusyMounts, r.MountsOmitted = status.RebootRequiredBy, status.BusyMounts, status.MountsOmitted
	r.Summary, r.Remarks = rolloutSentence(name, status.Rollout, now), remarksOn(node, clientNode)
	for _, s := range clientNode.Spec.Settings {
		r.Settings = append(r.Settings, settingOf(s, status.Settings))
	}
	for _, s := range status.Settings {
		if !slices.ContainsFunc(clientNode.Spec.Settings, func(wanted v1alpha1.NodeSetting) bool { return wanted.Key == s.Key }) {
			r.Settings = append(r.Settings, settingOf(v1alpha1.NodeSetting{Key: s.Key}, status.Settings))
		}
	}
	slices.SortStableFunc(r.Settings, func(a, b NodeSetting) int { return strings.Compare(a.Key, b.Key) })
	for _, m := range status.Mounts {
		mount := NodeMount{MountStatus: m}
		mount.Pods = append(mount.Pods, lists.Each(m.PodUIDs, func(uid string) string { return cmp.Or(pods[uid], uid) })...)
		for uid, pod := range pods {
			mount.Message = strings.ReplaceAll(mount.Message, uid, pod)
		}
		r.Mounts = append(r.Mounts, mount)
	}
	return r
}

func tunedText(node *corev1.Node) string {
	if node == nil {
		return ": it has no StorageClientNode"
	}
	for _, c := range node.Status.Conditions {
		if string(c.Type) == v1alpha1.TunedNodeCondition {
			return fmt.Sprintf(" (%s: %s)", c.Reason, strings.TrimSuffix(c.Message, "."))
		}
	}
	return ": no profile selects it, or it has the annotation " + v1alpha1.IgnoreAnnotation
}

func rolloutSentence(name string, r *v1alpha1.RolloutStatus, now time.Time) string {
	if r == nil || r.Phase == "" {
		return name + " is managed; the rollout has not reached it yet."
	}
	sentence := fmt.Sprintf("%s is %s", name, r.Phase) + text.Labelled(", since ", ageOf(r.Since, now))
	if r.Reason != "" {
		sentence += fmt.Sprintf(" (%s)", r.Reason)
	}
	return sentence + text.Labelled(": ", strings.TrimSuffix(overview.NoteText(r), ".")) + "."
}

// remarksOn describes outdated parts of the agent's report.
func remarksOn(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) []string {
	var remarks []string
	if seen := clientNode.Status.ObservedGeneration; seen < clientNode.Generation {
		remarks = append(remarks, fmt.Sprintf("The agent has not reported on the latest settings yet (generation %d, reported %d).",
			clientNode.Generation, seen))
	}
	if node == nil {
		return remarks
	}
	if boot := clientNode.Status.BootID; boot != "" && boot != node.Status.NodeInfo.BootID {
		remarks = append(remarks, "The agent's report is from an earlier boot.")
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			remarks = append(remarks, "The node is not Ready; the last report of its agent can be out of date.")
		}
	}
	return remarks
}

func settingOf(desired v1alpha1.NodeSetting, all []v1alpha1.SettingStatus) NodeSetting {
	out := NodeSetting{Key: desired.Key, Wanted: desired.Value, Profile: desired.Profile, OnRemoval: desired.OnRemoval, TakesEffect: catalogue.Effect(desired.Key)}
	i := slices.IndexFunc(all, func(s v1alpha1.SettingStatus) bool { return s.Key == desired.Key })
	if i < 0 {
		return out
	}
	s := all[i]
	out.InForce, out.Original, out.State, out.Message, out.Drift = s.Observed, s.Original, s.State, s.Message, s.Drift
	out.TakesEffect = cmp.Or(s.TakesEffect, out.TakesEffect)
	return out
}

// WriteText prints the report for users. If wide is set, tables have all columns.
func (r NodeReport) WriteText(w io.Writer, wide bool) error {
	out := &printer{w: w}
	out.line(r.Summary)
	out.lines("", r.Remarks)
	if r.KernelVersion != "" {
		out.line("Kernel " + r.KernelVersion + bootloaderText(r.Bootloader) + ".")
	}
	r.writeReboot(out)
	r.writeSettings(out, wide)
	r.writeMounts(out, wide)
	out.lines("\nCannot read ", r.Unknown)
	return out.err
}

func bootloaderText(b *v1alpha1.Bootloader) string {
	if b == nil {
		return ""
	}
	out := ", boot loader " + string(b.Type)
	if b.Message != "" {
		out += " (" + strings.TrimSuffix(b.Message, ".") + ")"
	}
	return out
}

func (r NodeReport) writeReboot(out *printer) {
	if len(r.RebootRequiredBy) > 0 {
		out.line("Settings that require a reboot: " + text.List(r.RebootRequiredBy) + ".")
	}
	if r.Reboot != nil {
		message := text.Labelled(": ", strings.TrimSuffix(r.Reboot.Message, "."))
		out.line(fmt.Sprintf("Reboot permit %s: %s%s.", r.Reboot.PermitID, r.Reboot.Phase, message))
	}
	if n := len(r.BusyMounts); n > 0 {
		at := lists.Each(r.BusyMounts, func(m v1alpha1.BusyMount) string { return m.MountPoint })
		out.line(fmt.Sprintf("%s the reboot: %s.", text.Count(n, "mount of workloads delays", "mounts of workloads delay"), text.List(at)))
	}
}

func (r NodeReport) writeSettings(out *printer, wide bool) {
	if len(r.Settings) == 0 {
		out.line("\nNo settings.")
		return
	}
	out.line("")
	header := []string{"KEY", "DESIRED", "EFFECTIVE", "ORIGINAL", "PROFILE", "TAKES-EFFECT", "STATE"}
	if wide {
		header = append(header, "ON-REMOVAL", "DRIFTS")
	}
	writeTable(out, header, r.Settings, func(s NodeSetting) []string {
		drifts := ""
		if s.Drift != nil {
			drifts = number(s.Drift.Count)
		}
		return []string{s.Key, s.Wanted, s.InForce, s.Original, s.Profile, string(s.TakesEffect), cmp.Or(string(s.State), "not reported yet"),
			string(s.OnRemoval), drifts}
	})
	for _, s := range r.Settings {
		out.message(s.Key, s.Message)
	}
}

func (r NodeReport) writeMounts(out *printer, wide bool) {
	if len(r.Mounts) == 0 {
		out.line("\nNo network or XFS mounts.")
		return
	}
	out.line("")
	header := []string{"VOLUME", "SERVER", "PROTOCOL", "STATE", "PODS", "OPTIONS"}
	if wide {
		header = append(header, "CONNECTIONS", "SLOTS", "READ-AHEAD-KIB", "MOUNT-POINT")
	}
	writeTable(out, header, r.Mounts, func(m NodeMount) []string {
		return []string{cmp.Or(m.Volume, m.MountPoint), m.Server, m.Protocol, string(m.State), text.InOrder(m.Pods, ", "), strings.Join(m.Options, ","),
			number(m.Connections), number(m.SlotLimit), number(m.ReadAheadKiB), m.MountPoint}
	})
	for _, m := range r.Mounts {
		out.message(cmp.Or(m.Volume, m.MountPoint), m.Message)
	}
	if r.MountsOmitted > 0 {
		out.line(text.Count(int(r.MountsOmitted), "further mount") + " not reported.")
	}
}
