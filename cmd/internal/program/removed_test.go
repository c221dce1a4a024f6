package program

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/storageclient/operator/api/v1alpha1"
)

// document returns a profile with one field, as JSON. volumes is a list.
func document(path string) string {
	names := strings.Split(path, ".")
	content := "null"
	for i := len(names) - 1; i >= 0; i-- {
		inner := content
		if i+1 < len(names) && names[i] == "volumes" && names[i-1] == "spec" {
			inner = "[" + inner + "]"
		}
		content = `{"` + names[i] + `": ` + inner + "}"
	}
	return `{"apiVersion": "tuning.storageclient.dev/v1alpha1", "kind": "StorageClientProfile", ` + content[1:]
}

func TestEachRemovedFieldIsNamedWithItsSuccessor(t *testing.T) {
	for path, successor := range removed {
		err := DecodeStrictly([]byte(document(path)), &v1alpha1.StorageClientProfile{})
		strict, ok := runtime.AsStrictDecodingError(err)
		if !ok || len(strict.Errors()) != 1 {
			t.Errorf("%s: got %v, want an error about one field: does the API have it again?", path, err)
			continue
		}
		var found *RemovedFieldError
		if !errors.As(strict.Errors()[0], &found) || found.Successor != successor || !strings.HasSuffix(err.Error(), successor) {
			t.Errorf("%s: got %v, want its successor: %s", path, err, successor)
		}
	}
}

func TestOtherErrorsStay(t *testing.T) {
	for _, document := range []string{document("spec.colour"), document("spec.volumes.colour"), "{", "kind: Other"} {
		if err := DecodeStrictly([]byte(document), &v1alpha1.StorageClientProfile{}); err == nil || errors.As(err, new(*RemovedFieldError)) {
			t.Errorf("%s: got %v", document, err)
		}
	}
}
