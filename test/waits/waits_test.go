// Package waits checks that each wait in the cluster has a bound, or a message that names the action of a user.
package waits

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/test/check"
)

// wait describes one reason to wait. Exactly one field is set.
type wait struct {
	// bound is the identifier that ends the wait: a function, a constant, or a field of the API.
	bound string
	// action is the part of the message that names the action of a user.
	action string
	// finished explains why the reason is no wait: the node is in its final state, or the reason lasts one pass.
	finished string
}

const (
	final   = "final state; a change of the settings or the kubectl command retry starts again"
	onePass = "lasts one pass"
)

// rollout contains the reasons of the notes of nodes, by the name of the constant.
var rollout = map[string]wait{
	"RolloutReasonNothingToDo":            {finished: final},
	"RolloutReasonRestoredAtNextBoot":     {finished: final},
	"RolloutReasonEffectiveAtNextBoot":    {finished: final},
	"RolloutReasonSettingsFailed":         {finished: final},
	"RolloutReasonRebootWithoutEffect":    {finished: final},
	"RolloutReasonNodeLost":               {finished: final},
	"RolloutReasonAccepted":               {finished: onePass},
	"RolloutReasonClaimed":                {finished: onePass},
	"RolloutReasonApplying":               {action: "The agent has not reported the desired settings yet; if it stays silent, check its Pod"},
	"RolloutReasonSettingsChanging":       {action: "see its condition Tuned"},
	"RolloutReasonAgentSilent":            {action: "The agent has not reported since the node's last boot; check its Pod"},
	"RolloutReasonNodeUnavailable":        {action: "bring "},
	"RolloutReasonNodeDeleting":           {action: "it uses up budget until it is gone; if the Node stays, remove its finalizers"},
	"RolloutReasonNodeLeaving":            {action: " if the node stays"},
	"RolloutReasonNodeInMaintenance":      {action: "or delete its Node if it will not return"},
	"RolloutReasonCordonedByOthers":       {action: "or delete its Node if it will not return"},
	"RolloutReasonCordonLost":             {bound: "RetryAfter"},
	"RolloutReasonNodePaused":             {action: "The Node has the annotation "},
	"RolloutReasonNodeIgnored":            {action: "The Node has the annotation "},
	"RolloutReasonNeverDisrupt":           {action: "The Node has the annotation "},
	"RolloutReasonRebootPolicyNever":      {action: "has reboot policy Never"},
	"RolloutReasonProfileGone":            {action: "which does not exist"},
	"RolloutReasonWaitingForApproval":     {action: "needs approval; next: kubectl storageclient approve"},
	"RolloutReasonWaitingForBudget":       {action: "or delete its Node if it will not return"},
	"RolloutReasonWaitingForWindow":       {bound: "checkWindows"},
	"RolloutReasonWindowsDisjoint":        {action: "are never open together"},
	"RolloutReasonWaitingForZone":         {bound: "ZonePatience"},
	"RolloutReasonWaitingForCanary":       {action: "rollout.canary.nodeSelector must select a node that can be rebooted"},
	"RolloutReasonCanaryFailed":           {action: "or retry: kubectl storageclient retry "},
	"RolloutReasonFailureThreshold":       {action: "or retry: kubectl storageclient retry "},
	"RolloutReasonConfigMapImmutable":     {action: "delete it, and create it again without immutable"},
	"RolloutReasonLastControlPlaneNode":   {action: "reboot it by hand"},
	"RolloutReasonWaitingForControlPlane": {action: "or delete its Node if it will not return"},
	"RolloutReasonManagerNodeLast":        {bound: "turnReasons"},
	"RolloutReasonOnlyManagerNode":        {action: "or reboot the node by hand"},
	"RolloutReasonOnlySchedulableNode":    {action: "add a node, or reboot the node by hand"},
	"RolloutReasonLeavingLoadBalancers":   {bound: "ExcludeFromLoadBalancersSeconds"},
	"RolloutReasonDraining":               {bound: "drainDeadline"},
	"RolloutReasonDrainBlocked":           {bound: "drainDeadline"},
	"RolloutReasonDrainError":             {bound: "drainDeadline"},
	"RolloutReasonWaitingForPods":         {bound: "drainDeadline"},
	"RolloutReasonMountsBusy":             {bound: "drainDeadline"},
	"RolloutReasonVolumesInUse":           {bound: "volumesPatience"},
	"RolloutReasonStorageUnreachable":     {action: "Not draining, because the drain would hang"},
	"RolloutReasonBackingOff":             {bound: "RetryAfter"},
	"RolloutReasonDrainTimedOut":          {bound: "RetryAfter"},
	"RolloutReasonPermitGiven":            {bound: "permitDeadline"},
	"RolloutReasonHostBusy":               {bound: "permitDeadline"},
	"RolloutReasonRebootStarted":          {bound: "rebootDeadline"},
	"RolloutReasonPermitRefused":          {bound: "RefusalPause"},
	"RolloutReasonWaitingForNode":         {bound: "rebootDeadline"},
	"RolloutReasonSettling":               {bound: "SettleSeconds"},
	"RolloutReasonRebootTimedOut":         {action: "check the log of its Pod"},
	"RolloutReasonAttemptsUsedUp":         {action: "compare desired and observed values in status.settings"},

	"ReasonPausedByAnnotation": {action: "Everything is paused by the annotation on the manager's namespace"},
}

