package bootloader

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/storageclient/operator/agent/host"
)

// unprintedError names a line of a menu that the menu's generator does not print. A new menu would lose it.
type unprintedError string

func (e unprintedError) Error() string { return string(e) }

type menuVersion struct {
	modified time.Time
	size     int64
}

// menuFinding is a line of one version of the present menu that a new menu would lose. It saves a run of grub-mkconfig at every check.
type menuFinding struct {
	version menuVersion
	reason  unprintedError
}

func (h *Host) menuVersion(name string) menuVersion {
	info, err := h.fs.Lstat(name)
	if err != nil {
		return menuVersion{}
	}
	return menuVersion{modified: info.ModTime(), size: info.Size()}
}

// knownUnprinted returns the finding about the present version of the menu. Empty if there is none.
func (h *Host) knownUnprinted(menu string) unprintedError {
	if h.finding.reason == "" || h.finding.version != h.menuVersion(menu) {
		return ""
	}
	return h.finding.reason
}

// digest identifies the content of a file in the journal.
func digest(file host.SavedFile) string {
	sum := sha256.Sum256(file.Data)
	return hex.EncodeToString(sum[:])
}
