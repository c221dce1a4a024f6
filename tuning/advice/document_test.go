package advice

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// expected maps each line of the document to a part of the operator's warning or advice. Empty if the line is correct.
var expected = map[string]string{
	"spec.node.tuned.profile":                               "latency-performance sets vm.dirty_background_ratio, vm.dirty_ratio too",
	"spec.node.sysctls[net.core.netdev_max_backlog]":        "A long queue uses memory and adds latency",
	"spec.node.sysctls[net.core.optmem_max]":                "",
	"spec.node.sysctls[net.core.rmem_default]":              "",
	"spec.node.sysctls[net.core.rmem_max]":                  "",
	"spec.node.sysctls[net.core.somaxconn]":                 "",
	"spec.node.sysctls[net.core.wmem_default]":              "",
	"spec.node.sysctls[net.core.wmem_max]":                  "",
	"spec.node.sysctls[net.ipv4.ip_local_port_range]":       "includes ports of NodePort services",
	"spec.node.sysctls[net.ipv4.route.flush]":               "cannot be read back",
	"spec.node.sysctls[net.ipv4.tcp_dsack]":                 "needless retransmissions are not detected",
	"spec.node.sysctls[net.ipv4.tcp_fack]":                  "has no effect",
	"spec.node.sysctls[net.ipv4.tcp_low_latency]":           "has no effect",
	"spec.node.sysctls[net.ipv4.tcp_mem]":                   "memory pressure starts at 350 MiB",
	"spec.node.sysctls[net.ipv4.tcp_no_metrics_save]":       "",
	"spec.node.sysctls[net.ipv4.tcp_rmem]":                  "number 3 decreases from the node's original 33554432 to 16777216",
	"spec.node.sysctls[net.ipv4.tcp_sack]":                  "the document that recommends 0 also has 1",
	"spec.node.sysctls[net.ipv4.tcp_slow_start_after_idle]": "",
	"spec.node.sysctls[net.ipv4.tcp_timestamps]":            "wrapped sequence numbers are not detected",
	"spec.node.sysctls[net.ipv4.tcp_window_scaling]":        "",
	"spec.node.sysctls[net.ipv4.tcp_wmem]":                  "10000 sockets may hold 9.8 GiB",
	"spec.node.sysctls[vm.dirty_background_ratio]":          "",
	"spec.node.sysctls[vm.dirty_expire_centisecs]":          "",
	"spec.node.sysctls[vm.dirty_ratio]":                     "",
	"spec.node.sysctls[vm.dirty_writeback_centisecs]":       "",
	"spec.node.sysctls[sunrpc.tcp_max_slot_table_entries]":  "has no effect with nconnect=16",
	"spec.volumes[0].mountOptions[0]":                       "helps if several threads",
	"spec.volumes[0].mountOptions[1]":                       "",
	"spec.volumes[0].mountOptions[2]":                       "",
	"spec.volumes[0].mountOptions[3]":                       "has no effect: current kernels do this by default",
	"spec.volumes[0].mountOptions[4]":                       "fatal signals always interrupt",
	"spec.volumes[0].mountOptions[5]":                       "",
	"spec.volumes[0].mountOptions[6]":                       "",
	"spec.volumes[0].mountOptions[7]":                       "has no effect: current kernels do this by default",
	"spec.volumes[0].mountOptions[8]":                       "may still be read from the cache after it is opened",
	"spec.volumes[0].mountOptions[9]":                       "600 s is outside 30 to 60 s",
}

// The unchanged document can be declared, and the operator reports every incorrect line.
func TestTheExampleOfTheDocument(t *testing.T) {
	profile := readDocument(t)
	var texts []string
	for _, problem := range nodesettings.Validate(profile, catalogue.AllowList{}) {
		if !problem.Warning {
			t.Errorf("got a rejection: %s", problem)
		}
		texts = append(texts, problem.Field+": "+problem.Message)
	}
	statuses := []v1alpha1.SettingStatus{{Key: "sysctl/net.ipv4.tcp_rmem", Original: "4096 131072 33554432"}, {Key: "sysctl/net.core.rmem_max", Original: "4194304"}}
	in := Input{Profile: profile, Nodes: []Node{{Name: "worker-1", Kernel: "6.18.44", Memory: 16 * gib, Settings: statuses}}}
	for _, a := range For(in) {
		texts = append(texts, a.Text)
	}
	for field, want := range expected {
		about := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !strings.Contains(text, field) })
		got := strings.Join(about, "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q in it", field, got, want)
		}
	}
	lines := len(profile.Spec.Node.Sysctls) + len(profile.Spec.Volumes[0].MountOptions) + 1
	if len(expected) != lines {
		t.Errorf("got %d expectations for %d lines", len(expected), lines)
	}
}

func readDocument(t *testing.T) *v1alpha1.StorageClientProfile {
	t.Helper()
	content, err := os.ReadFile("testdata/azure-netapp-files.yaml")
	check.NoError(t, err)
	var profile v1alpha1.StorageClientProfile
	check.NoError(t, yaml.UnmarshalStrict(content, &profile))
	return &profile
}
