package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/hosttest"
)

var errKilled = errors.New("the agent is killed here")

// moment is one change to the host: the nth of its kind, or of any kind if op is empty, whose file name contains part.
type moment struct {
	op   host.Op
	part string
	nth  int
}

// killed are the moments at which the agent is killed in a story: while it stages an argument, permits its trial, and keeps it.
type killed struct{ staging, permit, promotion moment }

// steps follow a story whose files are restored. The agent is killed, and the machine boots in the state after the kill. Each boot reaches the state that was
// aimed at, and at the end all files have their original bytes. compare compares them.
func (k killed) steps(compare func() error) []func(*machine) error {
	waits, works := map[string]host.State{size: host.Pending}, map[string]host.State{size: host.InSync}
	apply := func(s *life.Subject) error { return s.Apply(ctx, settings(size)) }
	permit := func(s *life.Subject) error { return s.Rearm(true) }
	return []func(*machine) error{
		func(m *machine) error { return errors.Join(m.passes(size, false), m.killAt(k.staging, apply)) },
		func(m *machine) error {
			return errors.Join(m.passes(size, false), m.apply(waits, size), m.killAt(k.permit, permit))
		},
		// The trial was selected before its permit was complete, or not.
		func(m *machine) error {
			if m.passes(size, true) == nil {
				return m.killAt(k.promotion, apply)
			}
			return errors.Join(m.apply(waits, size), m.subject.Rearm(true))
		},
		func(m *machine) error {
			err := m.apply(works, size)
			if m.passes(size, false) == nil {
				err = m.apply(waits, size)
			}
			return errors.Join(err, m.apply(nil), compare())
		},
		func(m *machine) error { return errors.Join(m.passes(size, false), m.kernelLog(false), compare()) },
	}
}

// onceName is part of the name of the entry that is booted once.
const onceName = "~storage-client.conf"

// killAt runs a part of the agent that is killed. No later change happens.
func (m *machine) killAt(at moment, run func(*life.Subject) error) error {
	isKilled, count := false, 0
	change := func(op host.Op, name string) error {
		if (at.op == "" || op == at.op) && strings.Contains(name, at.part) {
			count++
		}
		isKilled = isKilled || count == at.nth
		fmt.Printf("  %s %s, killed %t\n", op, name, isKilled)
		if isKilled {
			return errKilled
		}
		return nil
	}
	grubby := &hosttest.Commands{Dir: "/", BeforeWrite: func() error { return change(host.OpWrite, "grubby") }}
	dying, err := openMachineOn(m.fs.WithHook(change), grubby, m.loader)
	if err != nil {
		return err
	}
	if err := run(dying.subject); !isKilled {
		return fmt.Errorf("the agent was not killed at %+v: %w", at, err)
	}
	return nil
}
