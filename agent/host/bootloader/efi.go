package bootloader

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
)

const (
	efiVars = "/sys/firmware/efi/efivars/"
	// loaderGUID is the vendor GUID of the EFI variables that systemd-boot and systemd-stub set at boot.
	loaderGUID = "-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
)

const (
	oneShot = "LoaderEntryOneShot"
	// stateMark starts the first line of the entry that is booted once. The rest of the line is the state of the trial.
	stateMark = "# Trial: "
	// triesFile is the file with which kernel-install counts the boots of new entries.
	triesFile = "/etc/kernel/tries"
	// factToken is the name of the boot fact with the token of the running kernel.
	factToken = "entry-token"
	// oneShotFeature is the bit of LoaderFeatures for entries that are booted once.
	oneShotFeature = 1 << 3
)

// bootDirs are the directories in which the entries can be: that of the EFI partition, or of the extended boot loader partition.
var bootDirs = []string{"/efi", "/boot", "/boot/efi"}

// efiNames returns the names in a directory.
func efiNames(boot string) grubNames {
	return grubNames{menu: boot + "/loader/loader.conf", once: onceID, form: blsForm, entries: boot + "/loader/entries", boot: boot}
}

// efiTool is the part that systemd-boot's entries and unified kernel images share.
type efiTool struct{}

// efiVariable returns the text of a variable of the boot loader: UTF-16 after four bytes of attributes. Empty if it is not set.
func efiVariable(fs host.FS, name string) (string, error) {
	data, err := fs.ReadIfThere(efiVars + name + loaderGUID)
	var units []uint16
	for i := 4; i+1 < len(data); i += 2 {
		units = append(units, binary.LittleEndian.Uint16(data[i:]))
	}
	return strings.TrimRight(string(utf16.Decode(units)), "\x00"), err
}

func entryField(entry *menuEntry, name string) string {
	for line := range strings.Lines(entry.text) {
		if key, value := cutField(line); key == name {
			return value
		}
	}
	return ""
}

// compare compares entries like systemd-boot: entries with a sort key are first, by key, machine and descending version. The others follow, by
// descending ID. The entry that is booted once has no sort key and the lowest ID.
func (efiTool) compare(a, b *menuEntry) int {
	keyA, keyB := entryField(a, "sort-key"), entryField(b, "sort-key")
	if (keyA == "") != (keyB == "") {
		return strings.Compare(keyB, keyA)
	}
	order := 0
	if keyA != "" {
		order = cmp.Or(strings.Compare(keyA, keyB), strings.Compare(entryField(a, "machine-id"), entryField(b, "machine-id")),
			strings.Compare(systemdVersion(entryField(b, "version")), systemdVersion(entryField(a, "version"))))
	}
	return cmp.Or(order, strings.Compare(systemdVersion(fileID(b)), systemdVersion(fileID(a))))
}

func systemdVersion(version string) string { return versionKey(version, "~$-^.") }

// fileID returns the ID that systemd-boot gives to an entry.
func fileID(entry *menuEntry) string {
	return strings.ToLower(path.Base(entry.file))
}

// kernelToken returns the two directories of a kernel "/token/version/linux".
func kernelToken(kernel string) (token, version string) {
	dir, image := path.Split(kernel)
	if image != "linux" {
		return "", ""
	}
	token, version = path.Split(strings.Trim(dir, "/"))
	return strings.Trim(token, "/"), version
}

// onceToken returns the token of the entry that is booted once, if that entry loaded the running kernel.
func onceToken(b entryLoader) string {
	if text, err := b.fs.ReadIfThere(b.at.onceEntry()); err != nil || len(text) > 0 {
		found, _ := kernelToken(entryField(&menuEntry{text: string(text)}, "linux"))
		return found
	}
	bootID, _ := b.fs.ReadValue(bootIDFile)
	found, _ := b.facts.BootFact(bootID, factToken)
	return found
}

