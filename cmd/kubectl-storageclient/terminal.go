package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/tuning/text"
)

// findScreen returns the terminal behind a writer, and false for a file or a pipe.
func findScreen(w io.Writer, colours bool) (view.Screen, bool) {
	file, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return view.Screen{}, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return view.Screen{Width: width, Height: height, Colour: colours}, err == nil
}

type display interface {
	show(tree view.Tree, now time.Time) error
	// close leaves the last frame and an optional last message in the output, and restores the terminal.
	close(lastWord string) error
}

// lineDisplay appends a line for each change, for pipes and logs.
type lineDisplay struct {
	out  io.Writer
	last view.Tree
}

func (d *lineDisplay) show(tree view.Tree, now time.Time) error {
	lines := tree.Since(d.last, now)
	d.last = tree
	return writeLines(d.out, lines...)
}

func (d *lineDisplay) close(lastWord string) error {
	if lastWord == "" {
		return nil
	}
	return writeLines(d.out, lastWord)
}

// Terminal control sequences: enter the alternate screen without a cursor; leave it.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	// home moves to the first line. clearLine clears the rest of a line, and clearRest the rest of the screen.
	home, clearLine, clearRest = "\x1b[H", "\x1b[K", "\x1b[J"
)

// screenDisplay redraws one frame on the alternate screen, so that the previous terminal content is visible again afterwards.
type screenDisplay struct {
	out  io.Writer
	size func() (view.Screen, bool)
	// tree is the last drawn tree. at is the time of drawing. entered is true while the terminal shows the alternate screen.
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
		// Clear the line before the text. After the last column, the cursor is still on that column and would clear it.
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
		lines = append(lines, "", text.Escape(lastWord, ""))
	}
	return writeTree(d.out, lines)
}

// writeTree writes lines of a tree, which contain colors.
func writeTree(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// writeLines writes lines and shows all invisible characters in them as escapes.
func writeLines(out io.Writer, lines ...string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, text.Escape(line, "")); err != nil {
			return err
		}
	}
	return nil
}
