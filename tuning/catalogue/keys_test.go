package catalogue

import "testing"

func TestKey(t *testing.T) {
	for name, test := range map[string]struct {
		key                Key
		subject, name      string
		inModules, forBoot bool
	}{
		"a key of a subject":                             {key: "module/nfs/max_session_slots", subject: Modules, name: "nfs/max_session_slots", inModules: true},
		"a kernel argument":                              {key: "kernelArgument/dhash_entries", subject: KernelArguments, name: "dhash_entries", forBoot: true},
		"a mount point keeps its slashes":                {key: "filesystem/mnt/a/b", subject: Filesystems, name: "mnt/a/b"},
		"a subject that begins like another":             {key: "modules/nfs/a", subject: "modules", name: "nfs/a"},
		"a text without a slash is in no subject":        {key: "module", subject: Modules},
		"a subject alone is no argument of the kernel's": {key: "kernelArgument", subject: KernelArguments},
		"nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			if subject, name := test.key.Cut(); subject != test.subject || name != test.name || test.key.Subject() != test.subject {
				t.Errorf("Cut(%q) = %q, %q", test.key, subject, name)
			}
			name, in := test.key.In(Modules)
			if in != test.inModules || in && KeyOf(Modules, name) != string(test.key) {
				t.Errorf("In(%q, %s) = %q, %v", test.key, Modules, name, in)
			}
			if got := test.key.AtBoot(); got != test.forBoot {
				t.Errorf("AtBoot(%q): got %v", test.key, got)
			}
		})
	}
}

func TestValueIsReadAndWrittenUnchanged(t *testing.T) {
	for value, want := range map[string]Value{
		"at-least 4096 131072": {Text: "4096 131072", AtLeast: true},
		"at-least  1":          {Text: " 1", AtLeast: true},
		"4096 131072":          {Text: "4096 131072"},
		"at-least":             {Text: "at-least"},
		"":                     {},
	} {
		if got := ParseValue(value); got != want || got.String() != value {
			t.Errorf("ParseValue(%q): got %+v, written as %q", value, got, got)
		}
	}
}
