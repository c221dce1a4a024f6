package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/program"
)

// readProfiles reads the StorageClientProfiles of one file. An unknown field is an error, because no API server validates the file.
func readProfiles(file string, inputs *program.Inputs) ([]v1alpha1.StorageClientProfile, error) {
	data, err := inputs.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read profile %s: %w", file, err)
	}
	var profiles []v1alpha1.StorageClientProfile
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read profile %s: %w", file, err)
		}
		profile, err := parseProfile(document)
		if err != nil {
			return nil, fmt.Errorf("read profile %s: document %d: %w", file, len(profiles)+1, err)
		}
		if profile != nil {
			profiles = append(profiles, *profile)
		}
	}
	if len(profiles) == 0 {
		return nil, fmt.Errorf("read profile %s: file contains no StorageClientProfile", file)
	}
	return profiles, nil
}

// parseProfile returns nil for a document that is empty or contains only comments.
func parseProfile(document []byte) (*v1alpha1.StorageClientProfile, error) {
	content, err := program.Parse(document)
	if err != nil {
		return nil, err
	}
	if len(content) == 0 {
		return nil, nil
	}
	if content["apiVersion"] != v1alpha1.GroupVersion.String() || content["kind"] != "StorageClientProfile" {
		return nil, fmt.Errorf("object is %v %v: must be %s StorageClientProfile", content["apiVersion"], content["kind"], v1alpha1.GroupVersion)
	}
	var profile v1alpha1.StorageClientProfile
	if err := program.DecodeStrictly(document, &profile); err != nil {
		return nil, err
	}
	return &profile, checkShape(&profile)
}

// checkShape validates the fields that determine whether and how settings are applied and removed, like the API server.
func checkShape(p *v1alpha1.StorageClientProfile) error {
	if p.Name == "" {
		return errors.New("metadata.name: required")
	}
	spec := p.Spec.WithDefaults()
	if spec.Mode != v1alpha1.ModeEnforce && spec.Mode != v1alpha1.ModePlan {
		return fmt.Errorf("spec.mode: %q: must be Enforce or Plan", spec.Mode)
	}
	if spec.DeletionPolicy != v1alpha1.DeletionRestore && spec.DeletionPolicy != v1alpha1.DeletionRetain {
		return fmt.Errorf("spec.deletionPolicy: %q: must be Restore or Retain", spec.DeletionPolicy)
	}
	return nil
}
