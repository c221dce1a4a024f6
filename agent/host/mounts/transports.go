package mounts

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	switchesDir = "/sys/kernel/sunrpc/xprt-switches"
	// nfsPort is the server's port unless the option port= tells another. Other ports belong to rpcbind, mountd
	// and the back-channel.
	nfsPort = 2049
)

// transport is what sysfs tells of one RPC transport, since Linux 5.14.
type transport struct {
	server     string
	port       int
	sourcePort int
	slotLimit  int
}

// Transport is one RPC transport to an NFS server.
type Transport struct {
	// Server is the server's address.
	Server string
	// SlotLimit is the most requests in flight that it was made with.
	SlotLimit int
	// ObeysSlotTable is false for a transport of NFSv4.1 or 4.2, where the session's slots count instead.
	ObeysSlotTable bool
}

// Transports lists the transports to NFS servers. There are none on a kernel before 5.14, which does not tell.
func (r Reader) Transports() ([]Transport, error) {
	all := r.sysfsTransports()
	if len(all) == 0 {
		return nil, nil
	}
	lines, _, err := r.readMountinfo()
	if err != nil {
		return nil, err
	}
	clients := clientsOf(lines, r.readMountstats())
	var found []Transport
	for _, t := range all {
		mine := slices.DeleteFunc(slices.Clone(clients), func(c client) bool { return !c.usesTransport(t) })
		if len(mine) == 0 && t.port != nfsPort {
			continue
		}
		found = append(found, Transport{Server: t.server, SlotLimit: t.slotLimit, ObeysSlotTable: obeysSlotTable(t, mine)})
	}
	return found, nil
}

// Session is the session of one NFSv4.1 or 4.2 client.
type Session struct {
	// Server is the server's name, Client what tells clients apart: Mount.Client.
	Server, Client string
	// Age is how many seconds ago the oldest of its mounts was made; math.MaxInt where the kernel does not tell.
	Age int
	// Ports are the local ports of its transports; 0 where one is not known.
	Ports []int
}

// Sessions lists the sessions that mounts use, sorted by client.
func (r Reader) Sessions() ([]Session, error) {
	lines, _, err := r.readMountinfo()
	if err != nil {
		return nil, err
	}
	all := r.readMountstats()
	found := map[string]Session{}
	for _, line := range lines {
		if !isNFS(line.fsType) {
			continue
		}
		s, told := all[line.point]
		c := newClient(line, s)
		if !c.sessions {
			continue
		}
		name := c.clientName(line)
		session, known := found[name]
		if !known {
			session.Client = name
			session.Server, _ = splitSource(line)
		}
		session.Age = max(session.Age, s.age)
		if !told {
			session.Age = math.MaxInt
		}
		session.Ports = distinctValues(append(session.Ports, s.sourcePorts...))
		found[name] = session
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Session) int { return strings.Compare(a.Client, b.Client) }), nil
}

// sysfsTransports is best effort: a transport that is closing has no numbers.
func (r Reader) sysfsTransports() []transport {
	var found []transport
	for _, t := range r.readSysfs() {
		if limit, ok := t.numbers["max_num_slots"]; ok {
			found = append(found, transport{server: t.server, port: t.numbers["dst_port"], sourcePort: t.numbers["src_port"], slotLimit: limit})
		}
	}
	return found
}

type sysfsTransport struct {
	id, server string
	numbers    map[string]int
}

func (r Reader) readSysfs() []sysfsTransport {
	dirs, err := r.fs.Glob(switchesDir, "switch-*/xprt-*")
	if err != nil {
		return nil
	}
	var found []sysfsTransport
	for _, dir := range dirs {
		server, err := r.fs.ReadValue(path.Join(dir, "dstaddr"))
		if err != nil {
			continue
		}
		info, err := r.fs.ReadValue(path.Join(dir, "xprt_info"))
		if err != nil {
			continue
		}
		found = append(found, sysfsTransport{path.Base(path.Dir(dir)) + "/" + path.Base(dir), server, parseNumbers(info)})
	}
	return found
}

// portOf returns the port of a mount's server, with the one that counts if no option tells another.
func portOf(line mountLine, usual int) int {
	if given, err := strconv.Atoi(optionValue(line.super, "port")); err == nil && given > 0 {
		return given
	}
	return usual
}

func parseNumbers(info string) map[string]int {
	numbers := map[string]int{}
	for field := range strings.FieldsSeq(info) {
		name, value, _ := strings.Cut(field, "=")
		if n, err := strconv.Atoi(value); err == nil {
			numbers[name] = n
		}
	}
	return numbers
}

// client is what one NFS mount tells of the transports that it uses.
type client struct {
	server      string
	port        int
	sourcePorts []int
	sessions    bool
}

func clientsOf(lines []mountLine, all map[string]stats) []client {
	var clients []client
	for _, line := range lines {
		if !isNFS(line.fsType) {
			continue
		}
		clients = append(clients, newClient(line, all[line.point]))
	}
	return clients
}

// newClient takes address and port from the mount table: mountstats leaves them out.
func newClient(line mountLine, s stats) client {
	version := optionValue(line.super, "vers")
	return client{
		server: optionValue(line.super, "addr"), port: portOf(line, nfsPort), sourcePorts: s.sourcePorts,
		sessions: strings.HasPrefix(version, "4.") && version != "4.0",
	}
}

// clientName holds what the kernel compares before it shares a client and its connections: nconnect is not among it.
// Source: nfs_match_client in fs/nfs/client.c.
func (c client) clientName(line mountLine) string {
	var parts []string
	for _, key := range []string{"vers", "proto", "xprtsec"} {
		parts = append(parts, optionValue(line.super, key))
	}
	return fmt.Sprintf("%s:%d %s", c.server, c.port, strings.Join(parts, " "))
}

func (c client) usesTransport(t transport) bool {
	return t.port == c.port && sameAddress(t.server, c.server)
}

// ownsTransport tells that a transport is this client's own: NFSv3 and 4.0 use reserved ports, which tell them apart from
// the NFSv4.1 transports to the same address.
func (c client) ownsTransport(t transport) bool {
	return t.sourcePort != 0 && slices.Contains(c.sourcePorts, t.sourcePort)
}

// obeysSlotTable tells whether a transport was made with the limits of the slot table. Where an address has both kinds of
// mounts and the ports do not tell, one that is unlimited is taken for a session's.
func obeysSlotTable(t transport, clients []client) bool {
	sessions := 0
	for _, c := range clients {
		if c.ownsTransport(t) {
			return !c.sessions
		}
		if c.sessions {
			sessions++
		}
	}
	switch sessions {
	case 0:
		return true
	case len(clients):
		return false
	}
	return t.slotLimit < unlimitedSlots
}

// unlimitedSlots is RPC_MAX_SLOT_TABLE_LIMIT of the kernel, what a transport for sessions is made with.
const unlimitedSlots = 65536

// slotLimit picks the limit of the transports that a mount uses, the lowest where they differ.
func slotLimit(all []transport, c client) int {
	var used, own []int
	for _, t := range all {
		if !c.usesTransport(t) {
			continue
		}
		used = append(used, t.slotLimit)
		if c.ownsTransport(t) {
			own = append(own, t.slotLimit)
		}
	}
	switch {
	case len(own) > 0:
		return slices.Min(own)
	case len(used) == 0:
		return 0
	case c.sessions:
		return slices.Max(used)
	}
	return slices.Min(used)
}

func sameAddress(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}
