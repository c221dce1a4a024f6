package mounts

// Entry is one line of the host's mount table, whatever its type.
type Entry struct {
	// Device is the superblock's major:minor.
	Device string
	// Root is the directory of the file system that is mounted; "/" unless it is a bind mount of a part.
	Root string
	// Point is where it is mounted, as process 1 sees it.
	Point string
	// FSType and Source are type and source.
	FSType, Source string
	// Flags are the mount's own options, Super those of its superblock.
	Flags, Super []string
}

// Entries reads the whole mount table, in its order: of two lines with one mount point the later one is on top. Lines
// that cannot be read are left out.
func (r Reader) Entries() ([]Entry, error) {
	lines, _, err := r.mountinfo()
	entries := make([]Entry, 0, len(lines))
	for _, l := range lines {
		entries = append(entries, Entry{
			Device: l.device, Root: l.root, Point: l.point, FSType: l.fsType, Source: l.source, Flags: l.flags, Super: l.super,
		})
	}
	return entries, err
}
