package nodefaultapp

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/internal/nodefault/budget"
	"github.com/fleetloop/fleetloop/internal/nodefault/drain"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/janitor"
	"github.com/fleetloop/fleetloop/internal/nodefault/operator"
)

// RegisterMetrics registers the metrics of the controller for the metrics reference. It runs nothing.
func RegisterMetrics(reg prometheus.Registerer) error {
	intake.NewMetrics(reg)
	_, budgetErr := budget.New(budget.Config{}, func() []*corev1.Node { return nil }, reg)
	return errors.Join(
		operator.RegisterMetrics(reg),
		budgetErr,
		drain.New(drain.Config{}, nil, nil).RegisterMetrics(reg),
		janitor.RegisterMetrics(reg),
	)
}
