package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

type fields = map[string]any

var client = prefixOf(v1alpha1.GroupVersion)

// add stores a new object like a write of another client.
func (s *server) add(path string, content any) {
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	var next fields
	if err := json.Unmarshal(raw, &next); err != nil {
		panic(err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, err := s.put(s.kinds[path], nil, next); err != nil {
		panic(err)
	}
}

// edit changes an object. The lock must be held.
func (s *server) edit(path, key string, change func(fields)) {
	k := s.kinds[path]
	o := k.objects[key]
	if o == nil {
		return
	}
	var next fields
	if err := json.Unmarshal(o.raw, &next); err != nil {
		panic(err)
	}
	change(next)
	if _, err := s.put(k, o, next); err != nil {
		panic(err)
	}
}

func named(name string) fields { return fields{"name": name} }

// fill adds the objects that exist before the manager starts.
func (w *world) fill() {
	for _, name := range []string{v1alpha1.ManagerNamespace, v1alpha1.AgentNamespace} {
		w.add("/api/v1/namespaces", fields{"metadata": named(name)})
	}
	admission := "/apis/admissionregistration.k8s.io/v1/"
	w.add(admission+"validatingadmissionpolicies", fields{"metadata": named(v1alpha1.AgentPolicy), "spec": fields{}})
	w.add(admission+"validatingadmissionpolicybindings", fields{
		"metadata": named(v1alpha1.AgentPolicy), "spec": fields{"policyName": v1alpha1.AgentPolicy, "validationActions": []string{"Deny"}},
	})
	for i := range w.nodes {
		name := fmt.Sprintf("node-%d", i+1)
		w.add("/api/v1/nodes", fields{
			"metadata": fields{"name": name, "labels": fields{
				"agentpool": "azfiles", "pool": fmt.Sprint(i % max(1, w.profiles)), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
			}},
			"status": fields{
				"nodeInfo": fields{"bootID": "boot-" + name, "kernelVersion": "6.8.0", "osImage": "Debian"},
				"conditions": []fields{
					{"type": "Ready", "status": "True", "reason": "KubeletReady"}, {"type": "MemoryPressure", "status": "False"},
					{"type": "DiskPressure", "status": "False"}, {"type": "PIDPressure", "status": "False"},
				},
				"capacity":    fields{"cpu": "4", "memory": "16Gi", "pods": "110"},
				"allocatable": fields{"cpu": "4", "memory": "16Gi", "pods": "110"},
			},
		})
	}
	for i := range w.volumes {
		options := []string{"nconnect=4", "nocto", "actimeo=30"}
		if i%10 == 0 {
			options = []string{"hard"}
		}
		w.add("/api/v1/persistentvolumes", fields{
			"metadata": fields{"name": fmt.Sprintf("pvc-%05d", i)},
			"spec": fields{
				"accessModes": []string{"ReadWriteMany"}, "capacity": fields{"storage": "100Gi"}, "mountOptions": options, "storageClassName": "nfs",
				"persistentVolumeReclaimPolicy": "Retain", "csi": fields{
					"driver": "nfs.csi.k8s.io", "volumeHandle": fmt.Sprintf("filer#share#%d", i),
					"volumeAttributes": fields{"server": "filer.example.com", "share": fmt.Sprintf("/share/%d", i)},
				},
			},
			"status": fields{"phase": "Available"},
		})
	}
}

func rollout() fields {
	return fields{
		"maxUnavailable": "100%", "maxConcurrentLive": "100%", "canary": fields{"soakSeconds": 0}, "settleSeconds": 0, "reboot": fields{"policy": "Automatic"},
		"volumes": fields{"maxPerStep": "100%", "soakSeconds": 0, "probe": "Never", "onNoEvidence": "Proceed"},
	}
}

func (w *world) startTuning(ctx context.Context) error {
	sysctls := fields{"vm.dirty_ratio": "30", "net.core.somaxconn": "8192"}
	for len(sysctls) < w.settings.settings {
		sysctls[fmt.Sprintf("fs.scale.s%d", len(sysctls))] = "1"
	}
	w.add(client+"storageclientprofiles", fields{
		"metadata": named("scale"), "status": fields{"observedGeneration": -1},
		"spec": fields{"nodeSelector": fields{"matchLabels": fields{"agentpool": "azfiles"}}, "node": fields{"sysctls": sysctls}, "rollout": rollout()},
	})
	return w.awaitDone(ctx, 1)
}

func (w *world) change(ctx context.Context, edit func(spec fields)) error {
	w.mutex.Lock()
	w.edit(client+"storageclientprofiles", "/scale", func(o fields) { edit(o["spec"].(fields)) })
	generation := w.profileNow("scale").Generation
	w.mutex.Unlock()
	return w.awaitDone(ctx, generation)
}

func (w *world) declareVolumes(ctx context.Context) error {
	return w.change(ctx, func(spec fields) {
		spec["volumes"] = []fields{{"name": "nfs", "selector": fields{"storageClassNames": []string{"nfs"}}, "mountOptions": []string{"nconnect=4", "nocto", "actimeo=30"}, "onConflict": "UseProfile"}}
	})
}

func (w *world) changeLive(ctx context.Context) error {
	return w.change(ctx, func(spec fields) { spec["node"].(fields)["sysctls"].(fields)["vm.dirty_ratio"] = "40" })
}

// addProfiles adds profiles with rules for volumes. Each profile declares the current settings for a pool.
func (w *world) addProfiles(ctx context.Context) error {
	for i := range w.profiles {
		w.add(client+"storageclientprofiles", fields{
			"metadata": named(fmt.Sprintf("with-pool-%d", i)), "status": fields{"observedGeneration": -1},
			"spec": fields{
				"nodeSelector": fields{"matchLabels": fields{"pool": fmt.Sprint(i)}}, "node": fields{"sysctls": fields{"vm.dirty_ratio": "40"}}, "rollout": rollout(),
				"volumes": []fields{{"name": "nfs", "selector": fields{"storageClassNames": []string{fmt.Sprintf("pool-%d", i)}}, "mountOptions": []string{"nconnect=4", "nocto", "actimeo=30"}}},
			},
		})
		time.Sleep(w.writeDelay)
	}
	return w.await(ctx, func() bool {
		for i := range w.profiles {
			if p := w.profileNow(fmt.Sprintf("with-pool-%d", i)); p.Status.ObservedGeneration != p.Generation {
				return false
			}
		}
		return true
	})
}

// agents simulates the writes of the agents of all nodes, and their Pods.
type agents struct {
	server *server
	mounts []v1alpha1.MountStatus
	mutex  sync.Mutex
	due    map[string]time.Time
}

func newAgents(s *server, mounts int) *agents {
	a := &agents{server: s, due: map[string]time.Time{}}
	for i := range mounts {
		uid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)
		a.mounts = append(a.mounts, v1alpha1.MountStatus{
			MountPoint: "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/pvc-" + uid + "/mount", PodUIDs: []string{uid}, Volume: fmt.Sprintf("pvc-%05d", i),
			Server: fmt.Sprintf("filer-%d.example.com", i%4), Protocol: "NFSv4.1", Options: []string{
				"rw", "relatime", "vers=4.1", "rsize=1048576", "wsize=1048576", "namlen=255", "hard", "proto=tcp", "nconnect=4", "timeo=600", "retrans=2", "sec=sys",
			}, Connections: 4, SlotLimit: 64, ReadAheadKiB: 1024, Used: true, State: v1alpha1.MountEffective,
		})
	}
	return a
}

// see is called for each write, with the server's lock held.
func (a *agents) see(k *kind, o *object) {
	if k.resource != "storageclientnodes" && k.resource != "nodes" {
		return
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if _, known := a.due[o.key]; !known {
		a.due[o.key] = time.Now().Add(50 * time.Millisecond)
	}
}

func (a *agents) run(ctx context.Context) {
	for ctx.Err() == nil {
		var now []string
		a.mutex.Lock()
		for key, at := range a.due {
			if time.Now().After(at) {
				now = append(now, key)
				delete(a.due, key)
			}
		}
		a.mutex.Unlock()
		for _, key := range now {
			if a.look(key[1:]) {
				time.Sleep(a.server.delay)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// look processes a node and reports whether it wrote.
func (a *agents) look(name string) bool {
	s := a.server
	s.mutex.Lock()
	defer s.mutex.Unlock()
	node, pods := s.kinds["/api/v1/nodes"].objects["/"+name], s.kinds["/api/v1/pods"]
	if node == nil {
		return false
	}
	podKey := v1alpha1.AgentNamespace + "/agent-" + name
	if pods.objects[podKey] == nil {
		var n corev1.Node
		if json.Unmarshal(node.raw, &n) != nil || n.Labels[v1alpha1.ManagedLabel] != v1alpha1.True {
			return false
		}
		_, _ = s.put(pods, nil, fields{
			"metadata": fields{"name": "agent-" + name, "namespace": v1alpha1.AgentNamespace, "labels": fields{"app.kubernetes.io/component": "node-agent"}},
			"spec":     fields{"nodeName": name, "serviceAccountName": v1alpha1.AgentServiceAccount, "containers": []fields{{"name": "agent", "image": "a"}}},
			"status":   fields{"phase": "Running", "conditions": []fields{{"type": "Ready", "status": "True"}}},
		})
		s.lastWrite = time.Now()
	}
	o := s.kinds[client+"storageclientnodes"].objects["/"+name]
	if o == nil {
		return false
	}
	var clientNode v1alpha1.StorageClientNode
	if err := json.Unmarshal(o.raw, &clientNode); err != nil {
		panic(err)
	}
	if clientNode.Status.ObservedGeneration == clientNode.Generation && clientNode.Status.Hash == clientNode.Spec.Hash {
		return false
	}
	status := a.statusOf(&clientNode)
	s.edit(client+"storageclientnodes", "/"+name, func(f fields) {
		old, _ := f["status"].(fields)
		raw, _ := json.Marshal(status)
		var next fields
		_ = json.Unmarshal(raw, &next)
		if old["rollout"] != nil {
			next["rollout"] = old["rollout"]
		}
		f["status"] = next
	})
	s.lastWrite = time.Now()
	s.writes["agents"]++
	return true
}

func (a *agents) statusOf(clientNode *v1alpha1.StorageClientNode) v1alpha1.StorageClientNodeStatus {
	status := v1alpha1.StorageClientNodeStatus{
		ObservedGeneration: clientNode.Generation, Hash: clientNode.Spec.Hash, BootID: "boot-" + clientNode.Name, KernelVersion: "6.8.0",
		Bootloader: &v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubDebian, Proven: true}, Restored: clientNode.Spec.Release, Mounts: a.mounts,
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Applied", LastTransitionTime: metav1.Now(), ObservedGeneration: clientNode.Generation},
			{Type: "Stalled", Status: metav1.ConditionFalse, Reason: "Applied", LastTransitionTime: metav1.Now(), ObservedGeneration: clientNode.Generation},
		},
	}
	for _, s := range clientNode.Spec.Settings {
		status.Settings = append(status.Settings, v1alpha1.SettingStatus{
			Key: s.Key, Desired: s.Value, Observed: s.Value, Original: "0", TakesEffect: catalogue.Effect(s.Key), State: v1alpha1.SettingInSync,
		})
	}
	return status
}
