package advice

import v1alpha1 "github.com/storageclient/operator/api/v1alpha1"

const (
	info    = v1alpha1.SeverityInfo
	warning = v1alpha1.SeverityWarning
	hurts   = v1alpha1.SeverityError
)

// Sources of the rules.
const (
	sourceAzureFiles      = "Azure Files, large directories on Linux clients"
	sourceAzureNFS        = "Azure Files, improve NFS performance"
	sourceANF             = "Azure NetApp Files, Linux mount options and client configuration for HPC and EDA"
	sourceANFSlots        = "Azure NetApp Files, Linux concurrency best practices: session slots and slot table entries"
	sourceXFSUnlink       = "document on XFS unlink performance; xfs(5)"
	sourceQumulo          = "Qumulo, ODX and the missing prefetch"
	sourceNFS             = "nfs(5)"
	sourceHash            = "kernel mm/mm_init.c, alloc_large_system_hash; measured on 6.1 and 6.18"
	sourceIPSysctl        = "kernel Documentation/networking/ip-sysctl.rst"
	sourceReadAhead       = "measured on 5.10, 6.1 and 6.18: 128 MiB take 129 READs at 15360 KiB, 136 at 15380, 1024 at 128"
	sourceReadAheadMemory = "kernel Documentation/ABI/stable/sysfs-block, queue/read_ahead_kb; mm/readahead.c"
	sourceKernels         = "measured on 6.1 and 6.18: tcp_rmem's maximum 6 MiB and 32 MiB, rmem_max 208 KiB and 4 MiB"
	sourceSweeps          = "github.com/buroa/home-ops pull request 5862: 650, 942 and 380 MB/s with 128, 1024 and 15360 KiB; honnef.co, a " +
		"sweep of NFS read-ahead"
	sourceVM   = "kernel Documentation/admin-guide/sysctl/vm.rst"
	sourceGRUB = "grub-mkconfig of GRUB 2.06; RHEL 9.3 release notes"
)

