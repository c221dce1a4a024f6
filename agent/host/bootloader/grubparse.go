package bootloader

import (
	"path"
	"strings"
)

type block struct {
	entry bool
	// item is the entry or submenu of the block. Nil for another block.
	item      *menuEntry
	id, title string
	recovery  bool
	lines     int
}

type menuParser struct {
	menu    menu
	trial   trial
	section string
	// sections is the number of complete sections.
	sections int
	blocks   []block
	number   int
}

func parseMenu(data string) menu { return readMenu(data).menu }

func readMenu(data string) menuParser {
	p := menuParser{}
	for line := range strings.Lines(data) {
		isInBlock := len(p.blocks) > 0
		p.parseLine(strings.TrimSpace(line))
		p.collectTrial(line, isInBlock || len(p.blocks) > 0)
	}
	p.menu.whole = p.section == "" && p.sections > 0 && len(p.blocks) == 0
	return p
}

// collectTrial collects the agent's section and the text of the first entry, from its first line to its brace.
func (p *menuParser) collectTrial(raw string, isInBlock bool) {
	line := strings.TrimSpace(raw)
	switch {
	case strings.HasPrefix(line, "### BEGIN "), strings.HasPrefix(line, "### END "):
	case p.section == path.Base(Generator):
		p.trial.section += raw
	default:
		if isInBlock && len(p.menu.root.children) == 1 && strings.HasPrefix(p.section, "10_linux") {
			p.trial.first += raw
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
		p.openBlock(splitWords(line))
	case line == "}" && len(p.blocks) > 0:
		p.blocks = p.blocks[:len(p.blocks)-1]
	case strings.HasPrefix(line, "linux"):
		p.addBootLine(splitWords(line))
	}
}

func (p *menuParser) openBlock(words []string) {
	b := parseBlock(words)
	if (b.entry || words[0] == "submenu") && p.section != path.Base(Generator) {
		parent := &p.menu.root
		for _, outer := range p.blocks {
			if outer.item != nil {
				parent = outer.item
			}
		}
		b.item = &menuEntry{id: b.id, title: b.title, section: p.section, recovery: b.recovery}
		parent.children = append(parent.children, b.item)
	}
	p.blocks = append(p.blocks, b)
}

func parseBlock(words []string) block {
	b := block{entry: words[0] == "menuentry"}
	if len(words) > 1 {
		b.title, b.id = words[1], words[1]
	}
	for i, word := range words[:len(words)-1] {
		if word == "$menuentry_id_option" || word == "--id" {
			b.id = words[i+1]
		}
	}
	b.recovery = strings.Contains(b.id, "-recovery-") || strings.HasSuffix(b.title, "(recovery mode)")
	return b
}

func (p *menuParser) addBootLine(words []string) {
	if !isLinuxCommand(words[0]) || len(words) < 2 || len(p.blocks) == 0 || !strings.HasPrefix(p.section, "10_linux") {
		return
	}
	b := &p.blocks[len(p.blocks)-1]
	if !b.entry || b.item == nil {
		return
	}
	p.menu.lines = append(p.menu.lines, bootLine{
		id: b.id, nth: b.lines, title: b.title, recovery: b.recovery, kernel: words[1], args: argumentsOf(words[2:]),
		number: p.number,
	})
	b.item.lines = append(b.item.lines, p.menu.lines[len(p.menu.lines)-1])
	b.lines++
}

// parseTrial returns the parts of a menu on which a trial depends.
func parseTrial(data string) trial { return readMenu(data).trial }

func readCommand(t *trial, number int, text string) {
	if value, ok := strings.CutPrefix(text, "set default="); ok {
		t.defaults, t.lines = append(t.defaults, strings.Trim(value, `"`)), append(t.lines, number)
	}
	if strings.HasPrefix(text, "load_env") && !t.seen {
		// A second form is in the branch "elif", for a GRUB without the first.
		t.seen, t.loads = true, text == "load_env" || text == "load_env -f ${config_directory}/grubenv"
	}
	t.clears = t.clears || text == "save_env "+nextEntry
	t.ids = t.ids || text == `menuentry_id_option="--id"`
}
