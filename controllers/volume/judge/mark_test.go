package judge

import (
	"testing"

	"github.com/storageclient/operator/controllers/volume/optionset"
)

func TestTheTextOfAnEventIsQuotedAndCannotEndTheQuotation(t *testing.T) {
	blame := optionset.Blame{Options: []string{"nocto"}, Text: "volume \"a\": no\"\n; call +1-555 \x1b[31mnow"}
	want := `["nocto"] (driver nfs.csi.k8s.io, event: "volume 'a': no' ; call +1-555 [31mnow")`
	if got := BlameText(&optionset.Record{Identity: optionset.Identity{Driver: "nfs.csi.k8s.io"}}, blame); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
