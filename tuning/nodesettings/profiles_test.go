package nodesettings

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Every shipped profile works without changes.
func TestShippedProfiles(t *testing.T) {
	files, err := filepath.Glob("../../config/profiles/*/*.yaml")
	check.NoError(t, err)
	profiles := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		check.NoError(t, err)
		var p v1alpha1.StorageClientProfile
		if err := yaml.Unmarshal(content, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if p.Kind != "StorageClientProfile" {
			continue
		}
		if err := yaml.UnmarshalStrict(content, &p); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		profiles[filepath.Base(filepath.Dir(file))] = true
		for _, problem := range Validate(&p, catalogue.AllowList{}) {
			if !problem.Warning {
				t.Errorf("%s: %s", file, problem)
			}
		}
	}
	for _, name := range []string{"azure-files-large-directories", "azure-netapp-files-eda", "nfs41-hpc", "smb-shares", "xfs-many-small-files"} {
		if !profiles[name] {
			t.Errorf("config/profiles/%s: got no profile", name)
		}
	}
}

// kernels are the defaults of kernels, on a node with 16 GiB of memory if they depend on it. The defaults of 6.1 and 6.18 were
// measured; from 5.15 to 6.12 the sources say the same (net/ipv4/tcp.c, include/net/sock.h, fs/nfs/nfs4session.h).
var kernels = map[string]map[string]string{
	"5.15 to 6.12": kernel("212992", "4096 131072 6291456"),
	"6.18":         kernel("4194304", "4096 131072 33554432"),
}

func kernel(largest, tcpRmem string) map[string]string {
	return map[string]string{
		"sysctl/net.core.netdev_max_backlog": "1000",
		"sysctl/net.core.rmem_default":       "212992",
		"sysctl/net.core.rmem_max":           largest,
		"sysctl/net.core.somaxconn":          "4096",
		"sysctl/net.core.wmem_default":       "212992",
		"sysctl/net.core.wmem_max":           largest,
		"sysctl/net.ipv4.tcp_mem":            "188217 250956 376434",
		"sysctl/net.ipv4.tcp_rmem":           tcpRmem,
		"sysctl/net.ipv4.tcp_wmem":           "4096 16384 4194304",
		"module/nfs/max_session_slots":       "64",
		"module/nfs/max_session_cb_slots":    "16",
	}
}

// No shipped profile lowers a default of a kernel.
func TestShippedProfilesNeverLowerAKernelsDefault(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../config/profiles/*/profile.yaml", "../../config/samples/storageclientprofile_*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: got %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	compared := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		check.NoError(t, err)
		var p v1alpha1.StorageClientProfile
		if err := yaml.UnmarshalStrict(content, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, setting := range Settings(&p) {
			for release, defaults := range kernels {
				if defaults[setting.Key] != "" {
					compared++
				}
				if lowers := catalogue.Lowers(setting.Key, defaults[setting.Key], setting.Value); lowers != "" {
					t.Errorf("%s: %s of kernel %s %s", file, setting.Key, release, lowers)
				}
			}
		}
	}
	if compared < 20 {
		t.Errorf("got only %d values compared", compared)
	}
}

// The advice of these two works without a warning.
func TestProfilesOfDisksAndSharesHaveNoWarnings(t *testing.T) {
	for _, name := range []string{"smb-shares", "xfs-many-small-files"} {
		content, err := os.ReadFile(filepath.Join("../../config/profiles", name, "profile.yaml"))
		check.NoError(t, err)
		var p v1alpha1.StorageClientProfile
		check.NoError(t, yaml.UnmarshalStrict(content, &p))
		for _, problem := range Validate(&p, catalogue.AllowList{}) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}
