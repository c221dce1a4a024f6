//go:build attack

// Package attack plays attacks on a cluster with the operator: a real API server with the manifests as they are installed, the
// guardrails, the webhooks that the manager serves, and the credentials that each attacker would have. No kubelet and no
// controller runs. "make test-attack" runs it.
//
// An attack has a harmless twin: what the same identity may do, or another may, so that a broken client, a missing object or a server that refuses
// everything cannot pass for a defence. What nobody stops stands in the table, too.
package attack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var update = flag.Bool("update", false, "write the table into docs/security-reference.md")

// Stops, as the answers tell them apart. That of a policy is its name.
const (
	nobody          = "not stopped"
	byRBAC          = "RBAC"
	byToken         = "authentication"
	byAgentFence    = "policy storage-client-node-agent"
	byManagerFence  = "policy storage-client-manager-"
	byApproval      = "policy storage-client-approval"
	byTryPolicy     = "policy storage-client-trial-options"
	byGuardrails    = "policy storage-client-guardrails"
	byCRD           = "CRD"
	byWebhook       = "webhook"
	byNodeAuthz     = "Node authorizer"
	byNodeAdmission = "NodeRestriction"
	byPodSecurity   = "Pod Security"
	byKubernetes    = "Kubernetes' validation"
	byAgent         = "agent"
	byManager       = "manager"
)

// attack is one row of the table.
type attack struct {
	// id is the name of the attack in the security reference and in reports.
	id string
	// by is the attacker.
	by string
	// tries says what.
	tries string
	// stop is what is to stop it; a policy may be given by the beginning of its name, with the hyphen.
	stop string
	// says is a part of the answer, so that the stop is the one that is meant.
	says string
	try  func(*actor) error
	// twin is harmless and has to succeed; the reason why there is none stands in alone.
	twin func(*actor) error
	// twinBy is who does it, where that is not the attacker.
	twinBy string
	alone  string
}

// actor is an identity at work.
type actor struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // it is handed to one function
	client client.WithWatch
	config *rest.Config
	world  *world
}

// allAttacks are those on the installation without ceilings, with them, and with a component that gives the webhooks their certificate.
func allAttacks() []attack {
	return slices.Concat(attacks(), guardrailAttacks(), certificateAttacks())
}

func attacks() []attack {
	return slices.Concat(agentAttacks(), managerAttacksOnWorkloads(), managerAttacksOnNodes(), managerAttacksOnVolumes(), managerAttacksOnClones(), managerAttacksOnOurs(),
		managerAttacksOnIdentities(), authorAttacks(), approvalAttacks(), otherAttacks(), specAttacks(), sampleAttacks(), trialAttacks())
}

// TestAttacks needs what "make test-attack" builds.
func TestAttacks(t *testing.T) {
	c := startCluster(t)
	c.install(t)
	w := newWorld(t, c)
	people := map[string]*actor{}
	for name, config := range c.identities(t) {
		people[name] = w.newActor(t, config)
	}
	w.dirty.Store(true) // a Pod is gone whose token is to be worth nothing
	w.reset(t)
	awaitPolicies(t, people)

	w.playClone(t, people[manager])
	var table strings.Builder
	table.WriteString(tableHead)
	left := 0
	play := func(all []attack) {
		left += len(all)
		for _, a := range all {
			t.Run(a.id, func(t *testing.T) {
				left--
				seen := w.play(t, people, a)
				fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", a.id, a.by, a.tries, seen)
			})
		}
	}
	play(attacks())
	setCeilings(t, c, ceilings)
	play(guardrailAttacks())
	c.giveCertificates(t, people[manager])
	play(certificateAttacks())
	fmt.Print(table.String())
	if left > 0 {
		t.Logf("-run has left out %d attacks, so the table is not compared", left)
		return
	}
	compareTable(t, table.String())
}

const tableHead = "| Attack | Attacker | Tries to | Stopped by |\n|---|---|---|---|\n"

func (w *world) newActor(t *testing.T, config *rest.Config) *actor {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: w.cluster.admin.RESTMapper()})
	must(t, err)
	return &actor{client: w.recording(c), config: config, world: w}
}

// as is the actor in one test.
func (a *actor) as(t *testing.T) *actor {
	b := *a
	b.t, b.ctx = t, t.Context()
	return &b
}

