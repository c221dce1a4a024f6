package mountoptions

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Options of one group add up to a state, reset it, or exclude each other.
func TestMergeByMeaning(t *testing.T) {
	for name, test := range map[string]struct {
		protocol               Protocol
		current, wanted, class string
		policy                 v1alpha1.ConflictPolicy
		want, skipped          string
	}{
		"UseProfile replaces one kind of local lock":       {NFS, "vers=3 local_lock=posix", "local_lock=flock", "", useProfile, "vers=3 local_lock=flock", ""},
		"UseProfile turns local locks off":                 {NFS, "vers=3 local_lock=all", "local_lock=none", "", useProfile, "vers=3 local_lock=none", ""},
		"local locks that stay are reported":               {NFS, "local_lock=posix", "local_lock=flock", "", keepVolume, "local_lock=posix", "local_lock:flock:posix"},
		"nolock next to a kind of lock":                    {NFS, "vers=3", "nolock local_lock=flock", "", keepVolume, "vers=3 nolock", ""},
		"nolock next to its own kind of lock":              {NFS, "vers=3", "nolock local_lock=all", "", keepVolume, "vers=3 nolock", ""},
		"nolock of the volume stays":                       {NFS, "nolock local_lock=all", "local_lock=posix", "", keepVolume, "nolock local_lock=all", "local_lock:posix:all"},
		"nolock of the volume makes all locks local":       {NFS, "nolock", "local_lock=none", "", useProfile, "nolock", "local_lock:none:all"},
		"nolock joins local locks":                         {NFS, "local_lock=all", "nolock", "", keepVolume, "nolock", ""},
		"nolock would widen the volume's local locks":      {NFS, "local_lock=posix", "nolock", "", keepVolume, "local_lock=posix", "local_lock:all:posix lock:nolock:"},
		"lock replaces nolock":                             {NFS, "nolock", "lock", "", useProfile, "lock", ""},
		"lock before local_lock is the default":            {NFS, "hard", "lock local_lock=flock", "", keepVolume, "hard local_lock=flock", ""},
		"kinds of locks of the volume add up":              {NFS, "local_lock=posix local_lock=flock", "local_lock=all", "", keepVolume, "local_lock=all", ""},
		"noac makes the mount synchronous":                 {NFS, "noac", "sync", "", keepVolume, "noac", ""},
		"async has no effect next to noac":                 {NFS, "noac", "async nocto", "", useProfile, "noac nocto", "sync:async:sync"},
		"noac would make the volume synchronous":           {NFS, "async", "noac", "", keepVolume, "async", "sync:sync:async ac:noac:"},
		"noac against ac":                                  {NFS, "ac", "noac", "", keepVolume, "ac", "ac:noac:ac"},
		"nolock is one value with its local locks":         {NFS, "lock", "nolock", "local_lock=none", overClass, "lock", "lock:nolock:lock"},
		"timers instead of noac leave the volume its sync": {NFS, "noac sync", "actimeo=30", "", useProfile, "actimeo=30 sync", ""},
		"and the profile its own":                          {NFS, "noac", "actimeo=30 sync", "", useProfile, "actimeo=30 sync", ""},

		"sign counts after sec":                       {SMB, "sign sec=krb5", "sign", "", keepVolume, "sec=krb5 sign", ""},
		"sec of the volume signs":                     {SMB, "sec=krb5i", "sign", "", keepVolume, "sec=krb5i", ""},
		"a number against nomultichannel":             {SMB, "nomultichannel", "max_channels=4", "", keepVolume, "nomultichannel", "max_channels:4:1"},
		"a number instead of nomultichannel":          {SMB, "hard nomultichannel", "max_channels=4", "", useProfile, "hard max_channels=4", ""},
		"nomultichannel against a number":             {SMB, "max_channels=4", "nomultichannel", "", keepVolume, "max_channels=4", "max_channels:1:4"},
		"nomultichannel instead of a number":          {SMB, "multichannel max_channels=4", "nomultichannel", "", useProfile, "nomultichannel", ""},
		"multichannel is two channels":                {SMB, "multichannel", "max_channels=4", "", keepVolume, "multichannel", "max_channels:4:2"},
		"multichannel asks for at least two channels": {SMB, "max_channels=4", "multichannel", "", useProfile, "max_channels=4", ""},
		"multichannel with its number":                {SMB, "hard", "multichannel max_channels=4", "", keepVolume, "hard multichannel max_channels=4", ""},
		"a list that kernels from 6.19 on reject":     {SMB, "max_channels=4 nomultichannel", "max_channels=2", "", useProfile, "max_channels=2", ""},
		"multichannel of the class":                   {SMB, "multichannel", "max_channels=4", "max_channels=2", overClass, "max_channels=4", ""},
		"SMB's first timer counts, repetition or not": {SMB, "actimeo=30 acregmax=1 actimeo=30", "hard", "", keepVolume, "acregmax=1 acdirmax=30 hard", ""},

		"noquota of a volume with quotas":         {XFS, "uquota", "noquota noatime", "", useProfile, "uquota noatime", "user quota:noquota:uquota"},
		"one kind of access times":                {XFS, "relatime hard", "noatime", "", useProfile, "noatime hard", ""},
		"access times and those of directories":   {XFS, "noatime", "diratime", "", useProfile, "noatime diratime", ""},
		"writable again, where the volume allows": {XFS, "rw nosuid", "ro", "", useProfile, "ro nosuid", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.protocol.Merge(strings.Fields(test.current), strings.Fields(test.wanted), test.policy, strings.Fields(test.class))
			if diff := cmp.Diff(strings.Fields(test.want), got.Options, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			var skipped []string
			for _, d := range got.Skipped {
				skipped = append(skipped, d.Option+":"+d.Desired+":"+d.Observed)
			}
			if diff := cmp.Diff(test.skipped, strings.Join(skipped, " ")); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateByMeaning(t *testing.T) {
	for name, test := range map[string]struct {
		protocol         Protocol
		options          string
		errors, warnings []string
	}{
		"a number without multichannel":         {SMB, "nomultichannel max_channels=4", []string{"max_channels=4: contradicts nomultichannel"}, nil},
		"multichannel with one channel":         {SMB, "multichannel max_channels=1", []string{"max_channels=1: contradicts multichannel"}, nil},
		"in the other order":                    {SMB, "max_channels=1 multichannel", []string{"multichannel: contradicts max_channels=1"}, nil},
		"multichannel and nomultichannel":       {SMB, "max_channels=4 multichannel nomultichannel", []string{"nomultichannel: contradicts max_channels=4"}, nil},
		"two numbers":                           {SMB, "multichannel max_channels=4 max_channels=8", []string{"max_channels=8: contradicts max_channels=4"}, nil},
		"multichannel with a number":            {SMB, "max_channels=4 multichannel", nil, nil},
		"nomultichannel with one channel":       {SMB, "nomultichannel max_channels=1", nil, nil},
		"async next to noac":                    {NFS, "noac async", nil, []string{"noac: turns the attribute cache off", "async: has no effect: noac makes every write synchronous"}},
		"a local lock next to lock":             {NFS, "vers=3 lock local_lock=flock", nil, []string{"local_lock=flock: lock resets it"}},
		"remote locks after nolock":             {NFS, "vers=3 nolock local_lock=none", nil, []string{"local_lock=none: has no effect: nolock keeps all locks on the node"}},
		"nolock and the kind of lock it brings": {NFS, "vers=3 nolock local_lock=all", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			isError := func(p Problem) bool { return !p.Warning }
			all := Validate(test.protocol, strings.Fields(test.options))
			expect(t, "errors", test.errors, Errors(test.protocol, strings.Fields(test.options)))
			expect(t, "warnings", test.warnings, slices.DeleteFunc(all, isError))
		})
	}
}

func TestCompareByMeaning(t *testing.T) {
	for name, test := range map[string]struct {
		protocol          Protocol
		desired, observed string
		want              string // key:desired:observed
	}{
		"multichannel is shown with its number":  {SMB, "multichannel", "vers=3.1.1 multichannel max_channels=2", ""},
		"fewer channels than multichannel gives": {SMB, "multichannel", "vers=3.1.1", "max_channels:2:"},
		"nomultichannel on an old mount":         {SMB, "nomultichannel", "multichannel max_channels=4", "max_channels:1:4"},
		"noac is shown with sync":                {NFS, "noac async", "rw sync acregmin=0 hard noac", ""},
		"lock before local_lock":                 {NFS, "vers=3 lock local_lock=flock", "vers=3 local_lock=flock", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range test.protocol.Compare(strings.Fields(test.desired), strings.Fields(test.observed)) {
				got = append(got, d.Option+":"+d.Desired+":"+d.Observed)
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		protocol      Protocol
		options, want string
	}{
		"actimeo is four timers":              {NFS, "hard actimeo=30", "hard acregmin=30 acregmax=30 acdirmin=30 acdirmax=30"},
		"a timer after it":                    {NFS, "actimeo=30 acregmax=90", "acregmin=30 acregmax=90 acdirmin=30 acdirmax=30"},
		"timers next to noac":                 {NFS, "noac actimeo=30 sync", "noac sync"},
		"nolock brings its kind of lock":      {NFS, "nolock local_lock=flock", "nolock local_lock=all"},
		"kinds of locks add up":               {NFS, "local_lock=posix local_lock=flock", "local_lock=all"},
		"async next to noac":                  {NFS, "noac async", "noac"},
		"the spelling stays":                  {NFS, "tcp nfsvers=4.1 lookupcache=positive unknown=1", "tcp nfsvers=4.1 lookupcache=positive unknown=1"},
		"an old version":                      {NFS, "vers=4 minorversion=1", "vers=4.1"},
		"sec resets signing":                  {SMB, "sign sec=krb5", "sec=krb5"},
		"multichannel with its number":        {SMB, "multichannel max_channels=4", "multichannel max_channels=4"},
		"SMB's actimeo after a timer":         {SMB, "acregmax=60 actimeo=30", "acregmax=60"},
		"a flag that a later option reverses": {XFS, "nosuid noatime suid", "suid noatime"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range test.protocol.Settings(strings.Fields(test.options)) {
				got = append(got, s.Option)
			}
			if diff := cmp.Diff(strings.Fields(test.want), got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMeansSame(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"actimeo and its timers":                 {"actimeo=30 hard", "hard acdirmax=30 acdirmin=30 acregmax=30 acregmin=30", true},
		"synonyms":                               {"nfsvers=4.1 tcp", "proto=tcp vers=4.1", true},
		"another value":                          {"actimeo=30", "actimeo=60", false},
		"a value more":                           {"hard", "hard nocto", false},
		"lists that differ only if sorted":       {"actimeo=30 acregmax=90", "acregmin=30 acregmax=90 acdirmin=30 acdirmax=30", false},
		"two versions, which mount rejects":      {"vers=4.1 nfsvers=4.1", "vers=4.1", false},
		"a value that a later one replaces":      {"actimeo=30 actimeo=600", "actimeo=600", true},
		"noac, which makes every write wait too": {"noac sync", "noac", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NFS.MeansSame(strings.Fields(test.a), strings.Fields(test.b)); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// Evidence of an earlier release is found by the same values.
func TestValuesOfIncludedOptions(t *testing.T) {
	for name, test := range map[string]struct{ options, affected, want string }{
		"noac includes sync":       {"noac vers=4.1", "noac", "ac=noac vers=4.1"},
		"sync of the volume":       {"sync actimeo=30", "acregmin=30", "acdirmax=30 acdirmin=30 acregmax=30 acregmin=30"},
		"sync that a rule affects": {"noac", "async", "ac=noac sync=sync"},
	} {
		t.Run(name, func(t *testing.T) {
			got := NFS.Values(strings.Fields(test.options), strings.Fields(test.affected))
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}
