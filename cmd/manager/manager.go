package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/program"
	"github.com/storageclient/operator/controllers/apiclock"
	"github.com/storageclient/operator/controllers/drift"
	"github.com/storageclient/operator/controllers/fence"
	"github.com/storageclient/operator/controllers/health"
	clientmetrics "github.com/storageclient/operator/controllers/metrics"
	"github.com/storageclient/operator/controllers/node"
	"github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/controllers/nodevolumes"
	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/controllers/profile"
	"github.com/storageclient/operator/controllers/rollout"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/trial"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/controllers/webhook"
)

// reconcileTimeout is the timeout of one reconcile, including the wait until the cache contains the controller's writes.
const reconcileTimeout = 5 * time.Minute

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=selfsubjectreviews;tokenreviews,verbs=create
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// newManager creates the manager with all controllers and does not start it.
func newManager(restConfig *rest.Config, s settings) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if err := checkIdentity(restConfig, scheme); err != nil {
		return nil, err
	}
	now := &apiclock.Clock{Local: clock.RealClock{}}
	restConfig.Wrap(now.Wrap)
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:    scheme,
		Cache:     cacheOptions(),
		NewClient: objects.ShareCache,
		Client: client.Options{Cache: &client.CacheOptions{
			// A controller that counts disrupted nodes must see its own most recent write.
			EnableReadYourWritesConsistency: ptr.To(true),
		}},
		Controller:              config.Controller{RecoverPanic: ptr.To(true), ReconciliationTimeout: reconcileTimeout},
		LeaderElection:          s.leaderElect,
		LeaderElectionID:        v1alpha1.ManagerLease,
		LeaderElectionNamespace: v1alpha1.ManagerNamespace,
		// Requires that the process exits when the manager stops, and it does.
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        s.probeAddress,
		PprofBindAddress:              s.profilingAddress,
		Metrics: metricsserver.Options{
			BindAddress:    s.metricsAddress,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("add health and readiness checks: %w", err)
	}
	if err := metrics.Registry.Register(buildInfo()); err != nil {
		return nil, fmt.Errorf("register build information: %w", err)
	}
	if s.cluster, err = clusterUID(mgr.GetAPIReader()); err != nil {
		return nil, err
	}
	controllers, err := newControllers(mgr, now, s)
	if err != nil {
		return nil, err
	}
	if err := setUpControllers(mgr, controllers); err != nil {
		return nil, err
	}
	return mgr, addWebhooks(mgr, s)
}

// checkIdentity returns an error if the admission policies do not limit the manager's service account.
func checkIdentity(restConfig *rest.Config, scheme *runtime.Scheme) error {
	c, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return fence.CheckManager(ctx, c)
}

// clusterUID returns the UID that identifies the cluster: of its namespace kube-system. Empty if the manager may not read it.
func clusterUID(reader client.Reader) (types.UID, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var namespace corev1.Namespace
	err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &namespace)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return "", fmt.Errorf("get Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return namespace.UID, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	return scheme, nil
}

// cacheOptions returns options that limit the cache to the objects that the manager can list, and keep it small. The cache contains the
// Namespace and Secret of the manager by name, the ConfigMaps in that namespace, and only agent Pods. It drops the images of Nodes and
// all managed fields. A write of an object that the cache filters out must use client.DisableReadYourWritesConsistency. Otherwise, reads
// of that kind wait forever.
func cacheOptions() cache.Options {
	// A cache for a single named namespace has a separate store, and each list would copy 5,000 Pods twice.
	agentPods := fields.OneTermEqualSelector("metadata.namespace", v1alpha1.AgentNamespace)
	byObject := map[client.Object]cache.ByObject{
		&corev1.Node{}:                {Transform: node.CacheTransform},
		&corev1.Pod{}:                 {Field: agentPods, Transform: node.CacheTransformAgentPod},
		&corev1.PersistentVolume{}:    {Transform: volume.NewCacheTransform()},
		&v1alpha1.StorageClientNode{}: {Transform: store.NewClientNodeTransform()},
	}
	maps.Copy(byObject, webhook.CacheByObject(v1alpha1.ManagerNamespace))
	return cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: byObject}
}

type namedController struct {
	name       string
	controller interface{ SetupWithManager(mgr ctrl.Manager) error }
}

func setUpControllers(mgr ctrl.Manager, controllers []namedController) error {
	for _, c := range controllers {
		if err := c.controller.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up controller %s: %w", c.name, err)
		}
	}
	return nil
}

