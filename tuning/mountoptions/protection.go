package mountoptions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// protection describes one kind of protection of a mount and the strength of each related option. The last of several
// related options wins.
type protection struct {
	name string
	// levels maps each related option, as it appears in the mount options, to its strength.
	levels map[string]level
	// initial is the effective value if the mount options do not contain a related option.
	initial standing
}

// level is the strength of an option: the minimum, and the maximum if the other side can choose. Only levels of the
// same protection are comparable.
type level struct{ minimum, maximum int }

func exactly(n int) level { return level{n, n} }

type protectionRow struct {
	Name string
	// Levels are the options from the weakest to the strongest; blanks separate options of the same strength. Spans are the levels of options
	// that let the other side choose.
	Levels []string
	Spans  map[string][2]int
	// Initial is the effective value if no option sets it, Level its strength.
	Initial string
	Level   int
}

func (r protectionRow) read() protection {
	p := protection{name: r.Name, levels: map[string]level{}, initial: standing{text: r.Initial, level: exactly(r.Level), known: true}}
	for i, options := range r.Levels {
		for option := range strings.FieldsSeq(options) {
			p.levels[option] = exactly(i)
		}
	}
	for option, span := range r.Spans {
		p.levels[option] = level{span[0], span[1]}
	}
	return p
}

// standing is the strength of a protection in a set of mount options.
type standing struct {
	// text is the effective value or flag.
	text string
	level
	// known reports whether the table contains the value.
	known bool
}

// read returns the standing of the options. If an option contains several flavors, server and client choose one.
func (p protection) read(options []Option) standing {
	s := p.initial
	for _, o := range options {
		if p.isAbout(o) {
			s = p.readOne(o)
		}
	}
	return s
}

// Protects reports whether an option affects a protection of the mount, regardless of its value.
func (p Protocol) Protects(option string) bool {
	o := parseOne(option)
	return slices.ContainsFunc(tableOf(p).protections, func(known protection) bool { return known.isAbout(o) })
}

func (p protection) isAbout(o Option) bool {
	for option := range p.levels {
		if parseOne(option).Name == o.Name {
			return true
		}
	}
	return false
}

func (p protection) readOne(o Option) standing {
	s := standing{text: o.Name, known: true}
	if o.HasValue {
		s.text = o.Value
	}
	for i, value := range strings.Split(o.Value, ":") {
		l, known := p.levels[Option{Name: o.Name, Value: value, HasValue: o.HasValue}.String()]
		s.known = s.known && known
		if i == 0 {
			s.level = l
		}
		s.level = level{min(s.minimum, l.minimum), max(s.maximum, l.maximum)}
	}
	return s
}

// isWeaker reports whether a standing is weaker than another one. If either value is unknown, a different value counts as weaker.
func (s standing) isWeaker(than standing) bool {
	switch {
	case s.text == than.text:
		return false
	case !s.known || !than.known:
		return true
	}
	return s.minimum < than.minimum || s.maximum < than.maximum
}

// Weakened returns the protections that become weaker if wanted follows floor in the options of a mount. The baseline is the floor, or
// the default if the floor does not set the protection. In each Difference, Desired is the new value and Observed the value that must
// not be weakened.
func (p Protocol) Weakened(floor, wanted []string) []Difference {
	return tableOf(p).weakened(Parse(floor), Parse(wanted))
}

func (t *table) weakened(floor, wanted []Option) (out []Difference) {
	for _, p := range t.protections {
		have, get := p.read(floor), p.read(slices.Concat(floor, wanted))
		if get.isWeaker(have) {
			out = append(out, Difference{Option: p.name, Desired: get.text, Observed: have.text, Message: "the operator never weakens a mount", Weaker: true})
		}
	}
	return out
}

// withoutWeaker omits desired options that make a mount weaker than its floor options, regardless of the conflict policy.
func (t *table) withoutWeaker(floor, wanted []Option) (remaining []Option, skipped []Difference) {
	weaker := map[string]bool{}
	for _, o := range wanted {
		group := t.groupOf(o)
		if _, isEvaluated := weaker[group]; !isEvaluated {
			lost := t.weakened(floor, t.inGroup(wanted, group))
			weaker[group] = len(lost) > 0
			skipped = append(skipped, lost...)
		}
		if !weaker[group] {
			remaining = append(remaining, o)
		}
	}
	return remaining, skipped
}

// CheckProtection warns about options of a rule that are left out because they would weaken volumes. Options that are
// weaker than the default are left out of all volumes that do not have them. If the rule replaces values, weaker
// options are left out of stricter volumes.
func (p Protocol) CheckProtection(options []string, policy v1alpha1.ConflictPolicy) []Problem {
	t := tableOf(p)
	var problems []Problem
	for _, option := range options {
		o := parseOne(option)
		below, stricter := t.weakened(nil, []Option{o}), t.stricterThan(o)
		replaces := policy == v1alpha1.ConflictUseProfile || policy == v1alpha1.ConflictUseProfileOverClass
		var message string
		switch {
		case t.validateOption(option, o) != "":
		case len(below) > 0:
			message = fmt.Sprintf("is left out: mounts have %s=%s by default, which is stronger, and the operator never weakens a mount; only a "+
				"volume itself can set it",
				below[0].Option, below[0].Observed)
		case replaces && len(stricter) > 0:
			message = fmt.Sprintf("is left out for volumes with %s: the operator never weakens a mount, regardless of onConflict", text.List(stricter))
		}
		if message != "" {
			problems = append(problems, Problem{Option: option, Message: message, Warning: true})
		}
	}
	return problems
}

// stricterThan returns the options that a rule must not replace with the given option.
func (t *table) stricterThan(o Option) (out []string) {
	for _, p := range t.protections {
		if !p.isAbout(o) {
			continue
		}
		for option := range p.levels {
			if p.readOne(o).isWeaker(p.readOne(parseOne(option))) {
				out = append(out, option)
			}
		}
	}
	return out
}
