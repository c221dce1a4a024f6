package grub

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/tuning/text"
)

// textLine is a line of a menu: its number, from 1, and its words with one blank between them.
type textLine struct {
	number int
	text   string
}

type textEntry struct {
	head       textLine
	id, kernel string
	lines      []textLine
}

// textSection is the output of one generator: its entries, and the lines outside them.
type textSection struct {
	lines   []textLine
	entries []textEntry
}

// menuText contains a menu line by line, without the agent's section and arguments.
type menuText struct {
	managed []host.Argument
	// header contains the comments before the first section. outside contains all other lines outside the sections.
	header, outside []textLine
	sections        map[string]*textSection
	// all contains the lines in their order.
	all []string
	// lang is the language that the menu sets. Empty if it sets none.
	lang string
}

var (
	sectionHead = regexp.MustCompile(`^### BEGIN (\S+) ###$`)
	langLine    = regexp.MustCompile(`^set lang=(\w*)$`)
	// diskName matches a disk by its place in the firmware's order. The search after it, by UUID, decides.
	diskName = regexp.MustCompile(`^set root='hd\d+(,[a-z]*\d+)*'$`)
)

// readMenuText reads a menu line by line. In an entry, a line that ends with a brace starts a block.
func readMenuText(data string, managed []host.Argument) *menuText {
	m := &menuText{managed: managed, sections: map[string]*textSection{}}
	var entry *textEntry
	name, number, depth := "", 0, 0
	for raw := range strings.Lines(data) {
		number++
		line := m.plainLine(number, raw)
		head := sectionHead.FindStringSubmatch(line.text)
		switch {
		case name == "" && head != nil:
			name, entry = head[1], nil
			if m.sections[name] == nil {
				m.sections[name] = &textSection{}
			}
		case name != "" && line.text == "### END "+name+" ###":
			name = ""
		case name == grubcfg.Generator || line.text == "" || m.isLanguage(name, line.text):
		case name == "":
			m.addOutside(line)
		case entry != nil:
			if depth += braces(line.text); depth == 0 {
				entry = nil
			} else {
				m.addToEntry(entry, line)
			}
		case strings.HasPrefix(line.text, "menuentry ") && braces(line.text) > 0:
			section := m.sections[name]
			section.entries = append(section.entries, textEntry{head: line, id: grubcfg.ParseBlock(argument.Split(line.text)).ID})
			entry, depth = &section.entries[len(section.entries)-1], 1
			m.all = append(m.all, line.text)
		default:
			m.sections[name].lines = append(m.sections[name].lines, line)
			m.all = append(m.all, line.text)
		}
	}
	return m
}

// plainLine returns a line without the agent's arguments, and without the places at which GRUB first searches for a disk. These depend on the order
// in which the kernel found the disks.
func (m *menuText) plainLine(number int, raw string) textLine {
	words := strings.Fields(raw)
	isSearch := len(words) > 0 && words[0] == "search"
	words = slices.DeleteFunc(words, func(word string) bool {
		return argument.Has(m.managed, host.NewArgument(word)) || isSearch && strings.HasPrefix(word, "--hint")
	})
	line := textLine{number: number, text: strings.Join(words, " ")}
	if diskName.MatchString(line.text) {
		line.text = ""
	}
	return line
}

// isLanguage reports whether a line of 00_header sets the menu's language, and records the language. It is the language of the last user that ran
// grub-mkconfig.
func (m *menuText) isLanguage(section, line string) bool {
	if path.Base(section) != "00_header" {
		return false
	}
	if found := langLine.FindStringSubmatch(line); found != nil {
		m.lang = found[1]
		return true
	}
	return line == "set locale_dir=$prefix/locale" || line == "insmod gettext"
}

// isTranslated reports whether titles and messages of the menu are in another language than in the agent's menus.
func (m *menuText) isTranslated() bool {
	return m.lang != "" && m.lang != "C" && m.lang != "POSIX" && !strings.HasPrefix(m.lang, "en_")
}

func (m *menuText) addOutside(line textLine) {
	m.all = append(m.all, line.text)
	if len(m.sections) == 0 && strings.HasPrefix(line.text, "#") {
		m.header = append(m.header, line)
		return
	}
	m.outside = append(m.outside, line)
}

func (m *menuText) addToEntry(entry *textEntry, line textLine) {
	m.all = append(m.all, line.text)
	if words := strings.Fields(line.text); entry.kernel == "" && len(words) > 1 && grubcfg.IsLinuxCommand(words[0]) {
		entry.kernel = words[1]
	}
	entry.lines = append(entry.lines, line)
}

func braces(line string) int {
	switch {
	case strings.HasSuffix(line, "{"):
		return 1
	case line == "}":
		return -1
	}
	return 0
}

// firstLost returns the first line of a menu that a new one lacks. exists reports whether a kernel is installed.
func (m *menuText) firstLost(made *menuText, exists func(kernel string) bool) (textLine, bool) {
	lost := append(missingLines(m.header, made.header), missingLines(m.outside, made.outside)...)
	for name, section := range m.sections {
		printed := made.sections[name]
		if printed == nil {
			printed = &textSection{}
		}
		compared := m.comparedText(name)
		lost = append(lost, missingLines(textsOf(section.lines, compared), textsOf(printed.lines, compared))...)
		for _, entry := range section.entries {
			if entry.isGenerated(section, printed) && !exists(entry.kernel) {
				// An entry of a removed kernel may be lost.
				continue
			}
			lost = append(lost, entry.lostLines(printed, compared)...)
		}
	}
	if len(lost) == 0 {
		return textLine{}, false
	}
	return slices.MinFunc(lost, func(a, b textLine) int { return a.number - b.number }), true
}

