package mountoptions

import (
	"strings"
	"testing"
)

func TestOptionsThatNeedTheNodesNetwork(t *testing.T) {
	for options, want := range map[string]string{
		"":                          "",
		"vers=4.1 sec=sys":          "",
		"sec=none xprtsec=none":     "",
		"vers=4.1 nconnect=8 tcp":   "",
		"sec=krb5p":                 "sec=krb5p needs the node's rpc.gssd",
		"sec=sys:krb5":              "sec=sys:krb5 needs the node's rpc.gssd",
		"vers=4.1,sec=krb5 hard":    "sec=krb5 needs the node's rpc.gssd",
		"sec=krb5 sec=sys":          "",
		"xprtsec=mtls":              "xprtsec=mtls needs the node's tlshd",
		"proto=rdma":                "proto=rdma needs the node's RDMA device",
		"rdma":                      "proto=rdma needs the node's RDMA device",
		"nfsvers=3 proto=rdma6 ":    "proto=rdma6 needs the node's RDMA device",
		"nfsvers=3 proto=tcp6 hard": "",
	} {
		if got := NeedsNodeNetwork(strings.Fields(options)); got != want {
			t.Errorf("%q: got %q, want %q", options, got, want)
		}
	}
}
