package main

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

func TestFeaturesBecomeConditions(t *testing.T) {
	first, second := features[0].condition, features[1].condition
	for name, test := range map[string]struct {
		plain    map[string]any
		variants []map[string]any
		want     string
	}{
		"a field that one feature changes": {
			plain:    map[string]any{"a": "1", "b": "2"},
			variants: []map[string]any{{"a": "1", "b": "3"}, {"a": "1", "b": "2"}},
			want:     "a: \"1\"\n{{- if " + first + " }}\nb: \"3\"\n{{- else }}\nb: \"2\"\n{{- end }}\n",
		},
		"a field that two features add alike": {
			plain:    map[string]any{"a": true},
			variants: []map[string]any{{"a": true, "b": "x"}, {"a": true, "b": "x"}},
			want:     "a: true\n{{- if or (" + first + ") (" + second + ") }}\nb: x\n{{- end }}\n",
		},
		"a field that a feature drops": {
			plain:    map[string]any{"a": 1.0, "b": "x"},
			variants: []map[string]any{{"a": 1.0}, {"a": 1.0, "b": "x"}},
			want:     "a: 1\n{{- if not (" + first + ") }}\nb: x\n{{- end }}\n",
		},
		"items that a feature appends, and one that it changes": {
			plain:    map[string]any{"l": []any{"a", map[string]any{"k": "v"}}},
			variants: []map[string]any{{"l": []any{"a", map[string]any{"k": "w"}, "c"}}, {"l": []any{"a", map[string]any{"k": "v"}}}},
			want: "l:\n- a\n-\n{{- if " + first + " }}\n  k: w\n{{- else }}\n  k: v\n{{- end }}\n" +
				"{{- if " + first + " }}\n- c\n{{- end }}\n",
		},
		"a list that a feature empties": {
			plain:    map[string]any{"l": []any{"a"}},
			variants: []map[string]any{{"l": []any{}}, {"l": []any{"a"}}},
			want:     "{{- if " + first + " }}\nl: []\n{{- else }}\nl:\n- a\n{{- end }}\n",
		},
		"text that looks like a template": {
			plain: map[string]any{"t": "{{ $labels.node }}\nis  down\n"},
			want:  "t: |\n  {{ `{{` }} $labels.node }}\n  is  down\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			variants := make([]any, len(test.variants))
			for i := range variants {
				variants[i] = test.variants[i]
			}
			merged := merge(test.plain, variants).(map[string]any)
			got := string(template(merged))
			_, got, _ = strings.Cut(got, "\n")
			check.Equal(t, "template", test.want, got)
		})
	}
}
