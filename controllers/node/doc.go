// Package node keeps one StorageClientNode for each managed Node, which contains the instructions for the node's agent. It also keeps the label
// that schedules the agent there, and the Node's conditions Tuned and StorageReachable. It writes all of spec except the reboot permit.
package node
