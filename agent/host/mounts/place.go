package mounts

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/storageclient/operator/agent/host"
)

// Place is a directory for files of ours that are to outlast a boot.
type Place struct {
	files host.FS
	dir   string
	// refused is why the last write was refused; empty where it was not.
	refused string
	// unwritable and unkept are what the mount table says; isRead is false until they are known.
	isRead             bool
	unwritable, unkept string
}

// NewPlace returns the place for files in a directory, which need not be there.
func NewPlace(files host.FS, dir string) *Place { return &Place{files: files, dir: dir} }

// NoteWrite takes the outcome of a write. That the directory takes none is remembered and no error: see WhyNotWritable.
func (p *Place) NoteWrite(err error) error {
	p.refused = ""
	p.Refresh()
	if !errors.Is(err, syscall.EROFS) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if p.refused = p.WhyNotWritable(); p.refused == "" {
		p.refused = p.dir + " cannot be written: " + err.Error()
		if errors.Is(err, syscall.EROFS) {
			p.refused = topOf(p.dir) + " is read-only"
		}
	}
	return nil
}

// WhyNotWritable says that no file can be made there; empty where one can, as far as the mount table and the last write tell.
func (p *Place) WhyNotWritable() string {
	if p.refused != "" {
		return p.refused
	}
	p.readTable()
	return p.unwritable
}

// WhyNotKept says that files there are gone after a boot, or cannot be made at all; empty where they last. What keeps an overlay's
// changes is the file system of its upper directory.
func (p *Place) WhyNotKept() string {
	if why := p.WhyNotWritable(); why != "" {
		return why
	}
	return p.unkept
}

// Refresh has the mount table read again when it is asked for the next time.
func (p *Place) Refresh() { p.isRead = false }

// readTable reads what the mount table says. Where it cannot be read, only a write tells.
func (p *Place) readTable() {
	if p.isRead {
		return
	}
	p.isRead, p.unwritable, p.unkept = true, "", ""
	if p.files.IsImage() {
		return
	}
	data, err := p.files.ReadFile(mountinfoFile)
	if err != nil {
		return
	}
	lines, _ := parseMountinfo(string(data))
	line, name := p.mountOf(lines, p.dir)
	if slices.Contains(line.flags, "ro") || slices.Contains(line.super, "ro") {
		p.unwritable = name + " is read-only"
	}
	if upper := optionValue(line.super, "upperdir"); line.fsType == "overlay" && upper != "" {
		line, _ = p.mountOf(lines, upper)
	}
	if line.fsType == "tmpfs" || line.fsType == "ramfs" {
		p.unkept = name + " is kept in memory"
	}
}

// mountOf is the mount that holds a directory, and how to call what it covers.
func (p *Place) mountOf(lines []mountLine, dir string) (line mountLine, name string) {
	if resolved, err := p.files.Resolve(dir); err == nil {
		dir = resolved
	}
	for _, l := range lines {
		holds := l.point == "/" || dir == l.point || strings.HasPrefix(dir, l.point+"/")
		// Of two on one mount point the later one is on top.
		if holds && len(l.point) >= len(line.point) {
			line = l
		}
	}
	if line.point == "/" {
		return line, topOf(dir)
	}
	return line, line.point
}

// topOf is the first directory of a path: /etc of /etc/sysctl.d.
func topOf(dir string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	return "/" + first
}
