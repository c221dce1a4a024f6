package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

// findScreen is the screen that a writer is, and false where it is none: a file, or a pipe.
func findScreen(w io.Writer, colours bool) (view.Screen, bool) {
	file, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return view.Screen{}, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return view.Screen{Width: width, Height: height, Colour: colours}, err == nil
}

// display shows a tree again and again.
type display interface {
	show(tree view.Tree, now time.Time) error
	// close leaves what was shown last, a last word if there is one, and the terminal as it was.
	close(lastWord string) error
}

// lineDisplay appends a line for each change: for pipes and logs.
type lineDisplay struct {
	out  io.Writer
	last view.Tree
}

func (d *lineDisplay) show(tree view.Tree, now time.Time) error {
	lines := tree.Since(d.last, now)
	d.last = tree
	return writeLines(d.out, lines)
}

func (d *lineDisplay) close(lastWord string) error {
	if lastWord == "" {
		return nil
	}
	return writeLines(d.out, []string{lastWord})
}

// What terminals understand: the other screen, without a cursor; and back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	// home goes to the first line, clearLine clears what is left of a line, clearRest what is left of the screen.
	home, clearLine, clearRest = "\x1b[H", "\x1b[K", "\x1b[J"
)

// screenDisplay draws over what it drew before, on a screen of its own, so that what was on the terminal is there afterwards.
type screenDisplay struct {
	out  io.Writer
	size func() (view.Screen, bool)
	// tree is what was shown last, at a time; entered is whether the terminal shows our screen.
	tree    view.Tree
	at      time.Time
	entered bool
}

func (d *screenDisplay) show(tree view.Tree, now time.Time) error {
	screen, _ := d.size()
	var frame strings.Builder
	if !d.entered {
		d.entered = true
		frame.WriteString(enterScreen)
	}
	frame.WriteString(home)
	lines := tree.Draw(screen, now)
	if screen.Height > 0 {
		lines = lines[:min(len(lines), screen.Height-1)]
	}
	for _, line := range lines {
		// Cleared before it is written: after its last column the cursor stands on it.
		frame.WriteString(clearLine + line + "\r\n")
	}
	frame.WriteString(clearRest)
	d.tree, d.at = tree, now
	_, err := io.WriteString(d.out, frame.String())
	return err
}

func (d *screenDisplay) close(lastWord string) error {
	if !d.entered {
		return nil
	}
	if _, err := io.WriteString(d.out, leaveScreen); err != nil {
		return err
	}
	screen, _ := d.size()
	screen.Height = 0
	lines := d.tree.Draw(screen, d.at)
	if lastWord != "" {
		lines = append(lines, "", lastWord)
	}
	return writeLines(d.out, lines)
}

func writeLines(out io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}
