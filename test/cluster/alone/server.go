package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/storageclient/operator/api/v1alpha1"
)

// server simulates the part of an API server that a client sees: objects as JSON, versions, watches. It admits all requests, and has no
// users.
type server struct {
	// delay is the duration of a write.
	delay time.Duration
	// wrote is called for each write, with the lock held.
	wrote func(k *kind, o *object)

	mutex   sync.Mutex
	version int
	kinds   map[string]*kind
	// writes contains the number of writes by clients, by verb and kind.
	writes    map[string]int
	lastWrite time.Time
}

// kind contains all objects of one kind.
type kind struct {
	schema.GroupVersionKind
	resource   string
	namespaced bool
	objects    map[string]*object
	// log contains the latest changes. first is the number of the first one.
	log   []change
	first int
	// changed is closed at the next change.
	changed chan struct{}
}

// object is one version of an object. It is immutable.
type object struct {
	key     string
	version int
	raw     []byte
	// metadata returns the object as PartialObjectMetadata.
	metadata func() []byte
}

type change struct {
	*object

	event string
}

const maxLog = 20_000

func newServer(delay time.Duration) *server {
	s := &server{delay: delay, kinds: map[string]*kind{}, writes: map[string]int{}, version: 1, wrote: func(*kind, *object) {}}
	for _, k := range []struct {
		group, version, kind, resource string
		namespaced                     bool
	}{
		{"", "v1", "Node", "nodes", false}, {"", "v1", "Pod", "pods", true}, {"", "v1", "Namespace", "namespaces", false},
		{"", "v1", "ConfigMap", "configmaps", true}, {"", "v1", "Event", "events", true}, {"", "v1", "PersistentVolume", "persistentvolumes", false},
		{"", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true}, {"", "v1", "Secret", "secrets", true},
		{"storage.k8s.io", "v1", "StorageClass", "storageclasses", false}, {"events.k8s.io", "v1", "Event", "events", true},
		{"policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true},
		{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false},
		{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false},
		{"admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false},
		{"admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false},
		{"authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", false},
		{v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "StorageClientProfile", "storageclientprofiles", false},
		{v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "StorageClientNode", "storageclientnodes", false},
		{v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "StorageClientTrial", "storageclienttrials", true},
	} {
		gvk := schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind}
		s.kinds[prefixOf(gvk.GroupVersion())+k.resource] = &kind{
			GroupVersionKind: gvk, resource: k.resource, namespaced: k.namespaced, objects: map[string]*object{}, changed: make(chan struct{}),
		}
	}
	return s
}

func prefixOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version + "/"
	}
	return "/apis/" + gv.Group + "/" + gv.Version + "/"
}

// request is the target of a request.
type request struct {
	*kind

	namespace, name, subresource string
}

// find parses a path.
func (s *server) find(path string) (request, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := 3
	if parts[0] == "api" {
		group = 2
	}
	if len(parts) <= group {
		return request{}, false
	}
	prefix, rest := "/"+strings.Join(parts[:group], "/")+"/", parts[group:]
	var r request
	if len(rest) > 2 && rest[0] == "namespaces" {
		r.namespace, rest = rest[1], rest[2:]
	}
	r.kind = s.kinds[prefix+rest[0]]
	if len(rest) > 1 {
		r.name = rest[1]
	}
	if len(rest) > 2 {
		r.subresource = rest[2]
	}
	return r, r.kind != nil
}

func (r request) key() string { return r.namespace + "/" + r.name }

func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r, found := s.find(req.URL.Path)
	switch {
	case !found:
		s.discover(w, req)
	case req.Method == http.MethodGet && req.URL.Query().Get("watch") != "":
		s.watch(w, req, r)
	case req.Method == http.MethodGet && r.name == "":
		s.list(w, req, r)
	case req.Method == http.MethodGet:
		s.mutex.Lock()
		o := r.objects[r.key()]
		s.mutex.Unlock()
		respond(w, o, r)
	case r.Kind == "SelfSubjectReview":
		review(w)
	case req.URL.Query().Get("dryRun") != "":
		s.tryWrite(w, req, r)
	default:
		s.write(w, req, r)
	}
}

func respond(w http.ResponseWriter, o *object, r request) {
	if o == nil {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.resource+" "+r.name+" not found")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(o.raw)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Message: message, Code: int32(code),
	})
}

