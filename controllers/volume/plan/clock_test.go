package plan

import (
	"testing"
	"time"

	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/check"
)

// A mark whose times are in the future counts from now, and is written again.
func TestATimeInTheFutureIsWrittenAgain(t *testing.T) {
	b := newBench(t)
	toCanary(b)
	ahead := b.now.Add(7 * 24 * time.Hour)
	s := b.snapshot()
	before := For(s)
	s.Now = b.now.Add(-7 * 24 * time.Hour)
	planned := For(s)
	var written []RecordSet
	for _, step := range planned.Steps {
		if record, records := step.(RecordSet); records && record.Mark != nil {
			written = append(written, record)
		}
	}
	if len(written) != 1 || !written[0].Mark.Since.Equal(s.Now.Truncate(time.Second)) || written[0].Mark.Written.After(s.Now) {
		t.Errorf("got steps %v, want a mark with the time of now; with the right clock %v", planned.Steps, before.Steps)
	}
	r := &optionset.Record{Blames: []optionset.Blame{{Volume: "a", Since: ahead, RevertedAt: ahead}}, Closed: map[string]time.Time{"b": ahead, "c": b.now}}
	r.LimitTimes(b.now)
	want := &optionset.Record{Blames: []optionset.Blame{{Volume: "a", Since: b.now, RevertedAt: b.now}}, Closed: map[string]time.Time{"b": b.now, "c": b.now}}
	check.Equal(t, "record", want.Encode(), r.Encode())
	check.Equal(t, "failures", want.Blames, r.Blames)
	check.Equal(t, "closed", want.Closed, r.Closed)
}
