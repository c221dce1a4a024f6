package advice

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// scope is the prepared input of the rules.
type scope struct {
	Input
	node     v1alpha1.NodeTuning
	settings map[string]string
	volumes  []volumeRule
	// found contains the findings of the rule that is being checked.
	found []finding
}

type volumeRule struct {
	*v1alpha1.VolumeRule
	// field is the path of the rule's mount options.
	field     string
	protocols []mountoptions.Protocol
	options   []mountoptions.Option
	transport mountoptions.TransportOptions
}

func newScope(in Input) *scope {
	s := &scope{Input: in}
	if in.Profile.Spec.Node != nil {
		s.node = *in.Profile.Spec.Node
	}
	s.settings = lists.Map(nodesettings.Settings(in.Profile), func(s v1alpha1.NodeSetting) (string, string) { return s.Key, s.Value })
	for i := range in.Profile.Spec.Volumes {
		rule := &in.Profile.Spec.Volumes[i]
		options := nodesettings.Options(rule.MountOptions)
		s.volumes = append(s.volumes, volumeRule{
			VolumeRule: rule, field: fmt.Sprintf("spec.volumes[%d].mountOptions", i),
			protocols: nodesettings.Protocols(rule),
			options:   mountoptions.Parse(options), transport: mountoptions.NFS.Transport(options),
		})
	}
	return s
}

// rulesOf returns the volume rules of a protocol for all clients. For XFS, it also returns the file systems of the node.
func (s *scope) rulesOf(protocol mountoptions.Protocol) (rules []volumeRule) {
	if protocol == mountoptions.XFS {
		rules = s.filesystems()
	}
	ofProtocol := func(p mountoptions.Protocol) bool { return p.Kernel() == protocol }
	return append(rules, lists.Filter(s.volumes, func(rule volumeRule) bool { return slices.ContainsFunc(rule.protocols, ofProtocol) })...)
}

// filesystems returns the XFS file systems of the node as volume rules.
func (s *scope) filesystems() (rules []volumeRule) {
	for i, f := range s.node.Filesystems {
		if f.FSType != "xfs" {
			continue
		}
		rules = append(rules, volumeRule{
			VolumeRule: &v1alpha1.VolumeRule{MountOptions: f.MountOptions}, field: fmt.Sprintf("spec.node.filesystems[%d].mountOptions", i),
			protocols: []mountoptions.Protocol{mountoptions.XFS}, options: mountoptions.Parse(nodesettings.Options(f.MountOptions)),
		})
	}
	return rules
}

func (r volumeRule) lastValue(name string) (value string, ok bool) {
	for _, o := range r.options {
		if o.Name == name {
			value, ok = o.Value, true
		}
	}
	return value, ok
}

func (r volumeRule) lastNumber(name string) (int64, bool) {
	value, ok := r.lastValue(name)
	n, err := strconv.ParseInt(value, 10, 64)
	return n, ok && err == nil
}

func (r volumeRule) fieldOf(name string) string {
	for i, option := range r.MountOptions {
		if optionName, _, _ := strings.Cut(string(option), "="); optionName == name {
			return fmt.Sprintf("%s[%d]", r.field, i)
		}
	}
	return r.field
}

func (s *scope) check(rule Rule) []finding {
	s.found = nil
	for _, sign := range rule.Signs {
		s.findSign(sign)
	}
	if find := checks[rule.ID]; find != nil {
		find(s)
	}
	return s.found
}

func (s *scope) add(field, text string) { s.found = append(s.found, finding{field, text}) }

func (s *scope) findSign(sign Sign) {
	for _, declaration := range sign.Sysctls {
		name, want, hasValue := strings.Cut(declaration, "=")
		if field, value, ok := s.sysctl(name); ok && (!hasValue || value == want) {
			s.add(field, sign.Text)
		}
	}
	for _, rule := range s.rulesOf(sign.Protocol) {
		if sign.UnlessPicked && IsPicked(&rule.Selector) ||
			len(sign.Drivers) > 0 && !slices.ContainsFunc(sign.Drivers, func(d string) bool { return slices.Contains(rule.Selector.Drivers, d) }) {
			continue
		}
		for _, declaration := range sign.Options {
			name, want, hasValue := strings.Cut(declaration, "=")
			if value, ok := rule.lastValue(name); ok && (!hasValue || value == want) {
				s.add(rule.fieldOf(name), sign.Text)
			}
		}
	}
}

// sysctl returns the path and the value of a sysctl in sysctls or sysctlsAtLeast.
func (s *scope) sysctl(name string) (field, value string, ok bool) {
	wire, ok := s.settings[catalogue.SysctlKey(name)]
	v := catalogue.ParseValue(wire)
	if v.AtLeast {
		return "spec.node.sysctlsAtLeast[" + name + "]", v.Text, ok
	}
	return sysctlField(name), v.Text, ok
}

func sysctlField(name string) string { return "spec.node.sysctls[" + name + "]" }

type hashTable struct {
	field, argument string
	entries         int64
}

// hashTables returns the hash tables whose size the profile sets.
func (s *scope) hashTables() (tables []hashTable) {
	for i, argument := range s.node.KernelArguments {
		name, value, _ := strings.Cut(string(argument), "=")
		if entries, err := strconv.ParseInt(value, 10, 64); err == nil && (name == "ihash_entries" || name == "dhash_entries") {
			tables = append(tables, hashTable{fmt.Sprintf("spec.node.kernelArguments[%d]", i), name, entries})
		}
	}
	return tables
}

// allReadAheads returns the read-ahead sizes in KiB, with the path of the field.
func (s *scope) allReadAheads() (all []readAheadSize) {
	for i, entry := range s.node.ReadAhead {
		ofNetwork := slices.ContainsFunc(entry.FSTypes, func(t string) bool { return strings.HasPrefix(t, "nfs") || t == "cifs" })
		all = append(all, readAheadSize{fmt.Sprintf("spec.node.readAhead[%d].sizeKiB", i), int64(entry.SizeKiB), ofNetwork})
	}
	for i := range s.Profile.Spec.Volumes {
		if size := s.Profile.Spec.Volumes[i].ReadAheadKiB; size != nil {
			all = append(all, readAheadSize{fmt.Sprintf("spec.volumes[%d].readAheadKiB", i), int64(*size), true})
		}
	}
	return all
}

// readAheads returns the sizes of network mounts.
func (s *scope) readAheads() []readAheadSize {
	return lists.Filter(s.allReadAheads(), func(ahead readAheadSize) bool { return ahead.ofNetwork })
}

type readAheadSize struct {
	field     string
	kib       int64
	ofNetwork bool
}

// rsizes returns the declared sizes of READ requests in bytes, sorted. Like the kernel, it limits them and rounds them down to pages. If no
// rule declares a size, it returns the kernel's maximum.
func (s *scope) rsizes() []int64 {
	all := lists.Pick(s.rulesOf(mountoptions.NFS), func(rule volumeRule) (int64, bool) {
		n, ok := rule.lastNumber("rsize")
		return min(n, maxTransfer) / pageBytes * pageBytes, ok && n >= pageBytes
	})
	if len(all) == 0 {
		return []int64{maxTransfer}
	}
	return lists.Distinct(all)
}

// smallestNode returns the node with the least memory. It ignores nodes with unknown memory.
func (s *scope) smallestNode() (Node, bool) {
	var smallest Node
	for _, node := range s.Nodes {
		if node.Memory > 0 && (smallest.Memory == 0 || node.Memory < smallest.Memory) {
			smallest = node
		}
	}
	return smallest, smallest.Memory > 0
}