// recordToken records the token of the running kernel before the entry that loaded it is removed.
func recordToken(b entryLoader) error {
	selected, err := efiVariable(b.fs, "LoaderEntrySelected")
	if err != nil || selected != onceID+".conf" || !b.fs.Exists(b.at.onceEntry()) {
		return err
	}
	bootID, err := b.fs.ReadValue(bootIDFile)
	if err != nil {
		return err
	}
	return b.facts.SetBootFact(bootID, factToken, onceToken(b))
}

// defaultEntry returns the entry that systemd-boot boots by default, or the reason why that is unknown.
func (efiTool) defaultEntry(b entryLoader, entries []*menuEntry) (entry *menuEntry, reason string) {
	variable, err := efiVariable(b.fs, "LoaderEntryDefault")
	if err != nil {
		return nil, err.Error()
	}
	partition, _ := loaderPartition(b.fs)
	if partition == "" {
		return nil, "none of " + strings.Join(loaderDirs, ", ") + " is the EFI partition that systemd-boot was loaded from: mount that partition at /efi"
	}
	file := partition + "/loader/loader.conf"
	data, err := b.fs.ReadIfThere(file)
	if err != nil {
		return nil, err.Error()
	}
	config := configOf(data)
	preferred, err := efiVariable(b.fs, "LoaderEntryPreferred")
	switch {
	case err != nil:
		return nil, err.Error()
	case preferred != "":
		return nil, "the EFI variable LoaderEntryPreferred selects " + preferred + ", which may count boots: run bootctl set-preferred \"\""
	case config["preferred"] != "":
		return nil, file + " has the line preferred, and that entry may count boots: use default instead"
	}
	var images []string
	for _, place := range bootDirs {
		if b.at.addon == "" {
			images = append(images, imageFiles(b.fs, place+"/EFI/Linux", ".efi")...)
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
		if i := slices.IndexFunc(entries, func(entry *menuEntry) bool { return matches(fileID(entry)) }); i >= 0 {
			return entries[i], ""
		}
	}
	return nil, b.at.title + " has no entry"
}

// counted matches the ID of an entry whose boots are counted.
var counted = regexp.MustCompile(`\+\d+(-\d+)?$`)

// menuObstacle returns the reason why the default entry or the entry that is booted once may not be booted, and the remedy.
func (efiTool) menuObstacle(b entryLoader, m bootedMenu, places []*grubNames) string {
	features, _ := b.fs.ReadIfThere(efiVars + "LoaderFeatures" + loaderGUID)
	space, err := b.space(strings.TrimSuffix(efiVars, "/"))
	i := slices.IndexFunc(m.menu.root.children, func(entry *menuEntry) bool { return counted.MatchString(entry.id) })
	switch {
	case len(places) > 1:
		return "both " + places[0].title + " and " + places[1].title + " exist, and only one is the menu: unmount or remove the other"
	case len(features) < 5 || features[4]&oneShotFeature == 0:
		return "this systemd-boot cannot boot an entry once: run bootctl update"
	case err != nil || space.ReadOnly:
		return efiVars + " cannot be written: mount efivarfs read-write"
	case b.fs.Exists(triesFile):
		return triesFile + " exists, so systemd-boot counts boots, and may boot another entry than the default: remove it"
	case i >= 0:
		return m.menu.root.children[i].file + " counts boots, and systemd-boot may boot another entry than the default: remove the counter from its name"
	case !onLoaderPartition(b.fs, b.at.boot):
		return b.at.boot + " is neither the EFI partition that systemd-boot was loaded from nor an extended boot loader partition: mount that partition there"
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
	id, err := efiVariable(fs, "LoaderDevicePartUUID")
	if err != nil || id == "" {
		return "", mounted
	}
	device, err := fs.Resolve(deviceName("PARTUUID=" + strings.ToLower(id)))
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
		key, value := cutField(line)
		if text, ok := strings.CutPrefix(value, `"`); ok {
			value = strings.TrimSuffix(text, `"`)
		}
		config[key] = value
	}
	return config
}

// readTrial implements entryTool. If the entry was armed in this boot, but is not selected, the agent was killed in between, or a user has cleared the
// selection: the entry has no state.
func (efiTool) readTrial(b entryLoader, armedNow bool) (t trial, err error) {
	data, err := b.fs.ReadIfThere(b.at.onceEntry())
	if err != nil {
		return t, err
	}
	selected, err := efiVariable(b.fs, oneShot)
	t.section, t.selected = string(data), strings.TrimSuffix(selected, ".conf")
	if first, rest, _ := strings.Cut(t.section, "\n"); strings.HasPrefix(first, stateMark) {
		t.state, t.section = strings.TrimPrefix(first, stateMark), rest
	}
	switch {
	case t.section == "" && t.selected == onceID:
		t.state = trialArmed
	case armedNow && t.selected == "" && t.isDue():
		t.state = ""
	}
	return t, err
}

// writeTrial implements entryTool. It never selects the entry instead of another entry that a user has selected.
func (efiTool) writeTrial(b entryLoader, text, state string) error {
	selected, err := efiVariable(b.fs, oneShot)
	if err != nil {
		return err
	}
	isSelected := selected == onceID+".conf"
	if text == "" {
		if err := recordToken(b); err != nil {
			return err
		}
		if err := b.fs.Remove(b.at.onceEntry()); err != nil || !isSelected {
			return err
		}
		return selectOnce(b, "")
	}
	isReady := state == trialArmed || state == trialPermitted
	if isReady {
		if selected != "" && !isSelected {
			state = trialArmed
		}
		if err := b.recordArmed(); err != nil {
			return err
		}
	}
	if isReady && selected == "" {
		// A permitted entry without its selection counts as failed.
		if err := b.fs.KeepFile(b.at.onceEntry(), stateMark+trialArmed+"\n"+text); err != nil {
			return err
		}
		if err := selectOnce(b, onceID+".conf"); err != nil {
			return err
		}
	}
	if err := b.fs.KeepFile(b.at.onceEntry(), stateMark+state+"\n"+text); err != nil || isReady || !isSelected {
		return err
	}
	return selectOnce(b, "")
}

// selectOnce selects the entry of the next boot, or the default entry if the name is empty.
func selectOnce(b entryLoader, name string) error {
	var data []byte
	if name != "" {
		// The attributes: it stays without power, and the boot loader and the system may read it.
		data = []byte{7, 0, 0, 0}
		for _, unit := range append(utf16.Encode([]rune(name)), 0) {
			data = binary.LittleEndian.AppendUint16(data, unit)
		}
	}
	if err := b.fs.WriteVariable(efiVars+oneShot+loaderGUID, data); err != nil {
		return err
	}
	if selected, err := efiVariable(b.fs, oneShot); err != nil || selected != name {
		return errors.Join(err, fmt.Errorf("the firmware has %s=%q instead of %q", oneShot, selected, name))
	}
	return nil
}

func (efiTool) findTrialObstacle(_ context.Context, b entryLoader) (reason string, temporary bool) {
	if !b.found.Proven {
		return b.found.Message, false
	}
	if b.onceText(nil, nil) == "" {
		return errNoKernel.Error(), true
	}
	return "", false
}

// isImage reports whether systemd-stub has started the kernel, which is part of a unified kernel image.
func isImage(fs host.FS) bool { return fs.Exists(efiVars + "StubInfo" + loaderGUID) }

// imageFiles lists the files with a suffix, in any case.
func imageFiles(fs host.FS, dir, suffix string) []string {
	files, _ := fs.Glob(dir, "*")
	return slices.DeleteFunc(files, func(name string) bool { return !strings.HasSuffix(strings.ToLower(name), suffix) })
}
