// Package apiclient is the API client of a node agent. It accesses only its own StorageClientNode and has no cache.
package apiclient

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	resource = "storageclientnodes"

	// The server closes a watch after a random time between watchTimeout and twice that time, so that many agents do not reconnect
	// together.
	watchTimeout = 5 * time.Minute
	// After an error or the end of a watch, the delay before the next attempt doubles from minDelay to maxDelay. A random time of up to
	// the same length is added. After a watch that lasted for maxDelay, the delay starts again at minDelay.
	minDelay = 500 * time.Millisecond
	maxDelay = 30 * time.Second
)

// A node agent may only read StorageClientNodes and write their status. RBAC cannot limit writes to the agent's node; the admission
// policy in config/agent does. The agent has no permissions on Nodes or Pods.
// +kubebuilder:rbac:roleName=storage-client-node-agent,groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch
// +kubebuilder:rbac:roleName=storage-client-node-agent,groups=tuning.storageclient.dev,resources=storageclientnodes/status,verbs=patch;update

// Client reads and watches one StorageClientNode and writes its status.
type Client struct {
	rest rest.Interface
	// fresh opens a new connection for every request.
	fresh rest.Interface
	name  string
	clock clock.Clock
}

// New returns a client for the StorageClientNode with the given name.
func New(config *rest.Config, name string, c clock.Clock) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	// The server returns errors as Status objects.
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config = rest.CopyConfig(config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{next} })
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("build API client: %w", err)
	}
	fresh, err := freshClient(config)
	if err != nil {
		return nil, err
	}
	return &Client{rest: client, fresh: fresh, name: name, clock: c}, nil
}

// dated stores the date of a response where the request's context requests it.
type dated struct{ http.RoundTripper }

type dateKey struct{}

// RoundTrip implements http.RoundTripper.
func (d dated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.RoundTripper.RoundTrip(request)
	if date, ok := request.Context().Value(dateKey{}).(*time.Time); ok && err == nil {
		// The zero time stands for a missing or unreadable date.
		*date, _ = http.ParseTime(response.Header.Get("Date"))
	}
	return response, err
}

// Get reads the StorageClientNode from the API server, not from a cache. It also returns the date of the response, zero if there is none.
func (c *Client) Get(ctx context.Context) (clientNode *v1alpha1.StorageClientNode, date time.Time, err error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, dateKey{}, &date), requestTimeout)
	defer cancel()
	clientNode = &v1alpha1.StorageClientNode{}
	if err := c.rest.Get().Resource(resource).Name(c.name).Do(ctx).Into(clientNode); err != nil {
		return nil, time.Time{}, fmt.Errorf("read StorageClientNode %s: %w", c.name, err)
	}
	return clientNode, date, nil
}

// ApplyStatus sets the status with server-side apply. status.rollout belongs to the manager and must be nil. With a resource version, the
// write returns a conflict if the object has changed since that version.
func (c *Client) ApplyStatus(ctx context.Context, status v1alpha1.StorageClientNodeStatus, resourceVersion string) error {
	return c.applyStatus(ctx, c.rest.Patch(types.ApplyPatchType), status, resourceVersion)
}

func (c *Client) applyStatus(ctx context.Context, patch *rest.Request, status v1alpha1.StorageClientNodeStatus, resourceVersion string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	data, err := json.Marshal(&v1alpha1.StorageClientNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "StorageClientNode"},
		ObjectMeta: metav1.ObjectMeta{Name: c.name, ResourceVersion: resourceVersion},
		Status:     status,
	})
	if err != nil {
		return fmt.Errorf("encode status of StorageClientNode %s: %w", c.name, err)
	}
	options := &metav1.PatchOptions{FieldManager: v1alpha1.AgentFieldManager, Force: ptr.To(true)}
	// A response that is not a StorageClientNode is an error.
	err = patch.Resource(resource).Name(c.name).SubResource("status").
		VersionedParams(options, metav1.ParameterCodec).Body(data).Do(ctx).Into(&v1alpha1.StorageClientNode{})
	if err != nil {
		return fmt.Errorf("write status of StorageClientNode %s: %w", c.name, err)
	}
	return nil
}

