package executionapp

import (
	"context"
	"errors"
	"slices"
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

	// The connections.
	host := overrides.Host
	if host == nil {
		if host, err = kube.NewRESTConfig(cfg.Kube, userAgent); err != nil {
			return nil, err
		}
	}
	sinks := overrides.Sinks
	if sinks == nil {
		sinks, err = changes.New(cfg.toSinksConfig(), changeevent.SourceExecutionController, p, changes.LeaveRetriesToSender) //nolint:contextcheck // the sinks outlive the call
		if err != nil {
			return nil, err
		}
		parts = append(parts, sinks.Part())
	}

	// The dependencies of the operator.
	identities := roles.NewIdentities(host, cfg.Namespace)
	deps := operator.Deps{
		Host:       host,
		Identities: identities,
		Recorder:   changeLogger{p.Log},
		Sinks:      toOutboxSinks(sinks),
		Event:      func(c execution.Change) changeevent.ChangeEvent { return toChangeEvent(c, cfg.Cluster) },
		Log:        p.Log,
		Registerer: p.Metrics,
	}
	auditParts, err := setAuditor(ctx, cfg, p, &deps)
	if err != nil {
		return parts, err
	}
	parts = append(parts, auditParts...)
	if deps.Gate, err = execution.NewGate(cfg.toGateConfig()); err != nil {
		return parts, err
	}
	guardParts, err := setGuardAndSchemaCheck(ctx, host, cfg, p, &deps)
	if err != nil {
		return parts, err
	}
	checker, checkParts, err := newCheckerAndParts(host, cfg, p, identities, deps.Gate)
	if err != nil {
		return parts, err
	}
	deps.Check = checker
	parts = slices.Concat(parts, checkParts, guardParts)

	o, err := operator.New(cfg.toOperatorConfig(p.StopTimeout()), deps) //nolint:contextcheck // the operator outlives the call
	if err != nil {
		return parts, err
	}
	return append(parts, o.Part()), nil
}

// setAuditor sets the auditor, unless the audit is disabled, and returns its parts.
func setAuditor(ctx context.Context, cfg Part, p *process.Process, deps *operator.Deps) ([]lifecycle.Part, error) {
	if cfg.Audit.Mode != auditPostgres {
		p.Log.WarnContext(ctx, "audit is disabled", "set", "AUDIT=postgres and DATABASE_URL")
		return nil, nil
	}
	auditor, parts, err := newAuditorAndDatabaseParts(cfg, p) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return nil, err
	}
	deps.Auditor = auditor
	return parts, nil
}

// newAuditorAndDatabaseParts builds the auditor and the parts of its database.
func newAuditorAndDatabaseParts(cfg Part, p *process.Process) (auditor *audit.Auditor, parts []lifecycle.Part, err error) {
	cfg.Database.ProbeEvery = 10 * time.Second
	pool, err := postgres.New(cfg.Database, p.Log)
	if err != nil {
		return nil, nil, err
	}
	schema := postgres.NewSchemaWaiter(pool, p.Log)
	parts = []lifecycle.Part{
		{Name: "audit database", Run: pool.Run, Ready: pool.Ready, Close: func() error { pool.Close(); return nil }},
		{Name: "audit schema", Run: schema.Run, Ready: schema.Ready},
	}
	auditConfig := audit.Config{Cluster: cfg.Cluster, Retention: cfg.Audit.Retention}
	auditor, err = audit.New(audit.NewPostgresStore(pool), auditConfig, p.Metrics, p.Log)
	if err != nil {
		return nil, nil, errors.Join(err, lifecycle.CloseAll(parts...))
	}
	return auditor, append(parts, lifecycle.Part{Name: "audit", Run: auditor.RunMaintenance}), nil
}

// toOutboxSinks returns the sinks of the outbox of executions.
func toOutboxSinks(sinks *changes.Sinks) []operator.Sink {
	var list []operator.Sink
	for _, s := range sinks.List() {
		list = append(list, operator.Sink{Name: s.Name, Client: s.Client, Wants: s.Wants})
	}
	return list
}

// setGuardAndSchemaCheck sets the dependencies that verify the basis of approvals, and returns their parts. They check
// how long the admission policies have been in force, and whether the installed CustomResourceDefinition has all
// fields.
func setGuardAndSchemaCheck(
	ctx context.Context,
	host *rest.Config,
	cfg Part,
	p *process.Process,
	deps *operator.Deps,
) ([]lifecycle.Part, error) {
	schema, err := newCRDSchemaCheck(host, p.Metrics, p.Log)
	if err != nil {
		return nil, err
	}
	deps.StatusWritten = schema.UpdateMissingFieldsFromWrite

	if cfg.Guard.Mode == guardOff {
		p.Log.WarnContext(
			ctx,
			"admission policies are disabled, requesters are not verified and approvals are not accepted",
			"set",
			"ADMISSION_POLICIES=required",
		)
		deps.Guard = guard.Off{}
		err := registerPoliciesMissingMetric(p.Metrics, func() error { return guard.ErrOff })
		return []lifecycle.Part{schema.Part()}, err
	}
	watch, err := guard.New(host, cfg.toGuardOptions(), cfg.Guard.Propagation, p.Log)
	if err != nil {
		return nil, err
	}
	deps.Guard = watch
	parts := []lifecycle.Part{
		{Name: "admission policies", Run: watch.Run, Ready: watch.Ready},
		schema.Part(),
	}
	return parts, registerPoliciesMissingMetric(p.Metrics, watch.Missing)
}

// newCheckerAndParts builds the checks, and the parts that supply them with policies and cluster state.
func newCheckerAndParts(
	host *rest.Config, cfg Part, p *process.Process, identities *roles.Identities, gate *execution.Gate,
) (*check.Checker, []lifecycle.Part, error) {
	metrics, err := policy.NewMetrics(p.Metrics)
	if err != nil {
		return nil, nil, err
	}
	policies := newPolicyConfigMapLoader(policy.NewStore(cfg.Policy.Timeout, metrics), cfg, p.Log)
	conditions, err := newTimedEvaluator(p.Metrics, conditionEvaluator{policy.NewEvaluator()})
	if err != nil {
		return nil, nil, err
	}
	clusterCache, err := check.NewCachedReader(host, p.Log)
	if err != nil {
		return nil, nil, err
	}
	checker, err := check.New(cfg.toCheckConfig(), check.Deps{
		Identities: identities,
		Policy:     policies,
		Conditions: conditions,
		Traffic:    gate,
		Reader:     clusterCache,
	})
	if err != nil {
		return nil, nil, err
	}

	follower, err := newPolicyFollower(host, cfg.Namespace, cfg.Policy.ConfigMap, policies.replacePendingConfigMap, p.Log)
	if err != nil {
		return nil, nil, err
	}
	// The policies are ready when their ConfigMap is in the cache and is loaded.
	cacheReady := follower.Ready
	follower.Ready = func() error { return errors.Join(cacheReady(), policies.Ready()) }
	parts := []lifecycle.Part{
		follower,
		{Name: "policy loading", Run: policies.Run},
		clusterCache.NewPart("cluster cache"),
		newGateNodeUpdater(clusterCache, gate, p.Log),
	}
	return checker, parts, nil
}
