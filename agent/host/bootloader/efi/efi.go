// Package efi contains the trial and the default entry of systemd-boot, with entries or with images.
package efi

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// Variables of the boot loader.
const (
	Vars = "/sys/firmware/efi/efivars/"
	// LoaderGUID is the vendor GUID of the EFI variables that systemd-boot and systemd-stub set at boot.
	LoaderGUID = "-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
)

// Names and files of a trial.
const (
	OneShot = "LoaderEntryOneShot"
	// StateMark starts the first line of the entry that is booted once. The rest of the line is the state of the trial.
	StateMark = "# Trial: "
	// TriesFile is the file with which kernel-install counts the boots of new entries.
	TriesFile = "/etc/kernel/tries"
	// factToken is the name of the boot fact with the token of the running kernel.
	factToken = "entry-token"
	// oneShotFeature is the bit of LoaderFeatures for entries that are booted once.
	oneShotFeature = 1 << 3
)

// BootDirs are the directories in which the entries can be: that of the EFI partition, or of the extended boot loader partition.
var BootDirs = []string{"/efi", "/boot", "/boot/efi"}

// PlaceIn returns the names in a directory.
func PlaceIn(boot string) loader.Place {
	return loader.Place{Menu: boot + "/loader/loader.conf", Once: bls.OnceID, Form: loader.RecordForm, Entries: boot + "/loader/entries", Boot: boot}
}

// Tool is the part that systemd-boot's entries and unified kernel images share.
type Tool struct{}

// Variable returns the text of a variable of the boot loader: UTF-16 after four bytes of attributes. Empty if it is not set.
func Variable(fs host.FS, name string) (string, error) {
	data, err := fs.ReadIfThere(Vars + name + LoaderGUID)
	var units []uint16
	for i := 4; i+1 < len(data); i += 2 {
		units = append(units, binary.LittleEndian.Uint16(data[i:]))
	}
	return strings.TrimRight(string(utf16.Decode(units)), "\x00"), err
}

// EntryField returns the value of a field of an entry.
func EntryField(entry *loader.Entry, name string) string {
	for line := range strings.Lines(entry.Text) {
		if key, value := bls.CutField(line); key == name {
			return value
		}
	}
	return ""
}

// Compare compares entries like systemd-boot: entries with a sort key are first, by key, machine and descending version. The others follow, by
// descending ID. The entry that is booted once has no sort key and the lowest ID.
func (Tool) Compare(a, b *loader.Entry) int {
	keyA, keyB := EntryField(a, "sort-key"), EntryField(b, "sort-key")
	if (keyA == "") != (keyB == "") {
		return strings.Compare(keyB, keyA)
	}
	order := 0
	if keyA != "" {
		order = cmp.Or(strings.Compare(keyA, keyB), strings.Compare(EntryField(a, "machine-id"), EntryField(b, "machine-id")),
			strings.Compare(SystemdVersion(EntryField(b, "version")), SystemdVersion(EntryField(a, "version"))))
	}
	return cmp.Or(order, strings.Compare(SystemdVersion(FileID(b)), SystemdVersion(FileID(a))))
}

// SystemdVersion returns a key that sorts versions as systemd-boot does.
func SystemdVersion(version string) string { return bls.VersionKey(version, "~$-^.") }

// FileID returns the ID that systemd-boot gives to an entry.
func FileID(entry *loader.Entry) string {
	return strings.ToLower(path.Base(entry.File))
}

// KernelToken returns the two directories of a kernel "/token/version/linux".
func KernelToken(kernel string) (token, version string) {
	dir, image := path.Split(kernel)
	if image != "linux" {
		return "", ""
	}
	token, version = path.Split(strings.Trim(dir, "/"))
	return strings.Trim(token, "/"), version
}

