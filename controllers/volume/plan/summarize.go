package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// Volume is a volume that carries options of a profile.
type Volume struct {
	Name string
	// Wanted are the profile's options among the volume's mount options.
	Wanted []string
}

// Summary is the part of a profile's status about its volumes.
type Summary struct {
	// Matched, UpToDate, Exceptions and Blocked are the counts of status.volumes. The rest of Matched must still be written.
	Matched, UpToDate, Exceptions, Blocked int32
	// BlockedExamples and ExceptionExamples are the first three blocked volumes and the first three exceptions, by name.
	BlockedExamples, ExceptionExamples []Note
	// Unrestored are the names of the volumes that carry the profile in their annotation and must still be restored. It excludes volumes that stay
	// unchanged permanently: the finalizer may be removed when the list is empty.
	Unrestored []string
	// Volumes are the volumes that carry the profile's options. Stale are their mounts from before a change, as StorageClientNodes report them.
	Volumes []Volume
	Stale   Stale
	// Stopped describes the failed volume, with its options and the cause, that stops all other volumes from getting the options. Empty if there
	// is none.
	Stopped string
	// Batch describes the reason why pending volumes wait. Empty if unknown.
	Batch string
	// Unprobed explains why options that no mount has proven were not probed. Empty if they were.
	Unprobed string
	// Evidence describes the volumes that wait for a mount.
	Evidence AwaitedEvidence
	// Servers are the servers of the matched NFS volumes with their requests, each combination once.
	Servers []advice.Server
	// LeftOut are the volumes that no rule selects, although one may mean them, by driver.
	LeftOut []advice.LeftOut
}

// AwaitedEvidence describes the volumes that get their options after a pod has mounted another volume with them.
type AwaitedEvidence struct {
	// Waiting is the number of waiting volumes.
	Waiting int32
	// Until is the end of the last soak of volumes with the options. Users need not act before then.
	Until time.Time
	// LeftOut is a volume that waits for a canary that was created with the options. Empty if there is none.
	LeftOut string
	// Volumes are the first three volumes with the options, by name.
	Volumes []AwaitedVolume
}

// AwaitedVolume is a volume that a pod must mount.
type AwaitedVolume struct {
	Name string
	// VolumeClaim is its PersistentVolumeClaim. Empty if there is none.
	VolumeClaim types.NamespacedName
	// MountsPerPod is true if each pod on a node has a separate mount.
	MountsPerPod bool
	// Server is a server of which the node must have no other mount, since the mount must show the number of connections. Empty if that does not
	// matter.
	Server string
}

// Conflict reports whether a volume is blocked. message names up to three of them with their reasons.
func (s Summary) Conflict() (message string, conflict bool) {
	parts := lists.Each(s.BlockedExamples, func(n Note) string { return fmt.Sprintf("%s: %s: %s", n.Volume, n.Reason, n.Message) })
	return joinExamples(parts, s.Blocked), s.Blocked > 0
}

// DescribeExceptions names up to three volumes with differences that the rules allow, with both values. Empty if there are none.
func (s Summary) DescribeExceptions() string {
	return joinExamples(lists.Each(s.ExceptionExamples, func(n Note) string { return n.Volume + ": " + n.Message }), s.Exceptions)
}

// IsOpen reports whether volumes must still be written.
func (s Summary) IsOpen() bool { return s.open() > 0 }

func (s Summary) open() int32 { return s.Matched - s.UpToDate - s.Exceptions - s.Blocked }

// AwaitsEvidence reports whether all volumes that must still be written wait for a mount.
func (s Summary) AwaitsEvidence(now time.Time) bool {
	return s.Evidence.Waiting > 0 && s.Evidence.Waiting == s.open() && !now.Before(s.Evidence.Until)
}

func joinExamples(parts []string, count int32) string {
	message := strings.Join(parts, "; ")
	if omitted := int(count) - len(parts); omitted > 0 {
		message += fmt.Sprintf(" and %d more", omitted)
	}
	return message
}

// Summarize evaluates all volumes for one profile, like the plan. It treats a profile that is paused or in mode Plan as if it acted: the
// counts show the expected effect. All counts of a stalled or deleted profile are zero.
func Summarize(name string, s Snapshot) Summary { return NewView(s).Summarize(name) }

func firstOf(notes []Note) []Note {
	const examples = 3
	slices.SortFunc(notes, func(a, b Note) int { return strings.Compare(a.Volume, b.Volume) })
	return notes[:min(examples, len(notes))]
}

func (s *Summary) addBatches(profiles *judge.Profiles, known sets, name string, volumes []*evaluation, now time.Time) {
	p := profiles.Get(name)
	if p == nil || p.Deleting {
		return
	}
	var last []string
	var start time.Time
	first := true
	for _, j := range volumes {
		if !j.Mark.IsBatchOf(name) || !j.carriesBatch() {
			continue
		}
		first = first && (start.IsZero() || start.Equal(j.Mark.Since))
		if j.Mark.Since.After(start) {
			start, last = j.Mark.Since, nil
		}
		if j.Mark.Since.Equal(start) {
			last = append(last, j.Volume.Name)
		}
	}
	s.Stopped, s.Batch = known.describeBlames(name, profiles)
	if end := start.Add(soakOf(p)); s.Batch == "" && p.Acts() && len(last) > 0 && s.IsOpen() && end.After(now) {
		s.Batch = soakText(last, first, end)
	}
}

