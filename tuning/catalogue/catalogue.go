// Package catalogue contains the parameters of a node that affect its storage clients: their values, effects, costs and sources.
// It prevents the author of a profile from becoming root on the nodes. Parameters that are neither in the catalogue nor in the
// operator's allow-list are rejected. No key or value contains a byte with a special meaning in a generated file.
//
// The package has no side effects: it uses no cluster, host or clock. Mount options are in package mountoptions.
package catalogue

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/embedded"
)

// Kind is the format of a parameter's value.
type Kind string

const (
	// Integer is one decimal number.
	Integer Kind = "Integer"
	// IntegerList is a list of Fields numbers, separated by single spaces.
	IntegerList Kind = "IntegerList"
	// Text is one word.
	Text Kind = "Text"
	// Ports are ports and ranges of ports in ascending order, separated by commas, as the kernel shows them.
	Ports Kind = "Ports"
	// Flag is 0 or 1.
	Flag Kind = "Flag"
	// ProfileName is the name of a tuned profile.
	ProfileName Kind = "ProfileName"
	// Identity is FromNode: each node derives the client ID of its NFSv4 client.
	Identity Kind = "Identity"
	// NFSOptions are NFS mount options, separated by commas.
	NFSOptions Kind = "NFSOptions"
	// FilesystemOptions are a file system type, which may be empty, a colon and mount options, separated by commas.
	FilesystemOptions Kind = "FilesystemOptions"
)

// Parameter describes one parameter.
type Parameter struct {
	// Key is the canonical key, e.g. sysctl/net.core.rmem_max.
	Key string
	// Kind is the format of the value.
	Kind Kind
	// Min and Max are the limits of each number of the value, in Unit.
	Min, Max int64
	// Fields is the number of numbers in an IntegerList.
	Fields int
	// Ascending reports whether no number of an IntegerList may be smaller than the number before it.
	Ascending bool
	// Least is the minimum of each number with which a node works, in Unit, if the kernel accepts smaller numbers. Empty if every
	// accepted number works.
	Least []int64
	// LeastSpan is the minimum count of values in a range from the first number to the second. Zero if the value is not a range.
	LeastSpan int64
	// LeastReason describes the effect of numbers below Least, or of a narrower range.
	LeastReason string
	// Low is the recommended minimum of each number, in Unit. Smaller values work but are rarely intended. Users are warned with
	// LowHazard.
	Low []int64
	// LowHazard describes the effect of a value below Low.
	LowHazard string
	// Grows reports whether tuning usually raises the parameter. A number below the node's original value is then probably a mistake.
	Grows bool
	// Unit is the unit of a number.
	Unit string
	// Default is the kernel's default. Empty if it depends on the node.
	Default string
	// TakesEffect is the event that makes a changed value effective.
	TakesEffect v1alpha1.SettingEffect
	// NetNS is true if each network namespace has a separate value, from kernel 5.10 on. Only these sysctls can be the candidate of a trial.
	NetNS bool
	// Module is the kernel module of the parameter. Empty if the parameter always exists.
	Module string
	// Hazard describes a risk of values other than the default, or the reason why they have no effect. Users are warned with it.
	Hazard string
	// HazardAbove limits Hazard to values whose first number is larger.
	HazardAbove int64
	// Note is additional information, not a warning.
	Note string
	// Source is the reference for the range, the default and the hazard.
	Source string
	// Since and Until are the first and the last kernel version with the parameter. Empty for all versions from 5.10 to 7.3.
	Since, Until string
}

// Warning returns the warnings about a value. Empty if there are none, or if the value is the kernel's default.
func (p Parameter) Warning(value string) string {
	v := ParseValue(value)
	if v.Text == p.Default {
		return ""
	}
	var warnings []string
	numbers := Numbers(v.Text)
	if len(numbers) == 0 || p.HazardAbove == 0 || numbers[0] > p.HazardAbove {
		warnings = append(warnings, p.Hazard)
	}
	if !v.AtLeast && firstBelow(numbers, p.Low) >= 0 {
		warnings = append(warnings, p.LowHazard)
	}
	return strings.TrimSpace(strings.Join(warnings, " "))
}

// Values describes the values that the parameter accepts, e.g. "1–1024 requests in flight per session".
func (p Parameter) Values() string {
	span := fmt.Sprintf("%d–%d", p.Min, p.Max)
	if p.Min == p.Max {
		span = strconv.FormatInt(p.Min, 10)
	}
	switch p.Kind {
	case Flag:
		return "0 or 1"
	case Integer:
		if len(p.Least) > 0 {
			span = fmt.Sprintf("%d–%d", p.Least[0], p.Max)
		}
		return strings.TrimSpace(span + " " + p.Unit)
	case IntegerList:
		values := strings.TrimSpace(fmt.Sprintf("%d numbers, each %s %s", p.Fields, span, p.Unit))
		if len(p.Least) > 0 {
			values += ", at least " + join(p.Least)
		}
		if p.LeastSpan > 0 {
			values += fmt.Sprintf(", a range of at least %d", p.LeastSpan)
		}
		return values
	case Ports:
		return "ports and ranges in ascending order, for example 10250,30000-32767"
	case Identity:
		return string(v1alpha1.NFS4UniqueIDFromNode)
	case ProfileName:
		return "the name of a tuned profile"
	case NFSOptions, FilesystemOptions:
		return "mount options"
	default:
		return "text"
	}
}

// Lookup returns the parameter with this canonical key. The catalogue does not list servers and mount points: it accepts every key
// with a server or a mount point.
func Lookup(key string) (Parameter, bool) {
	i, found := slices.BinarySearchFunc(parameters, key, func(p Parameter, key string) int {
		return strings.Compare(p.Key, key)
	})
	if !found {
		return lookupHostMounts(key)
	}
	return parameters[i], true
}

// All returns every parameter, sorted by key.
func All() []Parameter { return slices.Clone(parameters) }

// NetNSSysctls returns the names of the sysctls of which each network namespace has a separate value, sorted.
func NetNSSysctls() (names []string) {
	for _, p := range parameters {
		if name, ok := Key(p.Key).In(Sysctls); ok && p.NetNS {
			names = append(names, name)
		}
	}
	return names
}

// Effect returns the event that makes a setting effective. For keys that only an allow-list admits, it is the usual event of the
// subject. It is Live for such module parameters, because the agent writes writable parameters immediately.
func Effect(key string) v1alpha1.SettingEffect {
	if p, ok := Lookup(key); ok {
		return p.TakesEffect
	}
	if Key(key).AtBoot() {
		return v1alpha1.EffectReboot
	}
	return v1alpha1.EffectLive
}

//go:embed parameters.yaml
var document []byte

// parameters is sorted by key; a test checks the order.
var parameters = embedded.Parse[[]Parameter]("catalogue of parameters", document)
