package bootloader

import (
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/text"
)

// Types of boot loaders, named as in the API.
const (
	// GrubDebian is GRUB with /etc/default/grub.d, as on Debian and Ubuntu.
	GrubDebian = "GrubDebian"
	// GrubBLS is GRUB with boot loader specification entries, changed by grubby.
	GrubBLS = "GrubBLS"
	// Grub2Mkconfig is GRUB with grub2-mkconfig and /etc/default/grub.d, as on Azure Linux.
	Grub2Mkconfig = "Grub2Mkconfig"
	// SystemdBoot is systemd-boot with entries that kernel-install writes.
	SystemdBoot = "SystemdBoot"
	// UKI is systemd-boot with unified kernel images, which the agent's addon reaches.
	UKI = "UKI"
	// RPMOSTree is rpm-ostree, which manages the command line itself.
	RPMOSTree = "RPMOSTree"
	// Unsupported is any other boot loader.
	Unsupported = "Unsupported"
)

// Detection describes the means by which a host keeps its kernel command line.
type Detection struct {
	// Type is one of the types above.
	Type string
	// Proven is false if this project's tests have never rebooted the type, or the agent does not change it.
	Proven bool
	// Message describes the detected boot loader. If arguments are not staged, or staged without a reboot, it also names the alternative. Empty for a
	// proven type.
	Message string
}

// MayReboot reports whether a node may be rebooted for staged arguments. Otherwise they take effect when it reboots for another reason.
func (d Detection) MayReboot() bool { return d.Proven }

func unsupportedBy(message string) Detection { return Detection{Type: Unsupported, Message: message} }

func osRelease(fs host.FS, name string) string {
	data, err := fs.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	return releaseValue(string(data), name)
}

func releaseValue(release, name string) string {
	for line := range strings.Lines(release) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return ""
}

// temporaryError is the reason why arguments cannot be staged now, e.g. because a package manager is installing a kernel.
type temporaryError struct{ error }

// maxMessage limits a message that contains command output, in bytes.
const maxMessage = 512

func oneLine(output string) string {
	return text.CutBytes(strings.Join(strings.Fields(output), " "), maxMessage)
}
