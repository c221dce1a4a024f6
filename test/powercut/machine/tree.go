package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/storageclient/operator/agent/host/hosttest"
)

// entries is the directory of the boot loader entries.
const entries = "boot/loader/entries"

// LayTree copies the tree of a host, and saves its content from before the first change: /proc becomes /pristine, and copies of /boot and
// /etc go to /pristine-host. A tree with boot loader entries gets the files in which grubby leaves traces. Any other tree gets a menu from
// the grub-mkconfig that the agent will run.
func LayTree(tree, host string) error {
	if err := os.CopyFS(host, os.DirFS(tree)); err != nil {
		return err
	}
	lay := makeMenu
	if _, err := os.Stat(filepath.Join(host, entries)); err == nil {
		lay = layTraces
	}
	if err := lay(host); err != nil {
		return err
	}
	for _, name := range []string{"boot", "etc"} {
		if err := os.CopyFS(filepath.Join(host, "pristine-host", name), os.DirFS(filepath.Join(host, name))); err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(host, "proc"), filepath.Join(host, "pristine")); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(host, "proc"), 0o755)
}

func makeMenu(host string) error {
	_, err := (&hosttest.Commands{Dir: host}).Run(context.Background(), "grub-mkconfig", "-o", grubCfg)
	return err
}

// layTraces adds the files in which grubby leaves traces: a second entry with runs of blanks, and an /etc/default/grub with a line that
// grubby mistakes for another. This grubby has no option to skip that file.
func layTraces(host string) error {
	found, err := filepath.Glob(filepath.Join(host, entries, "*.conf"))
	if err != nil || len(found) != 1 {
		return errors.Join(err, fmt.Errorf("%d boot entries in the tree, want one", len(found)))
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	second := strings.ReplaceAll(string(data), " ro ", "  ro   ")
	if err := os.WriteFile(strings.TrimSuffix(found[0], ".conf")+"-second.conf", []byte(second), 0o644); err != nil {
		return err
	}
	for _, dir := range []string{"etc/default", "etc/kernel"} {
		if err := os.MkdirAll(filepath.Join(host, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(host, "usr/sbin/grubby"), []byte("stands in for a command\n"), 0o755); err != nil {
		return err
	}
	defaults := "GRUB_CMDLINE_LINUX=\"quiet\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"loglevel=3  splash\"\n"
	return os.WriteFile(filepath.Join(host, "etc/default/grub"), []byte(defaults), 0o644)
}
