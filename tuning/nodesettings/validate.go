package nodesettings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/windows"
)

// Problem is an error or a warning about a field of a profile.
type Problem struct {
	// Field is the path of the field, e.g. spec.node.sysctls[net.core.rmem_max].
	Field string
	// Value is the value in the profile.
	Value string
	// Message describes a valid value.
	Message string
	// Warning reports whether the profile works but may not have the expected effect.
	Warning bool
}

// String returns the problem in one line.
func (p Problem) String() string { return fmt.Sprintf("%s: %q: %s", p.Field, p.Value, p.Message) }

// Validate returns the problems of a profile that is valid by the schema of the API. It finds settings that neither the catalogue
// nor the allow-list admits, that are out of range, or that contradict each other. It also finds mount options that can never
// work, selectors that select nothing by mistake, and windows that never open. A profile with a problem other than a warning is
// not applied.
func Validate(p *v1alpha1.StorageClientProfile, allow catalogue.AllowList) []Problem {
	return slices.Concat(checkSelectors(p), checkSettings(p, allow), checkCoupled(p), checkSlots(p), checkVolumes(p), checkWindows(p))
}

func checkSettings(p *v1alpha1.StorageClientProfile, allow catalogue.AllowList) (problems []Problem) {
	first := map[string]declaration{}
	for _, d := range declarations(p, profileNconnect(p)) {
		if catalogue.ParseValue(d.text).AtLeast {
			problems = append(problems, Problem{Field: d.field, Value: d.text, Message: "declare it in spec.node.sysctlsAtLeast, with only the numbers"})
			continue
		}
		if err := allow.Check(d.key, d.value); err != nil {
			message := reasonOf(err)
			if d.field == sysctlField(sysctlTCPMaxSlots) {
				message += ", or " + v1alpha1.FromNconnect
			}
			problems = append(problems, Problem{Field: d.field, Value: d.text, Message: message})
			continue
		}
		before, seen := first[d.key]
		switch {
		case seen && (before.value != d.value || TakesEffectAtBoot(d.key) || before.isDerived() || d.isDerived()):
			problems = append(problems, Problem{Field: d.field, Value: d.text,
				Message: fmt.Sprintf("contradicts %s, which is %q: remove one of them", before.field, before.text)})
		case !seen:
			first[d.key] = d
			if parameter, ok := catalogue.Lookup(d.key); ok && parameter.Warning(d.value) != "" {
				problems = append(problems, Problem{Field: d.field, Value: d.text, Message: parameter.Warning(d.value), Warning: true})
			}
			for _, found := range catalogue.OptionWarnings(d.key, d.value) {
				problems = append(problems, Problem{Field: d.field, Value: found.Option, Message: found.Message, Warning: true})
			}
		}
	}
	if len(first) > MaxSettings {
		problems = append(problems, Problem{Field: "spec.node", Value: strconv.Itoa(len(first)),
			Message: fmt.Sprintf("a node can have at most %d settings", MaxSettings)})
	}
	return problems
}

// checkCoupled finds sysctls that would reset each other indefinitely.
func checkCoupled(p *v1alpha1.StorageClientProfile) (problems []Problem) {
	declaredByKey := lists.Map(declarations(p, 0), func(d declaration) (string, declaration) { return d.key, d })
	for _, key := range slices.Sorted(maps.Keys(declaredByKey)) {
		one := declaredByKey[key]
		if other, both := declaredByKey[catalogue.CounterpartKey(key)]; both && key < other.key {
			problems = append(problems, Problem{Field: one.field, Value: one.text,
				Message: fmt.Sprintf("excludes %s, which is %q: setting one sets the other to 0; remove one of them", other.field, other.text)})
		}
	}
	return problems
}

func reasonOf(err error) string {
	var settingErr *catalogue.Error
	if errors.As(err, &settingErr) {
		return settingErr.Reason
	}
	return err.Error()
}

func checkVolumes(p *v1alpha1.StorageClientProfile) (problems []Problem) {
	for i := range p.Spec.Volumes {
		rule := &p.Spec.Volumes[i]
		options := Options(rule.MountOptions)
		protocols := protocolsOf(&rule.Selector, options)
		for _, found := range slices.Concat(checkOptions(protocols, options), checkDrivers(&rule.Selector, protocols, options),
			checkProtection(protocols, options, rule.OnConflict)) {
			field := fmt.Sprintf("spec.volumes[%d].mountOptions", i)
			if at := slices.Index(options, found.Option); at >= 0 {
				field = fmt.Sprintf("%s[%d]", field, at)
			}
			problems = append(problems, Problem{Field: field, Value: found.Option, Message: found.Message, Warning: found.Warning})
		}
		problems = append(problems, checkReadAhead(rule, fmt.Sprintf("spec.volumes[%d].readAheadKiB", i))...)
	}
	return problems
}

