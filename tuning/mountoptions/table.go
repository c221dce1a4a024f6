package mountoptions

import (
	"math"
	"strings"
)

// Keys that the code speaks of.
const (
	keyActimeo      = "actimeo"
	keyCache        = "ac"
	keyCto          = "cto"
	keyHard         = "hard"
	keyLock         = "lock"
	keyLocalLock    = "local_lock"
	keyLookupCache  = "lookupcache"
	keyMaxConnect   = "max_connect"
	keyMinorVersion = "minorversion"
	keyNconnect     = "nconnect"
	keyProto        = "proto"
	keyResvPort     = "resvport"
	keyRsize        = "rsize"
	keySec          = "sec"
	keySync         = "sync"
	keyTimeo        = "timeo"
	keyVersion      = "vers"
	keyWsize        = "wsize"

	groupCache = "attribute cache"

	flagNoac = "noac"
)

// timers of the attribute cache, in the order in which they are written out.
var timers = []string{"acregmin", "acregmax", "acdirmin", "acdirmax"}

// timerDefaults are the kernel's own, in seconds.
var timerDefaults = map[string]string{"acregmin": "3", "acregmax": "60", "acdirmin": "30", "acdirmax": "60"}

const (
	// maxTimer is the largest number of seconds whose milliseconds fit 32 bits: the kernel takes more and overflows.
	maxTimer = 4294967
	// maxTransfer is the largest rsize and wsize that the kernel uses, in bytes.
	maxTransfer = 1 << 20
	// minTransfer is the smallest; below it the kernel takes defaultTransfer.
	minTransfer     = 1024
	defaultTransfer = 4096
	// maxTimeo is the longest timeo that the kernel uses, in tenths of a second.
	maxTimeo = 6000
)

type kind int

const (
	flag kind = iota
	count
	word
	words // several, separated by colons
)

// spec is what is known of one option.
type spec struct {
	// key is what the option is about.
	key string
	// value is what a flag says about key.
	value string
	kind  kind
	// min and max bound a count, in unit.
	min, max int64
	unit     string
	// words are the values that a word may have.
	words []string
	// warning is what a user should know who asks for it.
	warning string
}

const (
	warnAtime = "has no effect on NFS: the server keeps access times"
	warnIntr  = "has no effect since kernel 2.6.25: a signal that kills always interrupts"
	warnSoft  = "can lose work in flight: a request that times out fails, and the application may not notice"
)

// specs are the options that a profile may ask for, from fs/nfs/fs_context.c of kernels 5.10 to 7.3 and nfs(5).
var specs = map[string]spec{
	"acregmin": {key: "acregmin", kind: count, max: maxTimer, unit: "s"},
	"acregmax": {key: "acregmax", kind: count, max: maxTimer, unit: "s"},
	"acdirmin": {key: "acdirmin", kind: count, max: maxTimer, unit: "s"},
	"acdirmax": {key: "acdirmax", kind: count, max: maxTimer, unit: "s"},
	"actimeo":  {key: keyActimeo, kind: count, max: maxTimer, unit: "s"},
	"ac":       {key: keyCache, value: "ac"},
	"noac":     {key: keyCache, value: flagNoac, warning: "turns the attribute cache off and makes every write synchronous"},
	"cto":      {key: keyCto, value: "cto"},
	"nocto":    {key: keyCto, value: "nocto"},

	"nconnect":    {key: keyNconnect, kind: count, min: 1, max: 16, unit: "connections"},
	"max_connect": {key: keyMaxConnect, kind: count, min: 1, max: 16, unit: "addresses"},

	"vers":         {key: keyVersion, kind: word, words: []string{"3", "4", "4.0", "4.1", "4.2"}},
	"nfsvers":      {key: keyVersion, kind: word, words: []string{"3", "4", "4.0", "4.1", "4.2"}},
	"minorversion": {key: keyMinorVersion, kind: count, max: 2},
	"v3":           {key: keyVersion, value: "3"},
	"v4":           {key: keyVersion, value: "4"},
	"v4.0":         {key: keyVersion, value: "4.0"},
	"v4.1":         {key: keyVersion, value: "4.1"},
	"v4.2":         {key: keyVersion, value: "4.2"},

	"rsize":   {key: keyRsize, kind: count, max: math.MaxUint32, unit: "bytes"},
	"wsize":   {key: keyWsize, kind: count, max: math.MaxUint32, unit: "bytes"},
	"timeo":   {key: keyTimeo, kind: count, min: 1, max: math.MaxInt32, unit: "tenths of a second"},
	"retrans": {key: "retrans", kind: count, max: math.MaxInt32, unit: "tries"},
	"retry":   {key: "retry", kind: count, max: math.MaxInt32, unit: "minutes"},

	"hard":        {key: keyHard, value: "hard"},
	"soft":        {key: keyHard, value: "soft", warning: warnSoft},
	"softerr":     {key: keyHard, value: "softerr", warning: warnSoft},
	"softreval":   {key: "softreval", value: "softreval", warning: "clears the flags before it on kernels 5.11 to 5.17"},
	"nosoftreval": {key: "softreval", value: "nosoftreval"},

	"proto":      {key: keyProto, kind: word, words: []string{"tcp", "tcp6", "udp", "udp6", "rdma", "rdma6"}},
	"tcp":        {key: keyProto, value: "tcp"},
	"udp":        {key: keyProto, value: "udp"},
	"rdma":       {key: keyProto, value: "rdma"},
	"resvport":   {key: keyResvPort, value: "resvport"},
	"noresvport": {key: keyResvPort, value: "noresvport"},
	"sec":        {key: keySec, kind: words, words: []string{"none", "sys", "krb5", "krb5i", "krb5p"}},
	"xprtsec":    {key: "xprtsec", kind: word, words: []string{"none", "tls", "mtls"}},

	"sync":  {key: keySync, value: "sync", warning: "makes every write wait for the server"},
	"async": {key: keySync, value: "async"},
	"ro":    {key: "rw", value: "ro"},
	"rw":    {key: "rw", value: "rw"},

	"lookupcache":  {key: keyLookupCache, kind: word, words: []string{"all", "none", "pos", "positive"}},
	"lock":         {key: keyLock, value: "lock"},
	"nolock":       {key: keyLock, value: "nolock"},
	"local_lock":   {key: keyLocalLock, kind: word, words: []string{"all", "flock", "posix", "none"}},
	"acl":          {key: "acl", value: "acl"},
	"noacl":        {key: "acl", value: "noacl"},
	"sharecache":   {key: "sharecache", value: "sharecache"},
	"nosharecache": {key: "sharecache", value: "nosharecache", warning: "gives each mount a cache of its own: mounts of one file may disagree"},
	"rdirplus":     {key: "rdirplus", value: "rdirplus"},
	"nordirplus":   {key: "rdirplus", value: "nordirplus"},
	"fsc":          {key: "fsc", value: "fsc"},
	"nofsc":        {key: "fsc", value: "nofsc"},
	"write":        {key: "write", kind: word, words: []string{"lazy", "eager", "wait"}},
	"alignwrite":   {key: "alignwrite", value: "alignwrite"},
	"noalignwrite": {key: "alignwrite", value: "noalignwrite"},

	"trunkdiscovery":   {key: "trunkdiscovery", value: "trunkdiscovery"},
	"notrunkdiscovery": {key: "trunkdiscovery", value: "notrunkdiscovery"},

	"intr":        {key: "intr", value: "intr", warning: warnIntr},
	"nointr":      {key: "intr", value: "nointr", warning: warnIntr},
	"atime":       {key: "atime", value: "atime", warning: warnAtime},
	"noatime":     {key: "atime", value: "noatime", warning: warnAtime},
	"relatime":    {key: "atime", value: "relatime", warning: warnAtime},
	"strictatime": {key: "atime", value: "strictatime", warning: warnAtime},
	"diratime":    {key: "diratime", value: "diratime", warning: warnAtime},
	"nodiratime":  {key: "diratime", value: "nodiratime", warning: warnAtime},
	"nosuid":      {key: "suid", value: "nosuid"},
	"nodev":       {key: "dev", value: "nodev"},
	"noexec":      {key: "exec", value: "noexec"},
	"_netdev":     {key: "_netdev", value: "_netdev"},
	"nofail":      {key: "nofail", value: "nofail"},
}

