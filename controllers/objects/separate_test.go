package objects

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/test/check"
)

const (
	emptyList = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`
	syncedAt1 = `{"type":"BOOKMARK","object":{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	accepted2 = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"2"}}`
)

// slowServer is an API server without Nodes. It holds every patch, as a slow admission webhook does, until its response is sent to responses.
type slowServer struct {
	received  chan string
	responses chan string
}

func (s *slowServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPatch:
		s.received <- r.URL.Path
		response := <-s.responses
		if response == "" {
			http.Error(w, "the webhook rejected the write", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, response)
	case r.URL.Query().Get("watch") != "":
		_, _ = io.WriteString(w, syncedAt1)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		_, _ = io.WriteString(w, emptyList)
	}
}

// newRooms returns two separate clients of one cache, as two controllers of a manager have them.
func newRooms(t *testing.T, server *slowServer) (writing, reading client.Client) {
	t.Helper()
	listener := httptest.NewServer(server)
	config := &rest.Config{Host: listener.URL}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), apimeta.RESTScopeRoot)
	shared, err := cache.New(config, cache.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper})
	check.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- shared.Start(t.Context()) }()
	// The context of the test is canceled before its cleanups run, last first.
	t.Cleanup(listener.Close)
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	manager, err := ShareCache(config, client.Options{
		Scheme: clientgoscheme.Scheme, Mapper: mapper,
		Cache: &client.CacheOptions{Reader: shared, EnableReadYourWritesConsistency: ptr.To(true)},
	})
	check.NoError(t, err)
	rooms := [2]client.Client{}
	for i := range rooms {
		if rooms[i], err = Separate(manager); err != nil {
			t.Fatal(err)
		}
	}
	return rooms[0], rooms[1]
}

// lists are the ways to list, with the cache's own objects and with copies.
func lists(c client.Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"a list":                 func(ctx context.Context) error { return c.List(ctx, &corev1.NodeList{}) },
		"a list with a selector": func(ctx context.Context) error { return c.List(ctx, &corev1.NodeList{}, client.HasLabels{"pool"}) },
		"shared objects": func(ctx context.Context) error {
			_, err := All[*corev1.Node](ctx, c, &corev1.NodeList{})
			return err
		},
		"shared objects with a selector": func(ctx context.Context) error {
			_, err := All[*corev1.Node](ctx, c, &corev1.NodeList{}, client.HasLabels{"pool"})
			return err
		},
	}
}

func TestAHeldWriteDelaysOnlyItsOwnController(t *testing.T) {
	const bound = 50 * time.Millisecond
	server := &slowServer{received: make(chan string), responses: make(chan string)}
	writing, reading := newRooms(t, server)
	for _, list := range lists(writing) {
		if err := list(t.Context()); err != nil {
			t.Fatalf("before the write: %v", err)
		}
	}
	writing.(*sharingClient).maxWait = bound
	write := func() chan error {
		written := make(chan error, 1)
		go func() {
			written <- writing.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, client.RawPatch(types.MergePatchType, []byte("{}")))
		}()
		<-server.received
		return written
	}
	held := write()
	// The test fails instead of waiting forever.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	expectLists := func(state string, room client.Client, want string) {
		t.Helper()
		for name, list := range lists(room) {
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			if err := list(short); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s of %s: got error %v, want %q", name, state, err, want)
			}
			cancel()
		}
	}
	late := "read NodeList: the cache does not contain the latest writes of this controller after 50ms"
	expectLists("another controller during the write", reading, "")
	expectLists("the controller that writes", writing, late)
	server.responses <- ""
	if err := <-held; err == nil {
		t.Error("got no error of the rejected write")
	}
	expectLists("the controller after the rejection", writing, "")
	held = write()
	server.responses <- accepted2
	check.NoError(t, <-held)
	expectLists("another controller whose cache is behind", reading, "")
	expectLists("the controller whose cache is behind", writing, late)
	err := writing.Get(ctx, client.ObjectKey{Name: "a"}, &corev1.Node{})
	if want := strings.Replace(late, "NodeList", "Node", 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v of the object that the cache does not contain yet, want %q", err, want)
	}
	ended, stop := context.WithCancel(ctx)
	stop()
	if err := writing.List(ended, &corev1.NodeList{}); err == nil || strings.Contains(err.Error(), late) {
		t.Errorf("got error %v for a pass that has ended, want its own", err)
	}
}
