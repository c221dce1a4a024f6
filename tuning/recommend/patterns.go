package recommend

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// proposedCacheSeconds is the proposed minimum cache time of attributes, which vendors recommend for large directories. The proposed
	// maximum is the kernel's default, twice as long.
	proposedCacheSeconds = 30
	// manyPerSecond is the rate below which a change is not worthwhile.
	manyPerSecond = 5
	kib           = 1 << 10
	largeTransfer = 1 << 20
	// mostWasted is the number of bytes for each requested byte that a read-ahead can waste. More are read from mapped files.
	mostWasted = 16
	// largeDirectory is the number of GETATTRs for each read of a large directory. The others are the kernel's acregmin, and its read-ahead since 5.4.
	largeDirectory, usualCacheSeconds, usualReadAheadKiB = 50, 3, 128
)

// openRevalidations returns the number of GETATTRs that opens caused. NFSv4 sends them as a part of OPEN.
func (s Sample) openRevalidations() uint64 {
	if s.Protocol != "NFSv3" || s.hasOption("nocto") {
		return 0
	}
	return min(s.Events.Opens, s.count("GETATTR"))
}

// hasNeedlessRevalidations reports whether n GETATTRs are most of the operations but rarely find a change.
func (s Sample) hasNeedlessRevalidations(n uint64) bool {
	return n > 0 && 2*n >= s.total() && s.perSecond(n) >= manyPerSecond && ratioOf(s.changes(), n) < 0.02
}

// changes returns the number of changes that the client has noticed. It drops data only if it has cached some.
func (s Sample) changes() uint64 {
	return max(s.Events.DataInvalidations, s.Events.AttributeInvalidations)
}

// timerNames are the cache times of attributes. actimeo sets all of them.
var timerNames = []string{"acregmin", "acregmax", "acdirmin", "acdirmax"}

// timersOf returns the cache times of attributes that options set.
func timersOf(options []string) map[string]int {
	timers := map[string]int{}
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		n, err := strconv.Atoi(value)
		for _, timer := range timerNames {
			if err == nil && (name == timer || name == "actimeo") {
				timers[timer] = n
			}
		}
	}
	return timers
}

// raised returns the options that raise shorter cache times to the proposed one. It is not below a default of the kernel, so the options
// lower no time.
func raised(timers map[string]int) (options []v1alpha1.MountOption) {
	for i, timer := range timerNames {
		if n, ok := timers[timer]; ok && n < proposedCacheSeconds {
			options = append(options, v1alpha1.MountOption(fmt.Sprintf("%s=%d", timer, proposedCacheSeconds*(1+i%2))))
		}
	}
	return options
}

func attributeRevalidation(s Sample) (Finding, bool) {
	revalidations := s.count("GETATTR") - s.openRevalidations()
	cacheSeconds, known := s.number("acregmin")
	f := Finding{
		Seen:   fmt.Sprintf("%d of %d operations requested attributes, and %d changes were found", revalidations, s.total(), s.changes()),
		Change: Change{MountOptions: raised(timersOf(s.Options))},
		Effect: fmt.Sprintf("up to %d fewer requests per minute", s.perMinute(revalidations)),
	}
	if s.changes() > 0 || !s.listsLargeDirectories(revalidations) {
		f.Against = "programs that wait for changes of files, as make and rsync do, may need them at once"
	}
	isChosen := len(f.Change.MountOptions) > 1 || cacheSeconds != usualCacheSeconds
	f.Against = text.Combine("; ", f.Against, reasonIf(isChosen, "a cache time is not the kernel's: find out who set it, and why"))
	return f, s.isNFS() && known && cacheSeconds < proposedCacheSeconds && s.hasNeedlessRevalidations(revalidations)
}

// listsLargeDirectories reports whether n GETATTRs are for entries of large directories. Programs that list a small one repeatedly wait for changes.
func (s Sample) listsLargeDirectories(n uint64) bool {
	requests, received := s.count("READDIR", "READDIRPLUS"), s.operation("READDIR").BytesReceived+s.operation("READDIRPLUS").BytesReceived
	return s.Events.Listings > 0 && n >= largeDirectory*s.Events.Listings && received >= smallOperation*requests
}

func closeToOpen(s Sample) (Finding, bool) {
	revalidations := s.openRevalidations()
	return Finding{
		Seen: fmt.Sprintf("%d of %d operations requested attributes at open, and %d changes were found", revalidations, s.total(),
			s.changes()),
		Change: Change{MountOptions: []v1alpha1.MountOption{"nocto"}},
		Effect: fmt.Sprintf("up to %d fewer requests per minute", s.perMinute(revalidations)),
	}, s.hasNeedlessRevalidations(revalidations)
}

// readBytes returns the bytes that programs read through the page cache, and the bytes on the wire without direct reads. The kernel does not
// count what programs read from files that they have mapped into memory.
func (s Sample) readBytes() (requested, wire uint64) {
	return s.Bytes.Read, s.Bytes.WireRead - min(s.Bytes.WireRead, s.Bytes.DirectRead)
}

func largeReadAhead(s Sample) (Finding, bool) {
	requested, wire := s.readBytes()
	smaller := max(128, s.ReadAheadKiB/8)
	return Finding{
		Seen: fmt.Sprintf("%d MiB were read over the network for %d MiB that programs requested, with a read-ahead of %d KiB", wire>>20,
			requested>>20, s.ReadAheadKiB),
		Change: Change{ReadAheadKiB: int32(smaller)},
		Effect: fmt.Sprintf("up to %d MiB per minute less over the network", s.perMinute(wire-min(wire, requested))>>20),
	}, s.isNFS() && wire > 16<<20 && wire > 2*requested && wire <= mostWasted*requested && s.ReadAheadKiB > smaller
}

