package bootloader

import (
	"context"
	"fmt"

	"github.com/storageclient/operator/agent/host"
)

// loader is a boot loader: all that differs between the ways in which hosts keep their kernel command lines. Nothing
// outside of its implementations asks for its type.
type loader interface {
	detection() Detection
	canStage() bool
	// form is how the file is written that says which arguments are ours.
	form() form
	// bootDir is the directory in which staging writes.
	bootDir() string
	// menuFile is how a message names the file or files of the menu.
	menuFile() string
	// readMenu reads what the next boots pass.
	readMenu(ctx context.Context) (menu, error)
	// readFacts reads all else that judging these settings needs of it.
	readFacts(ctx context.Context, f *facts, asked []host.Setting) error
	// prepareChange works out a change of the menu. It changes nothing.
	prepareChange(ctx context.Context, f facts, wanted, stale []host.Argument) change
	// changeMenu makes the menu pass the wanted arguments and none of the stale ones, and reads it back. The menu in
	// place is as before where it returns an error.
	changeMenu(ctx context.Context, f facts, next change) error
	// undoChange puts back what changeMenu has done beside the menu before it failed.
	undoChange(f facts) error
	// completeChange does what can be done only once the new menu is in place.
	completeChange(next change) error
	// endTrial makes what is in the menu the default for good.
	endTrial(f facts) error
}

// change is what is to be brought into the menu.
type change struct {
	wanted, stale []host.Argument
	trial         nextTrial
}

// loader is the host's boot loader, as it is found now.
func (s *Subject) loader() loader {
	found := Detect(s.fs)
	switch found.Type {
	case GrubDebian:
		return s.grubLoader(found, debianNames)
	case Grub2Mkconfig:
		return s.grubLoader(found, grub2Names)
	case GrubBLS:
		return grubBLS{Subject: s, found: found}
	}
	return unsupportedLoader{Subject: s, found: found}
}

// grubLoader returns the loader of a GRUB, or an unsupported one if a new menu would lose a line. After something was staged, the loader
// stays what it is, so that it can be removed again.
func (s *Subject) grubLoader(found Detection, names *grubNames) loader {
	if why := s.knownUnprinted(names); why != "" && !s.fs.Exists(DropIn) {
		return unsupportedLoader{Subject: s, found: unsupportedBy(why.Error())}
	}
	return grubDebian{s, found, names}
}

// Detect returns how the host keeps its kernel command line, with the result of the last attempt to stage.
func (s *Subject) Detect() Detection { return s.loader().detection() }

// noTrial is the part of a loader whose boots are not tried once, and whose menu is all that a change has to put back.
type noTrial struct{}

func (noTrial) undoChange(facts) error      { return nil }
func (noTrial) completeChange(change) error { return nil }
func (noTrial) endTrial(facts) error        { return nil }

// unsupportedLoader is one whose command line is not changed here.
type unsupportedLoader struct {
	*Subject
	noTrial
	found Detection
}

func (u unsupportedLoader) detection() Detection { return u.found }
func (u unsupportedLoader) canStage() bool       { return false }

// form finds a drop-in from before, which this boot loader does not read.
func (u unsupportedLoader) form() form                             { return grubForm }
func (u unsupportedLoader) bootDir() string                        { return "" }
func (u unsupportedLoader) menuFile() string                       { return "the boot menu" }
func (u unsupportedLoader) readMenu(context.Context) (menu, error) { return menu{}, nil }

// readFacts reads which arguments were ours in this boot, before a user changed the menu.
func (u unsupportedLoader) readFacts(_ context.Context, f *facts, _ []host.Setting) error {
	for name, args := range map[string]*[]host.Argument{factStagedSince: &f.stagedSince, factAtBoot: &f.atBoot} {
		if noted, ok := u.facts.BootFact(f.bootID, name); ok && !f.image {
			*args = host.ParseArguments(noted)
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
