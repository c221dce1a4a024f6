// Package loader is the contract between the life of an argument and the boot loaders: their verbs, and the facts, menus and records that all share.
package loader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/text"
)

// Kind is a kind of boot loader: one line of the table that New gets.
type Kind struct {
	// Detect returns the means by which the host keeps its kernel command line, and the place of the menu. The place is nil if the agent does not change
	// it. The type is empty if the host has another kind.
	Detect func(fs host.FS) (Detection, *Place)
	// Places returns all places that may have files of the agent.
	Places func(fs host.FS) []*Place
	// Open returns the boot loader at a place.
	Open func(b Base) Loader
	// Explain returns the reason why a host has files of this kind, but another kind or none. Empty if it has none.
	Explain func(fs host.FS) string
}

// Loader is a boot loader at one place. It hides all differences between the ways in which hosts keep their kernel command lines: code outside of its
// implementations never checks its type. Each verb can be repeated after an error or a crash at any of its writes, and ends with its context.
type Loader interface {
	Detection() Detection
	CanStage() bool
	// CanRetain reports whether the default entries can keep a value while another value of that argument has a trial.
	CanRetain() bool
	// Form returns the format of the file that records the agent's arguments.
	Form() Form
	// MenuFile returns the name of the menu's file or files for messages. Staging writes in their directory.
	MenuFile() string
	// ReadBooted returns the menu with the entry that it boots by default, or the reason why arguments do not reach that entry. The entry is nil if
	// there is no menu.
	ReadBooted() (b Booted, reason string)
	// ReadMenu reads the arguments of the next boots.
	ReadMenu(ctx context.Context) (Menu, error)
	// ReadFacts reads all other facts that the evaluation of these settings needs.
	ReadFacts(ctx context.Context, f *Facts, settings []host.Setting) error
	// PrepareTrial returns the trial of the desired arguments without applying it.
	PrepareTrial(ctx context.Context, f Facts, wanted []host.Argument) NextTrial
	// ChangeMenu makes the menu pass the desired arguments and no stale arguments, and verifies it. On error, the menu in place is unchanged.
	ChangeMenu(ctx context.Context, f Facts, next Change) error
	// UndoChange reverts the writes outside the menu of a ChangeMenu that failed.
	UndoChange(f Facts) error
	// CompleteChange applies the steps that require the new menu in place.
	CompleteChange(next Change) error
	// EndTrial makes the menu's arguments the permanent default.
	EndTrial(f Facts) error
	// Rearm prepares a pending trial for a permitted reboot, or for any reboot after the permit was withdrawn.
	Rearm(permitted bool) error
	// Disarm makes the next boot use the default entry instead of a trial that the agent cannot prepare.
	Disarm() error
	// RemoveTemp removes the remains of an interrupted change.
	RemoveTemp() error
}

// Change is a change of the menu. The default entries have the retained arguments as long as the desired ones have a trial.
type Change struct {
	Desired, Stale, Retained []host.Argument
	Trial                    NextTrial
}

// Base is the part that all boot loaders share, with the verbs of a boot loader that the agent does not change.
type Base struct {
	*Host
	Found Detection
	At    *Place
}

// Detection implements Loader.
func (b Base) Detection() Detection { return b.Found }

// CanStage implements Loader.
func (b Base) CanStage() bool { return b.At != Nowhere }

// CanRetain implements Loader.
func (b Base) CanRetain() bool { return true }

// Form implements Loader.
func (b Base) Form() Form { return b.At.Form }

// MenuFile implements Loader.
func (b Base) MenuFile() string { return b.At.Title }

// ReadMenu implements Loader.
func (b Base) ReadMenu(context.Context) (Menu, error) { return Menu{}, nil }

// ReadBooted implements Loader.
func (b Base) ReadBooted() (Booted, string) { return Booted{}, "" }

// UndoChange implements Loader.
func (b Base) UndoChange(Facts) error { return nil }

// CompleteChange implements Loader.
func (b Base) CompleteChange(Change) error { return nil }

// EndTrial implements Loader.
func (b Base) EndTrial(Facts) error { return nil }

// Rearm implements Loader.
func (b Base) Rearm(bool) error { return nil }

