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
	"github.com/storageclient/operator/tuning/text"
)

const (
	// retestWithin is the time to test the same connections after the settings are reverted.
	retestWithin = 30 * time.Second
	proofPause   = 2 * time.Second
	// maxAsked is the maximum number of servers to test before the agent reports that none responds.
	maxAsked = 3
)

// chooseServer returns a server that the host mounts from and that responds to a new connection now. A later failure can then be
// attributed to a setting. ok is false if the host has no mounts over TCP.
func (m Machine) chooseServer(ctx context.Context) (server connect.Server, ok bool, err error) {
	servers, err := m.Servers()
	if err != nil || len(servers) == 0 {
		return server, false, err
	}
	var silent []string
	for _, server := range servers[:min(len(servers), maxAsked)] {
		err := m.AskServer(ctx, server)
		if err == nil {
			return server, true, nil
		}
		silent = append(silent, fmt.Sprintf("%s: %v", server, err))
	}
	return server, true, errors.New("no mounted server responds to a new connection: " + strings.Join(silent, "; "))
}

type failure struct {
	to  string
	err error
}

func describeFailures(failures []failure) string {
	var all []string
	for _, f := range failures {
		all = append(all, f.to+": "+f.err.Error())
	}
	return text.Cut(strings.Join(all, "; "), bounds.Message/2)
}

// workAgain returns the failures in before whose connections now work.
func workAgain(before, now []failure) []failure {
	return slices.DeleteFunc(slices.Clone(before), func(f failure) bool {
		return slices.ContainsFunc(now, func(n failure) bool { return n.to == f.to })
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
	if len(failures) == 0 {
		return "reverted: verification timed out"
	}
	return "reverted: new connections fail with and without it, so it is not the cause: " + describeFailures(failures)
}
