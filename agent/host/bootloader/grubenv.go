package bootloader

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

const (
	// grubEnv is GRUB's environment block. GRUB itself can write to it, in place.
	grubEnv = "/boot/grub/grubenv"
	// envSize and envHead are its form (info grub, "The GRUB environment block"): a line "name=value" each, and "#" up to
	// the end.
	envSize = 1024
	envHead = "# GRUB Environment Block\n"
)

// errNoBlock means that a file is not one that GRUB could write to.
var errNoBlock = errors.New("not an environment block")

type environment string

// readEnvironment returns the block and its permissions. It is an error where it is not a file that GRUB could write to.
func (s *Subject) readEnvironment() (environment, fs.FileMode, error) {
	info, err := s.fs.Lstat(grubEnv)
	if err != nil {
		return "", 0, err
	}
	if !info.Mode().IsRegular() || info.Size() != envSize {
		return "", 0, fmt.Errorf("%s is %w: not a regular file of %d bytes", grubEnv, errNoBlock, envSize)
	}
	data, err := s.fs.ReadFile(grubEnv)
	if err == nil && !strings.HasPrefix(string(data), envHead) {
		err = fmt.Errorf("%s is %w: unexpected first line", grubEnv, errNoBlock)
	}
	return environment(data), info.Mode().Perm(), err
}

// contentLines are the lines of the block, without the padding.
func (e environment) contentLines() []string {
	return strings.SplitAfter(strings.TrimRight(string(e), "#"), "\n")
}

// trialState is the value of our variable, empty where it is not set.
func (e environment) trialState() string {
	for _, line := range e.contentLines() {
		if value, ok := strings.CutPrefix(line, trialVariable+"="); ok {
			return strings.TrimSuffix(value, "\n")
		}
	}
	return ""
}

// withTrial returns the block with our variable set, or without it where the value is empty. All else stays byte by byte.
func (e environment) withTrial(value string) (environment, error) {
	var b strings.Builder
	for _, line := range e.contentLines() {
		if !strings.HasPrefix(line, trialVariable+"=") {
			b.WriteString(line)
		}
	}
	if value != "" {
		b.WriteString(trialVariable + "=" + value + "\n")
	}
	if b.Len() > envSize {
		return "", fmt.Errorf("%s has no room for %s", grubEnv, trialVariable)
	}
	b.WriteString(strings.Repeat("#", envSize-b.Len()))
	return environment(b.String()), nil
}

// setTrial makes GRUB find that value of our variable at its next start, or none where it is empty. The file is exchanged
// as a whole: grub-editenv would empty it first, and a crash would cost the variables of others.
func (s *Subject) setTrial(value string) error {
	if err := s.fs.RemoveTemp(grubEnv); err != nil {
		return err
	}
	env, perm, err := s.readEnvironment()
	if value == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoBlock)) {
		return nil
	}
	if err != nil {
		return err
	}
	next, err := env.withTrial(value)
	if err != nil || next == env {
		return err
	}
	return s.fs.WriteFileAtomic(grubEnv, []byte(next), perm)
}