// comparedText returns a function that returns the compared part of a line in a section. Arguments of 10_linux's entries are not compared:
// compareMenus knows which of them are the same by another name. A translated title is compared by the entry's ID. A translated message is not
// compared.
func (m *menuText) comparedText(section string) func(line string) string {
	byKernel, translated := strings.HasPrefix(path.Base(section), "10_linux"), m.isTranslated()
	return func(line string) string {
		words := strings.Fields(line)
		switch {
		case byKernel && len(words) > 1 && grubcfg.IsLinuxCommand(words[0]):
			return words[0] + " " + words[1]
		case translated && byKernel && words[0] == "echo":
			return ""
		case translated && (words[0] == "menuentry" || words[0] == "submenu"):
			if b := grubcfg.ParseBlock(argument.Split(line)); b.ID != b.Title {
				return words[0] + " " + b.ID
			}
		}
		return line
	}
}

// textsOf returns the lines with only their compared part, and omits lines without one.
func textsOf(lines []textLine, compared func(string) string) []textLine {
	var all []textLine
	for _, line := range lines {
		if line.text = compared(line.text); line.text != "" {
			all = append(all, line)
		}
	}
	return all
}

// missingLines returns the lines that occur less often in others.
func missingLines(lines, available []textLine) []textLine {
	counts := map[string]int{}
	for _, line := range available {
		counts[line.text]++
	}
	var missing []textLine
	for _, line := range lines {
		if counts[line.text]--; counts[line.text] < 0 {
			missing = append(missing, line)
		}
	}
	return missing
}

// isGenerated reports whether 10_linux may have printed the entry: its kernel is in the directory of other kernels, and has an entry with the
// kernel's ID.
func (e textEntry) isGenerated(section, printed *textSection) bool {
	_, version, _ := strings.Cut(path.Base(e.kernel), "-")
	ofKernel := func(other textEntry) bool {
		return strings.HasPrefix(other.id, "gnulinux-"+version+"-") && other.kernel == e.kernel
	}
	sharesKernelDir := func(other textEntry) bool { return path.Dir(other.kernel) == path.Dir(e.kernel) }
	return version != "" && (ofKernel(e) || strings.HasPrefix(e.id, "gnulinux-simple-")) &&
		slices.ContainsFunc(section.entries, ofKernel) && slices.ContainsFunc(printed.entries, sharesKernelDir)
}

// lostLines returns the lines that an entry would lose. It loses none if one printed entry has all of its lines, which may have another ID if a
// kernel was installed since. Otherwise, the printed entry with the same ID determines the lost lines.
func (e textEntry) lostLines(printed *textSection, compared func(string) string) []textLine {
	head, lines := textsOf([]textLine{e.head}, compared), textsOf(e.lines, compared)
	hasHead := func(other textEntry) bool {
		return len(missingLines(head, textsOf([]textLine{other.head}, compared))) == 0
	}
	lost := []textLine{e.head}
	if !slices.ContainsFunc(printed.entries, hasHead) {
		return lost
	}
	for _, other := range printed.entries {
		missing := missingLines(lines, textsOf(other.lines, compared))
		if len(missing) == 0 {
			return nil
		}
		if other.id == e.id {
			lost = missing
		}
	}
	return lost
}

const (
	customGenerator = grubcfg.GeneratorDir + "/40_custom"
	// maxShown limits the part of a line in a message, in bytes.
	maxShown = 60
)

func remedy(n *loader.Place) string {
	return fmt.Sprintf("keep it in %s or %s and run %s", loader.DefaultFile, customGenerator, n.Remake)
}

// foreignTo returns the error about a line that the generator does not print. For a password, the error shows only the command.
func foreignTo(n *loader.Place, m *menuText, line textLine) loader.UnprintedError {
	excerpt := text.CutBytes(line.text, maxShown)
	if command, _, _ := strings.Cut(excerpt, " "); strings.HasPrefix(command, "password") {
		excerpt = command + " ..."
	}
	if len(m.sections) == 0 {
		return loader.UnprintedError(fmt.Sprintf("%s line %d (%s): %s did not generate this file: add the argument there manually, or move its entries to %s "+
			"and run %s", n.Menu, line.number, excerpt, n.Mkconfig[0], customGenerator, n.Remake))
	}
	return loader.UnprintedError(fmt.Sprintf("%s line %d (%s): %s does not print this line: %s", n.Menu, line.number, excerpt, n.Mkconfig[0], remedy(n)))
}

// FindUnprinted returns the error about the first line outside the sections of a menu, which no generator has printed. If it is empty, only a new
// menu can show lost lines. It ignores a last line without a newline, which may still be incomplete.
func FindUnprinted(n *loader.Place, data string) loader.UnprintedError {
	if m := readMenuText(data[:strings.LastIndex(data, "\n")+1], nil); len(m.outside) > 0 {
		return foreignTo(n, m, m.outside[0])
	}
	return ""
}

// recordUnprinted records the line that a comparison has found. If the menu has changed since the new one was made, the comparison is invalid.
func (g mkconfig) recordUnprinted(before loader.MenuVersion, err error) error {
	var reason loader.UnprintedError
	if !errors.As(err, &reason) {
		return err
	}
	if g.MenuVersion(g.At.Menu) != before {
		return fmt.Errorf("%s changed in the meantime; the agent reads it again at the next check: %s", g.At.Menu, string(reason))
	}
	g.Finding = loader.MenuFinding{Version: before, Reason: reason}
	return err
}

// findLostLine returns the error about a line that a new menu would lose, if that is known without making one.
func (g mkconfig) findLostLine() (loader.UnprintedError, error) {
	if reason := g.KnownUnprinted(g.At.Menu); reason != "" {
		return reason, nil
	}
	data, err := g.ReadSettled(g.At.Menu)
	return FindUnprinted(g.At, string(data)), err
}
