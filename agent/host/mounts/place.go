package mounts

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/storageclient/operator/agent/host"
)

// Place is a directory for files of the agent that must survive a boot.
type Place struct {
	files host.FS
	dir   string
	// rejection is the reason why the last write was rejected. Empty if it was not.
	rejection string
	// unwritable and unkept are the findings from the mount table. isRead is false until they are known.
	isRead                    bool
	unwritable, notPersistent string
}

// NewPlace returns the place for files in a directory, which need not exist.
func NewPlace(files host.FS, dir string) *Place { return &Place{files: files, dir: dir} }

// RecordWrite records the result of a write. A directory that cannot be written is recorded and is not an error: see WriteProblem.
func (p *Place) RecordWrite(err error) error {
	p.rejection = ""
	p.Refresh()
	if !errors.Is(err, syscall.EROFS) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if p.rejection = p.WriteProblem(); p.rejection == "" {
		p.rejection = p.dir + " cannot be written: " + err.Error()
		if errors.Is(err, syscall.EROFS) {
			p.rejection = topOf(p.dir) + " is read-only"
		}
	}
	return nil
}

// WriteProblem returns the reason why no file can be made in the directory. Empty if the mount table and the last write show no reason.
func (p *Place) WriteProblem() string {
	if p.rejection != "" {
		return p.rejection
	}
	p.readTable()
	return p.unwritable
}

// PersistenceProblem returns the reason why files in the directory are lost at a boot, or cannot be made. Empty if they survive.
func (p *Place) PersistenceProblem() string {
	reason := p.WriteProblem()
	return cmp.Or(reason, p.notPersistent)
}

// Refresh makes the next use read the mount table again.
func (p *Place) Refresh() { p.isRead = false }

// readTable reads the mount table. If that fails, only a write can show a problem.
func (p *Place) readTable() {
	if p.isRead {
		return
	}
	p.isRead, p.unwritable, p.notPersistent = true, "", ""
	if p.files.IsImage() {
		return
	}
	data, err := p.files.ReadFile(mountinfoFile)
	if err != nil {
		return
	}
	lines, _ := parseMountinfo(string(data))
	line, name := p.mountOf(lines, p.dir)
	if slices.Contains(line.Flags, "ro") || slices.Contains(line.Super, "ro") {
		p.unwritable = name + " is read-only"
	}
	// An overlay keeps its changes on the file system of its upper directory.
	if upper := OptionValue(line.Super, "upperdir"); line.FSType == "overlay" && upper != "" {
		line, _ = p.mountOf(lines, upper)
	}
	if line.FSType == "tmpfs" || line.FSType == "ramfs" {
		p.notPersistent = name + " is kept in memory"
	}
}

// mountOf returns the mount that contains a directory, and the name of that mount for messages.
func (p *Place) mountOf(lines []Entry, dir string) (line Entry, name string) {
	if resolved, err := p.files.Resolve(dir); err == nil {
		dir = resolved
	}
	if line = mountOf(lines, dir); line.Point == "/" {
		return line, topOf(dir)
	}
	return line, line.Point
}

// topOf returns the first directory of a path: /etc for /etc/sysctl.d.
func topOf(dir string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	return "/" + first
}
