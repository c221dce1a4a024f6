package nodesettings

import (
	"fmt"
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// Errors, outdated advice and contradictions of the source documents, and the messages for users who follow them.
// A message starts with "error", "warning" or "fact".
func TestSeedErrata(t *testing.T) {
	for name, test := range map[string]struct {
		got  []string
		want []string // each is part of a problem
	}{
		"an argument on the kernel command line is not yet granted: 1.5 GB of memory halve the inode hash": {
			hash(1400<<20, 16777216), []string{"fact: granted 8388608, default 131072, clamped true"}},
		"16777216 buckets are 128 MiB, which 4 GiB of memory grant": {
			hash(4<<30, 16777216), []string{"fact: granted 16777216, default 262144, clamped false"}},
		"16777216 buckets are no gain from 1 TiB of memory on": {
			hash(1<<40, 16777216), []string{"fact: granted 16777216, default 16777216, clamped false"}},
		"16777216 buckets are a loss with 4 TiB of memory": {
			hash(4<<40, 16777216), []string{"fact: granted 16777216, default 33554432, clamped false"}},
		"a suffix would use 16 buckets": {
			problemsOf(argument("ihash_entries=16M")), []string{"error: spec.node.kernelArguments[0]: must be decimal digits only, without a suffix: write 16777216"}},
		"actimeo=30 is what the Azure Files driver sets anyway: the volume stays as it is": {
			merged(mountoptions.NFS, "actimeo=30", "actimeo=30"), []string{"fact: actimeo=30, changed false"}},
		"logbufs=8 is the kernel's own": {
			problemsOf(blockVolume("logbufs=8")), []string{"warning: spec.volumes[0].mountOptions[0]: is the kernel's default"}},
		"noquota is harmless only without quotas": {
			problemsOf(blockVolume("noquota")), []string{"warning: spec.volumes[0].mountOptions[0]: is the default without quotas; with quotas it drops"}},
		"nodiratime comes with noatime": {
			problemsOf(blockVolume("noatime", "nodiratime")), []string{"warning: spec.volumes[0].mountOptions[1]: is implied by noatime"}},
		"a remount changes nothing of XFS: the next mount does": {
			[]string{"fact: " + string(mountoptions.XFS.Effect("logbsize=256k"))}, []string{"fact: NextMount"}},
		"tcp_sack 1 and 0 are two profiles that disagree: nothing is set": {
			conflicts("net.ipv4.tcp_sack", "1", "0"), []string{"fact: sysctl/net.ipv4.tcp_sack [1 0] kept nothing"}},
		"tcp_sack 0 costs retransmissions": {
			problemsOf(sysctl("net.ipv4.tcp_sack", "0")), []string{"warning: spec.node.sysctls[net.ipv4.tcp_sack]: If off, the loss of several packets"}},
		"tcp_low_latency does nothing": {
			problemsOf(sysctl("net.ipv4.tcp_low_latency", "1")), []string{"warning: spec.node.sysctls[net.ipv4.tcp_low_latency]: The kernel accepts the value but does not use it"}},
		"tcp_fack does nothing, and 0 is what it is anyway": {
			append(problemsOf(sysctl("net.ipv4.tcp_fack", "0")), known("sysctl/net.ipv4.tcp_fack")), []string{"fact: default 0; The kernel accepts the value but does not use it"}},
		"route.flush is an action": {
			problemsOf(sysctl("net.ipv4.route.flush", "1")), []string{"warning: spec.node.sysctls[net.ipv4.route.flush]: An action, not a state"}},
		"tcp_mem counts pages": {
			problemsOf(sysctl("net.ipv4.tcp_mem", "4096 89600 4194304")), []string{"warning: spec.node.sysctls[net.ipv4.tcp_mem]: Counts pages, not bytes"}},
		"tpc_max_slot_table_entries is misspelt": {
			problemsOf(sysctl("sunrpc.tpc_max_slot_table_entries", "128")), []string{"error: spec.node.sysctls[sunrpc.tpc_max_slot_table_entries]: not supported. Did you mean sunrpc.tcp_max_slot_table_entries?"}},
		"max_tcp_slot_table_entries is misspelt": {
			problemsOf(sysctl("sunrpc.max_tcp_slot_table_entries", "128")), []string{"error: spec.node.sysctls[sunrpc.max_tcp_slot_table_entries]: not supported. Did you mean sunrpc.tcp_max_slot_table_entries?"}},
		"the table's slots count for each connection": {
			[]string{settled(8)}, []string{"fact: nconnect=8: 512"}},
		"over eight connections the table changes nothing": {
			append(problemsOf(maxSlots(fromNconnect), volume("nconnect=16")), settled(16)),
			[]string{"warning: spec.node.sysctls[sunrpc.tcp_max_slot_table_entries]: has no effect with nconnect=16", "fact: nconnect=16: unset"}},
		"NFSv4.1 ignores slot tables": {
			problemsOf(maxSlots("128"), volume("vers=4.1")), []string{"warning: spec.node.sysctls[sunrpc.tcp_max_slot_table_entries]: has no effect: the volumes use NFSv4.1 or 4.2 only"}},
		"intr does nothing": {
			problemsOf(volume("hard", "intr")), []string{"warning: spec.volumes[0].mountOptions[1]: has had no effect since kernel 2.6.25"}},
		"nocto is about opening, not about closing": {
			[]string{nfsOption("nocto").Note}, []string{"Skips the check for changes when a file is opened; writes are still flushed at close"}},
		"actimeo is about files and directories, all four timers": {
			compared("actimeo=60", "acregmin=3,acregmax=60,acdirmin=30,acdirmax=60"), []string{"fact: acregmin 3", "fact: acdirmin 30"}},
		"acregmax is 60 by default": {
			append(problemsOf(volume("acregmin=45")), "fact: acregmax "+nfsOption("acregmax").Default), []string{"fact: acregmax 60"}},
		"acregmin over the default of acregmax is crossed": {
			problemsOf(volume("acregmin=61")), []string{"warning: spec.volumes[0].mountOptions[0]: is larger than acregmax, which is 60"}},
		"ports from 1024 on are those of others": {
			problemsOf(sysctl("net.ipv4.ip_local_port_range", "1024 65000")), []string{"warning: spec.node.sysctls[net.ipv4.ip_local_port_range]: A wider range than 32768 60999 includes ports that NodePort"}},
		"tuned and dirty_ratio set one key: the declared value wins": {
			append(problemsOf(func(s *v1alpha1.StorageClientProfileSpec) {
				s.Node.Tuned = &v1alpha1.Tuned{Profile: "latency-performance"}
				s.Node.Sysctls = map[string]v1alpha1.SettingText{"vm.dirty_ratio": "20"}
			}), "fact: "+note("tuned/profile")), []string{"fact: Sysctls declared in a StorageClientProfile override"}},
		"noatime on a host's file system acts at once, logbsize at the next mount": {
			[]string{"fact: " + note("filesystem/mnt/disks/*")}, []string{"fact: Access-time options change at once, other options at the next mount"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := strings.Join(test.got, "\n")
			for _, want := range test.want {
				if !strings.Contains(all, want) {
					t.Errorf("got\n%s\nwant %q in it", all, want)
				}
			}
		})
	}
}

// problemsOf returns the problems of a profile, with their severity.
func problemsOf(options ...option) []string {
	p := profile("a", 0, options...)
	var all []string
	for _, problem := range Validate(&p, catalogue.AllowList{}) {
		severity := "error: "
		if problem.Warning {
			severity = "warning: "
		}
		all = append(all, severity+problem.Field+": "+problem.Message)
	}
	return all
}

func blockVolume(options ...v1alpha1.MountOption) option {
	return func(s *v1alpha1.StorageClientProfileSpec) {
		volume(options...)(s)
		s.Volumes[len(s.Volumes)-1].Selector = v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolBlock}, FSTypes: []string{"xfs"}}
	}
}

