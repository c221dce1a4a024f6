package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/bundle"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	maxLogLines   = 5000
	maxLogBytes   = 2 << 20
	maxAgentLogs  = 20
	maxEvents     = 2000
	maxObjects    = 5000
	bundleTimeout = 5 * time.Minute
)

func supportBundleCommand(env *environment) *cobra.Command {
	var file string
	var noRedact bool
	cmd := env.command("support-bundle", cobra.NoArgs, func(ctx context.Context, c client.Client, _ []string) error {
		return writeSupportBundle(ctx, env, c, file, noRedact)
	})
	cmd.Flags().StringVarP(&file, "file", "f", "",
		"File to write, or - for standard output. Default: storage-client-support-TIME.tar.gz in the current directory")
	cmd.Flags().BoolVar(&noRedact, "no-redact", false, "Do not replace names, addresses, servers, and mount sources")
	return cmd
}

func writeSupportBundle(ctx context.Context, env *environment, c client.Client, file string, noRedact bool) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	now := env.now().UTC()
	collector := &collector{env: env, client: c, Bundle: bundle.New(bundle.NewRedactor(noRedact))}
	if err := collector.collect(ctx); err != nil {
		return err
	}
	dir := "storage-client-support-" + now.Format("20060102T150405Z")
	if file == "-" {
		return collector.Write(env.raw, dir, now)
	}
	if file == "" {
		file = dir + ".tar.gz"
	}
	if err := writeNewFile(file, func(w io.Writer) error { return collector.Write(w, dir, now) }); err != nil {
		return err
	}
	return collector.report(env, file, noRedact)
}

// writeNewFile creates a file that only its owner can read. The file must not exist. It removes an incomplete file.
func writeNewFile(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create support bundle: %w: set a new file in an existing directory with --file", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write support bundle %s: %w", name, err), os.Remove(name))
	}
	return nil
}

// collector reads the content of a bundle. It omits unreadable items and lists them. It returns an error only if no item is readable.
type collector struct {
	*bundle.Bundle
	env         *environment
	client      client.Client
	clientNodes v1alpha1.StorageClientNodeList
}

func (c *collector) collect(ctx context.Context) error {
	var profiles v1alpha1.StorageClientProfileList
	if err := c.client.List(ctx, &profiles); err != nil {
		return fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	c.addAll("profiles.yaml", "profile", "profiles", &profiles)
	for _, kind := range []struct {
		name, class string
		list        client.ObjectList
	}{{"StorageClientNodes", "node", &c.clientNodes}, {"Nodes", "node", &corev1.NodeList{}}, {"PersistentVolumes", "volume", &corev1.PersistentVolumeList{}}} {
		if c.read(kind.name, c.client.List(ctx, kind.list)) {
			c.addAll(strings.ToLower(kind.name)+".yaml", kind.class, kind.name, kind.list)
		}
	}
	c.collectVolumeStates(ctx)
	c.collectOperator(ctx)
	c.collectEvents(ctx)
	c.collectLogs(ctx)
	return nil
}

func (c *collector) collectVolumeStates(ctx context.Context) {
	const description = "states of volumes"
	settings, err := readManagerSettings(ctx, c.client, managerFlags{})
	if !c.read(description, err) {
		return
	}
	listed, _, err := listVolumes(ctx, c.env, c.client, "", settings.allow)
	if c.read(description, err) {
		c.AddYAML("volumes-judged.yaml", "", listed)
	}
}

// read reports whether a read succeeded. It adds unreadable content to the omitted items.
func (c *collector) read(description string, err error) bool {
	if err != nil {
		c.AddMissing(description, err)
	}
	return err == nil
}

// addAll adds the first maxObjects objects by name, and registers their names as names of a kind.
func (c *collector) addAll(file, kind, description string, list client.ObjectList) {
	objects, err := meta.ExtractList(list)
	if err != nil {
		c.AddMissing(description, err)
		return
	}
	if rest := len(objects) - maxObjects; rest > 0 {
		c.AddNote(description, fmt.Sprintf("%d more than the first %d", rest, maxObjects))
		objects = objects[:maxObjects]
	}
	for _, object := range objects {
		c.Redactor.Name(kind, object.(client.Object).GetName())
	}
	c.AddYAML(file, "", objects)
}

// collectOperator adds the state of the operator's workloads and of the rollout.
func (c *collector) collectOperator(ctx context.Context) {
	var workloads []any
	var deployment appsv1.Deployment
	if c.read("the manager's Deployment", c.client.Get(ctx, managerKey(v1alpha1.ManagerDeployment), &deployment)) {
		workloads = append(workloads, deployment)
	}
	var daemonSet appsv1.DaemonSet
	agentKey := client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentDaemonSet}
	if c.read("the agent's DaemonSet", c.client.Get(ctx, agentKey, &daemonSet)) {
		workloads = append(workloads, daemonSet)
	}
	c.AddYAML("operator.yaml", "", map[string]any{"plugin": readVersion(), "workloads": workloads})
	for name, class := range map[string]string{v1alpha1.BudgetConfigMap: "node=json", v1alpha1.FailuresConfigMap: "profile=json"} {
		var configMap corev1.ConfigMap
		if c.read("ConfigMap "+name, c.client.Get(ctx, managerKey(name), &configMap)) {
			c.AddYAML("configmaps/"+name+".yaml", class, configMap.Data)
		}
	}
	var lease coordinationv1.Lease
	if c.read("the manager's Lease", c.client.Get(ctx, managerKey(v1alpha1.ManagerLease), &lease)) {
		c.AddYAML("lease.yaml", "", lease.Spec)
	}
}

func managerKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: name}
}

// collectEvents adds the operator's events, newest first.
func (c *collector) collectEvents(ctx context.Context) {
	var events corev1.EventList
	if !c.read("events", c.client.List(ctx, &events)) {
		return
	}
	operatorEvents := slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return !bundle.IsOperatorEvent(&e) })
	slices.SortStableFunc(operatorEvents, func(a, b corev1.Event) int { return bundle.LastSeen(&b).Compare(bundle.LastSeen(&a)) })
	if rest := len(operatorEvents) - maxEvents; rest > 0 {
		c.AddNote("events", fmt.Sprintf("%d older than the last %d", rest, maxEvents))
		operatorEvents = operatorEvents[:maxEvents]
	}
	c.AddYAML("events.yaml", "", operatorEvents)
}

// collectLogs adds the logs of all managers and of maxAgentLogs agents, failing nodes first.
func (c *collector) collectLogs(ctx context.Context) {
	var managers, agents corev1.PodList
	if c.read("the manager's Pods and logs", c.client.List(ctx, &managers, client.InNamespace(v1alpha1.ManagerNamespace))) {
		c.addAll("pods/manager.yaml", "pod", "the manager's Pods", &managers)
		for i := range managers.Items {
			c.addLogs(ctx, &managers.Items[i])
		}
	}
	if !c.read("the agents' Pods and logs", c.client.List(ctx, &agents, client.InNamespace(v1alpha1.AgentNamespace))) {
		return
	}
	c.addAll("pods/agents.yaml", "pod", "the agents' Pods", &agents)
	slices.SortStableFunc(agents.Items, func(a, b corev1.Pod) int { return c.logPriority(&b) - c.logPriority(&a) })
	if rest := len(agents.Items) - maxAgentLogs; rest > 0 {
		c.AddNote("logs of agents", fmt.Sprintf("%d more than %d", rest, maxAgentLogs))
	}
	for i := range agents.Items[:min(len(agents.Items), maxAgentLogs)] {
		c.addLogs(ctx, &agents.Items[i])
	}
}

func (c *collector) logPriority(pod *corev1.Pod) int {
	i := slices.IndexFunc(c.clientNodes.Items, func(n v1alpha1.StorageClientNode) bool { return n.Name == pod.Spec.NodeName })
	if i < 0 || c.clientNodes.Items[i].Status.Rollout == nil {
		return 1
	}
	switch c.clientNodes.Items[i].Status.Rollout.Phase {
	case v1alpha1.RolloutUpToDate:
		return 0
	case v1alpha1.RolloutFailed:
		return 3
	default:
		return 2
	}
}

// addLogs adds the logs of a Pod's containers, including the logs from before the last restart.
func (c *collector) addLogs(ctx context.Context, pod *corev1.Pod) {
	for _, status := range pod.Status.ContainerStatuses {
		for _, previous := range []bool{false, true}[:min(status.RestartCount, 1)+1] {
			name := fmt.Sprintf("logs/%s/%s.log", c.Redactor.Name("pod", pod.Name), c.Redactor.Name("container", status.Name))
			if previous {
				name = strings.TrimSuffix(name, ".log") + "-previous.log"
			}
			log, err := c.env.readLog(ctx, client.ObjectKeyFromObject(pod), status.Name, previous)
			if c.read(name, err) {
				c.AddLog(name, log)
			}
		}
	}
}

func (c *collector) report(env *environment, file string, noRedact bool) error {
	lines := []string{fmt.Sprintf("Wrote %s (%s).", file, text.Count(len(c.Files())+1, "file"))}
	if noRedact {
		lines = append(lines, "It contains names, addresses, servers, and mount sources.")
	}
	if len(c.Missing) > 0 {
		lines = append(lines, "Omitted:")
		lines = append(lines, lists.Each(c.Missing, func(entry string) string { return "  " + entry })...)
	}
	lines = append(lines, "Review it before you send it.")
	return writeLines(env.Out, lines...)
}

func logReader(flags *genericclioptions.ConfigFlags) func(context.Context, client.ObjectKey, string, bool) (string, error) {
	return func(ctx context.Context, pod client.ObjectKey, container string, previous bool) (string, error) {
		config, err := flags.ToRESTConfig()
		if err != nil {
			return "", fmt.Errorf("read kubeconfig: %w", err)
		}
		pods, err := corev1client.NewForConfig(config)
		if err != nil {
			return "", fmt.Errorf("connect to %s: %w", config.Host, err)
		}
		log, err := pods.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
			Container: container, Previous: previous, Timestamps: true, TailLines: ptr.To[int64](maxLogLines),
		}).DoRaw(ctx)
		if err != nil {
			return "", fmt.Errorf("read log of Pod %s: %w", pod, err)
		}
		// The byte limit of the API would keep the start of the log.
		return string(log[max(0, len(log)-maxLogBytes):]), nil
	}
}
