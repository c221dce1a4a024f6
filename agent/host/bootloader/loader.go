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
	// form returns the format of the file that records the agent's arguments.
	form() form
	// bootDir returns the directory in which staging writes.
	bootDir() string
	// menuFile returns the name of the menu's file or files for messages.
	menuFile() string
	// readMenu reads the arguments of the next boots.
	readMenu(ctx context.Context) (menu, error)
	// readFacts reads all other facts that the evaluation of these settings needs.
	readFacts(ctx context.Context, f *facts, settings []host.Setting) error
	// prepareChange computes a change of the menu without applying it.
	prepareChange(ctx context.Context, f facts, wanted, stale []host.Argument) change
	// changeMenu makes the menu pass the desired arguments and no stale arguments, and verifies it. On error, the menu in place is unchanged.
	changeMenu(ctx context.Context, f facts, next change) error
	// undoChange reverts the writes outside the menu of a changeMenu that failed.
	undoChange(f facts) error
	// completeChange applies the steps that require the new menu in place.
	completeChange(next change) error
	// endTrial makes the menu's arguments the permanent default.
	endTrial(f facts) error
	// rearm prepares a pending trial for a permitted reboot.
	rearm() error
}

type change struct {
	desired, stale []host.Argument
	trial          nextTrial
}

func (s *Subject) loader() loader {
	found := Detect(s.fs)
	switch found.Type {
	case GrubDebian:
		return s.grubLoader(found, debianNames)
	case Grub2Mkconfig:
		return s.grubLoader(found, grub2Names)
	case GrubBLS:
		return s.grubLoader(found, blsNames)
	}
	return unsupportedLoader{Subject: s, found: found}
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
		return unsupportedLoader{Subject: s, found: unsupportedBy(reason)}
	default:
		found = Detection{Type: found.Type, Message: reason + "; " + onlyMaintained}
	}
	if loaded, err := s.fs.ReadValue(kexecLoaded); err == nil && loaded == "1" {
		found = Detection{Type: found.Type, Message: "a kernel is loaded for kexec (" + kexecLoaded + "), and a reboot may start it with its own arguments: " +
			"arguments are staged, and the node is not rebooted for them until kexec --unload"}
	}
	if names == blsNames {
		return grubBLS{s, found}
	}
	return grubDebian{s, found, names}
}

// Detect returns the means by which the host keeps its kernel command line. It considers the result of the last attempt to stage.
func (s *Subject) Detect() Detection { return s.loader().detection() }

// noTrial is the part of a loader without trial boots. A failed change of such a loader only needs to restore the menu.
type noTrial struct{}

func (noTrial) undoChange(facts) error      { return nil }
func (noTrial) completeChange(change) error { return nil }
func (noTrial) endTrial(facts) error        { return nil }
func (noTrial) rearm() error                { return nil }

// unsupportedLoader is a boot loader whose command line the agent does not change.
type unsupportedLoader struct {
	*Subject
	noTrial
	found Detection
}

func (u unsupportedLoader) detection() Detection { return u.found }
func (u unsupportedLoader) canStage() bool       { return false }

// form returns the format of the drop-in, to find an earlier one. This boot loader does not read it.
func (u unsupportedLoader) form() form                             { return grubForm }
func (u unsupportedLoader) bootDir() string                        { return "" }
func (u unsupportedLoader) menuFile() string                       { return "the boot menu" }
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

func (u unsupportedLoader) prepareChange(context.Context, facts, []host.Argument, []host.Argument) change {
	return change{}
}

func (u unsupportedLoader) changeMenu(context.Context, facts, change) error {
	return fmt.Errorf("change the boot menu: %s", u.found.Message)
}
