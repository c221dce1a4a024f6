package drivers

import (
	_ "embed"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/lists"
)

//go:embed drivers.yaml
var driversYAML []byte

// document is a row in drivers.yaml. Its fields have the meaning of the fields of row with the same names.
type document struct {
	Driver                           string
	Protocol                         v1alpha1.VolumeProtocol
	Selector                         map[string][]string
	StageSecret                      bool
	Server, Path, FSType, Additional string
	Client                           Client
	Reads                            step
	Changes, Unsupported             string
	Empty                            backend
	Rare                             bool
}

// table contains the kubelet's plugins as of Kubernetes 1.36 and CSI drivers as of August 2026, based on the sources in readings.yaml. The
// first row of a driver that matches a volume wins.
var table = lists.Each(embedded.Parse[[]document]("table of drivers", driversYAML), func(d document) row {
	return row{
		driver: d.Driver, protocol: d.Protocol, selector: selectorOf(d.Selector, d.StageSecret),
		server: placeOf(d.Server), path: placeOf(d.Path), fsType: placeOf(d.FSType), additional: placeOf(d.Additional),
		client: d.Client, reads: d.Reads, changes: named("change", changes, d.Changes), unsupported: d.Unsupported, empty: d.Empty,
		rare: d.Rare,
	}
})

func placeOf(name string) place {
	if attributeName, isAttribute := strings.CutPrefix(name, "attribute "); isAttribute {
		return attribute(attributeName)
	}
	return named("place", places, name)
}

// named returns the known value of a name, zero for an empty name.
func named[T any](kind string, known map[string]T, name string) (value T) {
	value, isKnown := known[name]
	if !isKnown && name != "" {
		panic("table of drivers: unknown " + kind + " " + name)
	}
	return value
}

// selectorOf selects volumes of which one of the attributes has one of its values. With a stage secret, only volumes that also have one.
func selectorOf(attributes map[string][]string, stageSecret bool) volumeSelector {
	if len(attributes) == 0 {
		return volumeSelector{}
	}
	texts := lists.Each(slices.Sorted(maps.Keys(attributes)), func(name string) string { return name + " is " + strings.Join(attributes[name], ", ") })
	text := strings.Join(texts, ", or ")
	if stageSecret {
		text += " and the driver gets a secret to stage it"
	}
	return volumeSelector{text, func(v Volume) bool {
		for name, values := range attributes {
			if slices.ContainsFunc(values, func(value string) bool { return strings.EqualFold(v.attribute(name), value) }) {
				return v.StageSecret || !stageSecret
			}
		}
		return false
	}}
}
