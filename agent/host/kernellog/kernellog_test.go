package kernellog

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
)

func noSign(string) string { return "" }

func follow(t *testing.T, log string) (f *Follower, kmsg string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"dev", "proc"} {
		check.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	kmsg = filepath.Join(dir, "dev/kmsg")
	check.NoError(t, os.WriteFile(filepath.Join(dir, "proc/uptime"), []byte("1000.50 3.00\n"), 0o644))
	if log != "" {
		check.NoError(t, os.WriteFile(kmsg, []byte(log), 0o644))
	}
	root, err := host.OpenFS(dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return New(root, noSign), kmsg
}

func TestReadReturnsOnlyServerMessages(t *testing.T) {
	f, kmsg := follow(t, strings.Join([]string{
		"6,1,500000,-;Linux version 6.1.0",
		"5,2,900500000,-;nfs: server filer1 not responding, still trying",
		" SUBSYSTEM=net",
		"5,3,950500000,-;nfs: server 10.0.0.2 not responding, timed out",
		"5,4,990500000,-;nfs: server filer1 OK",
		"5,5,990500000,-;lockd: server filer1 not responding, still trying",
		// /dev/kmsg writes a backslash as a number (msg_print_ext_body in kernel/printk/printk.c).
		`3,6,999500000,-;CIFS: VFS: \x5c\x5csmb1 has not responded in 180 seconds. Reconnecting...`,
		`3,6,999500000,-;CIFS: VFS: \x5c\x5cf\xc3\xbcr has not responded in 180 seconds. Reconnecting...`,
		`3,6,999500000,-;CIFS: VFS: \\raw has not responded in 180 seconds. Reconnecting...`,
		"3,7,999500000,-;CIFS VFS: Server smb2 has not responded in 120 seconds. Reconnecting...",
		"3,8,x,-;nfs: server filer1 OK",
		// CONFIG_PRINTK_CALLER adds a field.
		"5,9,999500000,-,caller=T412;nfs: server fd00::7 not responding, timed out",
		`3,10,999500000,c,caller=C1;CIFS: VFS: \x5c\x5cfiles-2.example.com has not responded in 30 seconds. Reconnecting...`,
		// The ACLs of NFSv3 have a program of their own (nfsacl_program in fs/nfs/nfs3client.c and nfs3acl.c).
		"5,11,999500000,-;nfsacl: server filer3 not responding, still trying",
		"5,12,999500000,-;nfsacl: server filer3 OK",
		"5,13,999500000,-;nfs_cb: server filer4 not responding, still trying",
		`3,14,999500000,-;CIFS: VFS: \x5c\x5c has not responded in 180 seconds. Reconnecting...`,
		`3,15,999500000,-;CIFS: VFS: \x5c\x5cfiler5 Cancelling wait for mid 7 cmd: 5`,
		"5,16,999500000,-;nfs: server filer6 not responding, still trying\\x0anfs: server filer7 OK",
		"5,17,999500000,-;audit: nfs: server filer8 not responding, still trying",
		"12,18,999500000,-;mount: nfs: server filer9 OK",
		"", "nonsense", "",
	}, "\n"))
	got, err := f.Read()
	check.NoError(t, err)
	want := []Line{
		{Server: "filer1", Age: 100 * time.Second}, {Server: "10.0.0.2", Age: 50 * time.Second}, {Server: "filer1", Age: 10 * time.Second, Responds: true},
		{Server: "smb1", Age: time.Second}, {Server: "für", Age: time.Second}, {Server: "raw", Age: time.Second},
		{Server: "smb2", Age: time.Second}, {Server: "fd00::7", Age: time.Second}, {Server: "files-2.example.com", Age: time.Second},
		{Server: "filer3", Age: time.Second}, {Server: "filer3", Age: time.Second, Responds: true},
	}
	check.Equal(t, "lines", want, got)
	if second, err := f.Read(); err != nil || len(second) > 0 {
		t.Errorf("second read: got %v, error %v", second, err)
	}
	file, err := os.OpenFile(kmsg, os.O_APPEND|os.O_WRONLY, 0)
	check.NoError(t, err)
	defer file.Close()
	if _, err := file.WriteString("5,9,1000000000,-;nfs: server filer1 not responding, still trying\n"); err != nil {
		t.Fatal(err)
	}
	if next, err := f.Read(); err != nil || len(next) != 1 || next[0].Server != "filer1" {
		t.Errorf("read of the new lines: got %v, error %v", next, err)
	}
}

func TestReadDoesNotWaitForALine(t *testing.T) {
	f, kmsg := follow(t, "")
	if lines, err := f.Read(); err != nil || lines != nil {
		t.Errorf("without a log: got %v, error %v", lines, err)
	}
	// An open pipe without data behaves like a log without a new line.
	check.NoError(t, syscall.Mkfifo(kmsg, 0o600))
	writer, err := os.OpenFile(kmsg, os.O_RDWR, 0)
	check.NoError(t, err)
	defer writer.Close()
	// A read that waits for a line never returns, and go test shows where.
	if _, err := f.Read(); err != nil {
		t.Error(err)
	}
}
