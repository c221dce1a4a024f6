package bootloader

import (
	"fmt"
	"path"
)

// spareSpace is the space, in bytes, that must be free in addition to the files that staging writes. It is for their directory, for grubenv and for
// the blocks of the file system itself.
const spareSpace = 64 << 10

// checkFreeSpace returns an error if the file system of the boot menu is read-only or has too little space for staging. It runs before any change.
// A new menu temporarily exists twice next to the present one: as grub-mkconfig's file and as the agent's.
func (s *Subject) checkFreeSpace(f state) error {
	dir := path.Dir(f.loader.menuFile())
	space, err := s.space(dir)
	if err != nil {
		return err
	}
	if space.ReadOnly {
		return fmt.Errorf("%s is on a file system that is mounted read-only", dir)
	}
	names, err := s.fs.Glob(dir, "*")
	if err != nil {
		return err
	}
	need := uint64(spareSpace)
	for _, name := range names {
		info, err := s.fs.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if path.Ext(name) == ".cfg" || path.Ext(name) == ".conf" {
			need += 2 * uint64(info.Size())
		}
	}
	if space.Free < need {
		return fmt.Errorf("%s has %d KiB left, staging needs %d KiB: remove unused kernels", dir, space.Free>>10, need>>10)
	}
	return nil
}
