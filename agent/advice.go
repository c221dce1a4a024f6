package agent

import (
	"regexp"
	"strconv"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/lists"
)

// Files with the memory size and with the TCP sockets of the host network namespace.
const (
	meminfoFile  = "/proc/meminfo"
	sockstatFile = "/proc/1/net/sockstat"
)

var (
	memTotal = regexp.MustCompile(`(?m)^MemTotal:\s+(\d+) kB$`)
	tcpInUse = regexp.MustCompile(`(?m)^TCP: inuse (\d+) `)
)

// adviseOn adds advice about the values of the profiles on this machine. For an image, the machines that boot it are unknown.
func (m Machine) adviseOn(r *localreport.Report, profiles []v1alpha1.StorageClientProfile) {
	node := advice.Node{Name: "this machine", Kernel: r.KernelVersion}
	if !r.Image {
		node = ThisMachine(m.FS)
	}
	for i := range profiles {
		r.Advice = append(r.Advice, lists.Each(advice.ForNode(&profiles[i], node), func(a v1alpha1.Advice) localreport.Advice {
			return localreport.Advice{Advice: a, Profile: profiles[i].Name}
		})...)
	}
}

// ThisMachine describes a running machine for advice. A value that cannot be read is missing, because missing advice must not be an error.
func ThisMachine(fs host.FS) advice.Node {
	kernel, _ := fs.ReadValue(kernelVersionFile)
	return advice.Node{
		Name: "this machine", Kernel: kernel, Build: readBuild(fs),
		Memory: numberIn(fs, meminfoFile, memTotal) * 1024, Sockets: numberIn(fs, sockstatFile, tcpInUse),
	}
}

// numberIn returns the number that a pattern matches in a file. Zero if there is none.
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
