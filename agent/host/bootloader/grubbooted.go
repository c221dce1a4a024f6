package bootloader

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// grubBase is the part that all loaders of GRUB share.
type grubBase struct{ base }

const remakeGrub2 = "grub2-mkconfig -o " + grub2Cfg

// env returns the path of GRUB's environment block. GRUB itself can write to it, in place.
func (g grubBase) env() string { return path.Join(path.Dir(g.at.menu), "grubenv") }

// find returns the entry that a value of GRUB's variable "default" selects: indexes, IDs or titles, joined by ">". Nil if there is none.
func find(e *menuEntry, choice string) *menuEntry {
	step, rest, _ := strings.Cut(choice, ">")
	for i, child := range e.children {
		if step != strconv.Itoa(i) && step != child.id && step != child.title {
			continue
		}
		if len(child.children) > 0 {
			return find(child, cmp.Or(rest, "0"))
		}
		return child
	}
	return nil
}

// readBootedFrom returns the menu with the entry that it boots by default, or the reason why arguments do not reach that entry. The boot loader entries
// precede those of the menu itself. The entry is nil if there is no menu: its reader reports the error, or waits until it is written.
func (g grubBase) readBootedFrom(readEntries func() ([]*menuEntry, error)) (b bootedMenu, reason string) {
	data, err := g.readOnce(g.at.menu)
	if err != nil {
		return b, ""
	}
	custom, err := g.fs.ReadIfThere(path.Join(path.Dir(g.at.menu), "custom.cfg"))
	if err != nil {
		return b, err.Error()
	}
	text := string(data)
	if strings.Contains(text, "/custom.cfg") && len(custom) > 0 {
		text += "\n### BEGIN custom.cfg ###\n" + string(custom) + "\n### END custom.cfg ###\n"
	}
	b = bootedMenu{names: g.at, menu: parseMenu(text), variables: g.menuVariables(text)}
	entries, err := readEntries()
	if err != nil {
		return b, err.Error()
	}
	b.menu.root.children = append(entries, b.menu.root.children...)
	for _, entry := range entries {
		b.menu.lines = append(b.menu.lines, entry.lines...)
	}
	if b.menu.root.children == nil {
		return b, ""
	}
	env, _ := g.fs.ReadFile(g.env())
	if count := environment(env).value("boot_counter"); count != "" && strings.Contains(text, fallbackCounting) {
		return b, fmt.Sprintf("%s has boot_counter=%s: GRUB counts boots, and may boot another entry than the default: run grub2-editenv - unset boot_counter",
			g.env(), count)
	}
	return b, badDefault(&b, parseTrial(text).defaults)
}

// menuVariables returns the values of variables at GRUB's start: of its environment block, or else the last value that the menu sets.
func (g grubBase) menuVariables(text string) map[string]string {
	variables := map[string]string{}
	for line := range strings.Lines(text) {
		words := splitWords(line)
		if len(words) != 2 || words[0] != "set" {
			continue
		}
		if name, value, ok := strings.Cut(words[1], "="); ok && value != "" && !strings.HasPrefix(value, "$") {
			variables[name] = value
		}
	}
	// Without a block, GRUB reads no variables.
	block, _ := g.fs.ReadFile(path.Join(path.Dir(g.at.menu), "grubenv"))
	for line := range strings.Lines(string(block)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok && !strings.HasPrefix(name, "#") {
			variables[name] = value
		}
	}
	return variables
}

// badDefault finds the entry that boots by default, and returns the reason why arguments of 10_linux do not reach it, or the entry of a pending
// grub-reboot. Empty if they do.
func badDefault(b *bootedMenu, defaults []string) string {
	choice := ""
	for _, value := range defaults {
		if value != "${next_entry}" {
			choice = b.expand(value)
		}
	}
	choices := []string{choice}
	if next := b.variables["next_entry"]; next != "" {
		choices = append(choices, next)
	}
	for _, choice := range slices.Backward(choices) {
		if b.entry = find(&b.menu.root, cmp.Or(choice, "0")); b.entry == nil {
			// GRUB boots the first entry if the selected one is missing.
			b.entry = find(&b.menu.root, "0")
		}
		switch {
		case b.entry == nil:
			return b.names.menu + " has no entry"
		case b.entry.recovery || len(b.entry.lines) == 0:
			return fmt.Sprintf("%s boots entry %q of %s next, which %s does not reach: make an entry of 10_linux the default with GRUB_DEFAULT in %s and run %s, "+
				"or add the argument to that entry", b.names.menu, b.entry.title, b.entry.section, appendTo, defaultFile, b.names.remake)
		}
	}
	return ""
}

// imagePath returns the path of a kernel without GRUB's device: "(hd0,gpt2)/vmlinuz".
func imagePath(image string) string {
	if _, rest, ok := strings.Cut(image, ")"); ok && strings.HasPrefix(image, "(") {
		return rest
	}
	return image
}
