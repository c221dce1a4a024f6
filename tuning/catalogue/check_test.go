package catalogue

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/storageclient/operator/test/check"
)

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		key, value string
		allow      []string
		want       []string // parts of the error; none: applied
	}{
		"a value in range":                  {key: "sysctl/net.core.rmem_max", value: "16777216"},
		"three ascending fields":            {key: "sysctl/net.ipv4.tcp_rmem", value: "4096 131072 6291456"},
		"a buffer below the accepted range": {key: "sysctl/net.core.wmem_max", value: "4096", want: []string{"4608 to"}},
		"a percentage over 100":             {key: "sysctl/vm.dirty_ratio", value: "101", want: []string{"0 to 100 percent"}},
		"a switch that is neither":          {key: "sysctl/net.ipv4.tcp_sack", value: "2", want: []string{"0 to 1"}},
		"a word for a switch":               {key: "sysctl/net.ipv4.tcp_sack", value: "on", want: []string{"decimal digits"}},
		"two fields where three belong":     {key: "sysctl/net.ipv4.tcp_rmem", value: "4096 131072", want: []string{"must be 3 numbers"}},
		"four fields where three belong": {key: "sysctl/net.ipv4.tcp_rmem", value: "1 2 3 4",
			want: []string{"must be 3 numbers"}},
		"fields that fall": {key: "sysctl/net.ipv4.tcp_rmem", value: "4096 131072 1024", want: []string{"may be smaller"}},
		"a field with a suffix": {key: "sysctl/net.ipv4.tcp_rmem", value: "4096 128K 6291456",
			want: []string{"number 2", "write 131072"}},
		"two blanks between fields": {key: "sysctl/net.ipv4.tcp_rmem", value: "4096  131072 6291456",
			want: []string{`write "4096 131072 6291456"`}},
		"a tab between fields":  {key: "sysctl/net.ipv4.tcp_rmem", value: "4096\t131072 6291456", want: []string{"letters, digits"}},
		"a port range reversed": {key: "sysctl/net.ipv4.ip_local_port_range", value: "60999 32768", want: []string{"may be smaller"}},
		"an action with its one value": {key: "sysctl/net.ipv4.route.flush", value: "2",
			want: []string{"must be 1"}},
		"an empty value": {key: "sysctl/net.core.rmem_max", want: []string{"needs a value"}},

		"a slot table below its range": {key: "module/sunrpc/tcp_max_slot_table_entries", value: "1", want: []string{"2 to 65536"}},
		"a slot table above its range": {key: "module/sunrpc/tcp_max_slot_table_entries", value: "65537", want: []string{"2 to 65536"}},
		"more session slots than a table has": {key: "module/nfs/max_session_slots", value: "1025",
			want: []string{"1 to 1024"}},
		"a blank in a module parameter": {key: "module/sunrpc/tcp_slot_table_entries", value: "2 3", want: []string{"no blanks"}},

		"a hash table with a suffix": {key: "kernelArgument/ihash_entries", value: "16M",
			want: []string{"ihash_entries=16M", "write 16777216", "use 16 buckets"}},
		"a hash table in hexadecimal": {key: "kernelArgument/ihash_entries", value: "0x1000000", want: []string{"write 16777216"}},
		"a hash table of 16 buckets":  {key: "kernelArgument/ihash_entries", value: "16", want: []string{"1024 to 2147483648"}},
		"a hash table with no size":   {key: "kernelArgument/ihash_entries", want: []string{"must be a number"}},

		"letters swapped, as the NetApp guide has it": {key: "sysctl/sunrpc.tpc_max_slot_table_entries", value: "128",
			want: []string{"sunrpc.tpc_max_slot_table_entries=128", "Did you mean sunrpc.tcp_max_slot_table_entries?"}},
		"words swapped, as the vendor has it": {key: "sysctl/sunrpc.max_tcp_slot_table_entries", value: "128",
			want: []string{"Did you mean sunrpc.tcp_max_slot_table_entries?"}},
		"a misspelt kernel argument": {key: "kernelArgument/ihash_entry", value: "16777216", want: []string{"Did you mean ihash_entries?"}},
		"a dash for an underscore":   {key: "kernelArgument/ihash-entries", value: "16777216", want: []string{"Did you mean ihash_entries?"}},
		"a module parameter as a sysctl": {key: "sysctl/nfs.max_session_slots", value: "180",
			want: []string{"not a sysctl: use module/nfs/max_session_slots"}},
		"a module parameter as a kernel argument": {key: "kernelArgument/sunrpc.tcp_max_slot_table_entries", value: "128",
			want: []string{"not a kernelArgument: use module/sunrpc/tcp_max_slot_table_entries"}},
		"a parameter of no storage client": {key: "sysctl/kernel.core_pattern", value: "core",
			want: []string{"not supported; to allow it", "--allow-parameter"}},
		"another kernel argument": {key: "kernelArgument/init", value: "/bin/sh", want: []string{"not supported; to allow it"}},

		"an allowed parameter": {key: "sysctl/net.ipv4.tcp_congestion_control", value: "bbr",
			allow: []string{`sysctl/net[.]ipv4[.]tcp_.*`}},
		"an allowed interface name with a dot": {key: "sysctl/net.ipv4.conf.eth0/100.rp_filter", value: "2", allow: []string{`sysctl/.*`}},
		"an allowed flag without a value":      {key: "kernelArgument/nosmt", allow: []string{`kernelArgument/nosmt`}},
		"a pattern that matches a part only": {key: "sysctl/net.ipv4.tcp_congestion_control", value: "bbr",
			allow: []string{`sysctl/net`}, want: []string{"not supported; to allow it"}},
		"an allow-list does not widen a range": {key: "sysctl/vm.dirty_ratio", value: "101", allow: []string{`.*`},
			want: []string{"0 to 100"}},
		"an allow-list does not admit a quote":          {key: "kernelArgument/quiet", value: `a"b`, allow: []string{`.*`}, want: []string{"letters, digits"}},
		"an allow-list does not admit a newline":        {key: "sysctl/kernel.printk", value: "1\nkernel.modprobe=x", allow: []string{`(?s).*`}, want: []string{"letters, digits"}},
		"an allow-list does not admit a shell variable": {key: "kernelArgument/quiet", value: "$(reboot)", allow: []string{`.*`}, want: []string{"letters, digits"}},
		"a path out of the tree by slashes":             {key: "sysctl/net.//.passwd", value: "1", allow: []string{`.*`}, want: []string{"dotted name"}},
		"a path out of the tree by dots":                {key: "sysctl/net...passwd", value: "1", allow: []string{`.*`}, want: []string{"dotted name"}},
		"a name that sysctl.d would read as a path":     {key: "sysctl/net/ipv4.x", value: "1", allow: []string{`.*`}, want: []string{"dotted name"}},
		"a name whose failure would not count":          {key: "sysctl/-net.ipv4.x", value: "1", allow: []string{`.*`}, want: []string{"dotted name"}},
		"a name that holds an assignment":               {key: "sysctl/a.b=c", value: "1", allow: []string{`.*`}, want: []string{"dotted name"}},
		"a module parameter that is a directory":        {key: "module/nfs/..", value: "1", allow: []string{`.*`}, want: []string{"module/<module>"}},
		"a module parameter that is a path":             {key: "module/nfs/a/b", value: "1", allow: []string{`.*`}, want: []string{"module/<module>"}},
		"a kernel argument that ends the list":          {key: "kernelArgument/--", allow: []string{`.*`}, want: []string{"kernel argument's name"}},
		"a kernel argument whose place matters":         {key: "kernelArgument/hugepagesz", value: "1G", allow: []string{`.*`}, want: []string{"settings have no order", "default_hugepagesz"}},
		"a window in range":                             {key: "readAhead/nfs4", value: "15360"},
		"a window out of range":                         {key: "readAhead/nfs4", value: "3", want: []string{"4 to 1048576 KiB"}},
		"read-ahead of a path":                          {key: "readAhead/../nfs", value: "128", allow: []string{`.*`}, want: []string{"file system type"}},
		"another key of tuned":                          {key: "tuned/verify", value: "x", allow: []string{`.*`}, want: []string{"tuned/profile"}},
		"a profile in another directory":                {key: "tuned/profile", value: "../x", want: []string{"a tuned profile"}},
		"two profiles":                                  {key: "tuned/profile", value: "a b", want: []string{"no blanks"}},
		"options for a server":                          {key: "nfsMountDefaults/filer1.example.com", value: "nconnect=4,nocto"},
		"an option that no profile may bring":           {key: "nfsMountDefaults/_all", value: "nconnect=4,exec", want: []string{"exec is rejected"}},
		"defaults without identification":               {key: "nfsMountDefaults/_all", value: "nocto,sec=none", want: []string{"sec=none makes all mounts without sec weaker than the default (sys): leave it out"}},
		"defaults that may be without identification":   {key: "nfsMountDefaults/filer1", value: "sec=krb5:none", want: []string{"sec=krb5:none makes all mounts without sec weaker"}},
		"defaults that are stronger":                    {key: "nfsMountDefaults/filer1", value: "sec=krb5p,xprtsec=tls"},
		"defaults that are the default":                 {key: "nfsMountDefaults/filer1", value: "sec=sys,xprtsec=none,rw"},
		"a server that closes a section":                {key: "nfsMountDefaults/a]", value: "hard", want: []string{"host name"}},
		"a file system's options":                       {key: "filesystem/mnt/disks/*", value: "xfs:noatime,logbsize=256k"},
		"an option that runs a helper":                  {key: "filesystem/mnt", value: "xfs:x-systemd.requires=evil.service", want: []string{"rejected"}},
		"a mount point that ends a line":                {key: "filesystem/mnt\n", value: "xfs:noatime", want: []string{"mount point"}},
		"a file system without options":                 {key: "filesystem/mnt", value: "xfs:", want: []string{"needs mount options"}},
		"a key of no subject":                           {key: "file/etc/passwd", value: "x", allow: []string{`.*`}, want: []string{"must be sysctl/"}},
		"a key without a name":                          {key: "sysctl/", value: "1", allow: []string{`.*`}, want: []string{"dotted name"}},
		"a value that is too long":                      {key: "kernelArgument/x", value: strings.Repeat("a", 257), allow: []string{`.*`}, want: []string{"at most 256 bytes", "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			allow, err := NewAllowList(test.allow)
			check.NoError(t, err)
			err = allow.Check(test.key, test.value)
			if len(test.want) == 0 {
				check.NoError(t, err)
				return
			}
			var rejection *Error
			if !errors.As(err, &rejection) {
				t.Fatalf("Check(%q, %q): got %v, want an *Error", test.key, test.value, err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Check(%q, %q): got %q, want %q in it", test.key, test.value, err, part)
				}
			}
		})
	}
}

