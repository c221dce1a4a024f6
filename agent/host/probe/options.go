package probe

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

type attempt struct {
	fsType  string
	version string
	flags   uintptr
	data    string
}

// newestMinor is the minor version of NFSv4 with which mount.nfs starts (NFS_DEFAULT_MINOR in nfs-utils, utils/mount/version.h).
const newestMinor = 2

type flagBit struct {
	bit   uintptr
	clear bool
}

// mountFlags are the options that mount.nfs converts to flags (opt_map in nfs-utils, utils/mount/mount.c). Options with bit 0 are only for mount(8),
// and do not reach the kernel.
var mountFlags = map[string]flagBit{
	"ro": {bit: syscall.MS_RDONLY}, "rw": {bit: syscall.MS_RDONLY, clear: true},
	"nosuid": {bit: syscall.MS_NOSUID}, "nodev": {bit: syscall.MS_NODEV}, "noexec": {bit: syscall.MS_NOEXEC},
	"sync": {bit: syscall.MS_SYNCHRONOUS}, "async": {bit: syscall.MS_SYNCHRONOUS, clear: true}, "dirsync": {bit: syscall.MS_DIRSYNC},
	"noatime": {bit: syscall.MS_NOATIME}, "atime": {bit: syscall.MS_NOATIME, clear: true},
	"nodiratime": {bit: syscall.MS_NODIRATIME}, "diratime": {bit: syscall.MS_NODIRATIME, clear: true},
	"relatime": {bit: syscall.MS_RELATIME}, "norelatime": {bit: syscall.MS_RELATIME, clear: true},
	"strictatime": {bit: syscall.MS_STRICTATIME}, "nostrictatime": {bit: syscall.MS_STRICTATIME, clear: true},
	"_netdev": {}, "nofail": {}, "defaults": {},
}

// always are the flags that are set whatever the options are. No program of the volume ever runs from here, and no server sees these flags.
const always = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC

// list contains mount options, divided into options that mount.nfs evaluates and options that it passes on.
type list struct {
	flags uintptr
	// rest are the options for the kernel, without the version.
	rest []string
	// version is the version in the options. Empty if they have none. minor is the value of minorversion.
	version, minor string
	// netid is the value of proto, tcp, udp or rdma.
	netid string
	// nconnect is the requested number of connections. 1 by default.
	nconnect int
}

func parseList(options []string) (list, error) {
	l := list{flags: always, nconnect: 1}
	for _, entry := range options {
		for option := range strings.SplitSeq(entry, ",") {
			if option == "" {
				continue
			}
			if err := l.add(option); err != nil {
				return list{}, err
			}
		}
	}
	return l, nil
}

func (l *list) add(option string) error {
	name, value, _ := strings.Cut(option, "=")
	if f, ok := mountFlags[option]; ok {
		if f.clear {
			l.flags &^= f.bit
		} else {
			l.flags |= f.bit
		}
		return nil
	}
	switch name {
	case "vers", "nfsvers":
		return l.setVersion(value)
	case "v3", "v4", "v4.0", "v4.1", "v4.2":
		return l.setVersion(name[1:])
	case "minorversion":
		l.minor = value
		return nil
	case "nconnect":
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			l.nconnect = n
		}
	case "proto":
		l.netid = value
	case "tcp", "udp", "rdma":
		l.netid = name
	}
	l.rest = append(l.rest, option)
	return nil
}

// setVersion rejects a second version, even the same version, as mount.nfs does.
func (l *list) setVersion(version string) error {
	if l.version != "" {
		return errors.New("conflicting NFS version options: " + l.version + " and " + version)
	}
	l.version = version
	return nil
}

// attempts returns the calls of mount(2) that mount.nfs would make for the options. Each is for the case that the previous one has failed in a way
// that leaves the version open.
func (l list) attempts(fsType string, server, client netip.Addr) ([]attempt, error) {
	major, minor, _ := strings.Cut(l.version, ".")
	minor = cmp.Or(minor, l.minor)
	if major == "" && (fsType == "nfs4" || minor != "") {
		major = "4"
	}
	switch {
	case major == "3":
		return []attempt{l.version3(server)}, nil
	case major == "4" && minor != "":
		return []attempt{l.version4(minor, server, client)}, nil
	case major != "" && major != "4":
		return nil, fmt.Errorf("trials do not support NFS version %s", l.version)
	}
	var all []attempt
	for n := newestMinor; n >= 0; n-- {
		all = append(all, l.version4(strconv.Itoa(n), server, client))
	}
	if major == "" {
		all = append(all, l.version3(server))
	}
	return all, nil
}

func (l list) version4(minor string, server, client netip.Addr) attempt {
	return l.newAttempt("4."+minor, "vers=4."+minor, "addr="+server.String(), "clientaddr="+client.String())
}

// version3 leaves the ports of NFS and of mountd to the kernel, which queries the server's rpcbind as mount.nfs does. Locks stay local, because
// rpc.statd is in the node's network namespace, not in this one.
func (l list) version3(server netip.Addr) attempt {
	netid := l.netid
	options := []string{"vers=3"}
	if netid == "" {
		netid = "tcp"
		if server.Is6() {
			netid = "tcp6"
		}
		options = append(options, "proto="+netid)
	}
	return l.newAttempt("3", append(options, "mountvers=3", "mountproto="+netid, "nolock", "addr="+server.String())...)
}

func (l list) newAttempt(version string, options ...string) attempt {
	return attempt{fsType: "nfs", version: version, flags: l.flags, data: strings.Join(slices.Concat(l.rest, options), ",")}
}

// remaining returns the attempts with which mount.nfs would continue after an error of the first (nfs_autonegotiate in stropts.c): an older version,
// version 3 alone, or none.
func remaining(attempts []attempt, err error) []attempt {
	rest := attempts[1:]
	switch {
	case errors.Is(err, syscall.EPROTONOSUPPORT), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EACCES):
		return rest
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ECONNREFUSED):
		return slices.DeleteFunc(slices.Clone(rest), func(a attempt) bool { return a.version != "3" })
	}
	return nil
}

// network returns the address family of a netid, as the net package names it.
func (l list) network() string {
	switch {
	case strings.HasSuffix(l.netid, "6"):
		return "ip6"
	case l.netid == "tcp" || l.netid == "udp":
		return "ip4"
	}
	return "ip"
}

// source returns the source of the mount in the kernel's format.
func source(server, path string) string {
	if addr, err := netip.ParseAddr(server); err == nil && addr.Is6() {
		server = "[" + server + "]"
	}
	return server + ":" + path
}
