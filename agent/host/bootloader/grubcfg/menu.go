package grubcfg

import (
	"path"
	"strings"

	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// Block is a part of a menu that is open while its lines are read.
type Block struct {
	entry bool
	// item is the entry or submenu of the block. Nil for another block.
	item      *loader.Entry
	ID, Title string
	recovery  bool
	lines     int
}

type menuParser struct {
	menu    loader.Menu
	trial   loader.Trial
	section string
	// sections is the number of complete sections.
	sections int
	blocks   []Block
	number   int
}

// Parse returns the entries of a menu.
func Parse(data string) loader.Menu { return parse(data).menu }

// parse returns the entries of a menu and the parts on which a trial depends.
func parse(data string) menuParser {
	p := menuParser{}
	for line := range strings.Lines(data) {
		isInBlock := len(p.blocks) > 0
		p.parseLine(strings.TrimSpace(line))
		p.collectTrial(line, isInBlock || len(p.blocks) > 0)
	}
	p.menu.Whole = p.section == "" && p.sections > 0 && len(p.blocks) == 0
	return p
}

// collectTrial collects the agent's section and the text of the first entry, from its first line to its brace.
func (p *menuParser) collectTrial(raw string, isInBlock bool) {
	line := strings.TrimSpace(raw)
	switch {
	case strings.HasPrefix(line, "### BEGIN "), strings.HasPrefix(line, "### END "):
	case p.section == path.Base(Generator):
		p.trial.Section += raw
	default:
		if isInBlock && len(p.menu.Root.Children) == 1 && strings.HasPrefix(p.section, "10_linux") {
			p.trial.First += raw
		}
		if p.section != fallbackCounting {
			readCommand(&p.trial, p.number, line)
		}
	}
}

func (p *menuParser) parseLine(line string) {
	p.number++
	switch {
	case strings.HasPrefix(line, "### BEGIN "):
		p.section = path.Base(strings.Fields(line)[2])
	case strings.HasPrefix(line, "### END "):
		p.section = ""
		p.sections++
	case strings.HasPrefix(line, "#"):
	case strings.HasSuffix(line, "{"):
		p.openBlock(argument.Split(line))
	case line == "}" && len(p.blocks) > 0:
		p.blocks = p.blocks[:len(p.blocks)-1]
	case strings.HasPrefix(line, "linux"):
		p.addBootLine(argument.Split(line))
	}
}

func (p *menuParser) openBlock(words []string) {
	b := ParseBlock(words)
	if (b.entry || words[0] == "submenu") && p.section != path.Base(Generator) {
		parent := &p.menu.Root
		for _, outer := range p.blocks {
			if outer.item != nil {
				parent = outer.item
			}
		}
		b.item = &loader.Entry{ID: b.ID, Title: b.Title, Section: p.section, Recovery: b.recovery}
		parent.Children = append(parent.Children, b.item)
	}
	p.blocks = append(p.blocks, b)
}

// ParseBlock parses the first line of an entry or a submenu.
func ParseBlock(words []string) Block {
	b := Block{entry: words[0] == "menuentry"}
	if len(words) > 1 {
		b.Title, b.ID = words[1], words[1]
	}
	for i, word := range words[:len(words)-1] {
		if word == "$menuentry_id_option" || word == "--id" {
			b.ID = words[i+1]
		}
	}
	b.recovery = strings.Contains(b.ID, "-recovery-") || strings.HasSuffix(b.Title, "(recovery mode)")
	return b
}

func (p *menuParser) addBootLine(words []string) {
	if !IsLinuxCommand(words[0]) || len(words) < 2 || len(p.blocks) == 0 || !strings.HasPrefix(p.section, "10_linux") {
		return
	}
	b := &p.blocks[len(p.blocks)-1]
	if !b.entry || b.item == nil {
		return
	}
	p.menu.Lines = append(p.menu.Lines, loader.Line{
		ID: b.ID, Nth: b.lines, Title: b.Title, Recovery: b.recovery, Kernel: words[1], Args: argument.FromWords(words[2:]),
		Number: p.number,
	})
	b.item.Lines = append(b.item.Lines, p.menu.Lines[len(p.menu.Lines)-1])
	b.lines++
}

// ParseTrial returns the parts of a menu on which a trial depends.
func ParseTrial(data string) loader.Trial { return parse(data).trial }

func readCommand(t *loader.Trial, number int, text string) {
	if value, ok := strings.CutPrefix(text, "set default="); ok {
		t.Defaults, t.Lines = append(t.Defaults, strings.Trim(value, `"`)), append(t.Lines, number)
	}
	if strings.HasPrefix(text, "load_env") && !t.Seen {
		// A second form is in the branch "elif", for a GRUB without the first.
		t.Seen, t.Loads = true, text == "load_env" || text == "load_env -f ${config_directory}/grubenv"
	}
	t.Clears = t.Clears || text == "save_env "+NextEntry
	t.IDs = t.IDs || text == `menuentry_id_option="--id"`
}

// IsLinuxCommand reports whether a command loads a kernel.
func IsLinuxCommand(word string) bool {
	return word == "linux" || word == "linux16" || word == "linuxefi"
}
