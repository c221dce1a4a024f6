package life

import (
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// Detect returns the boot loader of a host without a subject.
func Detect(fs host.FS, kinds []loader.Kind) loader.Detection {
	found, _, _ := detect(fs, kinds)
	return found
}
