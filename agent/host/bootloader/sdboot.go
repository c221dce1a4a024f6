package bootloader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/lists"
)

// systemdBoot is the tool of systemd-boot, whose entries kernel-install writes. The agent edits only the options of these entries: kernel-install
// would also write the kernels and initrds in place, and a crash would leave a default entry without them.
type systemdBoot struct{ efiTool }

// systemdNames are the names for each directory in which the entries can be.
var systemdNames = lists.Each(bootDirs, func(boot string) *grubNames {
	at := efiNames(boot)
	at.title, at.files = boot+"/loader/entries/*.conf", []string{kernelCmdline}
	return &at
})

const noSystemdEntries = "booted by systemd-boot, but /efi, /boot and /boot/efi have no loader/entries/*.conf: mount the EFI partition at /efi, " +
	"or use the tool that makes its entries"

// Kind is the kind of systemd-boot with entries. A unified kernel image is another kind.
var SystemdKind = Kind{
	Detect: func(fs host.FS) (Detection, *grubNames) {
		info, err := efiVariable(fs, "LoaderInfo")
		places := systemdPlaces(fs)
		switch {
		case err != nil || !strings.Contains(info, "systemd-boot") || isImage(fs):
			return Detection{}, nil
		case len(places) == 0:
			return unsupportedBy(noSystemdEntries), nil
		}
		return Detection{Type: SystemdBoot, Proven: true}, places[0]
	},
	Places: systemdPlaces,
	Open:   func(b base) loader { return entryLoader{base: b, tool: systemdBoot{}} },
}

// readLater implements entryTool.
func (systemdBoot) readLater(b entryLoader, f *facts) error { return b.readLater(f) }

// systemdPlaces returns the names of all directories that have entries.
func systemdPlaces(fs host.FS) []*grubNames {
	return slices.DeleteFunc(slices.Clone(systemdNames), func(names *grubNames) bool {
		entries, err := fs.Glob(names.entries, "*.conf")
		return err != nil || len(entries) == 0
	})
}

// token returns the directory of the entry's kernel if kernel-install wrote the entry: "/token/version/linux" in the file "token-version.conf".
func token(entry *menuEntry) string {
	if len(entry.lines) == 0 {
		return ""
	}
	token, version := kernelToken(entry.lines[0].kernel)
	if entry.id != token+"-"+version {
		return ""
	}
	return token
}

// bootedToken returns the token of the entry that loaded the running kernel. Other systems on the machine have other tokens. Empty if it is unknown.
func bootedToken(b entryLoader, entries []*menuEntry) string {
	selected, err := efiVariable(b.fs, "LoaderEntrySelected")
	if err != nil || selected == "" {
		return ""
	}
	if selected == onceID+".conf" {
		return onceToken(b)
	}
	for _, entry := range entries {
		if strings.EqualFold(fileID(entry), selected) {
			return token(entry)
		}
	}
	// Its kernel was removed, or is being replaced.
	longest := ""
	for _, entry := range entries {
		found := token(entry)
		version, ok := strings.CutPrefix(strings.ToLower(selected), strings.ToLower(found)+"-")
		if ok && found != "" && version != "" && version[0] <= '9' && len(found) > len(longest) {
			longest = found
		}
	}
	return longest
}

// readBooted implements entryTool. The menu has the lines of the running system.
func (t systemdBoot) readBooted(b entryLoader) (m bootedMenu, reason string) {
	m = bootedMenu{names: b.at, reported: true}
	entries, err := b.readEntries()
	if err != nil {
		return m, err.Error()
	}
	m.menu.root.children = entries
	m.entry, reason = t.defaultEntry(b, entries)
	m.token = bootedToken(b, entries)
	for _, entry := range entries {
		if found := token(entry); found != "" && found == m.token {
			line := entry.lines[0]
			line.title = entry.id
			m.menu.lines = append(m.menu.lines, line)
		}
	}
	if reason == "" {
		reason = cmp.Or(t.menuObstacle(b, m, systemdPlaces(b.fs)), t.findObstacle(b, m))
	}
	return m, reason
}

// findObstacle returns the reason why the agent cannot manage the arguments of the entries, and the remedy.
func (systemdBoot) findObstacle(b entryLoader, m bootedMenu) string {
	returns := slices.IndexFunc(m.menu.root.children, func(entry *menuEntry) bool { return strings.Contains(entry.text, "\r") })
	_, later, _ := b.laterArguments()
	switch {
	case returns >= 0:
		return m.menu.root.children[returns].file + " has carriage returns: convert it to LF line ends"
	case token(m.entry) == "":
		return "kernel-install did not write the default entry " + m.entry.file + ": add the argument to its options"
	case later == "":
		return kernelCmdline + " is missing, so kernel-install gives new kernels the arguments of the running kernel: write the arguments of " +
			m.entry.file + " to it"
	case m.token == "":
		selected, _ := efiVariable(b.fs, "LoaderEntrySelected")
		return fmt.Sprintf("systemd-boot loaded the running kernel by entry %q, which is not in %s or not of kernel-install: %s", selected, b.at.entries, otherMenu)
	case m.token != token(m.entry):
		return "the default entry " + m.entry.file + " is not of the running system: run bootctl set-default with an entry of " + m.token
	}
	return ""
}

func (t systemdBoot) readMenu(_ context.Context, b entryLoader) (menu, error) {
	if _, err := b.readEntries(); err != nil {
		return menu{}, err
	}
	booted, _ := t.readBooted(b)
	return menu{whole: true, lines: booted.menu.lines}, nil
}

// change implements entryTool. Each file has its previous or its next content at any time.
func (t systemdBoot) change(_ context.Context, b entryLoader, f facts, next change, before map[string]host.SavedFile) error {
	booted, reason := t.readBooted(b)
	if len(next.desired) > 0 && (booted.entry == nil || booted.token == "" || token(booted.entry) != booted.token) {
		return errors.New("the default entry is not one of the running system: " + reason)
	}
	for _, line := range f.menu.lines {
		file := path.Join(b.at.entries, line.id+".conf")
		isOptions := func(line string) bool { key, _ := cutField(line); return key == "options" }
		if err := b.editArguments(file, before[file], isOptions, next); err != nil {
			return err
		}
	}
	return b.changeLater(next, before)
}
