package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/terminal"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	volumejudge "github.com/storageclient/operator/controllers/volume/judge"
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

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

var colourOf = map[string]string{
	string(v1alpha1.SettingInSync): green, string(v1alpha1.MountEffective): green, string(v1alpha1.RolloutUpToDate): green,
	string(v1alpha1.SettingPending): yellow, string(v1alpha1.SettingClamped): yellow, string(v1alpha1.SettingUnsupported): yellow,
	string(v1alpha1.MountStale): yellow, string(v1alpha1.RolloutWaiting): yellow, string(volumejudge.StateHeld): yellow, "Exception": yellow, string(v1alpha1.SeverityWarning): yellow,
	string(v1alpha1.SettingFailed): red, string(v1alpha1.SettingDrifted): red, string(v1alpha1.SettingShadowed): red,
	string(v1alpha1.RolloutClaimed): yellow, string(v1alpha1.RolloutDraining): yellow, string(v1alpha1.RolloutRebooting): yellow,
	string(v1alpha1.RolloutSettling): yellow, string(v1alpha1.RolloutReleasing): yellow,
	v1alpha1.ReasonRebootPending: yellow, v1alpha1.ReasonRollingOut: yellow, v1alpha1.ReasonReadyWithExceptions: yellow,
	v1alpha1.ReasonInvalid: red, v1alpha1.ReasonFailureThreshold: red, v1alpha1.ReasonNodesFailed: red, v1alpha1.ReasonFenceMissing: red,
	string(volumejudge.StateBlocked): red, string(v1alpha1.SeverityError): red,
}

// text returns the writer for tables. It adds colors if the output is a terminal. Everything written to it must end with a newline.
func (env *environment) text() io.Writer {
	if !env.colours {
		return env.Out
	}
	return &terminal.Writer{Out: &painter{out: env.raw}}
}

// coloursEnabled reports whether the output is a terminal that supports colors and the user has not disabled them (no-color.org).
func coloursEnabled(out io.Writer, getenv func(string) string) bool {
	file, ok := out.(*os.File)
	if !ok || getenv("NO_COLOR") != "" || getenv("TERM") == "" || getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// painter colors table cells. Columns must already be aligned.
type painter struct {
	out io.Writer
	// rest is an incomplete line.
	rest []byte
}

// Write implements io.Writer.
func (p *painter) Write(data []byte) (int, error) {
	p.rest = append(p.rest, data...)
	end := bytes.LastIndexByte(p.rest, '\n') + 1
	_, err := io.WriteString(p.out, paint(string(p.rest[:end])))
	p.rest = p.rest[end:]
	return len(data), err
}

// cell matches a complete cell: two blanks or the line end are on both sides.
var cell = regexp.MustCompile(`[^ \n]+( [^ \n]+)*`)

// paint colors words that are complete cells. It does not color words in sentences.
func paint(lines string) string {
	return cell.ReplaceAllStringFunc(lines, func(word string) string {
		if colourOf[word] == "" {
			return word
		}
		return colourOf[word] + word + plain
	})
}
