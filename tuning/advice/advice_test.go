package advice

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

type option func(*Input)

func input(options ...option) Input {
	in := Input{Profile: &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{}}}}
	in.Profile.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{}}
	for _, o := range options {
		o(&in)
	}
	return in
}

func sysctl(name, value string) option {
	return func(in *Input) { in.Profile.Spec.Node.Sysctls[name] = v1alpha1.SettingText(value) }
}

func argument(text string) option {
	return func(in *Input) {
		in.Profile.Spec.Node.KernelArguments = append(in.Profile.Spec.Node.KernelArguments, v1alpha1.KernelArgument(text))
	}
}

func slots(value string) option { return sysctl("sunrpc.tcp_max_slot_table_entries", value) }

func sessionSlots(value string) option {
	return func(in *Input) {
		in.Profile.Spec.Node.KernelModules = []v1alpha1.KernelModule{{Name: "nfs", Parameters: map[string]v1alpha1.SettingText{"max_session_slots": v1alpha1.SettingText(value)}}}
	}
}

func canaryLabelled(key string) option {
	return func(in *Input) {
		in.Profile.Spec.Rollout.Canary = &v1alpha1.Canary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: "true"}}}
	}
}

func readAheadOfVolumes(in *Input) {
	in.Profile.Spec.Volumes = append(in.Profile.Spec.Volumes, v1alpha1.VolumeRule{Name: "v", ReadAheadKiB: new(int32(1024))})
}

func leftOut(all ...LeftOut) option { return func(in *Input) { in.LeftOut = all } }

func tuned(profile string) option {
	return func(in *Input) { in.Profile.Spec.Node.Tuned = &v1alpha1.Tuned{Profile: profile} }
}

func readAhead(fsType string, kib int32) option {
	return func(in *Input) {
		in.Profile.Spec.Node.ReadAhead = append(in.Profile.Spec.Node.ReadAhead, v1alpha1.ReadAhead{FSTypes: []string{fsType}, SizeKiB: kib})
	}
}

func volumes(selector v1alpha1.VolumeSelector, options ...v1alpha1.MountOption) option {
	return func(in *Input) {
		in.Profile.Spec.Volumes = append(in.Profile.Spec.Volumes, v1alpha1.VolumeRule{Name: "v", Selector: selector, MountOptions: options})
	}
}

func nfs(options ...v1alpha1.MountOption) option {
	return volumes(v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}, options...)
}

func picked(options ...v1alpha1.MountOption) option {
	return volumes(v1alpha1.VolumeSelector{ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "tools"}}}, options...)
}

func driver(name string, options ...v1alpha1.MountOption) option {
	return volumes(v1alpha1.VolumeSelector{Drivers: []string{name}, Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}, options...)
}

func from(server string, options ...v1alpha1.MountOption) option {
	return volumes(v1alpha1.VolumeSelector{Servers: []string{server}}, options...)
}

func xfs(options ...v1alpha1.MountOption) option {
	return volumes(v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolBlock}, FSTypes: []string{"xfs"}}, options...)
}

func smb(options ...v1alpha1.MountOption) option {
	return volumes(v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB}}, options...)
}

func annotated(name, value string) option {
	return func(in *Input) { in.Profile.Annotations[name] = value }
}

func node(name, kernel string, memory int64) option {
	return func(in *Input) { in.Nodes = append(in.Nodes, Node{Name: name, Kernel: kernel, Memory: memory}) }
}

func reports(key, original string) option {
	return func(in *Input) {
		in.Nodes = append(in.Nodes, Node{Name: "worker-1", Kernel: "6.18.44", Memory: 16 * gib, Settings: []v1alpha1.SettingStatus{{Key: key, Original: original}}})
	}
}

func mounts(kernel, build, protocol string, options ...string) option {
	return func(in *Input) {
		in.Nodes = append(in.Nodes, Node{Name: "worker-1", Kernel: kernel, Build: build, Mounts: []v1alpha1.MountStatus{{Protocol: protocol, Options: options}}})
	}
}

func server(name, version string, nconnect int) option {
	return func(in *Input) {
		in.Servers = append(in.Servers, Server{Name: name, Version: version, Nconnect: nconnect})
	}
}

