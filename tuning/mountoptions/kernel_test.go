package mountoptions

import (
	"cmp"
	goflag "flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
)

var merges = goflag.Int("merges", 3000, "number of random merges for each protocol")

// parsed is the state of a mount, as the kernel's parser leaves it. It is written from the kernel's switch statements, independent of the tables.
type parsed struct {
	values map[string]string
	// set are the keys that an option has set, and the defaults that it has restored.
	set map[string]bool
	// contradicts is true if kernels differ: those from 6.19 on reject contradicting options of channels, and newer ones let lock and nolock
	// override local_lock in any order (nfs_try_mount_request of fs/nfs/super.c).
	contradicts bool
}

func (k *parsed) put(value string, keys ...string) {
	for _, key := range keys {
		k.values[key], k.set[key] = value, true
	}
}

// kernelNFS is nfs_fs_context_parse_param of fs/nfs/fs_context.c.
func kernelNFS(options []string) *parsed {
	k := &parsed{values: map[string]string{"acregmin": "3", "acregmax": "60", "acdirmin": "30", "acdirmax": "60", "ac": "ac", "sync": "async", "lock": "lock"},
		set: map[string]bool{}}
	flock, posix := false, false
	for _, o := range options {
		name, value, hasValue := strings.Cut(o, "=")
		switch name {
		case "actimeo":
			k.put(value, "acregmin", "acregmax", "acdirmin", "acdirmax")
		case "lock", "nolock":
			flock, posix = name == "nolock", name == "nolock"
			k.put(name, "lock")
		case "local_lock":
			flock = value == "all" || value == "flock" || flock && value != "none"
			posix = value == "all" || value == "posix" || posix && value != "none"
		case "hard", "soft", "softerr":
			k.put(name, "hard")
		case "ac", "noac":
			k.put(name, "ac")
		case "sync", "async":
			k.put(name, "sync")
		case "ro", "rw":
			k.put(name, "rw")
		case "tcp", "udp", "rdma":
			k.put(name, "proto")
		case "nfsvers":
			k.put(value, "vers")
		case "v3", "v4", "v4.1":
			k.put(name[1:], "vers")
		case "rdirplus":
			k.put(map[string]string{"": "rdirplus", "none": "nordirplus", "force": "force"}[value], name)
		case "lookupcache":
			k.put(strings.TrimSuffix(value, "itive"), name)
		default:
			if bare, negated := strings.CutPrefix(name, "no"); negated && !hasValue {
				k.put(name, bare)
			} else {
				k.put(cmp.Or(value, name), name)
			}
		}
		if strings.HasSuffix(name, "lock") {
			k.put(map[[2]bool]string{{}: "none", {true, false}: "flock", {false, true}: "posix", {true, true}: "all"}[[2]bool{flock, posix}], "local_lock")
		}
	}
	overriding := map[string]string{"lock": "none", "nolock": "all"}[k.values["lock"]]
	k.contradicts = k.set["lock"] && k.values["local_lock"] != overriding
	if k.values["lock"] == "lock" && k.values["local_lock"] != "none" { // the default
		delete(k.set, "lock")
	}
	if k.values["ac"] == "noac" { // nfs_get_tree_common of fs/nfs/super.c
		k.put("sync", "sync")
	}
	return k
}

// kernelSMB is smb3_fs_context_parse_param of fs/smb/client/fs_context.c.
func kernelSMB(options []string) *parsed {
	k := &parsed{values: map[string]string{"acregmax": "1", "acdirmax": "1", "max_channels": "1", "sign": ""}, set: map[string]bool{}}
	given := map[string]bool{}
	for _, o := range options {
		name, value, hasValue := strings.Cut(o, "=")
		switch name {
		case "actimeo":
			if k.values["acregmax"] == "1" && k.values["acdirmax"] == "1" {
				k.put(value, "acregmax", "acdirmax")
			}
		case "sec":
			k.put(value, "sec")
			k.values["sign"] = ""
			if delete(k.set, "sign"); strings.HasSuffix(value, "i") {
				k.put("sign", "sign")
			}
		case "multichannel":
			if k.values["max_channels"] == "1" {
				k.put("2", "max_channels")
			}
		case "nomultichannel":
			k.put("1", "max_channels")
		case "max_channels":
			k.put(value, "max_channels")
		case "hard", "soft":
			k.put(name, "hard")
		case "sync", "async":
			k.put(name, "sync")
		case "ro", "rw":
			k.put(name, "rw")
		default:
			if bare, negated := strings.CutPrefix(name, "no"); negated && !hasValue {
				k.put(name, bare)
			} else {
				k.put(cmp.Or(value, name), name)
			}
		}
		given[strings.SplitN(o, "=", 2)[0]] = true
	}
	// smb3_handle_conflicting_options compares the last number with the last switch.
	n, on, off := 0, -1, -1
	for i, o := range options {
		if text, found := strings.CutPrefix(o, "max_channels="); found {
			n, _ = strconv.Atoi(text)
		}
		if o == "multichannel" {
			on = i
		}
		if o == "nomultichannel" {
			off = i
		}
	}
	k.contradicts = given["max_channels"] && (on > off && n == 1 || off > on && n > 1)
	return k
}