// OnceToken returns the token of the entry that is booted once, if that entry loaded the running kernel.
func OnceToken(b bls.Loader) string {
	if text, err := b.FS.ReadIfThere(b.At.OnceEntry()); err != nil || len(text) > 0 {
		found, _ := KernelToken(EntryField(&loader.Entry{Text: string(text)}, "linux"))
		return found
	}
	bootID, _ := b.FS.ReadValue(loader.BootIDFile)
	found, _ := b.Facts.BootFact(bootID, factToken)
	return found
}

// recordToken records the token of the running kernel before the entry that loaded it is removed.
func recordToken(b bls.Loader) error {
	selected, err := Variable(b.FS, "LoaderEntrySelected")
	if err != nil || selected != bls.OnceID+".conf" || !b.FS.Exists(b.At.OnceEntry()) {
		return err
	}
	bootID, err := b.FS.ReadValue(loader.BootIDFile)
	if err != nil {
		return err
	}
	return b.Facts.SetBootFact(bootID, factToken, OnceToken(b))
}

// DefaultEntry returns the entry that systemd-boot boots by default, or the reason why that is unknown.
func (Tool) DefaultEntry(b bls.Loader, entries []*loader.Entry) (entry *loader.Entry, reason string) {
	variable, err := Variable(b.FS, "LoaderEntryDefault")
	if err != nil {
		return nil, err.Error()
	}
	partition, _ := loaderPartition(b.FS)
	if partition == "" {
		return nil, "none of " + strings.Join(loaderDirs, ", ") + " is the EFI partition that systemd-boot was loaded from: mount that partition at /efi"
	}
	file := partition + "/loader/loader.conf"
	data, err := b.FS.ReadIfThere(file)
	if err != nil {
		return nil, err.Error()
	}
	config := configOf(data)
	preferred, err := Variable(b.FS, "LoaderEntryPreferred")
	switch {
	case err != nil:
		return nil, err.Error()
	case preferred != "":
		return nil, "the EFI variable LoaderEntryPreferred selects " + preferred + ", which may count boots: run bootctl set-preferred \"\""
	case config["preferred"] != "":
		return nil, file + " has the line preferred, and that entry may count boots: use default instead"
	}
	var images []string
	for _, place := range BootDirs {
		if b.At.Addon == "" {
			images = append(images, ImageFiles(b.FS, place+"/EFI/Linux", ".efi")...)
		}
	}
	choices := []struct{ source, pattern string }{
		{"the EFI variable LoaderEntryDefault", variable}, {file, config["default"]}, {"", "*"},
	}
	for _, choice := range choices {
		pattern := strings.ToLower(choice.pattern)
		if strings.HasPrefix(pattern, "@") {
			return nil, choice.source + " is " + choice.pattern + ", so the default entry is the last booted entry: run bootctl set-default with an entry"
		}
		matches := func(id string) bool { ok, err := path.Match(pattern, id); return err == nil && ok }
		if i := slices.IndexFunc(images, func(image string) bool { return matches(strings.ToLower(path.Base(image))) }); i >= 0 {
			return nil, "the default can be the unified kernel image " + images[i] + ", whose order in the menu is unknown: run bootctl set-default with an entry"
		}
		if i := slices.IndexFunc(entries, func(entry *loader.Entry) bool { return matches(FileID(entry)) }); i >= 0 {
			return entries[i], ""
		}
	}
	return nil, b.At.Title + " has no entry"
}

// counted matches the ID of an entry whose boots are counted.
var counted = regexp.MustCompile(`\+\d+(-\d+)?$`)

