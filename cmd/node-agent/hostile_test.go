package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/agent/sample"
	"github.com/storageclient/operator/cmd/internal/terminal"
	"github.com/storageclient/operator/test/hostile"
	"github.com/storageclient/operator/tuning/recommend"
)

func TestReportsPrintNoControlCharacters(t *testing.T) {
	var state localreport.Report
	var window sample.Report
	hostile.Fill(reflect.ValueOf(&state).Elem(), hostile.Text, false, 9)
	hostile.Fill(reflect.ValueOf(&window).Elem(), hostile.Text, false, 9)
	window.Mounts[0].Verdict.Findings[0].Change = recommend.Change{} // it contains only the output of a rule
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		w := &terminal.Writer{Out: &out}
		if err := state.Write(w, format); err != nil {
			t.Error(err)
		}
		if err := window.Write(w, format); err != nil {
			t.Error(err)
		}
		hostile.Check(t, out.String())
		if !strings.Contains(out.String(), `\u001b`) {
			t.Errorf("got no text of the host:\n%s", out.String())
		}
	}
}
