//go:build attack

// Package attack runs attacks on a cluster with the operator: a real API server with the installed manifests, the guardrails, the
// webhooks of the manager, and the credentials that each attacker would have. No kubelet and no controller runs.
// "make test-attack" runs it.
//
// An attack has a harmless twin, a request that must succeed. So a broken client, a missing object or a server that rejects
// everything does not count as a defense. The table also contains attacks that are not stopped.
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

	"github.com/storageclient/operator/test/check"
)

var update = flag.Bool("update", false, "write the table into docs/security-reference.md")

// Defenses, derived from the API server's response. The defense of a policy is its name.
const (
	notStopped      = "not stopped"
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
	// tries describes the attack, after the words "tries to".
	tries string
	// stop is the expected defense. A policy can be given by a prefix of its name that ends with a hyphen.
	stop string
	// want is a part of the expected error.
	want string
	try  func(*actor) error
	// twin is harmless and must succeed. If there is none, alone has the reason.
	twin func(*actor) error
	// twinBy is the identity that runs the twin. The attacker if empty.
	twinBy string
	alone  string
}

// actor is an identity with its client.
type actor struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // it is passed to one function
	client client.WithWatch
	config *rest.Config
	world  *world
}

// allAttacks returns the attacks on the installation: without limits, with limits, and with a component that provides the webhooks' certificate.
func allAttacks() []attack {
	return slices.Concat(attacks(), guardrailAttacks(), controlPlaneAttacks(), certificateAttacks())
}

func attacks() []attack {
	return slices.Concat(agentAttacks(), managerAttacksOnWorkloads(), managerAttacksOnNodes(), managerAttacksOnVolumes(), managerAttacksOnOurs(),
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
	w.dirty.Store(true) // a Pod was deleted, and its token must be invalid
	w.reset(t)
	awaitPolicies(t, people)

	checkNames(t, c)
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
	c.includeControlPlane(t, people[manager])
	play(controlPlaneAttacks())
	c.giveCertificates(t, people[manager])
	play(certificateAttacks())
	fmt.Print(table.String())
	if left > 0 {
		t.Logf("-run skipped %d attacks, so the table is not compared", left)
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
	check.NoError(t, err)
	return &actor{client: w.recording(c), config: config, world: w}
}

// as returns the actor for one test.
func (a *actor) as(t *testing.T) *actor {
	b := *a
	b.t, b.ctx = t, t.Context()
	return &b
}

// play runs an attack and its twin and returns the defense that stopped it.
func (w *world) play(t *testing.T, people map[string]*actor, a attack) string {
	t.Helper()
	defer w.reset(t)
	err := a.try(people[a.by].as(t))
	seen := stoppedBy(err)
	switch {
	case !isStop(seen, a.stop):
		t.Errorf("%s tries to %s: got defense %q, want %q: %v", a.by, a.tries, seen, a.stop, err)
	case err != nil && (a.want == "" || !strings.Contains(err.Error(), a.want)):
		t.Errorf("%s tries to %s: got error %v, want an error with %q", a.by, a.tries, err, a.want)
	}
	switch {
	case a.twin == nil && a.alone == "" && a.stop != notStopped:
		t.Error("got neither a twin nor a reason in alone, want one of them")
	case a.twin != nil:
		w.reset(t)
		by := a.twinBy
		if by == "" {
			by = a.by
		}
		if err := a.twin(people[by].as(t)); err != nil {
			t.Errorf("the harmless twin as %s: got error %v, want none", by, err)
		}
	}
	if strings.Contains(a.stop, either) {
		return a.stop
	}
	return seen
}

// isStop reports whether the observed defense is the expected one. A policy can be given by a prefix of its name. If two policies
// deny a request, the API server names either.
func isStop(seen, wanted string) bool {
	if first, second, ok := strings.Cut(wanted, either); ok {
		return seen == first || seen == "policy "+second
	}
	return seen == wanted || strings.HasSuffix(wanted, "-") && strings.HasPrefix(seen, wanted)
}

const either = " or "

var policyName = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' with binding`)

// stopped is the error of an attack that was stopped before the API server. by is the defense.
type stopped struct{ by, message string }

func (s stopped) Error() string { return s.message }

// stoppedBy returns the defense that caused an error. For any other error it returns its text.
func stoppedBy(err error) string {
	var local stopped
	if err == nil {
		return notStopped
	}
	text := err.Error()
	policy := policyName.FindStringSubmatch(text)
	switch {
	case errors.As(err, &local):
		return local.by
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
	return "no denial: " + text
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
	return "unknown denial: " + text
}

func compareTable(t *testing.T, table string) {
	t.Helper()
	before, rest, _ := strings.Cut(readSecurity(t), beginMark)
	current, after, found := strings.Cut(rest, endMark)
	if !found {
		t.Fatalf("docs/security-reference.md does not contain %s and %s", beginMark, endMark)
	}
	table = "\n" + table
	if current == table {
		return
	}
	if !*update {
		t.Error(`the table in docs/security-reference.md is outdated: run "make test-attack TESTFLAGS=-update" and review the difference`)
		return
	}
	if t.Failed() {
		t.Error("the table is not written, because an attack was not stopped by its expected defense")
		return
	}
	check.NoError(t, os.WriteFile(securityFile, []byte(before+beginMark+table+endMark+after), 0o600))
}

// raw sends a request that typed clients do not support.
func (a *actor) raw(method, path string) error {
	c, err := kubernetes.NewForConfig(a.config)
	if err != nil {
		return err
	}
	return c.Discovery().RESTClient().Verb(method).AbsPath(path).Do(a.ctx).Error()
}

// admin returns the administrator's client.
func (a *actor) admin() client.WithWatch { return a.world.recording(a.world.cluster.admin) }

// get reads an object as the administrator.
func (a *actor) get(object client.Object) {
	a.t.Helper()
	check.NoError(a.t, a.world.cluster.admin.Get(a.ctx, client.ObjectKeyFromObject(object), object))
}