// MenuObstacle returns the reason why the default entry or the entry that is booted once may not be booted, and the remedy.
func (Tool) MenuObstacle(b bls.Loader, m loader.Booted, places []*loader.Place) string {
	features, _ := b.FS.ReadIfThere(Vars + "LoaderFeatures" + LoaderGUID)
	space, err := b.Space(strings.TrimSuffix(Vars, "/"))
	i := slices.IndexFunc(m.Menu.Root.Children, func(entry *loader.Entry) bool { return counted.MatchString(entry.ID) })
	switch {
	case len(places) > 1:
		return "both " + places[0].Title + " and " + places[1].Title + " exist, and only one is the menu: unmount or remove the other"
	case len(features) < 5 || features[4]&oneShotFeature == 0:
		return "this systemd-boot cannot boot an entry once: run bootctl update"
	case err != nil || space.ReadOnly:
		return Vars + " cannot be written: mount efivarfs read-write"
	case b.FS.Exists(TriesFile):
		return TriesFile + " exists, so systemd-boot counts boots, and may boot another entry than the default: remove it"
	case i >= 0:
		return m.Menu.Root.Children[i].File + " counts boots, and systemd-boot may boot another entry than the default: remove the counter from its name"
	case !onLoaderPartition(b.FS, b.At.Boot):
		return b.At.Boot + " is neither the EFI partition that systemd-boot was loaded from nor an extended boot loader partition: mount that partition there"
	}
	return ""
}

// loaderDirs are the directories at which the EFI partition can be mounted.
var loaderDirs = []string{"/efi", "/boot/efi", "/boot"}

// loaderPartition returns the directory at which the partition is mounted that systemd-boot was loaded from, and the device numbers of all mounts.
// It is empty if it is unknown.
func loaderPartition(fs host.FS) (dir string, mounted map[string]string) {
	mounted = map[string]string{}
	for _, dir := range loaderDirs {
		// This mounts an automount.
		_ = fs.Exists(dir + "/loader")
	}
	table, _ := fs.ReadIfThere("/proc/1/mountinfo")
	for line := range strings.Lines(string(table)) {
		// An automount has its own line first.
		if words := strings.Fields(line); len(words) > 4 && !strings.Contains(line, " - autofs ") {
			mounted[words[4]] = words[2]
		}
	}
	id, err := Variable(fs, "LoaderDevicePartUUID")
	if err != nil || id == "" {
		return "", mounted
	}
	device, err := fs.Resolve(loader.DeviceName("PARTUUID=" + strings.ToLower(id)))
	if err != nil {
		return "", mounted
	}
	number, err := fs.ReadValue("/sys/class/block/" + path.Base(device) + "/dev")
	i := slices.IndexFunc(loaderDirs, func(dir string) bool { return mounted[dir] == number })
	if err != nil || number == "" || i < 0 {
		return "", mounted
	}
	return loaderDirs[i], mounted
}

// onLoaderPartition reports whether a directory is on the partition that systemd-boot was loaded from, or is /boot with a separate partition, which
// is the extended boot loader partition.
func onLoaderPartition(fs host.FS, dir string) bool {
	partition, mounted := loaderPartition(fs)
	return dir == partition || dir == "/boot" && mounted[dir] != "" && mounted[dir] != mounted["/"]
}

// configOf returns the settings of loader.conf. The last line of a key counts.
func configOf(data []byte) map[string]string {
	config := map[string]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\r", "\n")) {
		key, value := bls.CutField(line)
		if text, ok := strings.CutPrefix(value, `"`); ok {
			value = strings.TrimSuffix(text, `"`)
		}
		config[key] = value
	}
	return config
}

// ReadTrial implements Tool. If the entry was armed in this boot, but is not selected, the agent was killed in between, or a user has cleared the
// selection: the entry has no state.
func (Tool) ReadTrial(b bls.Loader, armedNow bool) (t loader.Trial, err error) {
	data, err := b.FS.ReadIfThere(b.At.OnceEntry())
	if err != nil {
		return t, err
	}
	selected, err := Variable(b.FS, OneShot)
	t.Section, t.Selected = string(data), strings.TrimSuffix(selected, ".conf")
	if first, rest, _ := strings.Cut(t.Section, "\n"); strings.HasPrefix(first, StateMark) {
		t.State, t.Section = strings.TrimPrefix(first, StateMark), rest
	}
	switch {
	case t.Section == "" && t.Selected == bls.OnceID:
		t.State = loader.TrialArmed
	case armedNow && t.Selected == "" && t.IsDue():
		t.State = ""
	}
	return t, err
}

