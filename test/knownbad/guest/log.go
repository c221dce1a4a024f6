package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/kernellog"
)

const (
	logFile = "/dev/kmsg"
	// logStart is the first record of a recording.
	logStart = "storage-client-operator: start of the recording"
	// liveNFS and liveSMB are names of servers of this machine that stop responding.
	liveNFS, liveSMB = "filer-live", "für-live"
	silentPort       = "12051"
	patience         = 3 * time.Minute
)

// written are records that this program writes to /dev/kmsg. The kernel adds sequence numbers, times and escapes.
var written = []struct {
	text string
	// server is the expected server. Empty if the record is not about one. isOK reports that it responds.
	server string
	isOK   bool
}{
	{`<3>CIFS: VFS: \\files-1.example.com has not responded in 180 seconds. Reconnecting...`, "files-1.example.com", false},
	{`<3>CIFS: VFS: \\dateiserver-für-日本 has not responded in 180 seconds. Reconnecting...`, "dateiserver-für-日本", false},
	{"<3>CIFS: VFS: \\\\bytes\xff\xfe\x80\x01\x7f has not responded in 30 seconds. Reconnecting...", "bytes\xff\xfe\x80\x01\x7f", false},
	// This name contains the characters of an escape. The kernel escapes their backslash.
	{`<3>CIFS: VFS: \\a\x41b\x5cx41 has not responded in 180 seconds. Reconnecting...`, `a\x41b\x5cx41`, false},
	{"<5>nfs: server " + strings.Repeat("long-", 160) + " not responding, still trying", strings.Repeat("long-", 160), false},
	{"<5>nfs: server fd00::7 not responding, timed out", "fd00::7", false},
	{"<5>nfs: server fd00::7 OK", "fd00::7", true},
	{"<5>nfsacl: server filer3 not responding, still trying", "filer3", false},
	// One record has several lines. The kernel escapes the line feed.
	{"<4>first line\nnfs: server inside not responding, still trying", "", false},
	{"<4>WARNING: CPU: 0 PID: 1 at fs/nfs/inode.c:123 nfs_example+0x0/0x10 [nfs]", "", false},
	{"<6> SUBSYSTEM=written; nfs: server inside OK", "", false},
	{"<5>lockd: server filer1 not responding, still trying", "", false},
}

// checkLog compares the agent's reader of the kernel log with the log of this kernel. Three kinds of records appear: drivers write them, this program
// writes them, and the kernel loses them. It prints the records and the log of dmesg for the tests of package kernellog.
func (m *machine) checkLog() error {
	files, err := host.OpenFS("/")
	if err != nil {
		return err
	}
	defer files.Close()
	follower := kernellog.New(files, func(string) string { return "" })
	if _, err := follower.Read(); err != nil {
		return err
	}
	raw, err := unix.Open(logFile, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer unix.Close(raw)
	if _, err := unix.Seek(raw, 0, io.SeekEnd); err != nil {
		return fmt.Errorf("skip the log: %w", err)
	}
	// The kernel limits the records of a program otherwise.
	if err := script("echo on >/proc/sys/kernel/printk_devkmsg; printf '127.0.0.1 localhost " + liveNFS + "\\n' >/etc/hosts"); err != nil {
		return err
	}
	err = writeLog("<6>" + logStart)
	for _, w := range written {
		err = errors.Join(err, writeLog(w.text))
	}
	// The kernel writes one long record, and the records of a device with its dictionary.
	err = errors.Join(err, script("echo h >/proc/sysrq-trigger; echo 1 >/sys/bus/pci/devices/0000:00:01.1/remove; echo 1 >/sys/bus/pci/rescan"))
	var lines []kernellog.Line
	err = errors.Join(err, stopGanesha(follower, &lines), stopNetwork(follower, &lines), stopSMB(follower, &lines))
	records, readErr := readRecords(raw)
	err = errors.Join(err, readErr, printLog(records), checkLines(lines))
	return errors.Join(err, loseRecords(follower, raw))
}

// writeLog opens the log for each record, because the kernel limits the records of one open file. A record without a line feed at its end is not
// readable before the next record.
func writeLog(text string) error {
	file, err := os.OpenFile(logFile, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text + "\n")
	return errors.Join(err, file.Close())
}

// await reads the log until a line about the server appears.
func await(follower *kernellog.Follower, lines *[]kernellog.Line, server string, responds bool) error {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		next, err := follower.Read()
		*lines = append(*lines, next...)
		switch {
		case err != nil:
			return err
		case slices.ContainsFunc(next, func(l kernellog.Line) bool { return l.Server == server && l.Responds == responds }):
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the agent reads no line about %s, responds %t", server, responds)
		}
	}
}

