package executionapp

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/execution/operator"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// RegisterMetrics registers the metrics of the controller for the metrics reference. It runs nothing.
func RegisterMetrics(reg prometheus.Registerer) error {
	_, policyErr := policy.NewMetrics(reg)
	_, auditErr := audit.New(nil, audit.Config{}, reg, slog.New(slog.DiscardHandler))
	return errors.Join(policyErr, auditErr, registerMetrics(reg), operator.RegisterMetrics(reg))
}
