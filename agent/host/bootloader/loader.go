package bootloader

import (
	"context"
	"fmt"
	"path"

	"github.com/storageclient/operator/agent/host"
)

// Kind is a kind of boot loader: one line of the table that New gets.
type Kind struct {
	// Detect returns the means by which the host keeps its kernel command line, and the place of the menu. The place is nil if the agent does not change
	// it. The type is empty if the host has another kind.
	Detect func(fs host.FS) (Detection, *grubNames)
	// Places returns all places that may have files of the agent.
	Places func(fs host.FS) []*grubNames
	// Open returns the boot loader at a place.
	Open func(b base) loader
	// Explain returns the reason why a host has files of this kind, but another kind or none. Empty if it has none.
	Explain func(fs host.FS) string
}

// loader is a boot loader at one place. It hides all differences between the ways in which hosts keep their kernel command lines: code outside of its
// implementations never checks its type. Each verb can be repeated after an error or a crash at any of its writes, and ends with its context.
type loader interface {
	detection() Detection
	canStage() bool
	// canRetain reports whether the default entries can keep a value while another value of that argument has a trial.
	canRetain() bool
	// form returns the format of the file that records the agent's arguments.
	form() form
	// menuFile returns the name of the menu's file or files for messages. Staging writes in their directory.
	menuFile() string
	// readBooted returns the menu with the entry that it boots by default, or the reason why arguments do not reach that entry. The entry is nil if
	// there is no menu.
	readBooted() (b bootedMenu, reason string)
	// readMenu reads the arguments of the next boots.
	readMenu(ctx context.Context) (menu, error)
	// readFacts reads all other facts that the evaluation of these settings needs.
	readFacts(ctx context.Context, f *facts, settings []host.Setting) error
	// prepareTrial returns the trial of the desired arguments without applying it.
	prepareTrial(ctx context.Context, f facts, wanted []host.Argument) nextTrial
	// changeMenu makes the menu pass the desired arguments and no stale arguments, and verifies it. On error, the menu in place is unchanged.
	changeMenu(ctx context.Context, f facts, next change) error
	// undoChange reverts the writes outside the menu of a changeMenu that failed.
	undoChange(f facts) error
	// completeChange applies the steps that require the new menu in place.
	completeChange(next change) error
	// endTrial makes the menu's arguments the permanent default.
	endTrial(f facts) error
	// rearm prepares a pending trial for a permitted reboot, or for any reboot after the permit was withdrawn.
	rearm(permitted bool) error
	// disarm makes the next boot use the default entry instead of a trial that the agent cannot prepare.
	disarm() error
	// removeTemp removes the remains of an interrupted change.
	removeTemp() error
}

// change is a change of the menu. The default entries have the retained arguments as long as the desired ones have a trial.
type change struct {
	desired, stale, retained []host.Argument
	trial                    nextTrial
}

// base is the part that all boot loaders share, with the verbs of a boot loader that the agent does not change.
type base struct {
	*Host
	found Detection
	at    *grubNames
}

func (b base) detection() Detection                   { return b.found }
func (b base) canStage() bool                         { return b.at != unsupportedNames }
func (b base) canRetain() bool                        { return true }
func (b base) form() form                             { return b.at.form }
func (b base) menuFile() string                       { return b.at.title }
func (b base) readMenu(context.Context) (menu, error) { return menu{}, nil }
func (b base) readBooted() (bootedMenu, string)       { return bootedMenu{}, "" }
func (b base) undoChange(facts) error                 { return nil }
func (b base) completeChange(change) error            { return nil }
func (b base) endTrial(facts) error                   { return nil }
func (b base) rearm(bool) error                       { return nil }
func (b base) disarm() error                          { return nil }
func (b base) removeTemp() error                      { return nil }

func (b base) prepareTrial(context.Context, facts, []host.Argument) nextTrial { return nextTrial{} }

// readFacts reads the arguments that the agent managed in this boot, before a user changed the menu.
func (b base) readFacts(_ context.Context, f *facts, _ []host.Setting) error {
	for name, args := range map[string]*[]host.Argument{factStagedSince: &f.stagedSince, factAtBoot: &f.atBoot} {
		if value, ok := b.facts.BootFact(f.bootID, name); ok && !f.image {
			*args = host.ParseArguments(value)
		}
	}
	return nil
}

func (b base) changeMenu(context.Context, facts, change) error {
	return fmt.Errorf("change the boot menu: %s", b.found.Message)
}

// unsupportedNames contain the format of the drop-in, to find an earlier one. This boot loader does not read it.
var unsupportedNames = &grubNames{form: grubForm, title: "the boot menu"}

// places returns the boot loaders at all places that may have files of the agent.
func (h *Host) places() (all []loader) {
	for _, kind := range h.kinds {
		for _, at := range kind.Places(h.fs) {
			all = append(all, kind.Open(base{Host: h, at: at}))
		}
	}
	return all
}

// removeTemp removes the remains of making another menu.
func (h *Host) removeTemp(format form) error {
	for _, place := range h.places() {
		if err := place.removeTemp(); err != nil {
			return err
		}
	}
	for name := range h.facts.KeptFiles() {
		if err := h.fs.RemoveTemp(name); err != nil {
			return err
		}
	}
	return h.fs.RemoveTemp(format.file)
}

// grubNames are a distribution's names for the menu and for the program that makes it. title is the name of the menu or of the
// entries in messages. remake is the command for users. once is the ID of the entry that is booted once. Empty if a trial has no such entry.
type grubNames struct {
	menu, title  string
	mkconfig     []string
	remake, once string
	form         form
	// entries is the directory of boot loader entries, and boot is the directory in which they name files. files are the other files that a change
	// of the entries may change. Empty without entries.
	entries, boot string
	files         []string
	// addon is the agent's file that appends arguments to the command lines of unified kernel images. The tool then changes no entry.
	addon string
}

// onceEntry returns the path of the entry that is booted once.
func (n *grubNames) onceEntry() string { return path.Join(n.entries, n.once+".conf") }
