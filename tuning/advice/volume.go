package advice

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxTransfer is the maximum request size of the NFS client in bytes.
	maxTransfer = mib
	// kernelSlots is the maximum number of requests in flight on a connection without a configured limit.
	kernelSlots = 65536
	// kernelSessionSlots is the number of slots that the client requests by default for an NFSv4.1 session.
	kernelSessionSlots = 64
	// anfPerConnection is the number of requests that Azure NetApp Files accepts on one connection.
	anfPerConnection = 128

	maxChunkKiB = 1 << 20

	readOnlyMany = "ReadOnlyMany"

	azureFilesDriver = "file.csi.azure.com"
)

// canaryLabels finds labels that a kubelet may set itself. See nodesettings.KubeletLabels.
func canaryLabels(s *scope) {
	canary := s.Profile.Spec.Rollout.Canary
	if canary == nil || !slices.ContainsFunc(s.volumes, func(r volumeRule) bool { return r.ReadAheadKiB != nil }) {
		return
	}
	if keys := nodesettings.KubeletLabels(canary.NodeSelector); len(keys) > 0 {
		s.add("spec.rollout.canary.nodeSelector", fmt.Sprintf("any node may set %s on itself, so these nodes are no canary for the "+
			"read-ahead of volumes: the oldest node is; use a label with the prefix node-restriction.kubernetes.io/", text.List(keys)))
	}
}

// IsPicked reports whether a selector selects volumes deliberately: by label, or only read-only volumes.
func IsPicked(s *v1alpha1.VolumeSelector) bool {
	labelled := func(l *metav1.LabelSelector) bool { return l != nil && len(l.MatchLabels)+len(l.MatchExpressions) > 0 }
	readOnly := len(s.AccessModes) > 0 && !slices.ContainsFunc(s.AccessModes, func(m string) bool { return m != readOnlyMany })
	return labelled(s.VolumeSelector) || labelled(s.ClaimSelector) || readOnly
}

func (r volumeRule) usesSessions() bool {
	return r.transport.Version == "4.1" || r.transport.Version == "4.2"
}

func actimeoRange(s *scope) {
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		n, ok := rule.lastNumber("actimeo")
		if ok && !IsPicked(&rule.Selector) && (n < 30 || n > 60) {
			s.add(rule.fieldOf("actimeo"), fmt.Sprintf("%d s is outside 30 to 60 s, the range for large directories: a "+
				"shorter time queries the server too often, a longer time shows outdated data, which suits only volumes that are read-only or "+
				"selected by label", n))
		}
	}
}

func metadataOnNFS41(s *scope) {
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		if rule.usesSessions() {
			s.add(rule.field, "NFSv"+rule.transport.Version+" takes 25 to 75 % longer than v3 for some work with many "+
				"small files; large files, streaming and databases are not slower, and locking may need it")
		}
	}
}

func nconnectKernel(s *scope) {
	old := s.nodesOlderThan("5.3")
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		if len(old) > 0 && rule.transport.Nconnect > 1 {
			s.add(rule.fieldOf("nconnect"), "needs kernel 5.3 or newer; mounts fail on "+text.InOrder(old, ", "))
		}
	}
}

func nconnectSingle(s *scope) {
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		if n := rule.transport.Nconnect; n > 1 {
			text := "helps if several threads or asynchronous I/O keep requests in flight, and slows a single thread slightly"
			if n > 4 && slices.Contains(rule.Selector.Drivers, azureFilesDriver) {
				text += "; more than 4 do not help on Azure Files"
			}
			s.add(rule.fieldOf("nconnect"), text)
		}
	}
}

// slots returns the declared number of requests in flight per connection. Zero if unset.
func (s *scope) slots() int64 {
	for _, n := range text.Numbers(s.settings["module/sunrpc/tcp_max_slot_table_entries"]) {
		return n
	}
	return 0
}

var fieldSlots = sysctlField("sunrpc.tcp_max_slot_table_entries")

func (s *scope) largestNconnect() int {
	largest := 0
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		largest = max(largest, rule.transport.Nconnect)
	}
	return largest
}

func nconnectSlots(s *scope) {
	slots, nconnect := s.slots(), s.largestNconnect()
	if slots != 0 && nconnect > 0 && slots < anfPerConnection {
		s.add(fieldSlots, fmt.Sprintf("is %d, but each of the %d connections can carry %d requests", slots, nconnect, anfPerConnection))
	}
}

