package mounts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

// Sources are cut as nfs_parse_devname in fs/nfs/fs_context.c and smb3_parse_devname in fs/smb/client/fs_context.c cut them, after the escapes of
// seq_escape.
func TestSourcesOfTheMountTable(t *testing.T) {
	for name, test := range map[string]struct{ fsType, source, server, export string }{
		"no slash":                    {"nfs4", "filer:export", "filer", "export"},
		"several colons":              {"nfs", "a:b:c", "a", "b:c"},
		"a colon in the path":         {"nfs", "filer:/p:q", "filer", "/p:q"},
		"no path":                     {"nfs4", "filer:", "filer", ""},
		"a zone":                      {"nfs4", "[fe80::1%eth0]:/x", "fe80::1%eth0", "/x"},
		"IPv6 without brackets":       {"nfs4", "fe80::1:/x", "fe80", ":1:/x"},
		"a name in brackets":          {"nfs", "[filer]:/x", "filer", "/x"},
		"a list in brackets":          {"nfs", "[a,b]:/x", "a,b", "/x"},
		"a list":                      {"nfs", "a,b:/x,y", "a", "/x,y"},
		"a comma in the path":         {"nfs", "filer:/x,y:z", "filer", "/x,y:z"},
		"a bracket in the path":       {"nfs", "filer:/[x]:y", "filer", "/[x]:y"},
		"a blank":                     {"nfs", `filer:/a\040b`, "filer", "/a b"},
		"a backslash and a tab":       {"nfs", `filer:/a\134040\011b`, "filer", "/a\\040\tb"},
		"a hash":                      {"nfs", `filer:/a\043b`, "filer", "/a#b"},
		"a slash at the end":          {"nfs4", "filer:/a/", "filer", "/a/"},
		"the protocol's root":         {"nfs4", "filer:/", "filer", "/"},
		"a share":                     {"cifs", "//filer/share", "filer", "/share"},
		"a folder of a share":         {"smb3", "//filer/share/sub/x", "filer", "/share/sub/x"},
		"backslashes":                 {"cifs", `\134\134filer\134share\134sub`, "filer", "/share/sub"},
		"slashes of both kinds":       {"cifs", `//filer\134share/sub\134x`, "filer", "/share/sub/x"},
		"a user is part of the name":  {"cifs", "//user@filer/share", "user@filer", "/share"},
		"an IPv6 address in brackets": {"cifs", "//[::1]/x", "::1", "/x"},
		"an IPv6 address":             {"cifs", "//fd00::2/x", "fd00::2", "/x"},
		"a share with a blank":        {"cifs", `//filer/my\040share`, "filer", "/my share"},
		"a share with a dollar":       {"cifs", "//filer/c$", "filer", "/c$"},
		"a share and a slash":         {"cifs", "//filer/share/", "filer", "/share"},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := reader(t, map[string]string{
				"/proc/1/mountinfo": "30 1 0:52 / /m rw - " + test.fsType + " " + test.source + " rw,vers=3,proto=tcp,addr=192.0.2.1\n",
			}).Read()
			if err != nil || len(table.Mounts) != 1 || table.Malformed != 0 {
				t.Fatalf("got %+v, error %v", table, err)
			}
			if m := table.Mounts[0]; m.Server != test.server || m.Export != test.export {
				t.Errorf("got %q and %q, want %q and %q", m.Server, m.Export, test.server, test.export)
			}
		})
	}
}

