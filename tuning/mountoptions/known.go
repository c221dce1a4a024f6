package mountoptions

import (
	"cmp"
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Known describes one option to people.
type Known struct {
	// Name is the option's name, and Key what it is about: options with one key are one thing.
	Name, Key string
	// Values says which values it takes; empty for a flag.
	Values string
	// Default is the kernel's own value of Key; empty if it depends on server or node, or if there is none.
	Default string
	// TakesEffect says when a changed value takes effect.
	TakesEffect v1alpha1.SettingEffect
	// Refused says why no profile may set it, Hazard what users who set it are warned of.
	Refused, Hazard string
	// Note is worth knowing, but no warning.
	Note string
	// Since is the first kernel that has the option; empty if all from 5.10 to 7.3 have it.
	Since string
	// Source is where this is known from.
	Source string
}

// Known returns what is known of a protocol's options, sorted by name.
func (p Protocol) Known() []Known {
	t := tableOf(p)
	var all []Known
	for name, s := range t.specs {
		known := Known{Name: name, Key: s.key, TakesEffect: p.Effect(name), Hazard: s.warning, Note: s.note, Since: s.since, Source: t.source,
			Values: s.values(), Default: cmp.Or(s.initial, t.timerDefaults[s.key], t.hidden[s.key])}
		all = append(all, known)
	}
	reasons := maps.Clone(refused)
	maps.Copy(reasons, t.refused)
	for name, reason := range reasons {
		all = append(all, Known{Name: name, Key: name, Refused: reason, Source: t.source})
	}
	slices.SortFunc(all, func(a, b Known) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Knows says whether an option is one of the protocol's, whether or not a profile may ask for it.
func (p Protocol) Knows(option string) bool {
	t, o := tableOf(p), parseOne(option)
	_, known := t.specs[o.Name]
	return known || t.refusal(o) != ""
}
