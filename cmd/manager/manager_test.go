package main

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// The order of the controllers is the same at each start of the manager.
func TestControllersHaveAFixedOrder(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	// The manager does not connect before it starts.
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range newControllers(mgr, clock.RealClock{}, settings{}) {
		names = append(names, c.name)
	}
	if want := []string{"profile", "node", "rollout", "volume", "trial", "nodevolumes", "drift", "health", "metrics"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
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
