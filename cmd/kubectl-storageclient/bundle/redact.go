// Package bundle collects information about a cluster for support, without confidential data. It is pure.
package bundle

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// fieldList contains the fields of a bundle with the class of their texts. A field that it does not contain is not collected.
//
//go:embed fields.csv
var fieldList string

// wordList contains texts with a fixed meaning: reasons, states, names of the operator, log messages. They are the same in all clusters.
//
//go:embed words.txt
var wordList string

var classes, words = readLists()

func readLists() (classes map[string]string, words map[string]bool) {
	classes, words = map[string]string{}, map[string]bool{}
	for line := range strings.Lines(fieldList) {
		if field, class, found := strings.Cut(strings.TrimSpace(line), ","); found {
			classes[field] = class
		}
	}
	for line := range strings.Lines(wordList) {
		words[strings.TrimSpace(line)] = true
	}
	for _, protocol := range []mountoptions.Protocol{mountoptions.NFS, mountoptions.SMB, mountoptions.XFS} {
		for _, option := range protocol.Known() {
			words[option.Name] = true
		}
	}
	return classes, words
}

// Redactor keeps texts that it can parse and numbers all others. A text has the same number everywhere in a bundle.
type Redactor struct {
	// off keeps names, addresses, servers and mount sources, but no free text.
	off    bool
	names  map[string]string
	counts map[string]int
}

// NewRedactor returns a redactor. If off is set, it keeps names, addresses, servers, and mount sources.
func NewRedactor(off bool) *Redactor {
	return &Redactor{off: off, names: map[string]string{}, counts: map[string]int{}}
}

// Name returns the pseudonym of a name, of a kind such as node or server.
func (r *Redactor) Name(kind, name string) string {
	if r.off || name == "" || words[name] {
		return name
	}
	return r.number(kind, name)
}

func (r *Redactor) number(kind, text string) string {
	if r.names[text] == "" {
		r.counts[kind]++
		r.names[text] = fmt.Sprintf("%s-%d", kind, r.counts[kind])
	}
	return r.names[text]
}

func (r *Redactor) hide(s string) string {
	return fmt.Sprintf("%s (%d characters)", r.number("text", s), utf8.RuneCountInString(s))
}

// Keep returns the parts of a value that the list of fields contains, as JSON has them. class is the class of a value that is no object.
func (r *Redactor) Keep(value any, class string) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	tree, err := decode(data)
	if err != nil {
		return nil, err
	}
	return r.keep(tree, "", class), nil
}

// decode keeps large numbers exact.
func decode(data []byte) (tree any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&tree)
	return tree, err
}

// keep returns nil for a value that is not collected. parent is the name of the field that contains the value.
func (r *Redactor) keep(value any, parent, class string) any {
	switch v := value.(type) {
	case string:
		if v == "" {
			return nil
		}
		return r.text(class, v)
	case []any:
		var out []any
		for _, entry := range v {
			if filtered := r.keep(entry, parent, class); filtered != nil {
				out = append(out, filtered)
			}
		}
		return ifAny(out, len(out))
	case map[string]any:
		out := map[string]any{}
		keyClass, valueClass, isMap := strings.Cut(class, "=")
		for key, entry := range v {
			name, entryClass := key, classes[parent+"."+key]
			if entryClass == "" {
				entryClass = classes[key]
			}
			if isMap {
				name, entryClass = r.text(keyClass, key), valueClass
			}
			if entryClass == "" {
				continue
			}
			if filtered := r.keep(entry, key, entryClass); filtered != nil {
				out[name] = filtered
			}
		}
		return ifAny(out, len(out))
	}
	return value
}

func ifAny(value any, size int) any {
	if size == 0 {
		return nil
	}
	return value
}

