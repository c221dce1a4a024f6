package drain

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestIsVacant(t *testing.T) {
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	for name, c := range map[string]struct {
		pods []client.Object
		want bool
	}{
		"no pod":                                 {nil, true},
		"a pod of a DaemonSet stays in any case": {[]client.Object{pod("agent", ownedBy("apps/v1", "DaemonSet"))}, true},
		"a static pod stays in any case":         {[]client.Object{pod("proxy", mirror)}, true},
		"pods that have run to their end":        {[]client.Object{pod("done", succeeded), pod("failed", failed)}, true},
		"a pod of another node":                  {[]client.Object{pod("web", elsewhere)}, true},
		"a pod that runs":                        {[]client.Object{pod("web")}, false},
		"a pod that is about to start":           {[]client.Object{pod("web", pending)}, false},
		"a pod that still terminates":            {[]client.Object{pod("web", terminating)}, false},
		"a pod of a Job":                         {[]client.Object{pod("job", ownedBy("batch/v1", "Job"))}, false},
		"a pod without a controller":             {[]client.Object{pod("bare", bare)}, false},
		"a pod that runs next to pods that stay": {[]client.Object{pod("agent", ownedBy("apps/v1", "DaemonSet")), pod("web")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := Drainer{Reader: newReader(t, c.pods...)}
			got, err := d.IsVacant(context.Background(), "a")
			if err != nil || got != c.want {
				t.Errorf("got %t, %v, want %t", got, err, c.want)
			}
		})
	}
}

func TestIsVacantReturnsReadErrors(t *testing.T) {
	silent := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no answer")
		},
	}).Build()
	d := Drainer{Reader: silent}
	if vacant, err := d.IsVacant(context.Background(), "a"); vacant || err == nil || !strings.Contains(err.Error(), "list Pods on a: no answer") {
		t.Errorf("got %t, %v; want false and an error", vacant, err)
	}
}
