package adapter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/adapter"
	"github.com/fleetloop/fleetloop/adapter/adaptertest"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A registryService is the service that the adapter of the example manages: the specs of container registries
// by resource.
type registryService struct {
	mu         sync.Mutex
	registries map[string]string
	down       bool
}

func (s *registryService) EnsureRegistry(_ context.Context, id string, spec json.RawMessage) error {
	return s.change(func() { s.registries[id] = string(spec) })
}

func (s *registryService) DeleteRegistry(_ context.Context, id string) error {
	return s.change(func() { delete(s.registries, id) })
}

func (s *registryService) change(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return fmt.Errorf("the registry service does not answer")
	}
	f()
	return nil
}

var service = &registryService{registries: map[string]string{}}

func reconcileRegistry(ctx context.Context, resource adapter.Resource) (adapter.Report, error) {
	if resource.Deleting() {
		return adapter.Finalized("Registry is deleted"), service.DeleteRegistry(ctx, resource.ID)
	}
	if !resource.IsAvailable("validation") {
		return adapter.Waiting("Waiting for validation"), nil
	}
	return adapter.Available("Registry exists"), service.EnsureRegistry(ctx, resource.ID, resource.Spec)
}

func run(ctx context.Context, log *slog.Logger, registry *prometheus.Registry) error {
	a, err := adapter.New(
		adapter.Config{Name: "registry", Collections: []string{v1.CollectionClusters}},
		adapter.ReconcilerFunc(reconcileRegistry),
		adapter.Deps{Log: log, Registerer: registry},
	)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Suite{
		Open:    func() adapter.Reconciler { return adapter.ReconcilerFunc(reconcileRegistry) },
		After:   []string{"validation"},
		Spec:    json.RawMessage(`{"quota": "1Gi"}`),
		NewSpec: json.RawMessage(`{"quota": "2Gi"}`),
		Effects: func(id string) string { return service.registries[id] },
		Break:   func() (repair func()) { service.down = true; return func() { service.down = false } },
	})
}

// Example reconciles one resource without a broker.
func Example() {
	cluster := adapter.Resource{
		Resource: v1.Resource{ID: "c1", Generation: 2},
		Reports: []v1.AdapterStatus{{
			Adapter: "validation", ObservedGeneration: 2,
			Conditions: []v1.AdapterCondition{{ReportCondition: v1.ReportCondition{Type: v1.ConditionAvailable, Status: v1.ConditionTrue}}},
		}},
	}
	report, err := reconcileRegistry(context.Background(), cluster)
	if err != nil {
		fmt.Println(err)
	}
	for _, c := range report.Conditions {
		fmt.Println(c.Type, c.Status, c.Reason)
	}
	// Output:
	// Available True WorkSucceeded
	// Applied True WorkSucceeded
}

// Example_run shows a program. It needs BROKER_TYPE, HYPERFLEET_API_ENDPOINT and the others.
func Example_run() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(context.Background(), log, prometheus.NewRegistry()); err != nil {
		fmt.Println(err)
	}
}
