// Package modprobe sets options of kernel modules. A drop-in of modprobe.d sets them for the next time a module is loaded. If the module is loaded
// and its parameter is writable, the package also sets it immediately. It never loads a module.
package modprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
)

// Name is the subject's part of a setting's key.
const Name = "module"

// transportDefaults are the kernel's values (Linux 5.10 to 6.18) of parameters that a transport or a session gets when it is created, and then keeps.
// A default is restored if no file sets the parameter, and the module was not loaded before the agent's first change, and is loaded now.
var transportDefaults = map[string]string{
	minSlots:                        "2",
	maxSlots:                        "65536",
	"sunrpc/udp_slot_table_entries": "16",
	sessionSlots:                    "64",
	callbackSlots:                   "16",
}

// Subject implements host.Subject for the settings "module/<module>/<parameter>".
type Subject struct {
	host.Inert

	fs           host.FS
	kernel       host.Kernel
	transports   func() ([]mounts.Transport, error)
	listSessions func() ([]mounts.Session, error)
	facts        BootFacts
	// failed contains, by name, the error of the last Apply.
	failed map[string]string
	// fileErr is the error of the last Apply if it could not keep the drop-in.
	fileErr  error
	place    *mounts.Place
	attended bool
	nodeUID  string
}

var _ host.Subject = &Subject{}

// New returns the subject for one host. transports lists the transports of the host. It lists none if the kernel does not report them (before 5.14).
// If transports is nil, they are not checked. The subject compares the sessions that the host lists with the times when the numbers of slots were
// set, as recorded in facts.
func New(files host.FS, transports func() ([]mounts.Transport, error), sessions func() ([]mounts.Session, error), facts BootFacts) *Subject {
	return &Subject{
		fs: files, kernel: files, transports: transports, listSessions: sessions, facts: facts,
		failed: map[string]string{}, place: mounts.NewPlace(files, path.Dir(DropIn)),
	}
}

// Attend implements host.Subject.
func (s *Subject) Attend(attended bool) { s.attended = attended }

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

// Original implements host.Subject. A module that is not loaded has no original.
func (s *Subject) Original(_ context.Context, name string) (host.Original, error) {
	p, err := parseName(name)
	if err != nil {
		return host.Original{}, err
	}
	value, err := s.kernel.ReadValue(s.liveFile(p))
	if errors.Is(err, fs.ErrNotExist) {
		return host.Original{}, nil
	}
	if err != nil {
		return host.Original{}, fmt.Errorf("read module parameter %s: %w", name, err)
	}
	return host.Original{Present: true, Value: value}, nil
}

// Apply implements host.Subject. The drop-in omits parameters that a loaded module does not know or accept.
func (s *Subject) Apply(_ context.Context, desired []host.Setting) error {
	s.failed, desired = map[string]string{}, s.resolveIdentities(desired)
	known, err := s.knownModules()
	if err != nil {
		s.fileErr = err
		return err
	}
	options := map[string]string{}
	for _, setting := range desired {
		p, err := checkSetting(setting)
		if err != nil || s.unsupportedReason(p, setting.Value, known) != "" {
			continue
		}
		err = s.applyLive(p, setting.Value)
		if err == nil {
			err = s.recordEffective(p)
		}
		if err != nil {
			s.failed[setting.Name] = err.Error()
			continue
		}
		options[p.String()] = setting.Value
	}
	s.fileErr = s.place.RecordWrite(s.fs.KeepFile(DropIn, renderDropIn(options)))
	return s.fileErr
}

