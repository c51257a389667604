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

// policyConfigMapLoader holds the last valid policies of a ConfigMap.
type policyConfigMapLoader struct {
	store *policy.Store
	name  string                              // namespace/name of the ConfigMap
	mode  func(annotation string) policy.Mode // of the policies of a ConfigMap with the annotation
	log   *slog.Logger

	timeout time.Duration // of the trial of a set

	// pending has room for one ConfigMap that Run has not loaded yet. Nil means that the ConfigMap was deleted.
	pending chan *corev1.ConfigMap
}

const (
	// loadTimeout limits the trial of a set of policies. The CPU time of the trial
	// is limited as well and ends first, except on a machine with almost no free
	// CPU.
	loadTimeout = 5 * time.Minute

	firstRetry = time.Second // of a set whose trial did not complete
	lastRetry  = time.Minute
)

func newPolicyConfigMapLoader(store *policy.Store, cfg Part, log *slog.Logger) *policyConfigMapLoader {
	return &policyConfigMapLoader{
		store:   store,
		name:    cfg.Namespace + "/" + cfg.Policy.ConfigMap,
		mode:    cfg.selectPolicyMode,
		log:     log,
		timeout: loadTimeout,
		pending: make(chan *corev1.ConfigMap, 1),
	}
}

// replacePendingConfigMap passes a ConfigMap to Run, in place of one that waits. Only one goroutine may call it.
func (p *policyConfigMapLoader) replacePendingConfigMap(o client.Object, deleted bool) {
	cm, ok := o.(*corev1.ConfigMap)
	if deleted || !ok {
		cm = nil
	}
	select {
	case <-p.pending: // an older one, which need not be loaded any more
	default:
	}
	p.pending <- cm // never blocks: this is the only sender
}

// Run loads ConfigMaps until ctx ends, and retries those whose trial did not complete.
func (p *policyConfigMapLoader) Run(ctx context.Context) error {
	var cm *corev1.ConfigMap // the latest
	var retryIn time.Duration
	retryTimer := time.NewTimer(lastRetry)
	retryTimer.Stop() // there is nothing to retry yet
	defer retryTimer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case cm = <-p.pending:
			retryIn = firstRetry
		case <-retryTimer.C:
			retryIn = min(2*retryIn, lastRetry)
		}
		retryTimer.Stop() // a newer ConfigMap replaces one that waits for its retry
		if done := p.loadPoliciesFromConfigMap(ctx, cm, retryIn); !done {
			retryTimer.Reset(retryIn)
		}
	}
}

// loadPoliciesFromConfigMap loads a ConfigMap and reports whether no retry is needed. An invalid ConfigMap
// leaves the last valid policies in force. A deleted one leaves none, and every execution is
// denied.
func (p *policyConfigMapLoader) loadPoliciesFromConfigMap(ctx context.Context, cm *corev1.ConfigMap, retryIn time.Duration) (done bool) {
	if cm == nil {
		p.store.UnloadPolicies()
		p.log.ErrorContext(ctx, "policy ConfigMap deleted, all actions are denied", "configmap", p.name)
		return true
	}
	errTimeout := fmt.Errorf("the controller got too little CPU time within %s", p.timeout)
	loadCtx, cancel := context.WithTimeoutCause(ctx, p.timeout, errTimeout)
	defer cancel()
	err := p.store.LoadPolicies(loadCtx, cm.Data, p.mode(cm.Annotations[policy.AnnotationMode]))

	log := p.log.With("configmap", p.name, "version", cm.ResourceVersion)
	switch {
	case ctx.Err() != nil: // the process is stopping, so err says nothing about the policies
	case errors.Is(err, policy.ErrUnfinished):
		log.ErrorContext(ctx, "policies not loaded, their tests did not finish in time, retrying",
			"err", err, "retry_in", retryIn, "active_hash", p.store.GetStatus().Hash)
		return false
	case err != nil:
		log.ErrorContext(ctx, "policies rejected, the previous ones stay active", "err", err)
	default:
		log.InfoContext(ctx, "policies loaded", "hash", p.store.GetStatus().Hash)
	}
	return true
}

