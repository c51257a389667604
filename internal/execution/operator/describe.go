package operator

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/outbox"
)

// RegisterMetrics registers the metrics of an operator and runs nothing. The reference of metrics uses it.
func RegisterMetrics(reg prometheus.Registerer) error {
	newMetrics(reg)
	_, err := newWriteCounter(reg)
	_, failed := outbox.New(outbox.Config{}, outbox.Deps{Registerer: reg})
	return errors.Join(err, failed, reg.Register(newPhaseGauges(noExecutions{}, slog.New(slog.DiscardHandler))))
}

// noExecutions is an empty list of executions.
type noExecutions struct{ executions }

// List returns an empty list.
func (noExecutions) List(context.Context) ([]v1alpha1.KubernetesExecution, error) { return nil, nil }
