package mounts

import (
	"slices"
	"strings"
)

// sharesFile counts what was sent on each SMB share. Everybody may read it.
const sharesFile = "/proc/fs/cifs/Stats"

// commands are those of SMB as its specification (MS-SMB2, 2.2.1.2) calls them, by what the kernel calls their counters. Source:
// smb2_print_stats in fs/smb/client/smb2ops.c. What belongs to a whole session is not counted there.
var commands = map[string]string{
	"TreeConnects:": "TREE_CONNECT", "TreeDisconnects:": "TREE_DISCONNECT", "Creates:": "CREATE", "Closes:": "CLOSE", "Flushes:": "FLUSH",
	"Reads:": "READ", "Writes:": "WRITE", "Locks:": "LOCK", "IOCTLs:": "IOCTL", "QueryDirectories:": "QUERY_DIRECTORY",
	"ChangeNotifies:": "CHANGE_NOTIFY", "QueryInfos:": "QUERY_INFO", "SetInfos:": "SET_INFO", "OplockBreaks:": "OPLOCK_BREAK",
}

// usingShare are the commands that programs bring about, and no mounting.
var usingShare = []string{"READ", "WRITE", "QUERY_DIRECTORY", "QUERY_INFO"}

// share is what was sent on one connection of a client to one share.
type share struct {
	name string
	// operations are in the order of the file. Bytes are those of files, without headers.
	operations []Operation
}

// shareName is how the kernel calls a share, in small letters: what lies below it has no counters of its own.
func shareName(server, export string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(export, "/"), "/")
	return strings.ToLower(`\\` + server + `\` + name)
}

// readShares reads how many operations on each SMB share have not failed, by the share's name.
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

// parseShares reads blocks of "1) \\server\share" with lines such as "Reads: 7 total 0 failed" and "Bytes read: 1  Bytes written: 2".
// Source: cifs_stats_proc_show in fs/smb/client/cifs_debug.c.
func parseShares(data string) []share {
	var shares []share
	var read, written uint64
	for text := range strings.Lines(data) {
		fields := strings.Fields(text)
		if len(fields) >= 2 && strings.HasSuffix(fields[0], ")") && strings.HasPrefix(fields[1], `\\`) {
			shares, read, written = append(shares, share{name: strings.ToLower(strings.TrimRight(fields[1], `\`))}), 0, 0
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

// CountsOfShare are the operations on the share of an SMB mount, from the text of the file of shares and the mount's source, and how many
// connections of clients there are to it: with more than one, nobody can tell whose they are.
func CountsOfShare(stats, source string) (operations []Operation, connections int) {
	server, export := splitSource(mountLine{fsType: "cifs", source: source})
	for _, s := range parseShares(stats) {
		if s.name == shareName(server, export) {
			operations, connections = s.operations, connections+1
		}
	}
	return operations, connections
}
