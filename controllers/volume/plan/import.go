package plan

import "github.com/storageclient/operator/controllers/volume/optionset"

// importAnnotations adds the annotations of a volume to the records. An earlier release wrote them, or this one for an earlier release.
// Annotations also survive the loss of a ledger page.
func (p *planner) importAnnotations(j evaluation) {
	if m := j.Mark; m != nil && j.HasAppliedOptions {
		if m.Evidence != "" && j.carriesSet() {
			p.sets.carried(j).Import(optionset.Earlier{
				Volume: j.Volume.Name, Server: j.Source.Server, Evidence: m.Evidence, Probed: m.Probed, At: j.writtenAt(),
			})
		}
		if m.Cleared != "" {
			p.sets.carried(j).Import(optionset.Earlier{Cleared: m.Cleared})
		}
	}
	if f := j.FailedMount; f != nil && f.Set != "" {
		p.sets.of(j, f.Set, f.Rules).Import(optionset.Earlier{Volume: j.Volume.Name, Failed: f})
	}
}
