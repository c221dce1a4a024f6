package mountwatch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

const (
	maxDifferences = 3
	maxNamedPods   = 12
)

// slotKeys are the settings that set the limit of a new transport.
var slotKeys = []string{
	catalogue.ModuleKey("sunrpc", "tcp_max_slot_table_entries"), catalogue.ModuleKey("sunrpc", "tcp_slot_table_entries"),
}

// sessionKey is the setting that sets the number of slots of a new session.
var sessionKey = catalogue.ModuleKey("nfs", "max_session_slots")

// Modules reports the module parameters that apply to new connections. modprobe.Subject implements it.
type Modules interface {
	// SlotLimit returns the maximum number of requests in flight on a new transport, for NFSv3 and NFSv4.0 only.
	SlotLimit() (int, error)
	// OldSessions returns the sessions that are older than the current number of slots.
	OldSessions() ([]mounts.Session, error)
}

// ReadAhead is the state of the read-ahead of a volume. Message is the reason why it differs from its declared value. Empty if it does not.
type ReadAhead struct {
	State   v1alpha1.SettingState
	Message string
}

// comparison compares mounts with the declared values of their volumes.
type comparison struct {
	volumes   map[string]v1alpha1.NodeVolume
	readAhead map[string]ReadAhead
	// slotLimit is the limit of a new transport. Zero if unknown, or if no profile declares it.
	slotLimit int
	// oldSessions contains the clients whose session is older than the current number of slots. Empty if no profile declares the number.
	oldSessions []string
	clients     map[string][]mounts.Mount
}

// newJudge collects the data of all mounts that a comparison of one mount needs.
func newJudge(spec *v1alpha1.StorageClientNodeSpec, readAhead map[string]ReadAhead, all []mounts.Mount, modules Modules) *comparison {
	j := &comparison{volumes: map[string]v1alpha1.NodeVolume{}, readAhead: readAhead, clients: map[string][]mounts.Mount{}}
	if spec.Release || len(spec.Volumes) == 0 {
		return j
	}
	j.volumes = lists.Map(spec.Volumes, func(volume v1alpha1.NodeVolume) (string, v1alpha1.NodeVolume) { return volume.Name, volume })
	for _, m := range all {
		if m.Client != "" {
			j.clients[m.Client] = append(j.clients[m.Client], m)
		}
	}
	declares := func(keys ...string) bool {
		return slices.ContainsFunc(spec.Settings, func(s v1alpha1.NodeSetting) bool { return slices.Contains(keys, s.Key) })
	}
	if declares(slotKeys...) {
		// The limit is 0 if it cannot be read.
		j.slotLimit, _ = modules.SlotLimit()
	}
	if declares(sessionKey) {
		old, _ := modules.OldSessions()
		j.oldSessions = lists.Each(old, func(session mounts.Session) string { return session.Client })
	}
	return j
}

func (j *comparison) judgeMount(m mounts.Mount) (v1alpha1.MountState, string) {
	volume, managed := j.volumes[m.Volume]
	if m.Volume == "" || !managed {
		return v1alpha1.MountUnmanaged, ""
	}
	local, shared := j.findDifferences(m, volume.MountOptions)
	sentences := text.Cap(slices.Concat(shared, local), maxDifferences, "")
	if len(shared) > 0 {
		sentences = append(sentences, j.describeHolders(m))
	}
	state, note := v1alpha1.MountEffective, j.readAhead[volume.Name]
	if volume.ReadAheadKiB != nil && note.Message != "" {
		sentences = append(sentences, fmt.Sprintf("desired readAheadKiB %d: %s", *volume.ReadAheadKiB, note.Message))
	}
	differs := note.State == v1alpha1.SettingFailed || note.State == v1alpha1.SettingDrifted
	if len(local)+len(shared) > 0 || volume.ReadAheadKiB != nil && differs {
		state = v1alpha1.MountStale
	}
	return state, text.Cut(strings.Join(sentences, "; "), bounds.Message)
}

// findDifferences returns the differences between a mount and the desired options. local belongs to this mount. shared belongs to all
// mounts of the server and stays until the last of them is unmounted.
func (j *comparison) findDifferences(m mounts.Mount, wanted []string) (local, shared []string) {
	protocol := mountoptions.OfMount(m.Protocol)
	open := false
	if n, isSet := mountoptions.NFS.Nconnect(wanted); isSet && m.Client != "" && m.Connections > 0 {
		open = true
		if m.Connections != n {
			shared = append(shared, fmt.Sprintf("nconnect is %d because of open connections, desired %d", m.Connections, n))
		}
	}
	for _, d := range mountoptions.Outdated(m.Protocol, wanted, m.Options) {
		switch {
		case d.Option == nconnect && open:
			// The number of open connections decides, not the option in the mount table. Connections can also be added and removed manually.
		case m.Client != "" && protocol.Effect(d.Option) == v1alpha1.EffectNewTransport:
			shared = append(shared, d.String())
		default:
			local = append(local, d.String())
		}
	}
	if limit := j.slotLimit; limit > 0 && m.SlotLimit > 0 && m.SlotLimit != limit && obeysSlotTable(m) {
		shared = append(shared, fmt.Sprintf("the slot limit is %d, desired %d: the connections are older than the module option", m.SlotLimit, limit))
	}
	if m.Client != "" && slices.Contains(j.oldSessions, m.Client) {
		shared = append(shared, "the session is older than max_session_slots and keeps its slots")
	}
	return local, shared
}

const nconnect = "nconnect"

// obeysSlotTable reports whether the slot table limits the mount. Transports of sessions have no separate limit.
func obeysSlotTable(m mounts.Mount) bool {
	return m.Client != "" && (!strings.HasPrefix(m.Protocol, "NFSv4.") || m.Protocol == "NFSv4.0")
}

// describeHolders returns the mount that opened the connections of a client, and the pods and mounts that keep them open.
func (j *comparison) describeHolders(m mounts.Mount) string {
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
	var going []string
	if pods = lists.Distinct(pods); len(pods) > 0 {
		going = append(going, "pods "+strings.Join(text.Cap(pods, maxNamedPods, ""), ", "))
	}
	if len(hosts) > 0 {
		going = append(going, "mounts outside pods "+host.ListNames(hosts))
	}
	return fmt.Sprintf("%s to %s opened the connections of %s; these keep them open: %s",
		first, m.Server, text.Count(len(j.clients[m.Client]), "mount"), strings.Join(going, "; "))
}
