package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host/mounts"
)

const (
	names       = 20000
	directories = 50
	listings    = 2000
	// small is a reply, in bytes, that a client with the fix does not ask for in a large directory.
	small = 32 << 10
)

// inside are the names in each directory.
var inside = []string{"one", "two", "three"}

// tryReclaim reads whether the multi-generational LRU is on, and turns it off.
func tryReclaim(*machine) (finding, error) {
	const file = "/sys/kernel/mm/lru_gen/enabled"
	before, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return finding{measured: file + " is absent"}, nil
	}
	if err != nil {
		return finding{}, err
	}
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		return finding{}, err
	}
	after, err := os.ReadFile(file)
	if err == nil && string(after) != "0x0000\n" {
		err = fmt.Errorf("the cure leaves %s", after)
	}
	return finding{appears: string(before) != "0x0000\n", measured: fmt.Sprintf("%q, with the cure %q", before, after)}, errors.Join(err, os.WriteFile(file, before, 0o600))
}

// mountXFS reports whether the kernel mounts a new file system, with its last log lines.
func mountXFS(format string) (finding, error) {
	const image = "/tmp/xfs"
	err := script("rm -f " + image + "; truncate -s 400M " + image + "; " + format + " " + image)
	if err != nil {
		return finding{}, err
	}
	_, failure := do("mount", "-t", "xfs", "-o", "loop", image, "/mnt/c")
	if failure == nil {
		err = script("umount /mnt/c")
	}
	log, logErr := do("sh", "-c", "dmesg | grep XFS | sed 's/.*: //' | tail -n 3")
	return finding{appears: failure != nil, measured: fmt.Sprintf("%v; log: %s", failure, strings.Join(strings.Fields(log), " ")), protocol: "xfs"}, errors.Join(err, logErr)
}

func tryWithoutChecksums(*machine) (finding, error) {
	found, err := mountXFS("mkfs.xfs -q -m crc=0")
	built, configErr := do("sh", "-c", "grep XFS_SUPPORT_V4 /boot/config-$(uname -r)")
	found.isUnsigned = strings.HasPrefix(built, "CONFIG_XFS_SUPPORT_V4=y")
	found.measured += "; built with " + strings.TrimSpace(built)
	return found, errors.Join(err, configErr)
}

// tryNewerFormat sets the feature of exchanged ranges, which a new mkfs.xfs sets and the one of Debian 12 does not know.
func tryNewerFormat(*machine) (finding, error) {
	return mountXFS("newer() { mkfs.xfs -q $1; xfs_db -x -c 'sb 0' -c 'write -d features_incompat 0x4b' $1; }; newer")
}

// tryReadOnly writes through a bind mount without ro of a mount with ro, as in a container.
func tryReadOnly(version string) func(*machine) (finding, error) {
	return func(m *machine) (finding, error) {
		var found finding
		unmount, err := mountAt("/mnt/a", "/srv/knfsd", "ro,nolock,vers="+version)
		if err != nil {
			return found, err
		}
		err = errors.Join(m.with(&found, "/mnt/a"), script("mount --bind /mnt/a /mnt/b; mount -o remount,bind,rw /mnt/b"))
		written := os.WriteFile("/mnt/b/written", []byte(version), 0o600)
		found.appears = written == nil
		super, infoErr := do("sh", "-c", "grep ' /mnt/b ' /proc/self/mountinfo | sed 's/.* //; s/,.*//'")
		found.measured = fmt.Sprintf("version %s: the superblock is %s, a write: %v", version, strings.TrimSpace(super), written)
		return found, errors.Join(err, infoErr, script("umount /mnt/b"), unmount())
	}
}

// operation returns the counters of an operation of the mount at a point.
func operation(point, name string) (mounts.Operation, error) {
	stats, err := os.ReadFile("/proc/self/mountstats")
	for _, o := range mounts.CountsAt(string(stats), point) {
		if o.Name == name {
			return o, err
		}
	}
	return mounts.Operation{}, err
}

// tryListing lists a large directory with a cold cache.
func tryListing(version string) func(*machine) (finding, error) {
	return func(m *machine) (finding, error) {
		var found finding
		unmount, err := mountAt("/mnt/a", "/srv/knfsd", "nolock,vers="+version)
		if err != nil {
			return found, err
		}
		err = errors.Join(m.with(&found, "/mnt/a"), script("sync; echo 3 >/proc/sys/vm/drop_caches"))
		dir, openErr := os.Open("/mnt/a")
		if openErr != nil {
			return found, openErr
		}
		all, readErr := dir.Readdirnames(-1)
		err = errors.Join(err, readErr, dir.Close())
		if len(all) < names {
			err = errors.Join(err, fmt.Errorf("got %d names", len(all)))
		}
		for _, name := range []string{"READDIR", "READDIRPLUS"} {
			o, opErr := operation("/mnt/a", name)
			err = errors.Join(err, opErr)
			if o.Count > 0 {
				found.appears = found.appears || o.Count > 1 && o.BytesReceived/o.Count < small
				found.measured += fmt.Sprintf("version %s: %d %s of %d bytes; ", version, o.Count, name, o.BytesReceived/o.Count)
			}
		}
		return found, errors.Join(err, unmount())
	}
}

