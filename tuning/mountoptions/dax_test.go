package mountoptions

import "testing"

// As kernel 6.1 shows XFS on a disk without DAX: every new mount would show the same.
func TestMissingDAXIsNotAnOutdatedMount(t *testing.T) {
	got := XFS.Compare([]string{"dax=always"}, []string{"rw", "attr2", "dax=never", "inode64", "logbufs=8", "logbsize=32k", "noquota", "relatime"})
	if len(got) != 1 || !got[0].Limited {
		t.Errorf("got %+v, want one difference, which is Limited", got)
	}
	if got := XFS.Compare([]string{"dax=always"}, []string{"rw", "logbsize=32k"}); len(got) != 1 || got[0].Limited {
		t.Errorf("got %+v, want one difference, which a new mount resolves", got)
	}
}
