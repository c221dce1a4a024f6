package mountoptions

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		options  []string
		errors   []string // "option: part of the message", in order
		warnings []string
	}{
		"the Azure Files guide": {options: []string{"actimeo=30", "nconnect=4"}},
		"the NetApp guide, tool volumes": {options: []string{"nocto", "actimeo=600", "nconnect=8", "rsize=262144", "wsize=262144", "vers=3", "tcp",
			"rw", "hard", "async", "noresvport", "timeo=600", "retrans=2", "sec=sys", "lookupcache=pos"}},
		"Kerberos flavours in a list": {options: []string{"sec=krb5i:krb5p"}},

		"too many connections":          {options: []string{"nconnect=17"}, errors: []string{"nconnect=17: must be 1 to 16 connections"}},
		"no connection":                 {options: []string{"nconnect=0"}, errors: []string{"nconnect=0: must be 1 to 16"}},
		"seconds with a suffix":         {options: []string{"actimeo=30s"}, errors: []string{"actimeo=30s: must be decimal digits only, without a suffix: write 30"}},
		"bytes with a suffix":           {options: []string{"rsize=256k"}, errors: []string{"rsize=256k: must be decimal digits only, without a suffix: write 262144"}},
		"seconds that overflow":         {options: []string{"actimeo=4294968"}, errors: []string{"actimeo=4294968: must be 0 to 4294967 s"}},
		"the longest time that fits":    {options: []string{"actimeo=4294967"}},
		"a value where none belongs":    {options: []string{"nocto=1"}, errors: []string{"nocto=1: does not accept a value: write nocto"}},
		"no value where one belongs":    {options: []string{"nconnect"}, errors: []string{"nconnect: needs a value"}},
		"an empty value":                {options: []string{"rsize="}, errors: []string{"rsize=: needs a value"}},
		"NFSv2":                         {options: []string{"vers=2"}, errors: []string{"vers=2: current kernels do not support NFSv2"}},
		"a version that never was":      {options: []string{"nfsvers=4.3"}, errors: []string{"nfsvers=4.3: must be one of 3, 4, 4.0, 4.1, 4.2"}},
		"an unknown protocol":           {options: []string{"proto=sctp"}, errors: []string{"proto=sctp: must be one of tcp"}},
		"an unknown flavour":            {options: []string{"sec=sys:krb6"}, errors: []string{"sec=sys:krb6: must be one of none"}},
		"no time at all":                {options: []string{"timeo=0"}, errors: []string{"timeo=0: must be 1 to"}},
		"a letter missing":              {options: []string{"nconect=4"}, errors: []string{"nconect=4: is unknown. Did you mean nconnect?"}},
		"letters swapped":               {options: []string{"rszie=65536"}, errors: []string{"rszie=65536: is unknown. Did you mean rsize?"}},
		"an option of another system":   {options: []string{"logbsize=256k"}, errors: []string{"logbsize=256k: is unknown"}},
		"two options in one entry":      {options: []string{"hard,nocto"}, errors: []string{"hard,nocto: an option may contain only letters"}},
		"a blank":                       {options: []string{"noatime, nodiratime"}, errors: []string{"noatime, nodiratime: an option may contain only"}},
		"set-user-ID programs":          {options: []string{"suid"}, errors: []string{"suid: is rejected: it weakens the protection"}},
		"devices":                       {options: []string{"dev"}, errors: []string{"dev: is rejected"}},
		"programs":                      {options: []string{"exec"}, errors: []string{"exec: is rejected"}},
		"a label":                       {options: []string{`context=system_u:object_r:tmp_t:s0`}, errors: []string{"context=system_u:object_r:tmp_t:s0: is rejected: it sets SELinux labels"}},
		"a helper's option":             {options: []string{"x-systemd.automount"}, errors: []string{"x-systemd.automount: is rejected"}},
		"a helper's option, in capital": {options: []string{"X-mount.mkdir"}, errors: []string{"X-mount.mkdir: is rejected"}},
		"success before the mount":      {options: []string{"bg"}, errors: []string{"bg: is rejected: it reports success"}},
		"another server":                {options: []string{"addr=10.0.0.9"}, errors: []string{"addr=10.0.0.9: is rejected: it sets which server"}},

		"two versions":                        {options: []string{"vers=4.1", "nfsvers=4.1"}, errors: []string{"nfsvers=4.1: mount accepts only one version"}},
		"a version as a flag next to another": {options: []string{"v3", "vers=3"}, errors: []string{"vers=3: mount accepts only one version"}},
		"a minor version that contradicts":    {options: []string{"vers=3", "minorversion=1"}, errors: []string{"minorversion=1: contradicts vers=3"}, warnings: []string{"minorversion=1: is outdated"}},
		"a minor version written the old way": {options: []string{"vers=4", "minorversion=1"}, warnings: []string{"minorversion=1: is outdated: write vers=4.1"}},
		"hard and soft":                       {options: []string{"hard", "soft"}, errors: []string{"soft: contradicts hard"}, warnings: []string{"soft: can lose data"}},
		"cto and nocto":                       {options: []string{"cto", "nocto"}, errors: []string{"nocto: contradicts cto"}},
		"two timeouts":                        {options: []string{"timeo=600", "timeo=50"}, errors: []string{"timeo=50: contradicts timeo=600"}},
		"the same twice":                      {options: []string{"hard", "hard"}, warnings: []string{"hard: repeats hard"}},
		"the same under another name":         {options: []string{"tcp", "proto=tcp"}, warnings: []string{"proto=tcp: repeats tcp"}},
		"NFSv4 over UDP":                      {options: []string{"vers=4.1", "udp"}, errors: []string{"udp: NFSv4 does not work over UDP"}},

		"the NetApp guide's intr":                {options: []string{"hard", "intr"}, warnings: []string{"intr: has had no effect since kernel 2.6.25"}},
		"the XFS guide's noatime on NFS":         {options: []string{"noatime", "nodiratime"}, warnings: []string{"noatime: has no effect on NFS", "nodiratime: has no effect on NFS"}},
		"soft":                                   {options: []string{"soft"}, warnings: []string{"soft: can lose data"}},
		"sync":                                   {options: []string{"sync"}, warnings: []string{"sync: makes every write wait"}},
		"no attribute cache, by a timer":         {options: []string{"actimeo=0"}, warnings: []string{"actimeo=0: disables the attribute cache"}},
		"a size that old kernels round":          {options: []string{"rsize=300000"}, warnings: []string{"rsize=300000: the kernel uses 262144 (kernels up to 5.10), or 299008 or less"}},
		"a size beyond what the kernel uses":     {options: []string{"rsize=8650752"}, warnings: []string{"rsize=8650752: the kernel uses 1048576"}},
		"a size below what the kernel uses":      {options: []string{"wsize=512"}, warnings: []string{"wsize=512: the kernel uses 4096"}},
		"a size left to the server":              {options: []string{"rsize=0"}},
		"a longer timeout than the kernel has":   {options: []string{"timeo=6001"}, warnings: []string{"timeo=6001: the kernel uses at most 6000"}},
		"a timer before actimeo":                 {options: []string{"acregmax=90", "actimeo=30"}, warnings: []string{"acregmax=90: has no effect: actimeo=30 comes later"}},
		"a timer after actimeo":                  {options: []string{"actimeo=30", "acregmax=90"}},
		"timers next to noac":                    {options: []string{"noac", "actimeo=30"}, warnings: []string{"noac: turns the attribute cache off", "actimeo=30: has no effect: noac"}},
		"a least time over the greatest":         {options: []string{"acdirmin=90", "acdirmax=60"}, warnings: []string{"acdirmin=90: is larger than acdirmax, which is 60"}},
		"a least time over the kernel's maximum": {options: []string{"acregmin=90"}, warnings: []string{"acregmin=90: is larger than acregmax, which is 60"}},
		"connections over UDP":                   {options: []string{"vers=3", "udp", "nconnect=4"}, warnings: []string{"nconnect=4: has no effect with UDP"}},
		"connections and Kerberos":               {options: []string{"sec=krb5", "nconnect=4"}, warnings: []string{"nconnect=4: vendors advise against"}},
		"locks on NFSv4":                         {options: []string{"nfsvers=4.2", "nolock"}, warnings: []string{"nolock: has no effect on NFSv4"}},
		"addresses on NFSv3":                     {options: []string{"vers=3", "max_connect=4"}, warnings: []string{"max_connect=4: has no effect on NFSv3"}},
		"addresses on NFSv4.0":                   {options: []string{"vers=4.0", "max_connect=4"}, warnings: []string{"max_connect=4: has no effect on NFSv4.0"}},
		"addresses on NFSv4.1":                   {options: []string{"vers=4.1", "max_connect=4"}},
		"a kind of lock next to nolock":          {options: []string{"vers=3", "nolock", "local_lock=flock"}, warnings: []string{"local_lock=flock: has no effect: nolock keeps all locks on the node, like local_lock=all"}},
	} {
		t.Run(name, func(t *testing.T) {
			var errs, warnings []Problem
			for _, p := range Validate(NFS, test.options) {
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

func expect(t *testing.T, name string, want []string, got []Problem) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: got %+v, want %q", name, got, want)
	}
	for i, p := range got {
		if text := p.Option + ": " + p.Message; !strings.HasPrefix(text, want[i]) {
			t.Errorf("%s: got %q, want %q", name, text, want[i])
		}
	}
}

func TestValidateRejectsAnUnknownProtocol(t *testing.T) {
	if problems := Validate("Block", []string{"actimeo=30"}); len(problems) != 1 || problems[0].Warning {
		t.Errorf("got %v, want one error", problems)
	}
}

// Accepted options contain no byte that could become another option.
func TestValidateNeverPassesAnUnsafeByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`(nocto|actimeo|sec|x-a|suid|context)[=, "\n]?[a-z0-9, "\n=]{0,6}`)).Draw(t, "option")
		for _, p := range Validate(NFS, []string{text}) {
			if !p.Warning {
				return
			}
		}
		if o := parseOne(text); !safe.MatchString(text) || nfs.rejectionReason(o) != "" || nfs.specs[o.Name].Key == "" {
			t.Fatalf("got %q accepted", text)
		}
	})
}
