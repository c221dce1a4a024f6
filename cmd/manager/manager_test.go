package main

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/test/check"
)

// newTestControllers returns the controllers of a manager that does not run.
func newTestControllers(t *testing.T) (ctrl.Manager, []namedController) {
	t.Helper()
	scheme, err := newScheme()
	check.NoError(t, err)
	// The manager does not connect before it starts.
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, NewClient: objects.ShareCache,
	})
	check.NoError(t, err)
	controllers, err := newControllers(mgr, clock.RealClock{}, settings{})
	check.NoError(t, err)
	return mgr, controllers
}

// The order of the controllers is the same at each start of the manager.
func TestControllersHaveAFixedOrder(t *testing.T) {
	_, controllers := newTestControllers(t)
	var names []string
	for _, c := range controllers {
		names = append(names, c.name)
	}
	if want := []string{"profile", "node", "rollout", "volume", "trial", "nodevolumes", "drift", "health", "metrics"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

// A read waits for the writes of its client: a slow webhook must delay only the controller that writes.
func TestControllersThatWriteHaveSeparateClients(t *testing.T) {
	mgr, controllers := newTestControllers(t)
	owners := map[client.Client]string{mgr.GetClient(): "manager"}
	for _, c := range controllers {
		field := reflect.ValueOf(c.controller).Elem().FieldByName("Client")
		if !field.IsValid() {
			continue
		}
		own, ok := field.Interface().(client.Client)
		if owner, taken := owners[own]; taken || !ok {
			t.Errorf("controller %s has the client of %q", c.name, owner)
		}
		owners[own] = c.name
	}
	if len(owners) != 7 {
		t.Errorf("got the clients %v, want 7", owners)
	}
}

// setupFunc is a controller that only has a setup function.
type setupFunc func() error

func (f setupFunc) SetupWithManager(ctrl.Manager) error { return f() }

func TestControllersAreSetUpInTheirOrder(t *testing.T) {
	var names []string
	var controllers []namedController
	failure := errors.New("no such kind")
	for name, err := range map[string]error{"e": nil, "b": nil, "d": failure, "a": nil, "c": nil} {
		controllers = append(controllers, namedController{name, setupFunc(func() error {
			names = append(names, name)
			return err
		})})
	}
	slices.SortFunc(controllers, func(a, b namedController) int { return int(a.name[0]) - int(b.name[0]) })
	err := setUpControllers(nil, controllers)
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(names, want) {
		t.Errorf("set up %v, want %v", names, want)
	}
	if !errors.Is(err, failure) || err.Error() != "set up controller d: no such kind" {
		t.Errorf("got %v, want an error that names the controller", err)
	}
}
