package agent

import (
	"regexp"
	"strconv"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/report"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
)

// Where the kernel tells its memory, and the TCP sockets of the host's network namespace.
const (
	meminfoFile  = "/proc/meminfo"
	sockstatFile = "/proc/1/net/sockstat"
)

var (
	memTotal = regexp.MustCompile(`(?m)^MemTotal:\s+(\d+) kB$`)
	tcpInUse = regexp.MustCompile(`(?m)^TCP: inuse (\d+) `)
)

// adviseOn adds what is known of the profiles' values on this machine. In an image nothing is known of the machines
// that boot it.
func (m Machine) adviseOn(r *report.Report, profiles []v1alpha1.StorageClientProfile) {
	node := advice.Node{Name: "this machine", Kernel: r.KernelVersion}
	if !r.Image {
		node.Memory = numberIn(m.FS, meminfoFile, memTotal) * 1024
		node.Sockets = numberIn(m.FS, sockstatFile, tcpInUse)
	}
	for i := range profiles {
		for _, a := range advice.ForNode(&profiles[i], node) {
			r.Advice = append(r.Advice, report.Advice{Advice: a, Profile: profiles[i].Name})
		}
	}
}

// numberIn is the number that a pattern finds in a file, 0 where there is none: no advice is worth a failure.
func numberIn(fs host.FS, file string, pattern *regexp.Regexp) int64 {
	text, err := fs.ReadValue(file)
	found := pattern.FindStringSubmatch(text)
	if err != nil || found == nil {
		return 0
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
