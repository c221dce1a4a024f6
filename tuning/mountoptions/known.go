package mountoptions

import (
	"cmp"
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Known describes one option for users.
type Known struct {
	// Name is the name of the option. Key is the subject of the option: options with the same key are synonyms or alternatives.
	Name, Key string
	// Values describes the accepted values. Empty for a flag.
	Values string
	// Default is the kernel's default for Key. Empty if there is none, or if it depends on the server or the node.
	Default string
	// TakesEffect is the event after which a changed value takes effect.
	TakesEffect v1alpha1.SettingEffect
	// Rejected is the reason why profiles must not set the option. Hazard is the warning for users who set it.
	Rejected, Hazard string
	// Note is additional information that is not a warning.
	Note string
	// Since is the first kernel that has the option. Empty if all kernels from 5.10 to 7.3 have it.
	Since string
	// Source is the source of this information.
	Source string
}

// Known returns all known options of a protocol, sorted by name.
func (p Protocol) Known() []Known {
	t := tableOf(p)
	var all []Known
	for name, s := range t.specs {
		known := Known{Name: name, Key: s.Key, TakesEffect: p.Effect(name), Hazard: s.Warning, Note: s.Note, Since: s.Since, Source: t.source,
			Values: s.values(), Default: cmp.Or(s.Initial, t.timerDefaults[s.Key], t.hidden[s.Key])}
		all = append(all, known)
	}
	reasons := maps.Clone(alwaysRejected)
	maps.Copy(reasons, t.rejected)
	for name, reason := range reasons {
		all = append(all, Known{Name: name, Key: name, Rejected: reason, Source: t.source})
	}
	slices.SortFunc(all, func(a, b Known) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Knows reports whether the protocol has an option, even if profiles must not set it.
func (p Protocol) Knows(option string) bool {
	t, o := tableOf(p), parseOne(option)
	_, known := t.specs[o.Name]
	return known || t.rejectionReason(o) != ""
}
