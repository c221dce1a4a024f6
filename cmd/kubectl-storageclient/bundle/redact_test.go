package bundle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/api/v1alpha1"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/knownbad"
)

func TestTextsOfEachClass(t *testing.T) {
	for name, test := range map[string]struct{ class, text, want string }{
		"a known reason":                      {"word", "WaitingForApproval", "WaitingForApproval"},
		"an unknown reason":                   {"word", "Acme", "text-1 (4 characters)"},
		"a known word in a free text":         {"text", "Failed", "Failed"},
		"a time":                              {"time", "2026-09-01T00:00:00.5Z", "2026-09-01T00:00:00.5Z"},
		"no time":                             {"time", "2026-09-01", "text-1 (10 characters)"},
		"a hash":                              {"id", "9a36d0ef366bc57d", "9a36d0ef366bc57d"},
		"a UID":                               {"id", "0b1c2d3e-0000-4000-8000-0123456789ab", "0b1c2d3e-0000-4000-8000-0123456789ab"},
		"an address in hexadecimal":           {"id", "0a010203", "text-1 (8 characters)"},
		"numbers":                             {"number", "4096 131072 16Mi 40% 1.5", "4096 131072 16Mi 40% 1.5"},
		"an address instead of a number":      {"number", "10.1.2.3", "text-1 (8 characters)"},
		"a kernel of a distribution":          {"version", "6.1.0-40-amd64", "6.1.0-40"},
		"a kernel with a name":                {"version", "6.1.0-acme", "6.1.0"},
		"an address instead of a version":     {"version", "10.1.2.3", "text-1 (8 characters)"},
		"an operating system":                 {"tokens", "Debian GNU/Linux 12 (bookworm) by Acme", "Debian GNU Linux 12 bookworm"},
		"an image of a release":               {"image", "registry.acme.example/manager:v1.2.3", "image-1:v1.2.3"},
		"an image of a team":                  {"image", "registry.acme.example/manager:acme", "image-1"},
		"a setting of the catalogue":          {"setting", "sysctl/net.core.rmem_max", "sysctl/net.core.rmem_max"},
		"a setting of an allow-list":          {"setting", "module/acme/secret", "module/key-1"},
		"a setting with a path":               {"setting", "filesystem/mnt/acme", "filesystem/key-1"},
		"a setting with a server":             {"setting", "nfsMountDefaults/filer.acme.example", "nfsMountDefaults/key-1"},
		"no setting":                          {"setting", "acme", "key-1"},
		"an option":                           {"option", "vers=4.1", "vers=4.1"},
		"an option with a word":               {"option", "sec=krb5p", "sec=krb5p"},
		"an option with an address":           {"option", "addr=10.1.2.3", "addr=text-1 (8 characters)"},
		"an unknown option":                   {"option", "acme", "text-1 (4 characters)"},
		"a user":                              {"option", "username=joe", "username=text-1 (3 characters)"},
		"a password of digits":                {"option", "password=12345", "password=text-1 (5 characters)"},
		"a kernel argument":                   {"option", "ihash_entries=16777216", "ihash_entries=16777216"},
		"a flag":                              {"flag", "--max-unavailable=5%", "--max-unavailable=5%"},
		"a flag with a text":                  {"flag", "--kubeconfig=/home/joe", "--kubeconfig=text-1 (9 characters)"},
		"an unknown flag":                     {"flag", "--token=x", "text-1 (9 characters)"},
		"a name":                              {"node", "ip-10-0-1-2", "node-1"},
		"a name of the operator":              {"namespace", "storage-client-system", "storage-client-system"},
		"JSON in an annotation":               {"json", `{"node":"n1","at":"2026-09-01T00:00:00Z","acme":"x","message":"z"}`, `{"at":"2026-09-01T00:00:00Z","message":"text-1 (1 characters)","node":"node-1"}`},
		"a text instead of JSON":              {"json", "acme", "text-1 (4 characters)"},
		"a number in an annotation stays one": {"json", "5", "5"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NewRedactor(false).text(test.class, test.text); got != test.want {
				t.Errorf("%q becomes %q, want %q", test.text, got, test.want)
			}
		})
	}
}

func TestATextHasTheSameNumberEverywhere(t *testing.T) {
	r := NewRedactor(false)
	got, err := r.Keep([]map[string]any{{"node": "n1", "message": "x", "acme": "x", "count": 5}, {"examples": []string{"n2", "n1"}, "volumes": []string{"vol"}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(got)
	want := `[{"count":5,"message":"text-1 (1 characters)","node":"node-1"},{"examples":["node-2","node-1"],"volumes":["volume-1"]}]`
	if diff := cmp.Diff(want, string(data)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestWithoutRedactionNamesStayAndTextsDoNot(t *testing.T) {
	r := NewRedactor(true)
	if got := r.Name("server", "filer") + " " + r.text("message", "x") + " " + r.text("text", "secret") + " " + r.text("option", "password=x"); got != "filer x text-1 (6 characters) password=text-2 (1 characters)" {
		t.Errorf("got %q", got)
	}
}

// each calls do with the source of each file of a directory, without tests.
func each(t *testing.T, dir string, do func(source string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("../../..", dir), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		do(string(source))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A reason or a log message that is missing in the list would be a number in each bundle.
func TestWordsContainAllReasonsAndLogMessages(t *testing.T) {
	found := 0
	require := func(pattern string) func(string) {
		return func(source string) {
			for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(source, -1) {
				if found++; !words[match[1]] {
					t.Errorf("words.txt lacks %q", match[1])
				}
			}
		}
	}
	each(t, "api/v1alpha1", require(`= "([A-Z][A-Za-z0-9.]+)"`))
	each(t, "controllers/volume/judge", require(`State = "([A-Z][A-Za-z]+)"`))
	for _, dir := range []string{"agent", "controllers", "cmd"} {
		each(t, dir, require(`\.(?:Info|Error)\((?:[a-zA-Z.()]+, )?"([A-Z][^"]+)"`))
	}
	for _, e := range knownbad.Entries() {
		if e.Sign != nil && !words[e.ID] {
			t.Errorf("words.txt lacks %q", e.ID)
		}
	}
	if found < 200 {
		t.Errorf("got %d words in the sources, want at least 200", found)
	}
}

// A new field of the API is either listed or left out by the list below.
func TestFieldsOfTheAPIAreListed(t *testing.T) {
	omitted := map[string]bool{"managedFields": true}
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(typed reflect.Type) {
		for typed.Kind() == reflect.Pointer || typed.Kind() == reflect.Slice || typed.Kind() == reflect.Map {
			typed = typed.Elem()
		}
		if typed.Kind() != reflect.Struct || seen[typed] || !strings.Contains(typed.PkgPath(), "storageclient/operator") {
			return
		}
		seen[typed] = true
		for field := range typed.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && classes[name] == "" && !omitted[name] {
				t.Errorf("fields.csv lacks %s of %s", name, typed.Name())
			}
			walk(field.Type)
		}
	}
	for _, value := range []any{v1alpha1.StorageClientProfile{}, v1alpha1.StorageClientNode{}, volumeplan.Listed{}, v1alpha1.ProfileFailures{}} {
		walk(reflect.TypeOf(value))
	}
}
