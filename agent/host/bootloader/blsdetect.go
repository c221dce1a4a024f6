package bootloader

import (
	"errors"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// GrubbyKind is the kind of GRUB with boot loader entries.
var GrubbyKind = Kind{
	Detect: detectGrubby,
	Places: func(host.FS) []*grubNames { return []*grubNames{blsNames} },
	Open:   func(b base) loader { return grubbyLoader{entryLoader{base: b, tool: grubby{}}} },
}

// grubbyLoader also has copies of the entries.
type grubbyLoader struct{ entryLoader }

func (b grubbyLoader) removeTemp() error {
	return errors.Join(b.entryLoader.removeTemp(), removeCopies(b.Host))
}

func detectGrubby(fs host.FS) (Detection, *grubNames) {
	entries, err := fs.Glob(entriesDir, "*.conf")
	menu, menuErr := fs.ReadFile(grub2Cfg)
	switch {
	case err != nil || len(entries) == 0 || !fs.Exists("/usr/sbin/grubby") || !readsEntries(fs):
		return Detection{}, nil
	case fs.Exists("/etc/zipl.conf"):
		// On s390x the entries belong to zipl, which must run after every change.
		return Detection{}, nil
	case menuErr != nil || !strings.Contains(string(menu), "blscfg"):
		return Detection{Type: GrubBLS, Message: "GRUB with boot loader entries, but " + grub2Cfg + " does not show that it reads them: " +
			"arguments are staged by grubby --update-kernel=ALL, and the node is not rebooted for them"}, blsNames
	}
	return Detection{Type: GrubBLS, Proven: true}, blsNames
}

// readsEntries reports whether GRUB's menu uses the boot loader entries. A menu that was made without them has its own lines "linux".
func readsEntries(fs host.FS) bool {
	if menuOnEFI(fs) != "" {
		return false
	}
	menu, err := fs.ReadFile(grub2Cfg)
	return err != nil || strings.Contains(string(menu), "blscfg") || len(parseMenu(string(menu)).lines) == 0
}
