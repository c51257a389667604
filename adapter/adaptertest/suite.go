// Package adaptertest is the conformance suite for adapters that are written with package adapter.
//
// It runs a Reconciler in the real adapter, with a fleet API and a broker in memory, and checks what
// the fleet relies on: a report on every event, repeated events and crashes without harm, deletion
// that ends, and failures that are reported and retried.
package adaptertest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// DefaultTimeout is the timeout of a step if Suite.Timeout is zero.
const DefaultTimeout = 10 * time.Second

// A Suite describes the adapter under test. Only Open is required.
type Suite struct {
	// Open returns the reconciler of a new process. The suite opens it again after a simulated crash,
	// so it must not share memory with the earlier ones; what the adapter created outside stays.
	Open func() adapter.Reconciler

	// Name is the name of the adapter. Empty means "adapter".
	Name string

	// Collection is the collection of the resources. Empty means v1.CollectionClusters.
	Collection string

	// Labels are the labels of the resources. Nil means none.
	Labels map[string]string

	// Spec is the spec of the resources, and NewSpec that of their second generation. Empty means {}
	// and Spec. Leave NewSpec empty if the work does not depend on the spec.
	Spec, NewSpec json.RawMessage

	// After lists the adapters that must be available before this one works.
	After []string

	// Effects describes what exists outside the fleet for a resource, in any form, also if nothing does.
	// The suite checks that the first work and a new spec change it, that repeated events do not, and
	// that it is as before after a deletion. Nil skips these comparisons.
	Effects func(id string) string

	// Break makes the work of the adapter, and its cleanup, fail until repair is called. Nil skips the
	// checks of failures.
	Break func() (repair func())

	// Timeout limits each step, such as the events until a resource is available. Zero means
	// DefaultTimeout.
	Timeout time.Duration
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for _, c := range checks() {
		passed := t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.name, "Fail") && s.Break == nil {
				t.Skip("Suite.Break is nil")
			}
			if c.name == "WaitsForOthers" && len(s.After) == 0 {
				t.Skip("Suite.After is empty")
			}
			if err := s.runCheck(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
		if !passed && c.name == "BecomesAvailable" {
			t.Log("the other checks were not run: they need an adapter that becomes available")
			return
		}
	}
}

// runCheck runs one check with a new fleet.
func (s Suite) runCheck(ctx context.Context, c check) error {
	if s.Name == "" {
		s.Name = "adapter"
	}
	if s.Collection == "" {
		s.Collection = v1.CollectionClusters
	}
	if len(s.Spec) == 0 {
		s.Spec = json.RawMessage("{}")
	}
	if len(s.NewSpec) == 0 {
		s.NewSpec = s.Spec
	}
	showsEffects := s.Effects != nil
	if !showsEffects {
		s.Effects = func(string) string { return "" }
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultTimeout
	}
	b := &fixture{Suite: s, fleet: newFakeFleet(s.Collection), id: "conformance-" + c.name, showsEffects: showsEffects}
	return c.run(ctx, b)
}
