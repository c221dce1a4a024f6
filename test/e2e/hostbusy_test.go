//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/test/patience"
)

const (
	// packageManager is the unit that holds the lock of dpkg and APT in their way: by fcntl(2), and for writing.
	packageManager = "e2e-package-manager.service"
	packageLock    = "/var/lib/dpkg/lock-frontend"
	holdLock       = `
touch ` + packageLock + `
systemd-run --quiet --collect --unit=` + packageManager + ` python3 -c '
import fcntl, time
file = open("` + packageLock + `", "a")
fcntl.lockf(file, fcntl.LOCK_EX)
time.sleep(3600)'
until grep -q ":$(stat --format=%i ` + packageLock + `) " /proc/locks; do sleep 0.2; done`
)

// holdPackageLock starts an operation on a machine that must not be interrupted.
func holdPackageLock(ctx context.Context, m *cluster.Machine) {
	GinkgoHelper()
	_, err := m.Run(ctx, holdLock)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := m.Run(ctx, "systemctl stop "+packageManager+" || true")
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(patience.Of(time.Minute)))
}

// expectHostBusy waits until the node's agent withholds its permit, and reports the reason. The node must not reboot before the lock is
// released.
func expectHostBusy(ctx context.Context, m *cluster.Machine) {
	GinkgoHelper()
	boots := len(watched.boots(m.Name))
	busy := func(g Gomega) {
		scn := getSCN(ctx, g, m.Name)
		g.Expect(scn.Spec.RebootPermit).NotTo(BeNil())
		g.Expect(scn.Status.Reboot).To(And(HaveField("PermitID", scn.Spec.RebootPermit.ID), HaveField("Phase", v1alpha1.RebootWaiting)))
		g.Expect(scn.Status.Rollout).To(And(HaveField("Phase", v1alpha1.RolloutRebooting), HaveField("Reason", v1alpha1.RolloutReasonHostBusy)))
		g.Expect(scn.Status.Rollout.Message).To(ContainSubstring(packageLock + " is locked by python3 (process "))
		g.Expect(watched.boots(m.Name)).To(HaveLen(boots), "boot IDs of %s", m.Name)
	}
	eventually(ctx, rebootAll, m.Name+" has its permit and waits for its host", busy)
	By(m.Name + ": " + getSCN(ctx, Default, m.Name).Status.Rollout.Message)
	Consistently(busy).WithContext(ctx).WithTimeout(25 * time.Second).WithPolling(5 * time.Second).Should(Succeed())
	permit := getSCN(ctx, Default, m.Name).Spec.RebootPermit.ID
	_, err := m.Run(ctx, "systemctl stop "+packageManager)
	Expect(err).NotTo(HaveOccurred())
	eventually(ctx, time.Minute, m.Name+" reboots with the withheld permit", func(g Gomega) {
		reboot := getSCN(ctx, g, m.Name).Status.Reboot
		g.Expect(reboot).To(And(HaveField("PermitID", permit), HaveField("Phase", v1alpha1.RebootStarted)))
	})
}
