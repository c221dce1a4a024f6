package main

import (
	"context"
	"fmt"
	"io"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// kernelPlan describes the known problems that a kernel brings to the nodes, or removes from them.
type kernelPlan struct {
	Kernel  string            `json:"kernel"`
	Changes []knownbad.Change `json:"changes,omitempty"`
	Unknown []string          `json:"unknown,omitempty"`
}

// planKernel reads the kernels and mounts of all nodes from the reports of their agents.
func planKernel(ctx context.Context, env *environment, release string, output output) error {
	to := knownbad.ParseKernel(release, "")
	if to == (knownbad.Kernel{}) {
		return fmt.Errorf("--kernel %q: the release does not show the fixes of this kernel; set the stable release that it contains, for example 6.12.117, "+
			"from /proc/version or the vendor's changelog", release)
	}
	c, err := env.connect()
	if err != nil {
		return err
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := readLists(ctx, c, &clientNodes); err != nil {
		return err
	}
	var nodes []knownbad.Node
	for _, clientNode := range clientNodes.Items {
		status := clientNode.Status
		node := knownbad.Node{Name: clientNode.Name, Kernel: knownbad.ParseKernel(status.KernelVersion, status.KernelBuild)}
		node.Mounts = lists.Each(status.Mounts, func(m v1alpha1.MountStatus) knownbad.Mount {
			return knownbad.Mount{Protocol: m.Protocol, Options: m.Options}
		})
		nodes = append(nodes, node)
	}
	plan := kernelPlan{Kernel: to.String()}
	plan.Changes, plan.Unknown = knownbad.Upgrade(nodes, to)
	return output.write(env, plan)
}

// Names returns the changed problems, for -o name.
func (p kernelPlan) Names() []string {
	return lists.Each(p.Changes, func(c knownbad.Change) string { return c.ID })
}

// WriteText prints the plan for users.
func (p kernelPlan) WriteText(w io.Writer, _ bool) error {
	fmt.Fprintf(w, "Kernel %s on all nodes, with their present mounts. The command changes no node.\n", p.Kernel)
	for _, c := range p.Changes {
		change := "Brings " + c.Text
		if !c.Brings {
			change = "Removes " + c.ID + ": " + c.Text
		}
		fmt.Fprintf(w, "%s\n  Nodes: %s\n", change, text.List(c.Nodes))
	}
	if len(p.Changes) == 0 {
		fmt.Fprintln(w, "No known problem appears or disappears.")
	}
	if len(p.Unknown) > 0 {
		fmt.Fprintf(w, "The present kernel does not show its fixes on %s: %s\n", text.Count(len(p.Unknown), "node"), text.List(p.Unknown))
	}
	return nil
}
