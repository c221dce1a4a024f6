package mountoptions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
)

var (
	protocols = []Protocol{NFS, SMB, XFS, Generic}
	policies  = []v1alpha1.ConflictPolicy{keepVolume, overClass, useProfile}
)

// drawKnown draws a list of known options with valid values, and of some unknown options.
func drawKnown(t *rapid.T, p Protocol, label string) []string {
	table := tableOf(p)
	names := append(slices.Sorted(maps.Keys(table.specs)), "x-own", "strange=1", "suid")
	option := rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom(names).Draw(t, "name")
		s, known := table.specs[name]
		switch {
		case !known || s.Kind == flag:
			return name
		case s.Kind == count:
			return fmt.Sprintf("%s=%d", name, rapid.SampledFrom([]int64{s.Min, s.Max, min(s.Min+7, s.Max)}).Draw(t, "count"))
		case s.Kind == size:
			return fmt.Sprintf("%s=%s", name, rapid.SampledFrom([]string{"32k", "32768", "256k"}).Draw(t, "size"))
		}
		return name + "=" + rapid.SampledFrom(s.Words).Draw(t, "word")
	})
	return rapid.SliceOfN(option, 0, 8).Draw(t, label)
}

func TestMergePropertiesOfEveryProtocol(t *testing.T) {
	for _, p := range protocols {
		t.Run(string(p), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				checkMerge(t, p, rapid.SampledFrom(policies).Draw(t, "policy"),
					drawKnown(t, p, "current"), drawKnown(t, p, "wanted"), drawKnown(t, p, "class"))
			})
		})
	}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkMerge checks properties of every merge: one merge is enough, options are not repeated, unaffected options stay, and rejected
// options are not added. Repeated options keep their meaning.
func checkMerge(t failer, p Protocol, policy v1alpha1.ConflictPolicy, current, desired, class []string) {
	t.Helper()
	table := tableOf(p)
	got := p.Merge(current, desired, policy, class)
	if again := p.Merge(got.Options, desired, policy, class); again.Changed || !slices.Equal(again.Options, got.Options) {
		t.Fatalf("%s: %q and %q: got %q, then %q", p, current, desired, got.Options, again.Options)
	}
	if !got.Changed {
		if !slices.Equal(got.Options, current) {
			t.Fatalf("%s: got Changed false for %q, but options %q", p, current, got.Options)
		}
		return
	}
	original, merged := Parse(current), Parse(got.Options)
	if len(lastOfEach(merged)) != len(merged) {
		t.Fatalf("%s: got a repetition in %q", p, got.Options)
	}
	affected := map[string]bool{}
	for _, o := range Parse(desired) {
		if table.rejectionReason(o) == "" {
			affected[table.groupOf(o)] = true
		}
	}
	// Repeated options of a group may be written again with the same meaning: actimeo of SMB has no effect after a timer.
	isWrittenAgain := func(group string) bool {
		before, after := table.inGroup(original, group), table.inGroup(merged, group)
		return len(lastOfEach(before)) != len(before) && maps.Equal(table.resolve(before), table.resolve(after))
	}
	for _, o := range original {
		group := table.groupOf(o)
		if !affected[group] && !(table.OneVersionOnly && group == keyVersion) && !slices.Contains(merged, o) && !isWrittenAgain(group) {
			t.Fatalf("%s: got no %q in %q", p, o.String(), got.Options)
		}
	}
	for _, o := range merged {
		if !slices.Contains(original, o) && !isWrittenAgain(table.groupOf(o)) && (table.rejectionReason(o) != "" || !affected[table.groupOf(o)] && table.groupOf(o) != keyVersion) {
			t.Fatalf("%s: got the unexpected option %q in %q", p, o.String(), got.Options)
		}
	}
	if differences := p.Compare(got.Options, nil); len(differences) > len(merged)+len(table.Timers) {
		t.Fatalf("%s: got %d differences of %d options", p, len(differences), len(merged))
	}
}

// Volumes can contain any options, because they are not validated.
func TestMergeOfAnything(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune(`ahv4=,"x- 0k`)))
	list := rapid.SliceOfN(rapid.OneOf(text, rapid.SampledFrom([]string{"vers=4", "minorversion=1", "actimeo=30", "acregmax=", "noac", "logbsize=1k"})), 0, 5)
	rapid.Check(t, func(t *rapid.T) {
		checkMerge(t, rapid.SampledFrom(protocols).Draw(t, "protocol"), rapid.SampledFrom(policies).Draw(t, "policy"),
			list.Draw(t, "current"), list.Draw(t, "wanted"), list.Draw(t, "class"))
	})
}

// A mount that shows exactly the desired options has no differences.
func TestCompareWithItself(t *testing.T) {
	for _, p := range protocols {
		t.Run(string(p), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				desired := slices.DeleteFunc(drawKnown(t, p, "wanted"), func(o string) bool { return strings.HasPrefix(o, "timeo=") })
				if got := p.Compare(desired, desired); len(got) > 0 {
					t.Fatalf("%q: got differences from itself: %+v", desired, got)
				}
			})
		})
	}
}

func FuzzMergeAndCompare(f *testing.F) {
	f.Add(uint8(0), uint8(0), "hard\nnconnect=8,x-own", "actimeo=30\nnocto", "hard")
	f.Add(uint8(1), uint8(2), "acregmax=60\nactimeo=30", "acdirmax=5\nvers=3.1.1", "")
	f.Add(uint8(2), uint8(1), `context="a,b"`+"\nlogbsize=32k", "logbsize=256k\nnoatime", "logbsize=32768")
	f.Add(uint8(3), uint8(0), "relatime\n\n,", "noatime", "")
	f.Add(uint8(0), uint8(2), "vers=4\nminorversion=1\nv3", "nfsvers=4.2\nnoac", "noac")
	f.Fuzz(func(t *testing.T, protocol, policy uint8, current, desired, class string) {
		p := protocols[int(protocol)%len(protocols)]
		original, want := strings.Split(current, "\n"), strings.Split(desired, "\n")
		checkMerge(t, p, policies[int(policy)%len(policies)], original, want, strings.Split(class, "\n"))
		for _, problem := range Validate(p, want) {
			if problem.Message == "" {
				t.Fatalf("got a problem without a message: %+v", problem)
			}
		}
		p.Compare(want, original)
		p.Unverifiable(want)
		p.AlteredOptions(original, want)
	})
}
