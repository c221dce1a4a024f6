package mountoptions

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	keepVolume    = v1alpha1.ConflictKeepVolume
	overClass     = v1alpha1.ConflictUseProfileOverClass
	useProfile    = v1alpha1.ConflictUseProfile
	azureProfile  = "actimeo=30 nconnect=4"
	unrelatedOnly = "hard proto=tcp x-own"
)

func TestMerge(t *testing.T) {
	for name, test := range map[string]struct {
		current, desired string // blank-separated
		policy           v1alpha1.ConflictPolicy
		class            string
		want             string
		skipped          string // "option:desired:original", blank-separated
	}{
		"an empty volume gets everything": {desired: azureProfile, want: azureProfile},
		"new options go to the end":       {current: unrelatedOnly, desired: azureProfile, want: unrelatedOnly + " " + azureProfile},
		"no desired options, no changes":  {current: "hard nocto hard vers=3 vers=4", want: "hard nocto hard vers=3 vers=4"},
		"options that the volume already has stay": {
			current: "nconnect=4 hard actimeo=30", desired: azureProfile, want: "nconnect=4 hard actimeo=30",
		},
		"another value of the volume is kept":            {current: "nconnect=8 hard", desired: azureProfile, want: "nconnect=8 hard actimeo=30", skipped: "nconnect:4:8"},
		"the profile's value replaces it":                {current: "nconnect=8 hard", desired: azureProfile, policy: useProfile, want: "nconnect=4 hard actimeo=30"},
		"an unknown option is kept":                      {current: "x-own=1 strange", desired: "nocto", want: "x-own=1 strange nocto"},
		"a list in one entry is understood":              {current: "hard,nconnect=8,x-own", desired: "nconnect=4", policy: useProfile, want: "hard nconnect=4 x-own"},
		"a repetition is dropped":                        {current: "hard nocto hard", desired: "nocto", want: "nocto hard"},
		"a contradiction that no desired option affects": {current: "hard soft", desired: "nocto", want: "hard soft nocto"},
		"a contradiction that a desired option affects":  {current: "hard soft", desired: "soft", want: "soft"},

		"a value from the class may go":              {current: "nconnect=8", desired: "nconnect=4", policy: overClass, class: "nconnect=8", want: "nconnect=4"},
		"a value from the volume itself may not":     {current: "nconnect=8", desired: "nconnect=4", policy: overClass, class: "nconnect=2", want: "nconnect=8", skipped: "nconnect:4:8"},
		"the class has the same in another spelling": {current: "acregmin=60 acregmax=60 acdirmin=60 acdirmax=60", desired: "actimeo=30", policy: overClass, class: "actimeo=60", want: "actimeo=30"},
		"the class has some of the timers":           {current: "actimeo=60", desired: "actimeo=30", policy: overClass, class: "acregmax=60", want: "acregmin=60 acregmax=30 acdirmin=60 acdirmax=60", skipped: "acregmin:30:60 acdirmin:30:60 acdirmax:30:60"},

		"hard against soft is one key":       {current: "soft", desired: "hard", want: "soft", skipped: "hard:hard:soft"},
		"hard over soft":                     {current: "soft nocto", desired: "hard", policy: useProfile, want: "hard nocto"},
		"hard over softerr":                  {current: "softerr", desired: "hard", policy: useProfile, want: "hard"},
		"nocto over cto":                     {current: "cto", desired: "nocto", policy: useProfile, want: "nocto"},
		"noresvport over resvport":           {current: "resvport", desired: "noresvport", policy: useProfile, want: "noresvport"},
		"proto=tcp already means tcp":        {current: "proto=tcp", desired: "tcp", policy: useProfile, want: "proto=tcp"},
		"lookupcache=positive is pos":        {current: "lookupcache=positive", desired: "lookupcache=pos", policy: useProfile, want: "lookupcache=positive"},
		"the last of several is what counts": {current: "timeo=600 timeo=50", desired: "timeo=50", want: "timeo=50"},
		"the last desired option wins":       {current: "", desired: "nconnect=2 nconnect=4", want: "nconnect=4"},

		"nfsvers already means vers":                             {current: "nfsvers=4.1", desired: "vers=4.1", policy: useProfile, want: "nfsvers=4.1"},
		"vers replaces nfsvers":                                  {current: "nfsvers=3 hard", desired: "vers=4.1", policy: useProfile, want: "vers=4.1 hard"},
		"a version kept is not joined by another":                {current: "nfsvers=3 hard", desired: "vers=4.1", want: "nfsvers=3 hard", skipped: "vers:4.1:3"},
		"the old way to write 4.1 is 4.1":                        {current: "vers=4 minorversion=1 hard", desired: "vers=4.1", policy: useProfile, want: "vers=4 minorversion=1 hard"},
		"a version replaces both":                                {current: "vers=4 hard minorversion=1", desired: "vers=4.2", policy: useProfile, want: "vers=4.2 hard"},
		"the old way to want 4.1 is written new":                 {current: "", desired: "vers=4 minorversion=1", want: "vers=4.1"},
		"a flag is a version too":                                {current: "v3", desired: "nfsvers=4.1", policy: useProfile, want: "nfsvers=4.1"},
		"two versions become the last":                           {current: "vers=3 hard nfsvers=4.1", desired: "nocto", want: "hard nfsvers=4.1 nocto"},
		"two versions and a minor one become one":                {current: "nfsvers=4 vers=4 minorversion=1", desired: "nocto", want: "vers=4.1 nocto"},
		"the old spelling stays if no desired option affects it": {current: "vers=4 minorversion=1", desired: "nocto", want: "vers=4 minorversion=1 nocto"},

		"one timer is kept: the others are written out": {current: "acregmax=90", desired: "actimeo=30", want: "acregmax=90 acregmin=30 acdirmin=30 acdirmax=30", skipped: "acregmax:30:90"},
		"a timer that agrees makes way for actimeo":     {current: "acregmax=30 hard", desired: "actimeo=30", want: "actimeo=30 hard"},
		"the profile's actimeo drops the timers":        {current: "acregmin=5 hard acregmax=90", desired: "actimeo=30", policy: useProfile, want: "actimeo=30 hard"},
		"actimeo is kept against one timer": {
			current: "actimeo=60", desired: "acregmax=90", want: "actimeo=60", skipped: "acregmax:90:60",
		},
		"one timer over actimeo writes it out":                {current: "actimeo=60 hard", desired: "acregmax=90", policy: useProfile, want: "acregmin=60 acregmax=90 acdirmin=60 acdirmax=60 hard"},
		"one timer is replaced, the others are not":           {current: "acregmin=5 acregmax=90", desired: "acregmax=60", policy: useProfile, want: "acregmin=5 acregmax=60"},
		"a desired timer after actimeo":                       {desired: "actimeo=30 acregmax=90", want: "acregmin=30 acregmax=90 acdirmin=30 acdirmax=30"},
		"a desired timer before actimeo has no effect":        {desired: "acregmax=90 actimeo=30", want: "actimeo=30"},
		"a list whose order matters is written out":           {current: "actimeo=30 acregmax=90", desired: "acdirmax=30", want: "acregmin=30 acdirmin=30 acdirmax=30 acregmax=90"},
		"such options stay if no desired option affects them": {current: "actimeo=30 acregmax=90", desired: "nocto", want: "actimeo=30 acregmax=90 nocto"},
		"four equal timers already mean actimeo":              {current: "acregmin=30 acregmax=30 acdirmin=30 acdirmax=30", desired: "actimeo=30", policy: useProfile, want: "acregmin=30 acregmax=30 acdirmin=30 acdirmax=30"},
		"the cache is off: timers have no effect":             {current: "noac hard", desired: "actimeo=30", want: "noac hard", skipped: "actimeo:30:noac"},
		"the cache was off: the profile turns it on":          {current: "noac hard", desired: "actimeo=30", policy: useProfile, want: "actimeo=30 hard"},
		"ac over noac brings back the timers":                 {current: "noac actimeo=60", desired: "ac", policy: useProfile, want: "ac actimeo=60"},
		"noac over timers":                                    {current: "actimeo=60 hard", desired: "noac", policy: useProfile, want: "noac hard"},
		"timers against noac":                                 {current: "actimeo=60 hard", desired: "noac", want: "actimeo=60 hard", skipped: "ac:noac:acdirmax=60"},
		"noac if no option sets the cache":                    {current: "hard", desired: "noac", want: "hard noac"},
		"noac if noac is set":                                 {current: "noac actimeo=60", desired: "noac", want: "noac actimeo=60"},
		"noac from the class, with a timer of the volume's":   {current: "noac acregmax=5", desired: "actimeo=30", policy: overClass, class: "noac", want: "acregmin=30 acdirmin=30 acdirmax=30 acregmax=5", skipped: "acregmax:30:5"},
		"what may never be brought to a volume is left out":   {current: "hard", desired: "suid dev exec context=x x-own actimeo=30", want: "hard actimeo=30"},
		"what may never be brought is kept where it is":       {current: "suid x-own", desired: "nocto", want: "suid x-own nocto"},
		"what is weaker than the default is left out":         {current: "hard", desired: "sec=none nocto", policy: useProfile, want: "hard nocto", skipped: "sec:none:sys"},
		"nothing but what may never be brought is no change":  {current: "hard nocto hard", desired: "suid", want: "hard nocto hard"},
	} {
		t.Run(name, func(t *testing.T) {
			current := strings.Fields(test.current)
			before := slices.Clone(current)
			got := NFS.Merge(current, strings.Fields(test.desired), test.policy, strings.Fields(test.class))
			if diff := cmp.Diff(strings.Fields(test.want), got.Options, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			var skipped []string
			for _, k := range got.Skipped {
				skipped = append(skipped, k.Option+":"+k.Desired+":"+k.Observed)
			}
			if diff := cmp.Diff(strings.Fields(test.skipped), skipped, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if changed := !slices.Equal(texts(Parse(current)), got.Options); got.Changed != changed {
				t.Errorf("Changed: got %v, want %v", got.Changed, changed)
			}
			if !slices.Equal(before, current) {
				t.Errorf("got the volume's list changed to %v", current)
			}
		})
	}
}

func TestMergeKeepsTheSpellingOfUnchangedOptions(t *testing.T) {
	current := []string{"hard,nocto", "", "nconnect=4"}
	got := NFS.Merge(current, []string{"nocto", "nconnect=4"}, useProfile, nil)
	if diff := cmp.Diff(MergeResult{Options: current}, got); diff != "" {
		t.Error(diff)
	}
}

var drawnOptions = []string{
	"actimeo=30", "actimeo=60", "acregmin=5", "acregmin=30", "acregmax=30", "acregmax=90", "acdirmin=30", "acdirmax=60", "ac", "noac",
	"nconnect=4", "nconnect=8", "cto", "nocto", "vers=3", "vers=4", "vers=4.1", "nfsvers=4.1", "v4.2", "minorversion=1", "rsize=262144",
	"hard", "soft", "softerr", "resvport", "noresvport", "sync", "async", "tcp", "proto=tcp", "rdma", "timeo=600", "timeo=50",
	"lookupcache=pos", "x-own", "strange=1", "suid", "nosuid",
}

func drawOptions(t *rapid.T, label string) []string {
	return rapid.SliceOfN(rapid.SampledFrom(drawnOptions), 0, 10).Draw(t, label)
}

func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		current, desired, class := drawOptions(t, "current"), drawOptions(t, "wanted"), drawOptions(t, "class")
		policy := rapid.SampledFrom([]v1alpha1.ConflictPolicy{keepVolume, overClass, useProfile}).Draw(t, "policy")
		got := NFS.Merge(current, desired, policy, class)

		again := NFS.Merge(got.Options, desired, policy, class)
		if again.Changed {
			t.Fatalf("want an idempotent merge, got %v, then %v", got.Options, again.Options)
		}
		if slices.Equal(got.Options, current) == got.Changed {
			t.Fatalf("got Changed %v for %v", got.Changed, got.Options)
		}
		if !got.Changed {
			return
		}
		options := Parse(got.Options)
		if len(lastOfEach(options)) != len(options) {
			t.Fatalf("got a repetition in %v", got.Options)
		}
		if problems := checkVersions(nfs, nfs.inGroup(options, keyVersion)); len(problems) > 0 {
			t.Fatalf("%v: %v", got.Options, problems)
		}
		checkMeaning(t, policy, Parse(current), Parse(desired), options)
	})
}

