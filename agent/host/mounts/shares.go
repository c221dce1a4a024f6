package mounts

import (
	"slices"
	"strings"
)

// sharesFile counts the requests on each SMB share. Every user may read it.
const sharesFile = "/proc/fs/cifs/Stats"

// commands maps the kernel's names of counters to the names of SMB commands in the specification (MS-SMB2, 2.2.1.2). Source: smb2_print_stats in
// fs/smb/client/smb2ops.c. The kernel does not count commands of a whole session there.
var commands = map[string]string{
	"TreeConnects:": "TREE_CONNECT", "TreeDisconnects:": "TREE_DISCONNECT", "Creates:": "CREATE", "Closes:": "CLOSE", "Flushes:": "FLUSH",
	"Reads:": "READ", "Writes:": "WRITE", "Locks:": "LOCK", "IOCTLs:": "IOCTL", "QueryDirectories:": "QUERY_DIRECTORY",
	"ChangeNotifies:": "CHANGE_NOTIFY", "QueryInfos:": "QUERY_INFO", "SetInfos:": "SET_INFO", "OplockBreaks:": "OPLOCK_BREAK",
}

// usingShare are the commands that programs cause and that mounting does not.
var usingShare = []string{"READ", "WRITE", "QUERY_DIRECTORY", "QUERY_INFO"}

// share contains the counters of one client connection to one share.
type share struct {
	name string
	// operations are in the order of the file. Their bytes are the bytes of files, without headers.
	operations []Operation
}

// shareName returns the kernel's name of a share in lower case. Directories below a share have no separate counters.
func shareName(server, export string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(export, "/"), "/")
	return strings.ToLower(`\\` + server + `\` + name)
}

// readShares returns the number of operations on each SMB share that have not failed, by the share's name.
func (r Reader) readShares() map[string]uint64 {
	data, err := r.fs.ReadFile(sharesFile)
	if err != nil {
		return nil
	}
	found := map[string]uint64{}
	for _, s := range parseShares(string(data)) {
		for _, o := range s.operations {
			if slices.Contains(usingShare, o.Name) && o.Count > o.Errors {
				found[s.name] += o.Count - o.Errors
			}
		}
	}
	return found
}

// parseShares parses blocks of "1) \\server\share" with lines such as "Reads: 7 total 0 failed" and "Bytes read: 1  Bytes written: 2". Source:
// cifs_stats_proc_show in fs/smb/client/cifs_debug.c.
func parseShares(data string) (shares []share) {
	var read, written uint64
	for text := range strings.Lines(data) {
		fields := strings.Fields(text)
		if len(fields) >= 2 && strings.HasSuffix(fields[0], ")") && strings.HasPrefix(fields[1], `\\`) {
			shares, read, written = append(shares, share{name: shareName(splitSource(Entry{FSType: "cifs", Source: fields[1]}))}), 0, 0
			continue
		}
		if len(shares) == 0 || len(fields) < 5 {
			continue
		}
		last := &shares[len(shares)-1]
		if fields[0] == "Bytes" && len(fields) == 6 {
			if n, ok := parseCounts([]string{fields[2], fields[5]}); ok {
				read, written = n[0], n[1]
			}
		}
		n, ok := parseCounts([]string{fields[1], fields[3]})
		if name, known := commands[fields[0]]; known && ok {
			o := Operation{Name: name, Count: n[0], Errors: n[1]}
			switch name {
			case "READ":
				o.BytesReceived = read
			case "WRITE":
				o.BytesSent = written
			}
			last.operations = append(last.operations, o)
		}
	}
	return shares
}

// CountsOfShare returns the operations on the share of an SMB mount, from the text of the file of shares and the mount's source. It also returns the
// number of client connections to the share. If there is more than one, it is unknown to which mount the operations belong.
func CountsOfShare(stats, source string) (operations []Operation, connections int) {
	server, export := splitSource(Entry{FSType: "cifs", Source: source})
	for _, s := range parseShares(stats) {
		if s.name == shareName(server, export) {
			operations, connections = s.operations, connections+1
		}
	}
	return operations, connections
}
