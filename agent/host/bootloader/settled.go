package bootloader

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

const (
	// settleTries and settlePause are how often, and after what time, a menu is read again that somebody is writing:
	// grub-mkconfig copies a new one into the file in place, which takes milliseconds.
	settleTries = 10
	settlePause = 100 * time.Millisecond
)

// errBusy means that somebody is writing a file at this moment.
var errBusy = errors.New("somebody is writing it: it is read again at the next check")

// readSettled reads a menu that nobody is writing. Where somebody is, it waits up to a second.
func (s *Subject) readSettled(name string) ([]byte, error) {
	for try := 1; ; try++ {
		data, err := s.readOnce(name)
		if !errors.Is(err, errBusy) || try == settleTries {
			return data, err
		}
		s.pause(settlePause)
	}
}

// readOnce reads a file twice. It is busy where that differs, and where it is the beginning of what grub-mkconfig is copying.
func (s *Subject) readOnce(name string) ([]byte, error) {
	data, err := s.readFile(name)
	if err != nil {
		return nil, err
	}
	again, err := s.readFile(name)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(data, again) || s.isBeingCopied(name, data) {
		return nil, fmt.Errorf("read %s: %w", name, errBusy)
	}
	return data, nil
}

// isBeingCopied tells whether a file holds the beginning of what grub-mkconfig has made beside it, and takes away once all of
// it is in place.
func (s *Subject) isBeingCopied(name string, data []byte) bool {
	made, err := s.fs.ReadFile(name + ".new")
	return err == nil && len(data) < len(made) && bytes.HasPrefix(made, data)
}