// discover serves the list of kinds.
func (s *server) discover(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch req.URL.Path {
	case "/api":
		_ = json.NewEncoder(w).Encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
		return
	case "/apis":
		_ = json.NewEncoder(w).Encode(s.groups())
		return
	}
	out := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for _, k := range s.kinds {
		if strings.Trim(prefixOf(k.GroupVersion()), "/") != strings.Trim(req.URL.Path, "/") {
			continue
		}
		out.GroupVersion = k.GroupVersion().String()
		out.APIResources = append(out.APIResources, metav1.APIResource{Name: k.resource, Kind: k.Kind, Namespaced: k.namespaced, Verbs: metav1.Verbs{"get", "list", "watch"}})
	}
	if len(out.APIResources) == 0 {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, req.URL.Path)
		return
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (s *server) groups() metav1.APIGroupList {
	out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range s.kinds {
		if k.Group == "" || slices.ContainsFunc(out.Groups, func(g metav1.APIGroup) bool { return g.Name == k.Group }) {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		out.Groups = append(out.Groups, metav1.APIGroup{Name: k.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}
	return out
}

// selection describes the requested objects of a list or watch, and their kind.
type selection struct {
	request

	only     string
	metadata bool
}

func selectionOf(req *http.Request, r request) selection {
	sel := selection{request: r, metadata: strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata")}
	if name, named := strings.CutPrefix(req.URL.Query().Get("fieldSelector"), "metadata.name="); named {
		sel.only = name
	}
	return sel
}

func (sel selection) holds(o *object) bool {
	namespace, name, _ := strings.Cut(o.key, "/")
	return (sel.namespace == "" || sel.namespace == namespace) && (sel.only == "" || sel.only == name)
}

func (sel selection) show(o *object) []byte {
	if sel.metadata {
		return o.metadata()
	}
	return o.raw
}

// current returns the objects by their keys.
func (sel selection) current() []*object {
	var out []*object
	for _, key := range slices.Sorted(maps.Keys(sel.objects)) {
		if o := sel.objects[key]; sel.holds(o) {
			out = append(out, o)
		}
	}
	return out
}

func (s *server) list(w http.ResponseWriter, req *http.Request, r request) {
	sel := selectionOf(req, r)
	s.mutex.Lock()
	objects, version := sel.current(), s.version
	s.mutex.Unlock()
	if limit, err := strconv.Atoi(req.URL.Query().Get("limit")); err == nil && limit < len(objects) && limit == 1 {
		objects = objects[:1]
	}
	kind, gv := r.Kind+"List", r.GroupVersion().String()
	if sel.metadata {
		kind, gv = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`, kind, gv, version)
	for i, o := range objects {
		if i > 0 {
			_, _ = w.Write([]byte(","))
		}
		_, _ = w.Write(sel.show(o))
	}
	_, _ = w.Write([]byte("]}"))
}

// watch sends changes until the client disconnects. If requested, it first sends all existing objects.
func (s *server) watch(w http.ResponseWriter, req *http.Request, r request) {
	sel, query := selectionOf(req, r), req.URL.Query()
	since, _ := strconv.Atoi(query.Get("resourceVersion"))
	flusher := w.(http.Flusher)
	w.Header().Set("Content-Type", "application/json")
	send := func(event string, raw []byte) {
		fmt.Fprintf(w, `{"type":%q,"object":`, event)
		_, _ = w.Write(raw)
		_, _ = w.Write([]byte("}\n"))
	}
	s.mutex.Lock()
	var initial []*object
	position, version := r.first+len(r.log), s.version
	if query.Get("sendInitialEvents") == "true" {
		initial = sel.current()
	} else {
		position = r.first
		for _, c := range r.log {
			if c.version > since {
				break
			}
			position++
		}
	}
	s.mutex.Unlock()
	for _, o := range initial {
		send("ADDED", sel.show(o))
	}
	if query.Get("sendInitialEvents") == "true" {
		send("BOOKMARK", bookmark(sel, version))
	}
	flusher.Flush()
	for {
		s.mutex.Lock()
		if position < r.first {
			s.mutex.Unlock()
			return
		}
		news, changed := r.log[position-r.first:], r.changed
		position += len(news)
		s.mutex.Unlock()
		for _, c := range news {
			if sel.holds(c.object) {
				send(c.event, sel.show(c.object))
			}
		}
		flusher.Flush()
		select {
		case <-req.Context().Done():
			return
		case <-changed:
		}
	}
}

func bookmark(sel selection, version int) []byte {
	kind, gv := sel.Kind, sel.GroupVersion().String()
	if sel.metadata {
		kind, gv = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}`, kind, gv, version, metav1.InitialEventsAnnotationKey)
}

// review names the user of a manager in the cluster.
func review(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"system:serviceaccount:%s:%s"}}}`,
		v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment)
}

// tryWrite responds like a fence: it permits only status writes by the agent of the node.
func (s *server) tryWrite(w http.ResponseWriter, req *http.Request, r request) {
	body, _ := io.ReadAll(req.Body)
	isOwner := slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(req.Header))...), func(v string) bool { return v == r.name })
	if r.subresource == "status" && isOwner && !bytes.Contains(body, []byte(`"rollout"`)) {
		s.mutex.Lock()
		o := r.objects[r.key()]
		s.mutex.Unlock()
		respond(w, o, r)
		return
	}
	fail(w, http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: no", v1alpha1.AgentPolicy, v1alpha1.AgentPolicy))
}

var codecs = serializer.NewCodecFactory(clientgoscheme.Scheme)

func (s *server) write(w http.ResponseWriter, req *http.Request, r request) {
	time.Sleep(s.delay)
	body, err := io.ReadAll(req.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.writes[req.Method+" "+r.resource]++
	s.lastWrite = time.Now()
	before := r.objects[r.key()]
	if before == nil && req.Method != http.MethodPost {
		respond(w, nil, r)
		return
	}
	var next map[string]any
	switch req.Method {
	case http.MethodPost:
		next, err = decodeBody(req.Header.Get("Content-Type"), body)
	case http.MethodPut:
		if next, err = decodeBody(req.Header.Get("Content-Type"), body); err == nil {
			err = checkVersion(next, before)
		}
	case http.MethodPatch:
		next, err = patched(types.PatchType(req.Header.Get("Content-Type")), before, body, r)
	case http.MethodDelete:
		s.delete(r.kind, before)
		respond(w, before, r)
		return
	}
	if err != nil {
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, err.Error())
		return
	}
	o, err := s.put(r.kind, before, next)
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if req.Method == http.MethodPost {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(o.raw)
		return
	}
	respond(w, o, r)
}

func decodeBody(contentType string, body []byte) (map[string]any, error) {
	var out map[string]any
	if strings.Contains(contentType, "json") {
		return out, json.Unmarshal(body, &out)
	}
	decoded, kind, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	decoded.GetObjectKind().SetGroupVersionKind(*kind)
	raw, err := json.Marshal(decoded)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(raw, &out)
}

func checkVersion(next map[string]any, before *object) error {
	metadata, _ := next["metadata"].(map[string]any)
	if version, given := metadata["resourceVersion"].(string); given && version != "" && version != strconv.Itoa(before.version) {
		return fmt.Errorf("got version %s, want %d", version, before.version)
	}
	return nil
}

func patched(form types.PatchType, before *object, body []byte, r request) (map[string]any, error) {
	var patch, previous, next map[string]any
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	if err := checkVersion(patch, before); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(before.raw, &previous); err != nil {
		return nil, err
	}
	if form == types.StrategicMergePatchType {
		raw, err := strategicpatch.StrategicMergePatch(before.raw, body, corev1.Node{})
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, &next); err != nil {
			return nil, err
		}
	} else {
		next = merge(maps.Clone(previous), patch)
	}
	switch {
	case r.subresource == "status":
		status := next["status"]
		next = previous
		next["status"] = status
	case r.Kind != "ConfigMap" && previous["status"] != nil:
		next["status"] = previous["status"]
	}
	return next, nil
}

// merge implements RFC 7386.
func merge(into, patch map[string]any) map[string]any {
	for key, value := range patch {
		below, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap:
			old, _ := into[key].(map[string]any)
			if old = maps.Clone(old); old == nil {
				old = map[string]any{}
			}
			into[key] = merge(old, below)
		default:
			into[key] = value
		}
	}
	return into
}

// put stores an object. The lock must be held.
func (s *server) put(k *kind, before *object, next map[string]any) (*object, error) {
	s.version++
	metadata, _ := next["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata = maps.Clone(metadata)
	next["metadata"], next["kind"], next["apiVersion"] = metadata, k.Kind, k.GroupVersion().String()
	metadata["resourceVersion"] = strconv.Itoa(s.version)
	event := "ADDED"
	if before == nil {
		if name, _ := metadata["name"].(string); name == "" {
			metadata["name"] = fmt.Sprint(metadata["generateName"], s.version)
		}
		metadata["uid"], metadata["generation"] = string(uuid.NewUUID()), 1
		metadata["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	} else {
		event = "MODIFIED"
		var previous map[string]any
		if err := json.Unmarshal(before.raw, &previous); err != nil {
			return nil, err
		}
		if generation, ok := metadata["generation"].(float64); ok && !reflect.DeepEqual(previous["spec"], next["spec"]) {
			metadata["generation"] = generation + 1
		}
	}
	namespace, _ := metadata["namespace"].(string)
	raw, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	o := &object{key: namespace + "/" + metadata["name"].(string), version: s.version, raw: raw}
	o.metadata = sync.OnceValue(func() []byte {
		out, _ := json.Marshal(map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
		return out
	})
	k.objects[o.key] = o
	s.notify(k, change{o, event})
	return o, nil
}

func (s *server) delete(k *kind, o *object) {
	delete(k.objects, o.key)
	s.version++
	s.notify(k, change{&object{key: o.key, version: s.version, raw: o.raw, metadata: o.metadata}, "DELETED"})
}

func (s *server) notify(k *kind, c change) {
	k.log = append(k.log, c)
	if len(k.log) > maxLog {
		k.log, k.first = slices.Clone(k.log[maxLog/2:]), k.first+maxLog/2
	}
	close(k.changed)
	k.changed = make(chan struct{})
	s.wrote(k, c.object)
}
