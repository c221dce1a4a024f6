package tuned

import "strings"

// before is the state of tuned before the first change, as the journal contains it.
type before struct {
	running, enabled bool
	mode, profile    fileText
}

// String returns e.g. "running enabled mode=auto profile=virtual-guest". The profile is last, because there may be several.
func (b before) String() string {
	words := []string{"stopped", "disabled"}
	if b.running {
		words[0] = "running"
	}
	if b.enabled {
		words[1] = "enabled"
	}
	if b.mode.present {
		words = append(words, "mode="+b.mode.text)
	}
	if b.profile.present {
		words = append(words, "profile="+b.profile.text)
	}
	return strings.Join(words, " ")
}

func parseBefore(text string) (b before, ok bool) {
	text, b.profile.text, b.profile.present = strings.Cut(text, " profile=")
	text, b.mode.text, b.mode.present = strings.Cut(text, " mode=")
	running, enabled, ok := strings.Cut(text, " ")
	b.running, b.enabled = running == "running", enabled == "enabled"
	for _, profile := range strings.Fields(b.profile.text) {
		ok = ok && profileBytes.MatchString(profile)
	}
	return b, ok && (b.running || running == "stopped") && (b.enabled || enabled == "disabled")
}

// restoreCommand returns the command that makes a running daemon return to its previous profile.
func (b before) restoreCommand() []string {
	switch {
	case b.mode.text == modeAuto:
		return []string{"tuned-adm", "auto_profile"}
	case b.profile.text == "":
		return []string{"tuned-adm", "off"}
	default:
		return append([]string{"tuned-adm", "profile"}, strings.Fields(b.profile.text)...)
	}
}
