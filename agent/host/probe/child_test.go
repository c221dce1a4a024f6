package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/workload"
	"github.com/storageclient/operator/test/check"
)

// onAnyMount is the name of a workload that runs in the current directory: the machine of a test has no NFS mount.
const onAnyMount = "played-"

// TestMain makes this program the workload process, as node-agent does, with errors in the same form.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != WorkCommand {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := playWork(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-agent: "+err.Error())
		os.Exit(1)
	}
}

func playWork(ctx context.Context) error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var order workOrder
	if err := json.Unmarshal(input, &order); err != nil {
		return err
	}
	work, played := strings.CutPrefix(order.Options.ID, onAnyMount)
	if !played {
		return RunWork(ctx, strings.NewReader(string(input)), os.Stdout)
	}
	if len(os.Environ()) > 0 {
		return fmt.Errorf("it has an environment: %q", os.Environ())
	}
	if work == "fails" {
		return errors.New(strings.Repeat("x", 2*maxWorkText))
	}
	result, err := workload.Run(ctx, order.Options)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func TestWorkloadProcessRejects(t *testing.T) {
	work := workload.Options{Name: workload.ListDirectory, Path: "."}
	for name, test := range map[string]struct {
		order workOrder
		want  string
	}{
		"root":                 {workOrder{User: 0, Options: work}, "the workload must not run as root"},
		"a user below root":    {workOrder{User: -1, Options: work}, "the workload must not run as root"},
		"a node without mount": {workOrder{User: 65534, Options: work}, "no NFS mount at " + volumeDir + ": only the trial runner may run this command"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(volumeDir); err != nil && test.order.User > 0 {
				// If the directory of the volume is missing, the error names it.
				test.want = "statfs: no such file or directory"
			}
			if _, err := startWork(t.Context(), test.order); err == nil || err.Error() != test.want {
				t.Errorf("error: got %v, want %s", err, test.want)
			}
		})
	}
	if err := RunWork(t.Context(), strings.NewReader("yes"), io.Discard); err == nil || !strings.Contains(err.Error(), "read the workload order") {
		t.Errorf("an order that cannot be read: %v", err)
	}
}

func TestWorkloadProcessReports(t *testing.T) {
	dir := t.TempDir()
	check.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	options := workload.Options{Name: workload.ListDirectory, Path: dir, ID: onAnyMount + "1"}
	result, err := startWork(t.Context(), workOrder{User: 1000, Options: options})
	if err != nil || len(result.Passes) != 1 || result.Passes[0].Units != 1 || durationOf(result.Passes[0]) <= 0 {
		t.Errorf("%+v, %v", result, err)
	}
	options.Path = filepath.Join(dir, "gone")
	if _, err := startWork(t.Context(), workOrder{User: 1000, Options: options}); err == nil || !strings.HasPrefix(err.Error(), "ListDirectory in ") ||
		!strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("got error %v, want the message of the workload", err)
	}
	options.ID = onAnyMount + "fails"
	if _, err := startWork(t.Context(), workOrder{User: 1000, Options: options}); err == nil || err.Error() != strings.Repeat("x", maxWorkText) {
		t.Errorf("%v", err)
	}
}

// A writing workload removes its files when it is stopped: it gets SIGTERM, not SIGKILL.
func TestStoppedWorkloadCleansUp(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	order := workOrder{User: 1000, Options: workload.Options{
		Name: workload.CreateUnlink, Path: dir, For: time.Hour, AllowWrites: true, ID: onAnyMount + "1",
	}}
	go func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if files, _ := filepath.Glob(filepath.Join(dir, ".*", "*")); len(files) > 0 {
				cancel()
			}
		}
	}()
	if _, err := startWork(ctx, order); err == nil || !strings.HasPrefix(err.Error(), "run the workload process: ") {
		t.Errorf("error: got %v", err)
	}
	if leftovers, err := os.ReadDir(dir); err != nil || len(leftovers) > 0 {
		t.Errorf("leftover files: %v, %v", leftovers, err)
	}
}
