package bootloader

import (
	_ "embed"
	"encoding/csv"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/storageclient/operator/agent/host"
)

//go:embed loaders.csv
var loadersCSV string

// alternatives contains pairs of a mark, "ID=name" of os-release or a file, and the tools to use where the mark is found.
var alternatives = sync.OnceValue(func() [][]string {
	table := csv.NewReader(strings.NewReader(loadersCSV))
	table.Comma, table.Comment = ';', '#'
	all, err := table.ReadAll()
	if err != nil {
		panic("boot loaders: " + err.Error())
	}
	return all
})

// Detect determines how the host keeps its kernel command line. It only reads.
func Detect(fs host.FS, kinds []Kind) Detection {
	found, _, _ := detect(fs, kinds)
	return found
}

// detect also returns the kind of the boot loader and the place of its menu. They are nil if the agent does not change the boot loader.
func detect(fs host.FS, kinds []Kind) (Detection, Kind, *grubNames) {
	for _, find := range []func(host.FS) (Detection, bool){detectOSTree, detectDistribution} {
		if found, ok := find(fs); ok {
			return found, Kind{}, nil
		}
	}
	for _, kind := range kinds {
		if found, at := kind.Detect(fs); found.Type != "" {
			return found, kind, at
		}
	}
	return unsupportedBy(explain(fs, kinds)), Kind{}, nil
}

// explain returns the reason why a host has no known boot loader.
func explain(fs host.FS, kinds []Kind) string {
	for _, other := range alternatives() {
		if file, message := other[0], other[1]; path.IsAbs(file) && fs.Exists(file) {
			return message
		}
	}
	if found := menuOnEFI(fs); found != "" {
		return found
	}
	for _, kind := range slices.Backward(kinds) {
		if kind.Explain != nil && kind.Explain(fs) != "" {
			return kind.Explain(fs)
		}
	}
	return "found no known boot loader: neither a GRUB menu, nor boot loader entries, nor files of another loader; use the platform's tools"
}

func detectOSTree(fs host.FS) (Detection, bool) {
	return Detection{
		Type:    RPMOSTree,
		Message: "rpm-ostree manages the command line: use rpm-ostree kargs, or kernelArguments of a MachineConfig on OpenShift",
	}, fs.Exists("/run/ostree-booted") || fs.IsImage() && fs.Exists("/sysroot/ostree")
}

func detectDistribution(fs host.FS) (Detection, bool) {
	id := osRelease(fs, "ID")
	for _, other := range alternatives() {
		if other[0] == "ID="+id {
			return unsupportedBy(other[1]), true
		}
	}
	return Detection{}, false
}

// onlyMaintained is the end of a message about arguments that were staged before the agent found that the machine may boot another menu.
const onlyMaintained = "the agent maintains its menu, but the node is not rebooted for it"

// kexecLoaded contains 1 if a kernel is loaded that a reboot may start without the boot loader. A kernel for crashes does not count.
const kexecLoaded = "/sys/kernel/kexec_loaded"

// loader returns the boot loader of the host, or an unsupported one if a new menu would lose a line, or if the machine may boot another menu. After
// staging, it always returns the boot loader of the host, so that the arguments can be removed again.
func (s *Subject) loader() loader {
	found, kind, at := detect(s.fs, s.kinds)
	b := base{Host: s.Host, found: found, at: unsupportedNames}
	if at == nil {
		return b
	}
	staged, reason := s.fs.Exists(at.form.file), s.unexplained(kind.Open(base{Host: s.Host, found: found, at: at}))
	if lost := s.knownUnprinted(at.menu); lost != "" && !staged {
		reason = lost.Error()
	}
	switch {
	case reason == "":
	case !staged:
		b.found = unsupportedBy(reason)
		return b
	default:
		b.found = Detection{Type: found.Type, Message: reason + "; " + onlyMaintained}
	}
	if loaded, err := s.fs.ReadValue(kexecLoaded); err == nil && loaded == "1" {
		b.found = Detection{Type: found.Type, Message: "a kernel is loaded for kexec (" + kexecLoaded + "), and a reboot may start it with its own arguments: " +
			"arguments are staged, and the node is not rebooted for them until kexec --unload"}
	}
	b.at = at
	return kind.Open(b)
}

// Detect returns the means by which the host keeps its kernel command line. It considers the result of the last attempt to stage.
func (s *Subject) Detect() Detection { return s.loader().detection() }
