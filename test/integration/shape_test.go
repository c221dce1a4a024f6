package integration

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
)

// No webhook runs here: the CustomResourceDefinition alone rejects these objects.
var _ = Describe("The shape of a StorageClientProfile", func() {
	DescribeTable("is rejected, and the error names the field, for",
		func(spec, field string) { expectInvalid(createShape("StorageClientProfile", spec), field) },

		Entry("no nodeSelector", `paused: true`, "spec.nodeSelector"),
		Entry("an empty nodeSelector", `nodeSelector: {}`, "spec.nodeSelector"),
		Entry("a nodeSelector that is empty in both of its parts", `nodeSelector: {matchLabels: {}, matchExpressions: []}`, "spec.nodeSelector"),
		Entry("a nodeSelector as core/v1 has it, whose label is dropped", `nodeSelector: {agentpool: x}`, "spec.nodeSelector"),
		Entry("a nodeSelector and all nodes", `nodeSelector: {matchLabels: {agentpool: x}}, allNodes: true`, "spec.nodeSelector"),
		Entry("all nodes denied, and nothing selected", `allNodes: false`, "spec.nodeSelector"),
		Entry("an unknown mode", with(`mode: Off`), "spec.mode"),
		Entry("an unknown deletionPolicy", with(`deletionPolicy: Delete`), "spec.deletionPolicy"),
		Entry("an unknown onUnsupported", with(`onUnsupported: Ignore`), "spec.onUnsupported"),
		Entry("a priority beyond its range", with(`priority: 1000001`), "spec.priority"),
		Entry("a priority below its range", with(`priority: -1000001`), "spec.priority"),

		Entry("a sysctl that is no dotted name", sysctl("vm", "1"), "spec.node.sysctls"),
		Entry("a sysctl given as a path", sysctl("net/core/rmem_max", "1"), "spec.node.sysctls"),
		Entry("a sysctl that climbs out of its directory", sysctl("net.ipv4.conf.../../../etc.x", "1"), "spec.node.sysctls"),
		Entry("a sysctl with '..' for an interface", sysctl("net.ipv4.conf.../x.rp_filter", "1"), "spec.node.sysctls"),
		Entry("a sysctl with an empty label", sysctl("net..rmem_max", "1"), "spec.node.sysctls"),
		Entry("a sysctl with a blank", sysctl("net.core x", "1"), "spec.node.sysctls"),
		Entry("a sysctl with the prefix that makes systemd-sysctl pass over errors", sysctl("-net.core.rmem_max", "1"), "spec.node.sysctls"),
		Entry("a sysctl name that is too long", sysctl("net."+strings.Repeat("x", 125), "1"), "spec.node.sysctls"),
		Entry("a '/' outside an interface name", sysctl("fs/nfs.x", "1"), "spec.node.sysctls"),
		Entry("a sysctl value with a newline", sysctl("vm.swappiness", "1\nvm.panic_on_oom=1"), "spec.node.sysctls[vm.swappiness]"),
		Entry("a sysctl value with a carriage return", sysctl("vm.swappiness", "1\r"), "spec.node.sysctls[vm.swappiness]"),
		Entry("an empty sysctl value", sysctl("vm.swappiness", ""), "spec.node.sysctls.vm.swappiness"),
		Entry("a sysctl value that is too long", sysctl("vm.swappiness", strings.Repeat("1", 257)), "spec.node.sysctls.vm.swappiness"),
		Entry("a sysctl value that is a number in YAML", with(`node: {sysctls: {vm.swappiness: 1}}`), "spec.node.sysctls.vm.swappiness"),
		Entry("a sysctl at least that is no dotted name", atLeast("vm", "1"), "spec.node.sysctlsAtLeast"),
		Entry("a sysctl at least with '..' for an interface", atLeast("net.ipv4.conf.../x.rp_filter", "1"), "spec.node.sysctlsAtLeast"),
		Entry("a sysctl at least with a word for a number", atLeast("net.core.rmem_max", "much"), "spec.node.sysctlsAtLeast.net.core.rmem_max"),
		Entry("a sysctl at least with a suffix", atLeast("net.core.rmem_max", "16M"), "spec.node.sysctlsAtLeast.net.core.rmem_max"),
		Entry("a sysctl at least below 0", atLeast("net.core.rmem_max", "-1"), "spec.node.sysctlsAtLeast.net.core.rmem_max"),
		Entry("a sysctl at least with two blanks", atLeast("net.ipv4.tcp_rmem", "4096  131072 6291456"), "spec.node.sysctlsAtLeast.net.ipv4.tcp_rmem"),
		Entry("a sysctl at least with a newline", atLeast("net.core.rmem_max", "1\n"), "spec.node.sysctlsAtLeast.net.core.rmem_max"),
		Entry("an empty sysctl at least", atLeast("net.core.rmem_max", ""), "spec.node.sysctlsAtLeast.net.core.rmem_max"),
		Entry("a sysctl at least of nine numbers", atLeast("net.core.rmem_max", "1 2 3 4 5 6 7 8 9"), "spec.node.sysctlsAtLeast.net.core.rmem_max"),
		Entry("more than 64 sysctls at least", with("node: {sysctlsAtLeast: {"+list(65, `net.core.x%d: "1"`)+"}}"), "spec.node.sysctlsAtLeast"),
		Entry("more than 256 sysctls", with("node: {sysctls: {"+list(257, `net.core.x%d: "1"`)+"}}"), "spec.node.sysctls"),

		Entry("a kernel module by its path", with(`node: {kernelModules: [{name: ../nfs, parameters: {a: "1"}}]}`), "spec.node.kernelModules[0].name"),
		Entry("a kernel module without parameters", with(`node: {kernelModules: [{name: nfs, parameters: {}}]}`), "spec.node.kernelModules[0].parameters"),
		Entry("a module parameter with a blank", with(`node: {kernelModules: [{name: nfs, parameters: {"a b": "1"}}]}`), "spec.node.kernelModules[0].parameters"),
		Entry("a module parameter's value with a newline", with(`node: {kernelModules: [{name: nfs, parameters: {a: "1\ninstall x"}}]}`), "spec.node.kernelModules[0].parameters[a]"),
		Entry("the same module twice", with(`node: {kernelModules: [{name: nfs, parameters: {a: "1"}}, {name: nfs, parameters: {a: "2"}}]}`), "spec.node.kernelModules[1]"),
		Entry("more than 32 modules", with("node: {kernelModules: ["+list(33, `{name: m%d, parameters: {a: "1"}}`)+"]}"), "spec.node.kernelModules"),

		Entry("an empty kernel argument", argument(``), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with a blank", argument(`a=1 b=2`), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with a tab", argument("a=1\t"), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with a newline", argument("a=1\nb"), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with a quote", argument(`a="1"`), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with an apostrophe", argument(`a='1'`), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with a backslash", argument(`a=\1`), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with a '$'", argument(`a=$(reboot)`), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with a backtick", argument("a=`reboot`"), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument beyond ASCII", argument(`a=ü`), "spec.node.kernelArguments[0]"),
		Entry("a kernel argument with DEL", argument("a=\x7f"), "spec.node.kernelArguments[0]"),
		Entry("the same kernel argument twice", with(`node: {kernelArguments: [a, a]}`), "spec.node.kernelArguments[1]"),
		Entry("more than 32 kernel arguments", with("node: {kernelArguments: ["+list(33, "a%d")+"]}"), "spec.node.kernelArguments"),

		Entry("a read-ahead for no file system", with(`node: {readAhead: [{fsTypes: [], sizeKiB: 128}]}`), "spec.node.readAhead[0].fsTypes"),
		Entry("a read-ahead under a page", with(`node: {readAhead: [{fsTypes: [nfs], sizeKiB: 3}]}`), "spec.node.readAhead[0].sizeKiB"),
		Entry("a read-ahead beyond a GiB", with(`node: {readAhead: [{fsTypes: [nfs], sizeKiB: 1048577}]}`), "spec.node.readAhead[0].sizeKiB"),
		Entry("a tuned profile with a blank", with(`node: {tuned: {profile: "a b"}}`), "spec.node.tuned.profile"),
		Entry("a tuned profile that is an option", with(`node: {tuned: {profile: "../x"}}`), "spec.node.tuned.profile"),
		Entry("an empty tuned profile", with(`node: {tuned: {profile: ""}}`), "spec.node.tuned.profile"),
		Entry("NFS defaults with two options in one", with(`node: {nfsMountDefaults: [{options: ["a,b"]}]}`), "spec.node.nfsMountDefaults[0].options[0]"),
		Entry("NFS defaults without options", with(`node: {nfsMountDefaults: [{options: []}]}`), "spec.node.nfsMountDefaults[0].options"),
		Entry("NFS defaults for a server that closes its section", with(`node: {nfsMountDefaults: [{server: "a]", options: [hard]}]}`), "spec.node.nfsMountDefaults[0].server"),
		Entry("a relative mount point", with(`node: {filesystems: [{mountPoint: mnt/a, mountOptions: [noatime]}]}`), "spec.node.filesystems[0].mountPoint"),
		Entry("the root file system", with(`node: {filesystems: [{mountPoint: /, mountOptions: [noatime]}]}`), "spec.node.filesystems[0].mountPoint"),
		Entry("a mount point with a blank", with(`node: {filesystems: [{mountPoint: "/mnt/a b", mountOptions: [noatime]}]}`), "spec.node.filesystems[0].mountPoint"),
		Entry("a file system's option with a comma", with(`node: {filesystems: [{mountPoint: /mnt/a, mountOptions: ["noatime,ro"]}]}`), "spec.node.filesystems[0].mountOptions[0]"),

		Entry("a rule without a name", with(`volumes: [{selector: {drivers: [d]}}]`), "spec.volumes[0].name"),
		Entry("a rule's name in capitals", with(`volumes: [{name: A, selector: {drivers: [d]}}]`), "spec.volumes[0].name"),
		Entry("two rules of one name", with(`volumes: [{name: a, selector: {drivers: [d]}}, {name: a, selector: {drivers: [e]}}]`), "spec.volumes[1]"),
		Entry("more than 32 rules", with("volumes: ["+list(33, "{name: r%d, selector: {drivers: [d]}}")+"]"), "spec.volumes"),
		Entry("a rule without a selector", with(`volumes: [{name: a}]`), "spec.volumes[0].selector"),
		Entry("an empty selector", selector(`{}`), "spec.volumes[0].selector"),
		Entry("a selector with an empty term", selector(`{protocols: []}`), "spec.volumes[0].selector"),
		Entry("a selector with empty terms only", selector(`{drivers: [], servers: [], fsTypes: [], accessModes: [], claimNamespaces: [], storageClassNames: []}`), "spec.volumes[0].selector"),
		Entry("a selector with an empty label selector", selector(`{volumeSelector: {}}`), "spec.volumes[0].selector"),
		Entry("a selector with label selectors that hold no term", selector(`{volumeSelector: {matchLabels: {}}, claimSelector: {matchExpressions: []}}`), "spec.volumes[0].selector"),
		Entry("an unknown protocol", selector(`{protocols: [CIFS]}`), "spec.volumes[0].selector.protocols[0]"),
		Entry("an unknown access mode", selector(`{accessModes: [RWX]}`), "spec.volumes[0].selector.accessModes[0]"),
		Entry("a mount option with a comma", options(`"nocto,nconnect=4"`), "spec.volumes[0].mountOptions[0]"),
		Entry("a mount option with a blank", options(`"nconnect= 4"`), "spec.volumes[0].mountOptions[0]"),
		Entry("a mount option with a newline", options(`"nocto\n"`), "spec.volumes[0].mountOptions[0]"),
		Entry("an empty mount option", options(`""`), "spec.volumes[0].mountOptions[0]"),
		Entry("a mount option of 129 characters", options(strings.Repeat("a", 129)), "spec.volumes[0].mountOptions[0]"),
		Entry("more than 32 mount options", options(list(33, "a%d")), "spec.volumes[0].mountOptions"),
		Entry("a volume's read-ahead under a page", with(`volumes: [{name: a, selector: {drivers: [d]}, readAheadKiB: 3}]`), "spec.volumes[0].readAheadKiB"),
		Entry("an unknown onConflict", with(`volumes: [{name: a, selector: {drivers: [d]}, onConflict: Replace}]`), "spec.volumes[0].onConflict"),
		Entry("an unknown gitOpsOwned", with(`volumes: [{name: a, selector: {drivers: [d]}, gitOpsOwned: Force}]`), "spec.volumes[0].gitOpsOwned"),

		Entry("a failure threshold of 0", rollout(`failureThreshold: 0`), "spec.rollout.failureThreshold"),
		Entry("a negative settling time", rollout(`settleSeconds: -1`), "spec.rollout.settleSeconds"),
		Entry("a negative soak of the canary", rollout(`canary: {soakSeconds: -1}`), "spec.rollout.canary.soakSeconds"),
		Entry("an unknown onNoEvidence", rollout(`volumes: {onNoEvidence: Hope}`), "spec.rollout.volumes.onNoEvidence"),
		Entry("a negative soak of volumes", rollout(`volumes: {soakSeconds: -1}`), "spec.rollout.volumes.soakSeconds"),
		Entry("an empty canary", rollout(`canary: {nodes: 0}`), "spec.rollout.canary.nodes"),
		Entry("a canary by number and by selector", rollout(`canary: {nodes: 1, nodeSelector: {}}`), "spec.rollout.canary"),
		Entry("a window without a schedule", rollout(`windows: [{durationSeconds: 1}]`), "spec.rollout.windows[0].schedule"),
		Entry("a window without a duration", rollout(`windows: [{schedule: "0 2 * * *"}]`), "spec.rollout.windows[0].durationSeconds"),
		Entry("a window of no duration", rollout(`windows: [{schedule: "0 2 * * *", durationSeconds: 0}]`), "spec.rollout.windows[0].durationSeconds"),
		Entry("a window of more than a week", rollout(`windows: [{schedule: "0 2 * * *", durationSeconds: 604801}]`), "spec.rollout.windows[0].durationSeconds"),
		Entry("more than 16 windows", rollout("windows: ["+list(17, `{schedule: "%d 2 * * *", durationSeconds: 1}`)+"]"), "spec.rollout.windows"),
		Entry("a drain of no time", rollout(`drain: {timeoutSeconds: 0}`), "spec.rollout.drain.timeoutSeconds"),
		Entry("an unknown lookAhead", rollout(`drain: {lookAhead: Never}`), "spec.rollout.drain.lookAhead"),
		Entry("a negative exclusion from load balancers", rollout(`drain: {excludeFromLoadBalancersSeconds: -1}`), "spec.rollout.drain.excludeFromLoadBalancersSeconds"),
		Entry("an unknown reboot policy", rollout(`reboot: {policy: Always}`), "spec.rollout.reboot.policy"),
		Entry("a reboot of no time", rollout(`reboot: {timeoutSeconds: 0}`), "spec.rollout.reboot.timeoutSeconds"),
		Entry("an approval that is no hash", rollout("reboot: {approvedPlan: "+strings.Repeat("a", 65)+"}"), "spec.rollout.reboot.approvedPlan"),
	)

	DescribeTable("is accepted for",
		func(spec string) { Expect(createShape("StorageClientProfile", spec)).To(Succeed()) },

		Entry("all nodes and nothing else", with(``)),
		Entry("a nodeSelector and nothing else", `nodeSelector: {matchLabels: {agentpool: x}}`),
		Entry("a nodeSelector of expressions", `nodeSelector: {matchExpressions: [{key: agentpool, operator: Exists}]}`),
		Entry("all nodes with an empty nodeSelector", `nodeSelector: {}, allNodes: true`),
		Entry("every field", everyField()),
		Entry("all bounds at once", everyBound()),
		Entry("a dot inside an interface name written '/'", sysctl("net.ipv4.conf.eth0/100.rp_filter", "0")),
		Entry("a sysctl value with blanks", sysctl("net.ipv4.tcp_rmem", "4096 131072 16777216")),
		Entry("a slot limit from nconnect", sysctl("sunrpc.tcp_max_slot_table_entries", "FromNconnect")),
		Entry("a kernel argument without a value", argument(`nosmt`)),
		Entry("every character that a kernel argument may contain", argument(printable("\"'\\$` "))),
		Entry("a soak and a settling time of 0", rollout(`settleSeconds: 0, canary: {soakSeconds: 0}, volumes: {soakSeconds: 0}`)),
		Entry("a canary by selector", rollout(`canary: {nodeSelector: {matchLabels: {canary: "true"}}}`)),
		Entry("a mount option of 128 characters", options(strings.Repeat("a", 128))),
	)

	for _, field := range shareFields {
		for _, share := range []string{`0`, `-1`, `"0%"`, `"101%"`, `"100"`, `"1.5%"`, `"%"`, `"01%"`, `"-1%"`, `""`, `ten`, `true`} {
			It(fmt.Sprintf("rejects %s: %s", field.name, share), func() {
				expectInvalid(createShape("StorageClientProfile", rollout(fmt.Sprintf(field.yaml, share))), field.name)
			})
		}
		for _, share := range []string{`1`, `5000`, `"1%"`, `"9%"`, `"10%"`, `"99%"`, `"100%"`} {
			It(fmt.Sprintf("accepts %s: %s", field.name, share), func() {
				Expect(createShape("StorageClientProfile", rollout(fmt.Sprintf(field.yaml, share)))).To(Succeed())
			})
		}
	}

	It("starts with observedGeneration -1 and counts of 0, and sets no defaults in spec", func() {
		newProfile("new").Create()
		object := shape("StorageClientProfile", "")
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "new"}, object)).To(Succeed())
		Expect(object.Object["status"]).To(Equal(map[string]any{
			"observedGeneration": int64(-1),
			"nodes": map[string]any{
				"matched": int64(0), "upToDate": int64(0), "exceptions": int64(0), "pendingReboot": int64(0),
				"disrupted": int64(0), "failed": int64(0), "drifted": int64(0),
			},
			"volumes": map[string]any{"matched": int64(0), "upToDate": int64(0), "exceptions": int64(0), "blocked": int64(0), "staleMounts": int64(0), "leftOut": int64(0)},
			"plan":    map[string]any{"hash": "", "nodesToReboot": int64(0), "limitedBy": ""},
		}))
		Expect(object.Object["spec"]).To(Equal(map[string]any{"allNodes": true}))
	})
})

