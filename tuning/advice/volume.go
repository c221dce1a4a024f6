package advice

import (
	"fmt"
	"slices"
	"strconv"

	v1alpha1 "github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const (
	// maxTransfer is the largest request of the NFS client in bytes.
	maxTransfer = mib
	// kernelSlots is how many requests a connection may have in flight where no limit is set.
	kernelSlots = 65536
	// kernelSessionSlots is how many requests the client asks for in a session of NFSv4.1.
	kernelSessionSlots = 64
	// anfPerConnection is how many requests Azure NetApp Files takes on one connection.
	anfPerConnection = 128

	readOnlyMany = "ReadOnlyMany"

	azureFilesDriver = "file.csi.azure.com"
	tridentDriver    = "csi.trident.netapp.io"
)

// picked is true where somebody chose the volumes: by label, or because nobody writes to them.
func (r volumeRule) picked() bool {
	s := &r.Selector
	labelled := s.VolumeSelector != nil && len(s.VolumeSelector.MatchLabels)+len(s.VolumeSelector.MatchExpressions) > 0 ||
		s.ClaimSelector != nil && len(s.ClaimSelector.MatchLabels)+len(s.ClaimSelector.MatchExpressions) > 0
	readOnly := len(s.AccessModes) > 0 && !slices.ContainsFunc(s.AccessModes, func(m string) bool { return m != readOnlyMany })
	return labelled || readOnly
}

func (r volumeRule) sessions() bool {
	return r.transport.Version == "4.1" || r.transport.Version == "4.2"
}

func acregmaxDefault(s *scope) []finding {
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		if n, ok := rule.number("acregmax"); ok && n == 30 {
			found = append(found, finding{rule.at("acregmax"), "30 halves the kernel's own 60 s; a vendor's page calls 30 the default"})
		}
	}
	return found
}

func actimeoDefault(s *scope) []finding {
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		if n, ok := rule.number("actimeo"); ok && n == 30 && slices.Contains(rule.Selector.Drivers, azureFilesDriver) {
			found = append(found, finding{rule.at("actimeo"), azureFilesDriver + " appends actimeo=30 by itself: the gain is there already on its current versions"})
		}
	}
	return found
}

func actimeoRange(s *scope) []finding {
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		n, ok := rule.number("actimeo")
		if ok && !rule.picked() && (n < 30 || n > 60) {
			found = append(found, finding{rule.at("actimeo"), fmt.Sprintf("%d s is outside the 30 to 60 s that large directories want: less asks the server "+
				"too often, more shows old data for long, which only volumes picked by label or read-only should have", n)})
		}
	}
	return found
}

func actimeoScope(s *scope) []finding {
	return s.having(mountoptions.NFS, "sets acregmin, acregmax, acdirmin and acdirmax, which are 3, 60, 30 and 60 s otherwise", "actimeo")
}

func intrNoEffect(s *scope) []finding {
	return s.having(mountoptions.NFS, "does nothing: a signal that kills always interrupts", "intr", "nointr")
}

func metadataOnNFS41(s *scope) []finding {
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		if rule.sessions() {
			found = append(found, finding{rule.field, "NFSv" + rule.transport.Version + " takes 25 to 75 % longer than 3 on some work with many small files; " +
				"large files, streaming and databases lose nothing, and locks may need it"})
		}
	}
	return found
}

func mtu(s *scope) []finding {
	for i := range s.volumes {
		if slices.Contains(s.volumes[i].Selector.Drivers, tridentDriver) {
			return []finding{{"", "where the volumes are on Azure NetApp Files, leave the MTU of clients at 1,500: the path to the service takes no larger packets"}}
		}
	}
	return nil
}

func nconnectKernel(s *scope) []finding {
	old := s.older(5, 3)
	if len(old) == 0 {
		return nil
	}
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		if rule.transport.Nconnect > 1 {
			found = append(found, finding{rule.at("nconnect"), "needs kernel 5.3 or newer; a mount fails on " + listed(old)})
		}
	}
	return found
}

func nconnectSingle(s *scope) []finding {
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		if n := rule.transport.Nconnect; n > 1 {
			text := "gains where several threads or asynchronous I/O keep requests in flight, and costs a single thread a little"
			if n > 4 && slices.Contains(rule.Selector.Drivers, azureFilesDriver) {
				text += "; Azure Files gains nothing beyond 4"
			}
			found = append(found, finding{rule.at("nconnect"), text})
		}
	}
	return found
}

// slots is what the profile says about requests in flight a connection; 0 for nothing.
func (s *scope) slots() int64 {
	for _, n := range fields(s.settings["module/sunrpc/tcp_max_slot_table_entries"]) {
		return n
	}
	return 0
}

