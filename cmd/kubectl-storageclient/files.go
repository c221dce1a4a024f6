package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/program"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/suggest"
	"github.com/storageclient/operator/tuning/text"
)

// kustomizeCommand is the command for a directory that needs Kustomize.
const kustomizeCommand = "kubectl kustomize %s | kubectl storageclient plan -f -"

type writtenProfile struct {
	v1alpha1.StorageClientProfile
	// File is the path of the file.
	File string
	// Object is the unmodified content of the document.
	Object *unstructured.Unstructured
}

type fileReader struct {
	inputs   program.Inputs
	profiles []writtenProfile
	// ignored contains objects of other kinds.
	ignored []string
	errs    []error
	found   map[string]string
}

// readFiles reads all profiles from files, directories, and standard input ("-"). The error contains every problem with a solution.
// ignored contains the names of objects of other kinds.
func readFiles(paths []string, stdin io.Reader) (profiles []writtenProfile, ignored []string, err error) {
	r := &fileReader{inputs: program.Inputs{Stdin: stdin}, found: map[string]string{}}
	for _, path := range paths {
		r.readPath(path)
	}
	if len(r.profiles) == 0 && len(r.errs) == 0 {
		r.fail(fmt.Errorf("no %s in %s%s: set a file that contains one; minimal example:\n%s",
			profileKind.Kind, strings.Join(paths, ", "), text.Labelled(", only ", text.List(r.ignored)), minimalProfile))
	}
	return r.profiles, r.ignored, errors.Join(r.errs...)
}

const minimalProfile = `  apiVersion: tuning.storageclient.dev/v1alpha1
  kind: StorageClientProfile
  metadata: {name: example}
  spec: {nodeSelector: {matchLabels: {agentpool: example}}}`

func (r *fileReader) fail(err error) { r.errs = append(r.errs, err) }

func (r *fileReader) readPath(path string) {
	if path == "-" {
		r.readInput("standard input", path)
		return
	}
	info, err := os.Stat(path)
	switch {
	case path == "":
		r.fail(errors.New("-f is empty: set a file, a directory, or - for standard input"))
	case errors.Is(err, fs.ErrNotExist):
		r.fail(fmt.Errorf("%s does not exist%s: set a file, a directory, or - for standard input", path, r.suggestFile(path)))
	case err != nil:
		r.fail(fmt.Errorf("read %s: %w", path, err))
	case info.IsDir():
		r.readDirectory(path)
	default:
		r.readInput(path, path)
	}
}

func (r *fileReader) suggestFile(path string) string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	names := lists.Each(entries, os.DirEntry.Name)
	if suggestion, ok := suggest.Closest(filepath.Base(path), names); ok {
		return ". Did you mean " + filepath.Join(filepath.Dir(path), suggestion) + "?"
	}
	return ""
}

// readDirectory reads the manifests in a directory like kubectl, without its subdirectories.
func (r *fileReader) readDirectory(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.fail(fmt.Errorf("read %s: %w", dir, err))
		return
	}
	var files, subdirectories []string
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case entry.IsDir():
			subdirectories = append(subdirectories, "-f "+filepath.Join(dir, name))
		case name == "kustomization.yaml", name == "kustomization.yml", name == "Kustomization":
			r.fail(fmt.Errorf("%s is a Kustomize directory; run: "+kustomizeCommand, dir, dir))
			return
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			files = append(files, filepath.Join(dir, name))
		}
	}
	switch {
	case len(files) == 0 && len(subdirectories) > 0:
		r.fail(fmt.Errorf("%s contains no .yaml, .yml, or .json file, and subdirectories are not read; use: %s", dir, text.InOrder(subdirectories, " ")))
	case len(files) == 0:
		r.fail(fmt.Errorf("%s contains no .yaml, .yml, or .json file: set a directory with profiles, or a file", dir))
	}
	for _, file := range files {
		r.readInput(file, file)
	}
}

func (r *fileReader) readInput(name, path string) {
	data, err := r.inputs.Read(path)
	if err != nil {
		r.fail(fmt.Errorf("read %s: %w", name, err))
		return
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			if number == 1 {
				r.fail(fmt.Errorf("%s is empty: must contain a profile", name))
			}
			return
		}
		if err != nil {
			r.fail(fmt.Errorf("read %s: %w", name, err))
			return
		}
		place := name
		if number > 1 {
			place = fmt.Sprintf("%s, document %d", name, number)
		}
		r.readDocument(place, document)
	}
}

func (r *fileReader) readDocument(place string, document []byte) {
	content, err := program.Parse(document)
	if err != nil {
		r.fail(fmt.Errorf("%s: %w", place, explainYAML(document, err)))
		return
	}
	if len(content) > 0 {
		r.readObject(place, document, &unstructured.Unstructured{Object: content})
	}
}