const limits, chunk = v1alpha1.ServerLimitsAnnotation, v1alpha1.ServerChunkAnnotation

var (
	large  = argument("ihash_entries=16777216")
	worker = node("worker-1", "6.1.0-51-cloud-amd64", 16*gib)
)

// Each rule fires when it should, with a clear text, and ignores the most similar input.
var cases = map[string]struct {
	fires  Input
	text   string
	silent Input
}{
	"acregmax-default": {input(nfs("acregmax=30")), "spec.volumes[0].mountOptions[0]: 30 is half of the kernel's default of 60 s", input(nfs("acregmax=45"))},
	"actimeo-default":  {input(driver(azureFilesDriver, "actimeo=30")), "already adds actimeo=30", input(driver("nfs.csi.k8s.io", "actimeo=30"))},
	"actimeo-range":    {input(nfs("actimeo=600")), "600 s is outside 30 to 60 s", input(nfs("actimeo=60"), picked("actimeo=600"))},
	"canary-labels": {
		input(canaryLabelled("example.com/canary"), readAheadOfVolumes), "spec.rollout.canary.nodeSelector: any node may set example.com/canary on itself",
		input(canaryLabelled("node-restriction.kubernetes.io/canary"), readAheadOfVolumes),
	},
	"hash-below-default": {input(large, node("huge", "6.1.0", 1<<40)), "no more than the kernel's default on huge", input(large, worker)},
	"hash-clamped":       {input(large, worker, node("small", "6.1.0", 3*gib/2)), "of memory on small, whatever /proc/cmdline shows: these nodes are not rebooted for it; the largest value that fits all of them is 8388608", input(large, worker)},
	"hash-rounded":       {input(argument("dhash_entries=1000000")), "1000000 is not a power of two", input(large)},
	"hash-small":         {input(argument("ihash_entries=1024")), "spec.node.kernelArguments[0]: 1024 buckets are fewer than the kernel's default of 65536 with 1 GiB of memory", input(argument("ihash_entries=65536"), argument("quiet"))},
	"intr-no-effect":     {input(nfs("hard", "intr")), "spec.volumes[0].mountOptions[1]: has no effect", input(nfs("hard"))},
	"known-bad-data": {input(mounts("6.1.0-44-amd64", "Linux version 6.1.0-44-amd64 (x) #1 SMP Debian 6.1.150-1 (2025-09-01)", "NFSv3", "ro")),
		"nfs-ro-ignored: pods write to read-only volumes", input(mounts("6.1.0-47-amd64", "Linux version 6.1.0-47-amd64 (x) #1 SMP Debian 6.1.170-3", "NFSv3", "ro"))},
	"known-bad-kernel": {input(mounts("6.12.9", "", "NFSv4.1", "rw", "fsc")), "cure: ", input(mounts("6.12.10", "", "NFSv4.1", "rw", "fsc"))},
	"lowers-kernel": {input(sysctl("net.ipv4.tcp_rmem", "4096 1048576 16777216"), reports("sysctl/net.ipv4.tcp_rmem", "4096 131072 33554432")),
		"spec.node.sysctls[net.ipv4.tcp_rmem]: on worker-1, number 3 decreases from the node's original 33554432 to 16777216: declare it in sysctlsAtLeast",
		input(sysctl("net.ipv4.tcp_rmem", "4096 1048576 16777216"), reports("sysctl/net.ipv4.tcp_rmem", "4096 131072 6291456"), worker)},
	"metadata-on-nfs41": {input(nfs("vers=4.1")), "NFSv4.1 takes 25 to 75 % longer", input(nfs("vers=3"))},
	"nconnect-kernel":   {input(nfs("nconnect=4"), node("old", "4.18.0-553.el8", gib)), "fail on old (4.18.0-553.el8)", input(nfs("nconnect=4"), node("new", "5.3.0", gib))},
	"nconnect-single":   {input(driver(azureFilesDriver, "nconnect=8")), "more than 4 do not help on Azure Files", input(nfs("nconnect=1"))},
	"nconnect-slots":    {input(nfs("nconnect=8"), slots("64")), "is 64, but each of the 8 connections can carry 128 requests", input(nfs("nconnect=8"), slots("128"))},
	"next-mount-only":   {input(xfs("noatime", "logbsize=256k")), "spec.volumes[0].mountOptions[1]: takes effect only after", input(xfs("noatime"))},
	"nocto-meaning":     {input(nfs("nocto")), "may still be read from the cache after it is opened", input(picked("nocto"))},
	"option-default":    {input(xfs("logbufs=8", "logbsize=256k")), "spec.volumes[0].mountOptions[0]: has no effect: current kernels do this", input(xfs("logbufs=4"))},
	"port-range":        {input(sysctl("net.ipv4.ip_local_port_range", "1024 65000")), "includes ports of NodePort services", input(sysctl("net.ipv4.ip_local_port_range", "32768 60999"))},

	"read-ahead-below-rsize": {input(nfs("rsize=1048576"), readAhead("nfs4", 128)), "128 KiB is less than one request of 1048576 bytes", input(nfs("rsize=262144"), readAhead("nfs4", 256))},
	"read-ahead-memory":      {input(readAhead("xfs", 65536), readAhead("ext4", 1048576)), "spec.node.readAhead[1].sizeKiB: 1.0 GiB may be read ahead into memory for each file that is read in sequence", input(readAhead("ext4", 65536))},
	"read-ahead-rule-file":   {input(readAhead("nfs", 15360)), "99-nfs.rules", input(readAhead("xfs", 4096))},
	"read-ahead-window":      {input(nfs("rsize=262144"), readAhead("nfs4", 4096)), "spec.node.readAhead[0].sizeKiB: 4096 KiB is 16 requests of 262144 bytes ahead of each file that is read: in two published sweeps, 1024 KiB is 45 to 50 % faster than the default of 128 KiB, and 15360 KiB is slower", input(nfs("rsize=262144"), readAhead("nfs4", 1024))},
	"read-ahead-tail":        {input(readAhead("nfs", 15380)), "is 15 requests of 1048576 bytes and a remainder of 20 KiB, which costs one small extra request in every window: use 15360 KiB", input(readAhead("nfs", 15360), nfs("rsize=262144"))},

	"route-flush":            {input(sysctl("net.ipv4.route.flush", "1")), "cannot be read back", input()},
	"rsize-granted":          {input(nfs("rsize=300000", "wsize=8650752")), "spec.volumes[0].mountOptions[0]: is not a multiple of the page size: the kernel uses 299008", input(nfs("rsize=299008"), worker)},
	"rsize-wsize":            {input(nfs("rsize=1048576", "wsize=262144")), "rsize=1048576 and wsize=262144 differ", input(nfs("rsize=262144", "wsize=262144"))},
	"sack-off":               {input(sysctl("net.ipv4.tcp_sack", "0")), "also has 1", input(sysctl("net.ipv4.tcp_sack", "1"))},
	"server-budget":          {input(server("filer1", "3", 8), slots("128"), worker, node("worker-2", "6.1.0", gib)), "filer1 gets up to 16 connections and 2048 requests in flight", input(server("filer1", "3", 8))},
	"server-budget-exceeded": {input(annotated(limits, "connections=10,requests=100"), server("filer1", "4.1", 16), worker), "filer1 may get 16 connections, but its limit is 10", input(annotated(limits, "connections=16,requests=100"), server("filer1", "4.1", 16), worker)},
	"server-chunk":           {input(annotated(chunk, "8192"), readAhead("nfs", 8448)), "each request leaves 256 KiB outside", input(annotated(chunk, "8192"), nfs("rsize=1048576"), readAhead("nfs", 16384))},
	"server-copy":            {input(smb("actimeo=30")), "copy_file_range", input(nfs("vers=4.1"))},
	"server-sizes":           {input(from("filer1", "rsize=262144"), from("filer1", "rsize=1048576")), "filer1 is read with rsize 1048576 here but with rsize 262144 in spec.volumes[0]", input(from("filer1", "rsize=262144"), from("filer2", "rsize=1048576"))},
	"slots-per-connection":   {input(nfs("nconnect=8"), slots("FromNconnect")), "8 connections may have 4096 requests in flight", input(nfs("nconnect=8"), slots("128"))},
	"slots-sessions":         {input(nfs("vers=4.1"), slots("128")), "set max_session_slots", input(nfs("vers=4.1"), nfs("vers=3"), slots("128"))},
	"slots-spelling":         {input(sysctl("sunrpc.tpc_max_slot_table_entries", "128")), "use sunrpc.tcp_max_slot_table_entries", input(sysctl("sunrpc.tcp_max_slot_table_entries", "128"))},
	"soft":                   {input(nfs("soft")), "use hard", input(nfs("hard"))},
	"sync":                   {input(nfs("sync")), "70 s instead of 6 s", input(nfs("async"))},
	"sysctl-no-effect":       {input(sysctl("net.ipv4.tcp_low_latency", "1")), "does not use it", input(sysctl("net.ipv4.tcp_dsack", "0"))},
	"tcp-buffers":            {input(sysctl("net.ipv4.tcp_rmem", "4096 131072 16777216"), worker), "16 MiB, 1/1024 of the memory of worker-1", input(sysctl("net.ipv4.tcp_rmem", "4096 131072 16777216"))},
	"tcp-mem":                {input(sysctl("net.ipv4.tcp_mem", "4096 89600 4194304"), node("n", "6.1.0", 8*gib)), "memory pressure starts at 350 MiB and the limit is 16 GiB, for all sockets together; the kernel's default for pressure on n, with 8.0 GiB of memory, is about 512 MiB, and the limit is more than its memory", input(sysctl("net.ipv4.tcp_rmem", "4096 131072 6291456"))},
	"tcp-minimum":            {input(sysctl("net.ipv4.tcp_rmem", "1048576 8388608 16777216"), worker), "10000 sockets may hold 9.8 GiB that the kernel cannot reclaim under memory pressure; worker-1 has 16 GiB: use 4096 as the first number", input(sysctl("net.ipv4.tcp_rmem", "4096 8388608 16777216"))},
	"tuned-overlap":          {input(tuned("latency-performance"), sysctl("vm.dirty_ratio", "20")), "latency-performance sets vm.dirty_ratio too", input(tuned("latency-performance"), sysctl("net.core.rmem_max", "4096"))},
	"xfs-log-version":        {input(xfs("logbsize=128k")), "spec.volumes[0].mountOptions[0]: cannot be mounted if the log of the file system is version 1", input(xfs("logbsize=32k"))},
	"xfs-memory":             {input(xfs("logbsize=256k")), "uses 2048 KiB of memory", input(xfs("logbufs=8"))},
	"writeback-off":          {input(sysctl("vm.dirty_writeback_centisecs", "0")), "spec.node.sysctls[vm.dirty_writeback_centisecs]: turns periodic write-back off", input(sysctl("vm.dirty_writeback_centisecs", "1"))},
	"volumes-left-out": {input(leftOut(LeftOut{Driver: "nfs.example.com", LooksLike: v1alpha1.ProtocolNFS, Count: 2, Example: "pv-1"}, LeftOut{Count: 1, Example: "pv-3"})),
		"3 volumes are not selected by any rule because their drivers are unknown: nfs.example.com (2, e.g. pv-1; looks like NFS); volumes without a driver name (1, e.g. pv-3)", input()},
	"xfs-quota": {input(xfs("noquota")), "drops their state", input(nfs("hard"))},
}