// Follow calls changed with the current StorageClientNode and on every change, until the context is done. The argument is nil if the
// object does not exist.
func (c *Client) Follow(ctx context.Context, changed func(*v1alpha1.StorageClientNode)) {
	delay := minDelay
	for ctx.Err() == nil {
		start := c.clock.Now()
		err := c.listAndWatch(ctx, changed)
		if c.clock.Since(start) >= maxDelay {
			delay = minDelay
		}
		if err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("Lost the watch; trying again", "error", err.Error(), "delay", delay)
		}
		select {
		case <-ctx.Done():
		case <-c.clock.After(delay + rand.N(delay)):
		}
		delay = min(2*delay, maxDelay)
	}
}

// listAndWatch returns nil when the server closes the watch.
func (c *Client) listAndWatch(ctx context.Context, changed func(*v1alpha1.StorageClientNode)) error {
	version, err := c.listNode(ctx, changed)
	if err != nil {
		return err
	}
	options := c.selectSelf()
	options.Watch = true
	options.ResourceVersion = version
	options.TimeoutSeconds = ptr.To(int64((watchTimeout + rand.N(watchTimeout)).Seconds()))
	w, err := c.rest.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch StorageClientNode %s: %w", c.name, err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if err := c.handleEvent(event, changed); err != nil {
			return err
		}
	}
	return nil
}

// listNode reads from the store, not from the server's cache, because the desired state must never go back in time.
func (c *Client) listNode(ctx context.Context, changed func(*v1alpha1.StorageClientNode)) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, options := &v1alpha1.StorageClientNodeList{}, c.selectSelf()
	err = c.rest.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(list)
	if err != nil {
		return "", fmt.Errorf("list StorageClientNode %s: %w", c.name, err)
	}
	if len(list.Items) == 0 {
		changed(nil)
	} else {
		changed(&list.Items[0])
	}
	return list.ResourceVersion, nil
}

func (c *Client) handleEvent(event watch.Event, changed func(*v1alpha1.StorageClientNode)) error {
	switch event.Type {
	case watch.Added, watch.Modified:
		if clientNode, ok := event.Object.(*v1alpha1.StorageClientNode); ok {
			changed(clientNode)
		}
	case watch.Deleted:
		changed(nil)
	case watch.Error:
		return fmt.Errorf("watch StorageClientNode %s: %w", c.name, apierrors.FromObject(event.Object))
	}
	return nil
}

func (c *Client) selectSelf() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", c.name).String()}
}

const requestTimeout = 30 * time.Second

// freshClient returns a client that opens a new connection for every request. It disables keep-alive and HTTP/2, because HTTP/2 requests
// share a connection.
func freshClient(config *rest.Config) (rest.Interface, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("load TLS configuration: %w", err)
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{}).DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: requestTimeout,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableKeepAlives:   true,
		DisableCompression:  true,
	}
	if config.Proxy != nil {
		transport.Proxy = config.Proxy
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, fmt.Errorf("build transport: %w", err)
	}
	client, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: wrapped, Timeout: requestTimeout})
	if err != nil {
		return nil, fmt.Errorf("build API client: %w", err)
	}
	return client, nil
}

// provingPath is the largest document that every API server serves to all authenticated users.
const provingPath = "/openapi/v2"

// By default, the built-in role system:discovery permits it for every authenticated user.
// +kubebuilder:rbac:roleName=storage-client-node-agent,urls=/openapi/v2,verbs=get

// proofTimeout is the server's limit for each request of a proof. A quarter of it is the maximum time in a queue of a busy API server.
const proofTimeout = 10 * time.Second

// Prove reads up to size bytes from the API server over one new connection and discards them. It writes the status over another new
// connection. If a busy API server rejects the read with 429, the error is reporter.ErrBusy: a short response is no proof. If it
// rejects only the status with 429, the error is TooManyRequests: the connection works, but the status is not written.
func (c *Client) Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error {
	start := c.clock.Now()
	body, err := c.fresh.Get().AbsPath(provingPath).SetHeader("Accept", "application/json").SetHeader("Accept-Encoding", "identity").
		MaxRetries(0).Timeout(proofTimeout).Stream(ctx)
	if apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("read %s: %w", provingPath, reporter.ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", provingPath, err)
	}
	n, err := io.CopyN(io.Discard, body, size)
	_ = body.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %d of %d bytes in %s: %w", provingPath, n, size, c.clock.Since(start).Round(time.Second), err)
	}
	return c.applyStatus(ctx, c.fresh.Patch(types.ApplyPatchType).MaxRetries(0).Timeout(proofTimeout), status, "")
}
