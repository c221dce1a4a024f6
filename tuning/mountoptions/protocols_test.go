package mountoptions

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestValidateByProtocol(t *testing.T) {
	for name, test := range map[string]struct {
		protocol Protocol
		options  string
		errors   []string
		warnings []string
	}{
		"the SMB guide":                           {protocol: SMB, options: "actimeo=30 mfsymlinks cache=strict nosharesock multichannel max_channels=4 closetimeo=5 vers=3.1.1 hard rsize=4194304 wsize=4194304 rasize=8388608"},
		"too many channels":                       {protocol: SMB, options: "max_channels=17", errors: []string{"max_channels=17: must be 1 to 16 channels"}},
		"a read-ahead that is too small":          {protocol: SMB, options: "rasize=65536", errors: []string{"rasize=65536: must be 1048576 to 33554432 bytes"}},
		"SMB1":                                    {protocol: SMB, options: "vers=1.0", errors: []string{"vers=1.0: SMB1 is insecure: must be one of 2.1"}},
		"a timer before actimeo, SMB":             {protocol: SMB, options: "acregmax=60 actimeo=30", errors: []string{"actimeo=30: is ignored if acregmax comes first"}},
		"a timer after actimeo, SMB":              {protocol: SMB, options: "actimeo=30 acdirmax=60", errors: []string{"actimeo=30: is ignored if acdirmax comes first"}},
		"timers alone, SMB":                       {protocol: SMB, options: "acregmax=60 acdirmax=30"},
		"a password":                              {protocol: SMB, options: "password=x", errors: []string{"password=x: is rejected: it sets who logs in"}},
		"files of another user":                   {protocol: SMB, options: "uid=0", errors: []string{"uid=0: is rejected: it sets who owns"}},
		"an NFS option on SMB":                    {protocol: SMB, options: "nconnect=4", errors: []string{"nconnect=4: is unknown"}},
		"a cache without other clients":           {protocol: SMB, options: "cache=loose", warnings: []string{"cache=loose: caches as if no other client writes"}},
		"locks that stay here":                    {protocol: SMB, options: "nobrl", warnings: []string{"nobrl: does not send byte-range locks"}},
		"noatime on SMB":                          {protocol: SMB, options: "noatime", warnings: []string{"noatime: is accepted but ignored"}},
		"sync on SMB":                             {protocol: SMB, options: "sync", warnings: []string{"sync: is accepted but ignored"}},
		"fsync that does not wait":                {protocol: SMB, options: "nostrictsync", warnings: []string{"nostrictsync: returns from fsync before"}},
		"too few credits":                         {protocol: SMB, options: "max_credits=19", errors: []string{"max_credits=19: must be 20 to 60000 credits"}},
		"a disk's layout":                         {protocol: XFS, options: "sunit=64", errors: []string{"sunit=64: is rejected: it describes the disk layout"}},
		"an option of XFS on what is not":         {protocol: Generic, options: "noatime logbsize=256k", errors: []string{"logbsize=256k: is not an option that every file system supports"}},
		"options that every file system supports": {protocol: Generic, options: "relatime lazytime nosuid"},
		"soft is what SMB does anyway":            {protocol: SMB, options: "soft"},

		"the XFS guide": {protocol: XFS, options: "rw noatime nodiratime logbufs=8 logbsize=256k noquota",
			warnings: []string{"logbufs=8: is the kernel's default", "noquota: is the default without quotas", "nodiratime: is implied by noatime"}},
		"what is left of the XFS guide":  {protocol: XFS, options: "noatime logbsize=256k"},
		"nodiratime alone":               {protocol: XFS, options: "nodiratime"},
		"a log buffer in bytes":          {protocol: XFS, options: "logbsize=262144"},
		"a log buffer that is too small": {protocol: XFS, options: "logbsize=256", errors: []string{"logbsize=256: must be a power of two from 16k to 256k"}},
		"a log buffer that is too large": {protocol: XFS, options: "logbsize=512k", errors: []string{"logbsize=512k: must be a power of two"}},
		"a log buffer between powers":    {protocol: XFS, options: "logbsize=200k", errors: []string{"logbsize=200k: must be a power of two"}},
		"a log buffer that is no size":   {protocol: XFS, options: "logbsize=256kk", errors: []string{"logbsize=256kk: must be a power of two"}},
		"one log buffer":                 {protocol: XFS, options: "logbufs=1", errors: []string{"logbufs=1: must be 2 to 8 buffers"}},
		"nine log buffers":               {protocol: XFS, options: "logbufs=9", errors: []string{"logbufs=9: must be 2 to 8 buffers"}},
		"a size that XFS makes smaller":  {protocol: XFS, options: "allocsize=3m", errors: []string{"allocsize=3m: must be a power of two"}},
		"the largest allocation":         {protocol: XFS, options: "allocsize=1g"},
		"barriers":                       {protocol: XFS, options: "nobarrier", errors: []string{"nobarrier: is rejected: it was removed in kernel 4.19"}},
		"delayed logging by name":        {protocol: XFS, options: "delaylog", errors: []string{"delaylog: is rejected: it was removed in kernel 4.0"}},
		"old attributes":                 {protocol: XFS, options: "attr2", warnings: []string{"attr2: is deprecated"}},
		"quotas":                         {protocol: XFS, options: "prjquota", errors: []string{"prjquota: is rejected: it turns on quotas"}},
		"two atime flags":                {protocol: XFS, options: "noatime relatime", errors: []string{"relatime: contradicts noatime"}},
		"an NFS option on XFS":           {protocol: XFS, options: "actimeo=30", errors: []string{"actimeo=30: is unknown"}},
		"one size in two ways":           {protocol: XFS, options: "logbsize=256k logbsize=262144", warnings: []string{"logbsize=262144: repeats logbsize=256k"}},
		"set-user-ID programs on XFS":    {protocol: XFS, options: "suid", errors: []string{"suid: is rejected: it weakens the protection"}},
	} {
		t.Run(name, func(t *testing.T) {
			var errs, warnings []Problem
			for _, p := range Validate(test.protocol, strings.Fields(test.options)) {
				if p.Warning {
					warnings = append(warnings, p)
				} else {
					errs = append(errs, p)
				}
			}
			expect(t, "errors", test.errors, errs)
			expect(t, "warnings", test.warnings, warnings)
		})
	}
}

