package volume

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Limits of what is known before what nobody has said for that long is forgotten: texts, lists, and nodes.
const (
	maxTexts = 1 << 16
	maxLists = 1 << 10
	maxNodes = 1 << 13
)

var (
	sharedTexts      = pool[string]{max: maxTexts}
	sharedSettings   = pool[[]v1alpha1.NodeSetting]{max: maxLists}
	sharedReports    = pool[[]v1alpha1.SettingStatus]{max: maxLists}
	sharedOptions    = pool[[]string]{max: maxLists}
	lastMounts       = pool[[]v1alpha1.MountStatus]{max: maxNodes}
	lastVolumes      = pool[[]v1alpha1.NodeVolume]{max: maxNodes}
	sharedCapacities = pool[corev1.ResourceList]{max: maxLists}
)

// pool has equal values be one copy, which nobody changes. What is not said again goes after two generations.
type pool[V any] struct {
	max        int
	mutex      sync.Mutex
	young, old map[string]V
}

// share is the one value of that key. create is called where there is none yet.
func (p *pool[V]) share(key string, create func() V) V {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if known, found := p.young[key]; found {
		return known
	}
	value, found := p.old[key]
	if !found {
		value = create()
	}
	if p.young == nil || len(p.young) >= p.max {
		p.young, p.old = map[string]V{}, p.young
	}
	p.young[key] = value
	return value
}

// replace has another value be the one of a key that is known.
func (p *pool[V]) replace(key string, value V) V {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.young[key] = value
	return value
}

// shared is the one copy of a text.
func shared[S ~string](text S) S {
	return S(sharedTexts.share(string(text), func() string { return string(text) }))
}