// Disarm implements Loader.
func (b Base) Disarm() error { return nil }

// RemoveTemp implements Loader.
func (b Base) RemoveTemp() error { return nil }

// PrepareTrial implements Loader.
func (b Base) PrepareTrial(context.Context, Facts, []host.Argument) NextTrial { return NextTrial{} }

// ReadFacts reads the arguments that the agent managed in this boot, before a user changed the menu.
func (b Base) ReadFacts(_ context.Context, f *Facts, _ []host.Setting) error {
	for name, args := range map[string]*[]host.Argument{FactStagedSince: &f.StagedSince, factAtBoot: &f.AtBoot} {
		if value, ok := b.Facts.BootFact(f.BootID, name); ok && !f.Image {
			*args = host.ParseArguments(value)
		}
	}
	return nil
}

// ChangeMenu implements Loader.
func (b Base) ChangeMenu(context.Context, Facts, Change) error {
	return fmt.Errorf("change the boot menu: %s", b.Found.Message)
}

// Nowhere contain the format of the drop-in, to find an earlier one. This boot loader does not read it.
var Nowhere = &Place{Form: DropInForm, Title: "the boot menu"}

// Place are a distribution's names for the menu and for the program that makes it. title is the name of the menu or of the
// entries in messages. remake is the command for users. once is the ID of the entry that is booted once. Empty if a trial has no such entry.
type Place struct {
	Menu, Title  string
	Mkconfig     []string
	Remake, Once string
	Form         Form
	// Entries is the directory of boot loader entries, and boot is the directory in which they name files. files are the other files that a change
	// of the entries may change. Empty without entries.
	Entries, Boot string
	Files         []string
	// Addon is the agent's file that appends arguments to the command lines of unified kernel images. The tool then changes no entry.
	Addon string
}

// OnceEntry returns the path of the entry that is booted once.
func (n *Place) OnceEntry() string { return path.Join(n.Entries, n.Once+".conf") }

// Names of facts about a boot: the agent's arguments in the menu when the boot started, and the arguments that it has staged since.
const (
	factAtBoot      = "menu-arguments"
	FactStagedSince = "staged-arguments"
)

// BootIDFile contains the ID of the boot.
const BootIDFile = "/proc/sys/kernel/random/boot_id"

// BootFacts stores facts about one boot until the next, and the contents of files before a program of the host changed them. The agent's journal
// implements it.
type BootFacts interface {
	BootFact(bootID, name string) (value string, ok bool)
	SetBootFact(bootID, name, value string) error
	KeptFiles() map[string]host.FileRecord
	KeepFiles(files map[string]host.FileRecord) error
}

// Host is the machine, as the boot loaders see it, with the state that is lost when the agent restarts.
type Host struct {
	FS     host.FS
	Runner host.Runner
	Facts  BootFacts
	// Space returns the free space of a directory's file system.
	Space func(dir string) (host.Space, error)
	// ReadFile reads a menu. Pause waits while another program is writing it.
	ReadFile  func(name string) ([]byte, error)
	Pause     func(time.Duration)
	BootClock host.BootClock
	// Delay is the reason why the last Apply waits until DelayEnd (since the boot). Empty if it does not wait.
	Delay    string
	DelayEnd time.Duration
	// Attended is true if an agent runs after the boot.
	Attended bool
	// ChangedByOthers are files that another program or user has changed since the agent saved them. They were not restored byte by byte.
	ChangedByOthers []string
	// Writable is the reason why GRUB cannot write to its environment block. Empty if it can; nil if unknown.
	Writable *string
	// Finding is the line that the last new menu would have lost. Empty if none.
	Finding MenuFinding
	// Kinds are all kinds of boot loaders.
	Kinds []Kind
}

// ReadCommandLine returns the arguments of the running kernel.
func (h *Host) ReadCommandLine() ([]host.Argument, error) {
	data, err := h.FS.ReadFile(CommandLine)
	return host.ParseArguments(string(data)), err
}

// UnprintedError names a line of a menu that the menu's generator does not print. A new menu would lose it.
type UnprintedError string

func (e UnprintedError) Error() string { return string(e) }

