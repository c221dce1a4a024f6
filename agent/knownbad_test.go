package agent

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/recommend"
)

const (
	debianGCC = " (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian "
	// recordedOn is the branch of the machines that recorded. Their exact release is unknown; this is the oldest one of test/knownbad.
	recordedOn = "6.1.0-50-cloud-amd64"
)

// healthyOn contains kernels, and the entries of the registry that the healthy mounts of a node with this kernel raise.
// These entries have no sign: rule 3 of the registry reports them by the version alone. An entry with a sign must not appear.
var healthyOn = map[string]struct {
	release, version, signature string
	// readOnly adds ro to the options, which is the sign of nfs-ro-ignored.
	readOnly bool
	raised   []string
}{
	"the kernel of the recordings": {release: recordedOn, version: "Linux version " + recordedOn + debianGCC + "6.1.176-1 (2026-07-02)"},
	// The signs of these ranges are absent: ro, fsc, xprtsec, retrans, softreval.
	"in the range of nfs-ro-ignored, phase 1":  {release: "6.1.0-44-amd64", version: "Linux version 6.1.0-44-amd64" + debianGCC + "6.1.150-1 (2025-09-01)"},
	"in the range of nfs-ro-ignored, phase 2":  {release: "6.12.57+deb12-cloud-amd64", version: "Linux version 6.12.57+deb12-cloud-amd64" + debianGCC + "6.12.57-1~bpo12+1 (2025-11-17)"},
	"in the ranges of fsc, TLS and READ_PLUS":  {release: "6.12.5"},
	"in the range of directory delegations":    {release: "7.3.4+deb13-cloud-amd64", version: "Linux version 7.3.4+deb13-cloud-amd64" + debianGCC + "7.3.4-1~bpo13+1 (2026-11-15)"},
	"in the range of softreval-clears-flags":   {release: "5.17.8"},
	"in the range of cifs-retrans-unknown":     {release: "5.10.200"},
	"in the range of nfs-readdir-slow-start":   {release: "6.6.95-flatcar"},
	"in the range of efs-same-port":            {release: "5.4.200"},
	"after the last fix of 6.1":                {release: "6.1.165"},
	"after the last fix of 6.12":               {release: "6.12.117"},
	"without an unsigned range":                {release: "6.17.5-300.fc43.x86_64"},
	"the first release of a range":             {release: "6.19"},
	"Ubuntu with unknown fixes":                {release: "5.15.0-116-generic", signature: "Ubuntu 5.15.0-116.126-generic 5.15.158"},
	"Debian without a build":                   {release: "6.1.0-13-amd64"},
	"Amazon Linux, in an affected range":       {release: "6.1.55-75.123.amzn2023.x86_64"},
	"RHEL":                                     {release: "5.14.0-427.el9.x86_64"},
	"SLES, in an affected range":               {release: "6.4.0-150600.23.25-default"},
	"6.6, whose fixes are unknown":             {release: "6.6.10"},
	"read-only mounts in their affected range": {release: "6.1.150", readOnly: true, raised: []string{"nfs-ro-ignored"}},
	"read-only mounts after the fix":           {release: "6.1.165", readOnly: true},
	"Debian in affected ranges": {release: "6.1.0-13-amd64", version: "Linux version 6.1.0-13-amd64" + debianGCC + "6.1.55-1 (2023-09-29)",
		raised: []string{"nfs-congestion-lost-writes", "nfs-unlink-lookup-hang", "nfs4-manager-deadlock", "smb-negotiate-hang"}},
	"6.1.71": {release: "6.1.71", raised: []string{"cifs-copy-oops", "cifs-eagain", "nfs-congestion-lost-writes", "nfs-unlink-lookup-hang", "smb-negotiate-hang"}},
	"6.7.5":  {release: "6.7.5", raised: []string{"nfs-congestion-lost-writes"}},
	"6.9.4":  {release: "6.9.4", raised: []string{"nfs-unlink-lookup-hang"}},
}

// loses are the entries about lost data, whose advice is a warning.
var loses = []string{"nfs-congestion-lost-writes", "nfs-ro-ignored"}