func TestEachRule(t *testing.T) {
	for _, rule := range Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			if rule.Title == "" || rule.Source == "" || severityRank(rule.Severity) < 0 {
				t.Errorf("want a title, a source and a severity, got %+v", rule)
			}
			test, ok := cases[rule.ID]
			if ok == (rule.Explanation != "") {
				t.Fatalf("got a case that fires this rule: %v, and only an explanation: %q", ok, rule.Explanation)
			}
			if !ok {
				return
			}
			if got := texts(test.fires, rule.ID); !strings.Contains(strings.Join(got, "\n"), test.text) {
				t.Errorf("got %q, want %q in it", got, test.text)
			}
			if got := texts(test.silent, rule.ID); len(got) > 0 {
				t.Errorf("got %q, want no advice", got)
			}
		})
	}
	if !slices.IsSortedFunc(rules, func(a, b Rule) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("the rules are not sorted by ID")
	}
}

func texts(in Input, id string) []string {
	var found []string
	for _, a := range For(in) {
		if a.ID == id {
			found = append(found, a.Text)
		}
	}
	return found
}

func TestFileSystemsOfTheNodeGetTheAdviceForVolumes(t *testing.T) {
	disks := func(fsType string) option {
		return func(in *Input) {
			in.Profile.Spec.Node.Filesystems = []v1alpha1.Filesystem{{MountPoint: "/mnt/disks/*", FSType: fsType,
				MountOptions: []v1alpha1.MountOption{"noatime", "logbsize=256k", "noquota"}}}
		}
	}
	for id, field := range map[string]string{"next-mount-only": "mountOptions[1]", "xfs-memory": "mountOptions[1]", "xfs-quota": "mountOptions[2]"} {
		if got := texts(input(disks("xfs")), id); len(got) != 1 || !strings.HasPrefix(got[0], "spec.node.filesystems[0]."+field) {
			t.Errorf("%s: got %q", id, got)
		}
		if got := texts(input(disks("ext4")), id); len(got) > 0 {
			t.Errorf("%s for ext4: got %q", id, got)
		}
	}
}

