package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// completionTimeout is the maximum time that a shell waits for completions. After it, there are none.
const completionTimeout = 3 * time.Second

var (
	profileKind = v1alpha1.GroupVersion.WithKind("StorageClientProfile")
	nodeKind    = v1alpha1.GroupVersion.WithKind("StorageClientNode")
	volumeKind  = corev1.SchemeGroupVersion.WithKind("PersistentVolume")
)

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeNames completes each argument with names of the kind at its position. It does not complete arguments after the last kind. It
// reads only metadata.
func completeNames(env *environment, kinds ...schema.GroupVersionKind) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(kinds) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return listNames(cmd.Context(), env, kinds[len(args)], args, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeManyNames completes any number of arguments with names of one kind, each name once.
func completeManyNames(env *environment, kind schema.GroupVersionKind) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return listNames(cmd.Context(), env, kind, args, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

func completeExplainable(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(explainableNames(), func(n string) bool { return !strings.HasPrefix(n, prefix) }), cobra.ShellCompDirectiveNoFileComp
}

// listNames returns the names with the typed prefix that are not arguments yet. Errors go only to cobra's debug log, because a shell
// cannot show them.
func listNames(ctx context.Context, env *environment, kind schema.GroupVersionKind, args []string, prefix string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	var names []string
	c, err := env.connect()
	if err == nil {
		names, err = readNames(ctx, c, kind)
	}
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) || slices.Contains(args, n) })
	slices.Sort(names)
	return names
}

func readNames(ctx context.Context, c client.Client, kind schema.GroupVersionKind) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	kind.Kind += "List"
	list.SetGroupVersionKind(kind)
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	return lists.Each(list.Items, func(object metav1.PartialObjectMetadata) string { return object.Name }), nil
}

// addCompletions adds shell completion for names of profiles, nodes, and volumes, and for the values of -o.
func addCompletions(root *cobra.Command, env *environment) {
	profile := completeNames(env, profileKind)
	for name, complete := range map[string]completion{
		"approve": profile, "pause": profile, "resume": profile, "plan": profile, "diff": profile, "get": profile,
		"volumes": profile, "retry": completeNames(env, profileKind, nodeKind), "node": completeNames(env, nodeKind),
		"status": completeManyNames(env, profileKind),
	} {
		if cmd, _, err := root.Find([]string{name}); err == nil && cmd != root {
			cmd.ValidArgsFunction = complete
		}
	}
	for _, cmd := range root.Commands() {
		if cmd.Flags().Lookup("volume") != nil {
			_ = cmd.RegisterFlagCompletionFunc("volume", completeManyNames(env, volumeKind))
		}
		if cmd.Flags().Lookup("output") != nil {
			_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}
