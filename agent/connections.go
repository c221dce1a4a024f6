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
	// retestWithin is for how long the same connections are tried once the settings are back.
	retestWithin = 30 * time.Second
	// proofPause lies between two attempts to prove settings.
	proofPause = 2 * time.Second
	// maxAsked is how many of the servers that a node mounts from are asked before it is said that none answers.
	maxAsked = 3
)

// chooseServer returns a server that the host mounts from and that answers a new connection now, so that it can be told
// later whether a setting has taken that away; ok is false where the host mounts from none over TCP.
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
	return server, true, errors.New("no server that this node mounts from answers a new connection: " + strings.Join(silent, "; "))
}

// failure is a new connection that did not work.
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

// workAgain are those of the failures whose connections are not among the failures now.
func workAgain(before, now []failure) []failure {
	return slices.DeleteFunc(slices.Clone(before), func(f failure) bool {
		return slices.ContainsFunc(now, func(n failure) bool { return n.to == f.to })
	})
}

// brokeNote says of settings that were put back what did not work with them, and works without.
func brokeNote(keys []string, broken []failure) string {
	together := ""
	if len(keys) > 1 {
		together = "set together: " + text.List(keys) + "; "
	}
	return fmt.Sprintf("took new connections away, put back: %s%s; they work again without it", together, describeFailures(broken))
}

// outageNote says of settings that were put back that they may not have been the cause.
func outageNote(failures []failure) string {
	if len(failures) == 0 {
		return "put back: it could not be proven in time"
	}
	return "put back: new connections work neither with it nor without, so it is not the cause: " + describeFailures(failures)
}
