package recommend

import (
	"slices"
	"testing"
)

// of returns a mount with findings.
func of(node string, findings ...Finding) Mount {
	return Mount{Node: node, Sample: Sample{Protocol: "NFSv4.1"}, Verdict: Verdict{Findings: findings}}
}

func TestConclude(t *testing.T) {
	client, byHand, server := Finding{Rule: "AttributeRevalidation", Cause: CauseClient}, Finding{Rule: "OpenAndClose", Cause: CauseClient, ByHand: true}, Finding{Rule: "BusyServer", Cause: CauseServer}
	idle := Mount{Verdict: Verdict{TooLittle: true}}
	smb := Mount{Sample: Sample{Protocol: "SMB3.1.1"}}
	for name, test := range map[string]struct {
		mounts []Mount
		want   Outcome
	}{
		"one setting among others":          {[]Mount{of("n1", server), of("n2", byHand, client)}, Helps},
		"one that may not be safe":          {[]Mount{of("n1", server, byHand)}, MayHelp},
		"what no setting changes":           {[]Mount{of("n1", server), of("n2")}, HelpsNot},
		"no work":                           {[]Mount{idle, idle}, TooLittle},
		"work on one mount, none on others": {[]Mount{idle, of("n2")}, Healthy},
		"work that little is known of":      {[]Mount{smb}, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Conclude(test.mounts); got != test.want || got.Text() == "" {
				t.Errorf("%s: got %q, want %s", got, got.Text(), test.want)
			}
		})
	}
}

func TestFindingsOfOneRuleAreGrouped(t *testing.T) {
	a, b := Finding{Rule: "AttributeRevalidation"}, Finding{Rule: "BusyServer"}
	groups := ByRule([]Mount{of("n1", a), of("n2", b, a)})
	if len(groups) != 2 || groups[0].Rule.ID != "BusyServer" || groups[1].Rule.ID != "AttributeRevalidation" || !slices.Equal(groups[1].Nodes, []string{"n1", "n2"}) || len(groups[1].Findings) != 2 {
		t.Errorf("%+v", groups)
	}
}

// Every proposed change has a text, in any field.
func TestEveryChangeHasATextForm(t *testing.T) {
	texts := map[string][]string{}
	for _, r := range Rules() {
		f, _ := r.apply(nfs("NFSv4.1", option("rsize=32768"), read(6000, 32, 187)))
		texts[r.ID] = f.Change.Texts()
		if (len(texts[r.ID]) > 0) != (r.Cause == CauseClient) {
			t.Errorf("%s with cause %s: got change texts %q", r.ID, r.Cause, texts[r.ID])
		}
	}
	for rule, want := range map[string]string{
		"SessionFlaps": "node.nfs4UniqueID=FromNode", "FewSlots": "node.sysctls[sunrpc.tcp_max_slot_table_entries]=65536", "FewSessionSlots": "node.kernelModules.nfs.max_session_slots=180",
		"AttributeRevalidation": "acregmin=30", "FewConnections": "nconnect=4",
	} {
		if !slices.Contains(texts[rule], want) {
			t.Errorf("%s: got change texts %q, want %s", rule, texts[rule], want)
		}
	}
}
