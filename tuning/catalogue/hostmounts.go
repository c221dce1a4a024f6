package catalogue

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const (
	sourceNFSMount = "nfsmount.conf(5); mount.nfs of nfs-utils 2.6.2 run with such files"
	sourceMount    = "mount(8), systemd.mount(5), xfs(5); measured on 5.10, 6.1 and 6.18"

	fsTypeXFS = "xfs"
)

var (
	fsTypeName  = regexp.MustCompile(`\A[a-z0-9_]+\z`)
	profileName = regexp.MustCompile(`\A[A-Za-z0-9_][A-Za-z0-9_.-]*\z`)
	serverName  = regexp.MustCompile(`\A[a-z0-9_][a-z0-9_.-]*\z`)
	// A glob never reaches a generated file: only mount points that exist on the host do.
	mountPointName = regexp.MustCompile(`\A[A-Za-z0-9_.,:=/@+*?-]+\z`)
)

func lookupHostMounts(key string) (Parameter, bool) {
	subject, name := Key(key).Cut()
	p := Parameter{Key: key, TakesEffect: v1alpha1.EffectNextMount}
	switch subject {
	case NFSDefaults:
		p.Kind, p.Source = NFSOptions, sourceNFSMount
	case Filesystems:
		p.Kind, p.Source = FilesystemOptions, sourceMount
		p.Note = "Access-time options change at once, other options at the next mount."
	}
	return p, p.Kind != "" && validateHostKey(subject, name) == ""
}

func validateHostKey(subject, name string) string {
	switch {
	case subject == ReadAheads && !fsTypeName.MatchString(name):
		return "a file system type may contain only lower-case letters, digits and '_'"
	case subject == Tuned && KeyOf(subject, name) != TunedKey:
		return "the only key of tuned is " + TunedKey
	case subject == NFSDefaults && strings.Contains(name, ":"):
		return "nfsmount.conf does not work with IPv6 addresses: use a host name"
	case subject == NFSDefaults && !serverName.MatchString(name):
		return "must be a host name or an IPv4 address"
	case subject == Filesystems && !mountPointName.MatchString(name):
		return "a mount point may contain only letters, digits and _ . , : = / @ + -, and * and ? in a glob"
	case subject == Filesystems && path.Clean("/"+name) == "/":
		return "the kernel mounts the root file system: set its options with the kernel argument rootflags="
	case subject == Filesystems && path.Clean("/"+name) != "/"+name:
		return "must be a clean absolute path: write " + path.Clean("/"+name)
	}
	return ""
}

func validateHostValue(kind Kind, value string) string {
	switch kind {
	case NFSOptions:
		return validateNFSDefaults(ParseOptions(value))
	case FilesystemOptions:
		return validateFilesystem(value)
	default:
		if !profileName.MatchString(value) {
			return "a tuned profile's name may contain only letters, digits and _ . -, and must not start with '.' or '-'"
		}
		return ""
	}
}

// validateNFSDefaults also rejects options that weaken every mount of a server without an explicit option. It does not know stricter
// defaults of the host.
func validateNFSDefaults(options []string) string {
	if reason := validateOptions(mountoptions.NFS, options, misreadByMount); reason != "" {
		return reason
	}
	for _, option := range options {
		if lost := mountoptions.NFS.Weakened(nil, []string{option}); len(lost) > 0 {
			return fmt.Sprintf("%s makes all mounts without %s weaker than the default (%s): leave it out",
				option, lost[0].Option, lost[0].Observed)
		}
	}
	return ""
}

func validateFilesystem(value string) string {
	fsType, options := ParseFilesystemValue(value)
	if fsType != "" && !fsTypeName.MatchString(fsType) {
		return "a file system type may contain only lower-case letters, digits and '_'"
	}
	return validateOptions(mountoptions.XFS, options, func(name, _ string) string {
		switch {
		case name == "ro":
			return "makes the file system read-only for programs that write to it"
		case fsType != fsTypeXFS && len(mountoptions.Errors(mountoptions.Generic, []string{name})) > 0:
			return "is not an option that every file system supports: for options of XFS set fsType xfs; options of other types are not supported"
		}
		return ""
	})
}

// validateOptions returns the problem of the first option that can never work. reject returns a reason that only applies to files of the host.
func validateOptions(protocol mountoptions.Protocol, options []string, reject func(name, value string) string) string {
	if len(options) == 0 {
		return "needs mount options"
	}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		if reason := reject(name, value); reason != "" {
			return option + " " + reason
		}
	}
	for _, problem := range mountoptions.Errors(protocol, options) {
		return problem.Option + " " + problem.Message
	}
	return ""
}

// misreadByMount finds a word that mount.nfs interprets as a number with a unit. For a value that ends in k, m or g, mount.nfs
// computes a number of bytes, and the result for letters is 0.
func misreadByMount(name, value string) string {
	last := value[max(0, len(value)-1):]
	if !slices.Contains([]string{"k", "K", "m", "M", "g", "G"}, last) {
		return ""
	}
	return fmt.Sprintf("does not work in nfsmount.conf: mount.nfs reads the %s at its end as a unit and uses %s=0", last, name)
}

// OptionWarnings returns warnings about the mount options in a value.
func OptionWarnings(key, value string) []mountoptions.Problem {
	protocol, options := mountoptions.NFS, ParseOptions(value)
	var problems []mountoptions.Problem
	switch Key(key).Subject() {
	case NFSDefaults:
		// nfs(5), sec=: a mount without it negotiates.
		if slices.Contains(options, "sec=sys") {
			problems = append(problems, mountoptions.Problem{Option: "sec=sys", Warning: true,
				Message: "prevents mounts without sec from negotiating a stronger value with the server: leave it out unless all must use sys"})
		}
	case Filesystems:
		_, options = ParseFilesystemValue(value)
		protocol = mountoptions.XFS
	default:
		return nil
	}
	return append(problems, lists.Filter(mountoptions.Validate(protocol, options), func(p mountoptions.Problem) bool { return p.Warning })...)
}