// rules is sorted by ID; a test verifies this.
var rules = []Rule{
	{ID: "acregmax-default", Severity: info, Source: "kernel fs/nfs/internal.h, 5.10 to 7.3", check: acregmaxDefault,
		Title: "acregmax is 60 s by default, not 30 s as a vendor's page says."},
	{ID: "actimeo-default", Severity: info, Source: "azurefile-csi-driver; " + sourceAzureFiles, check: actimeoDefault,
		Title: "The Azure Files driver already adds actimeo=30."},
	{ID: "actimeo-range", Severity: warning, Source: sourceAzureFiles, CheckedElsewhere: true, check: actimeoRange,
		Title: "For large directories, actimeo should be 30 to 60 s, except on volumes chosen for more."},
	{ID: "actimeo-scope", Severity: info, Source: sourceNFS,
		Title:       "actimeo sets all four timers, for files and for directories.",
		Explanation: "actimeo sets acregmin, acregmax, acdirmin and acdirmax; their defaults are 3, 60, 30 and 60 s."},
	{ID: "boot-argument-file", Severity: info, Source: sourceGRUB,
		Title: "Kernel arguments are stored in a separate file, not in /etc/default/grub.",
		Explanation: "The agent stores them under /etc/default/grub.d in a file that is read last and only appends: a cloud image may override " +
			"/etc/default/grub, and a boot loader with its own entries ignores it."},
	{ID: "copy-from-snapshot", Severity: info, Source: sourceAzureFiles,
		Title:       "Copy and back up large directories from a snapshot.",
		Explanation: "Copy and back up from a snapshot of the share, not from the live share."},
	{ID: "hash-below-default", Severity: warning, Source: sourceHash, check: hashBelowDefault,
		Title: "On nodes with much memory, the kernel's default hash table is as large or larger."},
	{ID: "hash-clamped", Severity: warning, Source: sourceHash, check: hashClamped,
		Title: "The kernel limits a hash table to 1/16 of memory, whatever the command line says."},
	{ID: "hash-rounded", Severity: info, Source: sourceHash, check: hashRounded,
		Title: "The kernel rounds the size of a hash table up to a power of two."},
	{ID: "hash-small", Severity: warning, Source: sourceHash, check: hashSmall,
		Title: "A hash table smaller than any kernel's default makes lookups slower."},
	{ID: "interleave-statx", Severity: info, Source: sourceAzureFiles,
		Title: "Applications should not stat all files of a large directory at the end.",
		Explanation: "An application that needs attributes should call statx after each getdents64, not for all files at the end; one that " +
			"needs only names should not call it at all."},
	{ID: "intr-no-effect", Severity: warning, Source: sourceNFS, CheckedElsewhere: true, check: intrNoEffect,
		Title: "intr has had no effect since kernel 2.6.25."},
	{ID: "lowers-kernel", Severity: warning, Source: sourceKernels, check: lowersKernel,
		Title: "Figures in documents are for old kernels: newer kernels have larger buffers by default."},
	{ID: "metadata-on-nfs41", Severity: info, Source: sourceANF, check: metadataOnNFS41,
		Title: "For metadata-heavy work NFSv3 is faster than 4.1, if its locking is sufficient."},
	{ID: "mtu", Severity: info, Source: sourceANF,
		Title:       "Clients of Azure NetApp Files keep an MTU of 1,500.",
		Explanation: "Leave the MTU of the interfaces at 1,500 for volumes of Azure NetApp Files. The operator does not read it."},
	{ID: "nconnect-kernel", Severity: warning, Source: "kernel 5.3; " + sourceANF, check: nconnectKernel,
		Title: "nconnect needs kernel 5.3 or newer."},
	{ID: "nconnect-single", Severity: info, Source: sourceAzureNFS, check: nconnectSingle,
		Title: "nconnect helps only workloads with several requests in flight."},
	{ID: "nconnect-slots", Severity: warning, Source: sourceANF, check: nconnectSlots,
		Title: "A small slot table limits each connection."},
	{ID: "next-mount-only", Severity: info, Source: "measured on 5.10, 6.1 and 6.18", check: nextMountOnly,
		Title: "A remount succeeds but does not change these XFS options."},
	{ID: "nocto-meaning", Severity: warning, Source: sourceNFS, CheckedElsewhere: true, check: noctoMeaning,
		Title: "nocto skips the check for changes when a file is opened."},
	{ID: "option-default", Severity: info, Source: sourceXFSUnlink, CheckedElsewhere: true, check: optionDefault,
		Title: "Some options only repeat the kernel's defaults."},
	{ID: "port-range", Severity: warning, Source: sourceIPSysctl + "; kubernetes/kubernetes#111682", CheckedElsewhere: true, check: portRange,
		Title: "A wide range of local ports includes NodePorts and ports of host daemons."},
	{ID: "read-ahead-below-rsize", Severity: warning, Source: sourceReadAhead, check: readAheadBelowRsize,
		Title: "With a read-ahead below rsize, requests never reach rsize."},
	{ID: "read-ahead-memory", Severity: warning, Source: sourceReadAheadMemory, check: readAheadMemory,
		Title: "A very large read-ahead fills memory with data that may never be read."},
	{ID: "read-ahead-rule-file", Severity: info, Source: "nfs-utils, udev rules", check: readAheadRuleFile,
		Title: "A udev rule file named 99-nfs.rules hides the rule file of the NFS tools."},
	{ID: "read-ahead-tail", Severity: warning, Source: sourceReadAhead + "; " + sourceQumulo, check: readAheadTail,
		Title: "Read-ahead should be a multiple of rsize."},
	{ID: "read-ahead-window", Severity: warning, Source: sourceSweeps, check: readAheadWindow,
		Title: "A read-ahead of many requests is rarely faster, and can be slower than the default."},
	{ID: "recursive-listing", Severity: info, Source: sourceAzureFiles,
		Title:       "Recursive ls, find and du benefit from a longer actimeo.",
		Explanation: "Recursive ls, find and du need names and attributes of everything: if they run often, a longer time pays off."},
	{ID: "route-flush", Severity: info, Source: sourceIPSysctl, CheckedElsewhere: true, check: routeFlush,
		Title: "net.ipv4.route.flush is an action, not a state."},
	{ID: "rsize-granted", Severity: warning, Source: "measured on 5.10, 6.1 and 6.18", check: rsizeGranted,
		Title: "The kernel rounds rsize and wsize down and uses at most 1 MiB."},
	{ID: "rsize-wsize", Severity: warning, Source: sourceANF, check: rsizeWsize,
		Title: "rsize and wsize should be equal."},
	{ID: "sack-off", Severity: warning, Source: sourceANF + "; " + sourceIPSysctl, CheckedElsewhere: true, check: sackOff,
		Title: "Without selective acknowledgements, every lost packet costs more."},
	{ID: ServerBudget, Severity: info, Source: sourceANFSlots, check: serverBudget,
		Title: "The maximum load of a profile's nodes on each server."},
	{ID: "server-budget-exceeded", Severity: hurts, Source: sourceANFSlots, check: serverBudgetExceeded,
		Title: "A profile's nodes may exceed a server's limits."},
	{ID: "server-chunk", Severity: warning, Source: sourceQumulo, check: serverChunk,
		Title: "Requests and read-ahead should fit the chunks that the server reads ahead."},
	{ID: "server-copy", Severity: info, Source: sourceQumulo + "; kernel fs/smb/client", check: serverCopy,
		Title: "Copying on the server is faster than through the client."},
	{ID: "server-sizes", Severity: warning, Source: sourceQumulo, check: serverSizes,
		Title: "Read one server with one size only."},
	{ID: "slots-per-connection", Severity: warning, Source: sourceANFSlots, check: slotsPerConnection,
		Title: "The slot table limits each connection; Azure NetApp Files accepts 128 requests per connection."},
	{ID: "slots-sessions", Severity: warning, Source: "kernel fs/nfs/nfs4client.c; measured on 6.1 and 6.18", CheckedElsewhere: true,
		check: slotsSessions,
		Title: "NFSv4.1 and 4.2 ignore the slot table."},
	{ID: "slots-spelling", Severity: hurts, Source: sourceANF + "; measured", CheckedElsewhere: true, check: slotsSpelling,
		Title: "Two vendor pages misspell sunrpc.tcp_max_slot_table_entries."},
	{ID: "soft", Severity: warning, Source: sourceNFS, CheckedElsewhere: true, check: soft,
		Title: "soft can lose data."},
	{ID: "spread-directories", Severity: info, Source: sourceAzureFiles,
		Title:       "Fewer files per directory gain more than any setting.",
		Explanation: "Spread files over several directories where the application allows it: no setting gains as much."},
	{ID: "statx-cached", Severity: info, Source: sourceAzureFiles + "; statx(2)",
		Title:       "A single client can read attributes from its cache.",
		Explanation: "If only one client uses the share, statx with AT_STATX_DONT_SYNC reads attributes from the cache."},
	{ID: "sync", Severity: warning, Source: sourceANF, check: sync,
		Title: "sync makes every write wait for the server."},
	{ID: "sysctl-files", Severity: info, Source: "sysctl(8) of procps 4.0.2; " + sourceANF,
		Title: "Sysctls are stored in a separate file; sysctl -P does not exist.",
		Explanation: "The agent applies them at once and stores them in its own file under /etc/sysctl.d: you do not have to run a command. " +
			"sysctl -P, which a vendor's page recommends, does not exist, and -p reads only /etc/sysctl.conf."},
	{ID: "sysctl-no-effect", Severity: info, Source: sourceIPSysctl, CheckedElsewhere: true, check: sysctlNoEffect,
		Title: "tcp_low_latency and tcp_fack no longer have any effect."},
	{ID: "tcp-buffers", Severity: info, Source: sourceANF, check: tcpBuffers,
		Title: "TCP buffers can be much larger on clients with enough memory and a faster network."},
	{ID: "tcp-mem", Severity: warning, Source: sourceIPSysctl, check: tcpMem,
		Title: "tcp_mem counts pages and replaces the values that the kernel derived from memory."},
	{ID: "tcp-minimum", Severity: warning, Source: sourceIPSysctl, check: tcpMinimum,
		Title: "The first number of tcp_rmem and tcp_wmem is granted to every socket even when memory is short."},
	{ID: "test-first", Severity: info, Source: sourceANF,
		Title:       "Follow the application vendor's advice first, and test with your own workload.",
		Explanation: "Follow the application vendor's advice first, and measure with your own workload on a canary before production."},
	{ID: "tuned-overlap", Severity: info, Source: "tuned 2.20 and 2.27; " + sourceANF, check: tunedOverlap,
		Title: "tuned sets some of the declared sysctls too."},
	{ID: "unsorted-listing", Severity: info, Source: sourceAzureFiles,
		Title:       "List large directories unsorted and without colors.",
		Explanation: "List with unaliased and unsorted ls (ls -1U or ls -1f): --color=auto reads the attributes of every file."},
	{ID: "volumes-left-out", Severity: warning, Source: "docs/drivers.md", check: volumesLeftOut,
		Title: "Rules that name protocols do not select volumes of unknown drivers."},
	{ID: "watch-operations", Severity: info, Source: sourceQumulo,
		Title: "Averages hide a small extra request in every read: count operations, with cold caches.",
		Explanation: "Evaluate read-ahead by the READs of one file, not by a node's averages: use a file larger than memory or drop caches " +
			"first. The server's cache may still be warm."},
	{ID: "writeback-off", Severity: warning, Source: sourceVM, check: writebackOff,
		Title: "Without periodic write-back, a crash loses more."},
	{ID: "xfs-memory", Severity: info, Source: sourceXFSUnlink, check: xfsMemory,
		Title: "XFS log buffers take logbufs times logbsize of memory per file system."},
	{ID: "xfs-quota", Severity: warning, Source: "measured on 5.10, 6.1 and 6.18", CheckedElsewhere: true, check: xfsQuota,
		Title: "noquota drops the quota state of a file system that has quotas."},
}
