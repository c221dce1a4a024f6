package recommend

import (
	"fmt"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// proposedCacheSeconds is the proposed cache time of attributes, which vendors recommend for large directories.
	proposedCacheSeconds = 30
	// manyPerSecond is the rate below which a change is not worthwhile.
	manyPerSecond = 5
	kib           = 1 << 10
	largeTransfer = 1 << 20
)

// patterns describe the use of a mount by programs. They do not exclude each other.
var patterns = []Rule{
	{
		ID: "AttributeRevalidation", Cause: CauseClient, check: attributeRevalidation,
		Title:     "The client asks for attributes that have not changed.",
		Signature: "at least half of the operations are GETATTR that no open asked for, 5 a second or more, and under 2 % of them find a change",
		Source:    measured + "GETATTR an entry of a listing 1.0 without, 0.001 with actimeo=30",
	},
	{
		ID: "CloseToOpen", Cause: CauseClient, check: closeToOpen,
		Title:     "Each open asks the server whether the file has changed.",
		Signature: "at least half of the operations are GETATTR that opens asked for, 5 a second or more, and under 2 % of them find a change",
		Source:    "nfs(5), close-to-open cache consistency",
	},
	{
		ID: "LargeReadAhead", Cause: CauseClient, check: largeReadAhead,
		Title:     "The read-ahead reads what nobody asks for.",
		Signature: "over twice as many bytes are read over the wire as programs ask for",
		Source:    measured + "runs of 64 KiB: 3.8 times the bytes at 128 KiB, 5.3 at 15,360",
	},
	{
		ID: "SmallReadAhead", Cause: CauseClient, check: smallReadAhead,
		Title:     "The read-ahead is smaller than a request may be.",
		Signature: "READs carry at least the read-ahead, and no more than twice as much, which is at most half of rsize; all that is read was asked for",
		Source:    measured + "64 MiB in sequence: 256 READs at 128 KiB, 131 at 1,024 (rsize 512 KiB)",
	},
	{
		ID: "SmallTransfers", Cause: CauseClient, check: smallTransfers,
		Title:     "Requests are as large as the mount lets them be, and that is little.",
		Signature: "READs or WRITEs are full, and rsize or wsize is below 256 KiB",
		Source:    "nfs(5), rsize and wsize",
	},
	{
		ID: "SynchronousMount", Cause: CauseClient, check: synchronousMount,
		Title:     "The mount writes each block before the program goes on.",
		Signature: "the option sync, and small WRITEs",
		Source:    "Azure NetApp Files: 1 GiB in 8 KiB blocks took 70 s with sync, 6 s with async",
	},
	{
		ID: "SynchronousWrites", Cause: CauseApplication, check: synchronousWrites,
		Title:     "The program itself waits for each small write.",
		Signature: "WRITEs of at most 32 KiB, with an fsync for each one or two of them, or past the page cache",
		Source:    "open(2), O_DIRECT and O_SYNC; fsync(2)",
	},
	{
		ID: "OpenAndClose", Cause: CauseClient, check: openAndClose,
		Title:     "Most requests open and close files, which NFSv3 does not ask the server for.",
		Signature: "at least half of the operations of NFSv4 are OPEN, OPEN_NOATTR and CLOSE, 5 a second or more",
		Source:    "RFC 1813 and RFC 8881: NFSv3 has no OPEN",
	},
	{
		ID: "LogBuffers", Cause: CauseClient, check: logBuffers,
		Title:     "XFS waits for buffers of its log.",
		Signature: "over 1 % of the writes to the log found no buffer",
		Source:    "xfs(5), logbsize; document on XFS unlink performance: 311 to 848 deletes a second",
	},
}

// openRevalidations returns the number of GETATTRs that opens caused. NFSv4 sends them as a part of OPEN.
func (s Sample) openRevalidations() uint64 {
	if s.Protocol != "NFSv3" || s.hasOption("nocto") {
		return 0
	}
	return min(s.Events.Opens, s.count("GETATTR"))
}

// hasNeedlessRevalidations reports whether n GETATTRs are most of the operations but rarely find a change.
func (s Sample) hasNeedlessRevalidations(n uint64) bool {
	return n > 0 && 2*n >= s.total() && s.perSecond(n) >= manyPerSecond && ratioOf(s.Events.DataInvalidations, n) < 0.02
}

