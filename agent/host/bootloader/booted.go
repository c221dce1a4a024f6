package bootloader

import "os"

// menuEntry is an entry or a submenu, in the order in which GRUB shows them. The root has no ID.
type menuEntry struct {
	id, title, section string
	recovery           bool
	// file and text are the name and the content of a boot loader entry. Empty for an entry of the menu itself.
	file, text string
	// lines are its lines "linux" if 10_linux printed it.
	lines    []bootLine
	children []*menuEntry
}

// bootedMenu is a menu with the values of its variables, and the entry that it boots.
type bootedMenu struct {
	names     *grubNames
	menu      menu
	variables map[string]string
	entry     *menuEntry
	// reported is true if the loader itself reports which entry has loaded the kernel. token is the directory of that kernel's system, see token.
	reported bool
	token    string
}

func (b *bootedMenu) expand(text string) string {
	return os.Expand(text, func(name string) string { return b.variables[name] })
}

const otherMenu = "the machine may boot another menu: set the argument in the boot loader that loaded the kernel, or reboot once if this menu has " +
	"changed since"
