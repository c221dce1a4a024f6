package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/storageclient/operator/tuning/drivers"
)

const driverTable = "docs/drivers.md"

const aboutDrivers = "# Drivers\n\nWritten by `make generate` from the source; do not edit.\n\n" +
	"What each driver makes of a volume's `mountOptions`. *Proven*: volumes of it are mounted on virtual nodes (test/e2e). *Read*: by the source\n" +
	"of the release below, and not run. *Unverified*: no more is known than the name tells. A kind of volumes that is not here is unknown: no rule\n" +
	"selects it by `protocols`, `status.volumes.leftOut` counts it where a rule may mean it, and `status.advice` names its driver. A rule that names\n" +
	"the driver in `selector.drivers` is taken at its word: NFS, or XFS where the volume's fsType is xfs.\n\n" +
	"In-tree volumes that the kubelet hands to a CSI driver (Azure Files and Disk, EBS, Google's disks, Cinder, vSphere, Portworx) stand under\n" +
	"that driver's name.\n\n" +
	"Options that belong to one client (`tls` and `iam` of EFS, `nconnect` above 16 of VAST) are accepted in a rule whose `selector.drivers` names\n" +
	"that client's driver alone, and refused in all others. What volumes have of them already stays.\n"

// writeDrivers writes docs/drivers.md: the known facts about drivers and their use of mount options.
func writeDrivers() error {
	var b bytes.Buffer
	b.WriteString(aboutDrivers)
	table(&b, "Kinds of volumes", "The first row of a driver that fits counts. \"When\" says for which mount the list is read: a change arrives with the next one of these.",
		"driver", "volumes", "told by", "server", "the list", "when", "an empty list", "client", "clone", "known")
	for _, d := range drivers.Document() {
		clone := ""
		if d.Clone {
			clone = "yes"
		}
		row(&b, code(d.Driver), d.Volumes, d.Selector, d.Server, d.Options, d.Read, d.Empty, d.Client, clone, d.Known)
	}
	b.WriteString("\n## Where that was read\n")
	for _, r := range drivers.Readings() {
		fmt.Fprintf(&b, "\n### `%s`\n\n%s, github.com/%s\n\n", r.Driver, r.Release, r.Repository)
		for _, fact := range r.Facts {
			fmt.Fprintf(&b, "- %s\n", fact)
		}
	}
	return os.WriteFile(driverTable, b.Bytes(), 0o644)
}
