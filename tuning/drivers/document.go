package drivers

import (
	"cmp"
	"slices"
	"strings"
)

// Documented is what is known of one kind of volumes of a driver, for people. Empty fields are not known.
type Documented struct {
	Driver string
	// Volumes says what they are, and Told how the driver's others are told from them.
	Volumes, Told string
	// Server is where a volume names its server, Options what becomes of its mountOptions, Read when they are, Empty what an empty list
	// means, and Client who mounts.
	Server, Options, Read, Empty, Client string
	// Clone says whether a second volume of the same source may be mounted beside it under a handle of its own.
	Clone bool
	// Known says how well all of this is: Proven, Read or Unverified.
	Known string
}

// Reading is where the facts of one driver were read.
type Reading struct {
	Driver, Repository, Release string
	// Facts are what was read, each with file and function.
	Facts []string
}

// How well something is known.
const (
	Proven     = "proven"
	Read       = "read"
	Unverified = "unverified"
)

// Document is the table for people, in its own order.
func Document() []Documented {
	out := make([]Documented, len(table))
	for i := range table {
		out[i] = table[i].document()
	}
	return out
}

func (r *row) document() Documented {
	read, found := readings[r.driver]
	d := Documented{
		Driver: r.driver, Volumes: cmp.Or(string(r.protocol), "none of ours"), Told: r.told.text, Server: r.server.text, Read: string(r.reads),
		Client: cmp.Or(string(r.client), "kernel"), Clone: r.freeHandle, Known: Unverified, Options: cmp.Or(r.hands.text, "kept"), Empty: cmp.Or(r.empty.text, "stays empty"),
	}
	if r.own.text != "" {
		d.Options += ", then " + r.own.text
	}
	if r.refuses != "" {
		d.Options, d.Read, d.Empty, d.Client = "no use: "+r.refuses, "", "", ""
	}
	switch {
	case found && read.ran:
		d.Known = Proven
	case found:
		d.Known = Read
	case r.refuses == "":
		d.Options, d.Empty = "", ""
	}
	return d
}

// Readings are where facts were read, by driver.
func Readings() []Reading {
	var out []Reading
	for name, r := range readings {
		facts := []string{r.staging, r.handle, r.source, r.order, r.appends, r.replaces, r.readOnly}
		out = append(out, Reading{Driver: name, Repository: r.repo, Release: r.release,
			Facts: slices.DeleteFunc(facts, func(fact string) bool { return fact == unknown })})
	}
	slices.SortFunc(out, func(a, b Reading) int { return strings.Compare(a.Driver, b.Driver) })
	return out
}
