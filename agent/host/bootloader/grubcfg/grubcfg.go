// Package grubcfg reads the menu and the environment block of GRUB.
package grubcfg

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// MenuOnEFI returns a message if the machine's GRUB reads a whole menu on the EFI partition. A file that only loads another menu is none, nor is a
// menu of a former installation, which does not load the running kernel.
func MenuOnEFI(fs host.FS) string {
	if !fs.IsImage() && !fs.Exists("/sys/firmware/efi") {
		return ""
	}
	line, _ := fs.ReadIfThere(loader.CommandLine)
	image, _ := argument.Last(host.ParseArguments(string(line)), "BOOT_IMAGE")
	loads := func(line loader.Line) bool { return fs.IsImage() || ImagePath(line.Kernel) == ImagePath(image.Value) }
	for _, dir := range []string{"/boot/efi/EFI", "/efi/EFI"} {
		vendors, err := fs.Glob(dir, "*")
		if err != nil {
			continue
		}
		for _, vendor := range vendors {
			menu := path.Join(vendor, "grub.cfg")
			data, err := fs.ReadFile(menu)
			if err != nil || !slices.ContainsFunc(Parse(string(data)).Lines, loads) {
				continue
			}
			tools := []string{"add the argument to GRUB_CMDLINE_LINUX in " + loader.DefaultFile + " and run grub2-mkconfig -o " + menu}
			if fs.Exists("/usr/sbin/grubby") {
				tools = append(tools, "use grubby --update-kernel=ALL --args=...")
			}
			return "GRUB in " + vendor + ": " + strings.Join(tools, ", or ")
		}
	}
	return ""
}

// Grub2Mkconfigs are the paths of grub2-mkconfig.
var Grub2Mkconfigs = []string{"/usr/sbin/grub2-mkconfig", "/sbin/grub2-mkconfig"}

// Menus of GRUB.
const (
	Debian = "/boot/grub/grub.cfg"
	Grub2  = "/boot/grub2/grub.cfg"
)

// GeneratorDir contains the generators of the menu.
const GeneratorDir = "/etc/grub.d"

// Generator prints the agent's section of the menu until a boot with the staged arguments comes up. As a generator, it survives an update-grub by
// another program, e.g. when a kernel is installed.
const Generator = GeneratorDir + "/42_storage-client"

const (
	// SettleTries and settlePause are the number of reads, and the pause between them, while another program is writing a menu. grub-mkconfig copies
	// a new menu into the file in place, which takes milliseconds.
	SettleTries = 10
	settlePause = 100 * time.Millisecond
)

// ErrBusy reports a menu that is incomplete now.
var ErrBusy = errors.New("another program is writing it; the agent reads it again at the next check")

// Files is the part that all loaders of GRUB share.
type Files struct{ loader.Base }

// ReadSettled reads a menu when no program is writing it. It waits up to a second.
func (g Files) ReadSettled(name string) ([]byte, error) {
	for try := 1; ; try++ {
		data, err := g.ReadOnce(name)
		if !errors.Is(err, ErrBusy) || try == SettleTries {
			return data, err
		}
		g.Pause(settlePause)
	}
}

// ReadOnce reads a file twice. The file is busy if the two reads differ, or if it is the start of the menu that grub-mkconfig is copying.
func (g Files) ReadOnce(name string) ([]byte, error) {
	data, err := g.ReadFile(name)
	if err != nil {
		return nil, err
	}
	second, err := g.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(data, second) || g.isBeingCopied(name, data) {
		return nil, fmt.Errorf("read %s: %w", name, ErrBusy)
	}
	return data, nil
}

// isBeingCopied reports whether a file is only the start of grub-mkconfig's new menu next to it. grub-mkconfig removes the new menu once it is
// completely copied.
func (g Files) isBeingCopied(name string, data []byte) bool {
	made, err := g.FS.ReadFile(name + ".new")
	return err == nil && len(data) < len(made) && bytes.HasPrefix(made, data)
}

// RemakeGrub2 is the command for users that makes the menu.
const RemakeGrub2 = "grub2-mkconfig -o " + Grub2

// Env returns the path of GRUB's environment block. GRUB itself can write to it, in place.
func (g Files) Env() string { return path.Join(path.Dir(g.At.Menu), "grubenv") }

