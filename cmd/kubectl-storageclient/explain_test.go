package main

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/storageclient/operator/test/check"
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
		"rmem_max":                          {"Parameter sysctl/net.core.rmem_max"},
		"tuned":                             {"Parameter tuned/profile", "the name of a tuned profile"},
		"readAhead":                         {"Parameter readAhead/nfs4", "Parameter readAhead/xfs"},
		"nfsMountDefaults":                  {"Parameter nfsMountDefaults/_all", "nfsmount.conf(5)"},
		"slots-spelling":                    {"Remedy:", "Write sunrpc.tcp_max_slot_table_entries"},
		"actimeo":                           {"Mount option actimeo of NFS", "Mount option actimeo of SMB"},
		"BusyServer":                        {"Finding BusyServer"},
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
	check.NoError(t, err)
	for _, rule := range advice.Rules() {
		if !strings.Contains(list, rule.ID) {
			t.Errorf("the list lacks %s", rule.ID)
		}
	}
	for wrong, want := range map[string]string{
		"nconect":       "Unknown name \"nconect\". Showing nconnect:\n\nMount option nconnect of NFS",
		"net.core.rmem": `unknown name "net.core.rmem". Names that contain it: net.core.rmem_default, net.core.rmem_max`,
		"kernel.sysrq":  `unknown name "kernel.sysrq"; run "kubectl storageclient explain" to list the rules`,
		"":              `unknown name ""; run`,
	} {
		t.Run("wrong: "+wrong, func(t *testing.T) {
			out, err := run(wrong)
			if err != nil {
				out = err.Error()
			}
			if !strings.HasPrefix(out, want) {
				t.Errorf("got %q, want %q", out, want)
			}
		})
	}
}
