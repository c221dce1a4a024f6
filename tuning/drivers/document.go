package drivers

import (
	"cmp"
	"slices"
	"strings"
)

// Documented describes one kind of volumes of a driver, for users. Empty fields are unknown.
type Documented struct {
	Driver string
	// Volumes is the protocol of the volumes. Selector is the attribute that distinguishes them from other volumes of the driver.
	Volumes, Selector string
	// Server is the place of the server in the volume. Options describes changes of the driver to mountOptions, and Read the time at
	// which it reads them. Empty describes the effect of empty mountOptions. Client is the program that mounts the volume.
	Server, Options, Read, Empty, Client string
	// Clone reports whether a second volume of the same source, with its own handle, can be mounted next to the first.
	Clone bool
	// Known is the certainty of this information: Proven, Read or Unverified.
	Known string
}

// Reading describes the sources of the facts about one driver.
type Reading struct {
	Driver, Repository, Release string
	// Facts are the facts from the source, each with file and function.
	Facts []string
}

// Levels of certainty: test/e2e mounts volumes of the driver, its source was read, or neither.
const (
	Proven     = "proven"
	Read       = "read"
	Unverified = "unverified"
)

// Document returns the table for users, in the order of the table.
func Document() []Documented {
	out := make([]Documented, len(table))
	for i := range table {
		out[i] = table[i].document()
	}
	return out
}

func (r *row) document() Documented {
	read, found := readings()[r.driver]
	d := Documented{
		Driver: r.driver, Volumes: cmp.Or(string(r.protocol), "not supported"), Selector: r.selector.text, Server: r.server.text, Read: string(r.reads),
		Client: cmp.Or(string(r.client), "kernel"), Clone: r.freeHandle, Known: Unverified, Options: cmp.Or(r.changes.text, "unchanged"),
		Empty: cmp.Or(r.empty.text, "stays empty"),
	}
	if r.additional.text != "" {
		d.Options += ", then " + r.additional.text
	}
	if r.unsupported != "" {
		d.Options, d.Read, d.Empty, d.Client = "no effect: "+r.unsupported, "", "", ""
	}
	switch {
	case found && read.Ran:
		d.Known = Proven
	case found:
		d.Known = Read
	case r.unsupported == "":
		d.Options, d.Empty = "", ""
	}
	return d
}

// Readings returns the sources of the facts, sorted by driver.
func Readings() []Reading {
	var out []Reading
	for name, r := range readings() {
		facts := []string{r.Staging, r.Handle, r.Source, r.Order, r.Appends, r.Replaces, r.ReadOnly}
		out = append(out, Reading{Driver: name, Repository: r.Repo, Release: r.Release,
			Facts: slices.DeleteFunc(facts, func(fact string) bool { return fact == unknown })})
	}
	slices.SortFunc(out, func(a, b Reading) int { return strings.Compare(a.Driver, b.Driver) })
	return out
}
