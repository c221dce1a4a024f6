package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// carriedOf returns the verdict on a volume with the given options. The first profile has the higher priority.
func carriedOf(volume, first, second string) Verdict {
	replaces := builders.OnConflict(v1alpha1.ConflictUseProfile)
	return verdictOf(builders.NFSVolume(strings.Fields(volume)), builders.NFSProfile("first", strings.Fields(first), priority(10), replaces),
		builders.NFSProfile("second", strings.Fields(second), replaces))
}

// A merge with actimeo writes all timers. A profile carries only timers that no other profile has replaced since.
func TestCarriedOptionsAreInTheResult(t *testing.T) {
	for name, test := range map[string]struct{ volume, first, second, options, carriedByFirst, carriedBySecond string }{
		"the second profile replaces timers that the first one wrote": {
			"actimeo=60", "acregmax=90", "actimeo=30", "acregmin=30 acdirmin=30 acdirmax=30 acregmax=90", "acregmax=90", "acregmin=30 acdirmin=30 acdirmax=30"},
		"the first profile completes an actimeo that the second one dissolves": {
			"acregmin=60 acdirmin=60 acdirmax=60", "acregmax=60", "acregmin=30", "acregmin=30 acregmax=60 acdirmin=60 acdirmax=60",
			"acregmax=60", "acregmin=30 acregmax=60 acdirmin=60 acdirmax=60"},
		"the second profile completes an actimeo: both have their timers": {"hard", "acregmax=30", "actimeo=30", "hard actimeo=30", "acregmax=30", "actimeo=30"},
		"profiles of other options":                                       {"hard", "nocto", "timeo=9000", "hard nocto timeo=9000", "nocto", "timeo=9000"},
	} {
		t.Run(name, func(t *testing.T) {
			v := carriedOf(test.volume, test.first, test.second)
			if diff := cmp.Diff(strings.Fields(test.options), v.Options); diff != "" {
				t.Fatalf("options (-want +got):\n%s", diff)
			}
			want := map[string][]string{"first": strings.Fields(test.carriedByFirst), "second": strings.Fields(test.carriedBySecond)}
			if diff := cmp.Diff(want, v.Carried); diff != "" {
				t.Errorf("carried options (-want +got):\n%s", diff)
			}
		})
	}
}

// A new mount with the result of a merge is stale for no profile, and shows the options that all of them declare.
func TestANewMountHasAllCarriedOptions(t *testing.T) {
	lists := []string{"", "actimeo=60", "actimeo=30", "acregmax=90", "acregmin=30", "acdirmin=60 acdirmax=90", "noac", "ac", "acregmin=60 acdirmin=60 acdirmax=60",
		"acregmin=90 acregmax=90 acdirmin=90 acdirmax=90", "vers=4 minorversion=1", "nolock", "local_lock=flock"}
	for _, volume := range lists {
		for _, first := range lists {
			for _, second := range lists {
				v := carriedOf(volume, first, second)
				for name, carried := range v.Carried {
					if got := mountoptions.NFS.Compare(carried, v.Options); len(got) > 0 {
						t.Errorf("%q with %q and %q becomes %q: %s carries %q: %v", volume, first, second, v.Options, name, carried, got)
					}
				}
				for range 4 {
					if diff := cmp.Diff(slices.Concat(v.Carried["first"], v.Carried["second"]), v.DeclaredOptions(), cmpopts.EquateEmpty()); diff != "" {
						t.Fatalf("declared options, in the order of the profiles (-want +got):\n%s", diff)
					}
				}
			}
		}
	}
}
