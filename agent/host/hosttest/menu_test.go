package hosttest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest/grub"
)

// The simulated grub-mkconfig prints the same menu as the real one for the same tree.
func TestTheMenuIsAsTheRealGeneratorPrintsIt(t *testing.T) {
	dir := CopyHost(t, "debian-12")
	c := &Commands{Dir: dir}
	if _, err := c.Run(t.Context(), "grub-mkconfig", "-o", "/boot/grub/made.cfg"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(grub.Debian, ReadFile(t, dir, "/boot/grub/made.cfg")); diff != "" {
		t.Errorf("menu (-real +simulated):\n%s", diff)
	}
}
