package bls

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// saveFiles reads all files that the tool may change: entries, the other files, and the targets of links among them.
func (b Loader) saveFiles(records map[string]host.FileRecord) (map[string]host.SavedFile, error) {
	names, err := b.FS.Glob(b.At.Entries, "*.conf")
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == b.At.OnceEntry() || b.At.Addon != "" })
	for name := range records {
		// This is the target of a link that grubby has replaced with a file.
		if !isEntry(name) && !slices.Contains(b.At.Files, name) {
			names = append(names, name)
		}
	}
	saved := map[string]host.SavedFile{}
	for _, name := range append(names, b.At.Files...) {
		file, err := b.FS.SaveFile(name)
		if err != nil {
			return nil, err
		}
		saved[name] = file
		if file.Link == "" {
			continue
		}
		if name, err = b.FS.Resolve(name); err != nil {
			return nil, err
		}
		if saved[name], err = b.FS.SaveFile(name); err != nil {
			return nil, err
		}
	}
	return saved, nil
}

func isEntry(name string) bool { return strings.HasSuffix(path.Dir(name), "/loader/entries") }

// keepFiles journals the original files durably, and returns the files as they are before this change. A new file that already contains one of the
// agent's arguments has no original, e.g. the entry of a kernel that was installed since.
func (b Loader) keepFiles(f loader.Facts, next loader.Change) (map[string]host.SavedFile, error) {
	records := b.Facts.KeptFiles()
	if records == nil {
		records = map[string]host.FileRecord{}
	}
	if f.Record.Unfinished {
		if err := b.repairFiles(records); err != nil {
			return nil, err
		}
	}
	before, err := b.saveFiles(records)
	if err != nil {
		return nil, err
	}
	managed := f.ManagedArguments()
	if f.Record.Present {
		managed = append(managed, next.Desired...)
	}
	maps.DeleteFunc(records, func(name string, record host.FileRecord) bool {
		now, ok := before[name]
		// An original that a failed attempt saved is valid only while the file still equals it.
		return isEntry(name) && !ok || !f.Record.Present && !now.Equal(record.Original)
	})
	for name, file := range records {
		switch {
		case file.Original.Present:
		case file.Left == loader.Digest(before[name]) && next.Trial.Printed == "":
			// grubby is about to change the file. Until the result is recorded, any content found there is grubby's work.
			records[name] = host.FileRecord{}
		case before[name].Present && !f.Record.Unfinished && (isManaged(file) || file.Left == loader.Digest(host.SavedFile{})):
			// There was no file, and another program has made it since.
			delete(records, name)
		}
	}
	for name, file := range before {
		if _, ok := records[name]; !ok && !holdsAny(file, managed) || name == loader.DefaultFile {
			records[name] = host.FileRecord{Original: file}
		}
	}
	return before, b.Facts.KeepFiles(records)
}

// isManaged reports whether there was no file before the change in progress, or only the agent's.
func isManaged(file host.FileRecord) bool { return !file.Original.Present && file.Left == "" }

// repairFiles restores files that an interrupted change may have damaged. These are /etc/default/grub, which no change may touch, the arguments of
// later kernels, and empty files. A file can be empty because the power failed before it was durable, or because grubby was killed while writing it.
func (b Loader) repairFiles(records map[string]host.FileRecord) error {
	if err := b.repairLater(records); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		now, err := b.FS.SaveFile(name)
		if err != nil {
			return err
		}
		original := records[name].Original
		empty := now.Present && now.Link == "" && IsEmpty(now) && !now.Equal(original)
		if !empty && name != loader.DefaultFile {
			continue
		}
		if err := b.FS.RestoreFile(name, original); err != nil {
			return err
		}
	}
	return nil
}

// repairLater restores the arguments of later kernels to the copy from before grubby's run. If there was no file, it removes grubby's.
func (b Loader) repairLater(records map[string]host.FileRecord) error {
	name, err := b.FS.Resolve(LaterFile)
	if err != nil || !b.FS.Exists(EntryCopies) {
		return err
	}
	now, err := b.FS.SaveFile(name)
	before, copyErr := b.FS.SaveFile(CopyOf(LaterFile))
	if err := errors.Join(err, copyErr); err != nil {
		return err
	}
	record, ok := records[name]
	switch {
	case record.Left == loader.Digest(now):
		// The change was complete.
	case before.Present && now.Present:
		now.Data = before.Data
	case !before.Present && ok && isManaged(record):
		now = host.SavedFile{}
	}
	return b.FS.RestoreFile(name, now)
}

// IsEmpty reports whether a file has no content or its blocks were never written.
func IsEmpty(file host.SavedFile) bool { return len(bytes.Trim(file.Data, "\x00")) == 0 }

// RestoreFiles restores the files to their state before a failed change. It also removes files that the change created. Not grubby, but the removal of
// a kernel deletes an entry: it stays deleted.
func (b Loader) RestoreFiles(before map[string]host.SavedFile) error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !isEntry(name) || !before[name].Present || b.FS.Exists(name) {
			all = append(all, b.FS.RestoreFile(name, before[name]))
		}
	}
	return errors.Join(all...)
}

// CopyOf returns the path of the copy of an entry.
func CopyOf(entry string) string { return path.Join(EntryCopies, path.Base(entry)) }

