package reboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/godbus/dbus/v5"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// inhibitor is one inhibitor in logind's list. Mode "delay", which the kubelet uses, only delays a shutdown. "block-weak" does not apply to root
// (systemd.io/INHIBITOR_LOCKS). The agent never holds an inhibitor.
type inhibitor struct {
	What, Who, Why, Mode string
	UID, PID             uint32
}

// holdsShutdown reports whether a reboot by root would override this inhibitor of a shutdown.
func (i inhibitor) holdsShutdown() bool {
	return i.Mode == "block" && slices.Contains(strings.Split(i.What, ":"), "shutdown")
}

// FindHolders returns the programs on the host that a reboot must not interrupt, sorted: active package managers, and programs that inhibit shutdown.
// An error means that they are unknown. Without logind, no program can inhibit a shutdown.
func (l Logind) FindHolders(ctx context.Context) ([]string, error) {
	locks, err := l.findLocks()
	if err != nil {
		return nil, err
	}
	inhibitors, err := l.listInhibitors(ctx)
	if err != nil {
		return nil, err
	}
	holders := slices.Concat(locks, lists.Each(lists.Filter(inhibitors, inhibitor.holdsShutdown), func(i inhibitor) string {
		return fmt.Sprintf("%s inhibits shutdown (%q, process %d)", text.Line(i.Who), text.Line(i.Why), i.PID)
	}))
	slices.Sort(holders)
	return holders, nil
}

func (l Logind) listInhibitors(ctx context.Context) ([]inhibitor, error) {
	var list []inhibitor
	err := l.callLogind(ctx, "ListInhibitors", nil, &list)
	var answer dbus.Error
	switch {
	case err == nil:
		return list, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &answer) && isAbsent(answer):
		return nil, nil
	}
	return nil, fmt.Errorf("list shutdown inhibitors of logind: %w", err)
}