func attributeRevalidation(s Sample) (Finding, bool) {
	revalidations := s.count("GETATTR") - s.openRevalidations()
	cacheSeconds, known := s.number("acregmin")
	f := Finding{
		Seen:    fmt.Sprintf("%d of %d operations asked for attributes, and %d changes were found", revalidations, s.total(), s.Events.DataInvalidations),
		Change:  Change{MountOptions: []v1alpha1.MountOption{v1alpha1.MountOption(fmt.Sprintf("actimeo=%d", proposedCacheSeconds))}},
		Effect:  fmt.Sprintf("up to %d fewer requests a minute", s.perMinute(revalidations)),
		Against: fmt.Sprintf("what other clients change is seen up to %d s later", proposedCacheSeconds),
	}
	if s.hasOption("noac") {
		f.Seen += "; the mount has noac, which keeps none"
		f.Against = "noac is chosen by programs that share files without locks; " + f.Against
		f.ByHand = true
		return f, s.isNFS() && s.hasNeedlessRevalidations(revalidations)
	}
	return f, s.isNFS() && known && cacheSeconds < proposedCacheSeconds && s.hasNeedlessRevalidations(revalidations)
}

func closeToOpen(s Sample) (Finding, bool) {
	revalidations := s.openRevalidations()
	return Finding{
		Seen:    fmt.Sprintf("%d opens asked for the attributes of their files, of %d operations, and %d changes were found", revalidations, s.total(), s.Events.DataInvalidations),
		Change:  Change{MountOptions: []v1alpha1.MountOption{"nocto"}},
		Effect:  fmt.Sprintf("up to %d fewer requests a minute", s.perMinute(revalidations)),
		Against: "a program may read what another client has replaced: only where no node has seen a writer for a day, which one window cannot tell",
		ByHand:  true,
	}, s.hasNeedlessRevalidations(revalidations)
}

// readBytes returns the bytes that programs read through the page cache, and the bytes on the wire without direct reads.
func (s Sample) readBytes() (requested, wire uint64) {
	return s.Bytes.Read, s.Bytes.WireRead - min(s.Bytes.WireRead, s.Bytes.DirectRead)
}

func largeReadAhead(s Sample) (Finding, bool) {
	requested, wire := s.readBytes()
	smaller := max(128, s.ReadAheadKiB/8)
	return Finding{
		Seen:    fmt.Sprintf("%d MiB were read over the wire for %d MiB that programs asked for, with a read-ahead of %d KiB", wire>>20, requested>>20, s.ReadAheadKiB),
		Change:  Change{ReadAheadKiB: int32(smaller)},
		Effect:  fmt.Sprintf("up to %d MiB a minute less over the wire", s.perMinute(wire-min(wire, requested))>>20),
		Against: "what is read in sequence from the same mount gets slower",
	}, s.isNFS() && wire > 16<<20 && wire > 2*requested && s.ReadAheadKiB > smaller
}

func smallReadAhead(s Sample) (Finding, bool) {
	requested, wire := s.readBytes()
	rsize, known := s.number("rsize")
	reads := s.count("READ")
	size, window := int(ratioOf(wire, reads)), s.ReadAheadKiB*kib
	inSequence := wire > 16<<20 && requested >= wire*9/10 && requested <= wire*3/2 && size >= window && size <= 2*window
	wanted := max(1024, rsize/kib)
	return Finding{
		Seen:    fmt.Sprintf("%d READs carried %d KiB each, with a read-ahead of %d KiB and an rsize of %d KiB", reads, size/kib, s.ReadAheadKiB, rsize/kib),
		Change:  Change{ReadAheadKiB: int32(wanted)},
		Effect:  fmt.Sprintf("about %d READs a minute in the place of %d", s.perMinute(wire/uint64(max(1, rsize))), s.perMinute(reads)),
		Against: "short runs read more than they need",
	}, s.isNFS() && known && window > 0 && 2*size <= rsize && inSequence
}

