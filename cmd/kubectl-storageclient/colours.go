package main

import (
	"bytes"
	"io"
	"os"
	"regexp"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/terminal"
	volumejudge "github.com/storageclient/operator/controllers/volume/judge"
)

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
