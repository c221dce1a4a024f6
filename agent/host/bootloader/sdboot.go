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

// systemdBoot is the tool of systemd-boot, whose entries kernel-install writes. The agent edits only the options of these entries: kernel-install
// would also write the kernels and initrds in place, and a crash would leave a default entry without them.
type systemdBoot struct{}

// systemdNames are the names for each directory in which the entries can be: that of the EFI partition, or of the extended boot loader partition.
var systemdNames = func() (all []*grubNames) {
	for _, boot := range []string{"/efi", "/boot", "/boot/efi"} {
		all = append(all, &grubNames{menu: boot + "/loader/loader.conf", title: boot + "/loader/entries/*.conf", once: onceID, form: blsForm,
			entries: boot + "/loader/entries", boot: boot, tool: systemdBoot{}, files: []string{kernelCmdline}})
	}
	return all
}()

const (
	noSystemdEntries = "booted by systemd-boot, but /efi, /boot and /boot/efi have no loader/entries/*.conf: mount the EFI partition at /efi, " +
		"or use the tool that makes its entries"
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

// efiVariable returns the text of a variable of the boot loader: UTF-16 after four bytes of attributes. Empty if it is not set.
func efiVariable(fs host.FS, name string) (string, error) {
	data, err := fs.ReadIfThere(efiVars + name + loaderGUID)
	var units []uint16
	for i := 4; i+1 < len(data); i += 2 {
		units = append(units, binary.LittleEndian.Uint16(data[i:]))
	}
	return strings.TrimRight(string(utf16.Decode(units)), "\x00"), err
}

func detectSystemdBoot(fs host.FS) (Detection, bool) {
	if fs.Exists(efiVars + "StubInfo" + loaderGUID) {
		return detectImage(fs), true
	}
	info, err := efiVariable(fs, "LoaderInfo")
	if err != nil || !strings.Contains(info, "systemd-boot") {
		return Detection{}, false
	}
	if len(systemdPlaces(fs)) == 0 {
		return unsupportedBy(noSystemdEntries), true
	}
	return Detection{Type: SystemdBoot, Proven: true}, true
}

// systemdPlaces returns the names of all directories that have entries.
func systemdPlaces(fs host.FS) []*grubNames {
	return slices.DeleteFunc(slices.Clone(systemdNames), func(names *grubNames) bool {
		entries, err := fs.Glob(names.entries, "*.conf")
		return err != nil || len(entries) == 0
	})
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
func (systemdBoot) compare(a, b *menuEntry) int {
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
	if entry.image.sections != nil {
		return strings.ToLower(path.Base(entry.file))
	}
	return strings.ToLower(entry.id) + ".conf"
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

// kernelToken returns the two directories of a kernel "/token/version/linux".
func kernelToken(kernel string) (token, version string) {
	dir, image := path.Split(kernel)
	if image != "linux" {
		return "", ""
	}
	token, version = path.Split(strings.Trim(dir, "/"))
	return strings.Trim(token, "/"), version
}

// bootedToken returns the token of the entry that loaded the running kernel. Other systems on the machine have other tokens. Empty if it is unknown.
func (s *Subject) bootedToken(names *grubNames, entries []*menuEntry) string {
	selected, err := efiVariable(s.fs, "LoaderEntrySelected")
	if err != nil || selected == "" {
		return ""
	}
	if selected == onceID+".conf" {
		if text, err := s.fs.ReadIfThere(names.onceEntry()); err != nil || len(text) > 0 {
			found, _ := kernelToken(entryField(&menuEntry{text: string(text)}, "linux"))
			return found
		}
		bootID, _ := s.fs.ReadValue(bootIDFile)
		found, _ := s.facts.BootFact(bootID, factToken)
		return found
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

// recordToken records the token of the running kernel before the entry that loaded it is removed.
func (b entryLoader) recordToken() error {
	selected, err := efiVariable(b.fs, "LoaderEntrySelected")
	if err != nil || selected != onceID+".conf" || !b.fs.Exists(b.at.onceEntry()) {
		return err
	}
	bootID, err := b.fs.ReadValue(bootIDFile)
	if err != nil {
		return err
	}
	return b.facts.SetBootFact(bootID, factToken, b.bootedToken(b.at, nil))
}

// readBooted implements entryTool. The menu has the lines of the running system.
func (t systemdBoot) readBooted(s *Subject, names *grubNames) (b bootedMenu, reason string) {
	b = bootedMenu{names: names, reported: true}
	entries, err := s.readEntries(names)
	if err != nil {
		return b, err.Error()
	}
	b.menu.root.children = entries
	b.entry, reason = t.defaultEntry(s.fs, names, entries)
	b.token = s.bootedToken(names, entries)
	for _, entry := range entries {
		if found := token(entry); found != "" && found == b.token {
			line := entry.lines[0]
			line.title = entry.id
			b.menu.lines = append(b.menu.lines, line)
		}
	}
	if reason == "" {
		reason = cmp.Or(t.menuObstacle(s, b, systemdPlaces(s.fs)), t.findObstacle(s, b))
	}
	return b, reason
}

// defaultEntry returns the entry that systemd-boot boots by default, or the reason why that is unknown.
func (systemdBoot) defaultEntry(fs host.FS, names *grubNames, entries []*menuEntry) (entry *menuEntry, reason string) {
	variable, err := efiVariable(fs, "LoaderEntryDefault")
	if err != nil {
		return nil, err.Error()
	}
	partition, _ := loaderPartition(fs)
	if partition == "" {
		return nil, "none of " + strings.Join(loaderDirs, ", ") + " is the EFI partition that systemd-boot was loaded from: mount that partition at /efi"
	}
	file := partition + "/loader/loader.conf"
	data, err := fs.ReadIfThere(file)
	if err != nil {
		return nil, err.Error()
	}
	config := configOf(data)
	preferred, err := efiVariable(fs, "LoaderEntryPreferred")
	switch {
	case err != nil:
		return nil, err.Error()
	case preferred != "":
		return nil, "the EFI variable LoaderEntryPreferred selects " + preferred + ", which may count boots: run bootctl set-preferred \"\""
	case config["preferred"] != "":
		return nil, file + " has the line preferred, and that entry may count boots: use default instead"
	}
	var images []string
	for _, place := range systemdNames {
		if names.addon == "" {
			images = append(images, imageFiles(fs, place.boot+"/EFI/Linux", ".efi")...)
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
	return nil, names.title + " has no entry"
}

// counted matches the ID of an entry whose boots are counted.
var counted = regexp.MustCompile(`\+\d+(-\d+)?$`)

// menuObstacle returns the reason why the default entry or the entry that is booted once may not be booted, and the remedy.
func (systemdBoot) menuObstacle(s *Subject, b bootedMenu, places []*grubNames) string {
	features, _ := s.fs.ReadIfThere(efiVars + "LoaderFeatures" + loaderGUID)
	space, err := s.space(strings.TrimSuffix(efiVars, "/"))
	i := slices.IndexFunc(b.menu.root.children, func(entry *menuEntry) bool { return counted.MatchString(entry.id) })
	switch {
	case len(places) > 1:
		return "both " + places[0].title + " and " + places[1].title + " exist, and only one is the menu: unmount or remove the other"
	case len(features) < 5 || features[4]&oneShotFeature == 0:
		return "this systemd-boot cannot boot an entry once: run bootctl update"
	case err != nil || space.ReadOnly:
		return efiVars + " cannot be written: mount efivarfs read-write"
	case s.fs.Exists(triesFile):
		return triesFile + " exists, so systemd-boot counts boots, and may boot another entry than the default: remove it"
	case i >= 0:
		return b.menu.root.children[i].file + " counts boots, and systemd-boot may boot another entry than the default: remove the counter from its name"
	case !onLoaderPartition(s.fs, b.names.boot):
		return b.names.boot + " is neither the EFI partition that systemd-boot was loaded from nor an extended boot loader partition: mount that partition there"
	}
	return ""
}

// findObstacle returns the reason why the agent cannot manage the arguments of the entries, and the remedy.
func (systemdBoot) findObstacle(s *Subject, b bootedMenu) string {
	returns := slices.IndexFunc(b.menu.root.children, func(entry *menuEntry) bool { return strings.Contains(entry.text, "\r") })
	_, later, _ := s.laterArguments()
	switch {
	case returns >= 0:
		return b.menu.root.children[returns].file + " has carriage returns: convert it to LF line ends"
	case token(b.entry) == "":
		return "kernel-install did not write the default entry " + b.entry.file + ": add the argument to its options"
	case later == "":
		return kernelCmdline + " is missing, so kernel-install gives new kernels the arguments of the running kernel: write the arguments of " +
			b.entry.file + " to it"
	case b.token == "":
		selected, _ := efiVariable(s.fs, "LoaderEntrySelected")
		return fmt.Sprintf("systemd-boot loaded the running kernel by entry %q, which is not in %s or not of kernel-install: %s", selected, b.names.entries, otherMenu)
	case b.token != token(b.entry):
		return "the default entry " + b.entry.file + " is not of the running system: run bootctl set-default with an entry of " + b.token
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

func (t systemdBoot) readMenu(_ context.Context, b entryLoader) (menu, error) {
	if _, err := b.readEntries(b.at); err != nil {
		return menu{}, err
	}
	booted, _ := t.readBooted(b.Subject, b.at)
	return menu{whole: true, lines: booted.menu.lines}, nil
}

// change implements entryTool. Each file has its previous or its next content at any time.
func (t systemdBoot) change(_ context.Context, b entryLoader, f facts, next change, before map[string]host.SavedFile) error {
	booted, reason := t.readBooted(b.Subject, b.at)
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

// editArguments removes the stale arguments from all lines with arguments, and adds the missing ones to the last. It leaves the words for init.
func (b entryLoader) editArguments(file string, saved host.SavedFile, holdsArguments func(line string) bool, next change) error {
	if !saved.Present {
		return temporaryError{errors.New(file + " was just made")}
	}
	lines := strings.SplitAfter(string(saved.Data), "\n")
	last, present := -1, []host.Argument(nil)
	for i, line := range lines {
		if holdsArguments(line) {
			last, lines[i] = i, cutWords(line, next.stale)
			present = append(present, host.ParseArguments(line)...)
		}
	}
	if missing := argumentsWithout(next.desired, present); len(missing) > 0 {
		if last < 0 {
			return errors.New(file + " has no arguments")
		}
		lines[last] = addWords(lines[last], missing)
	}
	saved.Data = []byte(strings.Join(lines, ""))
	return b.fs.RestoreFile(file, saved)
}

// readTrial implements entryTool. If the entry was armed in this boot, but is not selected, the agent was killed in between, or a user has cleared the
// selection: the entry has no state.
func (systemdBoot) readTrial(b entryLoader, armedNow bool) (t trial, err error) {
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
func (systemdBoot) writeTrial(b entryLoader, text, state string) error {
	selected, err := efiVariable(b.fs, oneShot)
	if err != nil {
		return err
	}
	isSelected := selected == onceID+".conf"
	if text == "" {
		if err := b.recordToken(); err != nil {
			return err
		}
		if err := b.fs.Remove(b.at.onceEntry()); err != nil || !isSelected {
			return err
		}
		return b.selectOnce("")
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
		if err := b.selectOnce(onceID + ".conf"); err != nil {
			return err
		}
	}
	if err := b.fs.KeepFile(b.at.onceEntry(), stateMark+state+"\n"+text); err != nil || isReady || !isSelected {
		return err
	}
	return b.selectOnce("")
}

// selectOnce selects the entry of the next boot, or the default entry if the name is empty.
func (b entryLoader) selectOnce(name string) error {
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

func (systemdBoot) findTrialObstacle(_ context.Context, b entryLoader) (reason string, temporary bool) {
	if !b.found.Proven {
		return b.found.Message, false
	}
	if b.onceText(nil, nil) == "" {
		return errNoKernel.Error(), true
	}
	return "", false
}
