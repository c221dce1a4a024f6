package bootloader

import (
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// menuOnEFI returns a message if the machine's GRUB reads a whole menu on the EFI partition. A file that only loads another menu is none, nor is a
// menu of a former installation, which does not load the running kernel.
func menuOnEFI(fs host.FS) string {
	if !fs.IsImage() && !fs.Exists("/sys/firmware/efi") {
		return ""
	}
	line, _ := fs.ReadIfThere(commandLine)
	image, _ := lastNamed(host.ParseArguments(string(line)), "BOOT_IMAGE")
	loads := func(line bootLine) bool { return fs.IsImage() || imagePath(line.kernel) == imagePath(image.Value) }
	for _, dir := range []string{"/boot/efi/EFI", "/efi/EFI"} {
		vendors, err := fs.Glob(dir, "*")
		if err != nil {
			continue
		}
		for _, vendor := range vendors {
			menu := path.Join(vendor, "grub.cfg")
			data, err := fs.ReadFile(menu)
			if err != nil || !slices.ContainsFunc(parseMenu(string(data)).lines, loads) {
				continue
			}
			tools := []string{"add the argument to GRUB_CMDLINE_LINUX in " + defaultFile + " and run grub2-mkconfig -o " + menu}
			if fs.Exists("/usr/sbin/grubby") {
				tools = append(tools, "use grubby --update-kernel=ALL --args=...")
			}
			return "GRUB in " + vendor + ": " + strings.Join(tools, ", or ")
		}
	}
	return ""
}

var grub2Mkconfigs = []string{"/usr/sbin/grub2-mkconfig", "/sbin/grub2-mkconfig"}

const (
	grubCfg  = "/boot/grub/grub.cfg"
	grub2Cfg = "/boot/grub2/grub.cfg"
)