// recordedSample is one state of the machine. passed is the time since the sample before it.
type recordedSample struct {
	passed   time.Duration
	mounts   []recordedMount
	counters []mounts.ServerCounters
}

// recordedMount is a mount as the kernel lists it.
type recordedMount struct {
	point, source string
	options       []string
	connections   []counters.Connection
	handles       uint64
	// operations are further lines of the counters of operations.
	operations string
}

// recordedStatus is the status after one sample, with the minutes of all mounts since the sample before it.
type recordedStatus struct {
	minutes float64
	status  v1alpha1.StorageClientNodeStatus
}

// The agent reads samples of healthy servers, and the rules of known problems evaluate its status after each of them, on each kernel. The samples of
// package servers contain counters only. So the mounts have the options of the spec "healthy-minutes" of test/e2e, in the form of the mounts of
// package recommend, which the same kernel listed.
func TestHealthyRecordingsRaiseNoKnownProblem(t *testing.T) {
	writable := slices.Concat(play(t, recordedHealthy(t, "1"), false), play(t, recordedHealthy(t, "2"), false), play(t, recordedMounts(t), false))
	readOnly := play(t, recordedMounts(t), true)
	for name, c := range healthyOn {
		t.Run(name, func(t *testing.T) {
			kernel, statuses, minutes := statusOn(t, c.release, c.version, c.signature), writable, 0.0
			if c.readOnly {
				statuses = readOnly
			}
			samples := map[string]int{}
			for _, s := range statuses {
				minutes += s.minutes
				s.status.KernelVersion, s.status.KernelBuild = kernel.KernelVersion, kernel.KernelBuild
				for _, id := range knownProblems(t, s.status) {
					samples[id]++
				}
			}
			if minutes < 1000 && !c.readOnly {
				t.Errorf("got %.0f minutes of mounts, want 1000", minutes)
			}
			t.Logf("%.0f minutes of mounts, %d samples", minutes, len(statuses))
			// A problem of the kernel and the mounts alone is there in every sample.
			want := map[string]int{}
			for _, id := range c.raised {
				want[id] = len(statuses)
			}
			if diff := cmp.Diff(want, samples); diff != "" {
				t.Errorf("samples with known problems in %.0f minutes (-want +got):\n%s", minutes, diff)
			}
		})
	}
}

