// Package advice contains rules about combinations of settings in a profile, and about its nodes. Rules never prevent a profile from
// being applied; package nodesettings rejects settings that cannot work.
//
// All functions are pure: they do not access the cluster, the host or the clock.
package advice

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxAdvice is the maximum number of entries in a profile's status.
	maxAdvice = 50
	// maxText is the maximum length of a text in the API, in bytes.
	maxText = 1024
)

// Input is the input of the rules. Unknown values are empty, and rules that need them do not apply.
type Input struct {
	// Profile is the profile that the advice is about.
	Profile *v1alpha1.StorageClientProfile
	// Nodes are the nodes that the profile selects.
	Nodes []Node
	// Servers are the servers of the volumes that the profile matches.
	Servers []Server
	// LeftOut are volumes that no rule of the profile selects because their drivers are unknown, although a rule may be meant for them.
	LeftOut []LeftOut
}

// LeftOut describes the volumes of one unknown driver.
type LeftOut struct {
	// Driver is the name of the driver. Empty if unknown. LooksLike is the likely protocol of the volumes. Empty if there is no
	// indication.
	Driver    string
	LooksLike v1alpha1.VolumeProtocol
	// Count is the number of volumes. Example is the first volume by name.
	Count   int
	Example string
}

// CountLeftOut returns the total number of volumes.
func CountLeftOut(all []LeftOut) int {
	sum := 0
	for _, l := range all {
		sum += l.Count
	}
	return sum
}

// Node describes a node.
type Node struct {
	// Name is the node's name.
	Name string
	// Kernel is the kernel release, as printed by uname -r. Build is the text of /proc/version_signature or /proc/version.
	Kernel, Build string
	// Memory is the memory in bytes, MemTotal of /proc/meminfo. Zero if unknown.
	Memory int64
	// Settings are the settings that the agent reports. Empty if there is no report yet. The rules read keys and originals.
	Settings []v1alpha1.SettingStatus
	// Mounts are the mounts that the agent reports.
	Mounts []v1alpha1.MountStatus
	// Signs are the IDs of the known problems of which the node shows a sign.
	Signs []string
	// Sockets is the number of TCP sockets in use, "inuse" of /proc/net/sockstat. Zero if unknown.
	Sockets int64
}

// Server describes a server.
type Server struct {
	// Name is the host name or address.
	Name string
	// Version is the NFS version that the volumes request. Empty if mount negotiates it.
	Version string
	// Nconnect is the largest number of connections per node that the volumes request. Values below 1 count as 1.
	Nconnect int
}

// Rule detects one problem.
type Rule struct {
	// ID is the name of the rule. It is stable across releases.
	ID string
	// Severity is Error for harmful settings, Warning for likely mistakes, and Info for additional information.
	Severity v1alpha1.Severity
	// Title describes the rule in one sentence.
	Title string
	// Source is the source of the rule.
	Source string
	// CheckedElsewhere reports whether other checks at admission give the same warning: checks of single settings and of consistency.
	CheckedElsewhere bool
	// Explanation is the text of a rule that only restates a document and does not depend on a profile or its nodes. It is shown on
	// request and is not advice. Empty for all other rules.
	Explanation string
	// Remedy is the remedy. Empty for a rule whose Explanation contains it.
	Remedy string
	// Signs are declarations that the rule reports without further conditions. Empty for a rule with a function in checks.
	Signs []Sign
}

// Sign is a declaration that has the same effect in every profile.
type Sign struct {
	// Sysctls and Options are names, or names with a value: name=value. The last option of a name in a volume rule counts.
	Sysctls, Options []string
	// Protocol is the protocol of Options. Drivers are the drivers of which a volume rule must name one. Empty matches every rule.
	Protocol mountoptions.Protocol
	Drivers  []string
	// UnlessPicked skips rules that select volumes deliberately.
	UnlessPicked bool
	// Text describes the effect.
	Text string
}

type finding struct {
	// field is the path of the field. Empty if the finding is not about a single field.
	field string
	text  string
}

// Rules returns all rules, sorted by ID.
func Rules() []Rule { return slices.Clone(rules) }

// For returns the advice on a profile, by severity, then by rule. Each text of a rule appears once.
func For(in Input) []v1alpha1.Advice {
	return collectAdvice(in, func(Rule, finding) bool { return true })
}

