package readahead

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	// UdevRule is the agent's rule for later mounts whose read-ahead window is named after their type.
	UdevRule = "/etc/udev/rules.d/99-storage-client-readahead.rules"
	// NFSConf is the agent's part of nfs.conf. The udev rule of nfs-utils reads it for every new NFS mount, and would otherwise reset the window to
	// 128 KiB.
	NFSConf = "/etc/nfs.conf.d/zz-storage-client.conf"

	// nfsrahead is the program that this rule runs (nfs-utils 2.6 and later).
	nfsrahead = "/usr/libexec/nfsrahead"
)

// valueSource is the program that sets the window of later mounts. In any case, the agent does so within seconds.
type valueSource int

const (
	byAgent valueSource = iota
	byNFSUtils
	byUdev
)

// sourceOf returns the program that can know the type of a new mount. When udev sees a new window, the mount table does not show the mount yet, and
// only nfs-utils waits for it. Disks have their windows before a file system on them is mounted.
func sourceOf(fsType string) valueSource {
	switch fsType {
	case "nfs", "nfs4":
		return byNFSUtils
	case "ext4", "xfs", "btrfs":
		return byAgent
	default:
		return byUdev
	}
}

func (s *Subject) sourceOf(fsType string) valueSource {
	k := sourceOf(fsType)
	if k == byNFSUtils && !s.fs.Exists(nfsrahead) || k != byAgent && s.places[k].WriteProblem() != "" {
		return byAgent
	}
	return k
}

type files map[valueSource]map[string]string

// lostReason returns the reason why a later mount would not get the value. Empty if it would.
func (f files) lostReason(k valueSource, fsType, size string) string {
	if k == byAgent || f[k][fsType] == size {
		return ""
	}
	return fmt.Sprintf("later mounts would get another value: not in %s", fileOf[k])
}

var fileOf = map[valueSource]string{byNFSUtils: NFSConf, byUdev: UdevRule}

func renderLine(k valueSource, fsType, size string) string {
	if k == byNFSUtils {
		return fsType + "=" + size + "\n"
	}
	return fmt.Sprintf("ACTION==\"add\", SUBSYSTEM==\"bdi\", KERNEL==\"%s-[0-9]*\", ATTR{read_ahead_kb}=\"%s\"\n", fsType, size)
}

// renderFile returns the text of a file. Empty without sizes.
func renderFile(k valueSource, sizes map[string]string) string {
	if len(sizes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(host.OwnHeader)
	if k == byNFSUtils {
		b.WriteString("[nfsrahead]\n")
	}
	for _, fsType := range slices.Sorted(maps.Keys(sizes)) {
		b.WriteString(renderLine(k, fsType, sizes[fsType]))
	}
	return b.String()
}

// readFiles reads the agent's files. It ignores lines that the agent would write differently.
func (s *Subject) readFiles() files {
	saved := files{byNFSUtils: {}, byUdev: {}}
	for k, name := range fileOf {
		data, err := s.fs.ReadFile(name)
		if err != nil {
			continue
		}
		for text := range strings.Lines(string(data)) {
			if fsType, size := parseLine(k, text); fsType != "" && renderLine(k, fsType, size) == text {
				saved[k][fsType] = size
			}
		}
	}
	return saved
}

func parseLine(k valueSource, text string) (fsType, size string) {
	if k == byNFSUtils {
		fsType, size, _ = strings.Cut(strings.TrimSpace(text), "=")
		return fsType, size
	}
	parts := strings.Split(text, `"`)
	if len(parts) < 8 {
		return "", ""
	}
	return strings.TrimSuffix(parts[5], "-[0-9]*"), parts[7]
}

// writeFiles makes the agent's files contain exactly these windows. udev detects the change on its own.
func (s *Subject) writeFiles(wanted map[string]string) error {
	sizes := files{byNFSUtils: {}, byUdev: {}}
	for fsType, size := range wanted {
		if k := s.sourceOf(fsType); k != byAgent {
			sizes[k][fsType] = size
		}
	}
	for _, k := range []valueSource{byNFSUtils, byUdev} {
		if err := s.places[k].RecordWrite(s.fs.KeepFile(fileOf[k], renderFile(k, sizes[k]))); err != nil {
			return err
		}
	}
	return nil
}