// The agent reports the signs of parameters, counters and the log. A profile names the problem only for a node whose kernel does not have the fix.
func TestNodesShowSignsOfKnownProblems(t *testing.T) {
	const (
		// These lines are of 7.3.4 and 6.12.57 in test/knownbad.
		failedAttributes = "\t        GETATTR: 2706 2706 0 600000 600000 0 900 1000 53\n"
		failedReads      = "\t       READ_PLUS: 7 7 0 1900 3163020 0 20 21 0\n"
		storm            = "\t     OPEN_NOATTR: 300 300 0 0 0 0 0 0 0\n\t    TEST_STATEID: 500000 500000 0 0 0 0 0 0 0\n"
		blocked          = "6,500,99000000,-;INFO: task kcompactd0:46 blocked for more than 120 seconds.\n"
		newerFormat      = "1,500,99000000,-;XFS (loop0): Superblock has unknown incompatible features (0x40) enabled.\n"
	)
	for name, c := range map[string]struct {
		release, options, operations, parameter, log string
		signs, raised                                []string
	}{
		"directory delegations":                      {"7.3.4", "rw,vers=4.2", failedAttributes, "Y", "", []string{"nfs-dirdeleg-ganesha"}, []string{"nfs-dirdeleg-ganesha"}},
		"directory delegations, on RHEL":             {"7.3.4-1.el11", "rw,vers=4.2", failedAttributes, "Y", "", []string{"nfs-dirdeleg-ganesha"}, []string{"nfs-dirdeleg-ganesha"}},
		"directory delegations, cured":               {"7.3.4", "rw,vers=4.2", failedAttributes, "N", "", nil, nil},
		"directory delegations, with another option": {"7.3.4", "rw,vers=4.0", failedAttributes, "Y", "", nil, nil},
		"failed attributes without the parameter":    {"6.12.85", "rw,vers=4.2", failedAttributes, "", "", nil, nil},
		"READ_PLUS, which counts no errors":          {"6.12.57", "rw,vers=4.2", failedReads, "", "", nil, nil},
		"TEST_STATEID":                               {"6.1.176", "rw,vers=4.1", storm, "", "", []string{"nfs-test-stateid-storm"}, []string{"nfs-test-stateid-storm"}},
		"TEST_STATEID with the fix":                  {"6.7.1", "rw,vers=4.1", storm, "", "", []string{"nfs-test-stateid-storm"}, []string{"nfs-congestion-lost-writes"}},
		"kcompactd":                                  {"6.12.5", "rw,vers=4.1", "", "", blocked, []string{"nfs-loopback-kcompactd"}, []string{"nfs-loopback-kcompactd"}},
		"kcompactd without an NFS mount":             {"6.12.5", "", "", "", blocked, nil, nil},
		"XFS of a newer mkfs":                        {"6.1.176", "", "", "", newerFormat, []string{"xfs-newer-than-kernel"}, []string{"xfs-newer-than-kernel"}},
		"XFS of a newer mkfs, with the feature":      {"6.12.85", "", "", "", newerFormat, []string{"xfs-newer-than-kernel"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write("/proc/sys/kernel/osrelease", c.release+"\n")
			w.write("/dev/kmsg", "6,400,9000000,-;Key type id_resolver registered\n"+c.log)
			if c.parameter != "" {
				w.write("/sys/module/nfsv4/parameters/directory_delegations", c.parameter+"\n")
			}
			var all []recordedMount
			if c.options != "" {
				all = append(all, recordedMount{point: "/mnt/a", source: "192.0.2.1:/export", options: strings.Split(c.options, ","), operations: c.operations})
			}
			w.writeMounts(all, false)
			w.real = func() Host {
				h := w.host()
				wired := NewHost(w.fs, nil, nil, mounts.DefaultKubeletDir)
				h.Mounts, h.Health.Log = wired.Mounts, wired.Health.Log
				return h
			}
			w.declare()
			a := w.agent()
			w.runPass(a)
			w.clock.Step(time.Minute)
			w.runPass(a)
			check.Equal(t, "signs", c.signs, w.clientNode.Status.Signs)
			check.Equal(t, "advice", c.raised, knownProblems(t, w.clientNode.Status))
		})
	}
}

// statusOn returns the status that an agent reports on a kernel.
func statusOn(t *testing.T, release, version, signature string) v1alpha1.StorageClientNodeStatus {
	t.Helper()
	w := newWorld(t)
	w.write("/proc/sys/kernel/osrelease", release+"\n")
	for name, text := range map[string]string{"/proc/version": version, "/proc/version_signature": signature} {
		if text != "" {
			w.write(name, text+"\n")
		}
	}
	w.declare()
	w.runPass(w.agent())
	if w.clientNode.Status.KernelVersion != release {
		t.Fatalf("got kernel %q", w.clientNode.Status.KernelVersion)
	}
	// A command on the machine evaluates the same kernel.
	if m := ThisMachine(w.fs); m.Kernel != release || m.Build != w.clientNode.Status.KernelBuild {
		t.Errorf("got kernel %q, build %q for the machine, want those of the status", m.Kernel, m.Build)
	}
	return w.clientNode.Status
}

