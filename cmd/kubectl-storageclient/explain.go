package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/suggest"
	"github.com/storageclient/operator/tuning/text"
)

func explainCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:               "explain [NAME]",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeExplainable,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listRules(env)
			}
			return explainClosest(env, args[0])
		},
	}
}

func explainClosest(env *environment, name string) error {
	texts := explainName(name)
	if len(texts) == 0 {
		suggestion, ok := suggest.Closest(name, explainableNames())
		if !ok {
			return unknownName(name)
		}
		fmt.Fprintf(env.ErrOut, "Unknown name %q. Showing %s:\n\n", name, suggestion)
		texts = explainName(suggestion)
	}
	_, err := fmt.Fprintln(env.Out, strings.Join(texts, "\n\n"))
	return err
}

func listRules(env *environment) error {
	out := tabwriter.NewWriter(env.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "RULE\tSEVERITY\tABOUT")
	for _, rule := range advice.Rules() {
		fmt.Fprintf(out, "%s\t%s\t%s\n", rule.ID, rule.Severity, rule.Title)
	}
	return out.Flush()
}

func explainName(name string) []string {
	texts := slices.Concat(
		lists.Pick(advice.Rules(), func(r advice.Rule) (string, bool) { return explainRule(r), r.ID == name }),
		lists.Pick(recommend.Rules(), func(r recommend.Rule) (string, bool) { return explainSignature(r), r.ID == name }),
		lists.Pick(catalogue.All(), func(p catalogue.Parameter) (string, bool) { return explainParameter(p), isNamed(p, name) }),
	)
	for _, protocol := range protocols {
		texts = append(texts, lists.Pick(protocol.Known(), func(k mountoptions.Known) (string, bool) { return explainOption(protocol, k), k.Name == name })...)
	}
	if len(texts) == 0 {
		texts = explainSubject(name)
	}
	return texts
}

// isNamed reports whether a name matches the key of a parameter, the key without its subject, or its last part: rmem_max for
// net.core.rmem_max.
func isNamed(p catalogue.Parameter, name string) bool {
	return p.Key == name || strings.HasSuffix(p.Key, "/"+name) || p.Key == catalogue.SysctlKey(name) || name != "" && lastPart(p) == name
}

// lastPart returns the short name of a sysctl. Empty for other parameters.
func lastPart(p catalogue.Parameter) string {
	name, _ := catalogue.Key(p.Key).In(catalogue.Sysctls)
	return name[strings.LastIndex(name, ".")+1:]
}

func explainSubject(name string) []string {
	texts := lists.Pick(catalogue.All(), func(p catalogue.Parameter) (string, bool) {
		return explainParameter(p), catalogue.Key(p.Key).Subject() == name
	})
	// The names of these subjects come from the node, so the catalogue does not list them.
	for subject, example := range map[string]string{catalogue.NFSDefaults: catalogue.NFSDefaultsKey(""), catalogue.Filesystems: catalogue.FilesystemKey("/mnt/data")} {
		if p, known := catalogue.Lookup(example); known && subject == name {
			texts = append(texts, explainParameter(p))
		}
	}
	return texts
}

var protocols = []mountoptions.Protocol{mountoptions.NFS, mountoptions.SMB, mountoptions.XFS}

// explainableNames returns all names that have an explanation, including short names, sorted.
func explainableNames() []string {
	names := []string{catalogue.Tuned, catalogue.ReadAheads, catalogue.NFSDefaults, catalogue.Filesystems}
	names = append(names, lists.Each(advice.Rules(), func(rule advice.Rule) string { return rule.ID })...)
	names = append(names, lists.Each(recommend.Rules(), func(rule recommend.Rule) string { return rule.ID })...)
	for _, p := range catalogue.All() {
		_, short := catalogue.Key(p.Key).Cut()
		names = append(names, short)
		if last := lastPart(p); last != "" {
			names = append(names, last)
		}
	}
	for _, protocol := range protocols {
		names = append(names, lists.Each(protocol.Known(), func(known mountoptions.Known) string { return known.Name })...)
	}
	return lists.Distinct(names)
}

// unknownName returns an error that suggests names that contain the given one.
func unknownName(name string) error {
	holding := slices.DeleteFunc(explainableNames(), func(n string) bool { return name == "" || !strings.Contains(n, name) })
	if len(holding) > 0 {
		return fmt.Errorf("unknown name %q. Names that contain it: %s", name, text.List(holding))
	}
	return fmt.Errorf("unknown name %q; run \"kubectl storageclient explain\" to list the rules", name)
}

func explainSignature(rule recommend.Rule) string {
	return formatParagraph("Finding "+rule.ID, [][2]string{
		{"About", rule.Title}, {"Cause", string(rule.Cause)}, {"Signature", rule.Signature}, {"Source", rule.Source},
	})
}

func explainRule(rule advice.Rule) string {
	return formatParagraph("Rule "+rule.ID, [][2]string{
		{"Severity", string(rule.Severity)}, {"About", rule.Title}, {"Remedy", rule.Remedy}, {"Details", rule.Explanation}, {"Source", rule.Source},
	})
}

func explainParameter(p catalogue.Parameter) string {
	return formatParagraph("Parameter "+p.Key, [][2]string{
		{"Values", p.Values()}, {"Default", p.Default}, {"Takes effect", string(p.TakesEffect)},
		{"Module", p.Module}, {"Minimum", p.LeastReason}, {"Low values", p.LowHazard}, {"Raise", raiseText(p)}, {"Hazard", p.Hazard}, {"Note", p.Note}, {"Since kernel", p.Since}, {"Until kernel", p.Until}, {"Source", p.Source},
	})
}

// raiseText returns a hint about spec.node.sysctlsAtLeast for a sysctl that is tuned by raising it.
func raiseText(p catalogue.Parameter) string {
	if catalogue.Key(p.Key).Subject() != catalogue.Sysctls || !p.Grows {
		return ""
	}
	return "with spec.node.sysctlsAtLeast, the agent raises a lower value and keeps a higher current one"
}

func explainOption(protocol mountoptions.Protocol, k mountoptions.Known) string {
	return formatParagraph(fmt.Sprintf("Mount option %s of %s", k.Name, protocol), [][2]string{
		{"Values", k.Values}, {"Default", k.Default}, {"Takes effect", string(k.TakesEffect)}, {"Rejected", k.Rejected},
		{"Hazard", k.Hazard}, {"Note", k.Note}, {"Since kernel", k.Since}, {"Source", k.Source},
	})
}

// formatParagraph omits lines without a value.
func formatParagraph(title string, lines [][2]string) string {
	var paragraph strings.Builder
	paragraph.WriteString(title)
	for _, line := range lines {
		if value := strings.TrimSpace(line[1]); value != "" {
			fmt.Fprintf(&paragraph, "\n  %-14s%s", line[0]+":", value)
		}
	}
	return paragraph.String()
}