// contents are contents with and without holes.
func contents() map[string][]byte {
	random := make([]byte, 3<<20)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(random)
	holes := make([]byte, 3<<20)
	copy(holes[100<<10:], random[:5000])
	copy(holes[2<<20:], random[:300<<10])
	return map[string][]byte{"random": random, "short": random[:700], "holes": holes, "end": append(make([]byte, 1<<20), random[:10]...)}
}

// tryReadPlus writes through one mount and reads through another.
func tryReadPlus(m *machine) (finding, error) {
	var found finding
	for _, version := range []string{"4.1", "4.2"} {
		different, used, err := writeAndRead(m, &found, version)
		if err != nil {
			return found, err
		}
		found.appears = len(different) > 0
		found.measured += fmt.Sprintf("version %s: %d READ_PLUS with %d errors, different: %q; ", version, used.Count, used.Errors, different)
		if version == "4.1" && found.appears {
			return found, errors.New("the cure does not help: " + found.measured)
		}
	}
	return found, nil
}

func writeAndRead(m *machine, found *finding, version string) (different []string, used mounts.Operation, err error) {
	var unmount [2]func() error
	for i, point := range []string{"/mnt/a", "/mnt/b"} {
		if unmount[i], err = mountAt(point, "/ganesha", "nosharecache,vers="+version); err != nil {
			return nil, used, err
		}
	}
	for name, content := range contents() {
		file, err := os.Create("/mnt/a/" + name)
		if err != nil {
			return nil, used, err
		}
		err = file.Truncate(int64(len(content)))
		// Parts without data stay holes.
		for at := 0; at < len(content); at += 4096 {
			part := content[at:min(at+4096, len(content))]
			if !bytes.Equal(part, make([]byte, len(part))) {
				_, writeErr := file.WriteAt(part, int64(at))
				err = errors.Join(err, writeErr)
			}
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, used, err
		}
		read, err := os.ReadFile("/mnt/b/" + name)
		if err != nil || sha256.Sum256(read) != sha256.Sum256(content) {
			different = append(different, fmt.Sprintf("%s %d bytes, error %v", name, len(read), err))
		}
	}
	used, err = operation("/mnt/b", "READ_PLUS")
	return different, used, errors.Join(err, m.with(found, "/mnt/b"), script("rm -f /mnt/a/random /mnt/a/short /mnt/a/holes /mnt/a/end"), unmount[0](), unmount[1]())
}

// tryDelegations lists directories of Ganesha, with directory delegations as the kernel has them, off, and on again.
func tryDelegations(m *machine) (finding, error) {
	const parameter = "/sys/module/nfsv4/parameters/directory_delegations"
	found := finding{}
	value, err := os.ReadFile(parameter)
	if errors.Is(err, fs.ErrNotExist) {
		bad, text, err := listAll(m, &found, "4.2")
		found.appears, found.measured = bad > 0, "no parameter: "+text
		return found, err
	}
	if err != nil {
		return found, err
	}
	found.measured = fmt.Sprintf("the parameter is %s by default; ", bytes.TrimSpace(value))
	counts, signs := map[string]int{}, []string{}
	for _, step := range []struct{ name, value, version string }{
		{"default", string(value), "4.2"}, {"off", "N", "4.2"}, {"on again", "Y", "4.2"}, {"version 4.0", "Y", "4.0"},
	} {
		if err := os.WriteFile(parameter, []byte(step.value), 0o600); err != nil {
			return found, err
		}
		found.signs = nil
		bad, text, err := listAll(m, &found, step.version)
		if err != nil {
			return found, err
		}
		if shown := slices.Contains(found.signs, "nfs-dirdeleg-ganesha"); shown != (bad > 0) {
			return found, fmt.Errorf("%s: the agent sees a sign: %t; %s", step.name, shown, text)
		}
		counts[step.name] = bad
		signs = append(signs, found.signs...)
		found.measured += step.name + ": " + text + "; "
	}
	found.protocol, found.signs = "NFSv4.2", signs
	found.appears = counts["default"] > 0
	if counts["off"] > 0 || counts["version 4.0"] > 0 || (counts["on again"] > 0) != found.appears {
		return found, errors.New("the cure does not act as described: " + found.measured)
	}
	return found, os.WriteFile(parameter, value, 0o600)
}

func listAll(m *machine, found *finding, version string) (bad int, text string, err error) {
	unmount, err := mountAt("/mnt/a", "/ganesha", "vers="+version)
	if err != nil {
		return 0, "", err
	}
	remote, missing := 0, 0
	for i := range listings {
		dir := fmt.Sprintf("/mnt/a/dir-%02d", i%directories)
		all, err := os.ReadDir(dir)
		for _, name := range inside {
			_, statErr := os.Lstat(filepath.Join(dir, name))
			err = errors.Join(err, statErr)
		}
		switch {
		case errors.Is(err, unix.EREMOTEIO):
			remote++
		case err != nil || len(all) != len(inside)+1:
			missing++
		}
	}
	o, err := operation("/mnt/a", "GETATTR")
	text = fmt.Sprintf("%d of %d listings with EREMOTEIO, %d with other faults, GETATTR %d with %d errors", remote, listings, missing, o.Count, o.Errors)
	return remote + missing, text, errors.Join(err, m.with(found, "/mnt/a"), unmount())
}
