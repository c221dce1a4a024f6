package mountfailures_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/mountoptions"
)

type failure struct {
	Source, In, Text string
	Protocol         mountoptions.Protocol
	Before, After    []string
	Cause            mountfailures.Cause
}

// message returns the whole message, and whether the options contact the server in a different way.
func (f failure) message(frames map[string]string) (string, bool) {
	text := f.Text
	if f.In != "" {
		text = strings.Replace(frames[f.In], "%s", f.Text, 1)
	}
	protocol := f.Protocol
	if protocol == "" {
		protocol = mountoptions.NFS
	}
	return text, f.After != nil && protocol.ChangesTransport(f.Before, f.After)
}

func readCorpus(t *testing.T) (frames map[string]string, cases []failure) {
	data, err := os.ReadFile("testdata/corpus.yaml")
	check.NoError(t, err)
	var corpus struct {
		Frames map[string]string
		Cases  []failure
	}
	check.NoError(t, yaml.UnmarshalStrict(data, &corpus))
	if len(corpus.Cases) < 150 {
		t.Fatalf("got %d messages in the corpus, want at least 150", len(corpus.Cases))
	}
	return corpus.Frames, corpus.Cases
}

func TestCausesOfTheCorpus(t *testing.T) {
	frames, cases := readCorpus(t)
	for _, c := range cases {
		if c.In != "" && frames[c.In] == "" {
			t.Errorf("%s: got an unknown frame %s", c.Text, c.In)
		}
		message, changed := c.message(frames)
		if got := mountfailures.CauseOf(message, changed); got != c.Cause {
			t.Errorf("%s (%s), options changed from %v to %v: got %s, want %s\n%s", c.Text, c.In, c.Before, c.After, got, c.Cause, message)
		}
		// The probe and conditions have the message on one line.
		if got := mountfailures.CauseOf(strings.Join(strings.Fields(message), " "), changed); got != c.Cause {
			t.Errorf("%s (%s), on one line: got %s, want %s", c.Text, c.In, got, c.Cause)
		}
	}
}

func TestAChangedTransportIsNeverAnotherProblem(t *testing.T) {
	frames, cases := readCorpus(t)
	for _, c := range cases {
		message, _ := c.message(frames)
		before, after := mountfailures.CauseOf(message, false), mountfailures.CauseOf(message, true)
		if before != after && (before != mountfailures.Elsewhere || after != mountfailures.Unknown) {
			t.Errorf("%s: got %s without and %s with another transport", message, before, after)
		}
	}
	for _, option := range []string{"vers=3", "proto=tcp6", "proto=rdma", "port=20049", "sec=krb5", "xprtsec=tls", "nconnect=4"} {
		if !mountoptions.NFS.ChangesTransport(nil, []string{option}) {
			t.Errorf("got the same transport with %s", option)
		}
	}
	for _, option := range []string{"vers=3.1.1", "port=4450", "sec=krb5", "rdma", "seal", "sign", "multichannel"} {
		if !mountoptions.SMB.ChangesTransport(nil, []string{option}) {
			t.Errorf("got the same transport with %s", option)
		}
	}
}
