package nodesettings

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

type option = func(*v1alpha1.StorageClientProfileSpec)

func TestValidate(t *testing.T) {
	unknownOperator := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is", Values: []string{"b"}}}}
	for name, test := range map[string]struct {
		options []option
		allow   []string
		want    []string // "field: part of the message", "?" before a warning
	}{
		"nothing": {},
		"a valid profile": {options: []option{sysctl("net.core.rmem_max", "16777216"), argument("ihash_entries=16777216"), maxSlots(fromNconnect),
			module("nfs", "max_session_slots", "180"), volume("actimeo=30", "nconnect=4")}},
		"a sysctl that is misspelt": {options: []option{sysctl("sunrpc.tpc_max_slot_table_entries", "128")},
			want: []string{"spec.node.sysctls[sunrpc.tpc_max_slot_table_entries]: not supported. Did you mean sunrpc.tcp_max_slot_table_entries?"}},
		"a sysctl out of range": {options: []option{sysctl("vm.dirty_ratio", "200")},
			want: []string{"spec.node.sysctls[vm.dirty_ratio]: must be 0 to 100"}},
		"buffers with which no new connection works": {options: []option{sysctl("net.ipv4.tcp_rmem", "1000 1000 1000")},
			want: []string{"spec.node.sysctls[net.ipv4.tcp_rmem]: number 2 must be at least 2304 bytes"}},
		"buffers that the administrator names": {options: []option{sysctl("net.ipv4.tcp_rmem", "1 1 1")}, allow: []string{"sysctl/net[.]ipv4[.]tcp_rmem=1 1 1"},
			want: []string{"?spec.node.sysctls[net.ipv4.tcp_rmem]: Buffers below 64 KiB"}},
		"a limit in percent and in bytes": {options: []option{sysctl("vm.dirty_ratio", "20"), sysctl("vm.dirty_bytes", "1073741824")}, allow: []string{"sysctl/vm[.]dirty_.*"},
			want: []string{`spec.node.sysctls[vm.dirty_bytes]: excludes spec.node.sysctls[vm.dirty_ratio], which is "20": setting one sets the other to 0; remove one of them`}},
		"limits of two kinds":         {options: []option{sysctl("vm.dirty_background_ratio", "5"), sysctl("vm.dirty_bytes", "1073741824")}, allow: []string{"sysctl/vm[.]dirty_.*"}},
		"buffers with a minimum size": {options: []option{atLeast("net.ipv4.tcp_rmem", "4096 1048576 16777216"), atLeast("net.core.rmem_max", "16777216")}},
		"a sysctl with an exact and a minimum value": {options: []option{sysctl("net.core.rmem_max", "16777216"), atLeast("net.core.rmem_max", "16777216")},
			want: []string{`spec.node.sysctlsAtLeast[net.core.rmem_max]: contradicts spec.node.sysctls[net.core.rmem_max], which is "16777216": remove one of them`}},
		"a minimum value in the field of exact values": {options: []option{sysctl("net.core.rmem_max", "at-least 16777216")},
			want: []string{"spec.node.sysctls[net.core.rmem_max]: declare it in spec.node.sysctlsAtLeast"}},
		"a switch with a minimum value": {options: []option{atLeast("net.ipv4.tcp_sack", "1")},
			want: []string{"spec.node.sysctlsAtLeast[net.ipv4.tcp_sack]: is not a size or count that can be raised: declare it in spec.node.sysctls"}},
		"an action with a minimum value": {options: []option{atLeast("net.ipv4.route.flush", "1")},
			want: []string{"spec.node.sysctlsAtLeast[net.ipv4.route.flush]: is not a size"}},
		"a slot table with a minimum value": {options: []option{atLeast("sunrpc.tcp_max_slot_table_entries", "128")},
			want: []string{"spec.node.sysctlsAtLeast[sunrpc.tcp_max_slot_table_entries]: only sysctls can have a minimum: declare it in spec.node.sysctls"}},
		"two numbers of three": {options: []option{atLeast("net.ipv4.tcp_rmem", "4096 1048576")},
			want: []string{"spec.node.sysctlsAtLeast[net.ipv4.tcp_rmem]: must be 3 numbers"}},
		"a minimum value that breaks every node": {options: []option{atLeast("net.ipv4.tcp_mem", "0 0 0")},
			want: []string{"spec.node.sysctlsAtLeast[net.ipv4.tcp_mem]: number 1 must be at least 3072 pages"}},
		"a large minimum for every socket": {options: []option{atLeast("net.ipv4.tcp_rmem", "1048576 8388608 16777216")},
			want: []string{"?spec.node.sysctlsAtLeast[net.ipv4.tcp_rmem]: The first number is granted"}},
		"an allowed parameter with a minimum value": {options: []option{atLeast("vm.min_free_kbytes", "65536")}, allow: []string{"sysctl/vm[.]min_free_kbytes"}},
		"a minimum for a sysctl that is not allowed": {options: []option{atLeast("kernel.pid_max", "65536")},
			want: []string{"spec.node.sysctlsAtLeast[kernel.pid_max]: not supported; to allow it"}},
		"a sysctl with a hazard": {options: []option{sysctl("net.ipv4.tcp_sack", "0")},
			want: []string{"?spec.node.sysctls[net.ipv4.tcp_sack]: If off"}},
		"a kernel argument with a suffix": {options: []option{argument("dhash_entries=1048576", "ihash_entries=16M")},
			want: []string{"spec.node.kernelArguments[1]: must be decimal digits only, without a suffix: write 16777216"}},
		"a kernel argument twice": {options: []option{argument("ihash_entries=16777216", "ihash_entries=8388608")},
			want: []string{`spec.node.kernelArguments[1]: contradicts spec.node.kernelArguments[0], which is "16777216"`}},
		"a kernel argument that is not allowed": {options: []option{argument("init=/bin/sh")},
			want: []string{"spec.node.kernelArguments[0]: not supported; to allow it"}},
		"a kernel argument that the operator allows": {options: []option{argument("nosmt")}, allow: []string{"kernelArgument/nosmt"}},
		"a module parameter out of range": {options: []option{module("nfs", "max_session_slots", "2000")},
			want: []string{"spec.node.kernelModules[0].parameters[max_session_slots]: must be 1 to 1024"}},
		"a slot table declared twice with one value": {options: []option{maxSlots("128"), module("sunrpc", "tcp_max_slot_table_entries", "128")}},
		"a slot table declared twice": {options: []option{maxSlots("128"), module("sunrpc", "tcp_max_slot_table_entries", "64")},
			want: []string{`spec.node.kernelModules[0].parameters[tcp_max_slot_table_entries]: contradicts spec.node.sysctls[sunrpc.tcp_max_slot_table_entries], which is "128"`}},
		"a slot table that depends on other profiles agrees with nothing": {
			options: []option{maxSlots(fromNconnect), module("sunrpc", "tcp_max_slot_table_entries", "128")},
			want:    []string{`spec.node.kernelModules[0].parameters[tcp_max_slot_table_entries]: contradicts spec.node.sysctls[sunrpc.tcp_max_slot_table_entries], which is "FromNconnect"`}},
		"a slot table from nconnect":   {options: []option{maxSlots(fromNconnect)}},
		"a slot table below its range": {options: []option{maxSlots("1")}, want: []string{"spec.node.sysctls[sunrpc.tcp_max_slot_table_entries]: must be 2 to 65536 requests in flight per connection, or FromNconnect"}},
		"a slot table above its range": {options: []option{maxSlots("65537")}, want: []string{"spec.node.sysctls[sunrpc.tcp_max_slot_table_entries]: must be 2 to 65536 requests in flight per connection, or FromNconnect"}},
		"a slot table in other words":  {options: []option{maxSlots("FromNConnect")}, want: []string{"spec.node.sysctls[sunrpc.tcp_max_slot_table_entries]: must be"}},
		"the initial slot table from nconnect": {options: []option{sysctl("sunrpc.tcp_slot_table_entries", fromNconnect)},
			want: []string{"spec.node.sysctls[sunrpc.tcp_slot_table_entries]: must be"}},
		"another sysctl from nconnect": {options: []option{sysctl("net.core.rmem_max", fromNconnect)}, want: []string{"spec.node.sysctls[net.core.rmem_max]: must be"}},
		"a module's slot table from nconnect": {options: []option{module("sunrpc", "tcp_max_slot_table_entries", fromNconnect)},
			want: []string{"spec.node.kernelModules[0].parameters[tcp_max_slot_table_entries]: must be"}},
		"one module under two names": {options: []option{module("nfs-x", "a", "1"), module("nfs_x", "a", "2")}, allow: []string{"module/.*"},
			want: []string{"spec.node.kernelModules[1].parameters[a]: contradicts spec.node.kernelModules[0].parameters[a]"}},
		"a mount option out of range": {options: []option{volume("hard"), volume("actimeo=30", "nconnect=17")},
			want: []string{"spec.volumes[1].mountOptions[1]: must be 1 to 16"}},
		"read-ahead of volumes without a window": {options: []option{func(s *v1alpha1.StorageClientProfileSpec) {
			volume()(s)
			s.Volumes[0].ReadAheadKiB = ptr.To[int32](1024)
			s.Volumes[0].Selector.Protocols = []v1alpha1.VolumeProtocol{v1alpha1.ProtocolSMB}
			s.Volumes[0].Selector.FSTypes = []string{"xfs", "ext4"}
		}}, want: []string{"?spec.volumes[0].readAheadKiB: has no effect on SMB", "?spec.volumes[0].readAheadKiB: affects only XFS among file systems on block devices, not ext4"}},
		"read-ahead of others": {options: []option{func(s *v1alpha1.StorageClientProfileSpec) {
			volume()(s)
			s.Volumes[0].ReadAheadKiB = ptr.To[int32](1024)
			s.Volumes[0].Selector.FSTypes = []string{"xfs"}
		}}},
		"a mount option with a warning": {options: []option{volume("hard", "intr")},
			want: []string{"?spec.volumes[0].mountOptions[1]: has had no effect"}},
		"a timer that is overridden": {options: []option{volume("acregmax=90", "actimeo=30")},
			want: []string{"?spec.volumes[0].mountOptions[0]: has no effect"}},
		"mount options of another protocol are not read as NFS's": {options: []option{volume("logbsize=256k"),
			func(spec *v1alpha1.StorageClientProfileSpec) {
				spec.Volumes[0].Selector.Protocols = []v1alpha1.VolumeProtocol{v1alpha1.ProtocolBlock}
			}}},
		"a node selector with an unknown operator": {options: []option{func(spec *v1alpha1.StorageClientProfileSpec) { spec.NodeSelector = unknownOperator }},
			want: []string{`spec.nodeSelector: "Is" is not a valid label selector operator`}},
		"a claim selector with an unknown operator": {options: []option{volume("hard"),
			func(spec *v1alpha1.StorageClientProfileSpec) {
				spec.Volumes[0].Selector.ClaimSelector = &unknownOperator
			}},
			want: []string{`spec.volumes[0].selector.claimSelector: "Is" is not`}},
		"a volume selector with an unknown operator": {options: []option{volume("hard"),
			func(spec *v1alpha1.StorageClientProfileSpec) {
				spec.Volumes[0].Selector.VolumeSelector = &unknownOperator
			}},
			want: []string{`spec.volumes[0].selector.volumeSelector: "Is" is not`}},
		"a pod selector with an unknown operator": {
			options: []option{func(spec *v1alpha1.StorageClientProfileSpec) {
				spec.Rollout.Drain.WaitForPodSelector = &unknownOperator
			}},
			want: []string{`spec.rollout.drain.waitForPodSelector: "Is" is not`}},
		"a selector of the canary with an unknown operator": {options: []option{
			func(spec *v1alpha1.StorageClientProfileSpec) {
				spec.Rollout.Canary = &v1alpha1.Canary{NodeSelector: &unknownOperator}
			}},
			want: []string{`spec.rollout.canary.nodeSelector: "Is" is not`}},
		"windows that never open": {options: []option{func(spec *v1alpha1.StorageClientProfileSpec) {
			spec.Rollout.Windows = []v1alpha1.Window{
				{Schedule: "0 2 * * 6", DurationSeconds: 14400, TimeZone: "Europe/Berlin"},
				{Schedule: "0 2 30 2 *", DurationSeconds: 60},
				{Schedule: "0 2 * * 6", DurationSeconds: 60, TimeZone: "Europe/Bonn"},
			}
		}}, want: []string{"spec.rollout.windows[1].schedule: never opens", "spec.rollout.windows[2].timeZone: is not in the IANA"}},
		"windows that set both day fields": {options: []option{func(spec *v1alpha1.StorageClientProfileSpec) {
			spec.Rollout.Windows = []v1alpha1.Window{
				{Schedule: "0 2 1-7 * 6", DurationSeconds: 60}, {Schedule: "0 2 */15 oct mon,5", DurationSeconds: 60}, {Schedule: "0 2 1-7 * *", DurationSeconds: 60},
				{Schedule: "0 2 * * 6", DurationSeconds: 60}, {Schedule: "0 2 ? * 6", DurationSeconds: 60}, {Schedule: "0 2 1 * 0-6", DurationSeconds: 60},
			}
		}}, want: []string{
			"?spec.rollout.windows[0].schedule: opens on each of the days 1, 2, 3, 4, 5, 6, 7 of a month, and on every Saturday, because cron combines",
			"?spec.rollout.windows[1].schedule: opens on each of the days 1, 16, 31 of a month, and on every Monday, Friday, because",
			"?spec.rollout.windows[5].schedule: opens on each of the days 1 of a month, and on every Sunday, Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, because",
		}},
		"more settings than a node can have": {allow: []string{"sysctl/net[.]a.*"}, options: []option{func(spec *v1alpha1.StorageClientProfileSpec) {
			for i := range MaxSettings + 1 {
				sysctl(fmt.Sprint("net.a", i), "1")(spec)
			}
		}}, want: []string{"spec.node: a node can have at most 256 settings"}},
	} {
		t.Run(name, func(t *testing.T) {
			allow, err := catalogue.NewAllowList(test.allow)
			check.NoError(t, err)
			p := profile("a", 0, test.options...)
			got := Validate(&p, allow)
			if len(got) != len(test.want) {
				t.Fatalf("got %v, want %q", got, test.want)
			}
			for i, problem := range got {
				text := problem.Field + ": " + problem.Message
				if problem.Warning {
					text = "?" + text
				}
				if !strings.HasPrefix(text, test.want[i]) {
					t.Errorf("got %q, want %q", text, test.want[i])
				}
			}
		})
	}
}

func TestValidateReportsFieldValueAndRemedy(t *testing.T) {
	p := profile("a", 0, argument("ihash_entries=16M"))
	problems := Validate(&p, catalogue.AllowList{})
	if len(problems) != 1 {
		t.Fatalf("got %v", problems)
	}
	text := problems[0].String()
	for _, part := range []string{"spec.node.kernelArguments[0]", `"16M"`, "write 16777216", "16 buckets"} {
		if !strings.Contains(text, part) {
			t.Errorf("got %q, want %q in it", text, part)
		}
	}
}
