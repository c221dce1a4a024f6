package recommend

import (
	"fmt"
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/lists"
)

// Mount is a mount on a node, with its sample and verdict. The node is empty in the report of a single machine.
type Mount struct {
	Node    string `json:"node,omitempty"`
	Sample  `json:",inline"`
	Verdict Verdict `json:"verdict"`
}

// EvaluateNode evaluates the samples of a node. volume is the storage of all mounts. Empty if it is unknown or differs.
func EvaluateNode(node advice.Node, volume drivers.Source, samples []Sample) []Mount {
	return lists.Each(samples, func(s Sample) Mount { return Mount{Node: node.Name, Sample: s, Verdict: Evaluate(s, node, volume)} })
}

// Outcome is the combined result for all mounts of a volume.
type Outcome string

// Outcomes.
const (
	// Helps means that a client setting helps.
	Helps Outcome = "Helps"
	// MayHelp means that a client setting may help, but counters cannot show whether it is safe.
	MayHelp Outcome = "MayHelp"
	// HelpsNot means that there is a finding, but no client setting changes it.
	HelpsNot Outcome = "HelpsNot"
	// TooLittle means that there were too few operations for a result.
	TooLittle Outcome = "TooLittle"
	// Healthy means that there are no findings. Unknown means that the counters of such mounts do not contain enough data.
	Healthy Outcome = "Healthy"
	Unknown Outcome = "Unknown"
)

var sentences = map[Outcome]string{
	Helps:     "A client setting helps.",
	MayHelp:   "A client setting may help; check with the owner of the programs that it is safe.",
	HelpsNot:  "No client setting will help; the findings describe other remedies.",
	TooLittle: "Too few operations for a result: measure while the work runs, or for longer.",
	Healthy:   "The mounts are healthy: no problems found, and no change is recommended.",
	Unknown:   "No problems found. The kernel reports kinds, times and bytes of requests only for NFS, so problems of other mounts may be hidden.",
}

// Text returns the outcome as one or two sentences.
func (o Outcome) Text() string { return sentences[o] }

// Conclude returns the combined outcome of the mounts.
func Conclude(mounts []Mount) Outcome {
	findings := FindingsOf(mounts)
	isOfClient := func(f Finding) bool { return f.Cause == CauseClient }
	isSafe := func(f Finding) bool { return isOfClient(f) && !isByHand(findings, f.Rule) }
	switch {
	case slices.ContainsFunc(findings, isSafe):
		return Helps
	case slices.ContainsFunc(findings, isOfClient):
		return MayHelp
	case len(findings) > 0:
		return HelpsNot
	case !slices.ContainsFunc(mounts, func(m Mount) bool { return !m.Verdict.TooLittle }):
		return TooLittle
	case slices.ContainsFunc(mounts, func(m Mount) bool { return m.isNFS() }):
		return Healthy
	}
	return Unknown
}

// FindingsOf returns the findings of all mounts.
func FindingsOf(mounts []Mount) []Finding {
	return slices.Concat(lists.Each(mounts, func(m Mount) []Finding { return m.Verdict.Findings })...)
}

// isByHand reports whether a finding of a rule is by hand. The mounts of a volume share its changes.
func isByHand(findings []Finding, rule string) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Rule == rule && f.ByHand })
}

// Group contains the findings of one rule on several mounts.
type Group struct {
	Rule Rule
	// Nodes are the nodes of Findings, in the same order.
	Nodes    []string
	Findings []Finding
}

// ByRule groups findings, in the order of the rules.
func ByRule(mounts []Mount) []Group {
	return lists.Pick(Rules(), func(rule Rule) (Group, bool) {
		group := Group{Rule: rule}
		for _, m := range mounts {
			for _, f := range m.Verdict.Findings {
				if f.Rule == rule.ID {
					group.Nodes, group.Findings = append(group.Nodes, m.Node), append(group.Findings, f)
				}
			}
		}
		return group, len(group.Findings) > 0
	})
}

// Texts returns the declarations of a change: mount options in their syntax, other fields with their names.
func (c Change) Texts() []string {
	texts := optionTexts(c.MountOptions)
	if c.ReadAheadKiB > 0 {
		texts = append(texts, fmt.Sprintf("readAheadKiB=%d", c.ReadAheadKiB))
	}
	if c.Node != nil {
		texts = append(texts, nodeTexts(c.Node)...)
	}
	return texts
}

func nodeTexts(node *v1alpha1.NodeTuning) (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(node.Sysctls)) {
		texts = append(texts, fmt.Sprintf("node.sysctls[%s]=%s", name, node.Sysctls[name]))
	}
	for _, module := range node.KernelModules {
		for _, name := range slices.Sorted(maps.Keys(module.Parameters)) {
			texts = append(texts, fmt.Sprintf("node.kernelModules.%s.%s=%v", module.Name, name, module.Parameters[name]))
		}
	}
	if node.NFS4UniqueID != "" {
		texts = append(texts, "node.nfs4UniqueID="+string(node.NFS4UniqueID))
	}
	return texts
}

// ListTexts returns the texts of several changes without duplicates.
func ListTexts(findings []Finding) []string {
	return lists.AddMissing(nil, slices.Concat(lists.Each(findings, func(f Finding) []string { return f.Change.Texts() })...)...)
}
