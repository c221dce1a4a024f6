package mountoptions

import (
	"fmt"
	"math"
)

const (
	// maxTimer is the largest number of seconds that fits 32 bits in milliseconds: the kernel accepts larger values and overflows.
	maxTimer = 4294967
	// maxTransfer is the largest rsize and wsize that the kernel uses, in bytes.
	maxTransfer = 1 << 20
	// minTransfer is the smallest rsize and wsize; below it, the kernel uses defaultTransfer.
	minTransfer     = 1024
	defaultTransfer = 4096
	// maxTimeo is the longest timeo that the kernel uses, in tenths of a second.
	maxTimeo = 6000
)

const (
	warnAtime = "has no effect on NFS: the server maintains access times"
	warnIntr  = "has had no effect since kernel 2.6.25: fatal signals always interrupt"
	warnSoft  = "can lose data: a request that times out fails, and the application may not notice"
)

var (
	nfsVersions = []string{"3", "4", "4.0", "4.1", "4.2"}
	nfsRemoved  = map[string]string{"2": "current kernels do not support NFSv2"}
)

// nfs is based on fs/nfs/fs_context.c of kernels 5.10 to 7.3 and nfs(5).
var nfs = &table{
	source: "kernel fs/nfs/fs_context.c, 5.10 to 7.3; nfs(5); measured on 5.10, 6.1 and 6.18",
	specs: withCommon(map[string]spec{
		"acregmin": {key: "acregmin", kind: count, max: maxTimer, unit: "s"},
		"acregmax": {key: "acregmax", kind: count, max: maxTimer, unit: "s"},
		"acdirmin": {key: "acdirmin", kind: count, max: maxTimer, unit: "s"},
		"acdirmax": {key: "acdirmax", kind: count, max: maxTimer, unit: "s"},
		"actimeo": {key: keyActimeo, kind: count, max: maxTimer, unit: "s", caution: cautionActimeo, note: "Sets all four timers, of files and " +
			"of directories."},
		"ac":    {key: keyCache, value: "ac"},
		"noac":  {key: keyCache, value: flagNoac, warning: "turns the attribute cache off and makes every write synchronous"},
		"cto":   {key: keyCto, value: "cto"},
		"nocto": {key: keyCto, value: "nocto", note: "Skips the check for changes when a file is opened; writes are still flushed at close."},

		"nconnect": {key: keyNconnect, kind: count, min: 1, max: 16, unit: "connections", firstKernel: "5.3", note: "All mounts of a server " +
			"on a node share the number that the first mount sets."},
		"max_connect": {key: keyMaxConnect, kind: count, min: 1, max: 16, unit: "addresses", firstKernel: "5.15"},

		"vers":         {key: keyVersion, kind: word, words: nfsVersions, removed: nfsRemoved},
		"nfsvers":      {key: keyVersion, kind: word, words: nfsVersions, removed: nfsRemoved},
		"minorversion": {key: keyMinorVersion, kind: count, max: 2, caution: cautionMinorVersion},
		"v3":           {key: keyVersion, value: "3"},
		"v4":           {key: keyVersion, value: "4"},
		"v4.0":         {key: keyVersion, value: "4.0"},
		"v4.1":         {key: keyVersion, value: "4.1"},
		"v4.2":         {key: keyVersion, value: "4.2"},

		"rsize":   {key: keyRsize, kind: count, max: math.MaxUint32, unit: "bytes", caution: cautionTransfer},
		"wsize":   {key: keyWsize, kind: count, max: math.MaxUint32, unit: "bytes", caution: cautionTransfer},
		"timeo":   {key: keyTimeo, kind: count, min: 1, max: math.MaxInt32, unit: "tenths of a second", initial: "600", caution: cautionTimeo},
		"retrans": {key: "retrans", kind: count, max: math.MaxInt32, unit: "tries", initial: "2"},
		"retry":   {key: "retry", kind: count, max: math.MaxInt32, unit: "minutes", initial: "2"},

		"hard":        {key: keyHard, value: "hard"},
		"soft":        {key: keyHard, value: "soft", warning: warnSoft},
		"softerr":     {key: keyHard, value: "softerr", warning: warnSoft},
		"softreval":   {key: "softreval", value: "softreval", warning: "clears the flags before it (kernels 5.11 to 5.17)"},
		"nosoftreval": {key: "softreval", value: "nosoftreval"},

		"proto":      {key: keyProto, kind: word, words: []string{"tcp", "tcp6", "udp", "udp6", "rdma", "rdma6"}},
		"tcp":        {key: keyProto, value: "tcp"},
		"udp":        {key: keyProto, value: "udp"},
		"rdma":       {key: keyProto, value: "rdma"},
		"resvport":   {key: keyResvPort, value: "resvport"},
		"noresvport": {key: keyResvPort, value: "noresvport"},
		"sec":        {key: keySec, kind: words, words: []string{"none", "sys", "krb5", "krb5i", "krb5p"}},
		"xprtsec":    {key: "xprtsec", kind: word, words: []string{"none", "tls", "mtls"}, firstKernel: "6.5"},

		"lookupcache": {key: keyLookupCache, kind: word, words: []string{"all", "none", "pos", "positive"}},
		"lock":        {key: keyLock, value: "lock"},
		"nolock":      {key: keyLock, value: "nolock"},
		"local_lock":  {key: keyLocalLock, kind: word, words: []string{"all", "flock", "posix", "none"}},
		"acl":         {key: "acl", value: "acl"},
		"noacl":       {key: "acl", value: "noacl"},
		"sharecache":  {key: "sharecache", value: "sharecache"},
		"nosharecache": {key: "sharecache", value: "nosharecache", warning: "gives each mount its own cache: two mounts may show different " +
			"contents of a file"},
		"rdirplus":     {key: "rdirplus", value: "rdirplus"},
		"nordirplus":   {key: "rdirplus", value: "nordirplus"},
		"fsc":          {key: "fsc", value: "fsc"},
		"nofsc":        {key: "fsc", value: "nofsc"},
		"write":        {key: "write", kind: word, words: []string{"lazy", "eager", "wait"}, firstKernel: "5.12"},
		"alignwrite":   {key: "alignwrite", value: "alignwrite", firstKernel: "6.12"},
		"noalignwrite": {key: "alignwrite", value: "noalignwrite", firstKernel: "6.12"},

		"fatal_neterrors": {key: "fatal_neterrors", kind: word, words: []string{"default", "none", "ENETDOWN:ENETUNREACH"}, firstKernel: "6.18"},

		"trunkdiscovery":   {key: "trunkdiscovery", value: "trunkdiscovery", firstKernel: "6.1"},
		"notrunkdiscovery": {key: "trunkdiscovery", value: "notrunkdiscovery", firstKernel: "6.1"},

		"intr":        {key: "intr", value: "intr", warning: warnIntr},
		"nointr":      {key: "intr", value: "nointr", warning: warnIntr},
		"atime":       {key: "atime", value: "atime", warning: warnAtime},
		"noatime":     {key: "atime", value: "noatime", warning: warnAtime},
		"relatime":    {key: "atime", value: "relatime", warning: warnAtime},
		"strictatime": {key: "atime", value: "strictatime", warning: warnAtime},
		"diratime":    {key: "diratime", value: "diratime", warning: warnAtime},
		"nodiratime":  {key: "diratime", value: "nodiratime", warning: warnAtime},
	}),
	timers:        []string{"acregmin", "acregmax", "acdirmin", "acdirmax"},
	timerDefaults: map[string]string{"acregmin": "3", "acregmax": "60", "acdirmin": "30", "acdirmax": "60"},

	oneVersionOnly: true,

	never: map[string]bool{
		"intr": true, "atime": true, "diratime": true, "fatal_neterrors": true, "trunkdiscovery": true, "retry": true,
		"_netdev": true, "nofail": true,
	},
	onlyV3: map[string]bool{keyLock: true, keyLocalLock: true, "acl": true},
	hidden: withTwins(map[string]string{
		keyCache: "ac", keyCto: "cto", "softreval": "nosoftreval", keyResvPort: "resvport", keySync: "async", keyLock: "lock",
		"acl": "acl", "sharecache": "sharecache", "rdirplus": "rdirplus", keyLookupCache: "all", keyNconnect: "1",
		keyMaxConnect: "1", "fsc": "nofsc", "write": "lazy", "alignwrite": "alignwrite", "xprtsec": "none",
	}),
	transport: map[string]bool{keyNconnect: true, keyMaxConnect: true, keyResvPort: true},
	granted:   map[string]bool{keyRsize: true, keyWsize: true},
	rounds:    true,
	checks:    []func(*table, []Option) []Problem{checkVersions, checkTwice, checkCache, checkLocks, checkTransport},

	protections: []protection{access, nfsSec, nfsXprtsec},
}

func cautionActimeo(o Option) string {
	if number(o.Value) == 0 {
		return "disables the attribute cache: every access queries the server"
	}
	return ""
}

func cautionTimeo(o Option) string {
	if number(o.Value) > maxTimeo {
		return fmt.Sprintf("the kernel uses at most %d", maxTimeo)
	}
	return ""
}

func cautionMinorVersion(o Option) string {
	return "is outdated: write vers=4." + o.Value
}

func cautionTransfer(o Option) string {
	n := number(o.Value)
	if n <= 0 {
		return ""
	}
	if sizes := transferSizes(n); len(sizes) > 1 || sizes[0] != n {
		return "the kernel uses " + describeSizes(sizes)
	}
	return ""
}
