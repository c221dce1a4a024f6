package drivers

import (
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// Documented describes one kind of volumes of a driver, for the generated documentation. Empty fields are unknown, or have the usual value.
type Documented struct {
	Driver   string
	Protocol v1alpha1.VolumeProtocol
	// Selector is the attribute that distinguishes the volumes from other volumes of the driver. Server is the place of the server in the volume.
	Selector, Server string
	// Changes and Additional describe changes of the driver to mountOptions. Empty describes the effect of empty mountOptions.
	Changes, Additional, Empty string
	// Reads is the time at which the driver reads the options, and Client the program that mounts the volume.
	Reads, Client string
	// Unsupported is the reason why mount options have no effect.
	Unsupported string
}

// Document returns the table in its order.
func Document() []Documented {
	return lists.Each(lists.Pointers(table), func(r *row) Documented {
		return Documented{
			Driver: r.driver, Protocol: r.protocol, Selector: r.selector.text, Server: r.server.text, Changes: r.changes.text,
			Additional: r.additional.text, Empty: r.empty.Text, Reads: string(r.reads), Client: string(r.client), Unsupported: r.unsupported,
		}
	})
}