// kernelXFS is xfs_fs_parse_param of fs/xfs/xfs_super.c, with the flags of every mount.
func kernelXFS(options []string) *parsed {
	k := &parsed{values: map[string]string{}, set: map[string]bool{}}
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		switch name {
		case "logbsize", "allocsize":
			n, isKiB := strings.CutSuffix(value, "k")
			bytes, _ := strconv.Atoi(n)
			if isKiB {
				bytes <<= 10
			}
			k.put(strconv.Itoa(bytes), name)
		case "noquota":
			k.put("off", "user quota", "group quota", "project quota")
		case "uquota", "usrquota", "quota":
			k.put("enforced", "user quota")
		case "uqnoenforce", "qnoenforce":
			k.put("counted", "user quota")
		case "gquota":
			k.put("enforced", "group quota")
		case "pqnoenforce":
			k.put("counted", "project quota")
		case "noatime", "relatime", "strictatime":
			k.put(name, "atime")
		case "inode32":
			k.put(name, "inode64")
		case "sync", "async":
			k.put(name, "sync")
		case "ro", "rw":
			k.put(name, "rw")
		case "dax":
			k.put(cmp.Or(value, "always"), name)
		default:
			k.put(cmp.Or(value, name), strings.TrimPrefix(name, "no"))
		}
	}
	return k
}

var parsers = map[Protocol]struct {
	parse func([]string) *parsed
	// rule are options for rules and volumes, own are options for volumes only.
	rule, own string
}{
	NFS: {kernelNFS, "actimeo=30 actimeo=600 acregmin=5 acregmin=30 acregmax=30 acdirmin=30 acdirmax=30 acdirmax=90 ac noac sync async hard soft softerr " +
		"lock nolock local_lock=all local_lock=none local_lock=posix local_lock=flock cto nocto rdirplus nordirplus rdirplus=none rdirplus=force tcp proto=tcp rdma " +
		"sec=sys sec=krb5 sec=krb5p lookupcache=pos lookupcache=positive nconnect=4 nconnect=8 vers=3 nfsvers=3 v3 vers=4.1 v4.1 resvport noresvport " +
		"sharecache nosharecache ro rw timeo=600 timeo=50 nosuid nodev xprtsec=tls fsc nofsc", "noac actimeo=5 nolock suid x-own strange=1"},
	SMB: {kernelSMB, "actimeo=30 actimeo=60 acregmax=30 acregmax=1 acdirmax=30 acdirmax=60 multichannel nomultichannel max_channels=1 max_channels=2 max_channels=4 sign seal " +
		"hard soft vers=3.0 vers=3.1.1 cache=none cache=strict rsize=65536 wsize=65536 brl nobrl nosharesock ro rw nosuid async sync", "sec=krb5 sec=krb5i sec=ntlmssp sec=ntlmsspi sign uid=5"},
	XFS: {kernelXFS, "noatime relatime strictatime diratime nodiratime logbsize=32k logbsize=32768 logbsize=256k logbufs=4 inode32 inode64 largeio nolargeio discard nodiscard " +
		"noquota dax dax=always dax=never wsync swalloc ro rw nosuid nodev noexec sync async", "uquota quota gquota uqnoenforce pqnoenforce noquota"},
}

// TestMergesByTheKernel merges random lists, and compares their meaning with the kernel's parser.
func TestMergesByTheKernel(t *testing.T) {
	for _, p := range []Protocol{NFS, SMB, XFS} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			c := parsers[p]
			rule := strings.Fields(c.rule)
			own := append(strings.Fields(c.own), rule...)
			random := rand.New(rand.NewPCG(70, 1))
			pick := func(from []string) []string {
				return slices.Collect(func(yield func(string) bool) {
					for range random.IntN(5) {
						if !yield(from[random.IntN(len(from))]) {
							return
						}
					}
				})
			}
			for done := 0; done < *merges; done++ {
				m := kernelMerge{p, c.parse, pick(own), pick(rule), pick(own), policies[random.IntN(len(policies))]}
				if len(Errors(p, m.wanted)) > 0 || p == NFS && len(checkVersions(nfs, Parse(m.current))) > 0 {
					done--
					continue
				}
				if m.check(t, random); t.Failed() {
					return
				}
			}
		})
	}
}