func slotsPerConnection(s *scope) {
	slots, nconnect := s.slots(), max(1, s.largestNconnect())
	if slots > anfPerConnection {
		s.add(fieldSlots, fmt.Sprintf("limits each connection: %d connections may have %d requests in flight. Azure NetApp Files "+
			"accepts %d per connection; its document contradicts itself (256 for nconnect=8 in the text, 512 in the table). %d or less is safe",
			nconnect, int64(nconnect)*slots, anfPerConnection, anfPerConnection))
	}
}

func slotsSessions(s *scope) {
	rules := s.rulesOf(mountoptions.NFS)
	if s.slots() != 0 && len(rules) > 0 && !slices.ContainsFunc(rules, func(r volumeRule) bool { return !r.usesSessions() }) {
		s.add(fieldSlots, "affects NFSv3 and 4.0 only, but the volumes use NFSv4.1 or 4.2: set max_session_slots of the module nfs")
	}
}

// kernelDefaults maps options to the values that the kernel uses by default.
var kernelDefaults = map[mountoptions.Protocol]map[string]string{
	mountoptions.XFS: {"logbufs": "8", "inode64": "", "nodiratime": ""},
	mountoptions.NFS: {"async": "", "hard": "", "cto": "", "ac": "", "nointr": ""},
}

func optionDefault(s *scope) {
	for _, protocol := range []mountoptions.Protocol{mountoptions.NFS, mountoptions.XFS} {
		for _, rule := range s.rulesOf(protocol) {
			for _, o := range rule.options {
				if value, known := kernelDefaults[protocol][o.Name]; known && o.Value == value {
					s.add(rule.fieldOf(o.Name), "has no effect: current kernels do this by default or with noatime")
				}
			}
		}
	}
}

func rsizeGranted(s *scope) {
	older := s.nodesOlderThan("5.11")
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		for _, name := range []string{"rsize", "wsize"} {
			n, ok := rule.lastNumber(name)
			switch {
			case !ok || n < 1024:
			case n > maxTransfer:
				s.add(rule.fieldOf(name), fmt.Sprintf("the kernel uses at most %d bytes", maxTransfer))
			case n%pageBytes != 0:
				s.add(rule.fieldOf(name), fmt.Sprintf("is not a multiple of the page size: the kernel uses %d", n/pageBytes*pageBytes))
			case n&(n-1) != 0 && len(older) > 0:
				s.add(rule.fieldOf(name), "kernels up to 5.10 round it down to a power of two: "+text.InOrder(older, ", "))
			}
		}
	}
}

func rsizeWsize(s *scope) {
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		r, hasRead := rule.lastNumber("rsize")
		w, hasWrite := rule.lastNumber("wsize")
		if hasRead && hasWrite && r != w {
			s.add(rule.field, fmt.Sprintf("rsize=%d and wsize=%d differ, but the vendor recommends equal sizes", r, w))
		}
	}
}

func readAheadTail(s *scope) {
	for _, ahead := range s.readAheads() {
		for _, rsize := range s.rsizes() {
			window := ahead.kib * 1024
			if tail := window % rsize; window > rsize && tail != 0 {
				s.add(ahead.field, fmt.Sprintf("%d KiB is %d requests of %d bytes and a remainder of %d KiB, which costs one "+
					"small extra request in every window: use %d KiB", ahead.kib, window/rsize, rsize, tail/1024, window/rsize*rsize/1024))
			}
		}
	}
}

func readAheadBelowRsize(s *scope) {
	for _, ahead := range s.readAheads() {
		rsizes := s.rsizes()
		if largest := rsizes[len(rsizes)-1]; ahead.kib*1024 < largest {
			s.add(ahead.field, fmt.Sprintf("%d KiB is less than one request of %d bytes: small sequential reads never "+
				"become requests of that size", ahead.kib, largest))
		}
	}
}

func readAheadRuleFile(s *scope) {
	if ahead := s.readAheads(); len(ahead) > 0 {
		s.add(ahead[0].field, "is set by the agent; remove the udev rule file /etc/udev/rules.d/99-nfs.rules if a vendor's recipe "+
			"created it: it hides the rule file of the NFS tools, which has the same name")
	}
}

