package bootloader

import (
	"context"
	"fmt"

	"github.com/storageclient/operator/agent/host"
)

// loader is a boot loader. It hides all differences between the ways in which hosts keep their kernel command lines: code outside of its
// implementations never checks its type.
type loader interface {
	detection() Detection
	canStage() bool
	// canRetain reports whether the default entries can keep a value while another value of that argument has a trial.
	canRetain() bool
	// form returns the format of the file that records the agent's arguments.
	form() form
	// menuFile returns the name of the menu's file or files for messages. Staging writes in their directory.
	menuFile() string
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
}

// change is a change of the menu. The default entries have the retained arguments as long as the desired ones have a trial.
type change struct {
	desired, stale, retained []host.Argument
	trial                    nextTrial
}

// base is the part that all boot loaders share.
type base struct {
	*Subject
	found Detection
	at    *grubNames
}

func (b base) detection() Detection { return b.found }
func (b base) canStage() bool       { return b.at != unsupportedNames }
func (b base) canRetain() bool      { return b.at.addon == "" }
func (b base) form() form           { return b.at.form }
func (b base) menuFile() string     { return b.at.title }
func (b base) disarm() error        { return nil }

func (b base) completeChange(change) error { return nil }

func (s *Subject) loader() loader {
	found := Detect(s.fs)
	switch found.Type {
	case GrubDebian:
		return s.grubLoader(found, debianNames)
	case Grub2Mkconfig:
		return s.grubLoader(found, grub2Names)
	case GrubBLS:
		return s.grubLoader(found, blsNames)
	case SystemdBoot:
		if places := systemdPlaces(s.fs); len(places) > 0 {
			return s.grubLoader(found, places[0])
		}
		found = unsupportedBy(noSystemdEntries)
	case UKI:
		if places := imagePlaces(s.fs); len(places) > 0 {
			return s.grubLoader(found, places[0])
		}
		found = unsupportedBy(noImages)
	}
	return unsupportedLoader{base{s, found, unsupportedNames}}
}

// kexecLoaded contains 1 if a kernel is loaded that a reboot may start without the boot loader. A kernel for crashes does not count.
const kexecLoaded = "/sys/kernel/kexec_loaded"

// grubLoader returns the loader of a GRUB, or an unsupported loader if a new menu would lose a line, or if the machine may boot another menu. After
// staging, it always returns the loader of GRUB, so that the arguments can be removed again.
func (s *Subject) grubLoader(found Detection, names *grubNames) loader {
	staged, reason := s.fs.Exists(names.form.file), s.unexplained(names)
	if lost := s.knownUnprinted(names); lost != "" && !staged {
		reason = lost.Error()
	}
	switch {
	case reason == "":
	case !staged:
		return unsupportedLoader{base{s, unsupportedBy(reason), unsupportedNames}}
	default:
		found = Detection{Type: found.Type, Message: reason + "; " + onlyMaintained}
	}
	if loaded, err := s.fs.ReadValue(kexecLoaded); err == nil && loaded == "1" {
		found = Detection{Type: found.Type, Message: "a kernel is loaded for kexec (" + kexecLoaded + "), and a reboot may start it with its own arguments: " +
			"arguments are staged, and the node is not rebooted for them until kexec --unload"}
	}
	if names.tool != nil {
		return entryLoader{base{s, found, names}}
	}
	return grubDebian{base{s, found, names}}
}

// Detect returns the means by which the host keeps its kernel command line. It considers the result of the last attempt to stage.
func (s *Subject) Detect() Detection { return s.loader().detection() }

// unsupportedLoader is a boot loader whose command line the agent does not change.
type unsupportedLoader struct{ base }

// unsupportedNames contain the format of the drop-in, to find an earlier one. This boot loader does not read it.
var unsupportedNames = &grubNames{form: grubForm, title: "the boot menu"}

func (u unsupportedLoader) undoChange(facts) error                 { return nil }
func (u unsupportedLoader) endTrial(facts) error                   { return nil }
func (u unsupportedLoader) rearm(bool) error                       { return nil }
func (u unsupportedLoader) readMenu(context.Context) (menu, error) { return menu{}, nil }

// readFacts reads the arguments that the agent managed in this boot, before a user changed the menu.
func (u unsupportedLoader) readFacts(_ context.Context, f *facts, _ []host.Setting) error {
	for name, args := range map[string]*[]host.Argument{factStagedSince: &f.stagedSince, factAtBoot: &f.atBoot} {
		if value, ok := u.facts.BootFact(f.bootID, name); ok && !f.image {
			*args = host.ParseArguments(value)
		}
	}
	return nil
}

func (u unsupportedLoader) prepareTrial(context.Context, facts, []host.Argument) nextTrial {
	return nextTrial{}
}

func (u unsupportedLoader) changeMenu(context.Context, facts, change) error {
	return fmt.Errorf("change the boot menu: %s", u.found.Message)
}
