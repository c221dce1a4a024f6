package volume

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/test/check"
)

func deniedWith(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "admission webhook denied the request"}}
}

// waiting is a manager whose writes to some volumes are rejected.
func waiting(t *testing.T, refusal error, refused string, objects ...client.Object) (*Reconciler, *testclock.FakeClock) {
	t.Helper()
	r, _ := newReconciler(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if refusal != nil && strings.HasPrefix(o.GetName(), refused) {
			return refusal
		}
		return c.Patch(ctx, o, p, opts...)
	}}, objects...)
	clock := testclock.NewFakeClock(noon)
	r.Recorder, r.Clock = events.NewFakeRecorder(100000), clock
	return r, clock
}

// passes makes a pass every minute.
func passes(r *Reconciler, clock *testclock.FakeClock, d time.Duration) {
	for end := clock.Now().Add(d); clock.Now().Before(end); clock.Step(time.Minute) {
		r.pace = store.Pace{}
		_, _ = r.Reconcile(context.Background(), reconcile.Request{})
	}
}

func TestARefusedCanaryDelaysNoOtherVolume(t *testing.T) {
	for name, refusal := range map[string]error{
		"a canary whose write a webhook refuses with code 400": deniedWith(http.StatusBadRequest),
		"a canary whose write a webhook refuses with code 405": deniedWith(http.StatusMethodNotAllowed),
		"a canary whose write a webhook fails with code 500":   apierrors.NewInternalError(context.DeadlineExceeded),
		"a canary whose write a webhook refuses with code 403": apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "pv00", nil),
	} {
		t.Run(name, func(t *testing.T) {
			r, clock := waiting(t, refusal, "pv00", append(fleetOf(3), ptr.To(builders.NFSProfile("p", []string{"nocto"})))...)
			passes(r, clock, 4*time.Hour)
			problem := ""
			if len(changed(t, r)) == 0 {
				problem = "no volume has the options"
			}
			if problem != "" {
				t.Error(problem)
			}
		})
	}
}

// Many volumes cannot be restored, one more can.
func TestRefusedRestoresDelayNoOtherVolume(t *testing.T) {
	for name, refusal := range map[string]error{
		"restores that a webhook refuses with code 400": deniedWith(http.StatusBadRequest),
		"restores that a webhook refuses with code 403": apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "frozen", nil),
	} {
		t.Run(name, func(t *testing.T) {
			carrying := builders.Carrying([]string{"hard"}, []string{"nocto"}, "gone")
			objects := []client.Object{builders.NFSVolume([]string{"nocto"}, builders.Named("last"), carrying)}
			for i := range maxSteps {
				objects = append(objects, builders.NFSVolume([]string{"nocto"}, builders.Named(fmt.Sprintf("frozen-%03d", i)), carrying))
			}
			r, clock := waiting(t, refusal, "frozen", objects...)
			passes(r, clock, 15*time.Minute)
			problem := ""
			if names := changed(t, r); len(names) > maxSteps {
				problem = "the volume that is not protected is not restored"
			}
			if problem != "" {
				t.Error(problem)
			}
		})
	}
}

// The API server does not respond to one write. The restore follows with the next pass.
func TestAnOutageDelaysNoRestore(t *testing.T) {
	for name, failure := range map[string]error{
		"unavailable":        apierrors.NewServiceUnavailable("the API server restarts"),
		"too many requests":  apierrors.NewTooManyRequests("slow down", 1),
		"a timeout":          apierrors.NewTimeoutError("etcd", 1),
		"a server's timeout": apierrors.NewServerTimeout(corev1.Resource("persistentvolumes"), "patch", 1),
		"no response":        context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			failures := 1
			r, _ := newReconciler(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if _, isVolume := o.(*corev1.PersistentVolume); isVolume && failures > 0 {
					failures--
					return failure
				}
				return c.Patch(ctx, o, p, opts...)
			}}, builders.NFSVolume([]string{"nocto"}, builders.Named("last"), builders.Carrying([]string{"hard"}, []string{"nocto"}, "gone")))
			clock := testclock.NewFakeClock(noon)
			r.Recorder, r.Clock = events.NewFakeRecorder(1000), clock
			passes(r, clock, 4*time.Minute)
			var pv corev1.PersistentVolume
			check.NoError(t, r.Client.Get(t.Context(), client.ObjectKey{Name: "last"}, &pv))
			check.Equal(t, "failed writes left", 0, failures)
			check.Equal(t, "mount options", []string{"hard"}, pv.Spec.MountOptions)
		})
	}
}

func TestAClockThatIsAheadDelaysNoVolume(t *testing.T) {
	for name, lead := range map[string]time.Duration{"a clock that is right": 0, "a clock that is ahead by a week for one pass": 7 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			p := builders.NFSProfile("p", []string{"nocto"})
			p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{SoakSeconds: ptr.To[int32](60), OnNoEvidence: v1alpha1.NoEvidenceProceed}
			r, clock := waiting(t, nil, "", append(fleetOf(5), &p)...)
			clock.SetTime(noon.Add(lead))
			makeAPass(t, r)
			clock.SetTime(noon)
			passes(r, clock, 4*time.Hour)
			problem := ""
			if names := changed(t, r); len(names) != 5 {
				problem = fmt.Sprintf("%d of 5 volumes have the options", len(names))
			}
			if problem != "" {
				t.Error(problem)
			}
		})
	}
}