// checkMeaning compares the meaning of the lists, key by key.
func checkMeaning(t *rapid.T, policy v1alpha1.ConflictPolicy, current, desired, merged []Option) {
	desired = slices.DeleteFunc(desired, func(o Option) bool { return nfs.rejectionReason(o) != "" })
	original, want, result := nfs.resolve(current), nfs.resolve(desired), nfs.resolve(merged)
	affected := map[string]bool{}
	for _, o := range desired {
		affected[nfs.groupOf(o)] = true
	}
	for _, o := range merged {
		if group := nfs.groupOf(o); affected[group] {
			key := nfs.keyOf(o)
			// Desired values that are left out change no contradiction of the volume's options.
			isUnchanged := slices.Equal(nfs.inGroup(lastOfEach(current), group), nfs.inGroup(merged, group))
			if nfs.resolve(sortOptions(merged))[key] != result[key] && !isUnchanged {
				t.Fatalf("got another meaning of %v after sorting", texts(merged))
			}
		}
		if nfs.rejectionReason(o) != "" && !slices.Contains(current, o) {
			t.Fatalf("got the unexpected option %s", o)
		}
	}
	for _, o := range current {
		if group := nfs.groupOf(o); !affected[group] && group != keyVersion && !slices.Contains(merged, o) {
			t.Fatalf("got no %s in %v", o, texts(merged))
		}
	}
	for key, value := range original {
		if policy == keepVolume && key != keyCache && original[keyCache] != flagNoac && result[key] != value {
			t.Fatalf("%s: got %q, want the volume's %q in %v", key, result[key], value, texts(merged))
		}
	}
	for key, value := range want {
		// noac of the volume includes sync: async of the profile has no effect, and is reported.
		isIncluded := key == keySync && result[keyCache] == flagNoac
		if policy == useProfile && want[keyCache] != flagNoac && result[key] != value && !isIncluded {
			t.Fatalf("%s: got %q, want the profile's %q in %v", key, result[key], value, texts(merged))
		}
	}
}