// Each address and port on loopback is a separate tunnel, whatever its name.
func TestEveryTunnelIsAServer(t *testing.T) {
	for name, test := range map[string]struct {
		// mounts are "SOURCE PORT ADDRESS"; an empty port is not shown.
		mounts []string
		want   []string
	}{
		"ports of efs-utils":                {mounts: []string{"127.0.0.1:/ 20049 127.0.0.1", "127.0.0.1:/ 20050 127.0.0.1"}, want: []string{"127.0.0.1:20049", "127.0.0.1:20050"}},
		"two mounts of one tunnel":          {mounts: []string{"127.0.0.1:/ 20049 127.0.0.1", "127.0.0.1:/a 20049 127.0.0.1"}, want: []string{"127.0.0.1:20049"}},
		"two addresses with one port":       {mounts: []string{"127.0.0.1:/ 20049 127.0.0.1", "127.0.0.2:/ 20049 127.0.0.2"}, want: []string{"127.0.0.1:20049", "127.0.0.2:20049"}},
		"IPv6":                              {mounts: []string{"[::1]:/ 20049 ::1", "[::1]:/ 20050 ::1"}, want: []string{"[::1]:20049", "[::1]:20050"}},
		"IPv4 and IPv6":                     {mounts: []string{"127.0.0.1:/ 20049 127.0.0.1", "[::1]:/ 20049 ::1"}, want: []string{"127.0.0.1:20049", "[::1]:20049"}},
		"IPv4 mapped to IPv6":               {mounts: []string{"[::ffff:127.0.0.1]:/ 20049 ::ffff:127.0.0.1"}, want: []string{"[::ffff:127.0.0.1]:20049"}},
		"localhost":                         {mounts: []string{"localhost:/ 20049 127.0.0.1", "localhost:/ 20050 127.0.0.1"}, want: []string{"localhost:20049", "localhost:20050"}},
		"a name of the hosts file":          {mounts: []string{"efs.local:/ 20049 127.0.0.1", "efs.local:/ 20050 127.0.0.1"}, want: []string{"efs.local:20049", "efs.local:20050"}},
		"stunnel of Azure Files":            {mounts: []string{"127.0.0.1:/acct/a 20100 127.0.0.1", "127.0.0.1:/other/b 20101 127.0.0.1"}, want: []string{"127.0.0.1:20100", "127.0.0.1:20101"}},
		"no slash after the colon":          {mounts: []string{"127.0.0.1:fs-1 20049 127.0.0.1", "127.0.0.1:fs-2 20050 127.0.0.1"}, want: []string{"127.0.0.1:20049", "127.0.0.1:20050"}},
		"a tunnel and a server":             {mounts: []string{"127.0.0.1:/ 20049 127.0.0.1", "filer:/ 20049 192.0.2.1", "filer:/ 20050 192.0.2.1"}, want: []string{"127.0.0.1:20049", "filer"}},
		"a server of the node":              {mounts: []string{"localhost:/  127.0.0.1"}, want: []string{"localhost"}},
		"mount.aznfs has its own addresses": {mounts: []string{"10.161.100.100:/a/c 2048 10.161.100.100", "10.161.100.101:/b/c 2048 10.161.100.101"}, want: []string{"10.161.100.100", "10.161.100.101"}},
	} {
		t.Run(name, func(t *testing.T) {
			var lines strings.Builder
			for i, mount := range test.mounts {
				fields := strings.Split(mount, " ")
				port := ""
				if fields[1] != "" {
					port = ",port=" + fields[1]
				}
				fmt.Fprintf(&lines, "%d 1 0:%d / /m%d rw - nfs4 %s rw,vers=4.1,proto=tcp%s,addr=%s\n", 30+i, 50+i, i, fields[0], port, fields[2])
			}
			r := reader(t, map[string]string{"/proc/1/mountinfo": lines.String()})
			counted, err := r.Counters()
			check.NoError(t, err)
			table, err := r.Read()
			check.NoError(t, err)
			var names, ofMounts, asked []string
			for _, server := range counted {
				names = append(names, server.Server)
				asked = append(asked, server.Ask.Address)
				if strings.Contains(server.Server, ":20") && !server.Tunnel {
					t.Errorf("got %+v, want a tunnel", server)
				}
			}
			for _, m := range table.Mounts {
				ofMounts = append(ofMounts, m.Server)
			}
			slices.Sort(ofMounts)
			check.Equal(t, "servers", test.want, names)
			check.Equal(t, "servers of the mounts", test.want, slices.Compact(ofMounts))
			if slices.Sort(asked); len(slices.Compact(asked)) != len(test.want) {
				t.Errorf("asks %q, want one address for each server", asked)
			}
		})
	}
}
