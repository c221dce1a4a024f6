package mountwatch

import (
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/tuning/knownbad"
)

// Signs returns the function for mounts.Reader.Signs that evaluates the registry of known problems.
func Signs(fs host.FS) func(m mounts.Mount, operations map[string]mounts.Operation) []string {
	value := func(file string) string {
		text, _ := fs.ReadValue(file)
		return text
	}
	return func(m mounts.Mount, operations map[string]mounts.Operation) (ids []string) {
		counts := map[string]knownbad.Counts{}
		for name, o := range operations {
			counts[name] = knownbad.Counts{Requests: o.Count, Errors: o.Errors}
		}
		for _, e := range knownbad.Entries() {
			if e.Concerns(m.Protocol, m.Options) && e.Sign.IsShown(value, counts) {
				ids = append(ids, e.ID)
			}
		}
		return ids
	}
}
