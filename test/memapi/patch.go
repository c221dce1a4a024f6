package memapi

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

func emptyOf(kind Kind) client.Object {
	switch kind {
	case Nodes:
		return &corev1.Node{}
	case ClientNodes:
		return &v1alpha1.StorageClientNode{}
	case Profiles:
		return &v1alpha1.StorageClientProfile{}
	case Pods:
		return &corev1.Pod{}
	case Budgets:
		return &policyv1.PodDisruptionBudget{}
	case Namespaces:
		return &corev1.Namespace{}
	case ConfigMaps, kinds:
	}
	return &corev1.ConfigMap{}
}

// patched returns an object after a patch. A patch that was computed from the complete stored version results in the object of the caller,
// which avoids encoding. An object that was never created is incomplete: it contains only the fields that must change.
func patched(kind Kind, before, wanted client.Object, patch client.Patch, status bool) (client.Object, error) {
	if created := wanted.GetCreationTimestamp(); wanted.GetResourceVersion() == before.GetResourceVersion() && !created.IsZero() {
		return join(before, copyOf(wanted), status), nil
	}
	data, err := patch.Data(wanted)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	if metadata, ok := content["metadata"].(map[string]any); ok {
		if version, locked := metadata["resourceVersion"]; locked && version != before.GetResourceVersion() {
			return nil, conflict(kind, before.GetName())
		}
		delete(metadata, "resourceVersion")
		if len(metadata) == 0 {
			delete(content, "metadata")
		}
	}
	if after, done := patchLabels(before, content, status); done {
		return after, nil
	}
	switch patch.Type() {
	case types.MergePatchType:
		after, err := mergePatch(kind, before, content)
		if err != nil {
			return nil, err
		}
		return join(before, after, status), nil
	case types.StrategicMergePatchType:
		if node, ok := before.(*corev1.Node); ok && status {
			return patchConditions(node, content)
		}
	}
	return nil, fmt.Errorf("patch %s with %s: %w", kind, data, errUnsupported)
}

// join returns the stored object with the fields that a write of the object, or of its status, changes.
func join(before, after client.Object, status bool) client.Object {
	if status {
		out := copyOf(before)
		takeStatus(after, out)
		return out
	}
	takeStatus(before, after)
	return keepIdentity(before, after)
}

// patchLabels is a merge patch that changes only labels.
func patchLabels(before client.Object, content map[string]any, status bool) (client.Object, bool) {
	metadata, ok := content["metadata"].(map[string]any)
	changes, isLabels := metadata["labels"].(map[string]any)
	if !ok || !isLabels || len(content) != 1 || len(metadata) != 1 || status {
		return nil, false
	}
	after := copyOf(before)
	labels := after.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for key, value := range changes {
		if text, isText := value.(string); isText {
			labels[key] = text
		} else {
			delete(labels, key)
		}
	}
	after.SetLabels(labels)
	return after, true
}

// mergePatch implements RFC 7386.
func mergePatch(kind Kind, before client.Object, patch map[string]any) (client.Object, error) {
	data, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	if data, err = json.Marshal(merge(content, patch)); err != nil {
		return nil, err
	}
	after := emptyOf(kind)
	return after, json.Unmarshal(data, after)
}

func merge(content, patch map[string]any) map[string]any {
	if content == nil {
		content = map[string]any{}
	}
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(content, key)
		case map[string]any:
			inner, _ := content[key].(map[string]any)
			content[key] = merge(inner, value)
		default:
			content[key] = value
		}
	}
	return content
}

// patchConditions applies a strategic merge patch to the conditions of a Node. They are merged by type.
func patchConditions(before *corev1.Node, content map[string]any) (client.Object, error) {
	var patch struct {
		Status struct {
			Conditions []struct {
				corev1.NodeCondition `json:",inline"`

				Patch string `json:"$patch"`
			} `json:"conditions"`
		} `json:"status"`
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	if status, ok := content["status"].(map[string]any); !ok || len(content) != 1 || status["conditions"] == nil {
		return nil, fmt.Errorf("patch a Node's status with %s: %w", data, errUnsupported)
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	after := before.DeepCopy()
	for _, wanted := range patch.Status.Conditions {
		conditions := after.Status.Conditions
		at := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == wanted.Type })
		switch {
		case wanted.Patch == "delete" && at >= 0:
			after.Status.Conditions = slices.Delete(conditions, at, at+1)
		case wanted.Patch == "delete":
		case at >= 0:
			conditions[at] = wanted.NodeCondition
		default:
			after.Status.Conditions = append(after.Status.Conditions, wanted.NodeCondition)
		}
	}
	return after, nil
}
