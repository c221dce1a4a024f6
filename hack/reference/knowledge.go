package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/recommend"
)

const knowledge = "docs/knowledge.md"

// writeKnowledge writes the rules of advice, the parameters, the mount options.
func writeKnowledge() error {
	var b bytes.Buffer
	b.WriteString("# Advice, parameters and mount options\n\nWritten by `make generate` from the source; do not edit. `kubectl storageclient explain NAME` prints the same.\n")
	table(&b, "Advice", "Shown in `status.advice` of a profile, warnings and errors also at admission. No rule keeps a profile from being applied.",
		"rule", "severity", "about", "what to do", "source")
	for _, r := range advice.Rules() {
		row(&b, code(r.ID), string(r.Severity), r.Title, cmp.Or(r.Remedy, r.Explanation), r.Source)
	}
	table(&b, "Rules for counters", "`node-agent observe --window 60s` evaluates the counters of mounts by these rules. Up to SlowNetwork, it reports only the first rule that applies, because that rule explains the later ones.",
		"rule", "cause", "about", "signature", "source")
	for _, r := range recommend.Rules() {
		row(&b, code(r.ID), string(r.Cause), r.Title, r.Signature, r.Source)
	}
	table(&b, "Parameters of nodes", "To allow a parameter that is not listed, start manager and agents with `--allow-parameter`; [install](install.md#by-kustomize) shows the patch. \"At least\" and the beginning of a range are the smallest values with which nodes are known to work, even if the kernel accepts less; only a pattern with key and value, such as `--allow-parameter='sysctl/net[.]ipv4[.]tcp_rmem=1 2000 2000'`, allows less.", "key", "values", "default", "takes effect", "good to know", "source")
	for _, p := range catalogue.All() {
		row(&b, code(p.Key), p.Values(), p.Default, string(p.TakesEffect), strings.TrimSpace(p.Hazard+" "+p.Note), p.Source)
	}
	for _, protocol := range []mountoptions.Protocol{mountoptions.NFS, mountoptions.EFS, mountoptions.VAST, mountoptions.SMB, mountoptions.XFS} {
		known := additionalKnown(protocol)
		table(&b, fmt.Sprintf("Mount options of %s", protocol), known[0].Source, "option", "values", "default", "takes effect", "since kernel", "good to know")
		for _, k := range known {
			note := strings.TrimSpace(k.Hazard + " " + k.Note)
			if k.Rejected != "" {
				note = "Rejected: " + k.Rejected
			}
			row(&b, code(k.Name), k.Values, k.Default, string(k.TakesEffect), k.Since, note)
		}
	}
	return os.WriteFile(knowledge, b.Bytes(), 0o644)
}

// additionalKnown returns the options of a client without the options that the kernel's client accepts or rejects in the same way.
func additionalKnown(p mountoptions.Protocol) []mountoptions.Known {
	if p.Kernel() == p {
		return p.Known()
	}
	kernels := p.Kernel().Known()
	return slices.DeleteFunc(p.Known(), func(k mountoptions.Known) bool {
		return slices.ContainsFunc(kernels, func(other mountoptions.Known) bool {
			return other.Name == k.Name && other.Values == k.Values && other.Rejected == k.Rejected
		})
	})
}

func table(b *bytes.Buffer, title, intro string, columns ...string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", title, intro)
	row(b, columns...)
	b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
}

func row(b *bytes.Buffer, cells ...string) {
	for _, text := range cells {
		b.WriteString("| " + cmp.Or(cell(text), " ") + " ")
	}
	b.WriteString("|\n")
}

func code(text string) string { return "`" + text + "`" }
