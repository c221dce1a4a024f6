package host

import (
	"fmt"
	"maps"
	"slices"

	"github.com/storageclient/operator/tuning/lists"
)

// ObserveEach observes settings one by one. If look returns an error, the setting has failed.
func ObserveEach(desired []Setting, effect Effect, look func(o *Observation, setting Setting) error) []Observation {
	return lists.Each(desired, func(setting Setting) Observation {
		o := Observation{Name: setting.Name, Desired: setting.Value, Effect: effect}
		if err := look(&o, setting); err != nil {
			o.State, o.Message = Failed, err.Error()
		}
		return o
	})
}

// RestoreEach restores originals one by one, by name. A setting is InSync unless restore sets another state, and Failed if restore returns an error.
func RestoreEach(originals map[string]Original, effect Effect, restore func(o *Observation, original Original) error) []Observation {
	names := lists.Each(slices.Sorted(maps.Keys(originals)), func(name string) Setting {
		return Setting{Name: name, Value: originals[name].Value}
	})
	return ObserveEach(names, effect, func(o *Observation, setting Setting) error {
		o.State = InSync
		return restore(o, originals[setting.Name])
	})
}

// Kernel is the part of the file system that may change a value when it is written.
type Kernel interface {
	ReadValue(name string) (string, error)
	WriteValue(name, value string) error
}

// SetValue writes a value and reads it back, because the kernel rounds and clamps some values.
func SetValue(k Kernel, file, value string, same func(actual, value string) bool) error {
	if err := k.WriteValue(file, value); err != nil {
		return fmt.Errorf("the kernel rejects %q: %w", value, err)
	}
	actual, err := k.ReadValue(file)
	if err == nil && !same(actual, value) {
		err = fmt.Errorf("the kernel set %q instead of %q", actual, value)
	}
	return err
}
