package judge

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

var merges = flag.Int("merges", 150, "number of random volumes for each protocol")

var (
	ofSMB = builders.CSI("smb.csi.k8s.io", map[string]string{"source": "//server/share"})
	ofXFS = func(pv *corev1.PersistentVolume) {
		builders.CSI("ebs.csi.aws.com", nil)(pv)
		pv.Spec.CSI.FSType = "xfs"
	}
	forProtocol = map[string]builders.ProfileOption{
		"SMB": builders.Selecting(v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB}}),
		"XFS": builders.Selecting(v1alpha1.VolumeSelector{FSTypes: []string{"xfs"}}),
		"NFS": func(*v1alpha1.StorageClientProfile) {},
	}
)

// write applies a verdict like the reconciler: with a new mark if the options change.
func write(pv *corev1.PersistentVolume, v Verdict) {
	if v.Action == ActionNone {
		return
	}
	annotations := AnnotationsWithout(nil)
	if v.Action == ActionWrite {
		var mark *Mark
		if v.ChangesOptions(pv) {
			mark = MarkFor(v, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
		}
		annotations = AnnotationsWith(v, mark)
	}
	for key, value := range annotations {
		if delete(pv.Annotations, key); value != nil {
			pv.Annotations[key] = value.(string)
		}
	}
	if v.Action == ActionWrite || v.Action == ActionRestore {
		pv.Spec.MountOptions = v.Options
	}
}

func verdictWith(pv *corev1.PersistentVolume, class []string, list ...v1alpha1.StorageClientProfile) Verdict {
	return Volume(Input{Volume: pv, VolumeClaim: builders.VolumeClaimOf(pv, nil), Class: class, HasClass: true, Profiles: profiles(list...)})
}

// sequence is a volume with the profiles that select it.
type sequence struct {
	volume          func() *corev1.PersistentVolume
	original, class []string
	profiles        []v1alpha1.StorageClientProfile
	follows         bool
}

func (s sequence) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "original %q, class %q", s.original, s.class)
	for _, p := range s.profiles {
		r := p.Spec.Volumes[0]
		fmt.Fprintf(&out, ", %s (%d, %s %s) %v", p.Name, p.Spec.Priority, r.OnConflict, r.MountOptionsFrom, r.MountOptions)
	}
	return out.String()
}

var pools = map[string][2]string{
	"NFS": {"actimeo=30 actimeo=600 acregmin=5 acregmax=30 acdirmin=30 acdirmax=90 hard soft cto nocto ac noac nordirplus rdirplus=none tcp proto=tcp sec=sys sec=krb5 nconnect=4 " +
		"nconnect=8 vers=3 nfsvers=4.1 vers=4.2 noresvport nosharecache sync async ro rw lookupcache=pos lock nolock local_lock=all local_lock=posix local_lock=none",
		"hard,nocto x-systemd.automount unknown=1 vers=4 minorversion=1 hard"},
	"SMB": {"actimeo=30 acregmax=30 acregmax=60 acdirmax=30 multichannel nomultichannel max_channels=1 max_channels=4 max_channels=2 sign seal hard soft vers=3.0 vers=3.1.1 " +
		"cache=none rsize=65536 nobrl ro rw nosharesock sync", "sec=krb5 sec=krb5i sec=ntlmssp uid=5 multichannel,max_channels=8"},
	"XFS": {"noatime relatime nodiratime diratime logbsize=32k logbsize=32768 logbsize=256k logbufs=4 inode32 largeio discard nodiscard noquota dax=never wsync ro rw nosuid",
		"uquota quota,gquota noquota uqnoenforce x-own"},
}

func drawSequence(protocol string, random *rand.Rand) sequence {
	declared := strings.Fields(pools[protocol][0])
	own := append(strings.Fields(pools[protocol][1]), declared...)
	pick := func(n int, from []string) []string {
		return lists.Each(slices.Repeat([]int{0}, random.IntN(n)), func(int) string { return from[random.IntN(len(from))] })
	}
	s := sequence{original: pick(5, own), class: pick(3, declared)}
	if random.IntN(2) == 0 {
		s.original = append(slices.Clone(s.class), s.original...)
	}
	provisioned := random.IntN(2) == 0
	s.volume = func() *corev1.PersistentVolume {
		pv := builders.NFSVolume(slices.Clone(s.original))
		switch protocol {
		case "SMB":
			ofSMB(pv)
		case "XFS":
			ofXFS(pv)
		}
		if provisioned {
			pv.Annotations[provisionedBy] = "driver"
		}
		return pv
	}
	for _, name := range []string{"a", "b", "c"} {
		policy := []v1alpha1.ConflictPolicy{v1alpha1.ConflictKeepVolume, v1alpha1.ConflictUseProfile, v1alpha1.ConflictUseProfileOverClass}[random.IntN(3)]
		follows := random.IntN(5) == 0
		s.follows = s.follows || follows
		s.profiles = append(s.profiles, builders.NFSProfile(name, pick(4, declared), priority(random.Int32N(3)), forProtocol[protocol], builders.Ruled(func(r *v1alpha1.VolumeRule) {
			r.OnConflict = policy
			if follows {
				r.MountOptionsFrom = v1alpha1.MountOptionsFromClass
			}
		})))
	}
	return s
}