const fieldSlots = "spec.node.sunrpc.tcpMaxSlotTableEntries"

func (s *scope) largestNconnect() int {
	largest := 0
	for _, rule := range s.of(mountoptions.NFS) {
		largest = max(largest, rule.transport.Nconnect)
	}
	return largest
}

func nconnectSlots(s *scope) []finding {
	slots, nconnect := s.slots(), s.largestNconnect()
	fitting := nodesettings.SlotsFor(nconnect)
	if slots == 0 || nconnect == 0 || int64(fitting) == slots {
		return nil
	}
	if fitting == 0 {
		return []finding{{fieldSlots, fmt.Sprintf("is %d, and the document's table changes nothing from nconnect=9 on: %d is declared", slots, nconnect)}}
	}
	return []finding{{fieldSlots, fmt.Sprintf("is %d; the document's table has %d for nconnect=%d: FromNconnect follows it", slots, fitting, nconnect)}}
}

func slotsPerConnection(s *scope) []finding {
	slots, nconnect := s.slots(), max(1, s.largestNconnect())
	if slots <= anfPerConnection {
		return nil
	}
	return []finding{{fieldSlots, fmt.Sprintf("is a limit of each connection: %d connections may have %d requests in flight. Azure NetApp Files takes %d on one; "+
		"its document contradicts itself, with 256 for nconnect=8 in the text and 512 in the table. %d or less is safe",
		nconnect, int64(nconnect)*slots, anfPerConnection, anfPerConnection)}}
}

func slotsSessions(s *scope) []finding {
	rules := s.of(mountoptions.NFS)
	if s.slots() == 0 || len(rules) == 0 || slices.ContainsFunc(rules, func(r volumeRule) bool { return !r.sessions() }) {
		return nil
	}
	return []finding{{fieldSlots, "is for NFSv3 and 4.0; the volumes ask for sessions, which go by max_session_slots of the module nfs"}}
}

func nextMountOnly(s *scope) []finding {
	return s.having(mountoptions.XFS, "takes effect when the file system is really unmounted and mounted again", "logbsize", "logbufs", "allocsize", "largeio")
}

func noctoMeaning(s *scope) []finding {
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		if _, ok := rule.last("nocto"); ok && !rule.picked() {
			found = append(found, finding{rule.at("nocto"), "a file that another client has changed may be read from the cache after it was opened; " +
				"writes are flushed at close all the same. It is for volumes that are mostly read: select them by label, or by accessModes [ReadOnlyMany]"})
		}
	}
	return found
}

// kernelOwn are options that say what the kernel does anyway.
var kernelOwn = map[mountoptions.Protocol]map[string]string{
	mountoptions.XFS: {"logbufs": "8", "inode64": "", "nodiratime": ""},
	mountoptions.NFS: {"async": "", "hard": "", "cto": "", "ac": "", "nointr": ""},
}

func optionDefault(s *scope) []finding {
	var found []finding
	for _, protocol := range []mountoptions.Protocol{mountoptions.NFS, mountoptions.XFS} {
		for _, rule := range s.of(protocol) {
			for _, o := range rule.options {
				if value, known := kernelOwn[protocol][o.Name]; known && o.Value == value {
					found = append(found, finding{rule.at(o.Name), "says what current kernels do anyway, by default or with noatime"})
				}
			}
		}
	}
	return found
}

func rsizeGranted(s *scope) []finding {
	older := s.older(5, 11)
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		for _, name := range []string{"rsize", "wsize"} {
			n, ok := rule.number(name)
			switch {
			case !ok || n < 1024:
			case n > maxTransfer:
				found = append(found, finding{rule.at(name), fmt.Sprintf("the kernel uses %d bytes at most", maxTransfer)})
			case n%pageBytes != 0:
				found = append(found, finding{rule.at(name), fmt.Sprintf("is no multiple of a page: the kernel uses %d", n/pageBytes*pageBytes)})
			case n&(n-1) != 0 && len(older) > 0:
				found = append(found, finding{rule.at(name), "kernels up to 5.10 round it down to a power of two: " + listed(older)})
			}
		}
	}
	return found
}

func rsizeWsize(s *scope) []finding {
	var found []finding
	for _, rule := range s.of(mountoptions.NFS) {
		r, hasRead := rule.number("rsize")
		w, hasWrite := rule.number("wsize")
		if hasRead && hasWrite && r != w {
			found = append(found, finding{rule.field, fmt.Sprintf("rsize=%d and wsize=%d differ: the service's document wants them equal", r, w)})
		}
	}
	return found
}