// stopGanesha stops Ganesha while its mount is in use, until the kernel reports this, and continues it.
func stopGanesha(follower *kernellog.Follower, lines *[]kernellog.Line) error {
	return useStopped(follower, lines, "/ganesha", "hard,vers=4.0,port="+ganeshaPort, "kill -STOP $(cat /run/ganesha.pid)", func() error {
		// The list of blocked tasks has the trace of the reader.
		return errors.Join(script("echo w >/proc/sysrq-trigger; kill -CONT $(cat /run/ganesha.pid)"), await(follower, lines, liveNFS, true))
	})
}

// stopNetwork disables the network of a soft mount of the kernel's server. Requests of NFSv4 do not time out while their connection exists.
func stopNetwork(follower *kernellog.Follower, lines *[]kernellog.Line) error {
	return useStopped(follower, lines, "/srv/knfsd", "soft,vers=3,nolock", "ip link set lo down", func() error { return script("ip link set lo up") })
}

// useStopped uses a mount of a server that stops, until the kernel reports this.
func useStopped(follower *kernellog.Follower, lines *[]kernellog.Line, export, options, stop string, resume func() error) error {
	if _, err := do("mount", "-t", "nfs", "-o", "timeo=10,retrans=1,actimeo=0,"+options, liveNFS+":"+export, "/mnt/a"); err != nil {
		return err
	}
	err := script(stop)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = os.Stat("/mnt/a/dir-00")
	}()
	err = errors.Join(err, await(follower, lines, liveNFS, false), resume())
	<-done
	return errors.Join(err, script("umount /mnt/a"))
}

// stopSMB mounts from a server that replies until the first tree is connected. Only then does the kernel send echo requests, and it reports a server
// that does not respond.
func stopSMB(follower *kernellog.Follower, lines *[]kernellog.Line) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:"+silentPort)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveSMB(conn)
		}
	}()
	if err := script("mkdir /mnt/d; modprobe cifs"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		// On a slow machine, a mount can fail before the server becomes silent.
		for ctx.Err() == nil {
			_ = unix.Mount("//"+liveSMB+"/share", "/mnt/d", "cifs", 0,
				"ip=127.0.0.1,port="+silentPort+",username=u,password=p,sec=ntlmssp,vers=2.1,echo_interval=5")
			time.Sleep(time.Second)
		}
	}()
	return await(follower, lines, liveSMB, false)
}

// Commands of SMB2, see MS-SMB2 2.2.1.
const (
	smbNegotiate, smbSessionSetup, smbTreeConnect = 0, 1, 3

	moreProcessing = 0xc0000016
)