func TestNewAllowListNamesABadPattern(t *testing.T) {
	if _, err := NewAllowList([]string{"sysctl/("}); err == nil || !strings.Contains(err.Error(), `"sysctl/("`) {
		t.Errorf("NewAllowList: got %v, want an error with the pattern", err)
	}
}

// No allow-list admits a byte with a special meaning in a generated file or a shell.
func TestCheckNeverAdmitsAnUnsafeByte(t *testing.T) {
	everything, err := NewAllowList([]string{`(?s).*`})
	check.NoError(t, err)
	safeKey := regexp.MustCompile(`\A((sysctl|module|kernelArgument|readAhead|tuned|nfsMountDefaults)/[A-Za-z0-9_.,:/@+-]+|filesystem/[A-Za-z0-9_.,:=/@+*?-]+)\z`)
	safeValue := regexp.MustCompile(`\A[A-Za-z0-9_.,:=/@+ -]*\z`)
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"sysctl/", "module/", "kernelArgument/", "readAhead/", "tuned/", "nfsMountDefaults/", "filesystem/", ""}).Draw(t, "subject") +
			rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z/._=\n$"-]{0,12}`)).Draw(t, "name")
		value := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9 =\n$"\\;#]{0,8}`)).Draw(t, "value")
		if everything.Check(key, value) != nil {
			return
		}
		if !safeKey.MatchString(key) || !safeValue.MatchString(value) {
			t.Fatalf("got %q=%q accepted", key, value)
		}
		if subject, name := Key(key).Cut(); subject == Sysctls {
			path := strings.NewReplacer(".", "/", "/", ".").Replace(name)
			for part := range strings.SplitSeq(path, "/") {
				if part == "" || part == "." || part == ".." {
					t.Fatalf("%q: got path %q outside of its tree", key, path)
				}
			}
		}
	})
}

