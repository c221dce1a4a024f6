package simulation

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/memapi"
)

// permitted returns a story in which node a has a permit, and its agent does not use it for 77 hours.
func permitted(t *testing.T) *story {
	t.Helper()
	s := tell(t)
	s.nodes("a", "z")
	s.profile("eda", nil, "a")
	s.untilSilent("a", 77*time.Hour)
	return s
}

func (s *story) annotate(object memObject, key string) {
	memapi.Change(s.api, byPeople, object, func(o memObject) {
		all := o.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[key] = v1alpha1.True
		o.SetAnnotations(all)
	})
}

func editRollout(change func(*v1alpha1.StorageClientProfile)) func(*story) {
	return func(s *story) { s.edit("eda", change) }
}

func annotateNode(key string) func(*story) {
	return func(s *story) { s.annotate(s.world.node("a"), key) }
}

// stops are the ways by which a person stops a disruption.
var stops = map[string]func(*story){
	"everything is paused": func(s *story) {
		s.annotate(s.api.Get(memapi.Namespaces, "", v1alpha1.ManagerNamespace), v1alpha1.PausedAnnotation)
	},
	"the profile is paused":       editRollout(func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true }),
	"the profile is in mode Plan": editRollout(func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }),
	"the policy is Never":         editRollout(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.Policy = v1alpha1.RebootNever }),
	"the approval is gone":        editRollout(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.Policy = v1alpha1.RebootOnApproval }),
	"the Node is paused":          annotateNode(v1alpha1.PausedAnnotation),
	"the Node is ignored":         annotateNode(v1alpha1.IgnoreAnnotation),
	"the Node is never disrupted": annotateNode(v1alpha1.NeverDisruptAnnotation),
	"a user uncordons the Node": func(s *story) {
		s.changeNode(byPeople, "a", func(n *corev1.Node) { n.Spec.Unschedulable = false })
	},
}

// A person stops a node whose agent does not use its permit. One pass later the permit is gone, and the node is in service.
func TestAPersonEndsAPermit(t *testing.T) {
	for name, stop := range stops {
		for _, isNeedKnown := range []bool{true, false} {
			t.Run(name+map[bool]string{true: "", false: ", need unknown"}[isNeedKnown], func(t *testing.T) {
				s := permitted(t)
				if !isNeedKnown {
					s.edit("eda", func(p *v1alpha1.StorageClientProfile) {
						p.Spec.Node.Sysctls["net.core.somaxconn"] = "4096"
					})
					s.manager.cache.Sync()
					s.manager.runNodes(true)
				}
				stop(s)
				s.pass()
				s.wantInService("a")
				if note := s.note("a"); note.Phase != v1alpha1.RolloutWaiting && isNeedKnown || note.Attempts != 0 {
					t.Errorf("got note %+v, want Waiting without an attempt", note)
				}
			})
		}
	}
}

// The agent is back after days. No user has stopped the node, but the time of its permit is over.
func TestAnUnusedPermitEnds(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.StorageClientProfile){
		"no rule changes":   func(*v1alpha1.StorageClientProfile) {},
		"the window closes": window("0 10 * * *", 300),
	} {
		t.Run(name, func(t *testing.T) {
			s := permitted(t)
			given, id := s.now, s.clientNode("a").Spec.RebootPermit.ID
			s.edit("eda", change)
			s.until("the permit ends", func() bool { return !s.isPermitted("a") })
			if took := s.now.Sub(given); took < 16*time.Minute || took > 17*time.Minute {
				t.Errorf("the permit ended after %s, want its 15 minutes and a minute", took)
			}
			note := s.note("a")
			if note.Phase != v1alpha1.RolloutFailed || note.Reason != v1alpha1.RolloutReasonRebootTimedOut || note.Attempts != 0 || note.RetryAfter == nil {
				t.Errorf("got note %+v, want Failed RebootTimedOut with a pause and without an attempt", note)
			}
			s.wantInService("a")
			if recorded := s.failures("eda").Boots; len(recorded) != 1 {
				t.Errorf("got failures %+v, want one", recorded)
			}
			s.play(100 * time.Hour)
			if s.machines["a"].used[id] != "" {
				t.Error("the agent used the permit after its end")
			}
		})
	}
}

// failures returns the recorded failures of a profile.
func (s *story) failures(profile string) v1alpha1.ProfileFailures {
	s.t.Helper()
	value, isRecorded := claimsOf(s.api.Get(memapi.ConfigMaps, v1alpha1.ManagerNamespace, v1alpha1.FailuresConfigMap))[profile]
	if !isRecorded {
		return v1alpha1.ProfileFailures{}
	}
	failures, err := v1alpha1.DecodeFailures(value)
	if err != nil {
		s.t.Error(err)
	}
	return failures
}

