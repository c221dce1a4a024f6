package volume

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// patchFor is the one write that carries out a decision: options and annotations together, so that whoever dies
// before or after it leaves a volume that tells the whole story. It is a JSON merge patch: mountOptions is an atomic
// list that the patch takes over from whoever owned it, and it can let go of the annotations without the list going
// with them, as it would with server-side apply. The resourceVersion makes it fail where anything changed since.
func patchFor(pv *corev1.PersistentVolume, d Decision) ([]byte, error) {
	annotations, err := annotationsAfter(d)
	if err != nil {
		return nil, err
	}
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": pv.ResourceVersion, "annotations": annotations}}
	if d.Action != ActionRelease {
		options := any(d.Options)
		if len(d.Options) == 0 {
			options = nil
		}
		patch["spec"] = map[string]any{"mountOptions": options}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch of PersistentVolume %s: %w", pv.Name, err)
	}
	return data, nil
}

// annotationsAfter are all of our annotations as the decision leaves them; nil removes one.
func annotationsAfter(d Decision) (map[string]any, error) {
	annotations := map[string]any{}
	if d.Action != ActionWrite {
		for _, key := range append(stepAnnotations, ourAnnotations...) {
			annotations[key] = nil
		}
		if d.refused == nil {
			return annotations, nil
		}
		text, err := jsonText(d.refused)
		annotations[v1alpha1.FailedMountOptionsAnnotation] = text
		return annotations, err
	}
	ours, err := d.Annotations()
	if err != nil {
		return nil, err
	}
	for key, text := range ours {
		annotations[key] = text
	}
	if d.mark == nil {
		return annotations, nil
	}
	annotations[v1alpha1.FailedMountOptionsAnnotation] = nil
	annotations[v1alpha1.MountOptionsStepAnnotation], err = jsonText(d.mark)
	return annotations, err
}

// Annotations are the three that ActionWrite leaves on the volume beside the options.
func (d Decision) Annotations() (map[string]string, error) {
	original, err := jsonList(d.Original)
	if err != nil {
		return nil, err
	}
	applied, err := jsonList(d.Options)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		v1alpha1.OriginalMountOptionsAnnotation: original,
		v1alpha1.AppliedMountOptionsAnnotation:  applied,
		v1alpha1.ProfilesAnnotation:             strings.Join(d.Profiles, ","),
	}, nil
}

// jsonList writes an empty list as [], which differs from no annotation at all.
func jsonList(options []string) (string, error) {
	data, err := json.Marshal(append([]string{}, options...))
	if err != nil {
		return "", fmt.Errorf("encode mount options %q: %w", options, err)
	}
	return string(data), nil
}
