// Package simnode runs the node agent's own loop on a simulated machine: a directory laid out like a Debian 12 host,
// with what a kernel, GRUB and systemd would make of it at a boot. The agent's code, its journal, its files and its
// way to the API server are the real ones. Simulated are the kernel (values of /proc and /sys are plain files, the
// size of a hash table is computed), grub-mkconfig, the kernel log, the reboot, and the kubelet's part of it. Demo and
// kwok tests use it and say so; nothing of it is in cmd/node-agent.
package simnode