func TestMinimumsGetTheAdviceForSysctls(t *testing.T) {
	raised := func(in *Input) {
		in.Profile.Spec.Node.SysctlsAtLeast = map[string]v1alpha1.WholeNumbers{"net.ipv4.tcp_rmem": "1048576 8388608 16777216"}
	}
	const field = "spec.node.sysctlsAtLeast[net.ipv4.tcp_rmem]: "
	if got := texts(input(raised, worker), "tcp-minimum"); len(got) != 1 || !strings.HasPrefix(got[0], field) {
		t.Errorf("tcp-minimum: got %q", got)
	}
	if got := texts(input(raised, reports("sysctl/net.ipv4.tcp_rmem", "4096 131072 33554432")), "lowers-kernel"); len(got) > 0 {
		t.Errorf("lowers-kernel: got %q for settings that never lower a value", got)
	}
}

// Each row of the errata of the source documents has a rule.
func TestEveryErratumIsReported(t *testing.T) {
	for erratum, id := range map[string]string{
		"1 /proc/cmdline proves nothing": "hash-clamped", "2 /etc/default/grub": "boot-argument-file", "3 no gain from 1 TiB on": "hash-below-default",
		"4 actimeo is a default already": "actimeo-default", "5 logbufs=8, nodiratime": "option-default", "5 noquota": "xfs-quota", "6 remount": "next-mount-only",
		"7 sysctl -P": "sysctl-files", "8 tcp_sack twice": "sack-off", "9 no-ops": "sysctl-no-effect", "10 route.flush": "route-flush", "11 tcp_mem": "tcp-mem",
		"12 misspelt slot table": "slots-spelling", "13 slot table a connection": "slots-per-connection", "13 sessions": "slots-sessions", "14 intr": "intr-no-effect",
		"15 nocto": "nocto-meaning", "16 actimeo": "actimeo-scope", "17 ports": "port-range", "18 tuned": "tuned-overlap", "19 read-ahead of 15380": "read-ahead-tail",
		"20 acregmax": "acregmax-default", "21 99-nfs.rules": "read-ahead-rule-file", "Q1": "read-ahead-tail", "Q2": "read-ahead-below-rsize", "Q3": "rsize-granted",
		"Q4": "server-chunk", "Q5": "server-sizes",
	} {
		if !slices.ContainsFunc(Rules(), func(r Rule) bool { return r.ID == id }) {
			t.Errorf("%s: no rule %s", erratum, id)
		}
	}
}

