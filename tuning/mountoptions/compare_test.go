package mountoptions

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// As /proc/self/mountstats of kernel 6.1 shows a mount with actimeo=30, nocto and nconnect=4.
const tunedMount = "rw,vers=4.1,rsize=262144,wsize=262144,namlen=255,acregmin=30,acregmax=30,acdirmin=30,acdirmax=30,hard,nocto,proto=tcp," +
	"nconnect=4,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.1,local_lock=none"

const plainMount = "rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,hard,proto=tcp6," +
	"timeo=600,retrans=2,sec=sys,clientaddr=fd00::1,fatal_neterrors=none,local_lock=none"

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		desired, observed string
		want              []Difference
	}{
		"all as desired":                 {desired: "actimeo=30 nconnect=4 nocto vers=4.1 hard tcp rsize=262144", observed: tunedMount},
		"undesired options do not count": {desired: "hard", observed: tunedMount},
		"each timer counts": {desired: "actimeo=30", observed: plainMount, want: []Difference{
			{Option: "acregmin", Desired: "30", Observed: "3"}, {Option: "acregmax", Desired: "30", Observed: "60"},
			{Option: "acdirmax", Desired: "30", Observed: "60"}}},
		"a timer after actimeo": {desired: "actimeo=30 acregmax=90", observed: tunedMount, want: []Difference{
			{Option: "acregmax", Desired: "90", Observed: "30"}}},
		"a timer that is not shown is a difference": {desired: "acdirmin=30", observed: "rw,acregmin=30", want: []Difference{
			{Option: "acdirmin", Desired: "30"}}},
		"connections that the first mount fixed": {desired: "nconnect=8", observed: tunedMount, want: []Difference{
			{Option: "nconnect", Desired: "8", Observed: "4"}}},
		"connections that are not desired": {desired: "nconnect=4", observed: plainMount, want: []Difference{
			{Option: "nconnect", Desired: "4"}}},
		"one connection is what is not shown": {desired: "nconnect=1", observed: plainMount},
		"one connection where there are four": {desired: "nconnect=1", observed: tunedMount, want: []Difference{
			{Option: "nconnect", Desired: "1", Observed: "4"}}},
		"nocto is shown where it is on":           {desired: "nocto", observed: plainMount, want: []Difference{{Option: "cto", Desired: "nocto"}}},
		"cto is not shown where it is on":         {desired: "cto", observed: plainMount},
		"cto where nocto is shown":                {desired: "cto", observed: tunedMount, want: []Difference{{Option: "cto", Desired: "cto", Observed: "nocto"}}},
		"privileged ports are not shown":          {desired: "resvport", observed: plainMount},
		"other ports are":                         {desired: "noresvport", observed: plainMount, want: []Difference{{Option: "resvport", Desired: "noresvport"}}},
		"hard where the mount is soft":            {desired: "hard", observed: "rw,soft", want: []Difference{{Option: "hard", Desired: "hard", Observed: "soft"}}},
		"nolock makes all locks local":            {desired: "vers=3 nolock local_lock=flock", observed: "rw,vers=3,nolock,local_lock=all"},
		"local_lock after nolock":                 {desired: "vers=3 nolock local_lock=none", observed: "rw,vers=3,nolock,local_lock=none"},
		"two kinds of local locks":                {desired: "vers=3 local_lock=flock local_lock=posix", observed: "rw,vers=3,local_lock=all"},
		"locks that should be local":              {desired: "vers=3 local_lock=flock", observed: "rw,vers=3,local_lock=none", want: []Difference{{Option: "local_lock", Desired: "flock", Observed: "none"}}},
		"locks that should not":                   {desired: "vers=3 local_lock=flock", observed: "rw,vers=3,nolock,local_lock=all", want: []Difference{{Option: "local_lock", Desired: "flock", Observed: "all"}}},
		"softerr brings softreval":                {desired: "softerr", observed: "rw,softerr,softreval"},
		"noac is one flag, not five":              {desired: "noac actimeo=30", observed: tunedMount, want: []Difference{{Option: "ac", Desired: "noac"}}},
		"noac as it is shown":                     {desired: "noac", observed: "rw,sync,acregmin=0,acregmax=0,acdirmin=0,acdirmax=0,hard,noac"},
		"any minor version is version 4":          {desired: "vers=4", observed: plainMount},
		"the old way to write 4.1":                {desired: "vers=4 minorversion=1", observed: tunedMount},
		"another version":                         {desired: "nfsvers=3", observed: tunedMount, want: []Difference{{Option: "vers", Desired: "3", Observed: "4.1"}}},
		"tcp over IPv6 is tcp":                    {desired: "proto=tcp", observed: plainMount},
		"one flavour of several":                  {desired: "sec=krb5:sys", observed: plainMount},
		"a timeout held to its limit":             {desired: "timeo=9000", observed: "timeo=6000"},
		"a retry count":                           {desired: "retrans=5", observed: plainMount, want: []Difference{{Option: "retrans", Desired: "5", Observed: "2"}}},
		"a size that the kernel rounded by power": {desired: "rsize=300000", observed: tunedMount, want: []Difference{{Option: "rsize", Desired: "300000", Observed: "262144", Limited: true}}},
		"a size that the kernel rounded by page":  {desired: "rsize=300000", observed: "rsize=299008", want: []Difference{{Option: "rsize", Desired: "300000", Observed: "299008", Limited: true}}},
		"a size beyond the kernel's limit":        {desired: "wsize=8650752", observed: plainMount, want: []Difference{{Option: "wsize", Desired: "8650752", Observed: "1048576", Limited: true}}},
		"a size that the server held down":        {desired: "rsize=1048576", observed: tunedMount, want: []Difference{{Option: "rsize", Desired: "1048576", Observed: "262144", Limited: true}}},
		"a size that is larger than desired":      {desired: "rsize=262144", observed: plainMount, want: []Difference{{Option: "rsize", Desired: "262144", Observed: "1048576"}}},
		"a size that was left to the server":      {desired: "rsize=0", observed: plainMount},
		"a size that is not shown":                {desired: "rsize=262144", observed: "rw", want: []Difference{{Option: "rsize", Desired: "262144"}}},
		"what the kernel never shows":             {desired: "intr noatime _netdev retry=2", observed: plainMount},
		"flags of the mount": {desired: "nosuid nodev noexec", observed: plainMount + ",noexec,relatime", want: []Difference{
			{Option: "suid", Desired: "nosuid"}, {Option: "dev", Desired: "nodev"}}},
		"flags that are shown where they are off": {desired: "suid dev exec", observed: plainMount + ",nosuid,relatime", want: []Difference{{Option: "suid", Desired: "suid", Observed: "nosuid"}}},
		"what NFSv4 drops in silence":             {desired: "nolock local_lock=all", observed: plainMount},
		"what NFSv3 shows":                        {desired: "nolock", observed: "vers=3", want: []Difference{{Option: "lock", Desired: "nolock"}}},
		"the lookup cache under its other name":   {desired: "lookupcache=positive", observed: "lookupcache=pos"},
		"the lookup cache's default":              {desired: "lookupcache=all", observed: plainMount},
		"synchronous writes":                      {desired: "sync", observed: plainMount, want: []Difference{{Option: "sync", Desired: "sync"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := NFS.Compare(strings.Fields(test.desired), strings.Split(test.observed, ","))
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(Difference{}, "Message"), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			for _, d := range got {
				if d.Message == "" {
					t.Errorf("%s: got a difference without a reason", d.Option)
				}
			}
		})
	}
}

