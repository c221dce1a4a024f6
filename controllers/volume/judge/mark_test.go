package judge

import "testing"

func TestTheTextOfAnEventIsQuotedAndCannotEndTheQuotation(t *testing.T) {
	failed := FailedMount{Driver: "nfs.csi.k8s.io", Options: []string{"nocto"}, Message: "volume \"a\": no\"\n; call +1-555 \x1b[31mnow"}
	want := `["nocto"] (driver nfs.csi.k8s.io): the event says "volume 'a': no' ; call +1-555 [31mnow"`
	if got := failed.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
