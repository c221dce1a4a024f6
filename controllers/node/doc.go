// Package node keeps one StorageClientNode for each managed Node: the instructions for the node's agent, the label that schedules the agent there,
// and the Node's conditions Tuned and StorageReachable. It writes all of spec except the reboot permit.
package node