// TestWritesConvergeAndRestore writes random volumes for changing profiles. A write is final; the options of profiles that are gone are gone; and
// the restore returns the exact original options.
func TestWritesConvergeAndRestore(t *testing.T) {
	for protocol := range pools {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(70, 2))
			for range *merges {
				s := drawSequence(protocol, random)
				pv := s.volume()
				for range 4 {
					now := lists.Filter(s.profiles, func(v1alpha1.StorageClientProfile) bool { return random.IntN(3) > 0 })
					v := verdictWith(pv, s.class, now...)
					write(pv, v)
					if again := verdictWith(pv, s.class, now...); again.Action != ActionNone {
						t.Fatalf("%s: wrote %q, then %s: %s", s, v.Options, again.Action, again.Message)
					}
					fresh := s.volume()
					alone := verdictWith(fresh, s.class, now...)
					write(fresh, alone)
					isHeld := alone.State == StateBlocked || v.State == StateBlocked || strings.Contains(alone.Message, "disagree")
					if got, want := sortedText(pv.Spec.MountOptions), sortedText(fresh.Spec.MountOptions); !isHeld && got != want {
						t.Fatalf("%s: got %s: %s, these profiles alone give %s", s, got, v.Message, want)
					} else if isHeld {
						break
					}
					s.checkPolicies(t, now, alone, fresh)
				}
				write(pv, verdictWith(pv, s.class))
				if diff := cmp.Diff(s.original, pv.Spec.MountOptions, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%s: restored options (-want +got):\n%s", s, diff)
				}
			}
		})
	}
}

func sortedText(options []string) string {
	return fmt.Sprint(slices.Sorted(slices.Values(options)))
}

// checkPolicies checks that a value of the volume was only replaced by a rule that declares it and may replace it.
func (s sequence) checkPolicies(t *testing.T, now []v1alpha1.StorageClientProfile, v Verdict, after *corev1.PersistentVolume) {
	t.Helper()
	target := targetOf(after)
	for _, o := range target.options.Settings(s.original) {
		mayReplace := func(p v1alpha1.StorageClientProfile) bool {
			r := p.Spec.Volumes[0]
			replaces := r.OnConflict == v1alpha1.ConflictUseProfile || r.OnConflict == v1alpha1.ConflictUseProfileOverClass && target.contains(s.class, o.Option)
			declared := lists.Each(r.MountOptions, func(o v1alpha1.MountOption) string { return string(o) })
			return replaces && slices.ContainsFunc(target.options.Settings(declared), func(d mountoptions.Setting) bool { return target.isRival(d.Option, o.Option) })
		}
		if o.Option == "lock" && !target.contains(after.Spec.MountOptions, "nolock") {
			continue // the default, next to a local lock
		}
		if target.contains(s.original, o.Option) && !target.contains(after.Spec.MountOptions, o.Option) && !s.follows && !slices.ContainsFunc(now, mayReplace) {
			t.Fatalf("%s: %s is replaced: got %q, %s", s, o.Option, after.Spec.MountOptions, v.Message)
		}
	}
}

// TestNamesDoNotDecide renames the profiles: the result means the same, unless the profiles disagree.
func TestNamesDoNotDecide(t *testing.T) {
	for protocol := range pools {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(70, 3))
			for range *merges {
				s := drawSequence(protocol, random)
				renamed := slices.Clone(s.profiles)
				for i, name := range []string{"z", "y", "x"} {
					renamed[i].Name = name
				}
				first, second := verdictWith(s.volume(), s.class, s.profiles...), verdictWith(s.volume(), s.class, renamed...)
				disagree := strings.Contains(first.Message, "disagree")
				if !targetOf(s.volume()).options.MeansSame(first.Desired, second.Desired) || disagree != strings.Contains(second.Message, "disagree") {
					t.Fatalf("%s: got %q, renamed %q: %s; %s", s, first.Desired, second.Desired, first.Message, second.Message)
				}
			}
		})
	}
}
