package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/storageclient/operator/tuning/drivers"
)

const driverTable = "docs/drivers.md"

const aboutDrivers = "# Drivers\n\nWritten by `make generate` from the source; do not edit.\n\n" +
	"How each driver uses a volume's `mountOptions`. *Proven*: its volumes are mounted on virtual nodes (test/e2e). *Read*: from the source of\n" +
	"the release below; not run. *Unverified*: only its name is known. Drivers that are not in this table are unknown: `protocols` does not\n" +
	"select their volumes, `status.volumes.leftOut` counts volumes that a rule may mean, and `status.advice` names the driver. To select them, name\n" +
	"the driver in `selector.drivers` of a rule without `protocols`: the volumes count as NFS, or as XFS if their fsType is xfs.\n\n" +
	"In-tree volumes that the kubelet passes to a CSI driver (Azure Files and Disk, EBS, Google's disks, Cinder, vSphere, Portworx) are listed\n" +
	"under that driver's name.\n\n" +
	"Options that belong to one client (`tls` and `iam` of EFS, `nconnect` above 16 of VAST) are accepted only in a rule whose\n" +
	"`selector.drivers` names only that client's driver. Volumes keep such options that they already have.\n"

// writeDrivers writes docs/drivers.md: the known facts about drivers and their use of mount options.
func writeDrivers() error {
	var b bytes.Buffer
	b.WriteString(aboutDrivers)
	table(&b, "Kinds of volumes", "The first matching row of a driver applies. \"When\" is the mount for which the driver reads the options: a change takes effect at the next such mount.",
		"driver", "volumes", "identified by", "server", "mount options", "when", "empty mount options", "client", "clone", "known")
	for _, d := range drivers.Document() {
		clone := ""
		if d.Clone {
			clone = "yes"
		}
		row(&b, code(d.Driver), d.Volumes, d.Selector, d.Server, d.Options, d.Read, d.Empty, d.Client, clone, d.Known)
	}
	b.WriteString("\n## Sources\n")
	for _, r := range drivers.Readings() {
		fmt.Fprintf(&b, "\n### `%s`\n\n%s, github.com/%s\n\n", r.Driver, r.Release, r.Repository)
		for _, fact := range r.Facts {
			fmt.Fprintf(&b, "- %s\n", fact)
		}
	}
	return os.WriteFile(driverTable, b.Bytes(), 0o644)
}