// play plays the samples of one node.
func play(t *testing.T, node []recordedSample, readOnly bool) (statuses []recordedStatus) {
	t.Helper()
	w := newWorld(t)
	// Both parameters have their defaults of 7.3. They prove nothing while the mounts work.
	w.write("/sys/module/nfsv4/parameters/directory_delegations", "Y\n")
	w.write("/sys/kernel/mm/lru_gen/enabled", "0x0007\n")
	w.write("/dev/kmsg", "6,400,9000000,-;NFS: Registering the id_resolver key type\n6,401,9000001,-;Key type id_resolver registered\n")
	var current []mounts.ServerCounters
	w.real = func() Host {
		h := w.host()
		wired := NewHost(w.fs, nil, nil, mounts.DefaultKubeletDir)
		h.Mounts, h.Health.Log = wired.Mounts, wired.Health.Log
		h.Health.Counters = func() ([]mounts.ServerCounters, error) { return current, nil }
		return h
	}
	w.declare()
	a := w.agent()
	for _, sample := range node {
		w.clock.Step(sample.passed)
		current = sample.counters
		w.writeMounts(sample.mounts, readOnly)
		w.runPass(a)
		status := w.clientNode.Status
		if len(status.Mounts) != len(sample.mounts) {
			t.Fatalf("got %d mounts of %d", len(status.Mounts), len(sample.mounts))
		}
		statuses = append(statuses, recordedStatus{sample.passed.Minutes() * float64(len(status.Mounts)), *status.DeepCopy()})
	}
	if got, want := len(w.clientNode.Status.Servers), len(node[len(node)-1].counters); got != want {
		t.Fatalf("got %d servers, want %d", got, want)
	}
	return statuses
}

// knownProblems returns the entries of the registry that a profile reports about a node.
func knownProblems(t *testing.T, status v1alpha1.StorageClientNodeStatus) (ids []string) {
	t.Helper()
	node := advice.Node{Name: "n1", Kernel: status.KernelVersion, Build: status.KernelBuild, Settings: status.Settings, Mounts: status.Mounts, Signs: status.Signs}
	for _, a := range advice.For(advice.Input{Profile: &v1alpha1.StorageClientProfile{}, Nodes: []advice.Node{node}}) {
		if !strings.HasPrefix(a.ID, "known-bad-") {
			continue
		}
		id, _, _ := strings.Cut(a.Text, ":")
		ids = append(ids, id)
		want := v1alpha1.SeverityInfo
		if slices.Contains(loses, id) {
			want = v1alpha1.SeverityWarning
		}
		if a.Severity != want {
			t.Errorf("%s: got severity %s, want %s", id, a.Severity, want)
		}
	}
	return ids
}

// writeMounts writes the mount table and the statistics, as the kernel lists them.
func (w *world) writeMounts(all []recordedMount, readOnly bool) {
	w.t.Helper()
	var table, stats strings.Builder
	table.WriteString("29 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n")
	stats.WriteString("device /dev/sda1 mounted on / with fstype ext4\n")
	for i, m := range all {
		options := strings.Join(slices.DeleteFunc(slices.Clone(m.options), func(o string) bool { return o == "relatime" }), ",")
		flags := "rw"
		if readOnly {
			flags, options = "ro", "ro"+strings.TrimPrefix(options, "rw")
		}
		kind := map[bool]string{true: "cifs", false: "nfs4"}[strings.HasPrefix(m.source, "//")]
		if strings.Contains(options, "vers=3,") {
			kind = "nfs"
		}
		fmt.Fprintf(&table, "%d 29 0:%d / %s %s,relatime - %s %s %s\n", 100+i, 50+i, m.point, flags, kind, m.source, options)
		fmt.Fprintf(&stats, "device %s mounted on %s with fstype %s", m.source, m.point, kind)
		if kind == "cifs" {
			stats.WriteString("\n")
			continue
		}
		fmt.Fprintf(&stats, " statvers=1.1\n\topts:\t%s\n\tage:\t%.0f\n\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n", options, w.clock.Since(w.clock.booted).Seconds())
		for _, c := range m.connections {
			fmt.Fprintf(&stats, "\txprt:\ttcp 0 1 %d 0 %.0f %d %d 0 %d 0 2 0 0\n", c.Connects, c.Idle.Seconds(), c.Sends, c.Responses, c.Sends)
		}
		fmt.Fprintf(&stats, "\tper-op statistics\n\t        GETATTR: %d %[1]d 0 0 0 0 0 0 0\n%s\n", m.handles, m.operations)
	}
	w.write("/proc/1/mountinfo", table.String())
	w.write("/proc/1/mountstats", stats.String())
}

// sampleOf returns a mount that the samples of package recommend contain.
func sampleOf(t *testing.T, name string) (sample recommend.Sample, rules []string) {
	t.Helper()
	data, err := os.ReadFile(name)
	check.NoError(t, err)
	var recorded struct {
		Rules  []string
		Sample recommend.Sample
	}
	if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return recorded.Sample, recorded.Rules
}

