package probe

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/storageclient/operator/test/check"
)

var (
	server4 = netip.MustParseAddr("192.0.2.7")
	client4 = netip.MustParseAddr("10.1.2.3")
)

func TestAttemptsAreThoseOfMountNFS(t *testing.T) {
	v4 := func(minor, options string) string {
		return strings.TrimPrefix(options+",vers=4."+minor+",addr=192.0.2.7,clientaddr=10.1.2.3", ",")
	}
	v3 := func(options string) string {
		return strings.TrimPrefix(options+",vers=3,proto=tcp,mountvers=3,mountproto=tcp,nolock,addr=192.0.2.7", ",")
	}
	for name, test := range map[string]struct {
		fsType, options string
		want            []string
	}{
		"no version is negotiated from the newest down":         {"nfs", "hard", []string{v4("2", "hard"), v4("1", "hard"), v4("0", "hard"), v3("hard")}},
		"no options at all":                                     {"nfs", "", []string{v4("2", ""), v4("1", ""), v4("0", ""), v3("")}},
		"version 4 is never made a 3":                           {"nfs", "vers=4 hard", []string{v4("2", "hard"), v4("1", "hard"), v4("0", "hard")}},
		"nfs4 is version 4":                                     {"nfs4", "hard", []string{v4("2", "hard"), v4("1", "hard"), v4("0", "hard")}},
		"a minor version stays":                                 {"nfs", "nfsvers=4.1 nconnect=8", []string{v4("1", "nconnect=8")}},
		"the flag of a version":                                 {"nfs", "v4.0", []string{v4("0", "")}},
		"the old way to write a minor version":                  {"nfs", "vers=4 minorversion=1 sec=sys", []string{v4("1", "sec=sys")}},
		"comma-joined entries are one option each":              {"nfs", "vers=4,minorversion=1,sec=sys noresvport", []string{v4("1", "sec=sys,noresvport")}},
		"version 3 locks locally and queries rpcbind for ports": {"nfs", "nfsvers=3 nocto", []string{v3("nocto")}},
		"version 3 keeps its protocol":                          {"nfs", "v3 udp", []string{"udp,vers=3,mountvers=3,mountproto=udp,nolock,addr=192.0.2.7"}},
		"lock has no effect":                                    {"nfs", "v3 lock", []string{v3("lock")}},
		"flags are not passed as options":                       {"nfs", "vers=4.1 ro noatime _netdev nofail", []string{v4("1", "")}},
		"an unknown option is passed to the kernel":             {"nfs", "vers=4.1 nconect=4", []string{v4("1", "nconect=4")}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := parseList(strings.Fields(test.options))
			check.NoError(t, err)
			attempts, err := l.attempts(test.fsType, server4, client4)
			check.NoError(t, err)
			var got []string
			for _, a := range attempts {
				got = append(got, a.data)
				if a.fsType != "nfs" {
					t.Errorf("type: got %s, want nfs, which supports both versions", a.fsType)
				}
			}
			check.Equal(t, "attempts", test.want, got)
		})
	}
}

func TestInvalidAttempts(t *testing.T) {
	if _, err := parseList([]string{"vers=4.1", "nfsvers=4.1"}); err == nil {
		t.Error("mount.nfs rejects two versions")
	}
	l, err := parseList([]string{"vers=2"})
	check.NoError(t, err)
	if _, err := l.attempts("nfs", server4, client4); err == nil {
		t.Error("version 2 has no attempt")
	}
}

func TestFlagsOfTheMount(t *testing.T) {
	for options, want := range map[string]uintptr{
		"":                             always,
		"ro":                           always | syscall.MS_RDONLY,
		"ro rw":                        always,
		"noatime sync nodiratime":      always | syscall.MS_NOATIME | syscall.MS_SYNCHRONOUS | syscall.MS_NODIRATIME,
		"suid":                         always,
		"strictatime relatime dirsync": always | syscall.MS_STRICTATIME | syscall.MS_RELATIME | syscall.MS_DIRSYNC,
	} {
		l, err := parseList(strings.Fields(options))
		check.NoError(t, err)
		if l.flags != want {
			t.Errorf("%q: flags are %#x, want %#x", options, l.flags, want)
		}
	}
}

func TestAnIPv6Server(t *testing.T) {
	server, client := netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("2001:db8::1")
	l, err := parseList([]string{"nfsvers=3"})
	check.NoError(t, err)
	attempts, err := l.attempts("nfs", server, client)
	check.NoError(t, err)
	check.Equal(t, "data", "vers=3,proto=tcp6,mountvers=3,mountproto=tcp6,nolock,addr=2001:db8::7", attempts[0].data)
	for address, want := range map[string]string{"2001:db8::7": "[2001:db8::7]:/e", "filer": "filer:/e", "192.0.2.7": "192.0.2.7:/e"} {
		check.Equal(t, "source", want, source(address, "/e"))
	}
	for options, want := range map[string]string{"proto=tcp6": "ip6", "proto=tcp": "ip4", "tcp": "ip4", "hard": "ip"} {
		if l, _ := parseList([]string{options}); l.network() != want {
			t.Errorf("%s: addresses are of %s, want %s", options, l.network(), want)
		}
	}
}