func TestMergeByProtocol(t *testing.T) {
	for name, test := range map[string]struct {
		protocol         Protocol
		current, desired string
		want             string
		skipped          int
	}{
		"SMB's actimeo sets two timers":                  {protocol: SMB, current: "dir_mode=0777 acregmax=60", desired: "actimeo=30", want: "dir_mode=0777 acregmax=60 acdirmax=30", skipped: 1},
		"SMB's actimeo after a timer counts for nothing": {protocol: SMB, current: "acregmax=60 actimeo=30", desired: "acdirmax=30", want: "acregmax=60 acdirmax=30"},
		"SMB's actimeo next to none":                     {protocol: SMB, current: "hard", desired: "actimeo=30", want: "hard actimeo=30"},
		"a credential is not brought along":              {protocol: SMB, current: "hard", desired: "password=x", want: "hard"},
		"NFS's timers mean something else":               {protocol: NFS, current: "acregmax=60 actimeo=30", desired: "acdirmax=30", want: "acregmax=60 actimeo=30"},
		"one size in two ways is one":                    {protocol: XFS, current: "logbsize=262144", desired: "logbsize=256k noatime", want: "logbsize=262144 noatime"},
		"a log buffer that the volume has": {
			protocol: XFS, current: "logbsize=32k", desired: "logbsize=256k", want: "logbsize=32k", skipped: 1,
		},
		"versions of SMB are not those of NFS":      {protocol: SMB, current: "vers=3.0", desired: "vers=3.1.1", want: "vers=3.0", skipped: 1},
		"what no kernel knows any more is left out": {protocol: XFS, current: "noatime", desired: "nobarrier", want: "noatime"},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.protocol.Merge(strings.Fields(test.current), strings.Fields(test.desired), v1alpha1.ConflictKeepVolume, nil)
			if diff := cmp.Diff(strings.Fields(test.want), got.Options); diff != "" || len(got.Skipped) != test.skipped {
				t.Errorf("%s\ngot skipped %v, want %d", diff, got.Skipped, test.skipped)
			}
		})
	}
}

