package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/powercut/machine"
)

// killedRoot is the root of the machine that this program changes until it is killed. killedState is its earlier output.
const killedRoot, killedState = "SCO_KILLED_ROOT", "SCO_KILLED_STATE"

var (
	kills    = flag.Int("kills", 100, "Number of kills of the agent on each tree.")
	killSeed = flag.Uint64("kill-seed", rand.Uint64(), "Seed of the moments at which the agent is killed.")
)

func TestMain(m *testing.M) {
	if root := os.Getenv(killedRoot); root != "" {
		err := changeUntilKilled(root, os.Getenv(killedState))
		fmt.Println(machine.Failed, strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func changeUntilKilled(root, said string) error {
	var state machine.State
	if err := json.Unmarshal([]byte(said), &state); err != nil {
		return err
	}
	m, err := machine.Open(root, state)
	if err != nil {
		return err
	}
	return m.Run(os.Stdout)
}

// The test kills the agent process repeatedly (kill -9) while it changes or restores settings. Each file is old or new, never incomplete.
// The next process continues, and finally /etc and /boot have their original content.
func TestKills(t *testing.T) {
	for _, tree := range []string{"debian-12", "rocky-9", machine.GrubEntries, machine.SystemdBoot, machine.KernelImages} {
		t.Run(tree, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(*killSeed, 0))
			root := filepath.Join(t.TempDir(), "host")
			check.NoError(t, machine.LayTree(filepath.Join("../fixtures/hosts", tree), root))
			check.NoError(t, os.CopyFS(filepath.Join(root, "proc"), os.DirFS(filepath.Join(root, "pristine"))))
			if tree == machine.SystemdBoot || tree == machine.KernelImages {
				check.NoError(t, os.CopyFS(filepath.Join(root, "sys/firmware/efi/efivars"), os.DirFS(filepath.Join(root, "pristine-variables"))))
			}
			var said machine.State
			inTheMiddle := 0
			for n := range *kills {
				if err := runUntilKilled(t.Context(), root, &said, time.Duration(chance.Int64N(int64(maxKillWait)))); err != nil {
					t.Fatalf("kill %d of %d, -kill-seed=%d: %v", n+1, *kills, *killSeed, err)
				}
				if said.Doing > said.Done || said.Restoring {
					inTheMiddle++
				}
			}
			m, err := machine.Open(root, said)
			check.NoError(t, err)
			if err := errors.Join(m.Check(), m.Restore(), m.CompareFiles()); err != nil {
				t.Errorf("after %d kills, -kill-seed=%d: %v", *kills, *killSeed, err)
			}
			t.Logf("%d kills, %d of them during a change; %d changes started", *kills, inTheMiddle, said.Doing)
			if inTheMiddle < *kills/4 {
				t.Errorf("got only %d of %d kills during a change", inTheMiddle, *kills)
			}
		})
	}
}

// maxKillWait is the maximum time from the first check to the kill. It covers several changes.
const maxKillWait = 60 * time.Millisecond

// runUntilKilled starts the agent, and kills it some time after it has checked the state that the last one left.
func runUntilKilled(ctx context.Context, root string, said *machine.State, wait time.Duration) error {
	state, err := json.Marshal(said)
	if err != nil {
		return err
	}
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), killedRoot+"="+root, killedState+"="+string(state))
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	isChecked := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if err = errors.Join(err, said.Hear(lines.Text())); lines.Text() == machine.Checked {
			isChecked = true
			time.AfterFunc(wait, func() { _ = child.Process.Kill() })
		}
	}
	_ = child.Wait() // It was killed, or has reported its error.
	if !isChecked {
		err = errors.Join(err, errors.New("the process exited before its first check"))
	}
	return err
}
