package advice

import (
	_ "embed"

	"github.com/storageclient/operator/tuning/embedded"
)

//go:embed rules.yaml
var rulesYAML []byte

// rules is sorted by ID; a test verifies this.
var rules = embedded.Parse[[]Rule]("rules of the advice", rulesYAML)

// checks has one entry for each rule without an explanation; a test verifies this.
var checks = map[string]func(*scope) []finding{
	"acregmax-default":       acregmaxDefault,
	"actimeo-default":        actimeoDefault,
	"actimeo-range":          actimeoRange,
	"canary-labels":          canaryLabels,
	"hash-below-default":     hashBelowDefault,
	"hash-clamped":           hashClamped,
	"hash-rounded":           hashRounded,
	"hash-small":             hashSmall,
	"intr-no-effect":         intrNoEffect,
	"known-bad-data":         knownBadData,
	"known-bad-kernel":       knownBadKernel,
	"lowers-kernel":          lowersKernel,
	"metadata-on-nfs41":      metadataOnNFS41,
	"nconnect-kernel":        nconnectKernel,
	"nconnect-single":        nconnectSingle,
	"nconnect-slots":         nconnectSlots,
	"next-mount-only":        nextMountOnly,
	"nocto-meaning":          noctoMeaning,
	"option-default":         optionDefault,
	"port-range":             portRange,
	"read-ahead-below-rsize": readAheadBelowRsize,
	"read-ahead-memory":      readAheadMemory,
	"read-ahead-rule-file":   readAheadRuleFile,
	"read-ahead-tail":        readAheadTail,
	"read-ahead-window":      readAheadWindow,
	"route-flush":            routeFlush,
	"rsize-granted":          rsizeGranted,
	"rsize-wsize":            rsizeWsize,
	"sack-off":               sackOff,
	ServerBudget:             serverBudget,
	"server-budget-exceeded": serverBudgetExceeded,
	"server-chunk":           serverChunk,
	"server-copy":            serverCopy,
	"server-sizes":           serverSizes,
	"slots-per-connection":   slotsPerConnection,
	"slots-sessions":         slotsSessions,
	"slots-spelling":         slotsSpelling,
	"soft":                   soft,
	"sync":                   sync,
	"sysctl-no-effect":       sysctlNoEffect,
	"tcp-buffers":            tcpBuffers,
	"tcp-mem":                tcpMem,
	"tcp-minimum":            tcpMinimum,
	"tuned-overlap":          tunedOverlap,
	"volumes-left-out":       volumesLeftOut,
	"writeback-off":          writebackOff,
	"xfs-memory":             xfsMemory,
	"xfs-quota":              xfsQuota,
}