func TestCompareByProtocol(t *testing.T) {
	for name, test := range map[string]struct {
		protocol          Protocol
		desired, observed string
		want              []string // options that differ
		unverifiable      []string
	}{
		"XFS with the desired options":            {protocol: XFS, desired: "noatime logbsize=256k logbufs=8", observed: "rw,noatime,attr2,inode64,logbufs=8,logbsize=256k,noquota"},
		"a remount that did nothing":              {protocol: XFS, desired: "logbsize=262144", observed: "rw,relatime,logbufs=8,logbsize=32k,noquota", want: []string{"logbsize"}},
		"access times that differ":                {protocol: XFS, desired: "noatime", observed: "rw,relatime,logbufs=8", want: []string{"atime"}},
		"SMB shows one actimeo":                   {protocol: SMB, desired: "acregmax=30 acdirmax=30", observed: "rw,vers=3.1.1,cache=strict,soft,actimeo=30,closetimeo=1"},
		"what SMB shows on newer kernels only":    {protocol: SMB, desired: "nosharesock mfsymlinks", observed: "rw,vers=3.1.1,mfsymlinks", unverifiable: []string{"nosharesock"}},
		"a cache that is desired but not granted": {protocol: SMB, desired: "cache=strict", observed: "rw,cache=none", want: []string{"cache"}},
		"what XFS hides, since it is the default": {protocol: XFS, desired: "dax=inode", observed: "rw,logbufs=8"},
		"SMB shows two timers":                    {protocol: SMB, desired: "actimeo=30", observed: "rw,soft,acregmax=60,acdirmax=30", want: []string{"acregmax"}},
		"flags of any mount":                      {protocol: SMB, desired: "nosuid nodev noexec", observed: "rw,vers=3.1.1,nosuid,relatime", want: []string{"dev", "exec"}},
		"flags of a disk":                         {protocol: XFS, desired: "nosuid nodev noexec ro", observed: "rw,attr2,nodev,noexec,relatime", want: []string{"suid", "rw"}},
		"flags whatever the file system":          {protocol: Generic, desired: "nosuid noexec nodiratime", observed: "rw,noexec,nodiratime,relatime", want: []string{"suid"}},
		"a version left open":                     {protocol: SMB, desired: "vers=default", observed: "rw,vers=3.1.1", unverifiable: []string{"vers=default"}},
		"a family of versions":                    {protocol: SMB, desired: "vers=3", observed: "rw,vers=3.1.1"},
		"fewer channels than desired":             {protocol: SMB, desired: "max_channels=4", observed: "rw,vers=3.1.1", want: []string{"max_channels"}},
		"writes that SMB does not make wait":      {protocol: SMB, desired: "sync", observed: "rw,vers=3.1.1,soft", unverifiable: []string{"sync"}},
		"reads that are decrypted elsewhere":      {protocol: SMB, desired: "esize=0", observed: "rw,vers=3.1.1,esize=65536", want: []string{"esize"}},
		"reads that are decrypted here":           {protocol: SMB, desired: "esize=0", observed: "rw,vers=3.1.1"},
		"what the kernel does not show":           {protocol: SMB, desired: "noatime hard", observed: "rw,hard", unverifiable: []string{"noatime"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range test.protocol.Compare(strings.Fields(test.desired), strings.Split(test.observed, ",")) {
				got = append(got, d.Option)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.unverifiable, test.protocol.Unverifiable(strings.Fields(test.desired)), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The options in the source documents are known for their protocol.
func TestGuidesAreKnown(t *testing.T) {
	for protocol, options := range map[Protocol]string{
		NFS: "rw nconnect nocto actimeo hard intr rsize wsize vers tcp async sync",
		SMB: "actimeo acregmax acdirmax closetimeo cache max_channels multichannel rsize wsize rasize nosharesock mfsymlinks nobrl hard soft vers async sync",
		XFS: "rw noatime nodiratime logbufs logbsize noquota inode64 allocsize largeio discard swalloc wsync nouuid barrier nobarrier delaylog async sync",
	} {
		known := protocol.Known()
		for _, name := range strings.Fields(options) {
			if !slices.ContainsFunc(known, func(k Known) bool { return k.Name == name }) {
				t.Errorf("%s: got %s unknown", protocol, name)
			}
		}
	}
}

func TestTablesAreConsistent(t *testing.T) {
	for protocol, table := range tables {
		for _, k := range protocol.Known() {
			name := string(protocol) + " " + k.Name
			if k.Source == "" || k.Key == "" {
				t.Errorf("%s: got source %q, key %q", name, k.Source, k.Key)
			}
			if k.Rejected == "" && k.TakesEffect == "" {
				t.Errorf("%s: got an option that never takes effect", name)
			}
			if _, both := table.specs[k.Name]; both && k.Rejected != "" {
				t.Errorf("%s: got an option that is both known and rejected", name)
			}
			if k.Values == "" || k.Default == "" || k.Default == k.Name {
				continue
			}
			if reason := table.validateOption(k.Name+"="+k.Default, parseOne(k.Name+"="+k.Default)); reason != "" {
				t.Errorf("%s: got the kernel's default %s rejected: %s", name, k.Default, reason)
			}
		}
	}
}
