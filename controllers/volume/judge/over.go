package judge

import (
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// replaceable are the values of a volume that UseProfileOverClass may replace: values of its class, and values that it has already replaced as values
// of the class. Without the latter, deletion and re-creation of a class would change all of its volumes twice.
type replaceable struct {
	options []string
	// replaced are the options of the class that were replaced, by profile.
	replaced map[string][]string
	// unrecorded are the profiles of a volume that an earlier release wrote, without a record of replaced values.
	unrecorded []string
}

// replaceableOptions returns the options that UseProfileOverClass may replace.
func (s *scope) replaceableOptions() replaceable {
	out := replaceable{options: s.Class}
	if !slices.ContainsFunc(s.rules, rule.replacesClass) || !s.record.HasAppliedOptions(s.Volume) {
		return out
	}
	if s.mark = s.ownMark(); s.mark != nil && s.mark.Replaced != nil {
		out.replaced = s.mark.Replaced
	} else {
		out.unrecorded = s.record.Profiles
	}
	return out
}

// replacesClass reports whether the rule may replace values of the class alone. Values of a class that a rule follows count as the rule's.
func (r rule) replacesClass() bool {
	return r.OnConflict == v1alpha1.ConflictUseProfileOverClass && !r.follows()
}

// byProfile returns the replaced options of the class, by profile. Without a record, these are the values in place of which the volume has the
// value of the profile.
func (c replaceable) byProfile(t target, original, applied []string, rules []rule) map[string][]string {
	if len(c.unrecorded) == 0 {
		return c.replaced
	}
	out := map[string][]string{}
	for _, r := range rules {
		if !r.replacesClass() || !slices.Contains(c.unrecorded, r.profile.Name) {
			continue
		}
		for _, s := range t.options.Settings(r.options()) {
			if t.contains(applied, s.Option) {
				replaced := lists.Filter(t.rivalsIn(original, s.Option), func(o string) bool { return t.isRival(o, s.Option) && !t.contains(applied, o) })
				out[r.profile.Name] = append(out[r.profile.Name], replaced...)
			}
		}
	}
	return out
}

// disputedReplaced returns the replaced options that a dispute keeps, by profile. Nil if there is no dispute.
func (t target) disputedReplaced(before map[string][]string, rules []rule, disputed []string) map[string][]string {
	if len(disputed) == 0 {
		return nil
	}
	out := map[string][]string{}
	for _, name := range profileNames(rules) {
		isDisputed := func(o string) bool { return t.isAbout(o, disputed) }
		if options := lists.Filter(before[name], isDisputed); len(options) > 0 {
			out[name] = options
		}
	}
	return out
}

// recordReplaced records the options that the merge of a rule replaced.
func (m *merged) recordReplaced(r rule, options []string) {
	if m.replaced == nil && len(options) > 0 {
		m.replaced = map[string][]string{}
	}
	if r.replacesClass() && len(options) > 0 {
		m.replaced[r.profile.Name] = append(m.replaced[r.profile.Name], options...)
	}
}

// isReplacedRecorded reports whether the record of replaced values is as the merge requires. Without a record, no write is necessary.
func (s *scope) isReplacedRecorded() bool {
	return s.mark == nil || s.mark.Replaced == nil || s.merged.replaced == nil || maps.EqualFunc(s.mark.Replaced, s.merged.replaced, slices.Equal)
}
