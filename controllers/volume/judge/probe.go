package judge

import (
	"cmp"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// ProbeTarget is the mount that a probe of a volume's options would make.
type ProbeTarget struct {
	// Server, Path and FSType identify the mounted file system.
	Server, Path, FSType string
	// Options are the arguments that mount would get with the declared options, Own with the current ones.
	Options, Own []string
	// Obstacle explains why the options cannot be probed in a separate network namespace. Empty if they can.
	Obstacle string
}

var (
	probedServer = regexp.MustCompile(`^[A-Za-z0-9:][A-Za-z0-9._:-]{0,252}$`)
	probedPath   = regexp.MustCompile(`^/[A-Za-z0-9_.,:=/@+-]*$`)
)

const maxProbedPath = 1024

// ProbeTargetOf returns the mount that a probe of a volume with these options would make.
func ProbeTargetOf(pv *corev1.PersistentVolume, options []string) ProbeTarget {
	t := targetOf(pv)
	source := t.Source()
	out := ProbeTarget{
		Server: source.Server, Path: t.MountedPath(), FSType: "nfs",
		Options: mountoptions.SplitOptions(t.PassedOptions(options)), Own: mountoptions.SplitOptions(t.PassedOptions(pv.Spec.MountOptions)),
	}
	out.Obstacle = probeObstacle(source, out)
	return out
}

// probeObstacle explains why a mount in a separate network namespace, by the agent's rules, is impossible or would show nothing.
func probeObstacle(source Source, t ProbeTarget) string {
	switch {
	case source.Protocol != v1alpha1.ProtocolNFS:
		return "only NFS can be mounted in a separate network namespace"
	case t.Server == "":
		return "the volume does not name its server"
	case t.Path == "":
		return "the path that driver " + source.Driver + " mounts is unknown"
	case !probedServer.MatchString(t.Server) || len(t.Path) > maxProbedPath || !probedPath.MatchString(t.Path):
		return "server or path contains characters that the agent rejects"
	}
	for _, list := range [][]string{t.Options, t.Own} {
		for _, problem := range mountoptions.Errors(mountoptions.NFS, list) {
			return "the agent rejects mount option " + problem.Option + ": " + problem.Message
		}
	}
	return cmp.Or(mountoptions.NeedsNodeNetwork(t.Options), mountoptions.NeedsNodeNetwork(t.Own))
}
