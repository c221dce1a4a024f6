package advice

import (
	_ "embed"

	"github.com/storageclient/operator/tuning/embedded"
)

//go:embed rules.yaml
var rulesYAML []byte

// rules is sorted by ID; a test verifies this.
var rules = embedded.Parse[[]Rule]("rules of the advice", rulesYAML)

// checks has one entry for each rule without an explanation or signs; a test verifies this.
var checks = map[string]func(*scope){
	"actimeo-range":          actimeoRange,
	"canary-labels":          canaryLabels,
	"hash-below-default":     hashBelowDefault,
	"hash-clamped":           hashClamped,
	"hash-rounded":           hashRounded,
	"hash-small":             hashSmall,
	"known-bad-data":         func(s *scope) { s.addKnownBad(true) },
	"known-bad-kernel":       func(s *scope) { s.addKnownBad(false) },
	"lowers-kernel":          lowersKernel,
	"metadata-on-nfs41":      metadataOnNFS41,
	"nconnect-kernel":        nconnectKernel,
	"nconnect-single":        nconnectSingle,
	"nconnect-slots":         nconnectSlots,
	"option-default":         optionDefault,
	"port-range":             portRange,
	"read-ahead-below-rsize": readAheadBelowRsize,
	"read-ahead-memory":      readAheadMemory,
	"read-ahead-rule-file":   readAheadRuleFile,
	"read-ahead-tail":        readAheadTail,
	"read-ahead-window":      readAheadWindow,
	"rsize-granted":          rsizeGranted,
	"rsize-wsize":            rsizeWsize,
	ServerBudget:             serverBudget,
	"server-budget-exceeded": serverBudgetExceeded,
	"server-chunk":           serverChunk,
	"server-copy":            serverCopy,
	"server-sizes":           serverSizes,
	"slots-per-connection":   slotsPerConnection,
	"slots-sessions":         slotsSessions,
	"slots-spelling":         slotsSpelling,
	"tcp-buffers":            tcpBuffers,
	"tcp-mem":                tcpMem,
	"tcp-minimum":            tcpMinimum,
	"tuned-overlap":          tunedOverlap,
	"volumes-left-out":       volumesLeftOut,
	"xfs-memory":             xfsMemory,
}
