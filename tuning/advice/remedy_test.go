package advice

import "testing"

func TestEveryRuleHasACheckAndARemedyOrAnExplanation(t *testing.T) {
	unknown := len(checks)
	for _, rule := range rules {
		_, isChecked := checks[rule.ID]
		if isChecked {
			unknown--
		}
		if isChecked && len(rule.Signs) > 0 {
			t.Errorf("%s: got a check and %d signs, want one of them", rule.ID, len(rule.Signs))
		}
		isChecked = isChecked || len(rule.Signs) > 0
		if (rule.Remedy == "") != (rule.Explanation != "") || isChecked != (rule.Remedy != "") {
			t.Errorf("%s: got remedy %q, explanation %q and a check: %v; want a remedy with a check, or an explanation", rule.ID, rule.Remedy, rule.Explanation, isChecked)
		}
		if rule.Title == "" || rule.Source == "" {
			t.Errorf("%s: got title %q and source %q", rule.ID, rule.Title, rule.Source)
		}
	}
	if unknown != 0 {
		t.Errorf("got %d checks without a rule", unknown)
	}
}
