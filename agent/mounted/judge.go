package mounted

import (
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

const (
	maxDifferences = 3
	// maxNamedPods is how many pods a message names by their UIDs.
	maxNamedPods = 12
)

// slotKeys are the settings that a transport takes its limit from when it is made.
var slotKeys = []string{
	catalogue.ModuleKey("sunrpc", "tcp_max_slot_table_entries"), catalogue.ModuleKey("sunrpc", "tcp_slot_table_entries"),
}

// sessionKey is the setting that a session takes its number of slots from when it is made.
var sessionKey = catalogue.ModuleKey("nfs", "max_session_slots")

// Modules report what a connection that is made now would get. modprobe.Subject is it.
type Modules interface {
	// SlotLimit is how many requests a new transport may have in flight, NFSv3 and 4.0 only.
	SlotLimit() (int, error)
	// OldSessions are the sessions that are older than the number of slots that is set.
	OldSessions() ([]mounts.Session, error)
}

// ReadAhead says why the read-ahead of a volume is not as declared; empty if it is.
type ReadAhead struct {
	Message string
	// Failed is true if it could be set.
	Failed bool
}

// judge says of mounts how they stand towards what the volumes want.
type judge struct {
	volumes map[string]v1alpha1.NodeVolume
	// readAhead holds by volume how its read-ahead stands.
	readAhead map[string]ReadAhead
	// slotLimit is what a new transport would get; 0 where no profile declares it, or nobody knows.
	slotLimit int
	// oldSessions are the clients whose session is older than the number of slots that is set; none where no profile declares it.
	oldSessions []string
	// clients holds the mounts that share connections, by client.
	clients map[string][]mounts.Mount
}

// newJudge gathers what is to be known of all mounts before one can be judged.
func newJudge(spec *v1alpha1.StorageClientNodeSpec, readAhead map[string]ReadAhead, all []mounts.Mount, modules Modules) *judge {
	j := &judge{volumes: map[string]v1alpha1.NodeVolume{}, readAhead: readAhead, clients: map[string][]mounts.Mount{}}
	if spec.Release || len(spec.Volumes) == 0 {
		return j
	}
	for _, volume := range spec.Volumes {
		j.volumes[volume.Name] = volume
	}
	for _, m := range all {
		if m.Client != "" {
			j.clients[m.Client] = append(j.clients[m.Client], m)
		}
	}
	declares := func(keys ...string) bool {
		return slices.ContainsFunc(spec.Settings, func(s v1alpha1.NodeSetting) bool { return slices.Contains(keys, s.Key) })
	}
	if declares(slotKeys...) {
		// A limit that cannot be read is 0.
		j.slotLimit, _ = modules.SlotLimit()
	}
	if declares(sessionKey) {
		old, _ := modules.OldSessions()
		for _, session := range old {
			j.oldSessions = append(j.oldSessions, session.Client)
		}
	}
	return j
}

func (j *judge) judgeMount(m mounts.Mount) (v1alpha1.MountState, string) {
	volume, managed := j.volumes[m.Volume]
	if m.Volume == "" || !managed {
		return v1alpha1.MountUnmanaged, ""
	}
	own, shared := j.findDifferences(m, volume.MountOptions)
	sentences := text.Cap(slices.Concat(shared, own), maxDifferences, "")
	if len(shared) > 0 {
		sentences = append(sentences, j.describeHolders(m))
	}
	state, note := v1alpha1.MountEffective, j.readAhead[volume.Name]
	if volume.ReadAheadKiB != nil && note.Message != "" {
		sentences = append(sentences, fmt.Sprintf("wanted readAheadKiB %d: %s", *volume.ReadAheadKiB, note.Message))
	}
	if len(own)+len(shared) > 0 || volume.ReadAheadKiB != nil && note.Failed {
		state = v1alpha1.MountStale
	}
	return state, text.Cut(strings.Join(sentences, "; "), bounds.Message)
}

// findDifferences tells in what a mount was not made as wanted, parted into what is its own, and what it shares with all
// mounts of the server: it stays until the last of these is gone.
func (j *judge) findDifferences(m mounts.Mount, wanted []string) (own, shared []string) {
	protocol := mountoptions.OfMount(m.Protocol)
	open := false
	if n, asked := mountoptions.Nconnect(wanted); asked && m.Client != "" && m.Connections > 0 {
		open = true
		if m.Connections != n {
			shared = append(shared, fmt.Sprintf("nconnect is %d by open connections, wanted %d", m.Connections, n))
		}
	}
	for _, d := range mountoptions.Outdated(m.Protocol, wanted, m.Options) {
		switch {
		case d.Option == nconnect && open:
			// What is open counts, and not what the kernel shows as asked for: connections come and go by hand too.
		case m.Client != "" && protocol.Effect(d.Option) == v1alpha1.EffectNewTransport:
			shared = append(shared, d.String())
		default:
			own = append(own, d.String())
		}
	}
	if limit := j.slotLimit; limit > 0 && m.SlotLimit > 0 && m.SlotLimit != limit && obeysSlotTable(m) {
		shared = append(shared, fmt.Sprintf("the slot limit is %d, wanted %d: its connections are older than the module's option", m.SlotLimit, limit))
	}
	if m.Client != "" && slices.Contains(j.oldSessions, m.Client) {
		shared = append(shared, "the session is older than max_session_slots and keeps its slots")
	}
	return own, shared
}

const nconnect = "nconnect"

// obeysSlotTable is false for sessions, whose transports have no limit of their own.
func obeysSlotTable(m mounts.Mount) bool {
	return m.Client != "" && (!strings.HasPrefix(m.Protocol, "NFSv4.") || m.Protocol == "NFSv4.0")
}

// describeHolders names the mount that opened the connections of a client, and who has to go before others can be opened.
func (j *judge) describeHolders(m mounts.Mount) string {
	var pods, hosts []string
	first := "mount " + m.First
	for _, peer := range j.clients[m.Client] {
		pods = append(pods, peer.PodUIDs...)
		if len(peer.PodUIDs) == 0 {
			hosts = append(hosts, peer.MountPoint)
		}
		if peer.MountPoint == m.First && peer.Volume != "" {
			first = fmt.Sprintf("mount %s (volume %s)", m.First, peer.Volume)
		}
	}
	slices.Sort(pods)
	pods = slices.Compact(pods)
	var going []string
	if len(pods) > 0 {
		going = append(going, "pods "+strings.Join(text.Cap(pods, maxNamedPods, ""), ", "))
	}
	if len(hosts) > 0 {
		going = append(going, "mounts outside pods "+host.ListNames(hosts))
	}
	return fmt.Sprintf("%s to %s opened the connections of %s; these keep them open: %s",
		first, m.Server, text.Count(len(j.clients[m.Client]), "mount"), strings.Join(going, "; "))
}
