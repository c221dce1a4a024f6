package mountoptions

import (
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

// Every parameter of the kernel is accepted in its form, or rejected with the true reason.
func TestEveryParameterOfTheKernelIsKnown(t *testing.T) {
	data, err := os.ReadFile("testdata/parameters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kernel map[Protocol]map[string]string
	if err := yaml.UnmarshalStrict(data, &kernel); err != nil {
		t.Fatal(err)
	}
	for protocol, forms := range kernel {
		table := tableOf(protocol)
		var flags, names []string
		for form, list := range forms {
			for name := range strings.FieldsSeq(list) {
				names = append(names, name)
				option := name
				switch form {
				case "flag":
					flags = append(flags, name)
				case "flag_no":
					flags, names = append(flags, name, "no"+name), append(names, "no"+name)
				default:
					option += "=" + strings.Replace(valueOf(table.specs[name]), "*", "tag", 1)
				}
				checkParameter(t, protocol, option)
				if form == "flag_no" {
					checkParameter(t, protocol, "no"+name)
				}
			}
		}
		for name, s := range table.specs {
			if _, isGeneric := generic.specs[name]; isGeneric {
				continue
			}
			if isFlag := s.Value != ""; isFlag && !slices.Contains(flags, name) && slices.Contains(names, name) {
				t.Errorf("%s %s: got a flag, but the kernel needs a value", protocol, name)
			}
			if !slices.Contains(names, name) && !slices.Contains([]string{"atime", "strictatime", "diratime", "nodiratime"}, name) {
				t.Errorf("%s %s: got an option that no kernel has", protocol, name)
			}
		}
	}
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