// newControllers returns the controllers in setup order. The order is always the same. Each controller that writes has its own client.
func newControllers(mgr ctrl.Manager, now clock.PassiveClock, s settings) ([]namedController, error) {
	clients := map[string]client.Client{}
	for _, name := range []string{"profile", "node", "rollout", "volume", "trial", "nodevolumes"} {
		var err error
		if clients[name], err = objects.Separate(mgr.GetClient()); err != nil {
			return nil, fmt.Errorf("create client of controller %s: %w", name, err)
		}
	}
	recorder := mgr.GetEventRecorder(v1alpha1.ManagerFieldManager)
	// The Deployment sets this variable. Outside a cluster, the manager runs on none of the nodes.
	managerNode := os.Getenv("NODE_NAME")
	agentFence := &fence.Fence{
		APIReader: mgr.GetAPIReader(), AsAgent: fence.Impersonate(mgr.GetConfig(), mgr.GetScheme(), mgr.GetRESTMapper()), Clock: now,
	}
	probes, volumes := &trial.Results{Clock: now}, snapshot.NewMemory()
	volumes.Cluster = s.cluster
	nodeVolumes := &nodevolumes.Reconciler{
		Client: clients["nodevolumes"], APIReader: mgr.GetAPIReader(), Clock: now, Allow: s.allow, Volumes: volumes,
	}
	return []namedController{
		{"profile", &profile.Reconciler{
			Client: clients["profile"], APIReader: mgr.GetAPIReader(), Recorder: recorder, Clock: now, Allow: s.allow, Fence: agentFence, MaxUnavailable: s.maxUnavailable,
			ManagerNode: managerNode, Probes: probes.All, Volumes: volumes,
			ReadAhead: nodeVolumes.Waits,
		}},
		{"node", &node.Reconciler{
			Client: clients["node"], Clock: now, Allow: s.allow, Fence: agentFence,
			Limits: plan.Limits{MaxConcurrentLive: s.maxConcurrentLive, MinSoak: s.minLiveSoak, UntunedTaint: s.untunedTaint},
		}},
		{"rollout", &rollout.Reconciler{
			Client: clients["rollout"], APIReader: mgr.GetAPIReader(), Recorder: recorder, Clock: now, Allow: s.allow,
			MaxUnavailable: s.maxUnavailable, UnmanagedCountFor: s.unmanagedCountFor,
			ManagerNode: managerNode, UntunedTaint: s.untunedTaint, LeavingMarks: s.leavingMarks,
			Drains: drain.NewRunner(mgr.GetAPIReader(), mgr.GetClient(), now.Now),
		}},
		{"volume", &volume.Reconciler{
			Client: clients["volume"], APIReader: mgr.GetAPIReader(), Recorder: recorder, Clock: now, Allow: s.allow,
			Probes: probes.All, Volumes: volumes,
		}},
		{"trial", &trial.Reconciler{
			Client:  clients["trial"],
			Clock:   now,
			Allow:   s.allow,
			Results: probes,
			Volumes: volumes,
		}},
		{"nodevolumes", nodeVolumes},
		{"drift", &drift.Reporter{Recorder: recorder}},
		{"health", &health.Reporter{Recorder: recorder, Reader: mgr.GetClient()}},
		{"metrics", &clientmetrics.Reporter{Registry: metrics.Registry, MaxUnavailable: s.maxUnavailable}},
	}, nil
}

// addWebhooks adds the webhooks unless the port is 0. Every replica serves them; the leader manages the certificate.
func addWebhooks(mgr ctrl.Manager, s settings) error {
	if s.webhookPort == 0 {
		return nil
	}
	if err := newWebhooks(s).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up webhooks: %w", err)
	}
	return nil
}

func newWebhooks(s settings) *webhook.Webhooks {
	return &webhook.Webhooks{
		Allow: s.allow, Port: s.webhookPort, KeepCertificates: s.webhookCertificates == certificatesSelf,
		Cluster: s.cluster,
	}
}

// buildInfo returns the metric storageclient_build_info. Its value is 1; its labels are version, revision, and Go release.
func buildInfo() prometheus.Collector {
	info, revision := program.Build()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "storageclient_build_info",
		Help:        "Information about the running build: always 1, with the version, the revision, and the Go release as labels.",
		ConstLabels: prometheus.Labels{"version": info.Main.Version, "revision": cmp.Or(revision, "unknown"), "goversion": info.GoVersion},
	})
	gauge.Set(1)
	return gauge
}
