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

// Each row is two lists, and the protections of the first list or the default that the second list weakens.
func TestWeakened(t *testing.T) {
	for name, test := range map[string]struct {
		protocol       Protocol
		floor, desired string // blank-separated
		weaker         string // "name:desired:observed", separated by semicolons
	}{
		"nothing set on either side":                  {protocol: NFS, floor: "hard", desired: "nocto"},
		"the same":                                    {protocol: NFS, floor: "sec=krb5p", desired: "sec=krb5p"},
		"no flavour":                                  {protocol: NFS, floor: "sec=sys", desired: "sec=none", weaker: "sec:none:sys"},
		"no proof of the user":                        {protocol: NFS, floor: "sec=krb5", desired: "sec=sys", weaker: "sec:sys:krb5"},
		"no integrity":                                {protocol: NFS, floor: "sec=krb5i", desired: "sec=krb5", weaker: "sec:krb5:krb5i"},
		"no privacy":                                  {protocol: NFS, floor: "sec=krb5p", desired: "sec=krb5i", weaker: "sec:krb5i:krb5p"},
		"a stronger flavour":                          {protocol: NFS, floor: "sec=krb5", desired: "sec=krb5p"},
		"a list is as weak as its weakest":            {protocol: NFS, floor: "sec=krb5i", desired: "sec=krb5p:sys", weaker: "sec:krb5p:sys:krb5i"},
		"its weakest stands first":                    {protocol: NFS, floor: "sec=krb5i", desired: "sec=sys:krb5p", weaker: "sec:sys:krb5p:krb5i"},
		"a list that loses its best":                  {protocol: NFS, floor: "sec=krb5p:sys", desired: "sec=sys", weaker: "sec:sys:krb5p:sys"},
		"a list in another order":                     {protocol: NFS, floor: "sec=krb5i:krb5p", desired: "sec=krb5p:krb5i"},
		"the floor has an unknown flavour":            {protocol: NFS, floor: "sec=spkm3", desired: "sec=krb5p", weaker: "sec:krb5p:spkm3"},
		"several flavours, one of them unknown":       {protocol: NFS, floor: "sec=sys", desired: "sec=krb5p:spkm3:krb5p", weaker: "sec:krb5p:spkm3:krb5p:sys"},
		"an unknown flavour instead of the weakest":   {protocol: NFS, floor: "sec=none", desired: "sec=spkm3", weaker: "sec:spkm3:none"},
		"a list with one for the weakest":             {protocol: NFS, floor: "sec=none", desired: "sec=spkm3:krb5p", weaker: "sec:spkm3:krb5p:none"},
		"several flavours with sys over an unset sec": {protocol: NFS, desired: "sec=krb5:sys"},
		"null is none":                                {protocol: NFS, floor: "sec=null", desired: "sec=none"},
		"sys if unset":                                {protocol: NFS, desired: "sec=sys"},
		"none if unset":                               {protocol: NFS, desired: "sec=none", weaker: "sec:none:sys"},
		"the last one counts":                         {protocol: NFS, floor: "sec=krb5p sec=sys", desired: "sec=sys"},
		"the last desired one counts":                 {protocol: NFS, floor: "sec=krb5", desired: "sec=sys sec=krb5"},

		"no client certificate":  {protocol: NFS, floor: "xprtsec=mtls", desired: "xprtsec=tls", weaker: "xprtsec:tls:mtls"},
		"no encryption":          {protocol: NFS, floor: "xprtsec=tls", desired: "xprtsec=none", weaker: "xprtsec:none:tls"},
		"encryption":             {protocol: NFS, floor: "xprtsec=none", desired: "xprtsec=tls"},
		"no encryption if unset": {protocol: NFS, desired: "xprtsec=none"},

		"rw over ro of NFS":           {protocol: NFS, floor: "ro", desired: "rw", weaker: "access:rw:ro"},
		"rw over ro of SMB":           {protocol: SMB, floor: "ro", desired: "rw", weaker: "access:rw:ro"},
		"rw over ro of XFS":           {protocol: XFS, floor: "ro", desired: "rw", weaker: "access:rw:ro"},
		"rw over ro of other disks":   {protocol: Generic, floor: "ro", desired: "rw", weaker: "access:rw:ro"},
		"ro over rw":                  {protocol: Generic, floor: "rw", desired: "ro"},
		"rw if unset":                 {protocol: Generic, desired: "rw"},
		"rw where the last one is rw": {protocol: NFS, floor: "ro rw", desired: "rw"},

		"3.1.1 to 3.02":                       {protocol: SMB, floor: "vers=3.1.1", desired: "vers=3.02", weaker: "vers:3.02:3.1.1"},
		"3.02 to 3.0":                         {protocol: SMB, floor: "vers=3.02", desired: "vers=3.0", weaker: "vers:3.0:3.02"},
		"3.0 to 2.1":                          {protocol: SMB, floor: "vers=3.0", desired: "vers=2.1", weaker: "vers:2.1:3.0"},
		"2.1 to 2.0":                          {protocol: SMB, floor: "vers=2.1", desired: "vers=2.0", weaker: "vers:2.0:2.1"},
		"2.0 to 1.0":                          {protocol: SMB, floor: "vers=2.0", desired: "vers=1.0", weaker: "vers:1.0:2.0"},
		"2.1 to 3.1.1":                        {protocol: SMB, floor: "vers=2.1", desired: "vers=3.1.1"},
		"3.1.1 to any version 3":              {protocol: SMB, floor: "vers=3.1.1", desired: "vers=3", weaker: "vers:3:3.1.1"},
		"any version 3 to 3.0":                {protocol: SMB, floor: "vers=3", desired: "vers=3.0", weaker: "vers:3.0:3"},
		"3.0 to any version 3":                {protocol: SMB, floor: "vers=3.0", desired: "vers=3"},
		"any version 3 to the default":        {protocol: SMB, floor: "vers=3", desired: "vers=default", weaker: "vers:default:3"},
		"2.1 to the default":                  {protocol: SMB, floor: "vers=2.1", desired: "vers=default"},
		"other names":                         {protocol: SMB, floor: "vers=3.11", desired: "vers=3.1.1"},
		"other names of 3.02":                 {protocol: SMB, floor: "vers=3.0.2", desired: "vers=3.02"},
		"another name of 3.02 is below 3.1.1": {protocol: SMB, floor: "vers=3.1.1", desired: "vers=3.0.2", weaker: "vers:3.0.2:3.1.1"},
		"1.0 if unset":                        {protocol: SMB, desired: "vers=1.0", weaker: "vers:1.0:default"},
		"2.1 if unset":                        {protocol: SMB, desired: "vers=2.1"},
		"3.02 if unset":                       {protocol: SMB, desired: "vers=3.02"},
		"3.1.1 if unset":                      {protocol: SMB, desired: "vers=3.1.1"},
		"any version 3 if unset":              {protocol: SMB, desired: "vers=3"},
		"the default if unset":                {protocol: SMB, desired: "vers=default"},
		"a version of NFS is none of SMB":     {protocol: NFS, floor: "vers=4.2", desired: "vers=3"},

		"no user":                                       {protocol: SMB, floor: "sec=ntlmssp", desired: "sec=none", weaker: "sec:none:ntlmssp"},
		"no user if unset":                              {protocol: SMB, desired: "sec=none", weaker: "sec:none:ntlmssp"},
		"an old hash":                                   {protocol: SMB, floor: "sec=ntlmv2", desired: "sec=ntlm", weaker: "sec:ntlm:ntlmv2"},
		"an old hash, signed":                           {protocol: SMB, floor: "sec=ntlmv2i", desired: "sec=ntlmi", weaker: "sec:ntlmi:ntlmv2i"},
		"no Kerberos":                                   {protocol: SMB, floor: "sec=krb5", desired: "sec=ntlmssp", weaker: "sec:ntlmssp:krb5"},
		"ntlmssp for ntlmv2":                            {protocol: SMB, floor: "sec=ntlmv2", desired: "sec=ntlmssp"},
		"Kerberos that no longer signs":                 {protocol: SMB, floor: "sec=krb5i", desired: "sec=krb5", weaker: "signing:krb5:krb5i"},
		"ntlmssp that no longer signs":                  {protocol: SMB, floor: "sec=ntlmsspi", desired: "sec=ntlmssp", weaker: "signing:ntlmssp:ntlmsspi"},
		"a later sec removes signing":                   {protocol: SMB, floor: "sign", desired: "sec=krb5", weaker: "signing:krb5:sign"},
		"a later sec that signs":                        {protocol: SMB, floor: "sign", desired: "sec=krb5i"},
		"neither Kerberos nor signing":                  {protocol: SMB, floor: "sec=krb5i", desired: "sec=ntlmv2", weaker: "sec:ntlmv2:krb5i;signing:ntlmv2:krb5i"},
		"signing":                                       {protocol: SMB, floor: "sec=ntlmssp", desired: "sign"},
		"encryption of SMB":                             {protocol: SMB, desired: "seal"},
		"no option removes encryption":                  {protocol: SMB, floor: "seal", desired: "sec=krb5i vers=3.1.1"},
		"encryption with a value that it does not take": {protocol: SMB, floor: "seal", desired: "seal=0", weaker: "seal:0:seal"},
		"old hashes if unset":                           {protocol: SMB, desired: "sec=ntlm", weaker: "sec:ntlm:ntlmssp"},
		"old, signed, over an unset sec":                {protocol: SMB, desired: "sec=ntlmi", weaker: "sec:ntlmi:ntlmssp"},
		"a flavour that signs for one that does not":    {protocol: SMB, floor: "sec=krb5", desired: "sec=ntlmv2i", weaker: "sec:ntlmv2i:krb5"},

		"no user quota":                  {protocol: XFS, floor: "uquota", desired: "noquota", weaker: "user quota:noquota:uquota"},
		"no user quota, its long name":   {protocol: XFS, floor: "usrquota", desired: "noquota", weaker: "user quota:noquota:usrquota"},
		"no user quota, its short name":  {protocol: XFS, floor: "quota", desired: "noquota", weaker: "user quota:noquota:quota"},
		"no group quota":                 {protocol: XFS, floor: "gquota", desired: "noquota", weaker: "group quota:noquota:gquota"},
		"no group quota, its long name":  {protocol: XFS, floor: "grpquota", desired: "noquota", weaker: "group quota:noquota:grpquota"},
		"no project quota":               {protocol: XFS, floor: "pquota", desired: "noquota", weaker: "project quota:noquota:pquota"},
		"no project quota, long name":    {protocol: XFS, floor: "prjquota", desired: "noquota", weaker: "project quota:noquota:prjquota"},
		"no count of users":              {protocol: XFS, floor: "uqnoenforce", desired: "noquota", weaker: "user quota:noquota:uqnoenforce"},
		"no count of users, short name":  {protocol: XFS, floor: "qnoenforce", desired: "noquota", weaker: "user quota:noquota:qnoenforce"},
		"no count of groups":             {protocol: XFS, floor: "gqnoenforce", desired: "noquota", weaker: "group quota:noquota:gqnoenforce"},
		"no count of projects":           {protocol: XFS, floor: "pqnoenforce", desired: "noquota", weaker: "project quota:noquota:pqnoenforce"},
		"counted and no longer enforced": {protocol: XFS, floor: "pquota", desired: "pqnoenforce", weaker: "project quota:pqnoenforce:pquota"},
		"counted and enforced":           {protocol: XFS, floor: "pqnoenforce", desired: "pquota"},
		"several at once":                {protocol: XFS, floor: "uquota,pquota", desired: "noquota", weaker: "user quota:noquota:uquota;project quota:noquota:pquota"},
		"noquota where there are none":   {protocol: XFS, floor: "noatime", desired: "noquota"},
		"noquota that came last":         {protocol: XFS, floor: "pquota noquota", desired: "noquota"},
		"a quota that came last":         {protocol: XFS, floor: "noquota pquota", desired: "noquota", weaker: "project quota:noquota:pquota"},

		"an unknown protocol": {protocol: "AFS", floor: "ro", desired: "rw"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range test.protocol.Weakened(strings.Fields(test.floor), strings.Fields(test.desired)) {
				got = append(got, d.Option+":"+d.Desired+":"+d.Observed)
				if !d.Weaker || d.Message != "the operator never weakens a mount" {
					t.Errorf("got %+v without a reason", d)
				}
			}
			if want := strings.FieldsFunc(test.weaker, func(r rune) bool { return r == ';' }); !cmp.Equal(want, got, cmpopts.EquateEmpty()) {
				t.Errorf("got weaker %q, want %q", got, want)
			}
		})
	}
}

