package loader

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
)

// DropIn is the agent's file. grub-mkconfig sources the files of its directory in the order of their names. A cloud image's 50-cloudimg-settings.cfg
// assigns the variable that DropIn appends to.
const DropIn = DropInDir + "/zz-storage-client.cfg"

// Files and marks of the record.
const (
	DropInDir   = "/etc/default/grub.d"
	DefaultFile = "/etc/default/grub"
	CommandLine = "/proc/cmdline"

	// replacesMark starts the comment of a drop-in whose menu is not in place yet. It lists the previous arguments of the drop-in, so that the reader
	// can complete or revert the change.
	replacesMark = "# The menu is not made yet. Before: "
	// retainedMark starts the comment with the arguments that the default entries keep until the arguments of the file have booted. failedMark starts
	// the comment with arguments that are desired, but have failed their trial and are in no entry.
	retainedMark = "# Until these have booted: "
	failedMark   = "# Failed their trial boot: "
	// trialMark is the comment of a record whose arguments reach the default entries only after a trial boot.
	trialMark = "# They have a trial boot.\n"
	AppendTo  = "GRUB_CMDLINE_LINUX_DEFAULT"
)

// Record is the content of the file that records the agent's arguments.
type Record struct {
	Present bool
	Args    []host.Argument
	// Unfinished is true while the menu is not known to be in place. replaces are the previous arguments, or the arguments that the default entries keep
	// during a trial.
	Unfinished bool
	Replaces   []host.Argument
	// Failed are desired arguments that have failed a trial. No entry has them.
	Failed []host.Argument
	// HasTrial is true if the arguments must not reach the default entries without a trial.
	HasTrial bool
}

// ManagedArguments returns all arguments that may have reached the menu through the drop-in.
func (d Record) ManagedArguments() []host.Argument {
	return append(slices.Clone(d.Args), argument.Without(d.Replaces, d.Args)...)
}

// LastArguments returns the arguments of the last complete change, which a trial in the menu tries.
func (d Record) LastArguments() []host.Argument {
	if d.Unfinished {
		return d.Replaces
	}
	return d.Args
}

// HoldsExactly reports whether the record has these arguments and no others.
func (d Record) HoldsExactly(args []host.Argument) bool {
	return len(d.Args) == len(args) && len(argument.Without(args, d.Args)) == 0
}

// Form is the format, on one kind of host, of the file that records the agent's arguments.
type Form struct {
	File  string
	Perm  fs.FileMode
	write func(args []host.Argument) string
	read  func(data string) []host.Argument
}

// DropInForm is the format of a drop-in of /etc/default/grub.d.
var DropInForm = Form{
	File: DropIn, Perm: 0o644,
	write: func(args []host.Argument) string {
		return AppendTo + `="$` + AppendTo + " " + argument.Join(args) + "\"\n"
	},
	read: argument.Assigned,
}

// Render returns the text of the file. Empty if there is nothing to record.
func (d Record) Render(format Form) string {
	if len(d.ManagedArguments())+len(d.Failed) == 0 && !d.Unfinished {
		return ""
	}
	var b strings.Builder
	b.WriteString(host.OwnHeader)
	if d.Unfinished {
		b.WriteString(replacesMark + argument.Join(d.Replaces) + "\n")
	} else if len(d.Replaces) > 0 {
		b.WriteString(retainedMark + argument.Join(d.Replaces) + "\n")
	}
	if len(d.Failed) > 0 {
		b.WriteString(failedMark + argument.Join(d.Failed) + "\n")
	}
	if d.HasTrial {
		b.WriteString(trialMark)
	}
	if len(d.Args) > 0 {
		b.WriteString(format.write(d.Args))
	}
	return b.String()
}

// ParseRecord parses a record.
func ParseRecord(data string, format Form) Record {
	d := Record{Present: true, Args: format.read(data), HasTrial: strings.Contains(data, trialMark)}
	for line := range strings.Lines(data) {
		if before, ok := strings.CutPrefix(line, replacesMark); ok {
			d.Unfinished, d.Replaces = true, host.ParseArguments(before)
		} else if retained, ok := strings.CutPrefix(line, retainedMark); ok {
			d.Replaces = host.ParseArguments(retained)
		} else if failed, ok := strings.CutPrefix(line, failedMark); ok {
			d.Failed = host.ParseArguments(failed)
		}
	}
	return d
}

// ReadRecord reads the record. It is not present if there is no file.
func (h *Host) ReadRecord(format Form) (Record, error) {
	data, err := h.FS.ReadFile(format.File)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	return ParseRecord(string(data), format), err
}

// RecordForm is the format for a host whose boot entries have no drop-ins. The file records the agent's arguments; no other program reads it.
var RecordForm = Form{
	File: "/var/lib/storage-client/journal/boot-arguments", Perm: 0o600,
	write: func(args []host.Argument) string { return argument.Join(args) + "\n" },
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
