package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// diskSizes are those of the disk by its file system, in MiB. mkfs.xfs makes none of less than 300.
var diskSizes = map[string]int{"ext4": 32, "xfs": 320}

// entries is where a tree with boot loader entries has them.
const entries = "boot/loader/entries"

// makeImage makes a file system that holds the tree. What is below /proc there goes to /pristine, from which the guest makes
// a /proc at each boot, and a copy of /boot and /etc to /pristine-host, with which it compares what it has put back.
func makeImage(ctx context.Context, fileSystem, tree, dir string) ([]byte, error) {
	size, known := diskSizes[fileSystem]
	if !known {
		return nil, fmt.Errorf("no disk with %q: use ext4 or xfs", fileSystem)
	}
	host, name := filepath.Join(dir, "host"), filepath.Join(dir, "disk")
	if err := layTree(tree, host); err != nil {
		return nil, err
	}
	argv := []string{"mke2fs", "-q", "-F", "-t", "ext4", "-b", strconv.Itoa(block), "-d", host, name, strconv.Itoa(size) + "M"}
	if fileSystem == "xfs" {
		proto := filepath.Join(dir, "proto")
		text, err := protoOf(host)
		if err == nil {
			err = os.WriteFile(proto, []byte(text), 0o600)
		}
		if err != nil {
			return nil, err
		}
		argv = []string{"mkfs.xfs", "-q", "-f", "-b", "size=" + strconv.Itoa(block), "-p", proto, "-d", fmt.Sprintf("file=1,name=%s,size=%dm", name, size)}
	}
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", argv[0], err, out)
	}
	// A cut must not wait for the disk of the machine that this runs on: the image is read into memory, and stays there.
	return os.ReadFile(name)
}

func layTree(tree, host string) error {
	if err := os.CopyFS(host, os.DirFS(tree)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(host, entries)); err == nil {
		if err := layTraces(host); err != nil {
			return err
		}
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

// layTraces gives a tree with boot loader entries what grubby leaves traces in: a second entry with runs of blanks, and an
// /etc/default/grub with a line that it takes for another.
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
	if err := os.MkdirAll(filepath.Join(host, "etc/default"), 0o755); err != nil {
		return err
	}
	defaults := "GRUB_CMDLINE_LINUX=\"quiet\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"loglevel=3  splash\"\n"
	return os.WriteFile(filepath.Join(host, "etc/default/grub"), []byte(defaults), 0o644)
}

// protoOf is the prototype from which mkfs.xfs fills a file system (mkfs.xfs(8), option -p).
func protoOf(host string) (string, error) {
	var b strings.Builder
	b.WriteString("/none\n0 0\nd--755 0 0\n")
	if err := addProto(&b, host); err != nil {
		return "", err
	}
	b.WriteString("$\n")
	return b.String(), nil
}

func addProto(b *strings.Builder, dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range list {
		name := filepath.Join(dir, entry.Name())
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			fmt.Fprintf(b, "%s d--%03o 0 0\n", entry.Name(), info.Mode().Perm())
			if err := addProto(b, name); err != nil {
				return err
			}
			b.WriteString("$\n")
		case entry.Type() == os.ModeSymlink:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "%s l--777 0 0 %s\n", entry.Name(), target)
		default:
			fmt.Fprintf(b, "%s ---%03o 0 0 %s\n", entry.Name(), info.Mode().Perm(), name)
		}
	}
	return nil
}
