package nodesettings

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

type declaration struct {
	// field is the path of the field in the profile, e.g. spec.node.sysctls[net.core.rmem_max].
	field      string
	key, value string
	// text is the original text of the value.
	text string
}

// isDerived reports whether the value depends on other declarations for the node.
func (d declaration) isDerived() bool {
	return d.key == keyTCPMaxSlots && d.text == v1alpha1.FromNconnect
}

const sysctlTCPMaxSlots = "sunrpc.tcp_max_slot_table_entries"

func sysctlField(name string) string { return "spec.node.sysctls[" + name + "]" }

var (
	keyTCPSlots    = catalogue.ModuleKey("sunrpc", "tcp_slot_table_entries")
	keyTCPMaxSlots = catalogue.SysctlKey(sysctlTCPMaxSlots)
)

// Settings returns the settings that one profile alone declares for a node, sorted by key. It resolves FromNconnect from this
// profile's declarations. On a node, Merge uses the largest nconnect of all its profiles instead.
func Settings(p *v1alpha1.StorageClientProfile) []v1alpha1.NodeSetting {
	return contribution(p, profileNconnect(p))
}

func contribution(p *v1alpha1.StorageClientProfile, nconnect int) []v1alpha1.NodeSetting {
	onRemoval := p.Spec.WithDefaults().DeletionPolicy
	values := lists.Map(declarations(p, nconnect), func(d declaration) (string, string) { return d.key, d.value })
	settings := make([]v1alpha1.NodeSetting, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		settings = append(settings, v1alpha1.NodeSetting{Key: key, Value: values[key], Profile: p.Name, OnRemoval: onRemoval})
	}
	return settings
}

// declarations returns all settings of a profile in the order of its fields, each under its canonical key. A valid profile has no
// contradicting declarations.
func declarations(p *v1alpha1.StorageClientProfile, nconnect int) []declaration {
	node := p.Spec.Node
	if node == nil {
		return nil
	}
	var all []declaration
	add := func(field, key, text string) {
		all = append(all, declaration{field: field, key: key, value: catalogue.CanonicalValue(text), text: text})
	}
	for _, name := range slices.Sorted(maps.Keys(node.Sysctls)) {
		text := string(node.Sysctls[name])
		d := declaration{field: sysctlField(name), key: catalogue.SysctlKey(name), value: catalogue.CanonicalValue(text), text: text}
		if d.isDerived() {
			slots := SlotsFor(nconnect)
			if slots == 0 {
				continue
			}
			d.value = strconv.Itoa(slots)
		}
		all = append(all, d)
	}
	for _, name := range slices.Sorted(maps.Keys(node.SysctlsAtLeast)) {
		text := string(node.SysctlsAtLeast[name])
		minimum := catalogue.Value{Text: catalogue.CanonicalValue(text), AtLeast: true}
		all = append(all, declaration{field: "spec.node.sysctlsAtLeast[" + name + "]", key: catalogue.SysctlKey(name), value: minimum.String(), text: text})
	}
	for i, module := range node.KernelModules {
		for _, name := range slices.Sorted(maps.Keys(module.Parameters)) {
			field := "spec.node.kernelModules[" + strconv.Itoa(i) + "].parameters[" + name + "]"
			add(field, catalogue.ModuleKey(module.Name, name), string(module.Parameters[name]))
		}
	}
	if node.NFS4UniqueID != "" {
		add("spec.node.nfs4UniqueID", catalogue.NFS4UniqueIDKey, string(node.NFS4UniqueID))
	}
	for i, argument := range node.KernelArguments {
		key, value := catalogue.KernelArgumentKey(string(argument))
		add("spec.node.kernelArguments["+strconv.Itoa(i)+"]", key, value)
	}
	return append(all, mountDeclarations(node)...)
}

// mountDeclarations returns the settings of tuned and of the host's mounts.
func mountDeclarations(node *v1alpha1.NodeTuning) (all []declaration) {
	add := func(field, key, value string) {
		all = append(all, declaration{field: field, key: key, value: value, text: value})
	}
	for i, entry := range node.ReadAhead {
		for _, fsType := range entry.FSTypes {
			add(fmt.Sprintf("spec.node.readAhead[%d].sizeKiB", i), catalogue.KeyOf(catalogue.ReadAheads, fsType), strconv.Itoa(int(entry.SizeKiB)))
		}
	}
	if node.Tuned != nil {
		add("spec.node.tuned.profile", catalogue.TunedKey, node.Tuned.Profile)
	}
	for i := range node.NFSMountDefaults {
		entry := &node.NFSMountDefaults[i]
		add(fmt.Sprintf("spec.node.nfsMountDefaults[%d].options", i), catalogue.NFSDefaultsKey(entry.Server),
			strings.Join(Options(entry.Options), ","))
	}
	for i := range node.Filesystems {
		entry := &node.Filesystems[i]
		add(fmt.Sprintf("spec.node.filesystems[%d].mountOptions", i), catalogue.FilesystemKey(entry.MountPoint),
			catalogue.FilesystemValue(entry.FSType, Options(entry.MountOptions)))
	}
	return all
}

// SlotsFor implements the table in "Linux NFS mount options best practices for Azure NetApp Files": requests in flight per
// connection by the number of connections. The table omits 5, which is treated like 6 here. Above 8, the result is 0: the kernel's
// limit does not change.
func SlotsFor(nconnect int) int {
	switch {
	case nconnect <= 1:
		return 128
	case nconnect <= 4:
		return 256
	case nconnect <= 8:
		return 512
	default:
		return 0
	}
}

// profileNconnect returns the largest nconnect that the profile declares for a client of NFS, for volumes or for the host's mounts. Zero
// if it declares none.
func profileNconnect(p *v1alpha1.StorageClientProfile) int {
	declared := lists.Each(p.Spec.Volumes, func(rule v1alpha1.VolumeRule) []v1alpha1.MountOption { return rule.MountOptions })
	for _, entry := range ptr.Deref(p.Spec.Node, v1alpha1.NodeTuning{}).NFSMountDefaults {
		declared = append(declared, entry.Options)
	}
	largest := 0
	for _, options := range declared {
		for _, client := range []mountoptions.Protocol{mountoptions.NFS, mountoptions.EFS, mountoptions.VAST} {
			n, _ := client.Nconnect(Options(options))
			largest = max(largest, n)
		}
	}
	return largest
}

// Options returns mount options as plain text.
func Options(options []v1alpha1.MountOption) []string {
	return lists.Each(options, func(o v1alpha1.MountOption) string { return string(o) })
}

func byKey(a, b v1alpha1.NodeSetting) int { return cmp.Compare(a.Key, b.Key) }
