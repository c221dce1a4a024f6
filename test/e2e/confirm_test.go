//go:build e2e

package e2e

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const (
	// confirmed labels the spec, and is the name of its profile.
	confirmed = "confirm"
	// reservedPorts reserves all local ports. New connections to the API server and to storage then fail, while open and incoming
	// connections work. The catalogue does not contain it.
	reservedPorts = "net.ipv4.ip_local_reserved_ports"
	allPorts      = "1-65535"
	// revertedWithin is the agent's deadline, plus the time to read the value from the machine.
	revertedWithin = 55 * time.Second
)

// portsOf reads the effective value from the machine itself.
func portsOf(ctx context.Context, g Gomega, m *cluster.Machine) string {
	GinkgoHelper()
	out, err := m.Run(ctx, "cat /proc/sys/net/ipv4/ip_local_reserved_ports")
	g.Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(out)
}

// expectConfirmed declares a value that blocks new connections from nodes. The first node loses power while the value is effective. After
// its boot it tries once more and then reverts the value. No other node ever has the value.
func expectConfirmed(ctx SpecContext) {
	installOperator(ctx)
	for _, workload := range [][]string{
		{"deployment", "-n", v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment}, {"daemonset", "-n", v1alpha1.AgentNamespace, v1alpha1.AgentDaemonSet},
	} {
		mustKubectl(ctx, append(append([]string{"patch"}, workload...), "--type=json",
			`-p=[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--allow-parameter=sysctl/net\\.ipv4\\.ip_local_reserved_ports"}]`)...)
	}
	waitForManagers(ctx, 2)
	before := allFacts(ctx)
	eventually(ctx, podStart, "no manager without the flag rejects the profile", func(g Gomega) {
		_, err := kubectl(ctx, "create", "-f", "testdata/confirm.yaml")
		g.Expect(err).NotTo(HaveOccurred())
	})

	var m *cluster.Machine
	isTried := func(g Gomega) {
		m = nil
		for _, member := range nodes.Members() {
			if portsOf(ctx, g, member) == allPorts {
				m = member
			}
		}
		g.Expect(m).NotTo(BeNil())
	}
	eventually(ctx, podStart, "the value is effective on one node", isTried)
	first := m
	By(m.Name + " has the value: cutting its power")
	Expect(nodes.PowerCycle(m)).To(Succeed())
	eventually(ctx, podStart, m.Name+" is back with the old value", func(g Gomega) { g.Expect(portsOf(ctx, g, m)).To(BeEmpty()) })
	expectNoFileHolds(ctx, m)

	eventually(ctx, podStart, "the node tries once more", isTried)
	Expect(m).To(BeIdenticalTo(first), "node that tried the value")
	tried := time.Now()
	By("the node cannot reach the API server: " + m.Name)
	_, err := m.Run(ctx, "timeout 3 bash -c 'exec 3<>/dev/tcp/$(ip route show default | cut -d\" \" -f3)/22'")
	Expect(err).To(HaveOccurred(), "error of a new connection")
	eventually(ctx, revertedWithin, "the node has restored the old value", func(g Gomega) { g.Expect(portsOf(ctx, g, m)).To(BeEmpty()) })
	By("after " + time.Since(tried).Round(time.Second).String())

	eventually(ctx, podStart, "the setting has failed, with a reason", func(g Gomega) {
		setting := settingOf(getSCN(ctx, g, m.Name), "sysctl/"+reservedPorts)
		g.Expect(setting.State).To(Equal(v1alpha1.SettingFailed), setting.Message)
		g.Expect(setting.Message).To(ContainSubstring("broke new connections, reverted: "))
		g.Expect(setting.Message).To(ContainSubstring("they work again without it"))
	})
	By(settingOf(getSCN(ctx, Default, m.Name), "sysctl/"+reservedPorts).Message)
	expectNoFileHolds(ctx, m)
	nobodyFollows := func(g Gomega) {
		for _, member := range nodes.Members() {
			g.Expect(portsOf(ctx, g, member)).To(BeEmpty(), member.Name)
			if member == first {
				continue
			}
			// A node without any settings has none.
			var scn v1alpha1.StorageClientNode
			g.Expect(client.IgnoreNotFound(api.Get(ctx, client.ObjectKey{Name: member.Name}, &scn))).To(Succeed())
			g.Expect(scn.Spec.Settings).NotTo(ContainElement(HaveField("Key", "sysctl/"+reservedPorts)), member.Name)
		}
	}
	Consistently(nobodyFollows).WithContext(ctx).WithTimeout(90 * time.Second).WithPolling(5 * time.Second).Should(Succeed())

	mustKubectl(ctx, "delete", "storageclientprofile", confirmed, "--wait=false")
	waitUntilGone(ctx, podStart, confirmed)
	for _, member := range nodes.Members() {
		now := factsOf(ctx, member)
		for _, section := range []string{"sysctls", "etc", "ours"} {
			Expect(now[section]).To(Equal(before[member.Name][section]), "%s of %s", section, member.Name)
		}
	}
}

// expectNoFileHolds checks that no file would set the value at the next boot.
func expectNoFileHolds(ctx context.Context, m *cluster.Machine) {
	GinkgoHelper()
	out, err := m.Run(ctx, "grep -rl ip_local_reserved_ports /etc/sysctl.d || true")
	Expect(err).NotTo(HaveOccurred())
	Expect(out).To(BeEmpty())
}
