package executionapp

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/job"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// EventOf converts a change to a change event.
func EventOf(c execution.Change, cluster string) changeevent.ChangeEvent {
	return toChangeEvent(c, cluster)
}

// JobsOf is how the operator makes Jobs.
func JobsOf(c Part) job.Options { return c.toOperatorConfig(0).Job }

// Check refuses settings of the runner that make no Job.
func (c RunnerConfig) Check() error { return c.validateSettings() }

// LoadPolicies loads a ConfigMap into a store within a time. It reports whether no retry is needed,
// and returns the error of readiness.
func LoadPolicies(ctx context.Context, store *policy.Store, cm *corev1.ConfigMap, within time.Duration, log *slog.Logger) (done bool, ready error) {
	cfg := OverriddenDefaults().Part
	cfg.Namespace, cfg.Policy.ConfigMap = cm.Namespace, cm.Name
	p := newPolicyConfigMapLoader(store, cfg, log)
	p.timeout = within
	return p.loadPoliciesFromConfigMap(ctx, cm, firstRetry), p.Ready()
}
