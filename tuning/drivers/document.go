package drivers

import (
	"cmp"

	"github.com/storageclient/operator/tuning/lists"
)

// Documented describes one kind of volumes of a driver, for users. Empty fields are unknown.
type Documented struct {
	Driver string
	// Volumes is the protocol of the volumes. Selector is the attribute that distinguishes them from other volumes of the driver.
	Volumes, Selector string
	// Server is the place of the server in the volume. Options describes changes of the driver to mountOptions, and Read the time at
	// which it reads them. Empty describes the effect of empty mountOptions. Client is the program that mounts the volume.
	Server, Options, Read, Empty, Client string
	// Unsupported reports whether mount options have no effect.
	Unsupported bool
}

// Document returns the table for users, in the order of the table.
func Document() []Documented { return lists.Each(lists.Pointers(table), (*row).document) }

func (r *row) document() Documented {
	d := Documented{
		Driver: r.driver, Volumes: cmp.Or(string(r.protocol), "not supported"), Selector: r.selector.text, Server: r.server.text, Read: string(r.reads),
		Client: cmp.Or(string(r.client), "kernel"), Unsupported: r.unsupported != "", Options: cmp.Or(r.changes.text, "unchanged"),
		Empty: cmp.Or(r.empty.Text, "stays empty"),
	}
	if r.additional.text != "" {
		d.Options += ", then " + r.additional.text
	}
	if r.unsupported != "" {
		d.Options, d.Read, d.Empty, d.Client = "no effect: "+r.unsupported, "", "", ""
	}
	return d
}