func TestMergeNeverWeakensAMount(t *testing.T) {
	for name, test := range map[string]struct {
		protocol                Protocol
		given, current, desired string
		policy                  v1alpha1.ConflictPolicy
		class, want, skipped    string
	}{
		"the rest of the rule applies":               {protocol: NFS, current: "sec=krb5p hard", desired: "sec=sys nocto", policy: useProfile, want: "sec=krb5p hard nocto", skipped: "sec:sys:krb5p"},
		"a value of the class":                       {protocol: NFS, current: "sec=krb5p", desired: "sec=sys nocto", policy: overClass, class: "sec=krb5p", want: "sec=krb5p nocto", skipped: "sec:sys:krb5p"},
		"the policy is not the reason":               {protocol: NFS, current: "sec=krb5p", desired: "sec=sys nocto", policy: keepVolume, want: "sec=krb5p nocto", skipped: "sec:sys:krb5p"},
		"next to options that the policy keeps":      {protocol: NFS, current: "sec=krb5p nconnect=2", desired: "nconnect=4 sec=sys", want: "sec=krb5p nconnect=2", skipped: "sec:sys:krb5p nconnect:4:2"},
		"stronger":                                   {protocol: NFS, current: "sec=sys", desired: "sec=krb5p", policy: useProfile, want: "sec=krb5p"},
		"quotas under another name":                  {protocol: XFS, current: "prjquota", desired: "noquota noatime", want: "prjquota noatime", skipped: "project:noquota:prjquota"},
		"what the driver gives":                      {protocol: NFS, given: "sec=krb5", desired: "sec=sys nocto", policy: useProfile, want: "nocto", skipped: "sec:sys:krb5"},
		"the options contain more than the driver's": {protocol: NFS, given: "sec=sys", current: "sec=krb5", desired: "sec=sys", policy: useProfile, want: "sec=krb5", skipped: "sec:sys:krb5"},
		"read-only regardless of the options":        {protocol: SMB, given: "ro", desired: "rw mfsymlinks", want: "mfsymlinks", skipped: "access:rw:ro"},
		"several of one kind go together":            {protocol: NFS, current: "sec=krb5", desired: "sec=krb5p nocto sec=sys", policy: useProfile, want: "sec=krb5 nocto", skipped: "sec:sys:krb5"},
		"nothing is left":                            {protocol: NFS, current: "hard hard ro", desired: "rw", policy: useProfile, want: "hard hard ro", skipped: "access:rw:ro"},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.protocol.MergeProtected(strings.Fields(test.given), strings.Fields(test.current), strings.Fields(test.desired), test.policy, strings.Fields(test.class))
			if diff := cmp.Diff(strings.Fields(test.want), got.Options, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			var skipped []string
			for _, k := range got.Skipped {
				skipped = append(skipped, strings.TrimSuffix(k.Option, " quota")+":"+k.Desired+":"+k.Observed)
			}
			if diff := cmp.Diff(strings.Fields(test.skipped), skipped, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Between declared lists there is no volume that could become weaker.
func TestJoinKeepsTheFirst(t *testing.T) {
	if got := NFS.Join([]string{"hard"}, []string{"sec=none", "suid", "soft"}); !slices.Equal(got.Options, []string{"hard", "sec=none"}) || len(got.Skipped) != 1 {
		t.Errorf("got %q, skipped %v", got.Options, got.Skipped)
	}
}

// drawProtected draws a list with many protections, including options that no profile may declare.
func drawProtected(t *rapid.T, p Protocol, label string) []string {
	var draw []string
	for _, protection := range tableOf(p).protections {
		for option := range protection.levels {
			draw = append(draw, option)
		}
	}
	slices.Sort(draw)
	draw = append(draw, "sec=krb5p:sys", "sec=sys:krb5", "sec=spkm3", "xprtsec=", "seal=1")
	list := rapid.SliceOfN(rapid.SampledFrom(draw), 0, 5).Draw(t, label+" protection")
	return append(list, drawKnown(t, p, label)...)
}

func TestAMergedListIsNeverWeaker(t *testing.T) {
	for _, p := range protocols {
		t.Run(string(p), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				given, current, desired, class := drawProtected(t, p, "given"), drawProtected(t, p, "current"), drawProtected(t, p, "wanted"), drawProtected(t, p, "class")
				policy := rapid.SampledFrom(policies).Draw(t, "policy")
				got := p.MergeProtected(given, current, desired, policy, class)
				for _, protection := range tableOf(p).protections {
					before, after := protection.read(Parse(slices.Concat(given, current))), protection.read(Parse(slices.Concat(given, got.Options)))
					if after.isWeaker(before) {
						t.Fatalf("%q with %q and %q, policy %s: got %q, where %s is %s, want at least %s",
							current, given, desired, policy, got.Options, protection.name, after.text, before.text)
					}
				}
				if again := p.MergeProtected(given, got.Options, desired, policy, class); again.Changed {
					t.Fatalf("want an idempotent merge, got %q, then %q", got.Options, again.Options)
				}
			})
		})
	}
}