// Ready reports why decisions are impossible, or nil.
func (p *policyConfigMapLoader) Ready() error {
	status := p.store.GetStatus()
	switch {
	case status.Hash != "": // policies are in force, although a newer set may be invalid
		return nil
	case errors.Is(status.Err, policy.ErrUnfinished):
		return fmt.Errorf("the policies in ConfigMap %s are not loaded and are tried again, because their tests did not finish in time: %w",
			p.name, status.Err)
	case status.Err != nil:
		return fmt.Errorf("the policies in ConfigMap %s are invalid: %w", p.name, status.Err)
	}
	return fmt.Errorf("no policies are loaded: create ConfigMap %s", p.name)
}

// Decide applies the policies in force.
func (p *policyConfigMapLoader) Decide(ctx context.Context, in *execution.Input) (execution.Decision, error) {
	input, err := json.Marshal(in)
	if err != nil {
		return execution.Decision{}, fmt.Errorf("encode policy input: %w", err)
	}
	d, hash, err := p.store.Decide(ctx, input, time.Unix(in.Now, 0))
	if errors.Is(err, policy.ErrNoPolicy) {
		return execution.Decision{}, fmt.Errorf("%w in ConfigMap %s: %w", execution.ErrNoPolicies, p.name, err)
	}
	if err != nil {
		return execution.Decision{}, err
	}
	return execution.Decision{
		Allow:           d.Allow,
		Violations:      d.Violations,
		Warnings:        d.Warnings,
		RequireDryRun:   d.RequireDryRun,
		RequireApproval: d.RequireApproval,
		Approvals: execution.Approvals{
			Count:                  int32(d.Approvals.Count), //nolint:gosec // bounded by the decision's schema
			Groups:                 d.Approvals.Groups,
			RequesterCannotApprove: d.Approvals.RequesterCannotApprove,
		},
		PolicyName: d.PolicyName,
		PolicyHash: hash,
		Mode:       d.Mode,
	}, nil
}

// conditionEvaluator evaluates modules in Rego.
type conditionEvaluator struct{ *policy.Evaluator }

// ReservePlace reserves a place for a requester.
func (c conditionEvaluator) ReservePlace(requester string) (execution.Place, error) {
	p, err := c.Evaluator.ReservePlace(requester)
	if err != nil {
		return nil, policyToExecutionError(err)
	}
	return evaluationPlace{p}, nil
}

// evaluationPlace is a reserved place for evaluations.
type evaluationPlace struct{ *policy.EvaluationPlace }

// EvaluateModule reports whether a condition holds.
func (p evaluationPlace) EvaluateModule(
	ctx context.Context,
	module string,
	input any,
	now time.Time,
) (passed bool, message string, err error) {
	inputJSON, err := json.Marshal(input)
	if err != nil {
		return false, "", fmt.Errorf("encode condition input: %w", err)
	}
	passed, message, err = p.EvaluationPlace.EvaluateModule(ctx, module, inputJSON, now)
	return passed, message, policyToExecutionError(err)
}

// CheckModule reports why a condition can never hold.
func (p evaluationPlace) CheckModule(ctx context.Context, module string) error {
	return policyToExecutionError(p.EvaluationPlace.CheckModule(ctx, module))
}

// policyToExecutionError converts an error of an evaluation to the error types of executions.
func policyToExecutionError(err error) error {
	if malformed, ok := errors.AsType[*policy.CompileError](err); ok {
		return fmt.Errorf("%w: %w", execution.ErrMalformed, malformed.Err)
	}
	if killed, ok := errors.AsType[*policy.KilledError](err); ok {
		return fmt.Errorf("%w: %s", execution.ErrKilled, killed.Why)
	}
	if retry, ok := errors.AsType[*policy.RetryError](err); ok {
		return &execution.RetryError{After: retry.After, Err: err}
	}
	return err
}
