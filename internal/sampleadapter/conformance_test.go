package sampleadapter

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/fleetloop/fleetloop/adapter"
	"github.com/fleetloop/fleetloop/adapter/adaptertest"
)

// TestConformance runs the suite for adapters against the sample adapters.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, cfg := range ChainedSampleConfigs(Config{}) {
		t.Run(cfg.Name, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			s := adaptertest.Suite{
				Name: cfg.Name,
				Open: func() adapter.Reconciler {
					r := newReconciler(cfg)
					return adapter.ReconcilerFunc(func(ctx context.Context, resource adapter.Resource) (adapter.Report, error) {
						if broken.Load() {
							return newReport(cfg, outcomeTransient), errors.New("the work failed")
						}
						return r.Reconcile(ctx, resource)
					})
				},
				Break: func() func() {
					broken.Store(true)
					return func() { broken.Store(false) }
				},
			}
			if cfg.After != "" {
				s.After = []string{cfg.After}
			}
			adaptertest.Run(t, s)
		})
	}
}
