package executionapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// policyConfigMaps holds the last valid policies of a ConfigMap.
type policyConfigMaps struct {
	store *policy.Store
	name  string // namespace/name of the ConfigMap
	mode  func(annotation string) policy.Mode
	log   *slog.Logger

	timeout time.Duration // of the trial of a set

	latest chan *corev1.ConfigMap // not processed yet; a nil ConfigMap means that it was deleted
}

const (
	// loadTimeout limits the trial of a set of policies. The CPU time of the trial
	// is limited as well and ends first, except on a machine with almost no free
	// CPU.
	loadTimeout = 5 * time.Minute

	firstRetry = time.Second // of a set whose trial did not complete
	lastRetry  = time.Minute
)

func newPolicyConfigMaps(store *policy.Store, cfg Part, log *slog.Logger) *policyConfigMaps {
	return &policyConfigMaps{
		store: store, name: cfg.Namespace + "/" + cfg.Policy.ConfigMap, mode: cfg.selectPolicyMode, log: log,
		timeout: loadTimeout, latest: make(chan *corev1.ConfigMap, 1),
	}
}

// replacePendingConfigMap passes a ConfigMap to Run, in place of one that waits. Only one goroutine may call it.
func (p *policyConfigMaps) replacePendingConfigMap(o client.Object, deleted bool) {
	cm, ok := o.(*corev1.ConfigMap)
	if deleted || !ok {
		cm = nil
	}
	select {
	case <-p.latest: // replaced by a newer one
	default:
	}
	p.latest <- cm
}

// Run loads ConfigMaps until ctx ends, and retries those whose trial did not complete.
func (p *policyConfigMaps) Run(ctx context.Context) error {
	var cm *corev1.ConfigMap
	var pause time.Duration
	again := time.NewTimer(lastRetry)
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case cm = <-p.latest:
			pause = firstRetry
		case <-again.C:
			pause = min(2*pause, lastRetry)
		}
		again.Stop()
		if !p.loadPoliciesFromConfigMap(ctx, cm, pause) {
			again.Reset(pause)
		}
	}
}

// loadPoliciesFromConfigMap loads a ConfigMap and reports whether no retry is needed. An invalid ConfigMap
// leaves the last valid policies in force. A deleted one leaves none, and every execution is
// denied.
func (p *policyConfigMaps) loadPoliciesFromConfigMap(ctx context.Context, cm *corev1.ConfigMap, retryIn time.Duration) (done bool) {
	if cm == nil {
		p.store.UnloadPolicies()
		p.log.ErrorContext(ctx, "policy ConfigMap deleted, all actions are denied", "configmap", p.name)
		return true
	}
	bound, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("the controller got too little CPU time within %s", p.timeout))
	defer cancel()
	err := p.store.LoadPolicies(bound, cm.Data, p.mode(cm.Annotations[policy.AnnotationMode]))
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, policy.ErrUnfinished):
		p.log.ErrorContext(ctx, "policies not loaded, their tests did not finish in time, retrying", "configmap", p.name, "version", cm.ResourceVersion, "err", err, "retry_in", retryIn, "active_hash", p.store.GetStatus().Hash)
		return false
	case err != nil:
		p.log.ErrorContext(ctx, "policies rejected, the previous ones stay active", "configmap", p.name, "version", cm.ResourceVersion, "err", err)
	default:
		p.log.InfoContext(ctx, "policies loaded", "configmap", p.name, "version", cm.ResourceVersion, "hash", p.store.GetStatus().Hash)
	}
	return true
}

// Ready reports why decisions are impossible, or nil.
func (p *policyConfigMaps) Ready() error {
	s := p.store.GetStatus()
	switch {
	case s.Hash != "":
		return nil
	case errors.Is(s.Err, policy.ErrUnfinished):
		return fmt.Errorf("the policies in ConfigMap %s are not loaded and are tried again, because their tests did not finish in time: %w", p.name, s.Err)
	case s.Err != nil:
		return fmt.Errorf("the policies in ConfigMap %s are invalid: %w", p.name, s.Err)
	}
	return fmt.Errorf("no policies are loaded: create ConfigMap %s", p.name)
}

// Decide applies the policies in force.
func (p *policyConfigMaps) Decide(ctx context.Context, in *execution.Input) (execution.Decision, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return execution.Decision{}, fmt.Errorf("encode policy input: %w", err)
	}
	d, hash, err := p.store.Decide(ctx, text, time.Unix(in.Now, 0))
	if errors.Is(err, policy.ErrNoPolicy) {
		return execution.Decision{}, fmt.Errorf("%w in ConfigMap %s: %w", execution.ErrNoPolicies, p.name, err)
	}
	if err != nil {
		return execution.Decision{}, err
	}
	return execution.Decision{
		Allow: d.Allow, Violations: d.Violations, Warnings: d.Warnings,
		RequireDryRun: d.RequireDryRun, RequireApproval: d.RequireApproval,
		Approvals: execution.Approvals{
			Count:  int32(d.Approvals.Count), //nolint:gosec // bounded by the decision's schema
			Groups: d.Approvals.Groups, RequesterCannotApprove: d.Approvals.RequesterCannotApprove,
		},
		PolicyName: d.PolicyName, PolicyHash: hash, Mode: d.Mode,
	}, nil
}

// conditionEvaluator evaluates modules in Rego.
type conditionEvaluator struct{ *policy.Evaluator }

// ReservePlace reserves a place for a requester.
func (c conditionEvaluator) ReservePlace(requester string) (execution.Place, error) {
	p, err := c.Evaluator.ReservePlace(requester)
	if err != nil {
		return nil, toExecutionError(err)
	}
	return evaluationPlace{p}, nil
}

// evaluationPlace is a reserved place for evaluations.
type evaluationPlace struct{ *policy.EvaluationPlace }

// EvaluateModule reports whether a condition holds.
func (p evaluationPlace) EvaluateModule(ctx context.Context, module string, input any, now time.Time) (passed bool, message string, err error) {
	text, err := json.Marshal(input)
	if err != nil {
		return false, "", fmt.Errorf("encode condition input: %w", err)
	}
	passed, message, err = p.EvaluationPlace.EvaluateModule(ctx, module, text, now)
	return passed, message, toExecutionError(err)
}

// CheckModule reports why a condition can never hold.
func (p evaluationPlace) CheckModule(ctx context.Context, module string) error {
	return toExecutionError(p.EvaluationPlace.CheckModule(ctx, module))
}

// toExecutionError converts an error to the error types of executions.
func toExecutionError(err error) error {
	never, killed, retry := (*policy.CompileError)(nil), (*policy.KilledError)(nil), (*policy.RetryError)(nil)
	switch {
	case errors.As(err, &never):
		return fmt.Errorf("%w: %w", execution.ErrMalformed, never.Err)
	case errors.As(err, &killed):
		return fmt.Errorf("%w: %s", execution.ErrKilled, killed.Why)
	case errors.As(err, &retry):
		return &execution.RetryError{After: retry.After, Err: err}
	}
	return err
}