// ForNode returns the advice on a profile's node fields for one node.
func ForNode(profile *v1alpha1.StorageClientProfile, node Node) []v1alpha1.Advice {
	return collectAdvice(Input{Profile: profile, Nodes: []Node{node}}, func(_ Rule, f finding) bool { return strings.HasPrefix(f.field, "spec.node.") })
}

// ForAdmission returns the warnings and errors for a user who creates or changes a profile. It omits rules that other checks cover.
func ForAdmission(profile *v1alpha1.StorageClientProfile) []v1alpha1.Advice {
	return collectAdvice(Input{Profile: profile}, func(r Rule, _ finding) bool { return !r.CheckedElsewhere && r.Severity != v1alpha1.SeverityInfo })
}

func collectAdvice(in Input, counts func(Rule, finding) bool) []v1alpha1.Advice {
	s := newScope(in)
	var all []v1alpha1.Advice
	for _, rule := range rules {
		if rule.Explanation != "" {
			continue
		}
		for _, text := range groupFindings(s.check(rule), func(f finding) bool { return counts(rule, f) }) {
			all = append(all, v1alpha1.Advice{ID: rule.ID, Severity: rule.Severity, Text: text})
		}
	}
	slices.SortStableFunc(all, func(a, b v1alpha1.Advice) int { return cmp.Compare(severityRank(a.Severity), severityRank(b.Severity)) })
	return all[:min(len(all), maxAdvice)]
}

func severityRank(severity v1alpha1.Severity) int {
	return slices.Index([]v1alpha1.Severity{v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo}, severity)
}

// groupFindings returns the texts of the relevant findings, in order. Findings with the same text become one text with all fields.
func groupFindings(findings []finding, counts func(finding) bool) []string {
	groups := lists.Group(lists.Filter(findings, counts), func(f finding) string { return f.text })
	return lists.Each(groups, func(same []finding) string {
		fields := lists.Pick(same, func(f finding) (string, bool) { return f.field, f.field != "" })
		return text.CutBytes(text.Combine(": ", text.InOrder(fields, ", "), same[0].text), maxText)
	})
}

//go:embed rules.yaml
var rulesYAML []byte

// rules is sorted by ID; a test verifies this.
var rules = embedded.Parse[[]Rule]("rules of the advice", rulesYAML)

// checks has one entry for each rule without an explanation or signs; a test verifies this.
var checks = map[string]func(*scope){
	"actimeo-range":          actimeoRange,
	"canary-labels":          canaryLabels,
	"hash-below-default":     hashBelowDefault,
	"hash-clamped":           hashClamped,
	"hash-rounded":           hashRounded,
	"hash-small":             hashSmall,
	"known-bad-data":         func(s *scope) { s.addKnownBad(true) },
	"known-bad-kernel":       func(s *scope) { s.addKnownBad(false) },
	"lowers-kernel":          lowersKernel,
	"metadata-on-nfs41":      metadataOnNFS41,
	"nconnect-kernel":        nconnectKernel,
	"nconnect-single":        nconnectSingle,
	"nconnect-slots":         nconnectSlots,
	"option-default":         optionDefault,
	"port-range":             portRange,
	"read-ahead-below-rsize": readAheadBelowRsize,
	"read-ahead-memory":      readAheadMemory,
	"read-ahead-rule-file":   readAheadRuleFile,
	"read-ahead-tail":        readAheadTail,
	"read-ahead-window":      readAheadWindow,
	"rsize-granted":          rsizeGranted,
	"rsize-wsize":            rsizeWsize,
	ServerBudget:             serverBudget,
	"server-budget-exceeded": serverBudgetExceeded,
	"server-chunk":           serverChunk,
	"server-copy":            serverCopy,
	"server-sizes":           serverSizes,
	"slots-per-connection":   slotsPerConnection,
	"slots-sessions":         slotsSessions,
	"slots-spelling":         slotsSpelling,
	"tcp-buffers":            tcpBuffers,
	"tcp-mem":                tcpMem,
	"tcp-minimum":            tcpMinimum,
	"tuned-overlap":          tunedOverlap,
	"volumes-left-out":       volumesLeftOut,
	"xfs-memory":             xfsMemory,
}
