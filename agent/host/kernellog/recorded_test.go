package kernellog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/test/check"
)

// recordedLive are the servers about which real drivers wrote in test/knownbad/guest/log.go: nfs-ganesha was stopped, the network of a soft mount was
// down, and an SMB server became silent. All other servers are in records that the guest wrote to /dev/kmsg. The kernel escapes these like its own,
// but their facility is 1.
var recordedLive = []string{"filer-live", "für-live"}

// recordedWritten are the lines of the records that the guest wrote.
var recordedWritten = []Line{
	{Server: "files-1.example.com"}, {Server: "dateiserver-für-日本"}, {Server: "bytes\xff\xfe\x80\x01\x7f"},
	{Server: `a\x41b\x5cx41`}, {Server: strings.Repeat("long-", 160)},
	{Server: "fd00::7"}, {Server: "fd00::7", Responds: true}, {Server: "filer3"},
}

// recordsOf splits a recording. Lines of a dictionary start with a blank.
func recordsOf(t *testing.T, name string) (records []string) {
	t.Helper()
	data, err := os.ReadFile(name)
	check.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, " ") {
			records[len(records)-1] += line
			continue
		}
		records = append(records, line)
	}
	return records
}

// readRecorded reads records as from /dev/kmsg: each read returns one.
func readRecorded(t *testing.T, records []string) (lines []Line) {
	t.Helper()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	check.NoError(t, err)
	f, _ := follow(t, "")
	f.file = os.NewFile(uintptr(ends[0]), "log")
	writer := os.NewFile(uintptr(ends[1]), "log")
	t.Cleanup(func() { _ = errors.Join(f.file.Close(), writer.Close()) })
	for _, record := range records {
		if _, err := writer.WriteString(record); err != nil {
			t.Fatal(err)
		}
		next, err := f.Read()
		check.NoError(t, err)
		lines = append(lines, next...)
	}
	return lines
}

// prefixOf matches the level and the time that the system call syslog writes before each line.
var prefixOf = regexp.MustCompile(`^<(\d+)>\[ *(\d+)\.(\d{6})\] `)

// The records of each kernel are read with the names of the servers. The same part of the log, as dmesg reads it, contains the bytes before the kernel
// escaped them.
func TestRecordsOfThreeKernels(t *testing.T) {
	files, err := filepath.Glob("testdata/*.kmsg")
	if err != nil || len(files) != 3 {
		t.Fatalf("got recordings %q, %v", files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			records := recordsOf(t, name)
			var texts []string
			dictionaries, ofDrivers := 0, 0
			for _, record := range records {
				head, text, _ := strings.Cut(record, ";")
				text, dictionary, _ := strings.Cut(text, "\n")
				if dictionary != "" {
					dictionaries++
				}
				var level, sequence, micros int
				if _, err := fmt.Sscanf(head, "%d,%d,%d,-", &level, &sequence, &micros); err != nil {
					t.Fatalf("%q: %v", record, err)
				}
				if level < 8 && (strings.HasPrefix(text, "nfs: ") || strings.HasPrefix(text, "CIFS: VFS: ")) {
					ofDrivers++
				}
				for line := range strings.SplitSeq(unescape(text), "\n") {
					texts = append(texts, fmt.Sprintf("<%d> %d %s", level, micros, line))
				}
			}
			if dictionaries < 2 || ofDrivers < 4 {
				t.Errorf("got %d records with a dictionary and %d of drivers", dictionaries, ofDrivers)
			}
			if diff := cmp.Diff(messages(t, strings.TrimSuffix(name, ".kmsg")+".dmesg"), texts); diff != "" {
				t.Errorf("messages (-dmesg +records):\n%s", diff)
			}
			checkRecorded(t, records)
		})
	}
}

// messages returns the lines that dmesg reads, each with its level and its time in microseconds.
func messages(t *testing.T, name string) (all []string) {
	t.Helper()
	data, err := os.ReadFile(name)
	check.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		m := prefixOf.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%s: got %q", name, line)
		}
		seconds, secondsErr := strconv.Atoi(m[2])
		micros, microsErr := strconv.Atoi(m[3])
		check.NoError(t, errors.Join(secondsErr, microsErr))
		all = append(all, fmt.Sprintf("<%s> %d %s", m[1], seconds*1000000+micros, strings.TrimSuffix(strings.TrimPrefix(line, m[0]), "\n")))
	}
	return all
}

func checkRecorded(t *testing.T, records []string) {
	t.Helper()
	lines := readRecorded(t, records)
	live := map[Line]bool{}
	written := slices.DeleteFunc(slices.Clone(lines), func(l Line) bool {
		if slices.Contains(recordedLive, l.Server) {
			live[Line{Server: l.Server, Responds: l.Responds}] = true
			return true
		}
		return false
	})
	for i, l := range lines {
		if l.Age <= 0 || l.Age > 1000*time.Second || i > 0 && l.Age > lines[i-1].Age {
			t.Errorf("line %d: got age %s", i, l.Age)
		}
	}
	for i := range written {
		written[i].Age = 0
	}
	check.Equal(t, "written lines", recordedWritten, written)
	want := map[Line]bool{{Server: "filer-live"}: true, {Server: "filer-live", Responds: true}: true, {Server: "für-live"}: true}
	check.Equal(t, "lines of drivers", want, live)
	for _, text := range []string{"nfs: server filer-live not responding, still trying", "nfs: server filer-live not responding, timed out"} {
		if !slices.ContainsFunc(records, func(r string) bool { return strings.HasSuffix(r, ";"+text+"\n") }) {
			t.Errorf("got no record %q", text)
		}
	}
}
