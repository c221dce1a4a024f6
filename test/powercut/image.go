package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/test/powercut/machine"
)

// diskSizes are the sizes of the disk by file system, in MiB. mkfs.xfs requires at least 300.
var diskSizes = map[string]int{"ext4": 32, "xfs": 320}

// makeImage creates a file system with the tree. The files below /proc go to /pristine, from which the guest creates a /proc at each boot.
// A copy of /boot and /etc goes to /pristine-host. The guest compares restored files with it.
func makeImage(ctx context.Context, fileSystem, tree, dir string) ([]byte, error) {
	size, known := diskSizes[fileSystem]
	if !known {
		return nil, fmt.Errorf("no disk with %q: use ext4 or xfs", fileSystem)
	}
	host, name := filepath.Join(dir, "host"), filepath.Join(dir, "disk")
	if err := machine.LayTree(tree, host); err != nil {
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
	if _, err := os.Stat(host + machine.EFIPartition); err == nil {
		return addPartition(ctx, name, host+machine.EFIPartition)
	}
	// The image stays in memory, so that a cut does not wait for the disk of this machine.
	return os.ReadFile(name)
}

// addPartition returns a disk with two partitions: the file system, and VFAT with the files of a directory.
func addPartition(ctx context.Context, name, files string) ([]byte, error) {
	const size, start, sector = 40 << 20, 1 << 20, 512
	partition := name + "-efi"
	script := `truncate -s "$2" "$1" && mkfs.vfat -F 32 "$1" && mcopy -s -i "$1" "$3"/* ::`
	if out, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", partition, strconv.Itoa(size), files).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make the EFI partition: %w: %s", err, out)
	}
	first, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	second, err := os.ReadFile(partition)
	if err != nil {
		return nil, err
	}
	table := make([]byte, start)
	at := start
	for i, part := range []struct {
		kind byte
		data []byte
	}{{0x83, first}, {0x0c, second}} {
		entry := table[446+16*i:]
		entry[4] = part.kind
		binary.LittleEndian.PutUint32(entry[8:], uint32(at/sector))
		binary.LittleEndian.PutUint32(entry[12:], uint32(len(part.data)/sector))
		at += len(part.data)
	}
	table[510], table[511] = 0x55, 0xaa
	return slices.Concat(table, first, second), nil
}

// protoOf returns the prototype from which mkfs.xfs fills a file system (mkfs.xfs(8), option -p).
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
