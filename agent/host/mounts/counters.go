package mounts

import (
	"cmp"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	rpcClientsDir = "/sys/kernel/debug/sunrpc/rpc_clnt"
	sessionsFile  = "/proc/fs/cifs/DebugData"
	// maxRequests limits the pending requests that are recorded for one server.
	maxRequests = 256
	// maxHandles limits the mounts of one server that are followed.
	maxHandles = 1024
)

// ServerCounters contains the kernel's counters and lists about one server from which the host mounts.
type ServerCounters struct {
	// Ask is the endpoint for a separate connection to the server. Its address is empty if the server cannot be queried.
	Ask connect.Server
	// Server is its name or address as in the mounts.
	Server   string
	Protocol connect.Protocol
	counters.Activity
}

// TransportCounters are the counters of one transport in mountstats.
type TransportCounters struct {
	counters.Connection
	// Backlog is the sum, over all sends, of the requests that waited for a slot at that time. Sending is the sum of the requests that waited
	// for the transport.
	Backlog, Sending uint64
}

// handleOperations use a handle alone. Other operations fail if a user has no permission, or if a disk is full.
var handleOperations = []string{"GETATTR", "ACCESS", "FSSTAT", "STATFS"}

// Counters reads the kernel's counters about the servers of network mounts, sorted by server and protocol. It neither touches a mount nor contacts a
// server.
func (r Reader) Counters() ([]ServerCounters, error) {
	lines, _, err := r.readMountinfo()
	if err != nil {
		return nil, err
	}
	found := map[string]*ServerCounters{}
	clients := map[string]bool{}
	all := r.readMountstats()
	readQueues, readTasks := sync.OnceValue(r.readQueues), sync.OnceValues(r.readTasks)
	for _, line := range lines {
		if !isNFS(line.FSType) && !isSMB(line.FSType) {
			continue
		}
		server, client := counterOf(found, line), newClient(line, stats{})
		name := client.clientName(line)
		if isSMB(line.FSType) {
			continue
		}
		server.addHandles(line.Point, all[line.Point])
		if clients[name] {
			continue
		}
		clients[name] = true
		tasks, known := readTasks()
		server.addClient(name, client, all[line.Point], readQueues(), tasks)
		server.RequestsKnown = known
	}
	r.addSessions(found)
	r.checkTunnels(found)
	return lists.Each(slices.Sorted(maps.Keys(found)), func(key string) ServerCounters { return *found[key] }), nil
}

func (s *ServerCounters) addHandles(point string, mount stats) {
	requests := counters.HandleRequests{MountPoint: point}
	for _, name := range handleOperations {
		requests.Ended += mount.operations[name].Count
		requests.InErrors += mount.operations[name].Errors
	}
	if requests.Ended > 0 && len(s.Handles) < maxHandles {
		s.Handles = append(s.Handles, requests)
	}
}

func counterOf(found map[string]*ServerCounters, line Entry) *ServerCounters {
	name := serverName(line)
	protocol, port := connect.NFS, nfsPort
	if isSMB(line.FSType) {
		protocol, port = connect.SMB, smbPort
	}
	key := name + " " + string(protocol)
	if server := found[key]; server != nil {
		return server
	}
	server, address := &ServerCounters{Server: name, Protocol: protocol}, cmp.Or(OptionValue(line.Super, "addr"), name)
	server.Address = net.JoinHostPort(address, strconv.Itoa(portOf(line, port)))
	server.Tunnel = isLoopback(address)
	server.Ask, _ = serverOf(line)
	found[key] = server
	return server
}

// addClient adds the counters of one NFS client. The statistics of each of its mounts count its transports.
func (s *ServerCounters) addClient(name string, c client, mount stats, queues []openQueue, tasks []rpcTasks) {
	for i, t := range mount.transports {
		t.ID = name + " " + strconv.Itoa(i)
		s.Connections = append(s.Connections, t.Connection)
	}
	s.Identified += mount.operations["EXCHANGE_ID"].Count + mount.operations["SETCLIENTID"].Count
	s.RejectedSessions += mount.operations["CREATE_SESSION"].Errors
	for _, q := range queues {
		known := slices.ContainsFunc(s.Queues, func(k counters.Queue) bool { return k.ID == q.ID })
		if q.port == c.port && sameAddress(q.server, c.server) && !known {
			s.Queues = append(s.Queues, q.Queue)
		}
	}
	for _, t := range tasks {
		if t.port != c.port || !sameAddress(t.server, c.server) {
			continue
		}
		for _, request := range t.requests {
			listed := slices.ContainsFunc(s.Requests, func(r counters.Request) bool { return r.ID == request.ID })
			if !listed && len(s.Requests) < maxRequests {
				s.Requests = append(s.Requests, request)
			}
		}
	}
}