// find returns the entry that a value of GRUB's variable "default" selects: indexes, IDs or titles, joined by ">". Nil if there is none.
func find(e *loader.Entry, choice string) *loader.Entry {
	step, rest, _ := strings.Cut(choice, ">")
	for i, child := range e.Children {
		if step != strconv.Itoa(i) && step != child.ID && step != child.Title {
			continue
		}
		if len(child.Children) > 0 {
			return find(child, cmp.Or(rest, "0"))
		}
		return child
	}
	return nil
}

// CustomMenu is the file of users that 41_custom reads.
func (g Files) CustomMenu() string { return path.Join(path.Dir(g.At.Menu), "custom.cfg") }

// ReadBootedFrom returns the menu with the entry that it boots by default, or the reason why arguments do not reach that entry. The boot loader entries
// precede the entries of the menu itself. The entry is nil if there is no menu: its reader reports the error, or waits until it is written.
func (g Files) ReadBootedFrom(readEntries func() ([]*loader.Entry, error)) (b loader.Booted, reason string) {
	data, err := g.ReadOnce(g.At.Menu)
	if err != nil {
		return b, ""
	}
	custom, err := g.FS.ReadIfThere(g.CustomMenu())
	if err != nil {
		return b, err.Error()
	}
	text := string(data)
	if strings.Contains(text, "/custom.cfg") && len(custom) > 0 {
		text += "\n### BEGIN custom.cfg ###\n" + string(custom) + "\n### END custom.cfg ###\n"
	}
	b = loader.Booted{Names: g.At, Menu: Parse(text), Variables: g.menuVariables(text)}
	entries, err := readEntries()
	if err != nil {
		return b, err.Error()
	}
	b.Menu.Root.Children = append(entries, b.Menu.Root.Children...)
	for _, entry := range entries {
		b.Menu.Lines = append(b.Menu.Lines, entry.Lines...)
	}
	if b.Menu.Root.Children == nil {
		return b, ""
	}
	env, _ := g.FS.ReadFile(g.Env())
	if count := Environment(env).Value("boot_counter"); count != "" && strings.Contains(text, fallbackCounting) {
		return b, fmt.Sprintf("%s has boot_counter=%s: GRUB counts boots, and may boot another entry than the default: run grub2-editenv - unset boot_counter",
			g.Env(), count)
	}
	return b, badDefault(&b, ParseTrial(text).Defaults)
}

// menuVariables returns the values of variables at GRUB's start: of its environment block, or else the last value that the menu sets.
func (g Files) menuVariables(text string) map[string]string {
	variables := map[string]string{}
	for line := range strings.Lines(text) {
		words := argument.Split(line)
		if len(words) != 2 || words[0] != "set" {
			continue
		}
		if name, value, ok := strings.Cut(words[1], "="); ok && value != "" && !strings.HasPrefix(value, "$") {
			variables[name] = value
		}
	}
	// Without a block, GRUB reads no variables.
	block, _ := g.FS.ReadFile(path.Join(path.Dir(g.At.Menu), "grubenv"))
	for line := range strings.Lines(string(block)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok && !strings.HasPrefix(name, "#") {
			variables[name] = value
		}
	}
	return variables
}

// badDefault finds the entry that boots by default, and returns the reason why arguments of 10_linux do not reach it, or the entry of a pending
// grub-reboot. Empty if they do.
func badDefault(b *loader.Booted, defaults []string) string {
	choice := ""
	for _, value := range defaults {
		if value != "${next_entry}" {
			choice = b.Expand(value)
		}
	}
	choices := []string{choice}
	if next := b.Variables["next_entry"]; next != "" {
		choices = append(choices, next)
	}
	for _, choice := range slices.Backward(choices) {
		if b.Entry = find(&b.Menu.Root, cmp.Or(choice, "0")); b.Entry == nil {
			// GRUB boots the first entry if the selected one is missing.
			b.Entry = find(&b.Menu.Root, "0")
		}
		switch {
		case b.Entry == nil:
			return b.Names.Menu + " has no entry"
		case b.Entry.Recovery || len(b.Entry.Lines) == 0:
			return fmt.Sprintf("%s boots entry %q of %s next, which %s does not reach: make an entry of 10_linux the default with GRUB_DEFAULT in %s and run %s, "+
				"or add the argument to that entry", b.Names.Menu, b.Entry.Title, b.Entry.Section, loader.AppendTo, loader.DefaultFile, b.Names.Remake)
		}
	}
	return ""
}

// ImagePath returns the path of a kernel without GRUB's device: "(hd0,gpt2)/vmlinuz".
func ImagePath(image string) string {
	if _, rest, ok := strings.Cut(image, ")"); ok && strings.HasPrefix(image, "(") {
		return rest
	}
	return image
}
