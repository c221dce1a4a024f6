// Package advice holds rules across settings: what a profile's options and parameters mean together, and on its nodes. A rule
// never keeps a profile from being applied; package nodesettings refuses what can never work.
//
// It is pure: no cluster, no host, no clock.
package advice

import (
	"cmp"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxAdvice is how much advice a profile's status holds.
	maxAdvice = 50
	// maxText is the longest text that the API takes, in bytes.
	maxText = 1024
)

// Input is what the rules read. What is unknown is left empty, and rules that need it stay silent.
type Input struct {
	// Profile is the profile to give advice on.
	Profile *v1alpha1.StorageClientProfile
	// Nodes are the nodes that it selects.
	Nodes []Node
	// Servers are the servers of the volumes that it matches.
	Servers []Server
	// LeftOut are volumes that none of its rules selects, since nothing is known of their drivers, and that a rule may mean.
	LeftOut []LeftOut
}

// LeftOut are such volumes of one driver.
type LeftOut struct {
	// Driver is its name, empty where not even that is known; LooksLike is what the volumes seem to be, empty where nothing tells.
	Driver    string
	LooksLike v1alpha1.VolumeProtocol
	// Count is how many there are, Example the first of them by name.
	Count   int
	Example string
}

// CountLeftOut is how many volumes are left out in all.
func CountLeftOut(all []LeftOut) int {
	sum := 0
	for _, l := range all {
		sum += l.Count
	}
	return sum
}

// Node is what a rule may know of a node.
type Node struct {
	// Name is the node's name.
	Name string
	// Kernel is the release of its kernel, as uname -r prints it.
	Kernel string
	// Memory is its memory in bytes, MemTotal of /proc/meminfo; 0 where it is not known.
	Memory int64
	// Settings are what its agent reports of its settings; empty where none has yet. The rules read keys and originals.
	Settings []v1alpha1.SettingStatus
	// Sockets is how many TCP sockets are in use on it, "inuse" of /proc/net/sockstat; 0 where it is not known.
	Sockets int64
}

// Server is what a rule may know of a server.
type Server struct {
	// Name is its host name or address.
	Name string
	// Version is the version of NFS that its volumes ask for; empty where mount negotiates it.
	Version string
	// Nconnect is the largest number of connections per node that its volumes ask for; under 1 counts as 1.
	Nconnect int
}

// Rule is one thing to look for.
type Rule struct {
	// ID is the rule's name. It does not change from one release to the next.
	ID string
	// Severity is Error for what hurts, Warning for what is probably not meant, Info for what is worth knowing.
	Severity v1alpha1.Severity
	// Title says in one sentence what the rule is about.
	Title string
	// Source is where that is known from.
	Source string
	// CheckedElsewhere is true if other checks warn of the same at admission: those of single settings and of consistency.
	CheckedElsewhere bool
	// Explanation is what a rule says that restates a document, and nothing of any one profile or its nodes: whoever asks for it
	// is told, and it is no advice. Empty for all other rules.
	Explanation string

	check func(*scope) []finding
}

// finding is one place where a rule applies.
type finding struct {
	// field is the path of the field; empty where no single field is meant.
	field string
	text  string
}

// Rules are all rules, sorted by ID.
func Rules() []Rule { return slices.Clone(rules) }

// For returns the advice on a profile: errors first, then by rule. There is one entry for each text of a rule.
func For(in Input) []v1alpha1.Advice {
	return collectAdvice(in, func(Rule) bool { return true }, func(finding) bool { return true })
}

// nodeFields is what the fields begin with that are for nodes.
const nodeFields = "spec.node."

// ForNode returns the advice on the fields of a profile that are for nodes, on one node.
func ForNode(profile *v1alpha1.StorageClientProfile, node Node) []v1alpha1.Advice {
	return collectAdvice(Input{Profile: profile, Nodes: []Node{node}}, func(Rule) bool { return true },
		func(f finding) bool { return strings.HasPrefix(f.field, nodeFields) })
}

// ForAdmission returns the advice that a user should see when a profile is created or changed, and that the check of
// single settings does not give: warnings and errors.
func ForAdmission(profile *v1alpha1.StorageClientProfile) []v1alpha1.Advice {
	return collectAdvice(Input{Profile: profile}, func(r Rule) bool { return !r.CheckedElsewhere && r.Severity != v1alpha1.SeverityInfo },
		func(finding) bool { return true })
}

func collectAdvice(in Input, wanted func(Rule) bool, counts func(finding) bool) []v1alpha1.Advice {
	s := newScope(in)
	var all []v1alpha1.Advice
	for _, rule := range rules {
		if rule.Explanation != "" || !wanted(rule) {
			continue
		}
		for _, text := range groupFindings(rule.check(s), counts) {
			all = append(all, v1alpha1.Advice{ID: rule.ID, Severity: rule.Severity, Text: text})
		}
	}
	slices.SortStableFunc(all, func(a, b v1alpha1.Advice) int { return cmp.Compare(severityRank(a.Severity), severityRank(b.Severity)) })
	return all[:min(len(all), maxAdvice)]
}

func severityRank(severity v1alpha1.Severity) int {
	return slices.Index([]v1alpha1.Severity{v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo}, severity)
}

// groupFindings makes one text of all findings that count and say the same, in the order in which they were found.
func groupFindings(findings []finding, counts func(finding) bool) []string {
	var texts []string
	fields := map[string][]string{}
	for _, f := range findings {
		if !counts(f) {
			continue
		}
		if _, met := fields[f.text]; !met {
			texts = append(texts, f.text)
			fields[f.text] = nil
		}
		if f.field != "" {
			fields[f.text] = append(fields[f.text], f.field)
		}
	}
	for i, said := range texts {
		if named := fields[said]; len(named) > 0 {
			texts[i] = text.InOrder(named, ", ") + ": " + said
		}
		texts[i] = text.CutBytes(texts[i], maxText)
	}
	return texts
}
