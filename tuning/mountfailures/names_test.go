package mountfailures

import (
	"fmt"
	"strings"
	"testing"
)

// phrases returns all phrases with their cause.
func (r rules) phrases() map[string]Cause {
	all := map[string]Cause{}
	for _, group := range []map[Cause][]string{r.Decisive, r.Last} {
		for cause, phrases := range group {
			for _, phrase := range phrases {
				all[phrase] = cause
			}
		}
	}
	return all
}

func TestWordsOfRulesInNamesChangeNothing(t *testing.T) {
	// <PV> is a name of Kubernetes, <SERVER> a host name, and <PATH> a path, which can contain blanks.
	templates := map[string]Cause{
		"MountVolume.SetUp failed for volume \"<PV>\" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs -o nconect=4 <SERVER>:/<PATH> /m/<PV>\nOutput: mount.nfs: an incorrect mount option was specified":                                                                                                                                  Options,
		"MountVolume.SetUp failed for volume \"<PV>\" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs <SERVER>:/<PATH> /m/<PV>\nOutput: mount.nfs: an incorrect mount option was specified for /m/<PV>":                                                                                                                                   Options,
		"MountVolume.SetUp failed for volume \"<PV>\" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs <SERVER>:/<PATH> /m/<PV>\nOutput: mount.nfs: access denied by server while mounting <SERVER>:/<PATH>":                                                                                                                               Unknown,
		"MountVolume.SetUp failed for volume \"<PV>\" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs <SERVER>:/<PATH> /m/<PV>\nOutput: mount.nfs: Failed to resolve server <SERVER>: Name or service not known":                                                                                                                          Elsewhere,
		"mount.nfs: mounting <SERVER>:/<PATH> failed, reason given by server: No such file or directory":                                                                                                                                                                                                                                                                      Elsewhere,
		"MountVolume.MountDevice failed for volume \"<PV>\" : rpc error: code = Internal desc = volume(<SERVER>/<PV>) mount \"//<SERVER>/<PATH>\" on \"/g/<PV>\" failed with mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t cifs //<SERVER>/<PATH> /g/<PV>\nOutput: mount error(22): Invalid argument\nRefer to the mount.cifs(8) manual page": Options,
		"MountVolume.MountDevice failed for volume \"<PV>\" : rpc error: code = Internal desc = volume(<PV>) mount \"//<SERVER>/<PATH>\" on \"/g\" failed with mount error(13): Permission denied":                                                                                                                                                                            Unknown,
		"mount error: could not resolve address for <SERVER>: Unknown error":                                                                                                                                                Elsewhere,
		"Unable to attach or mount volumes: unmounted volumes=[<PV>], unattached volumes=[<PV> <PV>], failed to process volumes=[]: timed out waiting for the condition":                                                    Elsewhere,
		"MountVolume.SetUp failed for volume \"<PV>\" : rpc error: code = InvalidArgument desc = Found tls in mountOptions but encryptInTransit is false":                                                                   Options,
		"MountVolume.SetUp failed for volume \"<PV>\" : rpc error: code = Internal desc = error mounting NFS volume <SERVER>:/<PV> on mountpoint /m/<PV>: exit status 32":                                                   Unknown,
		"MountVolume.MountDevice failed for volume \"<PV>\" : fetching NodeStageSecretRef <PV>/<PV> failed: kubernetes.io/csi: failed to find the secret <PV> in the namespace <PV> with error: secrets \"<PV>\" not found": Elsewhere,
		"error processing PVC <PV>/<PV>: PVC is not bound": Elsewhere,
	}
	for template, want := range templates {
		for phrase := range known.phrases() {
			words := append(strings.Fields(phrase), strings.Join(strings.Fields(phrase), "-"))
			for _, word := range words {
				name := strings.NewReplacer("/", "-", "(", "-", ")", "").Replace(strings.Trim(word, `:,'="`))
				message := strings.NewReplacer("<PV>", name, "<SERVER>", name+".example.com", "<PATH>", phrase).Replace(template)
				if got := CauseOf(message, false); got != want {
					t.Errorf("got %s, want %s: %s\n%s", got, want, message, condense(message))
				}
			}
		}
	}
}

func TestEveryPhraseDecides(t *testing.T) {
	seen := map[string]bool{}
	for _, group := range []map[Cause][]string{known.Decisive, known.Last} {
		for cause, phrases := range group {
			switch cause {
			case Options, Elsewhere, Unknown, unreached:
			default:
				t.Errorf("got an unknown cause %s", cause)
			}
			for _, phrase := range phrases {
				if seen[phrase] || known.find(phrase) != cause {
					t.Errorf("got phrase %q twice, or with cause %s, want %s", phrase, known.find(phrase), cause)
				}
				seen[phrase] = true
				if !strings.Contains(phrase, " ") || condense(phrase) != phrase {
					t.Errorf("got phrase %q that a name can contain, or that no message can contain: %q", phrase, condense(phrase))
				}
			}
		}
	}
}

func TestTheLastPhraseDecides(t *testing.T) {
	for earlier := range known.phrases() {
		for _, last := range []struct {
			text string
			want Cause
		}{
			{"mount.nfs: an incorrect mount option was specified", Options},
			{"mount error(22): Invalid argument", Options},
			{"mount.nfs: access denied by server while mounting filer:/x", Unknown},
			{"mount.nfs: Connection refused", Elsewhere},
		} {
			want := last.want
			for cause, phrases := range known.Decisive {
				for _, phrase := range phrases {
					if phrase == earlier {
						want = cause
					}
				}
			}
			// The last phrase counts even if the start has it, too.
			message := fmt.Sprintf("%s\n%s\n%s", last.text, earlier, last.text)
			if got := CauseOf(message, false); got != want {
				t.Errorf("got %s, want %s: %s", got, want, message)
			}
		}
	}
}
