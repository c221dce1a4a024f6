package catalogue

import (
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

// NeedsConfirmation tells whether a value of the key can take a node's network away, so that it is kept only once new
// connections have been seen to work with it: every sysctl of net, and the profile of tuned, which may set any of them.
//
// It is not so of what does something once (an action has nothing to put back), nor of sunrpc's and nfs' parameters: they
// bind the kernel's own RPC transports, those to storage that are made later and no other. A connection that the agent
// makes passes none of them, so that it would be no evidence.
func NeedsConfirmation(key string) bool {
	switch subject, name := Key(key).Cut(); subject {
	case Sysctls:
		return strings.HasPrefix(name, "net.") && Effect(key) != v1alpha1.EffectAction
	case Tuned:
		return true
	}
	return false
}
