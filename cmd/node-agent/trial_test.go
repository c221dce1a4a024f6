package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestAPassWritesItsTerminationMessage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "termination-log")
	if err := writeMessage(file, v1alpha1.ClonePass{Void: "x"}); err == nil {
		t.Error("want an error for a message without its file")
	}
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := writeMessage(file, v1alpha1.ClonePass{Failed: strings.Repeat("x", v1alpha1.MaxClonePassBytes)}); err == nil {
		t.Error("want an error for a message that Kubernetes would cut")
	}
	if err := writeMessage(file, v1alpha1.ClonePass{Void: "x"}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != `{"void":"x"}` {
		t.Errorf("%s, %v", data, err)
	}
	if err := passOnClone([]string{"--name=ListDirectory", "extra"}, t.Output()); err == nil || !strings.Contains(err.Error(), "extra") {
		t.Errorf("error is %v", err)
	}
}
