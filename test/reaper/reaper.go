// Package reaper cleans up after a test run, even if the run is killed: it ends the processes that the run has started, unmounts the file
// systems in its temporary directory, and removes that directory.
//
// This needs a second process, because a killed run cannot clean up. envtest starts its programs in separate process groups, without a
// signal for the death of their parent.
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
	// runVariable marks all processes of a run, which inherit the environment.
	runVariable = "SCO_TEST_RUN"
	// orderVariable marks the reaper, and contains its order.
	orderVariable = "SCO_TEST_REAPER"
	// dirPrefix is the prefix of the runs' temporary directories.
	dirPrefix = "storage-client-run-"
	// ownerFile is the file in such a directory that names the process of the run.
	ownerFile = ".owner"
	// lookEvery is the interval between checks of the ancestors of a run.
	lookEvery = time.Second
	// quietLooks is the number of consecutive checks that must find no process of the run.
	quietLooks = 10
	// endsWithin is the maximum wait for killed processes.
	endsWithin = 20 * time.Second
)

// order is the task of a reaper.
type order struct {
	// Run is the value of runVariable.
	Run string
	// Owner is the process of the run.
	Owner process
	// Ancestors are the processes above it. If one of them exits, the run was interrupted, and the reaper ends it.
	Ancestors []process
	// Remove lists the directories to remove.
	Remove []string
}

// process is a process by its ID and its start time, because the kernel reuses IDs.
type process struct {
	ID    int
	Began string
}

// environmentBefore is the environment without the additions of Start.
var environmentBefore []string

// alive is open in the reaper for reading. The kernel closes it when this process ends.
var alive *os.File //nolint:unused // only held: the file would be closed with the last reference

// Environ returns the environment without the additions of Start. A program that replaces this process needs it: for the reaper, the run
// ends with the replacement, and the program can start its own reaper.
func Environ() []string {
	if environmentBefore == nil {
		return os.Environ()
	}
	return environmentBefore
}

// Start starts the reaper of this process, and creates a temporary directory for the run. Call it before you start or create anything
// that must be cleaned up. The reaper also removes the given directories. Later calls have no effect.
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
	// Programs that the run starts as other users, such as the programs of apt, must reach their files in it.
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

// init turns a process that Start has started into the reaper, before any other code runs.
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

// awaitEnd returns after the run has finished. It ends an interrupted run.
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

// endProcesses kills the processes of the run until several checks find none. A process may just have started another one, whose
// environment is unreadable until the kernel has loaded its program.
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

// marked returns the processes that have a variable in their environment. Finished processes have no environment.
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

// ancestors returns the processes above a process, up to but without the leader of its session. A login shell may exit before its
// children.
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

// runs reports whether the process is still running. A zombie does not count.
func (p process) runs() bool {
	fields, err := stat(p.ID)
	return err == nil && fields[statBegan] == p.Began && fields[statState] != "Z"
}

func (p process) kill() {
	if p.runs() {
		_ = syscall.Kill(p.ID, syscall.SIGKILL)
	}
}

// removeStale also removes the directories of runs whose reaper was killed.
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

// removeDir removes a directory. It first unmounts all file systems below it, so that it does not delete their content.
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