// live contains the notes of nodes that wait for live settings or the read-ahead of volumes.
var live = map[string]wait{
	"stopped; settings failed on ":                     {action: "; check these nodes, or change the settings"},
	"; check these nodes, or change the settings":      {action: "; check these nodes, or change the settings"},
	"; skipped (agent not started for %d minutes): %s": {bound: "LostAfter"},
	"stopped; settings failed on %s by the word of storage server %s alone; a node without mounts from it must prove them": {action: "a node without mounts from it must prove them"},
	"waiting for a canary; rollout.canary.nodeSelector selects no Ready node with the same settings":                       {action: "rollout.canary.nodeSelector selects no Ready node"},
	"blocked by the failed canary: ": {action: "; check these nodes, or change the settings"},
	// The canary proves the settings in its soak, fails, or does not confirm them.
	"waiting for the canary: %s%s":                   {bound: "unconfirmedOf"},
	"waiting for the canary":                         {bound: "Soak"},
	"; not confirmed on : ":                          {action: "; resolve it, or annotate the Node with "},
	"; resolve it, or annotate the Node with =true":  {action: "; resolve it, or annotate the Node with "},
	"waiting until the node and its agent are Ready": {action: "the node and its agent are Ready"},
	// The nodes ahead confirm the settings, fail, or are named.
	"queued; at most %s at a time": {bound: "unconfirmedOf"},
	"queued; at most %s in the cluster at a time; see the condition Tuned of the Nodes": {action: "see the condition Tuned of the Nodes"},
}

// trials contains the first words of the messages of trials with the reason Waiting.
var trials = map[string]wait{
	"Waiting: ":                           {bound: "isTimedOut"},
	"Requesting samples from ":            {bound: "isTimedOut"},
	"Waiting for probes to finish":        {bound: "maxTurn"},
	"Waiting for its turn":                {bound: "maxTurn"},
	"Waiting for another trial to finish": {bound: "maxTurn"},
	"Waiting for earlier trials in namespace %s: at most %d are in the queue": {bound: "maxTurn"},
	"Waiting for a node that nodeSelector allows, that is in service, and that has an agent and no other trial; " +
		"a profile that selects a node brings its agent, except in mode Plan": {bound: "isTimedOut"},
}

// source is the Go source of packages, without tests.
type source struct {
	files  []*ast.File
	idents sets.Set[string]
	// texts are all constant strings. Parts that are joined with + are one string.
	texts []string
}

func read(t *testing.T, dirs ...string) *source {
	t.Helper()
	s := &source{idents: sets.New[string]()}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("got no source in %s: %v", dir, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			check.NoError(t, err)
			s.files = append(s.files, file)
		}
	}
	s.visit(func(n ast.Node) {
		if ident, ok := n.(*ast.Ident); ok {
			s.idents.Insert(ident.Name)
		}
	})
	for _, file := range s.files {
		s.texts = append(s.texts, textsIn(file)...)
	}
	return s
}

func (s *source) visit(visit func(ast.Node)) {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			visit(n)
			return true
		})
	}
}

// textsIn returns the constant strings below a node in their order, and joins parts of a sum.
func textsIn(node ast.Node) []string {
	var out []string
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			left, right := textsIn(n.X), textsIn(n.Y)
			if _, isText := n.Y.(*ast.BasicLit); isText && len(left) > 0 && len(right) == 1 {
				left[len(left)-1] += right[0]
				right = nil
			}
			out = append(out, append(left, right...)...)
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				out = append(out, text)
			}
		}
		return true
	})
	return out
}

func (s *source) check(t *testing.T, found []string, table map[string]wait) {
	t.Helper()
	if known := sets.New(found...); len(found) == 0 || !known.Equal(sets.KeySet(table)) {
		t.Errorf("without a row here: %q; without a wait in the source: %q", sets.List(known.Difference(sets.KeySet(table))), sets.List(sets.KeySet(table).Difference(known)))
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		w := table[name]
		filled := slices.DeleteFunc([]string{w.bound, w.action, w.finished}, func(text string) bool { return text == "" })
		switch {
		case len(filled) != 1:
			t.Errorf("%q: got %d fields, want a bound, an action, or a final state", name, len(filled))
		case w.bound != "" && !s.idents.Has(w.bound):
			t.Errorf("%q: the source has no %s, which bounds the wait", name, w.bound)
		case w.action != "" && !slices.ContainsFunc(s.texts, func(text string) bool { return strings.Contains(text, w.action) }):
			t.Errorf("%q: no message contains the action %q", name, w.action)
		}
	}
}

func TestEachReasonOfARolloutNoteHasABoundOrAnAction(t *testing.T) {
	names := []string{"ReasonPausedByAnnotation"}
	read(t, "api/v1alpha1").visit(func(n ast.Node) {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, name := range spec.Names {
				if strings.HasPrefix(name.Name, "RolloutReason") {
					names = append(names, name.Name)
				}
			}
		}
	})
	read(t, "controllers/rollout/plan").check(t, names, rollout)
}

func TestEachNoteOfALiveWaitHasABoundOrAnAction(t *testing.T) {
	s := read(t, "controllers/internal/livegate")
	var notes []string
	for _, text := range s.texts {
		if len(strings.Fields(text)) > 2 {
			notes = append(notes, text)
		}
	}
	s.check(t, notes, live)
}

func TestEachMessageOfAWaitingTrialHasABoundOrAnAction(t *testing.T) {
	s := read(t, "controllers/trial/plan")
	var messages []string
	s.visit(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return
		}
		isWait := function.Sel.Name == "awaitTurn" || slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
			reason, ok := arg.(*ast.SelectorExpr)
			return ok && reason.Sel.Name == "TrialReasonWaiting"
		})
		if texts := textsIn(call); isWait && len(texts) > 0 {
			messages = append(messages, texts[0])
		}
	})
	s.check(t, messages, trials)
}
