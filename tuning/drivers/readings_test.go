package drivers

import (
	_ "embed"
	"sync"

	"sigs.k8s.io/yaml"
)

// reading contains the source file and function of each fact about a driver.
type reading struct {
	// Repo is the repository of the source, and Release the newest release that was read.
	Repo, Release string
	// Staging is the time of the mount: once per node or for each pod. Handle is the use of the handle. Source is the origin of server and
	// path, and the attribute that distinguishes kinds of volumes.
	Staging, Handle, Source string
	// Order describes changes to the order of the mount options, and Appends the added options. Replaces describes the options that
	// replace non-empty mount options, or are replaced by them. ReadOnly is the effect of a pod's read-only claim.
	Order, Appends, Replaces, ReadOnly string
	// Ran reports whether test/e2e mounts volumes of the driver.
	Ran bool
}

// unknown marks a fact that is not in the source.
const unknown = "not known"

//go:embed readings.yaml
var readingsYAML []byte

// readings returns the sources of each driver's facts. Without a reading, the rows of a driver are only based on its name.
var readings = sync.OnceValue(func() (all map[string]reading) {
	if err := yaml.UnmarshalStrict(readingsYAML, &all); err != nil {
		panic("sources of drivers: " + err.Error())
	}
	return all
})
