package mountoptions

import "github.com/storageclient/operator/tuning/internal/decimal"

// Bytes reads a size as the options of XFS write it: a number of bytes, or one with the suffix k, m or g.
func Bytes(text string) (int64, bool) {
	n, err := decimal.Parse(inBytes(text))
	return n, err == nil
}