// recordResults records grubby's result for files without an original. It drops the record of a file that another program has changed since.
func (b Loader) recordResults(before map[string]host.SavedFile) error {
	records := b.Facts.KeptFiles()
	for name, file := range records {
		if file.Original.Present {
			continue
		}
		now, err := b.FS.SaveFile(name)
		if err != nil {
			return err
		}
		// The record of a missing file also stays here, so that a later file is not the agent's. keepFiles drops the records of removed entries.
		if isForeign := before[name].Present && file.Left != "" && file.Left != loader.Digest(before[name]); now.Present && isForeign {
			delete(records, name)
		} else {
			records[name] = host.FileRecord{Left: loader.Digest(now)}
		}
	}
	return b.Facts.KeepFiles(records)
}

// revertFiles restores, byte by byte, every file that only the agent has changed. From the other files, grubby removes only the agent's arguments.
func (b Loader) revertFiles(ctx context.Context, f loader.Facts, next loader.Change, before map[string]host.SavedFile) error {
	records := b.Facts.KeptFiles()
	foreign := slices.DeleteFunc(slices.Clone(next.Stale), func(arg host.Argument) bool { return !anyOriginalHolds(records, arg) })
	next.Stale = argument.Without(next.Stale, foreign)
	restored, changed, err := b.restoreOriginals(f, records)
	if err != nil {
		return err
	}
	if len(changed) > 0 || b.isLeft(ctx, next.Stale) {
		err := b.runTool(ctx, f, next, before)
		if err == nil {
			// The tool has changed these files too.
			err = b.RestoreFiles(restored)
		}
		if err != nil {
			return err
		}
	}
	if err := b.checkEntries(ctx, f, nil, next.Stale); err != nil {
		return err
	}
	b.ChangedByOthers = changed
	return b.Disown(f, foreign)
}

// isLeft reports whether an entry still passes one of the arguments, or a later kernel would.
func (b Loader) isLeft(ctx context.Context, stale []host.Argument) bool {
	made, err := b.ReadMenu(ctx)
	if err != nil || made.FindProblem(nil, stale) != "" {
		return true
	}
	later, err := b.FS.SaveFile(LaterFile)
	return err != nil || holdsAny(later, stale)
}

// restoreOriginals restores and returns the files that only the agent has changed. It also returns the names of files that others changed too.
func (b Loader) restoreOriginals(f loader.Facts, records map[string]host.FileRecord) (restored map[string]host.SavedFile, changed []string, err error) {
	restored = map[string]host.SavedFile{}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		now, err := b.FS.SaveFile(name)
		if err != nil {
			return nil, nil, err
		}
		switch file := records[name]; {
		case now.Equal(file.Original):
			restored[name] = file.Original
		case !now.Present:
			// Another program has removed it. It stays removed.
		case isManagedAlone(file, now, f.ManagedArguments()), isReplacedLink(name, records, now, f.ManagedArguments()):
			restored[name] = file.Original
			err = b.FS.RestoreFile(name, file.Original)
		case holdsAny(now, f.ManagedArguments()) || !file.Original.Present:
			changed = append(changed, name)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return restored, changed, nil
}

func anyOriginalHolds(records map[string]host.FileRecord, arg host.Argument) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(records)), func(name string) bool {
		return isEntry(name) && holdsAny(records[name].Original, []host.Argument{arg})
	})
}

// holdsAny reports whether a file has one of the arguments. In an addon, zeros surround them.
func holdsAny(file host.SavedFile, args []host.Argument) bool {
	return slices.ContainsFunc(strings.Fields(strings.ReplaceAll(string(file.Data), "\x00", " ")), func(word string) bool { return argument.Has(args, host.NewArgument(word)) })
}

// isManagedAlone reports whether a file differs from its original only by the agent's arguments and blanks, or was created for the agent.
func isManagedAlone(file host.FileRecord, now host.SavedFile, managed []host.Argument) bool {
	if !file.Original.Present {
		return isManaged(file) || file.Left == loader.Digest(now)
	}
	return file.Original.Link == now.Link && slices.EqualFunc(linesOf(file.Original, managed), linesOf(now, managed), slices.Equal)
}

// isReplacedLink reports whether "sed -i", which grubby uses, has replaced a link with a file.
func isReplacedLink(name string, records map[string]host.FileRecord, now host.SavedFile, managed []host.Argument) bool {
	target := records[name].Original.Link
	if target == "" || now.Link != "" {
		return false
	}
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(name), target)
	}
	record, ok := records[target]
	return ok && slices.EqualFunc(linesOf(record.Original, managed), linesOf(now, managed), slices.Equal)
}

// linesOf returns the words of each line without the agent's arguments. It ignores the padding of an environment block, and the variable that
// GRUB leaves empty after a trial.
func linesOf(file host.SavedFile, managed []host.Argument) [][]string {
	var lines [][]string
	for line := range strings.Lines(strings.TrimRight(string(file.Data), "#")) {
		if line == grubcfg.NextEntry+"=\n" {
			continue
		}
		words := strings.Fields(line)
		lines = append(lines, slices.DeleteFunc(words, func(word string) bool { return argument.Has(managed, host.NewArgument(word)) }))
	}
	return lines
}

// EntryCopies is the directory of copies of the entries, which grubby changes. GRUB does not read it.
const EntryCopies = "/boot/loader/storage-client"