var _ = Describe("The shape of a StorageClientNode", func() {
	DescribeTable("is rejected, and the error names the field, for",
		func(spec, field string) { expectInvalid(createShape("StorageClientNode", spec), field) },

		Entry("more than 256 settings", "settings: ["+list(257, nodeSetting("sysctl/net.core.x%d", "1"))+"]", "spec.settings"),
		Entry("two settings of one key", "settings: ["+nodeSetting("a/b", "1")+", "+nodeSetting("a/b", "2")+"]", "spec.settings[1]"),
		Entry("a key with a newline", "settings: ["+nodeSetting("sysctl/a\nb", "1")+"]", "spec.settings[0].key"),
		Entry("a key with a blank", "settings: ["+nodeSetting("sysctl/a b", "1")+"]", "spec.settings[0].key"),
		Entry("a value with a quote", "settings: ["+nodeSetting("a/b", "'1'")+"]", "spec.settings[0].value"),
		Entry("a value with a newline", "settings: ["+nodeSetting("a/b", "1\n2")+"]", "spec.settings[0].value"),
		Entry("an unknown onRemoval", `settings: [{key: a/b, profile: p, onRemoval: Delete}]`, "spec.settings[0].onRemoval"),
		Entry("a permit without a name", `rebootPermit: {id: "", bootID: b}`, "spec.rebootPermit.id"),
		Entry("a permit for no boot", `rebootPermit: {id: p}`, "spec.rebootPermit.bootID"),
		Entry("a permit that ignores more than 256 pods", "rebootPermit: {id: p, bootID: b, ignorePodUIDs: ["+list(257, "u%d")+"]}", "spec.rebootPermit.ignorePodUIDs"),
	)

	It("holds 256 settings and a permit", func() {
		Expect(createShape("StorageClientNode", "settings: ["+list(256, nodeSetting("sysctl/net.core.x%d", "4096 131072"))+
			"], hash: h, bootHash: h, rebootPermit: {id: p, bootHash: h, bootID: b, ignorePodUIDs: ["+list(256, "u%d")+"]}")).To(Succeed())
	})
})

