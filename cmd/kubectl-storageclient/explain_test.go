package main

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/storageclient/operator/tuning/advice"
)

func TestExplain(t *testing.T) {
	for name, want := range map[string][]string{
		"hash-clamped":                      {"Rule hash-clamped", "Warning", "1/16 of memory"},
		"net.core.rmem_max":                 {"Parameter sysctl/net.core.rmem_max", "2304–2147483647 bytes", "Takes effect: Live", "socket(7)"},
		"ihash_entries":                     {"Parameter kernelArgument/ihash_entries", "Reboot"},
		"max_session_slots":                 {"Parameter module/nfs/max_session_slots", "Default:      64"},
		"sunrpc.tcp_max_slot_table_entries": {"Parameter module/sunrpc/tcp_max_slot_table_entries", "2–65536"},
		"nconnect":                          {"Mount option nconnect of NFS", "1–16 connections", "NewTransport", "5.3"},
		"actimeo":                           {"Mount option actimeo of NFS", "Mount option actimeo of SMB"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(explainName(name), "\n")
			for _, part := range want {
				if !strings.Contains(got, part) {
					t.Errorf("got\n%s\nwant %q in it", got, part)
				}
			}
		})
	}
}

func TestExplainCommand(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := rootCommand(&environment{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}})
		root.SetArgs(append([]string{"explain"}, args...))
		err := root.Execute()
		return out.String(), err
	}
	list, err := run()
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range advice.Rules() {
		if !strings.Contains(list, rule.ID) {
			t.Errorf("the list lacks %s", rule.ID)
		}
	}
	if _, err := run("nconect"); err == nil || !strings.Contains(err.Error(), `unknown name "nconect". Did you mean nconnect?`) {
		t.Errorf("an unknown name: %v", err)
	}
}
