package modprobe

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	sessionSlots  = "nfs/max_session_slots"
	callbackSlots = "nfs/max_session_cb_slots"
	// factSessions and factCallbacks are the names of the facts about the sessions of this boot.
	factSessions  = "nfs-sessions"
	factCallbacks = "nfs-callback-sessions"

	bootIDFile = "/proc/sys/kernel/random/boot_id"
	statFile   = "/proc/stat"
)

// sessionFacts contains the name of the fact by the parameter that a session gets when it is created, and then keeps.
var sessionFacts = map[string]string{sessionSlots: factSessions, callbackSlots: factCallbacks}

// BootFacts stores facts about one boot until the next. The agent's journal implements it.
type BootFacts interface {
	BootFact(bootID, name string) (value string, ok bool)
	SetBootFact(bootID, name, value string) error
}

type sessionFact struct {
	// SetAt is the time when the effective value was set, in seconds since the boot. Zero if the module was loaded with it.
	SetAt int `json:"setAt"`
	// Old contains the ports of clients whose session is older than that. The oldest mount of such a client may end before the session does.
	Old map[string][]int `json:"old,omitempty"`
}

// recordSet records that the value is effective since now.
func (s *Subject) recordSet(p parameter) error {
	if sessionFacts[p.String()] == "" {
		return nil
	}
	now, err := s.uptime()
	if err != nil {
		return err
	}
	return s.recordSessions(p.String(), sessionFact{SetAt: now})
}

// recordEffective records, once in a boot, the time since which an existing value is effective. If the agent's file was written in this boot, an
// agent of an earlier release has set the value by then. Otherwise, the module was loaded with it.
func (s *Subject) recordEffective(p parameter) error {
	if sessionFacts[p.String()] == "" || !s.isLoaded(p.module) {
		return nil
	}
	if _, isRecorded, err := s.readSessionFact(p.String()); isRecorded || err != nil {
		return err
	}
	return s.recordSessions(p.String(), sessionFact{SetAt: s.fileWrittenAt()})
}

// fileWrittenAt returns the time when the agent's file was written, in seconds since the boot. Zero if that was before the boot, or is unknown.
func (s *Subject) fileWrittenAt() int {
	info, err := s.fs.Lstat(DropIn)
	data, readErr := s.fs.ReadFile(statFile)
	if err != nil || readErr != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if booted, ok := strings.CutPrefix(line, "btime "); ok {
			at, err := strconv.ParseInt(strings.TrimSpace(booted), 10, 64)
			up, upErr := s.uptime()
			if err == nil && upErr == nil {
				// The clock may have been set back since. The file was not written in the future.
				return min(int(max(info.ModTime().Unix()-at, 0)), up)
			}
		}
	}
	return 0
}

// uptime returns the time since the boot, in seconds.
func (s *Subject) uptime() (int, error) {
	up, err := s.fs.Uptime()
	return int(up / time.Second), err
}

func (s *Subject) readSessionFact(name string) (fact sessionFact, isRecorded bool, err error) {
	bootID, err := s.fs.ReadValue(bootIDFile)
	if err != nil {
		return fact, false, err
	}
	text, isRecorded := s.facts.BootFact(bootID, sessionFacts[name])
	if !isRecorded {
		return fact, false, nil
	}
	err = json.Unmarshal([]byte(text), &fact)
	return fact, true, err
}

func (s *Subject) recordSessions(name string, fact sessionFact) error {
	bootID, err := s.fs.ReadValue(bootIDFile)
	if err != nil {
		return err
	}
	text, err := json.Marshal(fact)
	if err != nil {
		return err
	}
	return s.facts.SetBootFact(bootID, sessionFacts[name], string(text))
}

// OldSessions returns the sessions that are older than the current number of slots, sorted by client. There are none if it was never set.
func (s *Subject) OldSessions() ([]mounts.Session, error) { return s.sessionsBefore(sessionSlots) }

// sessionsBefore returns the sessions that are older than the effective value of a parameter.
func (s *Subject) sessionsBefore(name string) ([]mounts.Session, error) {
	if s.fs.IsImage() {
		return nil, nil
	}
	fact, isRecorded, err := s.readSessionFact(name)
	if err != nil || !isRecorded || fact.SetAt == 0 && len(fact.Old) == 0 {
		return nil, err
	}
	now, err := s.uptime()
	if err != nil {
		return nil, err
	}
	all, err := s.listSessions()
	if err != nil {
		return nil, err
	}
	old := lists.Filter(all, func(session mounts.Session) bool { return fact.isOld(session, now) })
	ports := lists.Map(old, func(session mounts.Session) (client string, ports []int) { return session.Client, session.Ports })
	return old, s.recordSessions(name, sessionFact{SetAt: fact.SetAt, Old: ports})
}

// isOld reports whether a session is older than the value. Ages are whole seconds, so a session that may be either counts as older.
func (f sessionFact) isOld(session mounts.Session, now int) bool {
	if session.Age == math.MaxInt || now-session.Age <= f.SetAt+1 {
		return true
	}
	return slices.ContainsFunc(session.Ports, func(port int) bool { return port != 0 && slices.Contains(f.Old[session.Client], port) })
}

// observeSessions sets a state only if a session was created before the value was set.
func (s *Subject) observeSessions(o *host.Observation, p parameter) {
	old, err := s.sessionsBefore(p.String())
	if err != nil {
		o.State, o.Message = host.Failed, "read the age of NFS sessions: "+err.Error()
		return
	}
	if len(old) > 0 {
		o.State = host.Pending
		o.Message = fmt.Sprintf("sessions with %s are older and keep their slots until every NFSv4.1 and 4.2 mount of the server is unmounted on the node",
			host.ListNames(lists.Each(old, func(session mounts.Session) string { return session.Server })))
	}
}

const (
	maxSlots = "sunrpc/tcp_max_slot_table_entries"
	minSlots = "sunrpc/tcp_slot_table_entries"
)

// observeTransports compares the limit of existing transports with the limit that a new one would get. It sets a state only if they differ.
func (s *Subject) observeTransports(o *host.Observation) {
	if s.transports == nil {
		return
	}
	transports, err := s.transports()
	if err != nil {
		o.State, o.Message = host.Failed, "read the limits of transports: "+err.Error()
		return
	}
	limit, err := s.SlotLimit()
	if err != nil {
		o.State, o.Message = host.Failed, err.Error()
		return
	}
	var old, free []string
	lowest := ""
	for _, t := range transports {
		switch {
		case !t.ObeysSlotTable:
			free = append(free, t.Server)
		case t.SlotLimit != limit:
			old = append(old, t.Server)
			if lowest == "" || t.Server < lowest {
				lowest, o.Observed = t.Server, strconv.Itoa(t.SlotLimit)
			}
		}
	}
	switch {
	case len(old) > 0:
		o.State = host.Pending
		o.Message = fmt.Sprintf("transports to %s keep their old limit until every mount of the server is unmounted on the node",
			host.ListNames(old))
	case len(free) > 0:
		o.Message = "ignored by NFSv4.1 and later: " + host.ListNames(free)
	}
}

// SlotLimit returns the limit of a new transport: the larger of the two slot table sizes. It returns an error if the module sunrpc is not loaded.
func (s *Subject) SlotLimit() (int, error) {
	limit := 0
	for _, name := range []string{minSlots, maxSlots} {
		module, param, _ := strings.Cut(name, "/")
		value, err := s.kernel.ReadValue(s.liveFile(parameter{module, param}))
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return 0, fmt.Errorf("module parameter %s: %w", name, err)
		}
		limit = max(limit, n)
	}
	return limit, nil
}
