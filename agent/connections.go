package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// retestWithin is the time to test the same connections after the settings are reverted.
	retestWithin = 30 * time.Second
	proofPause   = 2 * time.Second
	// maxAsked is the maximum number of servers to test before the agent reports that none responds.
	maxAsked = 3
	// maxChosen is the maximum number of servers to choose.
	maxChosen = 2
)

// chooseServers returns servers that the host mounts from and that respond to a new connection now. A later failure can then be attributed
// to a setting. The first one is tested, the second one is its witness. There is none if the host has no mounts over TCP.
func (m Machine) chooseServers(ctx context.Context) (chosen []connect.Server, err error) {
	servers, err := m.Servers()
	if err != nil || len(servers) == 0 {
		return nil, err
	}
	var silent []string
	for _, server := range servers[:min(len(servers), maxAsked)] {
		if err := m.AskServer(ctx, server); err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", server, err))
		} else if chosen = append(chosen, server); len(chosen) == maxChosen {
			break
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no mounted server responds to a new connection: " + strings.Join(silent, "; "))
	}
	return chosen, nil
}

// failure is a connection that failed. name identifies it in the status.
type failure struct {
	to, name string
	err      error
}

// isBroken reports whether the settings may be the cause. A busy API server has responded, so no setting has broken the connection.
func (f failure) isBroken() bool { return !errors.Is(f.err, reporter.ErrBusy) }

func namesOf(failures []failure) []string {
	return lists.Distinct(lists.Each(failures, func(f failure) string { return text.Cut(f.name, bounds.Name) }))
}

func describeFailures(failures []failure) string {
	all := lists.Each(failures, func(f failure) string { return f.to + ": " + f.err.Error() })
	return text.Cut(strings.Join(all, "; "), bounds.Message/2)
}

// workAgain returns the broken connections in before that now work. A busy API server proves neither.
func workAgain(before, now []failure) []failure {
	return slices.DeleteFunc(slices.Clone(before), func(f failure) bool {
		return !f.isBroken() || slices.ContainsFunc(now, func(n failure) bool { return n.to == f.to })
	})
}

// brokeNote returns the message for reverted settings that broke connections, if the connections work again.
func brokeNote(keys []string, broken []failure) string {
	together := ""
	if len(keys) > 1 {
		together = "set together: " + text.List(keys) + "; "
	}
	return fmt.Sprintf("broke new connections, reverted: %s%s; they work again without it", together, describeFailures(broken))
}

// outageNote returns the message for reverted settings that may not have caused the failures.
func outageNote(failures []failure) string {
	if !slices.ContainsFunc(failures, failure.isBroken) {
		return strings.TrimSuffix("reverted: verification timed out: "+describeFailures(failures), ": ")
	}
	return "reverted: new connections fail with and without it, so it is not the cause: " + describeFailures(failures)
}
