// Package daemonset tells whether the cluster fences the node agent in. The agent's DaemonSet is a manifest: config/agent.
package daemonset