// serverChunk compares requests and read-ahead with the chunk of the profile's servers.
func serverChunk(s *scope) {
	annotation := s.Profile.Annotations[v1alpha1.ServerChunkAnnotation]
	kib, err := strconv.ParseInt(cmp.Or(annotation, "0"), 10, 64)
	if err != nil || kib < 0 || kib > maxChunkKiB || annotation == "0" {
		s.add("metadata.annotations["+v1alpha1.ServerChunkAnnotation+"]", fmt.Sprintf("%q must be 1 to %d KiB, e.g. 8192", annotation, maxChunkKiB))
		return
	}
	check := func(at string, bytes int64) {
		if chunk := kib * 1024; kib > 0 && bytes%chunk != 0 && chunk%bytes != 0 {
			effect := fmt.Sprintf("each request leaves %d KiB outside the data that the server has read ahead", bytes%chunk/1024)
			if bytes < chunk {
				effect = "some requests reach into two chunks"
			}
			s.add(at, fmt.Sprintf("%d bytes does not fit the server's chunks of %d KiB: %s", bytes, kib, effect))
		}
	}
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		if n, ok := rule.lastNumber("rsize"); ok && n > 0 {
			check(rule.fieldOf("rsize"), min(n, maxTransfer))
		}
		if ahead := rule.ReadAheadKiB; ahead != nil {
			check(strings.TrimSuffix(rule.field, "mountOptions")+"readAheadKiB", max(1, int64(*ahead)*1024))
		}
	}
	for _, ahead := range s.readAheads() {
		if strings.HasPrefix(ahead.field, "spec.node.") {
			check(ahead.field, max(1, ahead.kib*1024))
		}
	}
}

func serverSizes(s *scope) {
	type path struct {
		rule  int
		sizes string
	}
	met := map[string]path{}
	for i, rule := range s.volumes {
		rsize, _ := rule.lastValue("rsize")
		sizes := "rsize " + rsize
		if rule.ReadAheadKiB != nil {
			sizes += fmt.Sprintf(" and read-ahead %d KiB", *rule.ReadAheadKiB)
		}
		for _, server := range rule.Selector.Servers {
			first, seen := met[server]
			if !seen {
				met[server] = path{i, sizes}
			} else if first.sizes != sizes {
				s.add(rule.field, fmt.Sprintf("%s is read with %s here but with %s in spec.volumes[%d]: use one size", server, sizes,
					first.sizes, first.rule))
			}
		}
	}
}

func xfsMemory(s *scope) {
	for _, rule := range s.rulesOf(mountoptions.XFS) {
		value, _ := rule.lastValue("logbsize")
		buffers, declared := rule.lastNumber("logbufs")
		if !declared {
			buffers = 8
		}
		if bytes, known := mountoptions.Bytes(value); known {
			s.add(rule.fieldOf("logbsize"), fmt.Sprintf("uses %d KiB of memory for the log buffers of each file system, "+
				"instead of 256 KiB", buffers*bytes/1024))
		}
	}
}

// volumesLeftOut lists the drivers with the most volumes that no rule selects.
func volumesLeftOut(s *scope) {
	if len(s.LeftOut) == 0 {
		return
	}
	var drivers []string
	for _, l := range s.LeftOut {
		which := fmt.Sprintf("%s (%d, e.g. %s", cmp.Or(l.Driver, "volumes without a driver name"), l.Count, l.Example)
		drivers = append(drivers, which+text.Labelled("; looks like ", string(l.LooksLike))+")")
	}
	s.add("", fmt.Sprintf("%s not selected by any rule because their drivers are unknown: %s",
		text.Count(CountLeftOut(s.LeftOut), "volume is", "volumes are"),
		text.InOrder(drivers, "; ")))
}

func serverCopy(s *scope) {
	for _, rule := range s.rulesOf(mountoptions.NFS) {
		if rule.transport.Version == "4.2" {
			s.add(rule.field, "NFSv4.2 can copy on the server: copy_file_range, which cp of coreutils uses, is faster than "+
				"reading and writing through the client")
		}
	}
	for _, rule := range s.rulesOf(mountoptions.SMB) {
		s.add(rule.field, "SMB can copy on the server: copy_file_range is faster than reading and writing through the client; "+
			"ODX exists in Windows, but not in Linux")
	}
}
