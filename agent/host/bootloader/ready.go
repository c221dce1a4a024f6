package bootloader

import (
	"fmt"
	"path"
)

// spareSpace is what has to be free beyond the files that staging writes, in bytes: room for their directory, for
// grubenv and for the file system's own blocks.
const spareSpace = 64 << 10

// roomToStage says why nothing can be staged on the file system of the boot menu, before anything is touched there. A
// new menu stands twice beside the present one for a moment, grub-mkconfig's own and ours.
func (s *Subject) roomToStage(f facts) error {
	dir := f.loader.bootDir()
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