// shareFields are the fields that accept a number or a percentage.
var shareFields = []struct{ name, yaml string }{
	{"spec.rollout.maxUnavailable", "maxUnavailable: %s"},
	{"spec.rollout.maxConcurrentLive", "maxConcurrentLive: %s"},
	{"spec.rollout.volumes.maxPerStep", "volumes: {maxPerStep: %s}"},
}

// shape returns an object whose spec is the given flow of YAML. It is unstructured, so that it can contain values that the Go types do
// not support.
func shape(kind, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	Expect(yaml.Unmarshal([]byte("{spec: {"+spec+"}}"), &object.Object)).To(Succeed())
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	object.SetName("shape")
	return object
}

func createShape(kind, spec string) error {
	GinkgoHelper()
	return k8s.Create(ctx, shape(kind, spec), client.DryRunAll)
}

func expectInvalid(err error, field string) {
	GinkgoHelper()
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), "want Invalid, got %v", err)
	Expect(err).To(MatchError(ContainSubstring(field)))
}

func with(spec string) string { return "allNodes: true, " + spec }

func sysctl(key, value string) string {
	return with("node: {sysctls: {" + strconv.Quote(key) + ": " + strconv.Quote(value) + "}}")
}

func atLeast(key, numbers string) string {
	return with("node: {sysctlsAtLeast: {" + strconv.Quote(key) + ": " + strconv.Quote(numbers) + "}}")
}