// WriteTrial implements Tool. It never selects the entry instead of another entry that a user has selected.
func (Tool) WriteTrial(b bls.Loader, text, state string) error {
	selected, err := Variable(b.FS, OneShot)
	if err != nil {
		return err
	}
	isSelected := selected == bls.OnceID+".conf"
	if text == "" {
		if err := recordToken(b); err != nil {
			return err
		}
		if err := b.FS.Remove(b.At.OnceEntry()); err != nil || !isSelected {
			return err
		}
		return selectOnce(b, "")
	}
	isReady := state == loader.TrialArmed || state == loader.TrialPermitted
	if isReady {
		if selected != "" && !isSelected {
			state = loader.TrialArmed
		}
		if err := b.RecordArmed(); err != nil {
			return err
		}
	}
	if isReady && selected == "" {
		// A permitted entry without its selection counts as failed.
		if err := b.FS.KeepFile(b.At.OnceEntry(), StateMark+loader.TrialArmed+"\n"+text); err != nil {
			return err
		}
		if err := selectOnce(b, bls.OnceID+".conf"); err != nil {
			return err
		}
	}
	if err := b.FS.KeepFile(b.At.OnceEntry(), StateMark+state+"\n"+text); err != nil || isReady || !isSelected {
		return err
	}
	return selectOnce(b, "")
}

// selectOnce selects the entry of the next boot, or the default entry if the name is empty.
func selectOnce(b bls.Loader, name string) error {
	var data []byte
	if name != "" {
		// The attributes: it stays without power, and the boot loader and the system may read it.
		data = []byte{7, 0, 0, 0}
		for _, unit := range append(utf16.Encode([]rune(name)), 0) {
			data = binary.LittleEndian.AppendUint16(data, unit)
		}
	}
	if err := b.FS.WriteVariable(Vars+OneShot+LoaderGUID, data); err != nil {
		return err
	}
	if selected, err := Variable(b.FS, OneShot); err != nil || selected != name {
		return errors.Join(err, fmt.Errorf("the firmware has %s=%q instead of %q", OneShot, selected, name))
	}
	return nil
}

// FindTrialObstacle implements Tool.
func (Tool) FindTrialObstacle(_ context.Context, b bls.Loader) (reason string, temporary bool) {
	if !b.Found.Proven {
		return b.Found.Message, false
	}
	if b.OnceText(nil, nil) == "" {
		return bls.ErrNoKernel.Error(), true
	}
	return "", false
}

// Kind returns a kind of systemd-boot. isImage reports whether systemd-stub starts its kernels, which are parts of unified kernel images. noLoader is
// the message for a host with another boot loader, which is of another kind if the message is empty. noPlace is the message for a host without places.
func Kind(name string, isImage bool, noLoader string, places func(fs host.FS) []*loader.Place, noPlace string, tool bls.Tool) loader.Kind {
	return loader.Kind{
		Detect: func(fs host.FS) (loader.Detection, *loader.Place) {
			info, err := Variable(fs, "LoaderInfo")
			isBoot := err == nil && strings.Contains(info, "systemd-boot")
			if fs.Exists(Vars+"StubInfo"+LoaderGUID) != isImage || !isBoot && noLoader == "" {
				return loader.Detection{}, nil
			} else if !isBoot {
				return loader.UnsupportedBy(noLoader), nil
			}
			all := places(fs)
			if len(all) == 0 {
				return loader.UnsupportedBy(noPlace), nil
			}
			return loader.Detection{Type: name, Proven: true}, all[0]
		},
		Places: places,
		Open:   func(b loader.Base) loader.Loader { return bls.Loader{Base: b, Tool: tool} },
	}
}

// ImageFiles lists the files with a suffix, in any case.
func ImageFiles(fs host.FS, dir, suffix string) []string {
	files, _ := fs.Glob(dir, "*")
	return slices.DeleteFunc(files, func(name string) bool { return !strings.HasSuffix(strings.ToLower(name), suffix) })
}
