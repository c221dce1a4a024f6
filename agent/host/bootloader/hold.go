package bootloader

import (
	"errors"
	"time"
)

// maxHold is the maximum time during which temporary obstacles to staging are no failure. An installation of a kernel takes 20 to 60 seconds, mostly for
// its initramfs.
const maxHold = 5 * time.Minute

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