// checkReadAhead reports volumes whose read-ahead cannot be set for each volume.
func checkReadAhead(rule *v1alpha1.VolumeRule, field string) (problems []Problem) {
	if rule.ReadAheadKiB == nil {
		return nil
	}
	warn := func(message string) {
		problems = append(problems, Problem{Field: field, Value: strconv.Itoa(int(*rule.ReadAheadKiB)), Message: message, Warning: true})
	}
	if slices.Contains(rule.Selector.Protocols, v1alpha1.ProtocolSMB) {
		warn("has no effect on SMB: use the mount option rasize instead")
	}
	if otherTypes := slices.DeleteFunc(slices.Clone(rule.Selector.FSTypes), func(t string) bool { return t == "xfs" }); len(otherTypes) > 0 {
		warn(fmt.Sprintf("affects only XFS among file systems on block devices, not %s", strings.Join(otherTypes, ", ")))
	}
	return problems
}

// checkSelectors finds problems that the schema of the API accepts: an unknown operator, or an operator without the values that it
// needs.
func checkSelectors(p *v1alpha1.StorageClientProfile) (problems []Problem) {
	check := func(field string, selector *metav1.LabelSelector) {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			problems = append(problems, Problem{Field: field, Message: err.Error()})
		}
	}
	check("spec.nodeSelector", &p.Spec.NodeSelector)
	for i := range p.Spec.Volumes {
		selector := &p.Spec.Volumes[i].Selector
		check(fmt.Sprintf("spec.volumes[%d].selector.volumeSelector", i), selector.VolumeSelector)
		check(fmt.Sprintf("spec.volumes[%d].selector.claimSelector", i), selector.ClaimSelector)
	}
	check("spec.rollout.drain.waitForPodSelector", p.Spec.Rollout.Drain.WaitForPodSelector)
	if canary := p.Spec.Rollout.Canary; canary != nil {
		check("spec.rollout.canary.nodeSelector", canary.NodeSelector)
	}
	return problems
}

func checkWindows(p *v1alpha1.StorageClientProfile) (problems []Problem) {
	for i, window := range p.Spec.Rollout.Windows {
		parsed, err := windows.Parse(window)
		var fieldErr *windows.FieldError
		if errors.As(err, &fieldErr) {
			field := fmt.Sprintf("spec.rollout.windows[%d].%s", i, fieldErr.Field)
			problems = append(problems, Problem{Field: field, Value: fieldErr.Value, Message: fieldErr.Reason})
		} else if days := parsed.EitherDay(); days != "" {
			problems = append(problems, Problem{
				Field: fmt.Sprintf("spec.rollout.windows[%d].schedule", i), Value: window.Schedule, Warning: true,
				Message: "opens " + days + ", because cron combines the two day fields by or; set one of them to *",
			})
		}
	}
	return problems
}

// checkSlots reports slot tables that have no effect, or another effect than expected.
func checkSlots(p *v1alpha1.StorageClientProfile) (problems []Problem) {
	nconnect := profileNconnect(p)
	warn := func(d declaration, message string) {
		problems = append(problems, Problem{Field: d.field, Value: d.text, Message: message, Warning: true})
	}
	tables := map[string]int{}
	for _, d := range declarations(p, nconnect) {
		if d.key != keyTCPSlots && d.key != keyTCPMaxSlots {
			continue
		}
		tables[d.key], _ = strconv.Atoi(d.value)
		if sessionsOnly(p) {
			warn(d, "has no effect: the volumes use NFSv4.1 or 4.2 only; set max_session_slots of the module nfs")
		}
		if initial, limit := tables[keyTCPSlots], tables[keyTCPMaxSlots]; limit > 0 && initial > limit {
			warn(d, fmt.Sprintf("has no effect: a connection starts with %d slots, more than this limit of %d", initial, limit))
		}
	}
	if node := p.Spec.Node; node != nil && node.Sysctls[sysctlTCPMaxSlots] == v1alpha1.FromNconnect && SlotsFor(nconnect) == 0 {
		warn(declaration{field: sysctlField(sysctlTCPMaxSlots), text: v1alpha1.FromNconnect},
			fmt.Sprintf("has no effect with nconnect=%d: the table ends at 8, and each connection may have 65536 requests in flight", nconnect))
	}
	return problems
}

// sessionsOnly reports whether every rule of the profile requests a version of NFS with sessions.
func sessionsOnly(p *v1alpha1.StorageClientProfile) bool {
	return len(p.Spec.Volumes) > 0 && !slices.ContainsFunc(p.Spec.Volumes, func(rule v1alpha1.VolumeRule) bool {
		version := mountoptions.NFS.Transport(Options(rule.MountOptions)).Version
		return version != "4.1" && version != "4.2"
	})
}

// restricted is the namespace of labels that only an administrator may set on a Node.
const restricted = "node-restriction.kubernetes.io"

// KubeletLabels returns the label keys of a selector that a kubelet may set on its own Node, sorted: all except labels with the prefix that the
// admission plugin NodeRestriction reserves (kubernetes plugin/pkg/admission/noderestriction). A nil selector has none.
func KubeletLabels(selector *metav1.LabelSelector) []string {
	if selector == nil {
		return nil
	}
	required := lists.Each(selector.MatchExpressions, func(expression metav1.LabelSelectorRequirement) string { return expression.Key })
	return slices.DeleteFunc(lists.Distinct(slices.Collect(maps.Keys(selector.MatchLabels)), required), func(key string) bool {
		namespace, _, _ := strings.Cut(key, "/")
		return namespace == restricted || strings.HasSuffix(namespace, "."+restricted)
	})
}
