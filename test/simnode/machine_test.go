package simnode

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/test/check"
)

// facts contains the recorded facts of one boot.
type facts map[string]string

func (f facts) BootFact(boot, name string) (string, bool) {
	value, ok := f[boot+name]
	return value, ok
}

func (f facts) SetBootFact(boot, name, value string) error { f[boot+name] = value; return nil }

func (f facts) KeptFiles() map[string]host.FileRecord { return nil }

func (f facts) KeepFiles(map[string]host.FileRecord) error { return nil }

func TestAMachineRecoversFromAnArgumentThatHangsIt(t *testing.T) {
	m, err := NewMachine(t.TempDir(), Options{HangingArguments: []string{"ihash_entries"}})
	check.NoError(t, err)
	fs, err := host.OpenFS(m.dir)
	check.NoError(t, err)
	defer fs.Close()
	subject := life.New(fs, commands{m}, facts{}, nil, bootloader.Kinds)
	for _, attended := range []bool{true, false} {
		subject.Attend(attended)
		for _, settings := range [][]host.Setting{{{Name: "ihash_entries", Value: "1048576"}}, nil} {
			check.NoError(t, subject.Apply(t.Context(), settings))
			err := m.Boot()
			line, _ := m.Read("/proc/cmdline")
			if hangs := settings != nil && !attended; (err != nil) != hangs || strings.Contains(line, "ihash") {
				t.Errorf("attended %t, %v: %q, %v", attended, settings, line, err)
			}
		}
	}
}
