// Package kernellog follows the kernel log's messages about storage servers and known problems.
package kernellog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/storageclient/operator/agent/host"
)

const (
	logFile = "/dev/kmsg"
	// maxRecord is the longest record of the log, in bytes (CONSOLE_EXT_LOG_MAX). maxRecords is the maximum number of records per read.
	maxRecord  = 8192
	maxRecords = 16384
)

// Line is one message about a server, or a sign of a known problem.
type Line struct {
	// Sign is the ID of the known problem whose sign the message is. Empty for a message about a server.
	Sign string
	// Server is the name of the server as in the mounts.
	Server string
	// Age is the time since the message was logged.
	Age time.Duration
	// Responds is false for "not responding" and true for "OK".
	Responds bool
}

// Follower reads the log from its start, and then the new records each time. It never waits for a record.
type Follower struct {
	fs   host.FS
	sign func(message string) string
	file *os.File
}

// New returns a follower. The first Read opens the log. sign returns the ID of the known problem whose sign a message is, or "".
func New(fs host.FS, sign func(message string) string) *Follower {
	return &Follower{fs: fs, sign: sign}
}

// Read returns the messages since the last call. A host without a log has none.
func (f *Follower) Read() ([]Line, error) {
	if f.file == nil {
		file, err := f.fs.Open(logFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("open the kernel's log: %w", err)
		}
		f.file = file
	}
	raw, err := f.file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's log: %w", err)
	}
	var lines []Line
	// Without an uptime, all messages are new.
	up, _ := f.fs.Uptime()
	buffer := make([]byte, maxRecord)
	for range maxRecords {
		n := 0
		var failed error
		// The Read method of os.File would wait for the next line.
		if err := raw.Read(func(fd uintptr) bool { n, failed = syscall.Read(int(fd), buffer); return true }); err != nil {
			return lines, fmt.Errorf("read the kernel's log: %w", err)
		}
		switch {
		case errors.Is(failed, syscall.EPIPE), errors.Is(failed, syscall.EINTR):
			// Records were overwritten before they were read.
			continue
		case errors.Is(failed, syscall.EAGAIN), failed == nil && n <= 0:
			return lines, nil
		case failed != nil:
			return lines, fmt.Errorf("read the kernel's log: %w", failed)
		}
		for record := range strings.Lines(string(buffer[:n])) {
			if line, ok := parseRecord(record, up, f.sign); ok {
				lines = append(lines, line)
			}
		}
	}
	return lines, nil
}

var (
	// nfsLine matches a message that the kernel prints once for each request. Source: rpc_check_timeout and call_decode in net/sunrpc/clnt.c.
	// nfsacl is the program for ACLs of NFSv3 on the same server.
	nfsLine = regexp.MustCompile(`^nfs(?:acl)?: server (\S+) (not responding, (?:still trying|timed out)|OK)$`)
	// smbLine matches a message that SMB prints when it gives up on a connection. Source: server_unresponsive in fs/smb/client/connect.c.
	smbLine = regexp.MustCompile(`^CIFS:? VFS: (?:\\\\|Server )(\S+) has not responded in \d+ seconds`)
)

// escaped matches a byte that the kernel writes as a number: a backslash, and all bytes that cannot be printed.
var escaped = regexp.MustCompile(`\\x[0-9a-f]{2}`)

func unescape(text string) string {
	return escaped.ReplaceAllStringFunc(text, func(code string) string {
		value, _ := strconv.ParseUint(code[2:], 16, 8)
		return string([]byte{byte(value)})
	})
}

// parseRecord parses "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT" (Documentation/ABI/testing/dev-kmsg).
func parseRecord(record string, up time.Duration, sign func(string) string) (Line, bool) {
	head, text, found := strings.Cut(strings.TrimRight(record, "\n"), ";")
	fields := strings.Split(head, ",")
	if !found || len(fields) < 3 {
		return Line{}, false
	}
	text = unescape(text)
	var line Line
	if m := nfsLine.FindStringSubmatch(text); m != nil {
		line = Line{Server: m[1], Responds: m[2] == "OK"}
	} else if m := smbLine.FindStringSubmatch(text); m != nil {
		line = Line{Server: m[1]}
	} else if line.Sign = sign(text); line.Sign == "" {
		return Line{}, false
	}
	micros, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return Line{}, false
	}
	line.Age = max(up-time.Duration(micros)*time.Microsecond, 0)
	return line, true
}
