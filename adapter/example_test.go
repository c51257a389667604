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

// A dnsService is the service that the adapter of the example manages: the specs of zones by resource.
type dnsService struct {
	mu    sync.Mutex
	zones map[string]string
	down  bool
}

func (d *dnsService) EnsureZone(_ context.Context, id string, spec json.RawMessage) error {
	return d.change(func() { d.zones[id] = string(spec) })
}

func (d *dnsService) DeleteZone(_ context.Context, id string) error {
	return d.change(func() { delete(d.zones, id) })
}

func (d *dnsService) change(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return fmt.Errorf("the DNS service does not answer")
	}
	f()
	return nil
}

var dns = &dnsService{zones: map[string]string{}}

func reconcileZone(ctx context.Context, r adapter.Resource) (adapter.Report, error) {
	switch {
	case r.Deleting():
		return adapter.Finalized("Zone is deleted"), dns.DeleteZone(ctx, r.ID)
	case !r.IsAvailable("validation"):
		return adapter.Waiting("Waiting for validation to complete"), nil
	}
	return adapter.Available("Zone exists"), dns.EnsureZone(ctx, r.ID, r.Spec)
}

func run(ctx context.Context, log *slog.Logger, registry *prometheus.Registry) error {
	a, err := adapter.New(
		adapter.Config{Name: "dns", Collections: []string{v1.CollectionClusters}},
		adapter.ReconcilerFunc(reconcileZone),
		adapter.Deps{Log: log, Registerer: registry},
	)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Suite{
		Open:    func() adapter.Reconciler { return adapter.ReconcilerFunc(reconcileZone) },
		After:   []string{"validation"},
		Spec:    json.RawMessage(`{"zone": "a.example"}`),
		NewSpec: json.RawMessage(`{"zone": "b.example"}`),
		Effects: func(id string) string { return dns.zones[id] },
		Break:   func() (repair func()) { dns.down = true; return func() { dns.down = false } },
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
	report, err := reconcileZone(context.Background(), cluster)
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
