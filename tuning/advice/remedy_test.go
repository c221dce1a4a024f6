package advice

import "testing"

func TestEveryRuleHasARemedy(t *testing.T) {
	unknown := len(remedies)
	for _, rule := range rules {
		if _, ok := remedies[rule.ID]; ok {
			unknown--
		}
		if (rule.Remedy() == "") != (rule.Explanation != "") {
			t.Errorf("%s: got remedy %q and explanation %q, want one of them", rule.ID, rule.Remedy(), rule.Explanation)
		}
	}
	if unknown != 0 {
		t.Errorf("got %d remedies without a rule", unknown)
	}
}
