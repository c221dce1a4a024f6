package bootloader

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// DropIn is the agent's file. grub-mkconfig sources the files of its directory in the order of their names. A cloud image's 50-cloudimg-settings.cfg
// assigns the variable that DropIn appends to.
const DropIn = dropInDir + "/zz-storage-client.cfg"

const (
	dropInDir   = "/etc/default/grub.d"
	defaultFile = "/etc/default/grub"
	commandLine = "/proc/cmdline"

	// replacesMark starts the comment of a drop-in whose menu is not in place yet. It lists the previous arguments of the drop-in, so that the reader
	// can complete or revert the change.
	replacesMark = "# The menu is not made yet. Before: "
	// retainedMark starts the comment with the arguments that the default entries keep until the arguments of the file have booted. failedMark starts
	// the comment with arguments that are desired, but have failed their trial and are in no entry.
	retainedMark = "# Until these have booted: "
	failedMark   = "# Failed their trial boot: "
	// trialMark is the comment of a record whose arguments reach the default entries only after a trial boot.
	trialMark = "# They have a trial boot.\n"
	appendTo  = "GRUB_CMDLINE_LINUX_DEFAULT"
)

type dropIn struct {
	present bool
	args    []host.Argument
	// unfinished is true while the menu is not known to be in place. replaces are the previous arguments, or the arguments that the default entries keep
	// during a trial.
	unfinished bool
	replaces   []host.Argument
	// failed are desired arguments that have failed a trial. No entry has them.
	failed []host.Argument
	// hasTrial is true if the arguments must not reach the default entries without a trial.
	hasTrial bool
}

// managedArguments returns all arguments that may have reached the menu through the drop-in.
func (d dropIn) managedArguments() []host.Argument {
	return append(slices.Clone(d.args), argumentsWithout(d.replaces, d.args)...)
}

// lastArguments returns the arguments of the last complete change, which a trial in the menu tries.
func (d dropIn) lastArguments() []host.Argument {
	if d.unfinished {
		return d.replaces
	}
	return d.args
}

func (d dropIn) holdsExactly(args []host.Argument) bool {
	return len(d.args) == len(args) && len(argumentsWithout(args, d.args)) == 0
}

// form is the format, on one kind of host, of the file that records the agent's arguments.
type form struct {
	file  string
	perm  fs.FileMode
	write func(args []host.Argument) string
	read  func(data string) []host.Argument
}

var grubForm = form{
	file: DropIn, perm: 0o644,
	write: func(args []host.Argument) string {
		return appendTo + `="$` + appendTo + " " + joinArguments(args) + "\"\n"
	},
	read: assignedArguments,
}

// renderFile returns the text of the file. Empty if there is nothing to record.
func (d dropIn) renderFile(format form) string {
	if len(d.managedArguments())+len(d.failed) == 0 && !d.unfinished {
		return ""
	}
	var b strings.Builder
	b.WriteString(host.OwnHeader)
	if d.unfinished {
		b.WriteString(replacesMark + joinArguments(d.replaces) + "\n")
	} else if len(d.replaces) > 0 {
		b.WriteString(retainedMark + joinArguments(d.replaces) + "\n")
	}
	if len(d.failed) > 0 {
		b.WriteString(failedMark + joinArguments(d.failed) + "\n")
	}
	if d.hasTrial {
		b.WriteString(trialMark)
	}
	if len(d.args) > 0 {
		b.WriteString(format.write(d.args))
	}
	return b.String()
}

func parseDropIn(data string, format form) dropIn {
	d := dropIn{present: true, args: format.read(data), hasTrial: strings.Contains(data, trialMark)}
	for line := range strings.Lines(data) {
		if before, ok := strings.CutPrefix(line, replacesMark); ok {
			d.unfinished, d.replaces = true, host.ParseArguments(before)
		} else if retained, ok := strings.CutPrefix(line, retainedMark); ok {
			d.replaces = host.ParseArguments(retained)
		} else if failed, ok := strings.CutPrefix(line, failedMark); ok {
			d.failed = host.ParseArguments(failed)
		}
	}
	return d
}

func (h *Host) readDropIn(format form) (dropIn, error) {
	data, err := h.fs.ReadFile(format.file)
	if errors.Is(err, fs.ErrNotExist) {
		return dropIn{}, nil
	}
	return parseDropIn(string(data), format), err
}

func (s *Subject) writeDropIn(d dropIn, format form) error {
	return s.fs.KeepFileMode(format.file, d.renderFile(format), format.perm)
}

// blsForm is the format for a host whose boot entries have no drop-ins. The file records the agent's arguments; no other program reads it.
var blsForm = form{
	file: "/var/lib/storage-client/journal/boot-arguments", perm: 0o600,
	write: func(args []host.Argument) string { return joinArguments(args) + "\n" },
	read: func(data string) []host.Argument {
		var args []host.Argument
		for line := range strings.Lines(data) {
			if !strings.HasPrefix(line, "#") {
				args = append(args, host.ParseArguments(line)...)
			}
		}
		return args
	},
}