func hash(memory, requested int64) []string {
	grant, _ := catalogue.HashSize("ihash_entries", requested, memory, 4096)
	return []string{fmt.Sprintf("fact: granted %d, default %d, clamped %v", grant.Granted, grant.Default, grant.Clamped)}
}

func merged(protocol mountoptions.Protocol, current, desired string) []string {
	result := protocol.Merge([]string{current}, []string{desired}, v1alpha1.ConflictUseProfile, nil)
	return []string{fmt.Sprintf("fact: %s, changed %v", strings.Join(result.Options, ","), result.Changed)}
}

func conflicts(key, a, b string) []string {
	result := Merge([]v1alpha1.StorageClientProfile{profile("a", 0, sysctl(key, a)), profile("b", 0, sysctl(key, b))}, nil)
	all := make([]string, 0, len(result.Conflicts))
	for _, c := range result.Conflicts {
		value := c.Kept
		if value == "" && len(result.Settings) == 0 {
			value = "nothing"
		}
		all = append(all, fmt.Sprintf("fact: %s %v kept %s", c.Key, c.Values, value))
	}
	return all
}

func known(key string) string {
	p, _ := catalogue.Lookup(key)
	return "fact: default " + p.Default + "; " + p.Hazard
}

func note(key string) string {
	p, _ := catalogue.Lookup(key)
	return p.Note
}

func settled(nconnect int) string {
	p := profile("a", 0, maxSlots(fromNconnect), volume(v1alpha1.MountOption(fmt.Sprint("nconnect=", nconnect))))
	value := "unset"
	for _, s := range Settings(&p) {
		value = s.Value
	}
	return fmt.Sprintf("fact: nconnect=%d: %s", nconnect, value)
}

func nfsOption(name string) mountoptions.Known {
	for _, k := range mountoptions.NFS.Known() {
		if k.Name == name {
			return k
		}
	}
	return mountoptions.Known{}
}

func compared(desired, observed string) []string {
	var all []string
	for _, d := range mountoptions.NFS.Compare([]string{desired}, strings.Split(observed, ",")) {
		all = append(all, "fact: "+d.Option+" "+d.Observed)
	}
	return all
}