func readAheadTail(s *scope) []finding {
	var found []finding
	for _, ahead := range s.readAheads() {
		for _, rsize := range s.rsizes() {
			window := ahead.kib * 1024
			if tail := window % rsize; window > rsize && tail != 0 {
				found = append(found, finding{ahead.field, fmt.Sprintf("%d KiB are %d requests of %d bytes and a tail of %d KiB, one small request more in every window: "+
					"%d KiB would be right", ahead.kib, window/rsize, rsize, tail/1024, window/rsize*rsize/1024)})
			}
		}
	}
	return found
}

func readAheadBelowRsize(s *scope) []finding {
	var found []finding
	for _, ahead := range s.readAheads() {
		rsizes := s.rsizes()
		if largest := rsizes[len(rsizes)-1]; ahead.kib*1024 < largest {
			found = append(found, finding{ahead.field, fmt.Sprintf("%d KiB are less than one request of %d bytes: small sequential reads never become requests of that size", ahead.kib, largest)})
		}
	}
	return found
}

func readAheadRuleFile(s *scope) []finding {
	if ahead := s.readAheads(); len(ahead) > 0 {
		return []finding{{ahead[0].field, "is set by the agent; a rule file /etc/udev/rules.d/99-nfs.rules, as a vendor's recipe makes it, hides the one of the " +
			"NFS tools, which has the same name, and should go"}}
	}
	return nil
}

func serverChunk(s *scope) []finding {
	text := s.Profile.Annotations[v1alpha1.ServerChunkAnnotation]
	if text == "" {
		return nil
	}
	field := "metadata.annotations[" + v1alpha1.ServerChunkAnnotation + "]"
	kib, err := strconv.ParseInt(text, 10, 64)
	if err != nil || kib < 1 {
		return []finding{{field, strconv.Quote(text) + " is not a number of KiB, e.g. 8192"}}
	}
	var found []finding
	check := func(at string, bytes int64) {
		if chunk := kib * 1024; bytes%chunk != 0 && chunk%bytes != 0 {
			found = append(found, finding{at, fmt.Sprintf("%d bytes and the server's chunks of %d KiB do not divide each other: each request leaves %d KiB "+
				"outside of what the server has read ahead", bytes, kib, bytes%chunk/1024)})
		}
	}
	for _, rule := range s.of(mountoptions.NFS) {
		if n, ok := rule.number("rsize"); ok && n > 0 {
			check(rule.at("rsize"), min(n, maxTransfer))
		}
	}
	for _, ahead := range s.readAheads() {
		check(ahead.field, max(1, ahead.kib*1024))
	}
	return found
}

// serverSizes finds rules that name one server and read it with different sizes.
func serverSizes(s *scope) []finding {
	type path struct {
		rule  int
		sizes string
	}
	met := map[string]path{}
	var found []finding
	for i, rule := range s.volumes {
		rsize, _ := rule.last("rsize")
		sizes := "rsize " + rsize
		if rule.ReadAheadKiB != nil {
			sizes += fmt.Sprintf(" and read-ahead %d KiB", *rule.ReadAheadKiB)
		}
		for _, server := range rule.Selector.Servers {
			first, seen := met[server]
			if !seen {
				met[server] = path{i, sizes}
			} else if first.sizes != sizes {
				found = append(found, finding{rule.field, fmt.Sprintf("%s is read with %s here and with %s by spec.volumes[%d]", server, sizes, first.sizes, first.rule)})
			}
		}
	}
	return found
}

func soft(s *scope) []finding {
	return s.having(mountoptions.NFS, "can lose work in flight: use hard", "soft", "softerr")
}

func sync(s *scope) []finding {
	return s.having(mountoptions.NFS, "makes every write wait for the server: 1 GiB in blocks of 8 KiB took 70 s instead of 6 s", "sync")
}

func xfsMemory(s *scope) []finding {
	var found []finding
	for _, rule := range s.of(mountoptions.XFS) {
		value, ok := rule.last("logbsize")
		if !ok {
			continue
		}
		buffers, declared := rule.number("logbufs")
		if !declared {
			buffers = 8
		}
		if bytes, known := mountoptions.Bytes(value); known {
			found = append(found, finding{rule.at("logbsize"), fmt.Sprintf("takes %d KiB of memory for the log buffers of each file system, instead of 256", buffers*bytes/1024)})
		}
	}
	return found
}

func xfsQuota(s *scope) []finding {
	return s.having(mountoptions.XFS, "is harmless without quotas; where there are some, it drops them and the next mount counts every file again", "noquota")
}
