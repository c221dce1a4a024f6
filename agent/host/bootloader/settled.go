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

// maxHold is the maximum time during which temporary obstacles to staging are no failure. An installation of a kernel takes 20 to 60 seconds, mostly for
// its initramfs.
const maxHold = 5 * time.Minute

// temporaryError is the reason why arguments cannot be staged now, e.g. because a package manager is installing a kernel.
type temporaryError struct{ error }

// hold reports whether a failure is temporary, and has not lasted too long.
func (s *Subject) hold(err error) bool {
	var temporary temporaryError
	if s.delay = ""; !errors.As(err, &temporary) {
		s.delayEnd = 0
		return false
	}
	now, err := s.bootClock.SinceBoot()
	if s.delayEnd == 0 {
		s.delayEnd = now + maxHold
	}
	if err == nil && now < s.delayEnd {
		s.delay = oneLine(temporary.Error())
	}
	return s.delay != ""
}

var errBusy = errors.New("another program is writing it; the agent reads it again at the next check")

// readSettled reads a menu when no program is writing it. It waits up to a second.
func (s *Subject) readSettled(name string) ([]byte, error) {
	for try := 1; ; try++ {
		data, err := s.readOnce(name)
		if !errors.Is(err, errBusy) || try == settleTries {
			return data, err
		}
		s.pause(settlePause)
	}
}

// readOnce reads a file twice. The file is busy if the two reads differ, or if it is the start of the menu that grub-mkconfig is copying.
func (s *Subject) readOnce(name string) ([]byte, error) {
	data, err := s.readFile(name)
	if err != nil {
		return nil, err
	}
	second, err := s.readFile(name)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(data, second) || s.isBeingCopied(name, data) {
		return nil, fmt.Errorf("read %s: %w", name, errBusy)
	}
	return data, nil
}

// isBeingCopied reports whether a file is only the start of grub-mkconfig's new menu next to it. grub-mkconfig removes the new menu once it is
// completely copied.
func (s *Subject) isBeingCopied(name string, data []byte) bool {
	made, err := s.fs.ReadFile(name + ".new")
	return err == nil && len(data) < len(made) && bytes.HasPrefix(made, data)
}