// play plays an attack and its twin and returns who stopped it.
func (w *world) play(t *testing.T, people map[string]*actor, a attack) string {
	t.Helper()
	defer w.reset(t)
	err := a.try(people[a.by].as(t))
	seen := stoppedBy(err)
	switch {
	case !isStop(seen, a.stop):
		t.Errorf("%s %s: stopped by %q, want %q: %v", a.by, a.tries, seen, a.stop, err)
	case err != nil && (a.says == "" || !strings.Contains(err.Error(), a.says)):
		t.Errorf("%s %s: the answer is to say %q: %v", a.by, a.tries, a.says, err)
	}
	switch {
	case a.twin == nil && a.alone == "" && a.stop != nobody:
		t.Error("neither a twin nor a reason why there is none")
	case a.twin != nil:
		w.reset(t)
		by := a.twinBy
		if by == "" {
			by = a.by
		}
		if err := a.twin(people[by].as(t)); err != nil {
			t.Errorf("the harmless twin of %s: %v", by, err)
		}
	}
	if strings.Contains(a.stop, either) {
		return a.stop
	}
	return seen
}

// isStop tells whether the stop that was seen is the wanted one. A policy may be wanted by the beginning of its name, and of two that
// both refuse, the API server names either.
func isStop(seen, wanted string) bool {
	if first, second, ok := strings.Cut(wanted, either); ok {
		return seen == first || seen == "policy "+second
	}
	return seen == wanted || strings.HasSuffix(wanted, "-") && strings.HasPrefix(seen, wanted)
}

const either = " or "

var policyName = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' with binding`)

// stopped is an error of ours that names who stopped an attack which reached no API server.
type stopped struct{ by, message string }

func (s stopped) Error() string { return s.message }

// stoppedBy tells from an answer who gave it. What is no refusal is told as it is.
func stoppedBy(err error) string {
	var ours stopped
	if err == nil {
		return nobody
	}
	text := err.Error()
	policy := policyName.FindStringSubmatch(text)
	switch {
	case errors.As(err, &ours):
		return ours.by
	case apierrors.IsUnauthorized(err):
		return byToken
	case policy != nil:
		return "policy " + policy[1]
	case strings.Contains(text, "admission webhook ") && strings.Contains(text, "denied the request"):
		return byWebhook
	case apierrors.IsForbidden(err):
		return forbiddenBy(text)
	case apierrors.IsInvalid(err) && strings.Contains(text, "tuning.storageclient.dev"):
		return byCRD
	case apierrors.IsInvalid(err):
		return byKubernetes
	}
	return "no refusal: " + text
}

func forbiddenBy(text string) string {
	switch {
	case strings.Contains(text, `User "system:node:`):
		return byNodeAuthz
	case strings.Contains(text, `node "node-1"`), strings.Contains(text, "node requested token"):
		return byNodeAdmission
	case strings.Contains(text, "violates PodSecurity"):
		return byPodSecurity
	case strings.Contains(text, `User "`) && strings.Contains(text, " cannot "), strings.Contains(text, "attempting to grant RBAC permissions"):
		return byRBAC
	}
	return "no known refusal: " + text
}

func compareTable(t *testing.T, table string) {
	t.Helper()
	before, rest, _ := strings.Cut(readSecurity(t), beginMark)
	was, after, found := strings.Cut(rest, endMark)
	if !found {
		t.Fatalf("the security reference lacks %s or %s", beginMark, endMark)
	}
	table = "\n" + table
	if was == table {
		return
	}
	if !*update {
		t.Error(`the security reference has another table: run "make test-attack TESTFLAGS=-update" and read what has changed`)
		return
	}
	if t.Failed() {
		t.Error("not written: an attack was not stopped as it is to be")
		return
	}
	must(t, os.WriteFile(securityFile, []byte(before+beginMark+table+endMark+after), 0o600))
}

// raw sends a request that no typed client has.
func (a *actor) raw(method, path string) error {
	c, err := kubernetes.NewForConfig(a.config)
	if err != nil {
		return err
	}
	return c.Discovery().RESTClient().Verb(method).AbsPath(path).Do(a.ctx).Error()
}

// admin writes as the administrator.
func (a *actor) admin() client.WithWatch { return a.world.recording(a.world.cluster.admin) }

// get reads an object as the administrator sees it.
func (a *actor) get(object client.Object) {
	a.t.Helper()
	must(a.t, a.world.cluster.admin.Get(a.ctx, client.ObjectKeyFromObject(object), object))
}