type kernelMerge struct {
	protocol               Protocol
	parse                  func([]string) *parsed
	current, wanted, class []string
	policy                 v1alpha1.ConflictPolicy
}

func (m kernelMerge) check(t *testing.T, random *rand.Rand) {
	t.Helper()
	got := m.protocol.Merge(m.current, m.wanted, m.policy, m.class)
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%v with %v, %s, class %v: got %v, skipped %v: "+format, append([]any{m.current, m.wanted, m.policy, m.class, got.Options, got.Skipped}, args...)...)
	}
	before, alone, class := m.parse(m.current), m.parse(m.wanted), m.parse(m.class)
	after, sorted := m.parse(got.Options), m.parse(slices.Sorted(slices.Values(got.Options)))
	isSkipped := func(key string) bool {
		return slices.ContainsFunc(got.Skipped, func(d Difference) bool {
			return key == d.Option || d.Option == "actimeo" || key == "rw" && d.Option == "access" || key == "sync" && d.Option == "ac" ||
				key == "local_lock" && d.Option == "lock" ||
				strings.Contains(key, "quota") && strings.Contains(d.Option, "quota")
		})
	}
	if again := m.protocol.Merge(got.Options, m.wanted, m.policy, m.class); again.Changed {
		fail("another merge gives %v", again.Options)
	}
	for key, value := range before.values {
		isReplaceable := m.policy == useProfile || m.policy == overClass && class.set[key] && class.values[key] == value
		if before.set[key] && !isReplaceable && after.values[key] != value && !(key == "sync" && before.values["ac"] == "noac" && after.values["ac"] != "noac") {
			fail("the volume's %s becomes %q, want %q", key, after.values[key], value)
		}
	}
	for key, value := range alone.values {
		isLess := after.values[key] != value && !(slices.Contains(m.wanted, "multichannel") && value == "2" && number(after.values[key]) > 2)
		if !alone.set[key] || m.hasNoEffect(alone, key) {
			continue
		}
		if isLess && !isSkipped(key) {
			fail("the profile's %s is %q, want %q or a message", key, after.values[key], value)
		}
		if sorted.values[key] != after.values[key] && !isSkipped(key) && !strings.Contains(key, "quota") { // only volumes turn quotas on
			fail("%s is %q sorted", key, sorted.values[key])
		}
	}
	m.checkCache(before, alone, after, isSkipped, fail)
	isOfGroup := alone.set["max_channels"] || alone.set["local_lock"] && !isSkipped("local_lock")
	if isOfGroup && after.contradicts {
		fail("the result depends on the kernel")
	}
	shuffled := slices.Clone(m.wanted)
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if maps.Equal(m.parse(shuffled).values, alone.values) {
		if other := m.protocol.Merge(m.current, shuffled, m.policy, m.class); !maps.Equal(m.parse(other.Options).values, after.values) {
			fail("in the order %v, the profile gives %v", shuffled, other.Options)
		}
	}
	if !m.protocol.MeansSame(m.current, m.current) || m.protocol.MeansSame(m.current, got.Options) && !maps.Equal(before.values, after.values) {
		fail("MeansSame confuses %v with %v", before.values, after.values)
	}
}

// hasNoEffect reports whether another option of the rule disables a value. Validate warns about it.
func (m kernelMerge) hasNoEffect(alone *parsed, key string) bool {
	return m.protocol == NFS && (alone.values["ac"] == "noac" && slices.Contains(nfs.Timers, key) || alone.values["lock"] == "nolock" && key == "local_lock")
}

// checkCache checks that a profile's timers are not next to noac of the volume, and the volume's timers not next to noac of the profile.
func (m kernelMerge) checkCache(before, alone, after *parsed, isSkipped func(string) bool, fail func(string, ...any)) {
	sets := func(k *parsed) bool {
		return k.values["ac"] == "ac" && slices.ContainsFunc(nfs.Timers, func(timer string) bool { return k.set[timer] })
	}
	if after.values["ac"] != "noac" || m.protocol != NFS {
		return
	}
	if sets(alone) && !slices.ContainsFunc(append([]string{"ac"}, nfs.Timers...), isSkipped) {
		fail("noac disables the profile's timers")
	}
	if sets(before) && m.policy == keepVolume {
		fail("noac disables the volume's timers: %s", fmt.Sprint(after.values))
	}
}