// serveSMB replies to the requests of one connection until a tree is connected, and only reads the requests after it.
func serveSMB(conn net.Conn) {
	defer conn.Close()
	for setups, isSilent := 0, false; ; {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		request := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, request); err != nil || len(request) < 64 {
			return
		}
		if isSilent {
			continue
		}
		reply := slices.Clone(request[:64])
		status, body := uint32(0), []byte(nil)
		switch binary.LittleEndian.Uint16(request[12:]) {
		case smbNegotiate:
			body = negotiated()
		case smbSessionSetup:
			if setups++; setups == 1 {
				status = moreProcessing
			}
			body = append(little(2, 9, 0, 72, 52), challenge()...)
			reply[40] = 1
		case smbTreeConnect:
			// A pipe, with all access.
			body = append(little(2, 16, 2), little(4, 0, 0, 0x1f01ff)...)
			reply[36], isSilent = 1, true
		}
		copy(reply[8:], little(4, int(status)))
		// Credits, and the flag of a reply.
		copy(reply[14:], little(2, 10, 1, 0))
		reply = append(reply, body...)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// little returns numbers of a size in bytes.
func little(size int, numbers ...int) (b []byte) {
	for _, n := range numbers {
		b = append(b, binary.LittleEndian.AppendUint32(nil, uint32(n))[:size]...)
	}
	return b
}

// negotiated returns the body of a reply to NEGOTIATE (2.2.4): signing possible, dialect 2.1, the sizes of transactions, reads and writes, and an empty
// token.
func negotiated() []byte {
	body := append(little(2, 65, 1, 0x0210, 0), make([]byte, 16)...)
	body = append(body, little(4, 0, 65536, 65536, 65536, 0, 0, 0, 0)...)
	return append(body, little(2, 128, 0, 0, 0, 0)[:9]...)
}

// challenge returns a challenge of NTLM, see MS-NLMP 2.2.1.2, with an empty list of names.
func challenge() []byte {
	const flags = 0xe0888215
	message := append([]byte("NTLMSSP\x00"), little(4, 2, 0, 48, flags)...)
	message = append(message, "12345678\x00\x00\x00\x00\x00\x00\x00\x00"...)
	return append(message, append(little(2, 4, 4, 48, 0), 0, 0, 0, 0)...)
}

// readRecords reads the new records of the log, one for each call of read.
func readRecords(raw int) (records []string, err error) {
	buffer := make([]byte, 8192)
	for {
		n, err := unix.Read(raw, buffer)
		if errors.Is(err, unix.EAGAIN) {
			return records, nil
		}
		if err != nil {
			return records, fmt.Errorf("read the log: %w", err)
		}
		records = append(records, string(buffer[:n]))
	}
}

// printLog prints the records, and the same part of the log as dmesg reads it.
func printLog(records []string) error {
	const readAll = 3
	buffer := make([]byte, 4<<20)
	n, err := unix.Klogctl(readAll, buffer)
	if err != nil {
		return fmt.Errorf("read the log as dmesg does: %w", err)
	}
	text := string(buffer[:n])
	start := strings.LastIndex(text[:max(strings.Index(text, logStart), 0)], "\n") + 1
	for _, record := range records {
		fmt.Println("KMSG", base64.StdEncoding.EncodeToString([]byte(record)))
	}
	for line := range strings.Lines(text[start:]) {
		fmt.Println("DMESG", base64.StdEncoding.EncodeToString([]byte(line)))
	}
	return nil
}

// checkLines compares the lines of the agent with the records.
func checkLines(lines []kernellog.Line) error {
	var err error
	for _, w := range written {
		if w.server == "" {
			continue
		}
		if len(lines) == 0 || lines[0].Server != w.server || lines[0].Responds != w.isOK || lines[0].Age > time.Hour {
			return fmt.Errorf("the agent reads %v for %q", lines, w.text)
		}
		lines = lines[1:]
	}
	for _, l := range lines {
		if l.Server != liveNFS && l.Server != liveSMB {
			err = errors.Join(err, fmt.Errorf("the agent reads a line about %q", l.Server))
		}
	}
	return err
}

// loseRecords overwrites the log before it is read. The agent must read the next record without an error.
func loseRecords(follower *kernellog.Follower, raw int) error {
	filler := strings.Repeat("filler ", 130)
	for range 1000 {
		if err := writeLog("<7>" + filler); err != nil {
			return err
		}
	}
	err := writeLog("<5>nfs: server after-the-loss OK")
	if _, lost := readRecords(raw); !errors.Is(lost, unix.EPIPE) {
		err = errors.Join(err, fmt.Errorf("the kernel lost no records: %w", lost))
	}
	lines, readErr := follower.Read()
	if len(lines) != 1 || lines[0].Server != "after-the-loss" || !lines[0].Responds {
		err = errors.Join(err, fmt.Errorf("after lost records, the agent reads %v", lines))
	}
	return errors.Join(err, readErr)
}
