package mountoptions

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// valueOf returns a value that the kernel accepts for an option.
func valueOf(s spec) string {
	switch {
	case s.Kind == count:
		return strconv.FormatInt(s.Min, 10)
	case s.Kind == size:
		return "65536"
	case len(s.Words) > 0:
		return s.Words[0]
	}
	return "1"
}

// kernel is the parameter table of one release: the names that it parses, with "=" if they have a value.
type kernel struct {
	release string
	names   map[string]bool
}

// readKernels returns the parameter tables by protocol, with the oldest kernel first.
func readKernels(t *testing.T) map[Protocol][]kernel {
	t.Helper()
	data, err := os.ReadFile("testdata/parameters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var changes map[Protocol][]struct{ Kernel, Adds, Drops string }
	if err := yaml.UnmarshalStrict(data, &changes); err != nil {
		t.Fatal(err)
	}
	all := map[Protocol][]kernel{}
	for protocol, list := range changes {
		names := map[string]bool{}
		for _, change := range list {
			for _, name := range expand(change.Drops) {
				if !names[name] {
					t.Errorf("%s %s: drops %s, which no older kernel has", protocol, change.Kernel, name)
				}
				delete(names, name)
			}
			for _, name := range expand(change.Adds) {
				if names[name] {
					t.Errorf("%s %s: adds %s again", protocol, change.Kernel, name)
				}
				names[name] = true
			}
			all[protocol] = append(all[protocol], kernel{change.Kernel, maps.Clone(names)})
		}
	}
	return all
}

// expand returns the names of a list in which "[no]acl" is acl and noacl.
func expand(list string) (names []string) {
	for name := range strings.FieldsSeq(list) {
		if base, ok := strings.CutPrefix(name, "[no]"); ok {
			names = append(names, base, "no"+base)
			continue
		}
		names = append(names, name)
	}
	return names
}

// Every parameter of the kernel is accepted in its form, or rejected with the true reason.
func TestEveryParameterOfTheKernelIsKnown(t *testing.T) {
	for protocol, kernels := range readKernels(t) {
		table := tableOf(protocol)
		latest := kernels[len(kernels)-1].names
		for _, k := range kernels {
			for name := range k.names {
				option, hasValue := strings.CutSuffix(name, "=")
				if _, known := table.specs[option]; hasValue && known && !latest[name] {
					// Only old kernels need a value.
					option = name + "1"
					if table.validateOption(option, parseOne(option)) == "" {
						t.Errorf("%s %s: got accepted, but kernel %s rejects it", protocol, option, kernels[len(kernels)-1].release)
					}
					continue
				}
				if hasValue {
					option += "=" + strings.Replace(valueOf(table.specs[option]), "*", "tag", 1)
				}
				checkParameter(t, protocol, option)
			}
		}
	}
}

// An option has the first kernel that parses it, and the newest kernel still parses it.
func TestEveryOptionHasItsFirstKernel(t *testing.T) {
	for protocol, kernels := range readKernels(t) {
		for name, s := range tableOf(protocol).specs {
			_, isGeneric := generic.specs[name]
			if isGeneric || slices.Contains([]string{"atime", "strictatime", "diratime", "nodiratime"}, name) {
				continue
			}
			form := name
			if s.Value == "" {
				form += "="
			}
			first := slices.IndexFunc(kernels, func(k kernel) bool { return k.names[form] })
			if first < 0 || !kernels[len(kernels)-1].names[form] {
				t.Errorf("%s %s: got an option that no kernel has in this form, or no longer has", protocol, name)
				continue
			}
			// A kernel between the two tables can be the first one.
			if isLate := first > 0; isLate && (isOlder(s.Since, kernels[first-1].release) || s.Since == kernels[first-1].release) ||
				s.Since != "" && isOlder(kernels[first].release, s.Since) {
				t.Errorf("%s %s: got since %q, but %s is the first table with it", protocol, name, s.Since, kernels[first].release)
			}
			withValue := slices.IndexFunc(kernels, func(k kernel) bool { return k.names[name+"="] })
			if len(s.Words) > 0 && withValue > first && !strings.Contains(s.Note, "kernel "+kernels[withValue].release) {
				t.Errorf("%s %s: got note %q, but values need kernel %s", protocol, name, s.Note, kernels[withValue].release)
			}
		}
	}
}

// isOlder reports whether one release is older than another. An empty release is the oldest.
func isOlder(a, b string) bool {
	number := func(release string) (n int) {
		for part := range strings.SplitSeq(release, ".") {
			i, _ := strconv.Atoi(part)
			n = n*1000 + i
		}
		return n
	}
	return number(a) < number(b)
}

func checkParameter(t *testing.T, protocol Protocol, option string) {
	t.Helper()
	o := parseOne(option)
	message := tableOf(protocol).validateOption(option, o)
	_, accepted := tableOf(protocol).specs[o.Name]
	switch {
	case accepted && message != "":
		t.Errorf("%s %s: got %s", protocol, option, message)
	case !accepted && !strings.HasPrefix(message, "is rejected: it "):
		t.Errorf("%s %s: got %q, want a reason", protocol, option, message)
	}
}

func TestOptionsThatKernelsAccept(t *testing.T) {
	for protocol, options := range map[Protocol][]string{
		NFS: {"rdirplus", "rdirplus=none", "rdirplus=force", "fsc", "fsc=tag", "fatal_neterrors=ENETUNREACH:ENETDOWN"},
		SMB: {"sign", "nodelete", "tcpnodelay", "notcpnodelay", "noblocksend", "noautotune", "min_enc_offload=0", "compress", "nosparse", "bsize=1048576"},
		XFS: {"lifetime", "nolifetime", "max_open_zones=8", "max_atomic_write=16k", "dax", "dax=never"},
	} {
		for _, option := range options {
			for _, p := range Validate(protocol, []string{option}) {
				if !p.Warning {
					t.Errorf("%s %s: got %s", protocol, option, p.Message)
				}
			}
		}
	}
	for protocol, reasons := range map[Protocol]map[string]string{
		NFS: {"rdirplus=never": "must be one of none, force", "nosoftreval": "no kernel accepts it", "v2": "NFSv2", "namlen=255": "replaces a value that the server reports",
			"nconect=4": "is unknown. Did you mean nconnect?", "logbsize=256k": "is unknown to this version of the operator"},
		SMB: {"iocharset=utf8": "only the volume itself may set that", "nocase": "names are written and compared", "snapshot=@GMT-2024.01.01-00.00.00": "earlier time",
			"upcall_target=app": "who logs in", "rdma": "how it is reached", "strictcache": "write cache"},
	} {
		for option, want := range reasons {
			problems := Validate(protocol, []string{option})
			if len(problems) != 1 || !strings.Contains(problems[0].Message, want) {
				t.Errorf("%s %s: got %v, want %q", protocol, option, problems, want)
			}
		}
	}
}

func TestValuesInAnotherFormCompareAsTheKernelShowsThem(t *testing.T) {
	for protocol, cases := range map[Protocol]map[string]string{
		NFS: {"rdirplus=none": "nordirplus", "rdirplus=force": "rdirplus=force", "rdirplus": "rdirplus", "fsc=tag": "fsc", "lookupcache=positive": "lookupcache=pos"},
		XFS: {"dax": "dax=always", "dax=always": "dax=always"},
		SMB: {"min_enc_offload=4096": "esize=4096"},
	} {
		for wanted, shown := range cases {
			if d := protocol.Compare([]string{wanted}, []string{shown}); len(d) != 0 {
				t.Errorf("%s %s, shown as %s: got %v", protocol, wanted, shown, d)
			}
		}
	}
	if d := NFS.Compare([]string{"rdirplus=none"}, []string{"rw"}); len(d) != 1 {
		t.Errorf("got %v for rdirplus=none on a mount without it", d)
	}
}