// describeBlames describes the volumes that could not be mounted with options of a profile, and the volumes with a failure of unknown cause.
func (s sets) describeBlames(profile string, profiles *judge.Profiles) (failed, suspected string) {
	var closed, open []string
	for _, r := range s {
		if !r.Stops() || !r.IsDeclaredBy(profile) || !profiles.Declare(r) {
			continue
		}
		for _, b := range r.Blames {
			message := fmt.Sprintf("PersistentVolume %s could not be mounted with %s", b.Volume, judge.BlameText(r, b))
			switch {
			case b.Settled || !b.Unclear:
				closed = append(closed, message)
			case b.IsOpen:
				open = append(open, message+"; original options restored until a pod shows whether they work: restart a pod that uses the volume")
			default:
				open = append(open, message+"; original options restored until a pod shows whether they work")
			}
		}
	}
	return text.Join(lists.Distinct(closed), "; "), text.Join(lists.Distinct(open), "; ")
}

// addEvidence adds the volumes that wait for a mount, and the volumes that pods must mount.
func (s *Summary) addEvidence(p *planner, volumes []*evaluation, name string) {
	profile := p.Profiles.Get(name)
	if profile == nil || !profile.Acts() || profile.Rollout.Volumes.OnNoEvidence == v1alpha1.NoEvidenceProceed {
		return
	}
	wanted, waiting := map[string]string{}, int32(0)
	for _, j := range volumes {
		if !slices.Contains(j.verdict.Profiles, name) || !j.verdict.ChangesOptions(j.Volume) || j.hasOptionsOf(name) {
			continue
		}
		if unmounted := p.waitsForMount(*j); len(unmounted) > 0 {
			waiting++
			for _, volume := range unmounted {
				wanted[volume] = cmp.Or(wanted[volume], j.Volume.Name)
			}
		}
	}
	for _, j := range p.volumes {
		if wanted[j.Volume.Name] == "" {
			continue
		}
		s.Evidence.Volumes, s.Evidence.Waiting = append(s.Evidence.Volumes, j.awaited()), waiting
		if end := j.carriedSince().Add(soakOf(profile)); end.After(s.Evidence.Until) {
			s.Evidence.Until = end
		}
		if j.isNewCanary() {
			s.Evidence.LeftOut = cmp.Or(s.Evidence.LeftOut, wanted[j.Volume.Name])
		}
	}
	slices.SortFunc(s.Evidence.Volumes, func(a, b AwaitedVolume) int { return strings.Compare(a.Name, b.Name) })
	s.Evidence.Volumes = s.Evidence.Volumes[:min(maxAwaited, len(s.Evidence.Volumes))]
}

func (j evaluation) awaited() AwaitedVolume {
	out := AwaitedVolume{Name: j.Volume.Name, MountsPerPod: judge.MountsPerPod(j.Volume)}
	if !j.isUnused() {
		out.VolumeClaim, _ = judge.ClaimOf(j.Volume)
	}
	if _, isSet := j.Source.Options().Nconnect(j.verdict.DeclaredOptions()); isSet {
		out.Server = j.Source.Server
	}
	return out
}

// transports are the transport options of parsed mount options. Many volumes have the same.
type transports map[string]mountoptions.TransportOptions

func (t transports) of(client mountoptions.Protocol, options []string) mountoptions.TransportOptions {
	key := string(client) + "\n" + strings.Join(options, "\n")
	transport, isKnown := t[key]
	if !isKnown {
		transport = client.Transport(options)
		t[key] = transport
	}
	return transport
}

// withServerOf adds the server of a matched volume to a list. It uses the mount options after pending writes.
func (t transports) withServerOf(j *evaluation, profile string, servers []advice.Server) []advice.Server {
	pv, v, source := j.Volume, j.verdict, j.Source
	if source.Server == "" || source.Protocol != v1alpha1.ProtocolNFS || !slices.Contains(v.Profiles, profile) {
		return servers
	}
	options := v.Options
	if v.Action == judge.ActionNone {
		options = pv.Spec.MountOptions
	}
	transport := t.of(source.Options(), options)
	return lists.AddMissing(servers, advice.Server{Name: source.Server, Version: transport.Version, Nconnect: transport.Nconnect})
}

func (s *Summary) addVolume(profile string, j *evaluation) {
	v := j.verdict
	if !slices.Contains(v.Profiles, profile) {
		return
	}
	s.Matched++
	standing, message := j.stateFor(profile)
	note := Note{Volume: j.Volume.Name, Reason: v.Reason, Message: message, State: v.State}
	if v.State == judge.StateUpToDate {
		s.Volumes = append(s.Volumes, Volume{Name: j.Volume.Name, Wanted: v.Carried[profile]})
	}
	switch standing {
	case VolumeUpToDate:
		s.UpToDate++
	case VolumeException:
		s.Exceptions++
		s.ExceptionExamples = append(s.ExceptionExamples, note)
	case VolumeBlocked:
		s.Blocked++
		s.BlockedExamples = append(s.BlockedExamples, note)
	case VolumePending, VolumeHeld:
	}
}
