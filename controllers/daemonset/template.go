package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
)

const (
	// hostRoot is where the agent finds the host's file system.
	hostRoot = "/host"
	// probePort is where the agent answers probes, on the loopback address of the node's network. It is the agent's default.
	probePort = 9809
	// maxUnavailable is how many nodes may be without an agent while it is updated.
	maxUnavailable = "10%"
	// gracePeriod is how long an agent has to end, in seconds: it finishes the host write that it is at.
	gracePeriod = 10
)

var labels = map[string]string{
	"app.kubernetes.io/name": "storage-client-operator",
	agentpod.ComponentLabel:  agentpod.Component,
}

// daemonSet is the agent's DaemonSet. The same image and parameters give the same object, or an update of the manager
// alone would replace every agent.
func daemonSet(namespace, image string, arguments []string) *appsv1ac.DaemonSetApplyConfiguration {
	return appsv1ac.DaemonSet(v1alpha1.AgentDaemonSet, namespace).
		WithLabels(labels).
		WithSpec(appsv1ac.DaemonSetSpec().
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
			WithUpdateStrategy(appsv1ac.DaemonSetUpdateStrategy().
				WithType(appsv1.RollingUpdateDaemonSetStrategyType).
				WithRollingUpdate(appsv1ac.RollingUpdateDaemonSet().WithMaxUnavailable(intstr.FromString(maxUnavailable)))).
			WithTemplate(corev1ac.PodTemplateSpec().
				WithLabels(labels).
				WithAnnotations(map[string]string{"kubectl.kubernetes.io/default-container": "node-agent"}).
				WithSpec(podSpec(image, arguments))))
}

func podSpec(image string, arguments []string) *corev1ac.PodSpecApplyConfiguration {
	return corev1ac.PodSpec().
		WithServiceAccountName(v1alpha1.AgentServiceAccount).
		WithAutomountServiceAccountToken(true).
		WithPriorityClassName("system-node-critical").
		WithNodeSelector(map[string]string{v1alpha1.ManagedLabel: v1alpha1.True, corev1.LabelOSStable: string(corev1.Linux)}).
		WithTolerations(corev1ac.Toleration().WithOperator(corev1.TolerationOpExists)).
		// The node's own network namespace: /proc/sys/net shows that of the process.
		WithHostNetwork(true).
		WithHostPID(false).
		WithDNSPolicy(corev1.DNSDefault).
		WithTerminationGracePeriodSeconds(gracePeriod).
		WithContainers(agentContainer(image, arguments)).
		WithVolumes(corev1ac.Volume().WithName("host").
			WithHostPath(corev1ac.HostPathVolumeSource().WithPath("/").WithType(corev1.HostPathDirectory)))
}

// agentArguments are the agent's command and flags. What is not asked for is not named: the object stays as it was.
func agentArguments(allowed []string, metricsAddress string) []string {
	args := []string{"run"}
	if metricsAddress != "" && metricsAddress != "0" {
		args = append(args, "--metrics-bind-address="+metricsAddress)
	}
	for _, pattern := range allowed {
		args = append(args, "--allow-parameter="+pattern)
	}
	return args
}

func agentContainer(image string, arguments []string) *corev1ac.ContainerApplyConfiguration {
	return corev1ac.Container().
		WithName("node-agent").
		WithImage(image).
		WithImagePullPolicy(corev1.PullIfNotPresent).
		WithArgs(arguments...).
		WithEnv(corev1ac.EnvVar().WithName("NODE_NAME").WithValueFrom(corev1ac.EnvVarSource().
			WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("spec.nodeName")))).
		WithSecurityContext(corev1ac.SecurityContext().WithPrivileged(true).WithRunAsUser(0).WithReadOnlyRootFilesystem(true)).
		WithResources(corev1ac.ResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}).
			WithLimits(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")})).
		// Mounts that the kubelet makes later have to be seen too.
		WithVolumeMounts(corev1ac.VolumeMount().WithName("host").WithMountPath(hostRoot).
			WithMountPropagation(corev1.MountPropagationHostToContainer)).
		WithReadinessProbe(httpProbe("/readyz").WithPeriodSeconds(10)).
		WithLivenessProbe(httpProbe("/healthz").WithPeriodSeconds(20).WithFailureThreshold(3))
}

func httpProbe(path string) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().WithTimeoutSeconds(5).
		WithHTTPGet(corev1ac.HTTPGetAction().WithHost("127.0.0.1").WithPort(intstr.FromInt32(probePort)).WithPath(path))
}