// isWithdrawal reports whether a call withdraws the permit of node a.
func (s *story) isWithdrawal(call memapi.Call) bool {
	return call.Actor == byRollout && call.Kind == memapi.ClientNodes && call.Verb == "patch" && !call.Status && s.isPermitted("a")
}

var (
	errPolicy  = apierrors.NewForbidden(corev1.Resource("things"), "a", errors.New("policy x"))
	withdrawal = map[string]struct {
		fate memapi.Fate
		err  error
		// The note contains this text, unless the withdrawal took effect.
		refusal string
	}{
		"the withdrawal is refused": {memapi.Refused, errPolicy, "policy x"},
		"its request is lost":       {memapi.Refused, errTimeout, "in time"},
		"its response is lost":      {memapi.Unanswered, errTimeout, ""},
	}
)

// A user uncordons a node whose permit cannot be withdrawn. The node is cordoned again, and returns to service once the permit is gone.
func TestACordonStaysWhileThePermitDoes(t *testing.T) {
	for name, test := range withdrawal {
		t.Run(name, func(t *testing.T) {
			s := permitted(t)
			s.changeNode(byPeople, "a", func(n *corev1.Node) { n.Spec.Unschedulable = false })
			s.intercept = func(call memapi.Call) (memapi.Fate, error) {
				if s.isWithdrawal(call) {
					return test.fate, test.err
				}
				return memapi.Answered, nil
			}
			for range 3 {
				if s.pass(); s.isPermitted("a") && !s.isCordonedNode("a") {
					t.Fatal("the node is schedulable, and its agent may reboot it")
				}
				if s.manager.err == nil && s.isPermitted("a") && s.manager.wait < 10*time.Second {
					t.Errorf("the withdrawal is tried again after %s, want a pause of 10s", s.manager.wait)
				}
				s.now = s.now.Add(time.Second)
			}
			s.intercept = nil
			s.pass()
			s.wantInService("a")
			if note := s.note("a"); note.RetryAfter == nil || note.Attempts != 0 {
				t.Errorf("got note %+v, want a pause", note)
			}
		})
	}
}

// The cordon and the claim stay until the withdrawal of the permit is certain.
func TestThePermitGoesBeforeTheCordonAndTheClaim(t *testing.T) {
	for name, test := range withdrawal {
		for _, isStarted := range []bool{false, true} {
			if isStarted && test.fate == memapi.Unanswered {
				continue
			}
			t.Run(name+map[bool]string{true: ", the agent starts"}[isStarted], func(t *testing.T) {
				s := permitted(t)
				s.edit("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true })
				s.intercept = func(call memapi.Call) (memapi.Fate, error) {
					if s.isWithdrawal(call) {
						return test.fate, test.err
					}
					return memapi.Answered, nil
				}
				s.pass()
				if n := s.world.node("a"); !n.Spec.Unschedulable || !hasMark(n) || !s.isClaimed("a") {
					t.Errorf("got cordoned %t, annotation %t, claimed %t, want all of them to stay", n.Spec.Unschedulable, hasMark(n), s.isClaimed("a"))
				}
				if note := s.note("a"); !containsAll(note.Refusal, test.refusal) {
					t.Errorf("got refusal %q, want %q in it", note.Refusal, test.refusal)
				}
				if isStarted {
					s.machines["a"].silentUntil = s.now
					s.runAgent(s.machines["a"])
				}
				s.intercept = nil
				s.now = s.now.Add(time.Second)
				s.pass()
				check.Equal(t, "in the next pass: permit, cordon and claim", isStarted, s.isPermitted("a") && s.isCordonedNode("a") && s.isClaimed("a"))
			})
		}
	}
}

// TestARejectedWriteIsReportedOnTheNodeOnce expects the error in the note of the node, one log line and one write.
func TestARejectedWriteIsReportedOnTheNodeOnce(t *testing.T) {
	s := tell(t)
	s.nodes("a", "z")
	s.profile("eda", nil, "a")
	s.prepare()
	memapi.Change(s.api, byPeople, s.clientNode("a"), func(c *v1alpha1.StorageClientNode) {
		c.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: "x", Message: "Waiting for its turn", Since: &metav1.Time{Time: s.now}}
	})
	writes, errs := 0, 0
	s.intercept = func(call memapi.Call) (memapi.Fate, error) {
		if call.Actor == byRollout && call.Kind == memapi.ClientNodes && call.IsWrite() {
			writes++
		}
		if call.Actor == byRollout && call.Kind == memapi.Nodes && call.Verb == "patch" && !call.Status {
			return memapi.Refused, errPolicy
		}
		return memapi.Answered, nil
	}
	for range 5 {
		s.pass()
		switch {
		case s.manager.err != nil:
			errs++
		case s.manager.wait < time.Second || s.manager.wait > 10*time.Second:
			t.Errorf("got the next attempt after %s, want at most 10s and not at once", s.manager.wait)
		}
		s.now = s.now.Add(time.Second)
	}
	if note := s.note("a"); errs != 1 || writes != 1 || !containsAll(note.Refusal, "forbidden") || note.Message != "Waiting for its turn" {
		t.Errorf("got %d errors, %d writes, note %+v; want one error, one write, and the message", errs, writes, note)
	}
	s.intercept = nil
	s.play(10 * time.Second)
	if note := s.note("a"); note.Refusal != "" || !s.isCordonedNode("a") {
		t.Errorf("got cordoned %t, note %+v; want a cordon and no rejection", s.isCordonedNode("a"), note)
	}
}