func argument(argument string) string {
	return with("node: {kernelArguments: [" + strconv.QuoteToASCII(argument) + "]}")
}

func selector(selector string) string {
	return with("volumes: [{name: a, selector: " + selector + "}]")
}

func options(options string) string {
	return with("volumes: [{name: a, selector: {drivers: [d]}, mountOptions: [" + options + "]}]")
}

func rollout(rollout string) string { return with("rollout: {" + rollout + "}") }

func nodeSetting(key, value string) string {
	return fmt.Sprintf(`{key: %q, value: %q, profile: p, onRemoval: Restore}`, key, value)
}

// list joins count items. A format with a verb gets the number of the item.
func list(count int, format string) string {
	items := make([]string, count)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(items, ", ")
}

// printable returns all printable ASCII characters except the given ones.
func printable(but string) string {
	var all strings.Builder
	for c := ' '; c <= '~'; c++ {
		if !strings.ContainsRune(but, c) {
			all.WriteRune(c)
		}
	}
	return all.String()
}

// everyBound returns a profile that is as large as the bounds allow.
func everyBound() string {
	option := strings.Repeat("o", 120)
	rule := `{name: r%d, selector: {drivers: [d]}, mountOptions: [` + strings.ReplaceAll(list(32, option+"%d"), "%", "%%") + `]}`
	return with("node: {sysctls: {" + list(256, `net.core.x%d: "`+strings.Repeat("1", 256)+`"`) + "}, " +
		"sysctlsAtLeast: {" + list(64, `net.core.x%d: "1 2 3 4 5 6 7 111111111111111111"`) + "}, " +
		"kernelArguments: [" + list(32, strings.Repeat("a", 250)+"%d") + "]}, " +
		"volumes: [" + list(32, rule) + "]")
}

// everyField returns a profile that uses each field once.
func everyField() string {
	GinkgoHelper()
	content, err := os.ReadFile("testdata/every-field.yaml")
	if err != nil {
		panic(err)
	}
	json, err := yaml.YAMLToJSON(content)
	if err != nil {
		panic(err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(json), "{"), "}")
}
