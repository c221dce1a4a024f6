package mountoptions

import "strconv"

// AttributeSeconds returns the minimum time in seconds that an NFS mount with these options caches the attributes of a
// file (acregmin). Zero if it does not cache them.
func AttributeSeconds(options []string) float64 {
	state := nfs.resolve(Parse(options))
	if state[keyCache] == flagNoac {
		return 0
	}
	value, ok := state["acregmin"]
	if !ok {
		value = nfs.timerDefaults["acregmin"]
	}
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0
	}
	return seconds
}
