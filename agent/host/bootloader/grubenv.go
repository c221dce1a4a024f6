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
	// envSize and envHead define its format (info grub, "The GRUB environment block"): one "name=value" per line, then "#" up to the end.
	envSize = 1024
	envHead = "# GRUB Environment Block\n"
)

// errNoBlock reports that GRUB could not write to a file.
var errNoBlock = errors.New("not an environment block")

type environment string

// readEnvironment returns the block and its permissions. It returns an error if GRUB could not write to the file.
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

func (e environment) contentLines() []string {
	return strings.SplitAfter(strings.TrimRight(string(e), "#"), "\n")
}

func (e environment) trialState() string {
	for _, line := range e.contentLines() {
		if value, ok := strings.CutPrefix(line, trialVariable+"="); ok {
			return strings.TrimSuffix(value, "\n")
		}
	}
	return ""
}

// withTrial returns the block with the trial variable set, or without it if the value is empty. All other lines keep every byte.
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
		return "", fmt.Errorf("%s has no space for %s", grubEnv, trialVariable)
	}
	b.WriteString(strings.Repeat("#", envSize-b.Len()))
	return environment(b.String()), nil
}

// setTrial sets the trial variable for GRUB's next start, or removes it if the value is empty. It replaces the file as a whole: grub-editenv would
// empty it first, and a crash would lose the variables of other programs.
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
