package executionapp

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/operator"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/policy"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// userAgent is the User-Agent of requests.
const userAgent = "fleetloop-execution-controller"

// Overrides replaces configured dependencies of the controller. The zero value replaces none.
type Overrides struct {
	// Host replaces the configured cluster.
	Host *rest.Config
	// Sinks replaces the configured sinks for change events.
	Sinks *changes.Sinks
}

// BuildParts returns the parts of the execution controller in order of dependency.
func BuildParts(ctx context.Context, p *process.Process, cfg Part, overrides Overrides) (parts []lifecycle.Part, err error) {
	if err := cfg.validateSettings(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lifecycle.CloseAll(parts...))
			parts = nil
		}
	}()
	host := overrides.Host
	if host == nil {
		if host, err = kube.NewRESTConfig(cfg.Kube, userAgent); err != nil {
			return nil, err
		}
	}
	sinks := overrides.Sinks
	if sinks == nil {
		if sinks, err = changes.New(cfg.toSinksConfig(), changeevent.SourceExecutionController, p, changes.LeaveRetriesToSender); err != nil { //nolint:contextcheck // the sinks outlive the call
			return nil, err
		}
		parts = append(parts, sinks.Part())
	}
	ids := roles.NewIdentities(host, cfg.Namespace)
	deps := operator.Deps{
		Host: host, Identities: ids, Recorder: changeLogger{p.Log}, Log: p.Log, Registerer: p.Metrics,
		Event: func(c execution.Change) changeevent.ChangeEvent { return toChangeEvent(c, cfg.Cluster) },
	}
	deps.Sinks = toOutboxSinks(sinks)
	if cfg.Audit.Mode == auditPostgres {
		store, database, err := newAuditorAndDatabaseParts(cfg, p) //nolint:contextcheck // the pool outlives the call
		if err != nil {
			return parts, err
		}
		parts = append(parts, database...)
		deps.Auditor = store
	} else {
		p.Log.WarnContext(ctx, "audit is disabled", "set", "AUDIT=postgres and DATABASE_URL")
	}
	g, err := execution.NewGate(cfg.toGateConfig())
	if err != nil {
		return parts, err
	}
	deps.Gate = g
	guarded, err := newGuardParts(ctx, host, cfg, p, &deps)
	if err != nil {
		return parts, err
	}
	surroundings, checker, err := newCheckParts(host, cfg, p, ids, g)
	if err != nil {
		return parts, err
	}
	deps.Check = checker
	parts = append(append(parts, surroundings...), guarded...)
	o, err := operator.New(cfg.toOperatorConfig(p.StopTimeout()), deps) //nolint:contextcheck // the operator outlives the call
	if err != nil {
		return parts, err
	}
	return append(parts, o.Part()), nil
}

// newAuditorAndDatabaseParts builds the auditor and the parts of its database.
func newAuditorAndDatabaseParts(cfg Part, p *process.Process) (auditor *audit.Auditor, database []lifecycle.Part, err error) {
	cfg.Database.ProbeEvery = 10 * time.Second
	pool, err := postgres.New(cfg.Database, p.Log)
	if err != nil {
		return nil, nil, err
	}
	tables := postgres.NewSchemaWaiter(pool, p.Log)
	parts := []lifecycle.Part{
		{Name: "audit database", Run: pool.Run, Ready: pool.Ready, Close: func() error { pool.Close(); return nil }},
		{Name: "audit schema", Run: tables.Run, Ready: tables.Ready},
	}
	a, err := audit.New(audit.NewPostgresStore(pool), audit.Config{Cluster: cfg.Cluster, Retention: cfg.Audit.Retention}, p.Metrics, p.Log)
	if err != nil {
		return nil, nil, errors.Join(err, lifecycle.CloseAll(parts...))
	}
	return a, append(parts, lifecycle.Part{Name: "audit", Run: a.RunMaintenance}), nil
}

// toOutboxSinks returns the sinks of the outbox of executions.
func toOutboxSinks(sinks *changes.Sinks) []operator.Sink {
	var list []operator.Sink
	for _, s := range sinks.List() {
		list = append(list, operator.Sink{Name: s.Name, Client: s.Client, Wants: s.Wants})
	}
	return list
}

// newGuardParts builds the parts that verify the basis of approvals. They check how long the
// admission policies have been in force, and whether the installed CustomResourceDefinition has all
// fields.
func newGuardParts(ctx context.Context, host *rest.Config, cfg Part, p *process.Process, deps *operator.Deps) ([]lifecycle.Part, error) {
	stored, err := newCRDSchemaCheck(host, p.Metrics, p.Log)
	if err != nil {
		return nil, err
	}
	deps.StatusWritten = stored.UpdateMissingFieldsFromWrite
	if cfg.Guard.Mode == guardOff {
		p.Log.WarnContext(ctx, "admission policies are disabled, requesters are not verified and approvals are not accepted", "set", "ADMISSION_POLICIES=required")
		deps.Guard = guard.Off{}
		return []lifecycle.Part{stored.Part()}, registerPoliciesMissingMetric(p.Metrics, func() error { return guard.ErrOff })
	}
	watch, err := guard.New(host, cfg.toGuardOptions(), cfg.Guard.Propagation, p.Log)
	if err != nil {
		return nil, err
	}
	deps.Guard = watch
	return []lifecycle.Part{{Name: "admission policies", Run: watch.Run, Ready: watch.Ready}, stored.Part()}, registerPoliciesMissingMetric(p.Metrics, watch.Missing)
}

// newCheckParts builds the checks, and the parts that supply them with policies and cluster state.
func newCheckParts(
	host *rest.Config, cfg Part, p *process.Process, ids *roles.Identities, g *execution.Gate,
) ([]lifecycle.Part, *check.Checker, error) {
	metrics, err := policy.NewMetrics(p.Metrics)
	if err != nil {
		return nil, nil, err
	}
	rules := newPolicyConfigMaps(policy.NewStore(cfg.Policy.Timeout, metrics), cfg, p.Log)
	asked, err := newTimedEvaluator(p.Metrics, conditionEvaluator{policy.NewEvaluator()})
	if err != nil {
		return nil, nil, err
	}
	view, err := check.NewCachedReader(host, p.Log)
	if err != nil {
		return nil, nil, err
	}
	checker, err := check.New(cfg.toCheckConfig(), check.Deps{
		Identities: ids, Policy: rules, Conditions: asked, Traffic: g, Reader: view,
	})
	if err != nil {
		return nil, nil, err
	}
	follow, err := newPolicyFollower(host, cfg.Namespace, cfg.Policy.ConfigMap, rules.replacePendingConfigMap, p.Log)
	if err != nil {
		return nil, nil, err
	}
	known := follow.Ready
	follow.Ready = func() error { return errors.Join(known(), rules.Ready()) }
	return []lifecycle.Part{follow, {Name: "policy loading", Run: rules.Run}, view.NewPart("cluster cache"), newGateNodeUpdater(view, g, p.Log)}, checker, nil
}