// applyLive writes the value if the module is loaded and accepts it, and verifies it.
func (s *Subject) applyLive(p parameter, wanted string) error {
	file := s.liveFile(p)
	value, err := s.kernel.ReadValue(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && sameValue(value, wanted) || !s.isWritable(file) {
		return nil
	}
	// The record comes first: without it, a crash after the write would make existing sessions look new. The record after the write is exact.
	err = s.recordSet(p)
	if err == nil {
		err = host.SetValue(s.kernel, file, wanted, sameValue)
	}
	if err == nil {
		err = s.recordSet(p)
	}
	return err
}

// Observe implements host.Subject.
func (s *Subject) Observe(_ context.Context, desired []host.Setting) []host.Observation {
	s.place.Refresh()
	desired = s.resolveIdentities(desired)
	files := s.optionFiles()
	known, err := s.knownModules()
	return host.ObserveEach(desired, host.Live, func(o *host.Observation, setting host.Setting) error {
		o.Effect = effectOf(setting.Name)
		p, checkErr := checkSetting(setting)
		if failed := cmp.Or(checkErr, err); failed != nil {
			return failed
		}
		if reason := s.unsupportedReason(p, setting.Value, known); reason != "" {
			o.State, o.Message = host.Unsupported, reason
		} else {
			s.observeSetting(o, p, files, known)
		}
		return nil
	})
}

func (s *Subject) observeSetting(o *host.Observation, p parameter, files []optionFile, known modules) {
	s.observeLive(o, p)
	if o.State == "" || o.State == host.Pending {
		// A value that waits for the module to be loaded takes effect only if modprobe passes it.
		s.observeFile(o, p, files, known)
	}
	if o.State == "" {
		s.observeUsers(o, p)
	}
	o.State = cmp.Or(o.State, host.InSync)
}

// observeUsers sets a state only if transports, sessions or the client's identity do not use the value.
func (s *Subject) observeUsers(o *host.Observation, p parameter) {
	switch name := p.String(); {
	case name == maxSlots && s.isLoaded(p.module):
		s.observeTransports(o)
	case sessionFacts[name] != "" && s.isLoaded(p.module):
		s.observeSessions(o, p)
	case name == uniqueID:
		s.observeIdentity(o)
	}
}

// observeLive sets a state only if the effective value is not the desired one.
func (s *Subject) observeLive(o *host.Observation, p parameter) {
	if !s.isLoaded(p.module) {
		return
	}
	file := s.liveFile(p)
	value, err := s.kernel.ReadValue(file)
	o.Observed = value
	switch {
	case err != nil:
		o.State, o.Message = host.Failed, err.Error()
	case sameValue(value, o.Desired):
	case s.failed[o.Name] != "":
		o.State, o.Message = host.Failed, s.failed[o.Name]
	case !s.isWritable(file):
		o.State, o.Effect = host.Pending, host.Reboot
		o.Message = fmt.Sprintf("module %s reads it only when the module is loaded", p.module)
		if p.String() == uniqueID {
			o.Message = "the identity of an NFSv4 client changes only without NFS mounts; takes effect at the next boot"
		}
	default:
		o.State = host.Drifted
	}
}

// observeFile checks the value that modprobe will pass when it loads the module the next time. It sets a state only if that is not the desired value.
func (s *Subject) observeFile(o *host.Observation, p parameter, files []optionFile, known modules) {
	isSaved, last, lastValue := false, optionFile{}, ""
	for _, file := range files {
		value, ok := file.options[p.String()]
		if !ok {
			continue
		}
		last, lastValue = file, value
		isSaved = isSaved || file.name == DropIn && sameValue(value, o.Desired)
	}
	if known.builtIn[p.module] && !s.fs.IsImage() && !(last.afterLoad != "" && !sameValue(lastValue, o.Desired)) {
		o.Message = fmt.Sprintf("module %s is built into the kernel: the agent sets it again after each boot", p.module)
		return
	}
	unwritable := s.place.WriteProblem()
	switch {
	case last.afterLoad != "" && !sameValue(lastValue, o.Desired) && isSaved:
		o.State, o.Message = host.Shadowed, fmt.Sprintf("%s sets it to %q after the module is loaded: remove %s from that file", last.name, lastValue, last.afterLoad)
	case !isSaved && unwritable != "":
		s.evaluateUnsaved(o, p, unwritable)
	case !isSaved && s.fileErr != nil:
		o.State, o.Message = host.Failed, "lost when the module is reloaded: "+s.fileErr.Error()
	case !isSaved:
		o.State, o.Message = host.Drifted, "lost when the module is reloaded: not in "+DropIn
	case !sameValue(lastValue, o.Desired):
		o.State, o.Message = host.Shadowed, fmt.Sprintf("%s sets it to %q and is read after %s", last.name, lastValue, DropIn)
	case s.fs.IsImage():
		o.State, o.Message = host.Pending, "in the image; takes effect when the image boots"
	case !s.isLoaded(p.module):
		o.Message = fmt.Sprintf("module %s is not loaded; modprobe.d contains the value", p.module)
		if reason := s.place.PersistenceProblem(); reason != "" {
			o.Message += ", which the agent writes again at each boot: " + reason
		}
	default:
		if reason := s.place.PersistenceProblem(); reason != "" && unwritable == "" {
			s.evaluateUnsaved(o, p, reason)
		}
	}
}

func (s *Subject) evaluateUnsaved(o *host.Observation, p parameter, reason string) {
	switch {
	case !s.attended:
		o.State, o.Message = host.Failed, "lost at the next boot: "+reason+", and no agent will set it again"
	case !s.isLoaded(p.module):
		o.State = host.Pending
		o.Message = fmt.Sprintf("module %s is not loaded, and %s: the agent sets it within a minute after the module is loaded", p.module, reason)
	default:
		o.Message = "not persistent; the agent sets it again at each boot: " + reason
	}
}

// Restore implements host.Subject.
func (s *Subject) Restore(_ context.Context, originals map[string]host.Original) []host.Observation {
	files := s.optionFiles()
	return host.RestoreEach(originals, host.Live, func(o *host.Observation, original host.Original) error {
		o.Effect = effectOf(o.Name)
		p, err := parseName(o.Name)
		if err != nil {
			return err
		}
		return s.restoreParameter(o, p, originalOf(original, p, files))
	})
}

// originalOf returns the value to restore: the original value, or the value with which the module would have been loaded.
func originalOf(known host.Original, p parameter, files []optionFile) host.Original {
	if known.Present {
		return known
	}
	value, ok := transportDefaults[p.String()]
	for _, file := range files {
		if v, set := file.options[p.String()]; set && file.name != DropIn {
			value, ok = v, true
		}
	}
	return host.Original{Present: ok, Value: value}
}

func (s *Subject) restoreParameter(o *host.Observation, p parameter, back host.Original) error {
	o.Desired = back.Value
	file := s.liveFile(p)
	value, err := s.kernel.ReadValue(file)
	o.Observed = value
	switch {
	case errors.Is(err, fs.ErrNotExist):
		o.Message = "module not loaded, or without this parameter: nothing to restore"
		return nil
	case err != nil:
		return err
	case !back.Present, !sameValue(value, back.Value) && !s.isWritable(file):
		o.State, o.Effect = host.Pending, host.Reboot
		o.Message = fmt.Sprintf("the original value returns when module %s is reloaded", p.module)
		return nil
	}
	if err := s.applyLive(p, back.Value); err != nil {
		return err
	}
	o.Observed = back.Value
	switch name := p.String(); {
	case name == maxSlots:
		s.observeTransports(o)
	case sessionFacts[name] != "":
		s.observeSessions(o, p)
	}
	return nil
}

func effectOf(name string) host.Effect {
	if transportDefaults[name] != "" {
		return host.NewTransport
	}
	return host.Live
}

// liveFile returns the file in which the running kernel shows the parameter. For the slot tables, /proc/sys/sunrpc shows the same variables.
func (s *Subject) liveFile(p parameter) string {
	file := path.Join("/sys/module", p.module, "parameters", p.name)
	if sysctl := path.Join("/proc/sys/sunrpc", p.name); p.module == "sunrpc" && !s.fs.Exists(file) && s.fs.Exists(sysctl) {
		return sysctl
	}
	return file
}

func (s *Subject) isWritable(file string) bool {
	if file == uniqueIDFile {
		return false
	}
	info, err := s.fs.Stat(file)
	return err == nil && info.Mode().Perm()&0o222 != 0
}

func (s *Subject) isLoaded(module string) bool { return s.fs.Exists(path.Join("/sys/module", module)) }

const (
	uniqueID = "nfs/nfs4_unique_id"
	// fromNode is the value for which the subject derives the identity.
	fromNode = "FromNode"
	// uniqueIDFile is writable at any time, but a new value applies only to clients that are created afterwards. The node would then use two
	// identities, so the value is set only when the module is loaded.
	uniqueIDFile = "/sys/module/nfs/parameters/nfs4_unique_id"
	// identifierFile overrides the parameter if it is set, in the network namespace of the host.
	identifierFile = "/sys/fs/nfs/net/nfs_client/identifier"
)

// SetNodeUID sets the UID from which the identity of the NFSv4 client is derived. Without it, there is no identity.
func (s *Subject) SetNodeUID(uid string) { s.nodeUID = uid }

func (s *Subject) resolveIdentities(desired []host.Setting) []host.Setting {
	resolved := slices.Clone(desired)
	for i := range resolved {
		if resolved[i].Name == uniqueID && resolved[i].Value == fromNode && s.nodeUID != "" {
			resolved[i].Value = "storage-client-" + s.nodeUID
		}
	}
	return resolved
}

// observeIdentity sets a state only if the client's identity is not the parameter.
func (s *Subject) observeIdentity(o *host.Observation) {
	identifier, err := s.kernel.ReadValue(identifierFile)
	if err != nil || identifier == "" || identifier == "(null)" || identifier == o.Desired {
		// Kernels before 5.10 do not have this file. Other kernels do not have it until NFSv4 is mounted.
		return
	}
	o.State = host.Shadowed
	o.Message = fmt.Sprintf("%s contains %q, which overrides the parameter", identifierFile, identifier)
}
