package bootloader

import (
	"fmt"
	"path"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/text"
)

// Kinds of GRUB that make their menu from /etc/default/grub.d.
var (
	Debian = grubKind(GrubDebian, debianNames, isDebian)
	Grub2  = grubKind(Grub2Mkconfig, grub2Names, isGrub2)
)

// grubKind returns a kind. Its Detect rejects a menu with lines that its generator does not print. After staging, such lines do not matter, so that
// the arguments can be removed again.
func grubKind(name string, at *grubNames, isUsed func(fs host.FS) bool) Kind {
	return Kind{
		Detect: func(fs host.FS) (Detection, *grubNames) {
			if !isUsed(fs) {
				return Detection{}, nil
			}
			menu, err := fs.ReadFile(at.menu)
			if reason := findUnprinted(at, string(menu)); err == nil && reason != "" && !fs.Exists(DropIn) {
				return unsupportedBy(reason.Error()), nil
			}
			return Detection{Type: name, Proven: true}, at
		},
		Places:  func(host.FS) []*grubNames { return []*grubNames{at} },
		Open:    func(b base) loader { return grubDebian{grubBase{base: b}} },
		Explain: func(fs host.FS) string { return explainMenu(fs, at) },
	}
}

func isDebian(fs host.FS) bool {
	script, err := fs.ReadFile("/usr/sbin/grub-mkconfig")
	// Upstream's script does not read grub.d, so a drop-in would have no effect.
	return err == nil && strings.Contains(string(script), "/default/grub.d/") && fs.Exists(defaultFile) && fs.Exists(grubCfg)
}

// isGrub2 recognizes a GRUB whose files are called grub2, if it sources drop-ins and its menu was made by grub2-mkconfig. On Azure Linux,
// /etc/default/grub itself sources the drop-ins (microsoft/azurelinux, toolkit/resources/assets/grub2/grub).
func isGrub2(fs host.FS) bool {
	menu, err := fs.ReadFile(grub2Cfg)
	return err == nil && sourcesDropIns(fs) && len(parseMenu(string(menu)).lines) > 0
}

// sourcesDropIns reports whether grub2-mkconfig reads /etc/default/grub.d, directly or through /etc/default/grub.
func sourcesDropIns(fs host.FS) bool {
	defaults, err := fs.ReadFile(defaultFile)
	if err != nil {
		return false
	}
	for _, name := range grub2Mkconfigs {
		if script, err := fs.ReadFile(name); err == nil {
			return namesDropIns(string(script)) || namesDropIns(string(defaults))
		}
	}
	return false
}

func namesDropIns(script string) bool {
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") && strings.Contains(line, "/default/grub.d/") {
			return true
		}
	}
	return false
}

// explainMenu returns the reason why the agent cannot stage with a GRUB, and the alternative. Empty without a menu.
func explainMenu(fs host.FS, n *grubNames) string {
	if !fs.Exists(n.menu) {
		return ""
	}
	system := "GRUB in " + path.Dir(n.menu)
	if name := text.CutBytes(osRelease(fs, "PRETTY_NAME"), maxMessage/8); name != "" {
		system = name
	}
	data, err := fs.ReadFile(n.menu)
	menu := string(data)
	switch {
	case err != nil:
		return fmt.Sprintf("%s: cannot read its menu: %v", system, err)
	case strings.Contains(menu, "blscfg"):
		return system + ": its menu uses boot loader entries, and grubby, which changes them, is not installed: install grubby"
	case len(parseMenu(menu).lines) > 0:
		return system + ": its " + n.mkconfig[0] + " does not read " + dropInDir + ": add the argument to " + appendTo + " in " + defaultFile +
			" and run " + strings.Join(n.mkconfig, " ") + " " + n.menu
	case strings.Contains(menu, "$kernelopts"):
		// CBL-Mariner 2 (microsoft/azurelinux 2.0, toolkit/resources/assets/grub2/grub.cfg).
		return system + ": its menu was not made by " + n.mkconfig[0] + " and uses kernelopts of GRUB's environment: " +
			"use grub2-editenv " + path.Dir(n.menu) + "/grubenv set kernelopts=..."
	}
	return system + ": its menu was not made by " + n.mkconfig[0] + ": add the argument to the kernel command line in " + n.menu
}
