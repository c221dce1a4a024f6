package catalogue

import (
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

// NeedsConfirmation reports whether a value of the key can break a node's network. The agent then keeps it only after new
// connections have worked with it. Every sysctl of net needs confirmation, and so does the tuned profile, which may set any of
// them.
//
// Single actions do not, because they have no value to restore. Nor do the parameters of sunrpc and nfs: they affect only the
// kernel's RPC transports to storage that are made later. A connection that the agent makes does not use these transports and
// would prove nothing about them.
func NeedsConfirmation(key string) bool {
	switch subject, name := Key(key).Cut(); subject {
	case Sysctls:
		return strings.HasPrefix(name, "net.") && Effect(key) != v1alpha1.EffectAction
	case Tuned:
		return true
	}
	return false
}