// MenuVersion distinguishes versions of a menu.
type MenuVersion struct {
	modified time.Time
	size     int64
}

// MenuFinding is a line of one version of the present menu that a new menu would lose. It saves a run of grub-mkconfig at every check.
type MenuFinding struct {
	Version MenuVersion
	Reason  UnprintedError
}

// MenuVersion returns the version of a menu in place.
func (h *Host) MenuVersion(name string) MenuVersion {
	info, err := h.FS.Lstat(name)
	if err != nil {
		return MenuVersion{}
	}
	return MenuVersion{modified: info.ModTime(), size: info.Size()}
}

// KnownUnprinted returns the finding about the present version of the menu. Empty if there is none.
func (h *Host) KnownUnprinted(menu string) UnprintedError {
	if h.Finding.Reason == "" || h.Finding.Version != h.MenuVersion(menu) {
		return ""
	}
	return h.Finding.Reason
}

// Digest identifies the content of a file in the journal.
func Digest(file host.SavedFile) string {
	sum := sha256.Sum256(file.Data)
	return hex.EncodeToString(sum[:])
}

// Places returns the boot loaders at all places that may have files of the agent.
func (h *Host) Places() (all []Loader) {
	for _, kind := range h.Kinds {
		for _, at := range kind.Places(h.FS) {
			all = append(all, kind.Open(Base{Host: h, At: at}))
		}
	}
	return all
}

// RemoveTemp removes the remains of making another menu.
func (h *Host) RemoveTemp(format Form) error {
	for _, place := range h.Places() {
		if err := place.RemoveTemp(); err != nil {
			return err
		}
	}
	for name := range h.Facts.KeptFiles() {
		if err := h.FS.RemoveTemp(name); err != nil {
			return err
		}
	}
	return h.FS.RemoveTemp(format.File)
}

// Types of boot loaders, named as in the API.
const (
	// GrubDebian is GRUB with /etc/default/grub.d, as on Debian and Ubuntu.
	GrubDebian = "GrubDebian"
	// GrubBLS is GRUB with boot loader specification entries, changed by grubby.
	GrubBLS = "GrubBLS"
	// Grub2Mkconfig is GRUB with grub2-mkconfig and /etc/default/grub.d, as on Azure Linux.
	Grub2Mkconfig = "Grub2Mkconfig"
	// SystemdBoot is systemd-boot with entries that kernel-install writes.
	SystemdBoot = "SystemdBoot"
	// UKI is systemd-boot with unified kernel images, which the agent's addon reaches.
	UKI = "UKI"
	// RPMOSTree is rpm-ostree, which manages the command line itself.
	RPMOSTree = "RPMOSTree"
	// Unsupported is any other boot loader.
	Unsupported = "Unsupported"
)

// Detection describes the means by which a host keeps its kernel command line.
type Detection struct {
	// Type is one of the types above.
	Type string
	// Proven is false if this project's tests have never rebooted the type, or the agent does not change it.
	Proven bool
	// Message describes the detected boot loader. If arguments are not staged, or staged without a reboot, it also names the alternative. Empty for a
	// proven type.
	Message string
}

// MayReboot reports whether a node may be rebooted for staged arguments. Otherwise they take effect when it reboots for another reason.
func (d Detection) MayReboot() bool { return d.Proven }

// UnsupportedBy returns the detection of a boot loader that the agent does not change.
func UnsupportedBy(message string) Detection { return Detection{Type: Unsupported, Message: message} }

// OSRelease returns a value of os-release.
func OSRelease(fs host.FS, name string) string {
	data, err := fs.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	return ReleaseValue(string(data), name)
}

// ReleaseValue returns a value of a text in the format of os-release.
func ReleaseValue(release, name string) string {
	for line := range strings.Lines(release) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return ""
}

// TemporaryError is the reason why arguments cannot be staged now, e.g. because a package manager is installing a kernel.
type TemporaryError string

func (e TemporaryError) Error() string { return string(e) }

// MaxMessage limits a message that contains command output, in bytes.
const MaxMessage = 512

// OneLine returns a text in one line, cut to MaxMessage.
func OneLine(output string) string {
	return text.CutBytes(strings.Join(strings.Fields(output), " "), MaxMessage)
}
