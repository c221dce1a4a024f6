package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/test/check"
)

// CLOCK_BOOTTIME is never behind CLOCK_MONOTONIC, which stops while the machine is suspended. The wall clock is decades ahead.
func TestTheBootClockCountsFromTheBoot(t *testing.T) {
	var monotonic unix.Timespec
	check.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic))
	first, err := SystemBootClock{}.SinceBoot()
	check.NoError(t, err)
	second, err := SystemBootClock{}.SinceBoot()
	check.NoError(t, err)
	const decades = 20 * 365 * 24 * time.Hour
	if first < time.Duration(monotonic.Nano()) || second < first || second > decades {
		t.Errorf("since the boot: %s, then %s; CLOCK_MONOTONIC before: %s", first, second, time.Duration(monotonic.Nano()))
	}
}

func TestUptime(t *testing.T) {
	for name, test := range map[string]struct {
		file   string
		want   time.Duration
		failed bool
	}{
		"the first number is the uptime":           {file: "1000.52 4021.00\n", want: 1000*time.Second + 520*time.Millisecond},
		"the second number may be missing":         {file: "7\n", want: 7 * time.Second},
		"a host without the file has no uptime":    {},
		"text in the file is an error, not zero":   {file: "text 4021.00\n", failed: true},
		"a blank file is an error, and not a boot": {file: "\n", failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			check.NoError(t, os.Mkdir(filepath.Join(dir, "proc"), 0o755))
			if test.file != "" {
				check.NoError(t, os.WriteFile(filepath.Join(dir, uptimeFile), []byte(test.file), 0o644))
			}
			files, err := OpenFS(dir)
			check.NoError(t, err)
			got, err := files.Uptime()
			if isNamed := err != nil && strings.Contains(err.Error(), uptimeFile); got != test.want || isNamed != test.failed {
				t.Errorf("got %s, %v; want %s, error with the file's name: %t", got, err, test.want, test.failed)
			}
		})
	}
}