func explainYAML(document []byte, err error) error {
	switch {
	case errors.Is(err, program.ErrAliases):
		return err
	case bytes.Contains(document, []byte("{{")):
		return fmt.Errorf("template found: render it first, for example: helm template CHART | kubectl storageclient plan -f - (%w)", err)
	case bytes.Contains(document, []byte("\t")):
		return fmt.Errorf("invalid YAML: replace tabs with spaces (%w)", err)
	}
	return fmt.Errorf("invalid YAML: check it with kubectl create --dry-run=client -f FILE (%w)", err)
}

func (r *fileReader) readObject(place string, document []byte, object *unstructured.Unstructured) {
	kind, version := object.GetKind(), object.GetAPIVersion()
	switch {
	case object.IsList():
		r.readList(place, object)
	case kind == "Kustomization":
		r.fail(fmt.Errorf("%s is a Kustomization; run: "+kustomizeCommand, place, filepath.Dir(place)))
	case kind == "":
		r.fail(fmt.Errorf("%s has no kind: add apiVersion: %s and kind: %s", place, v1alpha1.GroupVersion, profileKind.Kind))
	case kind != profileKind.Kind:
		if suggestion, ok := suggest.Closest(kind, []string{profileKind.Kind}); ok {
			r.fail(fmt.Errorf("%s: unknown kind %q. Did you mean %s?", place, kind, suggestion))
			return
		}
		r.ignored = append(r.ignored, fmt.Sprintf("%s %s (%s)", kind, object.GetName(), place))
	case version != v1alpha1.GroupVersion.String():
		r.fail(fmt.Errorf("%s: apiVersion is %q: must be %s", place, version, v1alpha1.GroupVersion))
	default:
		r.addProfile(place, document, object)
	}
}

func (r *fileReader) readList(place string, list *unstructured.Unstructured) {
	err := list.EachListItem(func(item runtime.Object) error {
		object := item.(*unstructured.Unstructured)
		document, err := yaml.Marshal(object.Object)
		if err == nil {
			r.readObject(place, document, object)
		}
		return err
	})
	if err != nil {
		r.fail(fmt.Errorf("%s: %w", place, err))
	}
}

func (r *fileReader) addProfile(place string, document []byte, object *unstructured.Unstructured) {
	name := object.GetName()
	first, twice := r.found[name]
	switch {
	case name == "":
		r.fail(fmt.Errorf("%s: metadata.name is required", place))
		return
	case twice:
		r.fail(fmt.Errorf("duplicate profile %s in %s and %s: rename one, or use only one of the files", name, first, place))
		return
	}
	r.found[name] = place
	profile := writtenProfile{File: place, Object: object}
	if err := decodeStrictly(document, &profile.StorageClientProfile); err != nil {
		r.fail(fmt.Errorf("%s: %s %s: %w", place, profileKind.Kind, name, err))
		return
	}
	r.profiles = append(r.profiles, profile)
}

// decodeStrictly returns an error with the full path of an unknown field, and the most similar known field.
func decodeStrictly(document []byte, into *v1alpha1.StorageClientProfile) error {
	err := program.DecodeStrictly(document, into)
	problems, isStrict := runtime.AsStrictDecodingError(err)
	if !isStrict {
		return explainType(err)
	}
	out := lists.Each(problems.Errors(), explainField)
	slices.Sort(out)
	return errors.New(text.Join(out, "; "))
}

// wrongType matches the decoder error for a value of the wrong type.
var wrongType = regexp.MustCompile(`cannot unmarshal (\w+) into Go struct field [^.]*\.(\S+) of type`)

// explainType rewrites a decoder error about a wrong type in terms of the file.
func explainType(err error) error {
	if err == nil {
		return nil
	}
	found := wrongType.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	return fmt.Errorf(
		"%s is a %s, which is the wrong type: see kubectl explain scp.%s; in YAML, quote on, off, yes, no, and numbers to use them as text",
		found[2], found[1], found[2])
}

// explainField adds the most similar field name to a decoder error about an unknown field.
func explainField(problem error) string {
	var removed *program.RemovedFieldError
	if errors.As(problem, &removed) {
		return removed.Error()
	}
	path, unknown := strings.CutPrefix(problem.Error(), "unknown field ")
	if !unknown {
		return problem.Error() + ": remove one of them"
	}
	path = strings.Trim(path, `"`)
	field := path[strings.LastIndex(path, ".")+1:]
	if suggestion, ok := suggest.Closest(field, fieldNames()); ok {
		return fmt.Sprintf("unknown field %s. Did you mean %s?", path, suggestion)
	}
	return fmt.Sprintf("unknown field %s: list all fields with kubectl explain scp.spec --recursive", path)
}

// fieldNames returns the names of all fields in the spec of a profile, sorted.
var fieldNames = sync.OnceValue(func() []string {
	names := map[string]bool{"spec": true, "metadata": true}
	addFieldNames(reflect.TypeFor[v1alpha1.StorageClientProfileSpec](), names)
	return slices.Sorted(maps.Keys(names))
})

func addFieldNames(t reflect.Type, names map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && !names[name] {
			names[name] = true
			addFieldNames(field.Type, names)
		}
	}
}
