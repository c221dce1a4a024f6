package knownbad

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const (
	bookworm = "Linux version 6.1.0-47-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.170-3 (2026-05-01)"
	pve      = "Linux version 6.8.12-4-pve (build@proxmox) (gcc (Debian 12.2.0-14) 12.2.0, GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4 (2024-11-06T15:04Z)"
	// These are of the machines of test/knownbad.
	backports = "Linux version 6.12.57+deb12-cloud-amd64 (debian-kernel@lists.debian.org) (x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1~bpo12+1 (2025-11-17)"
	trixie    = "Linux version 7.3.4+deb13-cloud-amd64 (debian-kernel@lists.debian.org) (x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0, GNU ld (GNU Binutils for Debian) 2.44) #1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1~bpo13+1 (2026-11-15)"
	// Raspberry Pi OS has an epoch.
	raspberry = "Linux version 6.6.31+rpt-rpi-v8 (serge@raspberrypi.com) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT Debian 1:6.6.31-1+rpt1 (2024-05-29)"
	ownKernel = "Linux version 6.10.3 (root@build) (gcc (Debian 12.2.0-14) 12.2.0, GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Mon Aug  5 10:00:00 UTC 2024"
	jammy     = "Ubuntu 5.15.0-116.126-generic 5.15.158"
)

func TestParseKernel(t *testing.T) {
	for name, test := range map[string]struct {
		release, build string
		want           Kernel
	}{
		"Debian":                         {"6.1.0-47-amd64", bookworm, Kernel{6, 1, 170}},
		"Debian without the build":       {"6.1.0-47-amd64", "", Kernel{}},
		"Debian's cloud kernel":          {"6.1.0-51-cloud-amd64", "", Kernel{}},
		"Debian 13":                      {"6.12.57+deb13-amd64", "", Kernel{6, 12, 57}},
		"Debian's backports":             {"6.12.57+deb12-cloud-amd64", backports, Kernel{6, 12, 57}},
		"backports of Debian 13":         {"7.3.4+deb13-cloud-amd64", trixie, Kernel{7, 3, 4}},
		"Ubuntu":                         {"5.15.0-116-generic", jammy, Kernel{5, 15, 158}},
		"Ubuntu without the build":       {"5.15.0-1057-azure", "Linux version 5.15.0-1057-azure (buildd@x) #66-Ubuntu SMP", Kernel{}},
		"RHEL":                           {"5.14.0-427.el9.x86_64", "Linux version 5.14.0-427.el9.x86_64 (mockbuild@x) #1 SMP", Kernel{}},
		"Amazon Linux":                   {"6.1.102-111.182.amzn2023.x86_64", "", Kernel{}},
		"Azure Linux":                    {"6.6.57.1-7.azl3", "", Kernel{}},
		"SLES":                           {"6.4.0-150600.23.25-default", "", Kernel{}},
		"Proxmox":                        {"6.8.12-4-pve", pve, Kernel{6, 8, 12}},
		"Raspberry Pi OS":                {"6.6.31+rpt-rpi-v8", raspberry, Kernel{6, 6, 31}},
		"Raspberry Pi OS with the ABI":   {"6.6.0-1-rpi-v8", raspberry, Kernel{6, 6, 31}},
		"an own kernel, built on Debian": {"6.10.3", ownKernel, Kernel{6, 10, 3}},
		"an own kernel with an ABI":      {"6.10.0-1-own", ownKernel, Kernel{}},
		"builds of another kernel":       {"6.6.0-1-amd64", bookworm, Kernel{}},
		"Ubuntu, of another kernel":      {"6.8.0-1-generic", jammy, Kernel{}},
		"Talos":                          {"6.12.57-talos", "", Kernel{6, 12, 57}},
		"Flatcar":                        {"6.6.95-flatcar", "", Kernel{6, 6, 95}},
		"Container-Optimized OS":         {"6.6.87+", "", Kernel{6, 6, 87}},
		"Fedora":                         {"6.17.5-300.fc43.x86_64", "", Kernel{6, 17, 5}},
		"mainline":                       {"7.3.4", "", Kernel{7, 3, 4}},
		"mainline, the first release":    {"6.19", "", Kernel{6, 19, 0}},
		"nonsense":                       {"linux", "Debian", Kernel{}},
		"nothing":                        {"", "", Kernel{}},
	} {
		if got := ParseKernel(test.release, test.build); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func find(t *testing.T, id string) Entry {
	t.Helper()
	for _, e := range Entries() {
		if e.ID == id {
			return e
		}
	}
	t.Fatalf("got no entry %s", id)
	return Entry{}
}

func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		id      string
		kernels string
		want    Verdict
	}{
		{"nfs-ro-ignored", "6.1.120 6.1.159", Affected},
		{"nfs-ro-ignored", "6.1.119 6.1.160 6.12.63", Clear},
		{"nfs-ro-ignored", "6.12.62", Possible},
		{"nfs-ro-ignored", "6.6.50 5.14.0-427.el9 6.1.0-47-amd64", CannotTell},
		{"nfs-congestion-lost-writes", "5.18 5.19.3 6.1.80 6.7.8", Affected},
		{"nfs-congestion-lost-writes", "5.17.9 5.15.100 6.1.81 6.7.9 6.8 7.0", Clear},
		{"nfs-congestion-lost-writes", "6.6.10", CannotTell},
		{"xfs-stale-iomap", "6.1.92 6.1.170", Clear},
		{"xfs-stale-iomap", "6.1.91", Possible},
		{"xfs-stale-iomap", "5.10.200", CannotTell},
		{"nfs-dirdeleg-ganesha", "6.19 7.0.1 7.3.4", Affected},
		{"nfs-dirdeleg-ganesha", "6.18.15 6.12.57 5.10.1", Clear},
		{"cifs-eagain", "6.1.70 6.1.71", Affected},
		{"cifs-eagain", "6.1.69 6.1.72", Clear},
		{"cifs-eagain", "5.15.146 5.10.300", CannotTell},
		{"cifs-eagain", "5.15.145", Clear},
		{"cifs-retrans-unknown", "6.1.115 5.10.1 6.5.9", Affected},
		{"cifs-retrans-unknown", "6.6 6.12.1", Clear},
		{"softreval-clears-flags", "5.11 5.16.9 5.17.8", Affected},
		{"softreval-clears-flags", "5.10.200 5.17.9 5.18 6.1.1", Clear},
		{"nfs-readdir-slow-start", "6.1.164 6.6.1", Possible},
		{"xfs-newer-than-kernel", "5.15.1 6.1.176 6.9", Affected},
		{"xfs-v4-gone", "6.18 7.3.4", Affected},
		{"xfs-v4-gone", "6.17.13 6.12.57", Clear},
		{"xfs-newer-than-kernel", "6.10 6.12.57 7.3.4", Clear},
		{"nfs-readdir-slow-start", "6.1.165 6.12.75 7.0", Clear},
	} {
		for release := range strings.FieldsSeq(test.kernels) {
			if got := find(t, test.id).On(ParseKernel(release, "")); got != test.want {
				t.Errorf("%s on %s: got %s, want %s", test.id, release, got, test.want)
			}
		}
	}
}

func TestEntriesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Entries() {
		if seen[e.ID] || e.ID == "" || e.Fails == "" || e.Remedy == "" || e.Source == "" || !slices.Contains([]string{"high", "medium", "low"}, e.Confidence) {
			t.Errorf("got an incomplete entry: %+v", e)
		}
		seen[e.ID] = true
		if e.Server != "" && !e.Signed || e.Setting != "" && !e.Signed {
			t.Errorf("%s: got an entry of a server or with a setting that is not signed: advice would report it on every node", e.ID)
		}
		if e.Sign != nil && (!e.Signed || (e.Sign.Operation == "") == (e.Sign.Log == "")) || len(e.ID) > 64 {
			t.Errorf("%s: got a sign of an entry that is not signed, a sign with neither an operation nor a log line, or a long ID", e.ID)
		}
		if len(e.Branches) == 0 && e.Since == "" {
			t.Errorf("%s: got no kernels", e.ID)
		}
		if e.Setting != "" {
			if err := (catalogue.AllowList{}).Check(e.Setting, e.Value); err != nil {
				t.Errorf("%s: got a cure that a profile cannot contain: %v", e.ID, err)
			}
		}
		if e.Option != "" {
			protocol := mountoptions.NFS
			if slices.Equal(e.Protocols, []string{"SMB"}) {
				protocol = mountoptions.SMB
			}
			for _, p := range mountoptions.Validate(protocol, []string{e.Option}) {
				if !p.Warning {
					t.Errorf("%s: got a cure that a profile cannot contain: %s %s", e.ID, p.Option, p.Message)
				}
			}
			if e.Concerns("", []string{e.Option}) && len(e.Protocols) == 0 {
				t.Errorf("%s: got a cure that does not cure", e.ID)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("got %d entries, want at least 30", len(seen))
	}
}

func TestConcerns(t *testing.T) {
	ro, tls := find(t, "nfs-ro-ignored"), find(t, "nfs-tls-mount-hang")
	for _, test := range []struct {
		entry    Entry
		protocol string
		options  string
		want     bool
	}{
		{ro, "NFSv3", "ro vers=3", true}, {ro, "NFSv3", "rw", false}, {ro, "NFSv4.1", "ro", true}, {ro, "xfs", "ro", false},
		{tls, "NFSv4.2", "xprtsec=tls", true}, {tls, "NFSv4.2", "xprtsec=none", false}, {find(t, "cifs-retrans-unknown"), "SMB3.1.1", "retrans=0", true},
		{find(t, "nfs-fsc-oops"), "NFSv4.2", "nofsc", false},
		{find(t, "nconnect-krb5"), "NFSv4.1", "sec=krb5p nconnect=4", true}, {find(t, "nconnect-krb5"), "NFSv4.1", "sec=sys nconnect=4", false},
		{find(t, "nconnect-krb5"), "NFSv4.1", "sec=krb5", false}, {find(t, "azure-files-nconnect"), "NFSv4.1", "nconnect=4", false},
		{find(t, "azure-files-nconnect"), "NFSv4.1", "nconnect=8", true},
	} {
		if got := test.entry.Concerns(test.protocol, strings.Fields(test.options)); got != test.want {
			t.Errorf("%s, %s %s: got %t", test.entry.ID, test.protocol, test.options, got)
		}
	}
}

// test/knownbad recorded the counters of directory delegations and READ_PLUS, bad and cured. READ_PLUS counts no errors.
func TestSigns(t *testing.T) {
	const parameter = "/sys/module/nfsv4/parameters/directory_delegations"
	for _, test := range []struct {
		id         string
		value      string
		operations map[string]Counts
		want       bool
	}{
		{"nfs-dirdeleg-ganesha", "Y", map[string]Counts{"GETATTR": {2706, 53}}, true},
		{"nfs-dirdeleg-ganesha", "Y", map[string]Counts{"GETATTR": {2706, 0}}, false},
		{"nfs-dirdeleg-ganesha", "N", map[string]Counts{"GETATTR": {2708, 53}}, false},
		{"nfs-dirdeleg-ganesha", "", map[string]Counts{"GETATTR": {2254, 53}}, false},
		{"nfs-dirdeleg-ganesha", "Y", map[string]Counts{"READ": {53, 53}}, false},
		{"nfs-readplus-ganesha", "", map[string]Counts{"READ_PLUS": {7, 0}}, false},
		{"nfs-test-stateid-storm", "", map[string]Counts{"TEST_STATEID": {10000, 0}, "OPEN": {200, 0}, "OPEN_NOATTR": {300, 0}}, true},
		{"nfs-test-stateid-storm", "", map[string]Counts{"TEST_STATEID": {10000, 0}, "OPEN": {200, 0}, "OPEN_NOATTR": {301, 0}}, false},
		{"nfs-test-stateid-storm", "", map[string]Counts{"TEST_STATEID": {9999, 0}}, false},
		{"nfs-loopback-kcompactd", "", nil, false},
		{"nfs-readdir-slow-start", "Y", map[string]Counts{"READDIR": {46, 46}}, false},
	} {
		value := func(file string) string {
			if file != parameter {
				t.Errorf("%s: got a read of %s", test.id, file)
			}
			return test.value
		}
		counts := func(operation string) Counts { return test.operations[operation] }
		if got := find(t, test.id).Sign.IsShown(value, counts); got != test.want {
			t.Errorf("%s with %q and %v: got %t", test.id, test.value, test.operations, got)
		}
	}
}

func TestSignsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	check.NoError(t, err)
	for _, e := range Entries() {
		if documented := strings.Contains(string(page), "\n  | `"+e.ID+"` | "); documented != (e.Sign != nil) {
			t.Errorf("%s: has a sign: %t, is in docs/troubleshooting.md: %t", e.ID, e.Sign != nil, documented)
		}
	}
}

func TestLogged(t *testing.T) {
	for line, want := range map[string]string{
		"XFS (loop0): Superblock has unknown incompatible features (0x40) enabled.": "xfs-newer-than-kernel",
		"INFO: task kcompactd0:46 blocked for more than 120 seconds.":               "nfs-loopback-kcompactd",
		"INFO: task kworker/0:1:46 blocked for more than 120 seconds.":              "",
		"XFS (sdb): Mounting V5 Filesystem 2b5e":                                    "",
		"init: XFS (loop0): Superblock has unknown incompatible features (0x40)":    "",
		"": "",
	} {
		if got := Logged(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
