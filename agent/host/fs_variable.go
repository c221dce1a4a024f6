package host

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// immutableFlag is FS_IMMUTABLE_FL of linux/fs.h.
const immutableFlag = 0x10

// WriteVariable writes a file of efivarfs in one write, as the kernel requires, or removes it if data is empty. The data starts with four bytes of
// attributes. The kernel makes most variables immutable: WriteVariable clears that flag first. It never truncates: new data must not be shorter than
// the old.
func (f FS) WriteVariable(name string, data []byte) error {
	rel, err := f.resolveLinks(name, true)
	if err != nil {
		return err
	}
	if err := f.clearImmutable(rel); err != nil {
		return nameError(err, name)
	}
	if len(data) == 0 {
		return nameError(f.removeOne(rel), name)
	}
	if err := f.callHook(OpWriteValue, name); err != nil {
		return err
	}
	file, err := f.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nameError(err, name)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err != nil {
		return nameError(err, name)
	}
	return f.syncDir(path.Dir(rel))
}

// clearImmutable ignores a file system without such flags.
func (f FS) clearImmutable(rel string) error {
	file, err := f.root.Open(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	flags, err := unix.IoctlGetUint32(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&immutableFlag == 0 {
		return nil
	}
	if err := f.callHook(OpChmod, "/"+rel); err != nil {
		return err
	}
	return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags&^immutableFlag))
}
