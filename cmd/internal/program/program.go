// Package program contains code that several programs share.
package program

import (
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Strings is the value of a flag that can be repeated.
type Strings []string

// String implements flag.Value.
func (s *Strings) String() string { return strings.Join(*s, ",") }

// Set implements flag.Value.
func (s *Strings) Set(value string) error {
	*s = append(*s, value)
	return nil
}

// Build returns the information about the build, and its commit. The commit is empty if it is unknown.
func Build() (info *debug.BuildInfo, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return &debug.BuildInfo{GoVersion: "unknown", Main: debug.Module{Version: "unknown"}}, ""
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			revision = setting.Value
		}
	}
	return info, revision
}

// DecodeStrictly decodes a profile in YAML or JSON. An unknown field is an error. The error of a field that was removed has its successor.
func DecodeStrictly(document []byte, into *v1alpha1.StorageClientProfile) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	strict := serializer.SerializerOptions{Yaml: true, Strict: true}
	_, _, err := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, strict).Decode(document, nil, into)
	return nameRemoved(err)
}
