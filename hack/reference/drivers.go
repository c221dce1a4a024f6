package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/tuning/drivers"
)

const driverTable = "docs/drivers.md"

const aboutDrivers = "# Drivers\n\nWritten by `make generate` from the source; do not edit.\n\n" +
	"How each driver uses a volume's `mountOptions`. *Proven*: its volumes are mounted on virtual nodes (test/e2e). *Read*: from the source of\n" +
	"the release below; not run. *Unverified*: only its name is known. Drivers that are not in this table are unknown: `protocols` does not\n" +
	"select their volumes, `status.volumes.leftOut` counts volumes that a rule may mean, and `status.advice` names the driver. To select them, name\n" +
	"the driver in `selector.drivers` of a rule without `protocols`: the volumes count as NFS, or as XFS if their fsType is xfs.\n\n" +
	"If you deploy a driver of this table under another name, give the manager `--driver-name=NAME=DRIVER`, for example\n" +
	"`--driver-name=nfs.example.com=nfs.csi.k8s.io`, or list `NAME=DRIVER` in `driverNames` of the chart. A second `csi-driver-nfs` or\n" +
	"`csi-driver-smb` with a name that ends in `.csi.k8s.io`, and democratic-csi under any name, need no flag.\n\n" +
	"In-tree volumes that the kubelet passes to a CSI driver (Azure Files and Disk, EBS, Google's disks, Cinder, vSphere, Portworx) are listed\n" +
	"under that driver's name.\n\n" +
	"Options that belong to one client (`tls` and `iam` of EFS, `nconnect` above 16 of VAST) are accepted only in a rule whose\n" +
	"`selector.drivers` names only that client's driver. Volumes keep such options that they already have.\n"

// reading contains the sources of the facts about one driver.
type reading struct {
	Repo, Release                                               string
	Staging, Handle, Source, Order, Appends, Replaces, ReadOnly string
	// Ran reports whether test/e2e mounts volumes of the driver.
	Ran bool
}

// use describes how a driver uses mount options: its changes to them, the time at which it reads them, its options for a volume without any, and
// the program that gets them.
type use struct{ options, read, empty, client string }

func useOf(d drivers.Documented) use {
	if d.Unsupported != "" {
		return use{options: "no effect: " + d.Unsupported}
	}
	out := use{options: cmp.Or(d.Changes, "unchanged"), read: d.Reads, empty: cmp.Or(d.Empty, "stays empty"), client: cmp.Or(d.Client, "kernel")}
	if d.Additional != "" {
		out.options += ", then " + d.Additional
	}
	return out
}

// writeDrivers writes docs/drivers.md: the known facts about drivers and their use of mount options.
func writeDrivers() error {
	data, err := os.ReadFile("tuning/drivers/readings.yaml")
	if err != nil {
		return err
	}
	var readings map[string]reading
	if err := yaml.UnmarshalStrict(data, &readings); err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(aboutDrivers)
	table(&b, "Kinds of volumes", "The first matching row of a driver applies. \"When\" is the mount for which the driver reads the options: a change takes effect at the next such mount.",
		"driver", "volumes", "identified by", "server", "mount options", "when", "empty mount options", "client", "known")
	for _, d := range drivers.Document() {
		known, use := "unverified", useOf(d)
		switch read, found := readings[d.Driver]; {
		case found && read.Ran:
			known = "proven"
		case found:
			known = "read"
		case d.Unsupported == "":
			use.options, use.empty = "", ""
		}
		volumes := cmp.Or(string(d.Protocol), "not supported")
		row(&b, code(d.Driver), volumes, d.Selector, d.Server, use.options, use.read, use.empty, use.client, known)
	}
	b.WriteString("\n## Sources\n")
	for _, driver := range slices.Sorted(maps.Keys(readings)) {
		r := readings[driver]
		fmt.Fprintf(&b, "\n### `%s`\n\n%s, github.com/%s\n\n", driver, r.Release, r.Repo)
		for _, fact := range []string{r.Staging, r.Handle, r.Source, r.Order, r.Appends, r.Replaces, r.ReadOnly} {
			if fact != "not known" {
				fmt.Fprintf(&b, "- %s\n", fact)
			}
		}
	}
	return os.WriteFile(driverTable, b.Bytes(), 0o644)
}