// refuseMap has a policy reject the rollout's writes of a ConfigMap.
func (s *story) refuseMap(name string) {
	s.refuse(name, memapi.ConfigMaps, false, always)
}

// passes lets the rollout make passes at an interval.
func (s *story) passes(count int, interval time.Duration) {
	for range count {
		s.pass()
		s.now = s.now.Add(interval)
	}
}

// A withdrawal is a stop: it waits for no write of a ConfigMap. The cordon stays, and the disruption ends in the same way once the write works.
func TestAWithdrawalWaitsForNoOtherWrite(t *testing.T) {
	for name, test := range map[string]struct {
		prepare  func(*story)
		reason   string
		failures int
	}{
		"the claim is missing and cannot be added": {
			prepare: func(s *story) {
				claims := s.api.Get(memapi.ConfigMaps, v1alpha1.ManagerNamespace, v1alpha1.BudgetConfigMap).(*corev1.ConfigMap)
				memapi.Change(s.api, byPeople, claims, func(c *corev1.ConfigMap) { delete(c.Data, "a") })
				s.edit("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true })
				s.refuseMap(v1alpha1.BudgetConfigMap)
			},
			reason: v1alpha1.ReasonPausedByField,
		},
		"the failure of an overdue permit cannot be recorded": {
			prepare: func(s *story) {
				s.refuseMap(v1alpha1.FailuresConfigMap)
				s.now = s.now.Add(16 * time.Minute)
				s.passes(1, 2*time.Minute)
			},
			reason:   v1alpha1.RolloutReasonRebootTimedOut,
			failures: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := permitted(t)
			test.prepare(s)
			for range 2 {
				s.passes(1, time.Second)
				if n := s.world.node("a"); s.isPermitted("a") || !n.Spec.Unschedulable || !hasMark(n) {
					t.Errorf("got permit %t, cordoned %t, annotation %t, want no permit and the cordon", s.isPermitted("a"), n.Spec.Unschedulable, hasMark(n))
				}
			}
			s.intercept = nil
			s.passes(2, time.Second)
			s.wantInService("a")
			if note := s.note("a"); note.Reason != test.reason || note.Attempts != 0 {
				t.Errorf("got note %+v, want reason %s without an attempt", note, test.reason)
			}
			if recorded := s.failures("eda").Boots; len(recorded) != test.failures {
				t.Errorf("got failures %+v, want %d", recorded, test.failures)
			}
		})
	}
}

// Only the claim records that a permit is overdue. While it cannot be written, the note names the cause. The agent itself does not use the permit
// after its end.
func TestAnOverduePermitNamesTheWriteThatItWaitsFor(t *testing.T) {
	s := permitted(t)
	s.refuseMap(v1alpha1.BudgetConfigMap)
	s.now = s.now.Add(16 * time.Minute)
	s.passes(3, 2*time.Minute)
	permit := s.clientNode("a").Spec.RebootPermit
	if permit == nil || permit.NotAfter == nil || !s.now.After(permit.NotAfter.Time) || !containsAll(s.note("a").Refusal, "policy x") {
		t.Errorf("got permit %+v and refusal %q, want a permit that is over, and the cause", permit, s.note("a").Refusal)
	}
	s.intercept = nil
	s.passes(3, 2*time.Minute)
	s.wantInService("a")
}
