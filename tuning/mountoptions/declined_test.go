package mountoptions

import (
	"strings"
	"testing"
)

// A device or a server may not support an option, and a pod may mount its claim read-only. Every new mount would then show the same, so the difference does not prove an old mount.
func TestADeclinedOptionIsNotAnOutdatedMount(t *testing.T) {
	for name, test := range map[string]struct {
		mounted, desired, observed string
		// differs and isOld report whether Compare and Outdated return a difference.
		differs, isOld bool
	}{
		// As kernel 6.1 shows XFS on a disk without DAX.
		"a disk without DAX": {"xfs", "dax=always", "rw,attr2,dax=never,inode64,logbufs=8,logbsize=32k,noquota,relatime", true, false},
		"DAX on a new mount": {"xfs", "dax=always", "rw,logbsize=32k", true, true},
		// As kernel 6.18 shows mounts with discard of a loop device: discard_max_bytes of its queue is 0, and then larger.
		"a disk without discard":            {"xfs", "discard", "rw,relatime,inode64,logbufs=8,logbsize=32k,noquota", true, false},
		"a disk with discard":               {"xfs", "discard", "rw,relatime,discard,inode64,logbufs=8,logbsize=32k,noquota", false, false},
		"discard is effective, not desired": {"xfs", "nodiscard", "rw,relatime,discard,inode64,logbufs=8,logbsize=32k,noquota", true, true},
		"other options of XFS":              {"xfs", "largeio", "rw,relatime,inode64,logbufs=8,logbsize=32k,noquota", true, true},

		"a server without multichannel":          {"SMB3.1.1", "multichannel", "rw,relatime,vers=3.1.1,cache=strict,soft,actimeo=1,closetimeo=1", true, false},
		"a server with multichannel":             {"SMB3.1.1", "multichannel", "rw,vers=3.1.1,soft,actimeo=1,multichannel,max_channels=2", false, false},
		"multichannel is effective, not desired": {"SMB3.1.1", "nomultichannel", "rw,vers=3.1.1,soft,actimeo=1,multichannel,max_channels=2", true, true},
		"channels of a server without any":       {"SMB3.1.1", "max_channels=4", "rw,vers=3.1.1,soft,actimeo=1", true, false},

		// A read-only bind mount of a writable superblock, as the agent joins the flags of kernel 6.18.
		"a read-only pod on XFS":            {"xfs", "rw noatime", "ro,inode64,logbufs=8,logbsize=32k,noquota,noatime", true, false},
		"a read-only pod on NFS":            {"NFSv4.1", "rw nconnect=8", "ro,vers=4.1,rsize=1048576,hard,proto=tcp,nconnect=8", true, false},
		"a read-only pod on SMB":            {"SMB3.1.1", "rw", "ro,relatime,vers=3.1.1,soft", true, false},
		"a pod that may write":              {"NFSv4.1", "rw", "rw,vers=4.1,hard", false, false},
		"a volume that should be read-only": {"NFSv4.1", "ro", "rw,vers=4.1,hard", true, true},
		"an old mount of a read-only pod":   {"NFSv4.1", "rw nocto", "ro,vers=4.1,hard", true, true},

		"max_connect on NFSv3":   {"NFSv3", "max_connect=4", "rw,vers=3,rsize=1048576,hard,proto=tcp,timeo=600", false, false},
		"max_connect on NFSv4.0": {"NFSv4.0", "max_connect=4", "rw,vers=4.0,rsize=1048576,hard,proto=tcp,timeo=600", false, false},
		"max_connect on NFSv4.1": {"NFSv4.1", "max_connect=4", "rw,vers=4.1,rsize=1048576,hard,proto=tcp,timeo=600", true, true},
		"max_connect on NFSv4.2": {"NFSv4.2", "max_connect=4", "rw,vers=4.2,rsize=1048576,hard,proto=tcp,max_connect=4", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			desired, observed := strings.Fields(test.desired), strings.Split(test.observed, ",")
			if got := OfMount(test.mounted).Compare(desired, observed); (len(got) > 0) != test.differs {
				t.Errorf("got differences %v, want any: %t", got, test.differs)
			}
			if got := Outdated(test.mounted, desired, observed); (len(got) > 0) != test.isOld {
				t.Errorf("got %v as proof of an old mount, want any: %t", got, test.isOld)
			}
		})
	}
}