const recommended = "../tuning/recommend/testdata/"

// recordedMounts returns the recorded mounts of package recommend in which no rule finds a bottleneck. They are mounted together for the time of one
// sample.
func recordedMounts(t *testing.T) []recordedSample {
	t.Helper()
	var sample recordedSample
	for _, pattern := range []string{"*.json", "heldback/*.json"} {
		files, err := filepath.Glob(recommended + pattern)
		check.NoError(t, err)
		for _, name := range files {
			mount, rules := sampleOf(t, name)
			if len(rules) > 0 {
				continue
			}
			sample.passed = 30 * time.Second
			m := recordedMount{point: fmt.Sprintf("/mnt/sample/%d", len(sample.mounts)), source: mount.Server + ":" + mount.Export, options: mount.Options}
			if strings.HasPrefix(mount.Protocol, "SMB") {
				m.source = "//" + mount.Server + mount.Export
			}
			for _, c := range mount.Connections {
				m.connections = append(m.connections, counters.Connection{Sends: c.Sends, Responses: c.Answers, Connects: c.Connects})
			}
			sample.mounts = append(sample.mounts, m)
		}
	}
	if len(sample.mounts) < 15 {
		t.Fatalf("got %d recorded mounts", len(sample.mounts))
	}
	return []recordedSample{sample}
}

// recordedHealthy returns the recording of a node with its mounts.
func recordedHealthy(t *testing.T, node string) (samples []recordedSample) {
	t.Helper()
	file, err := os.Open("servers/testdata/healthy-node" + node + ".gz")
	check.NoError(t, err)
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	check.NoError(t, err)
	v3, _ := sampleOf(t, recommended+"heldback/a-healthy-mount-NFSv3.json")
	v41, _ := sampleOf(t, recommended+"a-healthy-mount-NFSv4.1.json")
	smb, _ := sampleOf(t, recommended+"heldback/a-share-of-Samba-listed-again-and-again.json")
	var last time.Time
	lines := bufio.NewScanner(unpacked)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var s struct {
			At      time.Time
			Servers []mounts.ServerCounters
		}
		check.NoError(t, json.Unmarshal(lines.Bytes(), &s))
		sample := recordedSample{counters: s.Servers}
		if !last.IsZero() {
			sample.passed = s.At.Sub(last)
		}
		last = s.At
		for _, server := range s.Servers {
			sample.mounts = append(sample.mounts, mountOf(server, v3, v41, smb))
		}
		samples = append(samples, sample)
	}
	if err := lines.Err(); err != nil || len(samples) < 30 {
		t.Fatalf("got %d samples, %v", len(samples), err)
	}
	return samples
}

// mountOf returns the mount from a server, with the options of test/e2e.
func mountOf(server mounts.ServerCounters, v3, v41, smb recommend.Sample) recordedMount {
	if server.Protocol == connect.SMB {
		return recordedMount{point: "/mnt/recorded/smb", source: "//" + server.Server + "/share", options: smb.Options}
	}
	m := recordedMount{point: server.Handles[0].MountPoint, source: server.Server + ":/srv/nfs", options: v41.Options, connections: server.Connections, handles: server.Handles[0].Ended}
	number := 0
	if _, err := fmt.Sscanf(m.point, "/mnt/recorded/%d", &number); err != nil {
		number = -1
	}
	changed := map[string]string{}
	switch {
	case server.Ask.Version == 3:
		m.options = v3.Options
	case number >= 0:
		changed["vers=4.1"] = "vers=4.0"
		if number%4 == 2 {
			changed["hard"], changed["timeo=600"] = "soft", "timeo=100"
		}
	}
	if n := len(server.Connections); n > 1 {
		changed["proto=tcp"] = fmt.Sprintf("proto=tcp,nconnect=%d", n)
	}
	m.options = slices.Clone(m.options)
	for i, o := range m.options {
		if c := changed[o]; c != "" {
			m.options[i] = c
		}
	}
	return m
}
