package mountoptions

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		list []string
		want []Option
	}{
		"nothing":                         {},
		"a flag":                          {[]string{"nocto"}, []Option{{Name: "nocto"}}},
		"a value":                         {[]string{"nconnect=4"}, []Option{{"nconnect", "4", true}}},
		"an empty value is not a flag":    {[]string{"fsc="}, []Option{{"fsc", "", true}}},
		"only the first sign separates":   {[]string{"a=b=c"}, []Option{{"a", "b=c", true}}},
		"an entry that is a list itself":  {[]string{"hard,nconnect=4", "nocto"}, []Option{{Name: "hard"}, {"nconnect", "4", true}, {Name: "nocto"}}},
		"empty entries are left out":      {[]string{"", ",,", "hard,"}, []Option{{Name: "hard"}}},
		"a comma in quotes does not part": {[]string{`context="a,b",ro`}, []Option{{"context", `"a,b"`, true}, {Name: "ro"}}},
		"a quote that is not closed":      {[]string{`context="a,b`}, []Option{{"context", `"a,b`, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Parse(test.list), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "nocto", "hard,nconnect=4", `context="a,b",ro`, "a=b=c,,", "vers=4,minorversion=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		options := Parse([]string{entry})
		for _, o := range options {
			if o.String() == "" || !strings.Contains(entry, o.String()) {
				t.Errorf("%q of %q", o, entry)
			}
		}
		if diff := cmp.Diff(options, Parse([]string{strings.Join(texts(options), ",")})); diff != "" {
			t.Error(diff)
		}
		Validate(NFS, []string{entry})
		NFS.Merge([]string{entry}, []string{"actimeo=30", "vers=4.1"}, v1alpha1.ConflictUseProfile, nil)
		NFS.Compare([]string{entry}, []string{entry})
	})
}

func TestNconnect(t *testing.T) {
	for name, test := range map[string]struct {
		options  []string
		want     int
		ok       bool
		wantVAST int
	}{
		"none":               {options: []string{"hard"}},
		"given":              {options: []string{"hard", "nconnect=8"}, want: 8, ok: true, wantVAST: 8},
		"the last one wins":  {options: []string{"nconnect=8", "nconnect=4"}, want: 4, ok: true, wantVAST: 4},
		"more than there is": {options: []string{"nconnect=17"}, wantVAST: 17},
		"the most of VAST":   {options: []string{"nconnect=64"}, wantVAST: 64},
		"more than VAST has": {options: []string{"nconnect=65"}},
		"none at all":        {options: []string{"nconnect=0"}},
		"no number":          {options: []string{"nconnect=many"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := NFS.Nconnect(test.options); got != test.want || ok != test.ok {
				t.Errorf("Nconnect(%v): got %d, %v; want %d, %v", test.options, got, ok, test.want, test.ok)
			}
			if got, ok := VAST.Nconnect(test.options); got != test.wantVAST || ok != (test.wantVAST > 0) {
				t.Errorf("VAST.Nconnect(%v): got %d, %v; want %d", test.options, got, ok, test.wantVAST)
			}
		})
	}
}

func TestTransport(t *testing.T) {
	for name, test := range map[string]struct {
		options []string
		want    TransportOptions
	}{
		"no options": {nil, TransportOptions{Proto: "tcp"}},
		"all of it": {[]string{"nfsvers=4.1", "nconnect=4", "noresvport", "tcp", "actimeo=30"},
			TransportOptions{Version: "4.1", Proto: "tcp", Nconnect: 4, NoResvPort: true}},
		"the version written the old way": {[]string{"vers=4", "minorversion=1", "rdma"}, TransportOptions{Version: "4.1", Proto: "rdma"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, NFS.Transport(test.options)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEffect(t *testing.T) {
	for option, want := range map[string]v1alpha1.SettingEffect{
		"nconnect=4": v1alpha1.EffectNewTransport, "noresvport": v1alpha1.EffectNewTransport,
		"actimeo=30": v1alpha1.EffectNextMount, "nocto": v1alpha1.EffectNextMount, "vers=4.1": v1alpha1.EffectNextMount,
	} {
		if got := NFS.Effect(option); got != want {
			t.Errorf("Effect(%q): got %s, want %s", option, got, want)
		}
	}
}
