package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/powercut/machine"
)

func TestThePrototypeOfATree(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"etc/a": 0o600, "b": 0o644} {
		check.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		check.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	check.NoError(t, os.Symlink("../b", filepath.Join(dir, "etc/l")))
	got, err := protoOf(dir)
	want := strings.ReplaceAll("/none\n0 0\nd--755 0 0\nb ---644 0 0 DIR/b\netc d--755 0 0\na ---600 0 0 DIR/etc/a\nl l--777 0 0 ../b\n$\n$\n", "DIR", dir)
	if err != nil || got != want {
		t.Errorf("got error %v,\n%s\nwant\n%s", err, got, want)
	}
}

func TestTheTreeOfADisk(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host")
	check.NoError(t, machine.LayTree("../fixtures/hosts/rocky-9", host))
	for _, name := range []string{"pristine/sys/net/core/rmem_max", "pristine-host/etc/default/grub", "etc/default/grub"} {
		if _, err := os.Stat(filepath.Join(host, name)); err != nil {
			t.Error(err)
		}
	}
	found, err := filepath.Glob(filepath.Join(host, "pristine-host", "boot/loader/entries", "*.conf"))
	if err != nil || len(found) != 2 {
		t.Errorf("got entries %v, %v", found, err)
	}
}
