package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

// permitID returns the ID of the permit for an attempt. It is a version 7 UUID: the time at which the attempt started, then a hash of the purpose
// of the permit. A manager that gives the permit again after a crash, or a second manager, uses the same ID, and an agent uses it once.
func permitID(n *nodeState, attempt v1alpha1.RolloutStatus) string {
	start := ptr.Deref(attempt.Since, metav1.Time{})
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d\n", n.ClientNode.UID, attempt.BootHash, n.BootID, attempt.Attempts))
	var id [16]byte
	copy(id[6:], sum[:])
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(max(start.UnixMilli(), 0)))
	copy(id[:6], millis[2:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func (n *nodeState) isPermitOf(id string, attempt v1alpha1.RolloutStatus) bool {
	attempt.Since = &metav1.Time{Time: permitTime(id)}
	return permitID(n, attempt) == id
}

// permitTime returns the start of the attempt of a permit, zero if the ID does not contain it.
func permitTime(id string) time.Time {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) != 16 || raw[6]>>4 != 7 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, raw[:6]...))))
}