func smallReadAhead(s Sample) (Finding, bool) {
	requested, wire := s.readBytes()
	rsize, known := s.number("rsize")
	reads := s.count("READ")
	size, window := int(ratioOf(wire, reads)), s.ReadAheadKiB*kib
	inSequence := wire > 16<<20 && requested >= wire*9/10 && requested <= wire*3/2 && size >= window && size <= 2*window
	wanted := max(1024, rsize/kib)
	return Finding{
		Seen: fmt.Sprintf("%d READs carried %d KiB each, with a read-ahead of %d KiB and an rsize of %d KiB", reads, size/kib, s.ReadAheadKiB,
			rsize/kib),
		Change:  Change{ReadAheadKiB: int32(wanted)},
		Effect:  fmt.Sprintf("about %d READs per minute instead of %d", s.perMinute(wire/uint64(max(1, rsize))), s.perMinute(reads)),
		Against: reasonIf(s.ReadAheadKiB != usualReadAheadKiB, "a read-ahead of %d KiB is not the kernel's: find out who set it, and why", s.ReadAheadKiB),
	}, s.isNFS() && known && window > 0 && 2*size <= rsize && inSequence
}

func smallTransfers(s Sample) (Finding, bool) {
	reads, writes := s.fullTransfers("READ", "rsize", s.Bytes.WireRead), s.fullTransfers("WRITE", "wsize", s.Bytes.WireWritten)
	full := map[string]uint64{"rsize": reads, "wsize": writes}
	options := lists.Pick([]string{"rsize", "wsize"}, func(name string) (v1alpha1.MountOption, bool) {
		return v1alpha1.MountOption(fmt.Sprintf("%s=%d", name, largeTransfer)), full[name] > 0
	})
	return Finding{
		Seen:   fmt.Sprintf("%d READs and %d WRITEs had the maximum size of rsize and wsize", reads, writes),
		Change: Change{MountOptions: options},
		Effect: fmt.Sprintf("up to %d requests per minute instead of %d, if the server supports 1 MiB",
			s.perMinute((s.Bytes.WireRead+s.Bytes.WireWritten)>>20), s.perMinute(reads+writes)),
		Against: reasonIf(len(options) == 2, "both sizes are small: find out whether the server or a user limits them, and why"),
	}, len(options) > 0
}

// fullTransfers returns the number of requests that almost reach the limit of an option on average. Zero if the limit is large.
func (s Sample) fullTransfers(operation, option string, wire uint64) uint64 {
	limit, known := s.number(option)
	n := s.count(operation)
	if !s.isNFS() || !known || limit >= 256*kib || s.perSecond(n) < manyPerSecond || ratioOf(wire, n) < 0.9*float64(limit) {
		return 0
	}
	return n
}

const smallWrite = 32 * kib

func (s Sample) writesSmall() (n uint64, small bool) {
	n = s.count("WRITE")
	return n, s.isNFS() && 2*s.count("WRITE", "COMMIT") >= s.total() && s.perSecond(n) >= manyPerSecond && ratioOf(s.Bytes.WireWritten, n) <= smallWrite
}

func synchronousMount(s Sample) (Finding, bool) {
	n, small := s.writesSmall()
	return Finding{
		Seen:   fmt.Sprintf("the mount has the option sync, and %d WRITEs carried %.0f KiB each", n, ratioOf(s.Bytes.WireWritten, n)/kib),
		Change: Change{MountOptions: []v1alpha1.MountOption{"async"}},
		Effect: fmt.Sprintf("WRITEs of up to wsize instead of %d per minute", s.perMinute(n)),
	}, small && s.hasOption("sync")
}

func synchronousWrites(s Sample) (Finding, bool) {
	n, small := s.writesSmall()
	// The kernel splits large writes that wait for a connection. They then look small.
	isQueued := s.operation("WRITE").QueueMillis > s.operation("WRITE").RoundTripMillis
	isSynchronous := s.Events.Syncs*2 >= n || s.Bytes.DirectWritten*10 >= s.Bytes.WireWritten*9 && s.Bytes.DirectWritten > 0
	return Finding{
		Seen: fmt.Sprintf("%d WRITEs carried %.0f KiB each, with %d fsyncs and %d KiB past the page cache", n, ratioOf(s.Bytes.WireWritten, n)/kib,
			s.Events.Syncs, s.Bytes.DirectWritten/kib),
	}, small && isSynchronous && !isQueued && !s.hasOption("sync")
}

func openAndClose(s Sample) (Finding, bool) {
	n := s.count("OPEN", "OPEN_NOATTR", "CLOSE")
	return Finding{
		Seen:   fmt.Sprintf("%d of %d operations opened or closed files", n, s.total()),
		Change: Change{MountOptions: []v1alpha1.MountOption{"vers=3"}},
		Effect: fmt.Sprintf("up to %d fewer requests per minute; each open requests attributes instead, unless the mount has nocto", s.perMinute(n)),
	}, s.isNFS() && 2*n >= s.total() && s.perSecond(n) >= manyPerSecond
}

func logBuffers(s Sample) (Finding, bool) {
	return Finding{
		Seen:   fmt.Sprintf("%d of %d log writes found no free buffer", s.Log.NoBuffer, s.Log.Writes),
		Change: Change{MountOptions: []v1alpha1.MountOption{"logbufs=8", "logbsize=256k"}},
	}, s.Protocol == "xfs" && s.Log.Writes >= idleBelow && ratioOf(s.Log.NoBuffer, s.Log.Writes) > 0.01 && !s.hasOption("logbsize=256k")
}
