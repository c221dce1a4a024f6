package modprobe

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

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