// parseTransportLine parses "xprt: tcp PORT BINDS CONNECTS CONNECTSECONDS IDLE SENDS RECEIVES BADXIDS INFLIGHT BACKLOG ...", the same for rdma, and
// "xprt: udp PORT BINDS SENDS RECEIVES BADXIDS ...". Source: xs_tcp_print_stats, xs_udp_print_stats and xprt_rdma_print_stats. If a request no longer
// waits, its response is counted as a bad transaction ID. It is still a response.
func parseTransportLine(fields []string) (t TransportCounters, ok bool) {
	if len(fields) < 3 {
		return t, false
	}
	// The port of an unbound transport may have any value. The counters follow it.
	numbers, ok := parseCounts(fields[3:])
	switch {
	case !ok:
	case (fields[1] == "tcp" || fields[1] == "rdma") && len(numbers) >= 7:
		t.Connects, t.Idle = numbers[1], time.Duration(min(numbers[3], 1<<31))*time.Second
		t.Sends, t.Responses = numbers[4], numbers[5]+numbers[6]
		if len(numbers) >= 9 {
			t.Backlog = numbers[8]
		}
		if fields[1] == "tcp" && len(numbers) >= 11 {
			t.Sending = numbers[10]
		}
		return t, true
	case fields[1] == "udp" && len(numbers) >= 4:
		t.Sends, t.Responses = numbers[1], numbers[2]+numbers[3]
		return t, true
	}
	return t, false
}

// openQueue is one transport in sysfs and its destination.
type openQueue struct {
	counters.Queue
	server string
	port   int
}

// readQueues is best effort: a transport that is not connected has no data. Before Linux 5.14, no transport has data.
func (r Reader) readQueues() (found []openQueue) {
	for _, t := range r.readSysfs() {
		pending, ok := t.numbers["pending_q_len"]
		if used, known := t.numbers["last_used"]; ok && known {
			found = append(found, openQueue{counters.Queue{ID: t.id, LastUsed: uint64(used), Pending: pending}, t.server, t.numbers["dst_port"]})
		}
	}
	return found
}

// rpcTasks are the requests of one RPC client and their destination.
type rpcTasks struct {
	server   string
	port     int
	requests []counters.Request
}

// readTasks reads the pending requests. known is false if debugfs is missing or locked.
func (r Reader) readTasks() (all []rpcTasks, known bool) {
	dirs, err := r.fs.Glob(rpcClientsDir, "*")
	if err != nil || len(dirs) == 0 {
		return nil, false
	}
	for _, dir := range dirs {
		data, err := r.fs.ReadFile(path.Join(dir, "tasks"))
		if err != nil {
			continue
		}
		known = true
		requests := parseTasks(path.Base(dir), string(data))
		if len(requests) == 0 {
			continue
		}
		info, err := r.fs.ReadFile(path.Join(dir, "xprt/info"))
		if err != nil {
			continue
		}
		server, port := parseAddress(string(info))
		all = append(all, rpcTasks{server, port, requests})
	}
	return all, known
}

// parseTasks parses "PID FLAGS STATUS CLIENT XID TIMEOUT OPS PROGRAMvVERSION PROCEDURE a:ACTION q:QUEUE". Source: tasks_show in net/sunrpc/debugfs.c.
// The module may follow OPS in brackets. Only requests of NFS count: requests of lockd wait for other clients' locks.
func parseTasks(client, data string) (found []counters.Request) {
	for text := range strings.Lines(data) {
		fields := strings.Fields(text)
		if len(fields) < 9 {
			continue
		}
		if strings.HasPrefix(fields[7], "[") {
			fields = slices.Delete(fields, 7, 8)
		}
		if len(fields) > 8 && strings.HasPrefix(fields[7], "nfs") {
			found = append(found, counters.Request{ID: client + "/" + fields[0] + "/" + fields[4], Operation: fields[8]})
		}
	}
	return found
}