func smallTransfers(s Sample) (Finding, bool) {
	reads, writes := s.fullTransfers("READ", "rsize", s.Bytes.WireRead), s.fullTransfers("WRITE", "wsize", s.Bytes.WireWritten)
	var options []v1alpha1.MountOption
	if reads > 0 {
		options = append(options, v1alpha1.MountOption(fmt.Sprintf("rsize=%d", largeTransfer)))
	}
	if writes > 0 {
		options = append(options, v1alpha1.MountOption(fmt.Sprintf("wsize=%d", largeTransfer)))
	}
	return Finding{
		Seen:    fmt.Sprintf("%d READs and %d WRITEs were as large as rsize and wsize let them be", reads, writes),
		Change:  Change{MountOptions: options},
		Effect:  fmt.Sprintf("up to %d requests a minute in the place of %d, where the server takes 1 MiB", s.perMinute((s.Bytes.WireRead+s.Bytes.WireWritten)>>20), s.perMinute(reads+writes)),
		Against: "a server may grant less; each request holds its memory on both sides",
	}, len(options) > 0
}

// fullTransfers returns the number of requests that almost reach the limit of an option. Zero if the limit is large, or if they do
// not.
func (s Sample) fullTransfers(operation, option string, wire uint64) uint64 {
	limit, known := s.number(option)
	n := s.count(operation)
	if !s.isNFS() || !known || limit >= 256*kib || s.perSecond(n) < manyPerSecond || ratioOf(wire, n) < 0.9*float64(limit) {
		return 0
	}
	return n
}

// smallWrite is the maximum size of a small WRITE.
const smallWrite = 32 * kib

func (s Sample) writesSmall() (n uint64, small bool) {
	n = s.count("WRITE")
	return n, s.isNFS() && 2*s.count("WRITE", "COMMIT") >= s.total() && s.perSecond(n) >= manyPerSecond && ratioOf(s.Bytes.WireWritten, n) <= smallWrite
}

func synchronousMount(s Sample) (Finding, bool) {
	n, small := s.writesSmall()
	return Finding{
		Seen:    fmt.Sprintf("the mount has the option sync, and %d WRITEs carried %.0f KiB each", n, ratioOf(s.Bytes.WireWritten, n)/kib),
		Change:  Change{MountOptions: []v1alpha1.MountOption{"async"}},
		Effect:  fmt.Sprintf("WRITEs of up to wsize in the place of %d a minute", s.perMinute(n)),
		Against: "a program that does not call fsync learns of a failed write at close, or not at all",
		ByHand:  true,
	}, small && s.hasOption("sync")
}

func synchronousWrites(s Sample) (Finding, bool) {
	n, small := s.writesSmall()
	isSynchronous := s.Events.Syncs*2 >= n || s.Bytes.DirectWritten*10 >= s.Bytes.WireWritten*9 && s.Bytes.DirectWritten > 0
	return Finding{
		Seen:   fmt.Sprintf("%d WRITEs carried %.0f KiB each, with %d fsyncs and %d KiB past the page cache", n, ratioOf(s.Bytes.WireWritten, n)/kib, s.Events.Syncs, s.Bytes.DirectWritten/kib),
		Effect: "larger writes, or fewer fsyncs, in the program; the server's own time for each is the rest. No setting of the client will help",
	}, small && isSynchronous && !s.hasOption("sync")
}

func openAndClose(s Sample) (Finding, bool) {
	n := s.count("OPEN", "OPEN_NOATTR", "CLOSE")
	return Finding{
		Seen:    fmt.Sprintf("%d of %d operations opened or closed files", n, s.total()),
		Change:  Change{MountOptions: []v1alpha1.MountOption{"vers=3"}},
		Effect:  fmt.Sprintf("up to %d fewer requests a minute; each open asks for attributes in their place, unless the mount has nocto", s.perMinute(n)),
		Against: "NFSv3 has no delegations, other locks, other ports, and no Kerberos privacy everywhere; all mounts of the volume change together",
		ByHand:  true,
	}, s.isNFS() && 2*n >= s.total() && s.perSecond(n) >= manyPerSecond
}

func logBuffers(s Sample) (Finding, bool) {
	waitRatio := ratioOf(s.Log.NoBuffer, s.Log.Writes)
	return Finding{
		Seen:    fmt.Sprintf("%d of %d writes to the log found no buffer", s.Log.NoBuffer, s.Log.Writes),
		Change:  Change{MountOptions: []v1alpha1.MountOption{"logbufs=8", "logbsize=256k"}},
		Effect:  "fewer of them wait; creating and deleting files gain most",
		Against: "a crash loses up to 2 MiB of changes to files' names and attributes that no fsync has asked to keep",
	}, s.Protocol == "xfs" && s.Log.Writes >= idleBelow && waitRatio > 0.01 && !s.hasOption("logbsize=256k")
}
