package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const rmem = "net.ipv4.tcp_rmem"

// newSysctlLab returns a lab with a trial of larger buffers. Its agents report the node's values.
func newSysctlLab(t *testing.T, names ...string) (*lab, *v1alpha1.StorageClientTrial, map[string]v1alpha1.SettingText) {
	l := newLab(t, names...)
	l.resolve = func(t *Trial) { t.Target.Options = t.Target.Own }
	own := map[string]v1alpha1.SettingText{rmem: "4096 131072 6291456", "net.ipv4.tcp_sack": "1"}
	trial := l.add("a", func(s *v1alpha1.StorageClientTrialSpec) {
		s.Profile, s.Rounds, s.Sysctls = "", 3, map[string]v1alpha1.SettingText{rmem: "4096 1048576 16777216"}
	})
	l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
		status := l.measure(order, 1000, 1)
		if len(order.Sysctls) > 0 {
			status.Sysctls = maps.Clone(own)
		}
		return status
	}
	return l, trial, own
}

// writes returns the steps that write nodes.
func (l *lab) writesOfNodes() []string {
	return slices.DeleteFunc(slices.Clone(l.log), func(line string) bool { return strings.HasPrefix(line, "report ") })
}

// Each order gets a new Pod, and therefore a new network namespace.
func TestATrialOfSysctls(t *testing.T) {
	l, trial, own := newSysctlLab(t, "n1")
	var orders []v1alpha1.NodeTrial
	respond := l.respond
	l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
		orders = append(orders, order)
		return respond(order)
	}
	l.runTrials()
	want := []string{
		"label n1", "order n1: filer:/e vers=4.1, 3 passes from round 1", "unlabel n1", "clear n1",
		"label n1", "order n1: filer:/e vers=4.1, 6 passes from round 2", "unlabel n1", "clear n1",
	}
	check.Equal(t, "steps", want, l.writesOfNodes())
	for _, order := range orders {
		check.Equal(t, "order", trial.Spec.Sysctls, order.Sysctls)
	}
	check.Equal(t, "status", own, trial.Status.Sysctls)
	expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	l.expectClean()
}

// A network namespace with other sysctls is never used for another order, whatever dies in between. The world reports it otherwise.
func TestTheNetworkNamespaceOfSysctlsIsNotUsedAgain(t *testing.T) {
	for name, prepare := range map[string]func(*lab){
		"a manager that dies after each pass": func(l *lab) { l.losesMemory = true },
		"a status write that is lost":         func(l *lab) { l.losesWrites = true },
		"another trial of the namespace":      func(l *lab) { l.add("b", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 1 }) },
		"an order that fails": func(l *lab) {
			l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				return &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialVoid, Message: "no proof of Sysctls: x", Work: order.Work}
			}
		},
		"an agent that never responds": func(l *lab) { l.respond = nil },
		"a trial that is deleted": func(l *lab) {
			respond := l.respond
			l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
				l.trials = nil
				return respond(order)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, _, _ := newSysctlLab(t, "n1")
			prepare(l)
			l.lingers = true
			for range 40 {
				l.step()
				if n := l.nodes["n1"]; n.Runner.Exists && !isLabelled(n.Node) && n.ClientNode.Spec.Trial == nil {
					t.Fatalf("the order is gone before the Pod:\n%s", strings.Join(l.log, "\n"))
				}
			}
			if steps := l.writesOfNodes(); name != "an agent that never responds" && (len(steps) != 3 || steps[2] != "unlabel n1") {
				t.Errorf("got steps %v, want a wait for the Pod", steps)
			}
			for range 4000 {
				l.lingers = false
				n := l.nodes["n1"]
				if !isLabelled(n.Node) {
					n.Runner = Runner{}
					delete(l.changed, "n1")
				}
				if !l.step().Busy {
					break
				}
			}
			l.expectClean()
		})
	}
}

// A Pod that does not terminate does not block other trials.
func TestAPodThatDoesNotTerminateFreesTheSlot(t *testing.T) {
	l, first, _ := newSysctlLab(t, "n1", "n2")
	first.Spec.Rounds, first.Spec.NodeSelector = 2, nil
	second := l.add("b", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 1 })
	l.lingers = true
	l.resolve = func(t *Trial) {
		if t.Name == "a" {
			t.Target.Options = t.Target.Own
		}
	}
	for range int(maxTurn/(2*time.Second)) + 60 {
		l.step()
		// Only the Pod on n1 is stuck.
		if n := l.nodes["n2"]; !isLabelled(n.Node) {
			n.Runner = Runner{}
			delete(l.changed, "n2")
		}
	}
	for _, trial := range []*v1alpha1.StorageClientTrial{first, second} {
		expectStatus(t, trial, v1alpha1.TrialConditionComplete, v1alpha1.TrialReasonDecided, "")
	}
	if l.nodes["n1"].ClientNode.Spec.Trial == nil {
		t.Error("the order on n1 is gone before its Pod")
	}
}

func TestATrialOfSysctlsOnANodeWhoseValuesChange(t *testing.T) {
	l, trial, own := newSysctlLab(t, "n1")
	respond := l.respond
	l.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
		defer func() { own["net.ipv4.ip_local_reserved_ports"] = "10250" }()
		return respond(order)
	}
	l.runTrials()
	expectStatus(t, trial, v1alpha1.TrialConditionFailed, v1alpha1.TrialReasonNotPossible,
		`Sysctl net.ipv4.ip_local_reserved_ports is "10250" on n1, but was "" in the first round`)
	check.Equal(t, "verdict", "", trial.Status.Verdict)
	l.expectClean()
}
