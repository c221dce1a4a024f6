package integration

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/storageclient/operator/api/v1alpha1"
)

var _ = Describe("A shipped profile", func() {
	DescribeTable("is admitted, valid and honoured: config/",
		func(dir string) {
			Expect(tryProfiles(render(dir))).To(BeNumerically(">", 0), "no StorageClientProfile in config/%s", dir)
		},
		folders("profiles/*", "samples"),
	)

	DescribeTable("does not reboot without approval, and relaxes consistency only if claims request it: config/",
		func(dir string) {
			for _, object := range render(dir) {
				spec := profileFrom(object).Spec
				Expect(spec.Rollout.Reboot.Policy).To(Equal(v1alpha1.RebootOnApproval))
				for _, rule := range spec.Volumes {
					if s := rule.Selector.ClaimSelector; s != nil && len(s.MatchLabels) > 0 {
						continue
					}
					if modes := rule.Selector.AccessModes; len(modes) == 1 && modes[0] == string(corev1.ReadOnlyMany) {
						continue
					}
					for _, option := range rule.MountOptions {
						Expect(string(option)).NotTo(MatchRegexp(`^(nocto$|noac$|cache=(loose|ro|singleclient)$|ac[a-z]+=([1-9]\d{2,}|[7-9]\d|6[1-9])$)`), rule.Name)
					}
				}
			}
		},
		folders("profiles/*"),
	)
})

// folders returns the matching folders of config that have a kustomization.
func folders(patterns ...string) []TableEntry {
	var entries []TableEntry
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(configDir, pattern, "kustomization.yaml"))
		if err != nil || len(found) == 0 {
			panic("no kustomization in config/" + pattern)
		}
		for _, path := range found {
			dir := strings.TrimPrefix(filepath.Dir(path), configDir+"/")
			entries = append(entries, Entry(dir, dir))
		}
	}
	return entries
}

func profileFrom(object *unstructured.Unstructured) *v1alpha1.StorageClientProfile {
	GinkgoHelper()
	profile := &v1alpha1.StorageClientProfile{}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, profile)).To(Succeed(), object.GetName())
	return profile
}
