// Package node keeps one StorageClientNode per managed Node: what the node's agent is to do, the label that brings
// the agent there, and the Node's conditions Tuned and StorageReachable. It writes everything of spec but the reboot permit.
package node
