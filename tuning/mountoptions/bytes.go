package mountoptions

import "github.com/storageclient/operator/tuning/internal/decimal"

// Bytes parses a size in the format of XFS options: a number of bytes, or a number with the suffix k, m or g.
func Bytes(text string) (int64, bool) {
	n, err := decimal.Parse(inBytes(text))
	return n, err == nil
}
