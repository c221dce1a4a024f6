// Package systemdboot is systemd-boot with entries that kernel-install writes.
package systemdboot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/efi"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/tuning/lists"
)

// tool is the tool of systemd-boot, whose entries kernel-install writes. The agent edits only the options of these entries: kernel-install
// would also write the kernels and initrds in place, and a crash would leave a default entry without them.
type tool struct{ efi.Tool }

// all are the places in each directory in which the entries can be.
var all = lists.Each(efi.BootDirs, func(boot string) *loader.Place {
	at := efi.PlaceIn(boot)
	at.Title, at.Files = boot+"/loader/entries/*.conf", []string{bls.LaterFile}
	return &at
})

// Kind is the kind of systemd-boot with entries. A unified kernel image is another kind.
var Kind = efi.Kind(loader.SystemdBoot, false, "", places, "booted by systemd-boot, but /efi, /boot and /boot/efi have no loader/entries/*.conf: mount the "+
	"EFI partition at /efi, or use the tool that makes its entries", tool{})

// ReadLater implements Tool.
func (tool) ReadLater(b bls.Loader, f *loader.Facts) error { return b.ReadLater(f) }

// places returns all places that have entries.
func places(fs host.FS) []*loader.Place {
	return slices.DeleteFunc(slices.Clone(all), func(names *loader.Place) bool {
		entries, err := fs.Glob(names.Entries, "*.conf")
		return err != nil || len(entries) == 0
	})
}

// Token returns the directory of the entry's kernel if kernel-install wrote the entry: "/token/version/linux" in the file "token-version.conf".
func Token(entry *loader.Entry) string {
	if len(entry.Lines) == 0 {
		return ""
	}
	token, version := efi.KernelToken(entry.Lines[0].Kernel)
	if entry.ID != token+"-"+version {
		return ""
	}
	return token
}

// bootedToken returns the token of the entry that loaded the running kernel. Other systems on the machine have other tokens. Empty if it is unknown.
func bootedToken(b bls.Loader, entries []*loader.Entry) string {
	selected, err := efi.Variable(b.FS, "LoaderEntrySelected")
	if err != nil || selected == "" {
		return ""
	}
	if selected == bls.OnceID+".conf" {
		return efi.OnceToken(b)
	}
	for _, entry := range entries {
		if strings.EqualFold(efi.FileID(entry), selected) {
			return Token(entry)
		}
	}
	// Its kernel was removed, or is being replaced.
	longest := ""
	for _, entry := range entries {
		found := Token(entry)
		version, ok := strings.CutPrefix(strings.ToLower(selected), strings.ToLower(found)+"-")
		if ok && found != "" && version != "" && version[0] <= '9' && len(found) > len(longest) {
			longest = found
		}
	}
	return longest
}

// ReadBooted implements Tool. The menu has the lines of the running system.
func (t tool) ReadBooted(b bls.Loader) (m loader.Booted, reason string) {
	m = loader.Booted{Names: b.At, Reported: true}
	entries, err := b.ReadEntries()
	if err != nil {
		return m, err.Error()
	}
	m.Menu.Root.Children = entries
	m.Entry, reason = t.DefaultEntry(b, entries)
	m.Token = bootedToken(b, entries)
	for _, entry := range entries {
		if found := Token(entry); found != "" && found == m.Token {
			line := entry.Lines[0]
			line.Title = entry.ID
			m.Menu.Lines = append(m.Menu.Lines, line)
		}
	}
	if reason == "" {
		reason = cmp.Or(t.MenuObstacle(b, m, places(b.FS)), t.findObstacle(b, m))
	}
	return m, reason
}

// findObstacle returns the reason why the agent cannot manage the arguments of the entries, and the remedy.
func (tool) findObstacle(b bls.Loader, m loader.Booted) string {
	returns := slices.IndexFunc(m.Menu.Root.Children, func(entry *loader.Entry) bool { return strings.Contains(entry.Text, "\r") })
	_, later, _ := b.LaterArguments()
	switch {
	case returns >= 0:
		return m.Menu.Root.Children[returns].File + " has carriage returns: convert it to LF line ends"
	case Token(m.Entry) == "":
		return "kernel-install did not write the default entry " + m.Entry.File + ": add the argument to its options"
	case later == "":
		return bls.LaterFile + " is missing, so kernel-install gives new kernels the arguments of the running kernel: write the arguments of " +
			m.Entry.File + " to it"
	case m.Token == "":
		selected, _ := efi.Variable(b.FS, "LoaderEntrySelected")
		return fmt.Sprintf("systemd-boot loaded the running kernel by entry %q, which is not in %s or not of kernel-install: %s", selected, b.At.Entries, loader.OtherMenu)
	case m.Token != Token(m.Entry):
		return "the default entry " + m.Entry.File + " is not of the running system: run bootctl set-default with an entry of " + m.Token
	}
	return ""
}

// ReadMenu implements Tool.
func (t tool) ReadMenu(_ context.Context, b bls.Loader) (loader.Menu, error) {
	if _, err := b.ReadEntries(); err != nil {
		return loader.Menu{}, err
	}
	booted, _ := t.ReadBooted(b)
	return loader.Menu{Whole: true, Lines: booted.Menu.Lines}, nil
}

// Change implements Tool. Each file has its previous or its next content at any time.
func (t tool) Change(_ context.Context, b bls.Loader, f loader.Facts, next loader.Change, before map[string]host.SavedFile) error {
	booted, reason := t.ReadBooted(b)
	if len(next.Desired) > 0 && (booted.Entry == nil || booted.Token == "" || Token(booted.Entry) != booted.Token) {
		return errors.New("the default entry is not one of the running system: " + reason)
	}
	for _, line := range f.Menu.Lines {
		file := path.Join(b.At.Entries, line.ID+".conf")
		isOptions := func(line string) bool { key, _ := bls.CutField(line); return key == "options" }
		if err := b.EditArguments(file, before[file], isOptions, next); err != nil {
			return err
		}
	}
	return b.ChangeLater(next, before)
}