// parseAddress parses "addr: 10.0.0.1" and "port: 2049". Source: xprt_info_show in net/sunrpc/debugfs.c.
func parseAddress(info string) (server string, port int) {
	for text := range strings.Lines(info) {
		switch fields := strings.Fields(text); {
		case len(fields) < 2:
		case fields[0] == "addr:":
			server = fields[1]
		case fields[0] == "port:":
			port, _ = strconv.Atoi(fields[1])
		}
	}
	return server, port
}

func (r Reader) addSessions(found map[string]*ServerCounters) {
	smb := lists.Pick(slices.Sorted(maps.Keys(found)), func(key string) (*ServerCounters, bool) { return found[key], found[key].Protocol == connect.SMB })
	if len(smb) == 0 {
		return
	}
	data, err := r.fs.ReadFile(sessionsFile)
	if err != nil {
		return
	}
	sessions, shares := parseSessions(string(data)), r.readShares()
	for _, server := range smb {
		address, _, _ := net.SplitHostPort(server.Address)
		for i, session := range sessions {
			if drivers.ServerIdentity(session.name) != server.Server && !sameAddress(session.name, address) {
				continue
			}
			server.RequestsKnown = true
			for j, c := range session.connections {
				c.ID = strconv.Itoa(i) + "/" + strconv.Itoa(j)
				server.Connections = append(server.Connections, c)
			}
			for _, request := range session.requests {
				request.ID = strconv.Itoa(i) + "/" + request.ID
				server.Requests = append(server.Requests, request)
			}
		}
		server.Requests = server.Requests[:min(len(server.Requests), maxRequests)]
		for share, operations := range shares {
			if strings.HasPrefix(share, `\\`+server.Server+`\`) {
				server.Operations += operations
			}
		}
	}
}

// smbSession is one server in DebugData.
type smbSession struct {
	name        string
	connections []counters.Connection
	requests    []counters.Request
}

// downStates are the states of an SMB connection without a session: it must reconnect, it must negotiate, or it negotiates. Source: enum statusEnum
// in fs/smb/client/cifsglob.h.
var downStates = []string{"3", "4", "5"}

// parseSessions parses "1) ConnectionId: 0x1 Hostname: filer", or "1) Name: filer" before Linux 5.12. The lines below it are "TCP status: 1" for each
// connection and "State: 2 com: 8 pid: 1 cbdata: 0 mid 7" for each request. Source: cifs_debug_data_proc_show in fs/smb/client/cifs_debug.c.
func parseSessions(data string) (found []smbSession) {
	for text := range strings.Lines(data) {
		fields := strings.Fields(text)
		switch {
		case len(fields) > 2 && strings.HasSuffix(fields[0], ")") && (fields[1] == "ConnectionId:" || fields[1] == "Name:"):
			found = append(found, smbSession{name: cmp.Or(wordAfter(fields, "Hostname:"), wordAfter(fields, "Name:"))})
		case len(found) == 0:
		case wordAfter(fields, "mid") != "" && fields[0] == "State:":
			s := &found[len(found)-1]
			s.requests = append(s.requests, counters.Request{ID: wordAfter(fields, "mid"), Operation: smbCommand(wordAfter(fields, "com:"))})
		default:
			s := &found[len(found)-1]
			if status := wordAfter(fields, "status:"); status != "" && slices.Contains(fields, "TCP") {
				s.connections = append(s.connections, counters.Connection{Down: slices.Contains(downStates, status)})
			}
			if address := wordAfter(fields, "Address:"); address != "" && s.name == "" {
				s.name = address
			}
		}
	}
	return found
}

// wordAfter returns the word that follows another. Empty if there is none.
func wordAfter(fields []string, word string) string {
	if i := slices.Index(fields, word); i >= 0 && i+1 < len(fields) {
		return fields[i+1]
	}
	return ""
}

// smbCommands are the commands of SMB 2 and 3 by number (MS-SMB2 2.2.1).
var smbCommands = []string{
	"NEGOTIATE", "SESSION_SETUP", "LOGOFF", "TREE_CONNECT", "TREE_DISCONNECT", "CREATE", "CLOSE", "FLUSH", "READ", "WRITE", "LOCK", "IOCTL",
	"CANCEL", "ECHO", "QUERY_DIRECTORY", "CHANGE_NOTIFY", "QUERY_INFO", "SET_INFO", "OPLOCK_BREAK",
}

func smbCommand(number string) string {
	if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < len(smbCommands) {
		return smbCommands[n]
	}
	return ""
}
