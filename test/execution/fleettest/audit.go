package fleettest

import (
	"slices"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// OpenAudit opens the audit of the fleet.
func (f *Fleet) OpenAudit() *audit.PostgresStore {
	f.Helper()
	cfg := pgtest.Config(f.Database)
	cfg.Role = postgres.RoleExecutionAuditor
	pool, err := postgres.New(cfg, f.Logger())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(pool.Close)
	return audit.NewPostgresStore(pool)
}

// ListAuditTrail returns the audit records of an execution in the order of their recording.
func (f *Fleet) ListAuditTrail(a *audit.PostgresStore, ke *v1alpha1.KubernetesExecution) []audit.Event {
	f.Helper()
	var trail []audit.Event
	err := a.List(f.Context(), audit.Filter{Execution: string(ke.UID)}, func(e *audit.Event) error {
		trail = append(trail, *e)
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	slices.Reverse(trail)
	return trail
}

// WantAuditIntact verifies that the chain of the audit is intact.
func (f *Fleet) WantAuditIntact(a *audit.PostgresStore) {
	f.Helper()
	report, err := a.Verify(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if report.Broken != nil {
		f.Errorf("the audit is broken at %d: %s %s", report.Broken.Position, report.Broken.Kind, report.Broken.Message)
	}
}
