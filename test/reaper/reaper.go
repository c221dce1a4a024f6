// Package reaper cleans up after a test run, even if the run is killed: it ends the processes that the run has started, unmounts
// what it has mounted in its temporary directory, and removes that directory.
//
// A second process does this: a run that is killed cannot do it itself, and envtest starts its programs in process groups of their
// own, without a signal for the death of their parent.
package reaper

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// runVariable marks all processes of a run: they inherit the environment.
	runVariable = "SCO_TEST_RUN"
	// orderVariable marks the reaper itself, and contains its order.
	orderVariable = "SCO_TEST_REAPER"
	// dirPrefix starts the names of the runs' temporary directories.
	dirPrefix = "storage-client-run-"
	// ownerFile in such a directory names the process of the run.
	ownerFile = ".owner"
	// lookEvery is the interval between looks at the ancestors of a run.
	lookEvery = time.Second
	// quietLooks is the number of looks in a row that must find no process of the run.
	quietLooks = 10
	// endsWithin bounds the wait for killed processes.
	endsWithin = 20 * time.Second
)

// order is what a reaper has to do.
type order struct {
	// Run is the value of runVariable.
	Run string
	// Owner is the process of the run.
	Owner process
	// Ancestors are the processes above it: if one of them ends, the run has been cut off, and ends too.
	Ancestors []process
	// Remove lists the directories to remove.
	Remove []string
}

// process is a process by its id and its start time, because ids are used again.
type process struct {
	ID    int
	Began string
}

// environmentBefore is the environment without what Start has added.
var environmentBefore []string

// alive is open in the reaper for reading. The kernel closes it when this process ends.
var alive *os.File //nolint:unused // only held: the file would be closed with the last reference

// Environ returns the environment without what Start has added. A program that replaces this process needs it: for the reaper, the run
// ends with the replacement, and the program can start a reaper of its own.
func Environ() []string {
	if environmentBefore == nil {
		return os.Environ()
	}
	return environmentBefore
}

// Start starts the reaper of this process, and makes a temporary directory for the run. Call it before anything else is started or
// made. The reaper also removes the given directories. Later calls do nothing.
func Start(remove ...string) error {
	return once(remove)
}

var once = func() func([]string) error {
	var do sync.Once
	var err error
	return func(remove []string) error {
		do.Do(func() {
			if err = start(remove); err != nil {
				err = fmt.Errorf("start the reaper of this run: %w", err)
			}
		})
		return err
	}
}()

func start(remove []string) error {
	removeStale(os.TempDir())
	self, err := find(os.Getpid())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return err
	}
	// Programs that the run starts as other users, such as those of apt, must reach their files in it.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	o := order{Run: rand.Text(), Owner: self, Ancestors: ancestors(os.Getpid()), Remove: append(remove, dir)}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	owner, err := json.Marshal(self)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), owner, 0o600); err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	alive = write
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe")
	cmd.Dir, cmd.Stdin, cmd.Env = "/", read, []string{orderVariable + "=" + string(text)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	environmentBefore = os.Environ()
	return errors.Join(os.Setenv(runVariable, o.Run), os.Setenv("TMPDIR", dir), cmd.Process.Release())
}

// init makes a process that start has started the reaper, before it does anything else.
func init() {
	text := os.Getenv(orderVariable)
	if text == "" {
		return
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		os.Exit(2)
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	o.awaitEnd(os.Stdin)
	o.endProcesses()
	for _, dir := range o.Remove {
		_ = removeDir(dir)
	}
	os.Exit(0)
}

// awaitEnd returns after the run has ended, and ends it if it has been cut off.
func (o order) awaitEnd(alive io.Reader) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, alive)
	}()
	for {
		select {
		case <-ended:
			return
		case <-time.After(lookEvery):
			if slices.ContainsFunc(o.Ancestors, func(p process) bool { return !p.runs() }) {
				o.Owner.kill()
			}
		}
	}
}

// endProcesses kills the processes of the run until none has been found for a while: one may just have started another, whose
// environment cannot be read until the kernel has loaded its program.
func (o order) endProcesses() {
	quiet := 0
	for deadline := time.Now().Add(endsWithin); quiet < quietLooks && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left := marked(runVariable + "=" + o.Run)
		if quiet++; len(left) > 0 {
			quiet = 0
		}
		for _, p := range left {
			p.kill()
		}
	}
}

// marked returns the processes that have a variable in their environment. Ended ones have none.
func marked(variable string) []process {
	var found []process
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		environment, err := os.ReadFile(name)
		if err != nil || !slices.ContainsFunc(bytes.Split(environment, []byte{0}), func(v []byte) bool { return string(v) == variable }) {
			continue
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		if p, err := find(id); err == nil {
			found = append(found, p)
		}
	}
	return found
}

// ancestors returns the processes above one, up to the leader of its session and without it: a login shell may end before what
// it has started.
func ancestors(id int) []process {
	var found []process
	for {
		fields, err := stat(id)
		if err != nil {
			return found
		}
		parent, err := strconv.Atoi(fields[statParent])
		if err != nil || parent <= 1 {
			return found
		}
		above, err := stat(parent)
		if err != nil || above[statSession] == strconv.Itoa(parent) {
			return found
		}
		found = append(found, process{ID: parent, Began: above[statBegan]})
		id = parent
	}
}

// Fields of /proc/ID/stat after the name of the program, see proc_pid_stat(5).
const (
	statState   = 0
	statParent  = 1
	statSession = 3
	statBegan   = 19
)

func stat(id int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= statBegan {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields after the name", id, len(fields))
	}
	return fields, nil
}

func find(id int) (process, error) {
	fields, err := stat(id)
	if err != nil {
		return process{}, err
	}
	return process{ID: id, Began: fields[statBegan]}, nil
}

// runs reports whether the process has not ended. One that is not waited for yet has ended.
func (p process) runs() bool {
	fields, err := stat(p.ID)
	return err == nil && fields[statBegan] == p.Began && fields[statState] != "Z"
}

func (p process) kill() {
	if p.runs() {
		_ = syscall.Kill(p.ID, syscall.SIGKILL)
	}
}

// removeStale removes the directories of runs whose reaper was killed, too.
func removeStale(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, dir := range dirs {
		var owner process
		text, err := os.ReadFile(filepath.Join(dir, ownerFile))
		if err == nil && json.Unmarshal(text, &owner) == nil && !owner.runs() {
			_ = removeDir(dir)
		}
	}
}

// removeDir removes a directory. It unmounts everything below it first, so that it deletes nothing that was only mounted there.
func removeDir(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for {
		points, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(points) == 0 {
			return os.RemoveAll(dir)
		}
		if err := unix.Unmount(points[len(points)-1], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", points[len(points)-1], err)
		}
	}
}

// mountsBelow returns the mount points in a directory, in the order of their mounts.
func mountsBelow(dir string) ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var points []string
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	return points, lines.Err()
}
