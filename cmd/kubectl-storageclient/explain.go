package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
)

func explainCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Tell what is known of a rule, a parameter or a mount option; without a name, list the rules",
		Long: "Tell what is known of a rule of status.advice (hash-clamped), of a parameter (net.core.rmem_max, module/nfs/max_session_slots, " +
			"ihash_entries) or of a mount option (actimeo). It asks no cluster.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listRules(env)
			}
			texts := explain(args[0])
			if len(texts) == 0 {
				return fmt.Errorf("%q is no rule, parameter or mount option that is known here; list the rules with explain", args[0])
			}
			_, err := fmt.Fprintln(env.Out, strings.Join(texts, "\n\n"))
			return err
		},
	}
}

func listRules(env *environment) error {
	out := tabwriter.NewWriter(env.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "RULE\tSEVERITY\tABOUT")
	for _, rule := range advice.Rules() {
		fmt.Fprintf(out, "%s\t%s\t%s\n", rule.ID, rule.Severity, rule.Title)
	}
	return out.Flush()
}

// explain returns a text for each thing of this name.
func explain(name string) []string {
	var texts []string
	for _, rule := range advice.Rules() {
		if rule.ID == name {
			texts = append(texts, paragraph("Rule "+rule.ID, [][2]string{
				{"Severity", string(rule.Severity)}, {"About", rule.Title}, {"Source", rule.Source},
			}))
		}
	}
	for _, p := range catalogue.All() {
		if p.Key == name || strings.HasSuffix(p.Key, "/"+name) || p.Key == catalogue.SysctlKey(name) {
			texts = append(texts, explainParameter(p))
		}
	}
	for _, protocol := range []mountoptions.Protocol{mountoptions.NFS, mountoptions.SMB, mountoptions.XFS} {
		known := protocol.Known()
		if i := slices.IndexFunc(known, func(k mountoptions.Known) bool { return k.Name == name }); i >= 0 {
			texts = append(texts, explainOption(protocol, known[i]))
		}
	}
	return texts
}

func explainParameter(p catalogue.Parameter) string {
	values := string(p.Kind)
	if p.Kind == catalogue.IntegerList {
		values = fmt.Sprintf("%d numbers, each", p.Fields)
	}
	return paragraph("Parameter "+p.Key, [][2]string{
		{"Values", fmt.Sprintf("%s %d to %d %s", values, p.Min, p.Max, p.Unit)}, {"Default", p.Default}, {"Takes effect", string(p.TakesEffect)},
		{"Module", p.Module}, {"Hazard", p.Hazard}, {"Note", p.Note}, {"Since kernel", p.Since}, {"Until kernel", p.Until}, {"Source", p.Source},
	})
}

func explainOption(protocol mountoptions.Protocol, k mountoptions.Known) string {
	return paragraph(fmt.Sprintf("Mount option %s of %s", k.Name, protocol), [][2]string{
		{"Values", k.Values}, {"Default", k.Default}, {"Takes effect", string(k.TakesEffect)}, {"Refused", k.Refused},
		{"Hazard", k.Hazard}, {"Note", k.Note}, {"Since kernel", k.Since}, {"Source", k.Source},
	})
}

// paragraph leaves out what is empty.
func paragraph(title string, lines [][2]string) string {
	var text strings.Builder
	text.WriteString(title)
	for _, line := range lines {
		if value := strings.TrimSpace(line[1]); value != "" {
			fmt.Fprintf(&text, "\n  %-14s%s", line[0]+":", value)
		}
	}
	return text.String()
}
