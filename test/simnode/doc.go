// Package simnode runs the loop of the node agent on a simulated machine: a directory like the root of a Debian 12 host, with the effects
// of the kernel, GRUB, and systemd at a boot. The code of the agent, its journal, its files, and its connection to the API server are real.
// The package simulates the kernel (values in /proc and /sys are plain files, hash table sizes are computed), grub-mkconfig, the kernel
// log, the reboot, and the kubelet. The demo and the kwok tests use it; cmd/node-agent does not.
package simnode