func TestOneIdentityForAllNodesIsRejected(t *testing.T) {
	var none AllowList
	if err := none.Check(NFS4UniqueIDKey, "FromNode"); err != nil {
		t.Error(err)
	}
	for _, value := range []string{"", "mine", "fromnode"} {
		if none.Check(NFS4UniqueIDKey, value) == nil {
			t.Errorf("got %q accepted: all nodes would have the same client ID", value)
		}
	}
}

func TestPortsAreInTheFormOfTheKernel(t *testing.T) {
	key := SysctlKey("net.ipv4.ip_local_reserved_ports")
	for value, accepted := range map[string]bool{
		"10250": true, "10250,30000-32767": true, "1-65535": true, "10,12,14-20": true,
		"": false, "30000-32767,10250": false, "10,11": false, "10-20,21": false, "10-20,15": false, "20-10": false, "10-10": false, "0": false,
		"65536": false, "10-65536": false, "10-20-30": false, "10,": false, ",10": false, "10k": false, "10, 12": false,
	} {
		if err := (AllowList{}).Check(key, value); (err == nil) != accepted {
			t.Errorf("%q: got error %v, want accepted %t", value, err, accepted)
		}
	}
}

func TestLimitsInBytesAndDirectoryDelegations(t *testing.T) {
	for key, value := range map[string]string{
		"sysctl/vm.dirty_bytes": "1073741824", "sysctl/vm.dirty_background_bytes": "268435456",
		"module/nfsv4/directory_delegations": "0",
	} {
		if err := (AllowList{}).Check(key, value); err != nil {
			t.Error(err)
		}
	}
	for key, value := range map[string]string{"sysctl/vm.dirty_bytes": "4096", "module/nfsv4/directory_delegations": "N"} {
		if err := (AllowList{}).Check(key, value); err == nil {
			t.Errorf("got %s=%s accepted", key, value)
		}
	}
}
