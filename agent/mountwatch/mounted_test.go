package mountwatch

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/test/check"
)

func TestStatusFitsTheAPI(t *testing.T) {
	long := strings.Repeat("ä", 3000)
	var all []mounts.Mount
	for i := range 200 {
		fsType := "xfs"
		if i >= 100 {
			fsType = "nfs4"
		}
		all = append(all, mounts.Mount{MountPoint: fmt.Sprintf("/m%03d", i), FSType: fsType, Server: long, PodUIDs: []string{long, "u"}})
	}
	list, omitted := statusesOf(all, &comparison{}, sightings{})
	if len(list) != maxMounts || omitted != 72 {
		t.Errorf("got %d mounts and %d omitted ones, want 128 and 72", len(list), omitted)
	}
	network := 0
	for _, m := range list {
		if m.MountPoint >= "/m100" {
			network++
		}
	}
	check.Equal(t, "network mounts", 100, network)
	if utf8.RuneCountInString(list[0].Server) > bounds.Name || !utf8.ValidString(list[0].Server) {
		t.Errorf("server: got %d characters", utf8.RuneCountInString(list[0].Server))
	}
	check.Equal(t, "pods", []string{"u"}, list[0].PodUIDs)
}
