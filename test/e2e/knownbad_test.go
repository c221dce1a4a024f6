//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/tuning/knownbad"
)

// known labels the spec.
const known = "known-bad"

// knownDir is a directory of the export, badMount and goodMount are mount points on the nodes.
const (
	knownDir  = cluster.ServerExport + "/known"
	badMount  = "/mnt/bad"
	goodMount = "/mnt/good"
)

// expectKnownBad reproduces known problems that the kernel of the nodes has: once with the cause, and once with the cure of the registry.
func expectKnownBad(ctx SpecContext) {
	first, second := nodes.Nodes[0], nodes.Nodes[1]
	run(ctx, nodes.Server, "mkdir -p "+knownDir+" && chmod 777 "+knownDir)
	for _, m := range []*cluster.Machine{first, second} {
		run(ctx, m, "mkdir -p "+badMount+" "+goodMount)
		DeferCleanup(func(ctx context.Context) {
			_, _ = m.Run(ctx, "umount -f "+badMount+" "+goodMount)
		})
	}
	By("retrans over SMB: " + failureOf("cifs-retrans-unknown"))
	serveSMB(ctx)
	mountSMB := "mount -t cifs -o username=share,password=share%s //" + cluster.ServerAddress + "/share " + badMount
	_, err := first.Run(ctx, fmt.Sprintf(mountSMB, ",retrans=1"))
	Expect(err).To(MatchError(ContainSubstring("Invalid argument")), "the kernel knows retrans")
	out, err := first.Run(ctx, fmt.Sprintf(mountSMB, ""))
	Expect(err).NotTo(HaveOccurred(), out)
	run(ctx, first, "umount "+badMount)

	By("a cached absence: " + failureOf("negative-lookups"))
	for point, options := range map[string]string{badMount: "vers=4.1,actimeo=60", goodMount: "vers=4.1,actimeo=60,lookupcache=positive,nosharecache"} {
		out, err := mountKnown(ctx, first, point, options)
		Expect(err).NotTo(HaveOccurred(), out)
	}
	out, err = mountKnown(ctx, second, goodMount, "vers=4.1")
	Expect(err).NotTo(HaveOccurred(), out)
	look := func(point string) string {
		GinkgoHelper()
		seen, err := first.Run(ctx, "test -e "+point+"/made-later && echo present || echo absent")
		Expect(err).NotTo(HaveOccurred())
		return strings.TrimSpace(seen)
	}
	Expect([]string{look(badMount), look(goodMount)}).To(Equal([]string{"absent", "absent"}))
	run(ctx, second, "echo 1 >"+goodMount+"/made-later")
	Expect(look(badMount)).To(Equal("absent"), "the client has cached the absence of the name for up to a minute")
	Expect(look(goodMount)).To(Equal("present"), "lookupcache=positive caches no absence")
}

func mountKnown(ctx context.Context, m *cluster.Machine, point, options string) (string, error) {
	return m.Run(ctx, fmt.Sprintf("mount -t nfs -o %s %s:%s %s", options, cluster.ServerAddress, knownDir, point))
}

// failureOf returns the description of an entry of the registry.
func failureOf(id string) string {
	GinkgoHelper()
	for _, e := range knownbad.Entries() {
		if e.ID == id {
			return e.Fails
		}
	}
	Fail("the registry has no entry " + id)
	return ""
}
