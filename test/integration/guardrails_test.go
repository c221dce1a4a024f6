package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const (
	guardrails    = "storage-client-guardrails"
	guardrailsDir = "components/guardrails"
	whoMayEdit    = "ask an administrator who can edit ConfigMap storage-client-system/storage-client-guardrails"
)

// attack is a profile that exceeds one limit of testdata/ceilings.yaml. Its twin differs only in the value.
type attack struct{ spec, twin, field, value, ceiling string }

// The message of each attack names field, value and limit.
var attacks = map[string]attack{
	"a sysctl that is not listed":                          {sysctl("kernel.panic", "10"), sysctl("vm.dirty_ratio", "10"), "spec.node.sysctls[kernel.panic]", "10", "node.sysctls.allowed is net.core.*, net.ipv4.tcp_rmem"},
	"a sysctl that only has the prefix of a listed sysctl": {sysctl("vm.dirty_ratio_x", "10"), sysctl("vm.dirty_ratio", "10"), "spec.node.sysctls[vm.dirty_ratio_x]", "10", "node.sysctls.allowed is"},
	"a sysctl above its maximum":                           {sysctl("net.core.rmem_max", "16777217"), sysctl("net.core.rmem_max", "16777216"), "spec.node.sysctls[net.core.rmem_max]", "16777217", "node.sysctls.maximum has net.core.rmem_max: 16777216"},
	"a sysctl above its maximum as text only":              {sysctl("net.core.rmem_max", "100000000"), sysctl("net.core.rmem_max", "9999999"), "spec.node.sysctls[net.core.rmem_max]", "100000000", "node.sysctls.maximum has"},
	"a first number above its maximum":                     {sysctl("net.ipv4.tcp_rmem", "65537 70000 16777216"), sysctl("net.ipv4.tcp_rmem", "65536 70000 16777216"), "spec.node.sysctls[net.ipv4.tcp_rmem]", "65537 70000 16777216", "node.sysctls.maximum has net.ipv4.tcp_rmem: 65536 - 16777216"},
	"a third number above its maximum":                     {sysctl("net.ipv4.tcp_rmem", "4096 70000 16777217"), sysctl("net.ipv4.tcp_rmem", "4096 16777217 16777216"), "spec.node.sysctls[net.ipv4.tcp_rmem]", "4096 70000 16777217", "node.sysctls.maximum has net.ipv4.tcp_rmem"},
	"more numbers than the limit has":                      {sysctl("net.core.rmem_max", "1 1"), sysctl("net.core.rmem_max", "1"), "spec.node.sysctls[net.core.rmem_max]", "1 1", "node.sysctls.maximum has"},
	"a sysctl in hexadecimal":                              {sysctl("net.core.rmem_max", "0x7fffffff"), sysctl("net.core.rmem_max", "4096"), "spec.node.sysctls[net.core.rmem_max]", "0x7fffffff", "node.sysctls.maximum has"},
	"a sysctl in octal":                                    {sysctl("net.core.rmem_max", "0100"), sysctl("net.core.rmem_max", "100"), "spec.node.sysctls[net.core.rmem_max]", "0100", "node.sysctls.maximum has"},
	"a sysctl beyond 64 bits":                              {sysctl("net.core.rmem_max", "99999999999999999999"), sysctl("net.core.rmem_max", "999999"), "spec.node.sysctls[net.core.rmem_max]", "99999999999999999999", "node.sysctls.maximum has"},
	"a sysctl with a blank around it":                      {sysctl("net.core.rmem_max", " 16777217"), sysctl("net.core.rmem_max", "16777215"), "spec.node.sysctls[net.core.rmem_max]", " 16777217", "node.sysctls.maximum has"},
	"a sysctl below its minimum":                           {sysctl("vm.dirty_writeback_centisecs", "0"), sysctl("vm.dirty_writeback_centisecs", "100"), "spec.node.sysctls[vm.dirty_writeback_centisecs]", "0", "node.sysctls.minimum has vm.dirty_writeback_centisecs: 100"},
	"a second number below its minimum":                    {sysctl("net.ipv4.tcp_rmem", "4096 4095 65536"), sysctl("net.ipv4.tcp_rmem", "4096 4096 65536"), "spec.node.sysctls[net.ipv4.tcp_rmem]", "4096 4095 65536", "node.sysctls.minimum has net.ipv4.tcp_rmem: 4096 4096 65536"},

	"a sysctl at least, that is not listed":       {atLeast("kernel.pid_max", "10"), atLeast("vm.dirty_ratio", "10"), "spec.node.sysctlsAtLeast[kernel.pid_max]", "10", "node.sysctls.allowed is net.core.*, net.ipv4.tcp_rmem"},
	"a sysctl at least, above its maximum":        {atLeast("net.core.rmem_max", "16777217"), atLeast("net.core.rmem_max", "16777216"), "spec.node.sysctlsAtLeast[net.core.rmem_max]", "16777217", "node.sysctls.maximum has net.core.rmem_max: 16777216"},
	"a third number at least, above its maximum":  {atLeast("net.ipv4.tcp_rmem", "4096 70000 16777217"), atLeast("net.ipv4.tcp_rmem", "4096 70000 16777216"), "spec.node.sysctlsAtLeast[net.ipv4.tcp_rmem]", "4096 70000 16777217", "node.sysctls.maximum has net.ipv4.tcp_rmem"},
	"a second number at least, below its minimum": {atLeast("net.ipv4.tcp_rmem", "4096 4095 65536"), atLeast("net.ipv4.tcp_rmem", "4096 4096 65536"), "spec.node.sysctlsAtLeast[net.ipv4.tcp_rmem]", "4096 4095 65536", "node.sysctls.minimum has net.ipv4.tcp_rmem: 4096 4096 65536"},

	"a module that is not listed":                 {module("nvme", "max_session_slots", "64"), module("nfs", "max_session_slots", "64"), "spec.node.kernelModules[0].parameters[max_session_slots]", "64", "node.kernelModules.allowed is nfs/max_session_slots, sunrpc/*"},
	"a parameter that is not listed":              {module("nfs", "callback_tcpport", "64"), module("sunrpc", "pool_mode", "64"), "spec.node.kernelModules[0].parameters[callback_tcpport]", "64", "node.kernelModules.allowed is"},
	"a second module above its maximum":           {with(`node: {kernelModules: [{name: sunrpc, parameters: {a: "1"}}, {name: nfs, parameters: {max_session_slots: "181"}}]}`), with(`node: {kernelModules: [{name: sunrpc, parameters: {a: "1"}}, {name: nfs, parameters: {max_session_slots: "180"}}]}`), "spec.node.kernelModules[1].parameters[max_session_slots]", "181", "node.kernelModules.maximum has nfs/max_session_slots: 180"},
	"a parameter above its maximum, with dashes":  {module("nfs", "max-session-slots", "181"), module("nfs", "max-session-slots", "180"), "spec.node.kernelModules[0].parameters[max-session-slots]", "181", "node.kernelModules.maximum has"},
	"a parameter under a maximum, in hexadecimal": {module("nfs", "max_session_slots", "0x400"), module("nfs", "max_session_slots", "40"), "spec.node.kernelModules[0].parameters[max_session_slots]", "0x400", "node.kernelModules.maximum has"},
	"a parameter below its minimum":               {module("nfs", "max_session_slots", "15"), module("nfs", "max_session_slots", "16"), "spec.node.kernelModules[0].parameters[max_session_slots]", "15", "node.kernelModules.minimum has nfs/max-session-slots: 16"},

	"a kernel argument that is not listed":              {arguments("rd.break", "init=/bin/sh"), arguments("rd.break", "rd.init=/bin/sh"), "spec.node.kernelArguments[1]", "init=/bin/sh", "node.kernelArguments.allowed is ihash_entries, dhash_entries, rd.*"},
	"a kernel argument whose value is a name of a list": {arguments("init=ihash_entries"), arguments("dhash_entries=1"), "spec.node.kernelArguments[0]", "init=ihash_entries", "node.kernelArguments.allowed is"},
	"a kernel argument above its maximum":               {arguments("ihash_entries=16777217"), arguments("ihash_entries=16777216"), "spec.node.kernelArguments[0]", "ihash_entries=16777217", "node.kernelArguments.maximum has ihash_entries: 16777216"},
	"a kernel argument given twice":                     {arguments("ihash_entries=1048576", "ihash_entries=33554432"), arguments("ihash_entries=1048576", "ihash_entries=2097152"), "spec.node.kernelArguments[1]", "ihash_entries=33554432", "node.kernelArguments.maximum has"},
	"a kernel argument with a suffix":                   {arguments("ihash_entries=16M"), arguments("ihash_entries=16000000"), "spec.node.kernelArguments[0]", "ihash_entries=16M", "node.kernelArguments.maximum has"},
	"a kernel argument with dashes":                     {arguments("ihash-entries=16777217"), arguments("ihash-entries=16777216"), "spec.node.kernelArguments[0]", "ihash-entries=16777217", "node.kernelArguments.maximum has"},
	"a kernel argument below its minimum":               {arguments("ihash_entries=1024"), arguments("ihash_entries=1048576"), "spec.node.kernelArguments[0]", "ihash_entries=1024", "node.kernelArguments.minimum has ihash_entries: 1048576"},
	"a kernel argument without its value":               {arguments("ihash_entries"), arguments("dhash_entries"), "spec.node.kernelArguments[0]", "ihash_entries", "node.kernelArguments.maximum has"},

	"a slot limit from nconnect":                            {sysctl("sunrpc.tcp_max_slot_table_entries", "FromNconnect"), sysctl("sunrpc.tcp_max_slot_table_entries", "128"), "spec.node.sysctls[sunrpc.tcp_max_slot_table_entries]", "FromNconnect", "node.sunrpc.maximum is 256"},
	"a slot table as a sysctl":                              {sysctl("sunrpc.tcp_max_slot_table_entries", "257"), sysctl("sunrpc.tcp_max_slot_table_entries", "256"), "spec.node.sysctls[sunrpc.tcp_max_slot_table_entries]", "257", "node.sunrpc.maximum is 256"},
	"a slot table as a module parameter":                    {module("sunrpc", "udp_slot_table_entries", "257"), module("sunrpc", "udp_slot_table_entries", "256"), "spec.node.kernelModules[0].parameters[udp_slot_table_entries]", "257", "node.sunrpc.maximum is 256"},
	"a slot table as a parameter, in hexadecimal":           {module("sunrpc", "tcp-max-slot-table-entries", "0xffff"), module("sunrpc", "tcp-max-slot-table-entries", "255"), "spec.node.kernelModules[0].parameters[tcp-max-slot-table-entries]", "0xffff", "node.sunrpc.maximum is 256"},
	"a read-ahead of a node that is too large":              {with(`node: {readAhead: [{fsTypes: [nfs], sizeKiB: 128}, {fsTypes: [ext4], sizeKiB: 1048576}]}`), with(`node: {readAhead: [{fsTypes: [nfs], sizeKiB: 128}, {fsTypes: [ext4], sizeKiB: 16384}]}`), "spec.node.readAhead[1].sizeKiB", "1048576", "readAheadKiB.maximum is 16384"},
	"a read-ahead of volumes that is too large":             {rule(`readAheadKiB: 16385`), rule(`readAheadKiB: 16384`), "spec.volumes[1].readAheadKiB", "16385", "readAheadKiB.maximum is 16384"},
	"a tuned profile that is not listed":                    {with(`node: {tuned: {profile: powersave}}`), with(`node: {tuned: {profile: network-latency}}`), "spec.node.tuned.profile", "powersave", "node.tuned.allowed is latency-performance, network-*"},
	"a server that is not listed":                           {nfsDefaults(`server: filer2, options: [nconnect=4]`), nfsDefaults(`server: FILER1, options: [nconnect=4]`), "spec.node.nfsMountDefaults[1].server", "filer2", "node.nfsMountDefaults.servers.allowed is Filer1, nas-*"},
	"every server, although some are listed":                {nfsDefaults(`options: [nconnect=4]`), nfsDefaults(`server: nas-7, options: [nconnect=4]`), "spec.node.nfsMountDefaults[1].server", "empty, every server", "node.nfsMountDefaults.servers.allowed is"},
	"an option for the host that is not listed":             {nfsDefaults(`server: nas-7, options: [nconnect=4, noresvport]`), nfsDefaults(`server: nas-7, options: [nconnect=4, actimeo=4]`), "spec.node.nfsMountDefaults[1].options[1]", "noresvport", "node.nfsMountDefaults.options.allowed is nconnect, actimeo"},
	"an option for the host that is forbidden":              {nfsDefaults(`server: nas-7, options: [nocto]`), nfsDefaults(`server: nas-7, options: [nconnect=2]`), "spec.node.nfsMountDefaults[1].options[0]", "nocto", "mountOptions.forbidden has nocto"},
	"an option for the host above its maximum":              {nfsDefaults(`server: nas-7, options: [nconnect=16]`), nfsDefaults(`server: nas-7, options: [nconnect=8]`), "spec.node.nfsMountDefaults[1].options[0]", "nconnect=16", "mountOptions.maximum has nconnect: 8"},
	"a mount point that is not listed":                      {filesystem(`mountPoint: /var/lib/kubelet, fsType: xfs, mountOptions: [noatime]`), filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [noatime]`), "spec.node.filesystems[1].mountPoint", "/var/lib/kubelet", "node.filesystems.mountPoints.allowed is /mnt/disks/*, /scratch"},
	"a glob that reaches beyond the listed ones":            {filesystem(`mountPoint: /mnt/*, fsType: xfs, mountOptions: [noatime]`), filesystem(`mountPoint: /mnt/disks/*, fsType: xfs, mountOptions: [noatime]`), "spec.node.filesystems[1].mountPoint", "/mnt/*", "node.filesystems.mountPoints.allowed is"},
	"a glob of a mount point that is listed without a glob": {filesystem(`mountPoint: /scratch*, fsType: xfs, mountOptions: [noatime]`), filesystem(`mountPoint: /mnt/disks/b*, fsType: xfs, mountOptions: [noatime]`), "spec.node.filesystems[1].mountPoint", "/scratch*", "node.filesystems.mountPoints.allowed is"},
	"a file system type that is not listed":                 {filesystem(`mountPoint: /mnt/disks/a, fsType: ext4, mountOptions: [noatime]`), filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [noatime]`), "spec.node.filesystems[1].fsType", "ext4", "node.filesystems.fsTypes.allowed is xfs"},
	"every file system type, although one is listed":        {filesystem(`mountPoint: /mnt/disks/a, mountOptions: [noatime]`), filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [noatime]`), "spec.node.filesystems[1].fsType", "empty, every type", "node.filesystems.fsTypes.allowed is xfs"},
	"an option of a file system, not listed":                {filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [noatime, logbsize=128k]`), filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [noatime, logbsize=256k]`), "spec.node.filesystems[1].mountOptions[1]", "logbsize=128k", "node.filesystems.mountOptions.allowed is noatime, logbsize=256k"},
	"an option of a file system, forbidden":                 {filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [nocto]`), filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [noatime]`), "spec.node.filesystems[1].mountOptions[0]", "nocto", "mountOptions.forbidden has nocto"},
	"an option of a file system above its maximum":          {filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [actimeo=61]`), filesystem(`mountPoint: /mnt/disks/a, fsType: xfs, mountOptions: [actimeo=60]`), "spec.node.filesystems[1].mountOptions[0]", "actimeo=61", "mountOptions.maximum has actimeo: 60"},

	"volumes of every namespace":                {volumeRule(`drivers: [nfs.csi.k8s.io], storageClassNames: [anf]`), volumeRule(`drivers: [nfs.csi.k8s.io], storageClassNames: [anf], claimNamespaces: [team-a]`), "spec.volumes[1].selector.claimNamespaces", "empty", "volumes.claimNamespaces.allowed is eda, team-*"},
	"volumes of a namespace that is not listed": {volumeRule(`drivers: [nfs.csi.k8s.io], storageClassNames: [anf], claimNamespaces: [eda, kube-system]`), volumeRule(`drivers: [nfs.csi.k8s.io], storageClassNames: [anf], claimNamespaces: [eda, team-b]`), "spec.volumes[1].selector.claimNamespaces[1]", "kube-system", "volumes.claimNamespaces.allowed is"},
	"volumes of every driver":                   {volumeRule(`claimNamespaces: [eda], storageClassNames: [anf]`), volumeRule(`drivers: [nfs.csi.k8s.io], storageClassNames: [anf], claimNamespaces: [eda]`), "spec.volumes[1].selector.drivers", "empty", "volumes.drivers.allowed is nfs.csi.k8s.io, csi.trident.netapp.io"},
	"volumes of a driver that is not listed":    {volumeRule(`drivers: [smb.csi.k8s.io], claimNamespaces: [eda], storageClassNames: [anf]`), volumeRule(`drivers: [csi.trident.netapp.io], storageClassNames: [anf], claimNamespaces: [eda]`), "spec.volumes[1].selector.drivers[0]", "smb.csi.k8s.io", "volumes.drivers.allowed is"},
	"volumes of every class":                    {volumeRule(`drivers: [nfs.csi.k8s.io], claimNamespaces: [eda]`), volumeRule(`drivers: [nfs.csi.k8s.io], storageClassNames: [anf], claimNamespaces: [eda]`), "spec.volumes[1].selector.storageClassNames", "empty", "volumes.storageClassNames.allowed is anf, fast-*"},
	"volumes of a class that is not listed":     {volumeRule(`drivers: [nfs.csi.k8s.io], claimNamespaces: [eda], storageClassNames: [fast-1, slow]`), volumeRule(`drivers: [nfs.csi.k8s.io], claimNamespaces: [eda], storageClassNames: [fast-1, anf]`), "spec.volumes[1].selector.storageClassNames[1]", "slow", "volumes.storageClassNames.allowed is"},
	"an option of volumes that is not listed":   {rule(`mountOptions: [hard, ro]`), rule(`mountOptions: [hard, acdirmax=4]`), "spec.volumes[1].mountOptions[1]", "ro", "volumes.mountOptions.allowed is nconnect, ac*, hard"},
	"an option of volumes that is forbidden":    {rule(`mountOptions: [hard, nocto]`), rule(`mountOptions: [hard, acregmax=4]`), "spec.volumes[1].mountOptions[1]", "nocto", "mountOptions.forbidden has nocto, soft*, vers=3, nfsvers=3"},
	"an option forbidden by its prefix":         {rule(`mountOptions: [softerr]`), rule(`mountOptions: [hard]`), "spec.volumes[1].mountOptions[0]", "softerr", "mountOptions.forbidden has nocto, soft*"},
	"an option forbidden with its value":        {rule(`mountOptions: [vers=3]`), rule(`mountOptions: [vers=3.1]`), "spec.volumes[1].mountOptions[0]", "vers=3", "mountOptions.forbidden has"},
	"an option of volumes above its maximum":    {rule(`mountOptions: [nconnect=9]`), rule(`mountOptions: [nconnect=8]`), "spec.volumes[1].mountOptions[0]", "nconnect=9", "mountOptions.maximum has nconnect: 8"},
	"an option in hexadecimal":                  {rule(`mountOptions: [nconnect=0x10]`), rule(`mountOptions: [nconnect=1]`), "spec.volumes[1].mountOptions[0]", "nconnect=0x10", "mountOptions.maximum has nconnect: 8"},
	"one timer of actimeo above its maximum":    {rule(`mountOptions: [acdirmax=600]`), rule(`mountOptions: [acdirmax=60]`), "spec.volumes[1].mountOptions[0]", "acdirmax=600", "mountOptions.maximum has acdirmax: 60"},
	"UseProfile":                                {rule(`onConflict: UseProfile`), rule(`onConflict: UseProfileOverClass`), "spec.volumes[1].onConflict", "UseProfile", "volumes.onConflict.allowed is KeepVolume, UseProfileOverClass"},
	"Patch":                                     {rule(`gitOpsOwned: Patch`), rule(`gitOpsOwned: ReportOnly`), "spec.volumes[1].gitOpsOwned", "Patch", "volumes.gitOpsOwned.allowed is ReportOnly"},

	"too many unavailable nodes, as a percentage":       {rollout(`maxUnavailable: 11%`), rollout(`maxUnavailable: 10%`), "spec.rollout.maxUnavailable", "11%", "rollout.maxUnavailable.maximum is 10%, 2"},
	"too many unavailable nodes, as a number":           {rollout(`maxUnavailable: 3`), rollout(`maxUnavailable: 2`), "spec.rollout.maxUnavailable", "3", "rollout.maxUnavailable.maximum is 10%, 2"},
	"live changes on all nodes":                         {rollout(`maxConcurrentLive: 100%`), rollout(`maxConcurrentLive: 20%`), "spec.rollout.maxConcurrentLive", "100%", "rollout.maxConcurrentLive.maximum is 20%"},
	"live changes as a number, with a limit in percent": {rollout(`maxConcurrentLive: 2`), rollout(`maxConcurrentLive: 1`), "spec.rollout.maxConcurrentLive", "2", "rollout.maxConcurrentLive.maximum is 20%: give a percentage, or 1"},
	"a step of too many volumes":                        {rollout(`volumes: {maxPerStep: 51}`), rollout(`volumes: {maxPerStep: 50}`), "spec.rollout.volumes.maxPerStep", "51", "rollout.volumes.maxPerStep.maximum is 50, 20%"},
	"a step of too large a share":                       {rollout(`volumes: {maxPerStep: 21%}`), rollout(`volumes: {maxPerStep: 20%}`), "spec.rollout.volumes.maxPerStep", "21%", "rollout.volumes.maxPerStep.maximum is 50, 20%"},
	"a canary of too many nodes":                        {rollout(`canary: {nodes: 4}`), rollout(`canary: {nodes: 3}`), "spec.rollout.canary.nodes", "4", "rollout.canary.nodes.maximum is 3"},
	"a canary by selector":                              {rollout(`canary: {nodeSelector: {}}`), rollout(`canary: {}`), "spec.rollout.canary.nodeSelector", "given", "rollout.canary.nodes.maximum is 3: give rollout.canary.nodes"},
	"a short soak of the canary":                        {rollout(`canary: {soakSeconds: 59}`), rollout(`canary: {soakSeconds: 60}`), "spec.rollout.canary.soakSeconds", "59", "rollout.canary.soakSeconds.minimum is 60"},
	"no soak of volumes":                                {rollout(`volumes: {soakSeconds: 0}`), rollout(`volumes: {soakSeconds: 300}`), "spec.rollout.volumes.soakSeconds", "0", "rollout.volumes.soakSeconds.minimum is 300"},
	"a threshold of many failures":                      {rollout(`failureThreshold: 3`), rollout(`failureThreshold: 2`), "spec.rollout.failureThreshold", "3", "rollout.failureThreshold.maximum is 2"},
	"deletion of emptyDir data":                         {rollout(`drain: {deleteEmptyDirData: true}`), rollout(`drain: {deleteEmptyDirData: false}`), "spec.rollout.drain.deleteEmptyDirData", "true", "rollout.drain.deleteEmptyDirData.allowed is false"},
	"control planes":                                    {with(`includeControlPlane: true`), with(`includeControlPlane: false`), "spec.includeControlPlane", "true", "includeControlPlane.allowed is false"},
	"reboots without approval":                          {rollout(`reboot: {policy: Automatic}`), rollout(`reboot: {policy: Never}`), "spec.rollout.reboot.policy", "Automatic", "rollout.reboot.policy.allowed is OnApproval, Never"},
	"reboots to restore":                                {rollout(`reboot: {restoreReboot: true}`), rollout(`reboot: {restoreReboot: false}`), "spec.rollout.reboot.restoreReboot", "true", "rollout.reboot.restoreReboot.allowed is false"},
}

// ceilingOf maps every field of spec to its limits, or to the reason for having none. A missing field fails a spec, so its author must
// decide.
var ceilingOf = map[string]string{
	"allNodes":            "none: the right to write profiles includes all nodes",
	"deletionPolicy":      "none: no value applies new settings",
	"includeControlPlane": "includeControlPlane",
	"mode":                "none: Plan makes no changes",
	"nodeSelector":        "none: the right to write profiles includes all nodes",
	"onUnsupported":       "none: it affects only a condition",
	"paused":              "none: a pause starts no work",
	"priority":            "none: it orders profiles that are all within the limits",

	"node.filesystems[].fsType":       "node.filesystems.fsTypes",
	"node.filesystems[].mountOptions": "node.filesystems.mountOptions",
	"node.filesystems[].mountPoint":   "node.filesystems.mountPoints",
	"node.kernelArguments":            "node.kernelArguments",
	"node.kernelModules[].name":       "node.kernelModules",
	"node.kernelModules[].parameters": "node.kernelModules",
	"node.nfsMountDefaults[].options": "node.nfsMountDefaults.options",
	"node.nfsMountDefaults[].server":  "node.nfsMountDefaults.servers",
	"node.readAhead[].fsTypes":        "none: the size is bounded",
	"node.readAhead[].sizeKiB":        "readAheadKiB",
	"node.nfs4UniqueID":               "none: only FromNode is allowed, which is different on each node",
	"node.sysctls":                    "node.sysctls",
	"node.sysctlsAtLeast":             "node.sysctls",
	"node.tuned.profile":              "node.tuned",

	"rollout.canary.nodeSelector":                   "rollout.canary.nodes",
	"rollout.canary.nodes":                          "rollout.canary.nodes",
	"rollout.canary.soakSeconds":                    "rollout.canary.soakSeconds",
	"rollout.drain.deleteEmptyDirData":              "rollout.drain.deleteEmptyDirData",
	"rollout.drain.excludeFromLoadBalancersSeconds": "none: an hour at most, within the budget",
	"rollout.drain.ignoreDaemonSetMounts":           "none: no workload mount is ignored",
	"rollout.drain.lookAhead":                       "none: PodDisruptionBudgets apply either way",
	"rollout.drain.timeoutSeconds":                  "none: the budget counts the node during that time",
	"rollout.drain.waitForPodSelector":              "none: it only adds pods to wait for",
	"rollout.failureThreshold":                      "rollout.failureThreshold",
	"rollout.maxConcurrentLive":                     "rollout.maxConcurrentLive",
	"rollout.maxUnavailable":                        "rollout.maxUnavailable",
	"rollout.reboot.approvedPlan":                   "none: an approval; rollout.reboot.policy determines whether one is required",
	"rollout.reboot.policy":                         "rollout.reboot.policy",
	"rollout.reboot.restoreReboot":                  "rollout.reboot.restoreReboot",
	"rollout.reboot.timeoutSeconds":                 "none: the budget counts the node during that time",
	"rollout.settleSeconds":                         "none: the node is read back either way",
	"rollout.volumes.maxPerStep":                    "rollout.volumes.maxPerStep",
	"rollout.volumes.onNoEvidence":                  "none: without a mount, volumes soak and change by maxPerStep",
	"rollout.volumes.probe":                         "none: without a probe the other volumes wait for a mount",
	"rollout.volumes.soakSeconds":                   "rollout.volumes.soakSeconds",
	"rollout.windows[].durationSeconds":             "none: without a window any time is allowed",
	"rollout.windows[].schedule":                    "none: without a window any time is allowed",
	"rollout.windows[].timeZone":                    "none: without a window any time is allowed",

	"volumes[].gitOpsOwned":                "volumes.gitOpsOwned",
	"volumes[].mountOptions":               "volumes.mountOptions",
	"volumes[].name":                       "none: a name",
	"volumes[].mountOptionsFrom":           "none: administrators write StorageClasses; volumes.storageClassNames and volumes.onConflict limit the effect",
	"volumes[].onConflict":                 "volumes.onConflict",
	"volumes[].readAheadKiB":               "readAheadKiB",
	"volumes[].selector.accessModes":       "none: narrows the rule",
	"volumes[].selector.claimNamespaces":   "volumes.claimNamespaces",
	"volumes[].selector.claimSelector":     "none: narrows the rule",
	"volumes[].selector.drivers":           "volumes.drivers",
	"volumes[].selector.fsTypes":           "none: narrows the rule",
	"volumes[].selector.protocols":         "none: narrows the rule",
	"volumes[].selector.servers":           "none: narrows the rule",
	"volumes[].selector.storageClassNames": "volumes.storageClassNames",
	"volumes[].selector.volumeSelector":    "none: narrows the rule",
}

var _ = Describe("The administrator's guardrails", Ordered, ContinueOnFailure, func() {
	BeforeAll(func() {
		installGuardrails(guardrails)
		DeferCleanup(removeGuardrails)
	})

	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		It("reject "+name+", and admit its valid counterpart", func() {
			a := attacks[name]
			setCeilings(testCeilings())
			expectBeyond(a.spec, fmt.Sprintf("%s is %s, but %s", a.field, a.value, a.ceiling))
			expectWithin(a.twin)
		})
	}

	It("are attacked at each limit, at least sixty times", func() {
		Expect(len(attacks)).To(BeNumerically(">=", 60))
		for key := range testCeilings() {
			Expect(slices.ContainsFunc(slices.Collect(maps.Values(attacks)), func(a attack) bool { return strings.HasPrefix(a.ceiling, key+" ") })).
				To(BeTrue(), "no attack on %s", key)
		}
	})

	It("admit everything if the ConfigMap contains no limit", func() {
		setCeilings(nil)
		expectWithin(everyField())
	})

	It("reject every change of spec while there is no ConfigMap", func() {
		Eventually(func() error { return createShape("StorageClientProfile", with(``)) }).Should(MatchError(ContainSubstring("no params found")))
	})

	It("treat a rule that follows a class as a rule that overrides it", func() {
		setCeilings(map[string]string{"volumes.onConflict.allowed": "KeepVolume"})
		expectBeyond(rule(`mountOptionsFrom: StorageClass`), "spec.volumes[1].onConflict is UseProfileOverClass by default, but volumes.onConflict.allowed is KeepVolume")
		expectWithin(rule(`mountOptionsFrom: StorageClass, onConflict: KeepVolume`))
	})

	DescribeTable("compare an absent field by its default in the code:",
		func(key, within, beyond, finding string) {
			setCeilings(map[string]string{key: beyond})
			expectBeyond(rule(``), finding)
			setCeilings(map[string]string{key: within})
			expectWithin(rule(``))
		},
		defaultEntries(),
	)

	It("count FromNconnect as the largest number that the code derives", func() {
		most := 0
		for nconnect := range 64 {
			most = max(most, nodesettings.SlotsFor(nconnect))
		}
		fromNconnect := sysctl("sunrpc.tcp_max_slot_table_entries", "FromNconnect")
		setCeilings(map[string]string{"node.sunrpc.maximum": strconv.Itoa(most - 1)})
		expectBeyond(fromNconnect, "spec.node.sysctls[sunrpc.tcp_max_slot_table_entries] is FromNconnect")
		setCeilings(map[string]string{"node.sunrpc.maximum": strconv.Itoa(most)})
		expectWithin(fromNconnect)
	})

	DescribeTable("compare shares",
		func(ceiling, value, finding string) {
			setCeilings(map[string]string{"rollout.maxUnavailable.maximum": ceiling})
			share := rollout("maxUnavailable: " + value)
			if finding == "" {
				expectWithin(share)
				return
			}
			expectBeyond(share, "spec.rollout.maxUnavailable is "+value+", but rollout.maxUnavailable.maximum is "+finding)
		},
		Entry("a percentage with a percentage", "10%", "9%", ""),
		Entry("a larger percentage with a percentage", "9%", "10%", "9%"),
		Entry("a number with a number", "10", "9", ""),
		Entry("a larger number with a number", "9", "10", "9"),
		Entry("no percentage with a number", "50", "1%", "50: give a number"),
		Entry("no number with a percentage", "50%", "2", "50%: give a percentage, or 1"),
		Entry("1 with every percentage, since that is at least 1", "1%", "1", ""),
		Entry("a percentage with that of two", "# of the pool\n10%\n5", "10%", ""),
		Entry("a larger percentage with that of two", "10%\n5", "11%", "10%, 5"),
		Entry("a number with that of two", "10%\n5", "5", ""),
		Entry("a larger number with that of two", "10%\n5", "6", "10%, 5"),
		Entry("with the stricter of two of a kind", "10%\n20%", "11%", "10%, 20%"),
	)

	DescribeTable("reject every profile while a limit cannot be read:",
		func(key, value, problem string) {
			setCeilings(map[string]string{key: value})
			expectBeyond(with(``), "ConfigMap storage-client-system/storage-client-guardrails: "+key+" "+problem)
		},
		malformedEntries(),
	)

	It("name three findings and count the rest", func() {
		setCeilings(testCeilings())
		expectBeyond(rollout(`maxUnavailable: 100%, failureThreshold: 3, volumes: {soakSeconds: 0}, drain: {deleteEmptyDirData: true}, reboot: {policy: Automatic}`),
			"spec.rollout.maxUnavailable is 100%, but rollout.maxUnavailable.maximum is 10%, 2; "+
				"spec.rollout.failureThreshold is 3, but rollout.failureThreshold.maximum is 2; "+
				"spec.rollout.volumes.soakSeconds is 0, but rollout.volumes.soakSeconds.minimum is 300; and at least 2 more")
	})

	It("report that an empty list allows nothing", func() {
		setCeilings(map[string]string{"node.kernelArguments.allowed": "# none\n"})
		expectBeyond(arguments("quiet"), "spec.node.kernelArguments[0] is quiet, but node.kernelArguments.allowed is empty")
		expectWithin(with(``))
	})

	Context("for a profile that exceeds a limit that was added later", func() {
		var profile *v1alpha1.StorageClientProfile

		BeforeEach(func() {
			setCeilings(nil)
			profile = &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "old", Finalizers: []string{v1alpha1.Finalizer}}}
			profile.Spec.AllNodes = true
			profile.Spec.Rollout.Drain.DeleteEmptyDirData = true
			profile.Spec.Rollout.FailureThreshold = ptr.To[int32](5)
			Eventually(func() error { return k8s.Create(ctx, profile) }).Should(Succeed())
			setCeilings(testCeilings())
			expectBeyond(rollout(`drain: {deleteEmptyDirData: true}`), "spec.rollout.drain.deleteEmptyDirData is true")
		})

		patch := func(patch string) error {
			return k8s.Patch(ctx, profile, client.RawPatch(types.MergePatchType, []byte(patch)))
		}

		It("reject any change of spec that leaves it above a limit", func() {
			expectRejected(patch(`{"spec":{"rollout":{"failureThreshold":4}}}`), "spec.rollout.failureThreshold is 4, but rollout.failureThreshold.maximum is 2; spec.rollout.drain.deleteEmptyDirData is true")
			expectRejected(patch(`{"spec":{"rollout":{"failureThreshold":2}}}`), "spec.rollout.drain.deleteEmptyDirData is true, but")
			expectRejected(patch(`{"spec":{"paused":true}}`), "spec.rollout.drain.deleteEmptyDirData is true")
		})

		It("admit a change that brings it within all limits", func() {
			Expect(patch(`{"spec":{"rollout":{"failureThreshold":2,"drain":{"deleteEmptyDirData":false}}}}`)).To(Succeed())
		})

		It("admit changes outside spec: pauses and approvals by annotation, labels, finalizers, status and its deletion", func() {
			Expect(patch(`{"metadata":{"annotations":{"tuning.storageclient.dev/paused":"true","tuning.storageclient.dev/approved-plan":"0123456789abcdef"}}}`)).To(Succeed())
			Expect(patch(`{"metadata":{"labels":{"a":"b"},"finalizers":["a.example/b","` + v1alpha1.Finalizer + `"]}}`)).To(Succeed())
			Expect(k8s.Status().Patch(ctx, profile, client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`)))).To(Succeed())
			Expect(k8s.Delete(ctx, profile)).To(Succeed())
			// The spec of a deleted profile still controls how its nodes are drained and rebooted.
			expectRejected(patch(`{"spec":{"rollout":{"reboot":{"restoreReboot":true}}}}`), "spec.rollout.drain.deleteEmptyDirData is true")
			Expect(patch(`{"metadata":{"finalizers":null}}`)).To(Succeed())
			Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(profile), profile))).To(BeTrue())
		})
	})

	DescribeTable("admit the shipped profiles with the shipped limits: config/",
		func(dir string) {
			setCeilings(shippedCeilings())
			expectBeyond(rollout(`drain: {deleteEmptyDirData: true}`), "spec.rollout.drain.deleteEmptyDirData is true")
			Expect(tryProfiles(render(dir))).To(BeNumerically(">", 0))
		},
		folders("profiles/*", "samples"),
	)

	DescribeTable("stay within the cost limit of the API server, with as many objects as the API allows and",
		func(lines, prefixes int) {
			setCeilings(wideCeilings(lines, prefixes, ""))
			Eventually(func() error { return createShape("StorageClientProfile", everyGuardedBound()) }).
				WithTimeout(patience.Of(time.Minute)).Should(Succeed())
			for _, key := range []string{"node.kernelModules.allowed", "mountOptions.forbidden", "volumes.claimNamespaces.allowed"} {
				setCeilings(wideCeilings(lines, prefixes, key))
				// The message for a thousand findings may exceed the cost limit; the profile is rejected all the same.
				Eventually(func() error { return createShape("StorageClientProfile", everyGuardedBound()) }).WithTimeout(patience.Of(time.Minute)).
					Should(MatchError(Or(ContainSubstring(", but "+key+" "), ContainSubstring("actual cost limit exceeded"))))
			}
		},
		Entry("64 lines for each list, eight of them with a *", 64, 8),
	)
})

var _ = Describe("The policy on the administrator's limits", Ordered, ContinueOnFailure, func() {
	BeforeAll(func() {
		installGuardrails(guardrails + "-ceilings")
		DeferCleanup(removeGuardrails)
		Eventually(func() error {
			return k8s.Create(context.Background(), ceilings(map[string]string{"a": "b"}), client.DryRunAll)
		}).ShouldNot(Succeed())
	})

	DescribeTable("rejects a limit that cannot be read:",
		func(key, value, problem string) {
			expectInvalid(k8s.Create(ctx, ceilings(map[string]string{key: value}), client.DryRunAll),
				"ConfigMap storage-client-system/storage-client-guardrails: "+key+" "+problem)
		},
		malformedEntries(),
	)

	It("admits the shipped limits, the limits of these tests, the documented examples and no limits, and ignores other ConfigMaps", func() {
		for _, data := range []map[string]string{shippedCeilings(), testCeilings(), documentedCeilings(), nil} {
			Expect(k8s.Create(ctx, ceilings(data), client.DryRunAll)).To(Succeed())
		}
		other := ceilings(map[string]string{"a": "b"})
		other.Name = "other"
		Expect(k8s.Create(ctx, other, client.DryRunAll)).To(Succeed())
		otherNamespace := ceilings(map[string]string{"a": "b"})
		otherNamespace.Namespace = "default"
		Expect(k8s.Create(ctx, otherNamespace, client.DryRunAll)).To(Succeed())
	})
})

var _ = Describe("The guardrails' manifests", func() {
	It("parse a limit the same way in both policies", func() {
		for _, name := range []string{"kinds", "formats", "hints", "malformed"} {
			Expect(variable(guardrails, name)).To(Equal(variable(guardrails+"-ceilings", name)), name)
		}
	})

	It("decide on every field of the API", func() {
		crd := readManifests(filepath.Join(configDir, "crd", "bases", "tuning.storageclient.dev_storageclientprofiles.yaml"))[0]
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		spec, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
		Expect(fieldPaths("", spec)).To(ConsistOf(slices.Collect(maps.Keys(ceilingOf))))

		kinds := variable(guardrails, "kinds")
		for field, ceiling := range ceilingOf {
			if !strings.HasPrefix(ceiling, "none: ") {
				Expect(kinds).To(MatchRegexp(`'`+regexp.QuoteMeta(ceiling)+`[.](allowed|maximum|minimum)'`), field)
			}
		}
	})

	It("are documented in docs/guardrails.md, each limit once", func() {
		Expect(slices.Collect(maps.Keys(documentedCeilings()))).To(ConsistOf(slices.Collect(maps.Keys(testCeilings()))))
	})

	It("are built with the operator", func() {
		overlay := GinkgoT().TempDir()
		config, err := filepath.Abs(configDir)
		Expect(err).NotTo(HaveOccurred())
		up, err := filepath.Rel(overlay, config)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"),
			fmt.Appendf(nil, "resources: [%s/default]\ncomponents: [%s/%s]\n", up, up, guardrailsDir), 0o600)).To(Succeed())
		down, err := filepath.Rel(config, overlay)
		Expect(err).NotTo(HaveOccurred())
		objects := render(down)
		Expect(names(objects, "ConfigMap")).To(ContainElement("storage-client-system/storage-client-guardrails"))
		Expect(names(objects, "ValidatingAdmissionPolicy")).To(ContainElements("/"+guardrails, "/"+guardrails+"-ceilings"))
		Expect(names(objects, "ValidatingAdmissionPolicyBinding")).To(ContainElements("/"+guardrails, "/"+guardrails+"-ceilings"))
	})
})

// defaultEntries returns absent fields, each with a limit at the default of the code and with a slightly stricter limit.
func defaultEntries() []TableEntry {
	profile := &v1alpha1.StorageClientProfileSpec{Volumes: []v1alpha1.VolumeRule{{}, {}}}
	spec := profile.WithDefaults()
	rollout := spec.Rollout
	below := func(value string) string {
		n, err := strconv.Atoi(strings.TrimSuffix(value, "%"))
		if err != nil {
			panic(err)
		}
		return strconv.Itoa(n-1) + value[len(strconv.Itoa(n)):]
	}
	share := func(field string, value *intstr.IntOrString) TableEntry {
		return Entry(field, field+".maximum", value.String(), below(value.String()), "spec."+field+" is "+value.String()+" by default, but")
	}
	least := func(field string, value int32) TableEntry {
		text := strconv.Itoa(int(value))
		return Entry(field, field+".minimum", text, strconv.Itoa(int(value)+1), "spec."+field+" is "+text+" by default, but")
	}
	most := func(field string, value int32) TableEntry {
		text := strconv.Itoa(int(value))
		return Entry(field, field+".maximum", text, below(text), "spec."+field+" is "+text+" by default, but")
	}
	choice := func(path, key, value, other string) TableEntry {
		return Entry(path, key+".allowed", value, other, "spec."+path+" is "+value+" by default, but")
	}
	entries := []TableEntry{
		share("rollout.maxConcurrentLive", rollout.MaxConcurrentLive),
		share("rollout.volumes.maxPerStep", rollout.Volumes.MaxPerStep),
		least("rollout.canary.soakSeconds", *rollout.Canary.SoakSeconds),
		least("rollout.volumes.soakSeconds", *rollout.Volumes.SoakSeconds),
		most("rollout.canary.nodes", *rollout.Canary.Nodes),
		most("rollout.failureThreshold", *rollout.FailureThreshold),
		choice("includeControlPlane", "includeControlPlane", strconv.FormatBool(spec.IncludeControlPlane), "true"),
		choice("rollout.drain.deleteEmptyDirData", "rollout.drain.deleteEmptyDirData", strconv.FormatBool(rollout.Drain.DeleteEmptyDirData), "true"),
		choice("rollout.reboot.restoreReboot", "rollout.reboot.restoreReboot", strconv.FormatBool(rollout.Reboot.RestoreReboot), "true"),
		choice("rollout.reboot.policy", "rollout.reboot.policy", string(rollout.Reboot.Policy), "Never"),
		choice("volumes[1].onConflict", "volumes.onConflict", string(spec.Volumes[1].OnConflict), "UseProfile"),
		choice("volumes[1].gitOpsOwned", "volumes.gitOpsOwned", string(spec.Volumes[1].GitOpsOwned), "Patch"),
	}
	if got := rollout.MaxUnavailable.String(); got != "1" {
		panic("the policy takes 1 for the default of rollout.maxUnavailable, the code " + got)
	}
	return entries
}

func malformedEntries() []TableEntry {
	const (
		pattern = "must contain names or name prefixes with a trailing *, one per line"
		named   = "must contain lines with a name, a colon, a space and an integer"
		numbers = "must contain lines with a name, a colon, a space and integers"
		number  = "must contain an integer of at least 0"
		share   = "must contain a number of at least 1, a percentage from 1% to 100%, or one of each"
		unknown = "is not a known limit; see docs/guardrails.md"
	)
	return []TableEntry{
		Entry("an unknown limit", "rollout.maxUnavailible.maximum", "1", unknown),
		Entry("a field without a kind of limit", "rollout.maxUnavailable", "1", unknown),
		Entry("a kind of limit that the field does not have", "rollout.maxUnavailable.minimum", "1", unknown),
		Entry("two names on a line", "node.tuned.allowed", "a b", pattern),
		Entry("names with commas", "node.sysctls.allowed", "a,b", pattern),
		Entry("a * within a name", "node.sysctls.allowed", "net.*.rmem_max", pattern),
		Entry("a bad line after good ones", "volumes.drivers.allowed", "# ours\n\na\n  b*\nc d\n", pattern),
		Entry("a maximum without a number", "mountOptions.maximum", "nconnect", named),
		Entry("a maximum as an assignment", "mountOptions.maximum", "nconnect=8", named),
		Entry("a maximum with a unit", "node.kernelArguments.maximum", "ihash_entries: 16M", named),
		Entry("a maximum of two numbers where values have one", "node.kernelModules.maximum", "nfs/max_session_slots: 1 2", named),
		Entry("a minimum in words", "node.kernelArguments.minimum", "ihash_entries: few", named),
		Entry("a maximum of words", "node.sysctls.maximum", "net.core.rmem_max: much", numbers),
		Entry("a maximum of nine numbers", "node.sysctls.maximum", "net.core.x: 1 2 3 4 5 6 7 8 9", numbers),
		Entry("a maximum in octal", "node.sysctls.minimum", "net.core.x: 010", numbers),
		Entry("an empty maximum of a name", "node.sysctls.maximum", "", numbers),
		Entry("nothing but a comment", "mountOptions.maximum", "# nconnect: 8", named),
		Entry("no number", "readAheadKiB.maximum", "16M", number),
		Entry("an empty number", "rollout.canary.soakSeconds.minimum", " \n", number),
		Entry("a negative number", "rollout.volumes.soakSeconds.minimum", "-1", number),
		Entry("a share of nothing", "rollout.maxUnavailable.maximum", "0", share),
		Entry("a share above all", "rollout.maxConcurrentLive.maximum", "101%", share),
		Entry("two shares on a line", "rollout.volumes.maxPerStep.maximum", "10% 5", share),
		Entry("an empty share", "rollout.maxUnavailable.maximum", "", share),
		Entry("a flag other than true or false", "rollout.drain.deleteEmptyDirData.allowed", "no", "must contain true or false"),
		Entry("an empty flag", "includeControlPlane.allowed", "", "must contain true or false"),
		Entry("an unknown policy", "rollout.reboot.policy.allowed", "OnApprovel", "must contain the allowed values of Automatic, OnApproval and Never"),
		Entry("an unknown onConflict", "volumes.onConflict.allowed", "Keep", "must contain the allowed values of KeepVolume, UseProfileOverClass and UseProfile"),
		Entry("an unknown gitOpsOwned", "volumes.gitOpsOwned.allowed", "Report", "must contain the allowed values of ReportOnly and Patch"),
	}
}

// installGuardrails creates one policy of the component and its binding.
func installGuardrails(name string) {
	GinkgoHelper()
	for _, object := range readManifests(filepath.Join(configDir, guardrailsDir, "policy.yaml")) {
		if object.GetName() == name {
			Expect(k8s.Create(context.Background(), object)).To(Succeed())
		}
	}
}

// removeGuardrails deletes the policies and waits until the API server no longer applies them.
func removeGuardrails() {
	GinkgoHelper()
	for _, object := range readManifests(filepath.Join(configDir, guardrailsDir, "policy.yaml")) {
		Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), object))).To(Succeed())
	}
	Eventually(func() error {
		return errors.Join(k8s.Create(context.Background(), shape("StorageClientProfile", with(``)), client.DryRunAll),
			k8s.Create(context.Background(), ceilings(map[string]string{"a": "b"}), client.DryRunAll))
	}).Should(Succeed())
}

func ceilings(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: guardrails}, Data: data}
}

// setCeilings writes the ConfigMap. Before, it writes limits that reject every spec and waits for them, so that no limits of another test
// apply. The API server sees the second write a moment later.
func setCeilings(data map[string]string) {
	GinkgoHelper()
	marks++
	mark := fmt.Sprintf("written.%d.times", marks)
	writeCeilings(map[string]string{mark: "1"})
	expectBeyond(with(``), mark+" is not a known limit")
	writeCeilings(data)
}

// marks counts the ConfigMaps that reject every spec.
var marks int

func writeCeilings(data map[string]string) {
	GinkgoHelper()
	existing := &corev1.ConfigMap{}
	if err := k8s.Get(ctx, client.ObjectKeyFromObject(ceilings(nil)), existing); apierrors.IsNotFound(err) {
		Expect(k8s.Create(ctx, ceilings(data))).To(Succeed())
		return
	}
	existing.Data = data
	Expect(k8s.Update(ctx, existing)).To(Succeed())
}

func testCeilings() map[string]string { return readCeilings("testdata/ceilings.yaml") }

func shippedCeilings() map[string]string {
	GinkgoHelper()
	shipped := &corev1.ConfigMap{}
	content, err := os.ReadFile(filepath.Join(configDir, guardrailsDir, "ceilings.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(content, shipped)).To(Succeed())
	return shipped.Data
}

// documentedCeilings returns the limits that docs/guardrails.md lists, each with its example.
func documentedCeilings() map[string]string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(configDir, "..", "docs", "guardrails.md"))
	Expect(err).NotTo(HaveOccurred())
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^[|] `([a-z][A-Za-z.]+)` [|].*[|] `([^`]+)` [|]$").FindAllStringSubmatch(string(content), -1) {
		Expect(documented).NotTo(HaveKey(row[1]))
		documented[row[1]] = row[2]
	}
	return documented
}

func readCeilings(path string) map[string]string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	data := map[string]string{}
	Expect(yaml.UnmarshalStrict(content, &data)).To(Succeed())
	return data
}

// expectBeyond expects a denial with the finding, and with the users who may change the limit.
func expectBeyond(spec, finding string) {
	GinkgoHelper()
	Eventually(func() error { return createShape("StorageClientProfile", spec) }).WithPolling(50 * time.Millisecond).
		Should(MatchError(And(ContainSubstring("denied request: "), ContainSubstring(finding), ContainSubstring(whoMayEdit))))
}

// expectWithin expects that the limits admit a spec after the API server has seen them.
func expectWithin(spec string) {
	GinkgoHelper()
	Eventually(func() error { return createShape("StorageClientProfile", spec) }).WithPolling(50 * time.Millisecond).Should(Succeed())
}

// variable returns the expression of a policy's variable.
func variable(policy, name string) string {
	GinkgoHelper()
	variables, _, _ := unstructured.NestedSlice(find(readManifests(filepath.Join(configDir, guardrailsDir, "policy.yaml")), "ValidatingAdmissionPolicy", policy).Object, "spec", "variables")
	for _, v := range variables {
		if v.(map[string]any)["name"] == name {
			return v.(map[string]any)["expression"].(string)
		}
	}
	Fail("no variable " + name)
	return ""
}

// fieldPaths returns the paths of all fields below a schema that hold a value. Label selectors and maps count as one field.
func fieldPaths(path string, schema map[string]any) []string {
	properties, _ := schema["properties"].(map[string]any)
	if _, selector := properties["matchLabels"]; selector {
		return []string{path}
	}
	if items, ok := schema["items"].(map[string]any); ok && items["properties"] != nil {
		return fieldPaths(path+"[]", items)
	}
	if len(properties) == 0 {
		return []string{path}
	}
	var paths []string
	for name, property := range properties {
		paths = append(paths, fieldPaths(strings.TrimPrefix(path+"."+name, "."), property.(map[string]any))...)
	}
	return paths
}

func module(name, parameter, value string) string {
	return with(fmt.Sprintf("node: {kernelModules: [{name: %q, parameters: {%q: %q}}]}", name, parameter, value))
}

func arguments(arguments ...string) string {
	return with("node: {kernelArguments: [" + strings.Join(arguments, ", ") + "]}")
}

func nfsDefaults(second string) string {
	return with("node: {nfsMountDefaults: [{server: filer1, options: [nconnect=1]}, {" + second + "}]}")
}

func filesystem(second string) string {
	return with("node: {filesystems: [{mountPoint: /scratch, fsType: xfs, mountOptions: [noatime]}, {" + second + "}]}")
}

const withinAll = "selector: {drivers: [nfs.csi.k8s.io], storageClassNames: [anf], claimNamespaces: [eda]}"

// rule returns a profile whose second volume rule has these fields.
func rule(fields string) string {
	return with("volumes: [{name: first, " + withinAll + "}, {name: second, " + withinAll + ", " + fields + "}]")
}

// volumeRule returns a profile whose second volume rule has this selector.
func volumeRule(selector string) string {
	return with("volumes: [{name: first, " + withinAll + "}, {name: second, selector: {" + selector + "}}]")
}

// longOption is the name of every mount option of everyGuardedBound; an option has at most 128 characters.
var longOption = strings.Repeat("o", 108)

// everyGuardedBound returns a profile with the maximum number of elements in every field that limits cover.
func everyGuardedBound() string {
	long := strings.Repeat("n", 50)
	nested := func(format string) string { return strings.ReplaceAll(format, "%", "%%") }
	options := "[" + list(32, longOption+"=1%017d") + "]"
	selector := "{drivers: [" + list(32, strings.Repeat("d", 240)+"%d") + "], storageClassNames: [" + list(32, strings.Repeat("c", 240)+"%d") +
		"], claimNamespaces: [" + list(64, long+"%d") + "]}"
	return with("node: {sysctls: {" + list(256, `net.core.`+long+`%d: "1 1 1 1 1 1 1 111111111111111111"`) + "}, " +
		"sysctlsAtLeast: {" + list(64, `net.core.`+long+`%d: "1 1 1 1 1 1 1 111111111111111111"`) + "}, " +
		"kernelArguments: [" + list(32, long+"%d=111111111111111111") + "], " +
		"kernelModules: [" + list(32, "{name: "+long+"%d, parameters: {"+nested(list(32, long+`%d: "111111111111111111"`))+"}}") + "], " +
		"readAhead: [" + list(16, "{fsTypes: [x%d], sizeKiB: 1048576}") + "], " +
		"nfsMountDefaults: [" + list(32, "{server: "+long+"%d, options: "+nested(options)+"}") + "], " +
		"filesystems: [" + list(32, "{mountPoint: /"+long+"%d, fsType: xfs, mountOptions: "+nested(options)+"}") + "]}, " +
		"volumes: [" + list(32, "{name: r%d, selector: "+nested(selector)+", readAheadKiB: 1048576, mountOptions: "+nested(options)+"}") + "]")
}

// wideCeilings returns limits with this number of lines each, some of them with a *. The last line admits everyGuardedBound. For the
// given key, the last line differs and rejects it.
func wideCeilings(lines, prefixes int, strict string) map[string]string {
	long := strings.Repeat("n", 50)
	wide := map[string]string{"rollout.drain.deleteEmptyDirData.allowed": "false"}
	set := func(key, line, last, strictLast string) {
		if key == strict {
			last = strictLast
		}
		wide[key] = strings.ReplaceAll(list(lines-prefixes-1, line), ", ", "\n") + "\n" + last
		if strings.HasSuffix(key, ".allowed") || strings.HasSuffix(key, ".forbidden") {
			wide[key] = strings.ReplaceAll(list(prefixes, line+"*"), ", ", "\n") + "\n" + wide[key]
		}
	}
	for _, key := range []string{"node.sysctls", "node.kernelModules", "node.kernelArguments", "node.nfsMountDefaults.servers", "node.nfsMountDefaults.options",
		"node.filesystems.mountPoints", "node.filesystems.fsTypes", "node.filesystems.mountOptions",
		"volumes.claimNamespaces", "volumes.drivers", "volumes.storageClassNames", "volumes.mountOptions"} {
		set(key+".allowed", "x%d", "*", "x*")
	}
	set("mountOptions.forbidden", "x%d", "x", "o*")
	set("mountOptions.maximum", "x%d: 8", "actimeo: 8", longOption+": 8")
	for kind, strictest := range map[string]string{"maximum": "0", "minimum": "999999999999999999"} {
		set("node.sysctls."+kind, "net.core."+long+"1%d: - - - - - - - -", "x: 1", "net.core."+long+"0: "+strings.TrimSpace(strings.Repeat(strictest+" ", 8)))
		set("node.kernelArguments."+kind, "x%d: 8", "x: 1", long+"0: "+strictest)
		set("node.kernelModules."+kind, "x/%d: 8", "x/x: 1", long+"0/"+long+"0: "+strictest)
	}
	return wide
}
