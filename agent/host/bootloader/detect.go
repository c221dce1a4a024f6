package bootloader

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

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

const (
	efiVars = "/sys/firmware/efi/efivars/"
	// loaderGUID is the vendor GUID of the EFI variables that systemd-boot and systemd-stub set at boot.
	loaderGUID = "-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
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
func Detect(fs host.FS) Detection {
	for _, detect := range []func(host.FS) (Detection, bool){
		detectOSTree, detectDistribution, detectSystemdBoot, detectGrubDebian, detectBLS, detectGrub2,
	} {
		if found, ok := detect(fs); ok {
			return found
		}
	}
	for _, other := range alternatives() {
		if file, message := other[0], other[1]; path.IsAbs(file) && fs.Exists(file) {
			return unsupportedBy(message)
		}
	}
	if found := menuOnEFI(fs); found != "" {
		return unsupportedBy(found)
	}
	for _, names := range []*grubNames{grub2Names, debianNames} {
		if fs.Exists(names.menu) {
			return unsupportedBy(names.explain(fs))
		}
	}
	return unsupportedBy("found no known boot loader: neither a GRUB menu, nor boot loader entries, nor files of another loader; use the platform's tools")
}

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

func unsupportedBy(message string) Detection { return Detection{Type: Unsupported, Message: message} }

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

func detectGrubDebian(fs host.FS) (Detection, bool) {
	script, err := fs.ReadFile("/usr/sbin/grub-mkconfig")
	// Upstream's script does not read grub.d, so a drop-in would have no effect.
	if err != nil || !strings.Contains(string(script), "/default/grub.d/") || !fs.Exists(defaultFile) || !fs.Exists(grubCfg) {
		return Detection{}, false
	}
	return usedByGrub(fs, Detection{Type: GrubDebian, Proven: true}, debianNames), true
}

// usedByGrub returns the detection, or Unsupported if the menu has lines that its generator does not print. After staging, such lines do not matter, so
// that the arguments can be removed again.
func usedByGrub(fs host.FS, found Detection, names *grubNames) Detection {
	menu, err := fs.ReadFile(names.menu)
	if reason := names.findUnprinted(string(menu)); err == nil && reason != "" && !fs.Exists(DropIn) {
		return unsupportedBy(reason.Error())
	}
	return found
}

// onlyMaintained is the end of a message about arguments that were staged before the agent found that the machine may boot another menu.
const onlyMaintained = "the agent maintains its menu, but the node is not rebooted for it"

// detectGrub2 detects a GRUB whose files are called grub2, if it sources drop-ins and its menu was made by grub2-mkconfig. On Azure Linux,
// /etc/default/grub itself sources the drop-ins (microsoft/azurelinux, toolkit/resources/assets/grub2/grub).
func detectGrub2(fs host.FS) (Detection, bool) {
	menu, err := fs.ReadFile(grub2Cfg)
	if err != nil || !sourcesDropIns(fs) || len(parseMenu(string(menu)).lines) == 0 {
		return Detection{}, false
	}
	return usedByGrub(fs, Detection{Type: Grub2Mkconfig, Proven: true}, grub2Names), true
}

var grub2Mkconfigs = []string{"/usr/sbin/grub2-mkconfig", "/sbin/grub2-mkconfig"}

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

// explain returns the reason why the agent cannot stage with a GRUB, and the alternative.
func (n *grubNames) explain(fs host.FS) string {
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

func detectBLS(fs host.FS) (Detection, bool) {
	entries, err := fs.Glob("/boot/loader/entries", "*.conf")
	// On s390x the entries belong to zipl, which must run after every change.
	if fs.Exists("/etc/zipl.conf") || !readsEntries(fs) {
		return Detection{}, false
	}
	found := Detection{Type: GrubBLS, Proven: true}
	if menu, err := fs.ReadFile(grub2Cfg); err != nil || !strings.Contains(string(menu), "blscfg") {
		found = Detection{Type: GrubBLS, Message: "GRUB with boot loader entries, but " + grub2Cfg + " does not show that it reads them: " +
			"arguments are staged by grubby --update-kernel=ALL, and the node is not rebooted for them"}
	}
	return found, err == nil && len(entries) > 0 && fs.Exists("/usr/sbin/grubby")
}

// readsEntries reports whether GRUB's menu uses the boot loader entries. A menu that was made without them has its own lines "linux".
func readsEntries(fs host.FS) bool {
	if menuOnEFI(fs) != "" {
		return false
	}
	menu, err := fs.ReadFile(grub2Cfg)
	return err != nil || strings.Contains(string(menu), "blscfg") || len(parseMenu(string(menu)).lines) == 0
}
