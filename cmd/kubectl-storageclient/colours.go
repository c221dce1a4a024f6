package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode"

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

// colourOf maps the text of a state cell to its color.
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

// painter colors table cells, line by line. Columns must already be aligned.
type painter struct {
	out  io.Writer
	line bytes.Buffer
}

// Write implements io.Writer.
func (p *painter) Write(data []byte) (int, error) {
	for _, b := range data {
		p.line.WriteByte(b)
		if b != '\n' {
			continue
		}
		line := paint(p.line.String())
		p.line.Reset()
		if _, err := io.WriteString(p.out, line); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// paint colors words that are complete cells: two blanks or the line end are on both sides. It does not color words in sentences.
func paint(line string) string {
	var out strings.Builder
	for rest := line; rest != ""; {
		word := strings.IndexFunc(rest, unicode.IsLetter)
		if word < 0 {
			out.WriteString(rest)
			break
		}
		end := word + strings.IndexFunc(rest[word:]+" ", func(r rune) bool { return !unicode.IsLetter(r) })
		before, after := len(line)-len(rest)+word, line[len(line)-len(rest)+end:]
		colour := colourOf[rest[word:end]]
		out.WriteString(rest[:word])
		if colour != "" && (before == 0 || strings.HasSuffix(line[:before], "  ")) && (strings.TrimSpace(after) == "" || strings.HasPrefix(after, "  ")) {
			out.WriteString(colour + rest[word:end] + plain)
		} else {
			out.WriteString(rest[word:end])
		}
		rest = rest[end:]
	}
	return out.String()
}