var (
	numberForm  = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+){0,2}(%|[KMGTkm]i?|B|s|h|ms|us|µs|ns|(h[0-9]+)?m[0-9.]+s)?$`)
	idForm      = regexp.MustCompile(`^([0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{16}([0-9a-f]{24}|[0-9a-f]{48})?)$`)
	versionForm = regexp.MustCompile(`^v?\d+\.\d+(\.\d+)?(-\d+)?`)
	credential  = regexp.MustCompile(`(?i)pass|user|cred|dom|token|secret`)
	imageForm   = regexp.MustCompile(`(:v\d+\.\d+\.\d+)?(@sha256:[0-9a-f]{64})?$`)
)

// text returns the text of a class, or its parts that have a known form.
func (r *Redactor) text(class, s string) string {
	switch class {
	case "word", "text", "+":
	case "time":
		if _, err := time.Parse(time.RFC3339Nano, s); err == nil {
			return s
		}
	case "id":
		if idForm.MatchString(s) {
			return s
		}
	case "number":
		if isNumeric(s) {
			return s
		}
	case "version":
		if _, err := netip.ParseAddr(s); err != nil && versionForm.MatchString(s) {
			return versionForm.FindString(s)
		}
	case "image":
		return r.Name("image", s) + imageForm.FindString(s)
	case "setting":
		return r.setting(s)
	case "option", "flag":
		return r.option(s)
	case "tokens":
		known := slices.DeleteFunc(strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(" :/()", c) }), func(token string) bool {
			return !words[token] && !idForm.MatchString(token) && (token != versionForm.FindString(token) && strings.Trim(token, "0123456789") != "")
		})
		return strings.Join(known, " ")
	case "json":
		if tree, err := decode([]byte(s)); err == nil {
			if data, err := json.Marshal(r.keep(tree, "", "id")); err == nil {
				return string(data)
			}
		}
	default:
		return r.Name(class, s)
	}
	if words[s] {
		return s
	}
	return r.hide(s)
}

func isNumeric(s string) bool {
	fields := strings.Fields(s)
	return len(fields) > 0 && !slices.ContainsFunc(fields, func(field string) bool { return !numberForm.MatchString(field) })
}

// setting keeps keys of the catalogue. Paths and servers in keys, and names that the catalogue does not contain, get pseudonyms.
func (r *Redactor) setting(key string) string {
	subject, name := catalogue.Key(key).Cut()
	_, known := catalogue.Lookup(key)
	switch {
	case known && subject != catalogue.Filesystems && subject != catalogue.NFSDefaults:
		return key
	case words[subject]:
		return subject + "/" + r.Name("key", name)
	}
	return r.Name("key", key)
}

// option keeps known mount options, kernel arguments, and flags, with values that are numbers or words.
func (r *Redactor) option(s string) string {
	name, value, hasValue := strings.Cut(s, "=")
	switch {
	case !words[strings.TrimLeft(name, "-")] && !isKernelArgument(name):
		return r.hide(s)
	case !hasValue:
		return name
	case credential.MatchString(name):
		return name + "=" + r.hide(value)
	}
	return name + "=" + r.text("number", value)
}

func isKernelArgument(name string) bool {
	_, known := catalogue.Lookup(catalogue.KeyOf(catalogue.KernelArguments, name))
	return known
}

// pair matches a field of the agent's log.
var pair = regexp.MustCompile(`([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^ "]*)(?: |$)`)

// frame matches lines of stack traces in published code.
var frame = regexp.MustCompile(`^(goroutine [0-9]+ \[[a-z ]+\]:|\t(github\.com/storageclient/operator|k8s\.io|sigs\.k8s\.io|runtime)/[a-z0-9/@._-]+\.go:[0-9]+)`)

// Log keeps the listed fields of each line of a log, which is JSON or key=value.
func (r *Redactor) Log(log string) string {
	var out strings.Builder
	for line := range strings.Lines(log) {
		at, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
			at, rest = "", strings.TrimRight(line, "\n")
		}
		fields := map[string]any{}
		if tree, err := decode([]byte(rest)); err == nil {
			fields, _ = tree.(map[string]any)
		} else {
			for _, match := range pair.FindAllStringSubmatch(rest, -1) {
				if fields[match[1]] = match[2]; strings.HasPrefix(match[2], `"`) {
					fields[match[1]], _ = strconv.Unquote(match[2])
				}
			}
		}
		filtered, isObject := r.keep(fields, "log", "").(map[string]any)
		if !isObject {
			filtered = map[string]any{"line": r.hide(rest)}
			if found := frame.FindString(rest); found != "" {
				filtered["line"] = found
			}
		}
		if at != "" {
			filtered["at"] = at
		}
		if data, err := json.Marshal(filtered); err == nil {
			out.Write(append(data, '\n'))
		}
	}
	return out.String()
}