func TestUnverifiable(t *testing.T) {
	for name, test := range map[string]struct{ desired, want string }{
		"what is shown":                 {"actimeo=30 nconnect=4 nocto vers=4.1 rsize=262144", ""},
		"what has no effect":            {"intr noatime nodiratime hard", "intr noatime nodiratime"},
		"what only mount reads":         {"_netdev retry=2", "_netdev retry=2"},
		"what the server chooses":       {"rsize=0 wsize=65536", "rsize=0"},
		"locks, where v4 may drop them": {"nolock", "nolock"},
		"locks on NFSv3":                {"nolock vers=3", ""},
		"addresses that NFSv3 drops":    {"max_connect=4 vers=3", "max_connect=4"},
		"addresses that NFSv4.0 drops":  {"max_connect=4 vers=4 minorversion=0", "max_connect=4"},
		"addresses of a session":        {"max_connect=4 vers=4.1", ""},
		"addresses of any version":      {"max_connect=4", ""},
		"unknown options":               {"strange=1", "strange=1"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(strings.Fields(test.want), NFS.Unverifiable(strings.Fields(test.desired)), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A volume may have options that profiles cannot set. atime, for example, is a word of mount(8) for the kernel's default.
func TestOptionsThatOnlyAVolumeMaySetAreNotCompared(t *testing.T) {
	// As /proc/mounts of kernel 6.18 shows a mount that was made with atime.
	observed := strings.Split("rw,relatime,inode64,logbufs=8,logbsize=32k,noquota", ",")
	for _, p := range []Protocol{XFS, Generic} {
		for _, option := range []string{"atime", "quota", "context=system_u:object_r:nfs_t:s0", "never-heard-of"} {
			if got := p.Compare([]string{option}, observed); len(got) > 0 {
				t.Errorf("%s with %s: got %v, want no difference", p, option, got)
			}
		}
		if got := p.Compare([]string{"noatime"}, observed); len(got) != 1 {
			t.Errorf("%s with noatime: got %v, want one difference", p, got)
		}
		if got := p.Compare([]string{"suid"}, append(observed, "nosuid")); len(got) != 1 {
			t.Errorf("%s with suid where the mount has nosuid: got %v, want one difference", p, got)
		}
	}
}
