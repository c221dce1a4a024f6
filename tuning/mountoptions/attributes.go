package mountoptions

import "strconv"

// AttributeSeconds is for how long at least an NFS mount with these options keeps the attributes of a file (acregmin); 0 where it keeps
// none.
func AttributeSeconds(options []string) float64 {
	state := nfs.resolve(Parse(options))
	if state[keyCache] == flagNoac {
		return 0
	}
	value, given := state["acregmin"]
	if !given {
		value = nfs.timerDefaults["acregmin"]
	}
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0
	}
	return seconds
}
