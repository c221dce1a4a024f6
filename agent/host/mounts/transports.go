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

	"github.com/storageclient/operator/tuning/lists"
)

const (
	switchesDir = "/sys/kernel/sunrpc/xprt-switches"
	// nfsPort is the server's port unless the option port= sets another. Other ports belong to rpcbind, mountd and the back-channel.
	nfsPort = 2049
)

// transport contains the data in sysfs about one RPC transport, since Linux 5.14.
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
	// SlotLimit is the maximum number of requests in flight with which it was created.
	SlotLimit int
	// ObeysSlotTable is false for a transport of NFSv4.1 or 4.2, for which the session's slots count instead.
	ObeysSlotTable bool
}

// Transports returns the transports to NFS servers. A kernel before 5.14 does not report them, so there are none.
func (r Reader) Transports() ([]Transport, error) {
	all := r.sysfsTransports()
	if len(all) == 0 {
		return nil, nil
	}
	lines, _, err := r.readMountinfo()
	if err != nil {
		return nil, err
	}
	stats := r.readMountstats()
	clients := lists.Pick(lines, func(line Entry) (client, bool) { return newClient(line, stats[line.Point]), isNFS(line.FSType) })
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
	// Server is the server's name. Client identifies the client, like Mount.Client.
	Server, Client string
	// Age is the time since the oldest of its mounts was made, in seconds. math.MaxInt if the kernel does not report it.
	Age int
	// Ports are the local ports of its transports. Zero for an unknown port.
	Ports []int
}

// Sessions returns the sessions that mounts use, sorted by client.
func (r Reader) Sessions() ([]Session, error) {
	lines, _, err := r.readMountinfo()
	if err != nil {
		return nil, err
	}
	all := r.readMountstats()
	found := map[string]Session{}
	for _, line := range lines {
		if !isNFS(line.FSType) {
			continue
		}
		s, hasStats := all[line.Point]
		c := newClient(line, s)
		if !c.sessions {
			continue
		}
		name := c.clientName(line)
		session, known := found[name]
		if !known {
			session.Client = name
			session.Server = serverName(line)
		}
		session.Age = max(session.Age, s.age)
		if !hasStats {
			session.Age = math.MaxInt
		}
		session.Ports = lists.Distinct(session.Ports, s.sourcePorts)
		found[name] = session
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Session) int { return strings.Compare(a.Client, b.Client) }), nil
}

// sysfsTransports is best effort: a transport that is closing has no numbers.
func (r Reader) sysfsTransports() []transport {
	return lists.Pick(r.readSysfs(), func(t sysfsTransport) (transport, bool) {
		limit, ok := t.numbers["max_num_slots"]
		return transport{server: t.server, port: t.numbers["dst_port"], sourcePort: t.numbers["src_port"], slotLimit: limit}, ok
	})
}

type sysfsTransport struct {
	id, server string
	numbers    map[string]int
}

func (r Reader) readSysfs() (found []sysfsTransport) {
	dirs, err := r.fs.Glob(switchesDir, "switch-*/xprt-*")
	if err != nil {
		return nil
	}
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

// portOf returns the port of a mount's server: the port of an option, or the usual one.
func portOf(line Entry, usual int) int {
	if port, err := strconv.Atoi(OptionValue(line.Super, "port")); err == nil && port > 0 {
		return port
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

// client contains the data of one NFS mount about its transports.
type client struct {
	server      string
	port        int
	sourcePorts []int
	sessions    bool
}

// newClient uses address and port from the mount table, because mountstats omits them.
func newClient(line Entry, s stats) client {
	version := OptionValue(line.Super, "vers")
	return client{
		server: OptionValue(line.Super, "addr"), port: portOf(line, nfsPort), sourcePorts: s.sourcePorts,
		sessions: strings.HasPrefix(version, "4.") && version != "4.0",
	}
}

// clientName contains the values that the kernel compares before it shares a client and its connections. nconnect is not one of them. Source:
// nfs_match_client in fs/nfs/client.c.
func (c client) clientName(line Entry) string {
	parts := lists.Each([]string{"vers", "proto", "xprtsec"}, func(key string) string { return OptionValue(line.Super, key) })
	return fmt.Sprintf("%s:%d %s", c.server, c.port, strings.Join(parts, " "))
}

func (c client) usesTransport(t transport) bool {
	return t.port == c.port && sameAddress(t.server, c.server)
}

// ownsTransport reports whether a transport belongs to this client. NFSv3 and 4.0 use reserved ports, which distinguish their transports from NFSv4.1
// transports to the same address.
func (c client) ownsTransport(t transport) bool {
	return t.sourcePort != 0 && slices.Contains(c.sourcePorts, t.sourcePort)
}

// obeysSlotTable reports whether a transport was created with the limits of the slot table. An address may have both kinds of mounts, and the ports
// may not identify the transport. An unlimited transport then counts as a session's.
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

// unlimitedSlots is the kernel's RPC_MAX_SLOT_TABLE_LIMIT, with which a transport for sessions is created.
const unlimitedSlots = 65536

// slotLimit returns the limit of the transports that a mount uses. If they differ, it returns the lowest. For a mount with sessions whose ports match
// no transport, it returns the highest.
func slotLimit(all []transport, c client) int {
	var used, owned []int
	for _, t := range all {
		if !c.usesTransport(t) {
			continue
		}
		used = append(used, t.slotLimit)
		if c.ownsTransport(t) {
			owned = append(owned, t.slotLimit)
		}
	}
	switch {
	case len(owned) > 0:
		return slices.Min(owned)
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
