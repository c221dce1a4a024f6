package sysctl

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// Counterpart implements host.Subject. vm.dirty_bytes and vm.dirty_background_bytes do not accept 0. A 0 in vm.dirty_ratio that the kernel has not set
// itself makes every write wait for the disk.
func (s *Subject) Counterpart(name string) string { return catalogue.Counterpart(name) }

func namesOf(settings []host.Setting) map[string]bool {
	return lists.Map(settings, func(setting host.Setting) (name string, isSet bool) { return setting.Name, true })
}

// hasCounterpart reports whether the running kernel also has the other parameter of a pair.
func (s *Subject) hasCounterpart(name string) bool {
	file, err := procFile(s.Counterpart(name))
	return err == nil && s.fs.Exists(file)
}

func (s *Subject) readCounterpart(name string) (string, error) {
	if !s.hasCounterpart(name) {
		return "", nil
	}
	return s.readName(s.Counterpart(name))
}

func (s *Subject) readName(name string) (string, error) {
	file, err := procFile(name)
	if err != nil {
		return "", err
	}
	value, err := s.kernel.ReadValue(file)
	return normaliseValue(value), err
}

// restorePair restores the parameter of a pair that was effective. The kernel clears the other one on its own.
func (s *Subject) restorePair(o *host.Observation, original host.Original) error {
	other := s.Counterpart(o.Name)
	if s.desired[other] {
		o.Message = other + " is set instead; its journal entry contains both original values"
		return nil
	}
	ownValue, counterpart := completePair(original)
	if ownValue == "" || counterpart == "" {
		return s.restoreUnknown(o, ownValue, counterpart)
	}
	return s.restoreKnown(o, ownValue, counterpart)
}

// completePair derives a value that the journal does not contain: if one of a pair was not 0, the other was 0.
func completePair(original host.Original) (ownValue, counterpart string) {
	ownValue, counterpart = normaliseValue(original.Value), normaliseValue(original.Counterpart)
	if counterpart == "" && ownValue != "" && ownValue != "0" {
		counterpart = "0"
	}
	if ownValue == "" && counterpart != "" && counterpart != "0" {
		ownValue = "0"
	}
	return ownValue, counterpart
}

func (s *Subject) restoreKnown(o *host.Observation, ownValue, counterpart string) error {
	name, value := o.Name, ownValue
	if ownValue == "0" {
		name, value = s.Counterpart(o.Name), counterpart
	}
	if value == "0" {
		o.Message = fmt.Sprintf("left unchanged: it and %s were both 0, which blocks all writes", s.Counterpart(o.Name))
		return nil
	}
	err := s.writePair(name, value)
	var readErr error
	o.Observed, readErr = s.readName(o.Name)
	return cmp.Or(readErr, err)
}

func (s *Subject) writePair(name, value string) error {
	file, err := procFile(name)
	if err != nil {
		return err
	}
	now, err := s.readName(name)
	if err != nil || now != value {
		if err := s.writeValue(file, value); err != nil {
			return err
		}
	}
	other := s.Counterpart(name)
	if cleared, err := s.readName(other); err != nil || cleared != "0" {
		return fmt.Errorf("%s is %q after %s was set to %q: %w", other, cleared, name, value, cmp.Or(err, errNotCleared))
	}
	return nil
}

var errNotCleared = errors.New("the kernel did not clear it")

// restoreUnknown restores a pair if the journal only shows that one parameter was 0. The other one was effective then, and the
// host's files may contain its value.
func (s *Subject) restoreUnknown(o *host.Observation, ownValue, counterpart string) error {
	unknown := s.Counterpart(o.Name)
	if ownValue == "" {
		unknown = o.Name
	}
	set, err := s.readAssignments(isForeign)
	if err != nil {
		return err
	}
	if found := set[unknown].value; found != "" && found != "0" {
		if ownValue == "" {
			ownValue = found
		} else {
			counterpart = found
		}
		return s.restoreKnown(o, ownValue, counterpart)
	}
	if now, err := s.readName(unknown); err == nil && now != "" && now != "0" {
		o.Message = unknown + " is effective again"
		return nil
	}
	return fmt.Errorf("%s was effective before, but the journal does not contain its value: set it manually", unknown)
}
