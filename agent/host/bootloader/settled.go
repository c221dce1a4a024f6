package bootloader

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

const (
	// settleTries and settlePause are the number of reads, and the pause between them, while another program is writing a menu. grub-mkconfig copies
	// a new menu into the file in place, which takes milliseconds.
	settleTries = 10
	settlePause = 100 * time.Millisecond
)

var errBusy = errors.New("another program is writing it; the agent reads it again at the next check")

// readSettled reads a menu when no program is writing it. It waits up to a second.
func (g grubBase) readSettled(name string) ([]byte, error) {
	for try := 1; ; try++ {
		data, err := g.readOnce(name)
		if !errors.Is(err, errBusy) || try == settleTries {
			return data, err
		}
		g.pause(settlePause)
	}
}

// readOnce reads a file twice. The file is busy if the two reads differ, or if it is the start of the menu that grub-mkconfig is copying.
func (g grubBase) readOnce(name string) ([]byte, error) {
	data, err := g.readFile(name)
	if err != nil {
		return nil, err
	}
	second, err := g.readFile(name)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(data, second) || g.isBeingCopied(name, data) {
		return nil, fmt.Errorf("read %s: %w", name, errBusy)
	}
	return data, nil
}

// isBeingCopied reports whether a file is only the start of grub-mkconfig's new menu next to it. grub-mkconfig removes the new menu once it is
// completely copied.
func (g grubBase) isBeingCopied(name string, data []byte) bool {
	made, err := g.fs.ReadFile(name + ".new")
	return err == nil && len(data) < len(made) && bytes.HasPrefix(made, data)
}
