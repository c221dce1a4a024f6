package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// A difference from a mount may be the device's decision. A difference between two files, or from the original options, is none.
func TestOptionsThatADeviceMayDecline(t *testing.T) {
	for name, test := range map[string]struct {
		protocol          mountoptions.Protocol
		desired, observed string
		differences       []string
		declined          string
	}{
		// As kernel 6.18 shows a mount with discard of a loop device whose discard_max_bytes is 0, and a mount with dax=always.
		"a device without discard": {protocol: mountoptions.XFS, desired: "discard", observed: "rw,inode64,logbufs=8,logbsize=32k,noquota,rw,relatime",
			differences: []string{"discard"}, declined: "discard is not shown, desired discard: the device has no discard"},
		"a device without DAX": {protocol: mountoptions.XFS, desired: "dax=always", observed: "rw,dax=never,inode64,logbufs=8,logbsize=32k,noquota,rw,relatime",
			differences: []string{"dax"}, declined: "dax is never, desired always: the device has no DAX"},
		"a mount with discard": {protocol: mountoptions.XFS, desired: "discard", observed: "rw,discard,inode64,logbufs=8,logbsize=32k,noquota,rw,relatime"},
		"a mount with discard that is not desired": {protocol: mountoptions.XFS, desired: "nodiscard", observed: "rw,discard,inode64,logbufs=8,logbsize=32k,noquota",
			differences: []string{"discard"}},
		"a smaller log buffer":           {protocol: mountoptions.XFS, desired: "logbsize=256k", observed: "rw,inode64,logbufs=8,logbsize=32k", differences: []string{"logbsize"}},
		"a smaller size in another file": {protocol: mountoptions.NFS, desired: "rsize=1048576", observed: "rsize=262144", differences: []string{"rsize"}, declined: "rsize is 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			desired, observed := strings.Fields(test.desired), strings.Split(test.observed, ",")
			check.Equal(t, "differences", test.differences, differencesOf(test.protocol)(desired, observed), cmpopts.EquateEmpty())
			if got := strings.Join(declinedOf(test.protocol)(desired, observed), "; "); !strings.HasPrefix(got, test.declined) || test.declined == "" && got != "" {
				t.Errorf("got declined %q, want %q", got, test.declined)
			}
		})
	}
}