const (
	refuseProtection = "gives up a protection of the mount"
	refuseLabel      = "labels files for SELinux"
	refuseAddress    = "says which server is mounted and how it is reached, which is the volume's own"
	refuseHelper     = "speaks to the mount command, not to the file system"
)

// refused are options that no profile may bring to a volume, with the reason.
var refused = map[string]string{
	"suid": refuseProtection, "dev": refuseProtection, "exec": refuseProtection, "defaults": "stands for suid, dev and exec too",
	"context": refuseLabel, "fscontext": refuseLabel, "defcontext": refuseLabel, "rootcontext": refuseLabel, "seclabel": refuseLabel,
	"user": refuseProtection, "users": refuseProtection, "owner": refuseProtection, "group": refuseProtection,
	"addr": refuseAddress, "clientaddr": refuseAddress, "mountaddr": refuseAddress, "mounthost": refuseAddress,
	"port": refuseAddress, "mountport": refuseAddress, "mountproto": refuseAddress, "mountvers": refuseAddress,
	"remount": refuseHelper, "bind": refuseHelper, "rbind": refuseHelper, "move": refuseHelper, "auto": refuseHelper, "noauto": refuseHelper,
	"comment": refuseHelper, "fg": refuseHelper,
	"bg":     "reports success before anything is mounted",
	"sloppy": "hides options that the kernel does not know",
}

// refusal says why an option may not be brought to a volume; empty where it may.
func refusal(o Option) string {
	if strings.HasPrefix(strings.ToLower(o.Name), "x-") {
		return refuseHelper
	}
	return refused[o.Name]
}

// lookup returns what is known of an option.
func lookup(o Option) (spec, bool) {
	s, ok := specs[o.Name]
	return s, ok
}

// never are keys that the kernel shows nowhere.
var never = map[string]bool{
	"intr": true, "atime": true, "diratime": true, "trunkdiscovery": true, "retry": true,
	"suid": true, "dev": true, "exec": true, "_netdev": true, "nofail": true,
}

// onlyV3 are keys that mean nothing to NFSv4, which does not show them either.
var onlyV3 = map[string]bool{keyLock: true, keyLocalLock: true, "acl": true}

// hidden are keys that the kernel shows only where they differ from this.
var hidden = map[string]string{
	keyCache: "ac", keyCto: "cto", "softreval": "nosoftreval", keyResvPort: "resvport", keySync: "async", keyLock: "lock",
	"acl": "acl", "sharecache": "sharecache", "rdirplus": "rdirplus", keyLookupCache: "all", keyNconnect: "1",
	keyMaxConnect: "1", "fsc": "nofsc", "write": "lazy", "alignwrite": "alignwrite", "xprtsec": "none",
}
