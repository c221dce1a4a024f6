// Command chart makes the Helm chart from the manifests of config, so that every object has one source. It builds the manifests with
// kustomize, once without components and once with each component. It writes the changes of a component under a condition, and replaces
// the fields that slots.go lists with values. config/chart contains the files that only Helm needs: Chart.yaml, values.yaml, its schema and
// NOTES.txt. "make chart" runs it.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const chartName = "storage-client-operator"

type options struct {
	kustomize, config, version, managerImage, agentImage, output string
	components                                                   []string
}

func main() {
	var o options
	flag.StringVar(&o.kustomize, "kustomize", "kustomize", "The kustomize to build manifests with.")
	flag.StringVar(&o.config, "config", "config", "The folder config.")
	flag.StringVar(&o.version, "version", "dev", "The release, e.g. v1.2.3; anything else is packed as 0.0.0-NAME.")
	flag.StringVar(&o.managerImage, "manager-image", developmentManager, "The manager's image.")
	flag.StringVar(&o.agentImage, "agent-image", developmentAgent, "The node agent's image.")
	components := flag.String("components", "", "Components that every manifest of the chart has, separated by blanks, e.g. arm64.")
	flag.StringVar(&o.output, "output", "dist/chart", "Directory for the archive.")
	flag.Parse()
	o.components = strings.Fields(*components)
	archive, err := run(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
	fmt.Println(archive)
}

// run writes the chart's archive and returns its path.
func run(ctx context.Context, o options) (string, error) {
	files, err := o.chart(ctx)
	if err != nil {
		return "", err
	}
	archive, err := pack(files)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return "", fmt.Errorf("create %s: %w", o.output, err)
	}
	path := filepath.Join(o.output, chartName+"-"+semantic(o.version)+".tgz")
	return path, os.WriteFile(path, archive, 0o644)
}

var release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// semantic is a version as Helm wants it.
func semantic(version string) string {
	if release.MatchString(version) {
		return version[1:]
	}
	return "0.0.0-" + version
}

// chart returns the chart's files by their path in it.
func (o options) chart(ctx context.Context) (map[string][]byte, error) {
	plain, err := o.build(ctx, feature{})
	if err != nil {
		return nil, err
	}
	variants := make([]objects, len(features))
	for i, f := range features {
		if variants[i], err = o.build(ctx, f); err != nil {
			return nil, err
		}
	}
	defaults := map[string]any{}
	for _, variant := range append([]objects{plain}, variants...) {
		if err := fillSlots(variant, defaults); err != nil {
			return nil, err
		}
	}
	defaults["manager.tolerations"] = defaults["manager.tolerations"].([]any)[1:] // fillUntunedTaint adds the first one.
	merged := mergeObjects(plain, variants)
	addOptions(merged)
	files := map[string][]byte{}
	for key, object := range merged {
		files["templates/"+fileName(key)] = template(object)
	}
	for _, name := range []string{"Chart.yaml", "values.yaml", "values.schema.json", "NOTES.txt"} {
		content, err := os.ReadFile(filepath.Join(o.config, "chart", name))
		if err != nil {
			return nil, fmt.Errorf("read what only Helm knows: %w", err)
		}
		switch name {
		case "Chart.yaml":
			content = bytes.ReplaceAll(content, []byte("<version>"), []byte(semantic(o.version)))
		case "values.yaml":
			if content, err = fillDefaults(content, defaults); err != nil {
				return nil, err
			}
		case "NOTES.txt":
			name = "templates/NOTES.txt"
		}
		files[name] = content
	}
	return files, nil
}

func fileName(key string) string {
	return strings.ToLower(strings.NewReplacer("/", "-", ":", "-").Replace(key)) + ".yaml"
}

// build has kustomize build the manifests of a feature.
func (o options) build(ctx context.Context, f feature) (objects, error) {
	dir, err := os.MkdirTemp("", "chart")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	config, err := relative(dir, o.config)
	if err != nil {
		return nil, err
	}
	if err := writeOverlay(dir, config, o.config, slices.Concat(o.components, f.components)); err != nil {
		return nil, err
	}
	var problem bytes.Buffer
	command := exec.CommandContext(ctx, o.kustomize, "build", dir)
	command.Stderr = &problem
	manifests, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kustomize build with %v: %w: %s", f.components, err, problem.String())
	}
	text := strings.NewReplacer("image: "+developmentManager, "image: "+o.managerImage, "image: "+developmentAgent, "image: "+o.agentImage).Replace(string(manifests))
	return parse(text)
}

// relative is a path from one directory to another, as kustomize wants it, with no link on the way.
func relative(from, to string) (string, error) {
	var paths [2]string
	for i, path := range []string{from, to} {
		absolute, err := filepath.Abs(path)
		if err == nil {
			absolute, err = filepath.EvalSymlinks(absolute)
		}
		if err != nil {
			return "", fmt.Errorf("find %s: %w", path, err)
		}
		paths[i] = absolute
	}
	path, err := filepath.Rel(paths[0], paths[1])
	if err != nil {
		return "", fmt.Errorf("find the way to %s: %w", to, err)
	}
	return path, nil
}

// writeOverlay writes a kustomization of the whole operator with components. Next to it, it writes the example files of the components,
// which users replace by their own files.
func writeOverlay(dir, config, source string, components []string) error {
	resources, paths := []string{config + "/default"}, []string{}
	for _, component := range components {
		paths = append(paths, config+"/components/"+component)
		examples, err := filepath.Glob(filepath.Join(source, "components", component, "*.example.yaml"))
		if err != nil {
			return fmt.Errorf("find examples: %w", err)
		}
		for _, example := range examples {
			content, err := os.ReadFile(example)
			if err != nil {
				return fmt.Errorf("read an example: %w", err)
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(example)), content, 0o600); err != nil {
				return fmt.Errorf("copy an example: %w", err)
			}
			resources = append(resources, filepath.Base(example))
		}
	}
	overlay, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources, "components": paths,
	})
	if err != nil {
		return fmt.Errorf("encode a kustomization: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), overlay, 0o600)
}

// objects are manifests by kind, namespace and name.
type objects map[string]map[string]any

func parse(manifests string) (objects, error) {
	found := objects{}
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("decode a manifest: %w", err)
		}
		if len(object) == 0 {
			continue
		}
		key := keyOf(object)
		if found[key] != nil {
			return nil, fmt.Errorf("%s stands in the manifests twice", key)
		}
		found[key] = object
	}
	return found, nil
}

func keyOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	key := fmt.Sprint(object["kind"], "/", metadata["name"])
	if namespace, found := metadata["namespace"]; found {
		key = fmt.Sprint(object["kind"], "/", namespace, "/", metadata["name"])
	}
	return key
}

// pack makes an archive such as Helm's; the same files make the same bytes.
func pack(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	var problems []error
	for _, path := range slices.Sorted(maps.Keys(files)) {
		err := archive.WriteHeader(&tar.Header{Name: chartName + "/" + path, Mode: 0o644, Size: int64(len(files[path])), Format: tar.FormatUSTAR})
		if err == nil {
			_, err = archive.Write(files[path])
		}
		problems = append(problems, err)
	}
	problems = append(problems, archive.Close(), zipped.Close())
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("pack the chart: %w", err)
	}
	return out.Bytes(), nil
}