func TestForAdmission(t *testing.T) {
	in := input(large, nfs("intr", "nocto", "rsize=1048576", "wsize=262144"))
	var got []string
	for _, a := range ForAdmission(in.Profile) {
		got = append(got, a.ID)
	}
	// Other admission checks report intr and nocto; the status reports information.
	if want := []string{"rsize-wsize"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWarningsComeFirst(t *testing.T) {
	all := For(input(large, nfs("sync"), annotated(limits, "many")))
	for i := 1; i < len(all); i++ {
		if severityRank(all[i-1].Severity) > severityRank(all[i].Severity) {
			t.Fatalf("got severity %s before %s", all[i-1].Severity, all[i].Severity)
		}
	}
	if all[0].ID != "server-budget-exceeded" || !strings.Contains(all[0].Text, `"many" must be connections=N`) {
		t.Errorf("got %+v", all[0])
	}
}

func TestOneTextNamesThreeFieldsAndCountsTheRest(t *testing.T) {
	got := texts(input(nfs("intr"), nfs("intr"), nfs("intr"), nfs("intr")), "intr-no-effect")
	if len(got) != 1 || !strings.HasPrefix(got[0], "spec.volumes[0].mountOptions[0], spec.volumes[1].mountOptions[0], spec.volumes[2].mountOptions[0] and 1 more: ") {
		t.Errorf("got %q", got)
	}
}

func TestLoads(t *testing.T) {
	for name, test := range map[string]struct {
		in          Input
		connections int64
		requests    int64
	}{
		"NFSv3 without a limit":                          {input(worker, server("f", "3", 4)), 4, 4 * 65536},
		"NFSv4.0 with slots":                             {input(worker, server("f", "4.0", 4), slots("128")), 4, 512},
		"NFSv4.1 by the kernel's session":                {input(worker, server("f", "4.1", 4)), 4, 64},
		"a negotiated version by the profile's sessions": {input(worker, server("f", "", 2), sessionSlots("180")), 2, 180},
		"two volumes of one server: the larger":          {input(worker, worker, server("f", "4.1", 2), server("f", "4.1", 8)), 16, 128},
		"no nconnect is one connection":                  {input(worker, server("f", "4.1", 0)), 1, 64},
	} {
		t.Run(name, func(t *testing.T) {
			loads := Loads(test.in)
			if len(loads) != 1 || loads[0].Connections != test.connections || loads[0].Requests != test.requests {
				t.Errorf("got %+v, want %d connections, %d requests", loads, test.connections, test.requests)
			}
		})
	}
}

func TestForNodeCoversOnlyTheFieldsForNodes(t *testing.T) {
	in := input(nfs("intr", "nconnect=8"), slots("64"), sysctl("net.ipv4.tcp_rmem", "1048576 8388608 16777216"))
	var got []string
	for _, a := range ForNode(in.Profile, Node{Name: "this machine", Kernel: "6.1.0", Memory: 16 * gib, Sockets: 300}) {
		got = append(got, a.ID)
		if want := "this machine has 16 GiB and 300 in use now, which may hold 300 MiB: use 4096 as the first number"; a.ID == "tcp-minimum" && !strings.Contains(a.Text, want) {
			t.Errorf("got %q, want %q in it", a.Text, want)
		}
	}
	if want := []string{"nconnect-slots", "tcp-minimum", "tcp-buffers"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Some number of slots raises no warning, whatever nconnect is.
func TestANumberOfSlotsHasNoWarning(t *testing.T) {
	for n := 1; n <= 16; n++ {
		in := input(nfs(v1alpha1.MountOption(fmt.Sprintf("nconnect=%d", n))), slots("128"))
		for _, a := range For(in) {
			if a.Severity != v1alpha1.SeverityInfo {
				t.Errorf("nconnect=%d: got %s %s", n, a.ID, a.Text)
			}
		}
	}
}

// Requests, windows of volumes and windows of the node are compared with the chunk of the profile.
func TestServerChunkOfAProfile(t *testing.T) {
	rule := func(size string, window int32) option {
		return func(in *Input) {
			r := v1alpha1.VolumeRule{Name: "r", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}},
				MountOptions: []v1alpha1.MountOption{v1alpha1.MountOption("rsize=" + size)}}
			if window > 0 {
				r.ReadAheadKiB = &window
			}
			in.Profile.Spec.Volumes = append(in.Profile.Spec.Volumes, r)
		}
	}
	for name, test := range map[string]struct {
		in   Input
		want []string
	}{
		"a request that leaves a tail": {input(annotated(chunk, "192"), rule("262144", 0)), []string{"spec.volumes[0].mountOptions[0]: 262144 bytes does not fit the server's chunks of 192 KiB"}},
		"a request that fits":          {input(annotated(chunk, "8192"), rule("1048576", 0)), nil},
		"no chunk":                     {input(rule("262144", 8448)), nil},
		"a window that leaves a tail":  {input(annotated(chunk, "8192"), rule("1048576", 8448)), []string{"spec.volumes[0].readAheadKiB: 8650752 bytes does not fit the server's chunks of 8192 KiB"}},
		"a window of the node":         {input(annotated(chunk, "8192"), rule("1048576", 0), readAhead("nfs", 8448)), []string{"spec.node.readAhead[0].sizeKiB: 8650752 bytes"}},
		"two rules":                    {input(annotated(chunk, "192"), rule("262144", 8192), rule("196608", 0)), []string{"spec.volumes[0].mountOptions[0]: 262144", "spec.volumes[0].readAheadKiB: 8388608"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := texts(test.in, "server-chunk")
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}

// A number above the limit would overflow in bytes.
func TestAServerChunkOutsideItsLimits(t *testing.T) {
	for _, value := range []string{"0", "-1", "x", "1048577", "9007199254740993", "18014398509481984", "9223372036854775807", "9223372036854775808"} {
		got := texts(input(annotated(chunk, value), nfs("rsize=1048576"), readAhead("nfs", 8192)), "server-chunk")
		if len(got) != 1 || !strings.Contains(got[0], `"`+value+`" must be 1 to 1048576 KiB`) {
			t.Errorf("%s: got %q", value, got)
		}
	}
	if got := texts(input(annotated(chunk, "1048576"), nfs("rsize=1048576")), "server-chunk"); len(got) > 0 {
		t.Errorf("the largest chunk: got %q", got)
	}
}

// A request that is smaller than the chunk has no remainder of a chunk.
func TestARequestSmallerThanTheChunk(t *testing.T) {
	in := input(nfs("rsize=196608"))
	in.Profile.Annotations = map[string]string{v1alpha1.ServerChunkAnnotation: "512"}
	i := slices.IndexFunc(For(in), func(a v1alpha1.Advice) bool { return a.ID == "server-chunk" })
	if i < 0 || !strings.HasSuffix(For(in)[i].Text, "196608 bytes does not fit the server's chunks of 512 KiB: some requests reach into two chunks") {
		t.Errorf("got %+v", For(in))
	}
}

func TestALongTextIsCut(t *testing.T) {
	long := strings.Repeat("x", 2*maxText)
	got := groupFindings([]finding{{"", long}}, func(finding) bool { return true })
	if len(got[0]) > maxText || !strings.HasSuffix(got[0], "…") {
		t.Errorf("got %d bytes that end in %q", len(got[0]), got[0][len(got[0])-3:])
	}
}

// Current kernels of distributions, and kernels whose fixes are unknown, raise no known problem with any mount.
func TestHealthyNodesHaveNoKnownProblem(t *testing.T) {
	var nodes []option
	for release, build := range map[string]string{
		"6.1.0-47-amd64": "Linux version 6.1.0-47-amd64 (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP Debian 6.1.170-3", "6.12.117+deb13-amd64": "", "6.18.15-talos": "",
		"5.15.0-116-generic": "Ubuntu 5.15.0-116.126-generic 5.15.158", "5.14.0-427.el9.x86_64": "", "6.1.102-111.182.amzn2023.x86_64": "", "6.1.0-20-amd64": "", "": "",
		"6.19": "", "7.0": "",
	} {
		for _, protocol := range []string{"NFSv3", "NFSv4.0", "NFSv4.1", "NFSv4.2", "SMB3.1.1", "xfs"} {
			nodes = append(nodes, mounts(release, build, protocol, "rw", "hard", "nconnect=4", "ro", "vers=4.1"))
		}
	}
	for _, a := range For(input(nodes...)) {
		t.Errorf("got %s: %s", a.ID, a.Text)
	}
}

func TestKnownProblemsOfAKernelCostTheSameForManyNodes(t *testing.T) {
	allocationsFor := func(count int) float64 {
		nodes := make([]Node, count)
		for i := range nodes {
			nodes[i] = Node{Name: "a", Kernel: "6.8.0-45-generic", Build: "Ubuntu 6.8.0-45.45-generic 6.8.12"}
		}
		s := &scope{Input: Input{Nodes: nodes}}
		return testing.AllocsPerRun(5, func() { s.addKnownBad(true); s.addKnownBad(false) })
	}
	if one, many := allocationsFor(1), allocationsFor(1000); many > 2*one {
		t.Errorf("got %.0f allocations for 1000 nodes, %.0f for one; want the same", many, one)
	}
}
