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
	"github.com/fleetloop/fleetloop/internal/policy/evaluator"
)

// policyConfigMaps are the policies of a ConfigMap, as it last was good.
type policyConfigMaps struct {
	store *policy.Store
	name  string // namespace/name of the ConfigMap
	mode  func(annotation string) policy.Mode
	log   *slog.Logger

	latest chan *corev1.ConfigMap // that was not looked at yet, nil is that it is gone
}

const (
	// loadTimeout bounds a look at a set of policies. The CPU time of what it is
	// tried with is bounded as well, which ends first but where the machine hardly
	// runs.
	loadTimeout = 5 * time.Minute

	firstRetry = time.Second // of a set that could not be tried to its end
	lastRetry  = time.Minute
)

// enqueueConfigMap has Run take a ConfigMap over. The caller is one goroutine.
func (p *policyConfigMaps) enqueueConfigMap(o client.Object, gone bool) {
	cm, ok := o.(*corev1.ConfigMap)
	if gone || !ok {
		cm = nil
	}
	select {
	case <-p.latest: // another came meanwhile
	default:
	}
	p.latest <- cm
}

// Run takes ConfigMaps over until ctx ends, and tries those again that could not
// be tried to their end.
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
		if !p.loadConfigMap(ctx, cm, pause) {
			again.Reset(pause)
		}
	}
}

// loadConfigMap takes a ConfigMap over, and says whether it is done with. One that is bad
// leaves the policies in force that were good; one that is gone leaves none, and
// nothing is allowed any more.
func (p *policyConfigMaps) loadConfigMap(ctx context.Context, cm *corev1.ConfigMap, pause time.Duration) bool {
	if cm == nil {
		p.store.Unload()
		p.log.ErrorContext(ctx, "policy ConfigMap deleted, all actions are denied", "configmap", p.name)
		return true
	}
	bound, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	err := p.store.Load(bound, cm.Data, p.mode(cm.Annotations[policy.AnnotationMode]))
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, policy.ErrUnfinished):
		p.log.ErrorContext(ctx, "policies not loaded, their tests did not finish in time, retrying", "configmap", p.name, "version", cm.ResourceVersion, "err", err, "retry_in", pause)
		return false
	case err != nil:
		p.log.ErrorContext(ctx, "policies rejected, the previous ones stay active", "configmap", p.name, "version", cm.ResourceVersion, "err", err)
	default:
		p.log.InfoContext(ctx, "policies loaded", "configmap", p.name, "version", cm.ResourceVersion, "hash", p.store.Status().Hash)
	}
	return true
}

// Ready says why nothing can be decided.
func (p *policyConfigMaps) Ready() error {
	s := p.store.Status()
	switch {
	case s.Hash != "":
		return nil
	case errors.Is(s.Err, policy.ErrUnfinished):
		return fmt.Errorf("the self-test of the policies in ConfigMap %s did not finish and is retried: %w", p.name, s.Err)
	case s.Err != nil:
		return fmt.Errorf("the policies in ConfigMap %s are invalid: %w", p.name, s.Err)
	}
	return fmt.Errorf("no policies are loaded: create ConfigMap %s", p.name)
}

// Decide decides by the policies that are in force.
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
type conditionEvaluator struct{ *evaluator.Evaluator }

// Enter takes a place for a requester.
func (c conditionEvaluator) Enter(requester string) (execution.Place, error) {
	p, err := c.Evaluator.Enter(requester)
	if err != nil {
		return nil, inWords(err)
	}
	return evaluationPlace{p}, nil
}

// A evaluationPlace is where they are evaluated.
type evaluationPlace struct{ *evaluator.Place }

// Evaluate says whether a condition holds.
func (p evaluationPlace) Evaluate(ctx context.Context, module string, input any, now time.Time) (passed bool, message string, err error) {
	text, err := json.Marshal(input)
	if err != nil {
		return false, "", fmt.Errorf("encode condition input: %w", err)
	}
	passed, message, err = p.Place.Evaluate(ctx, module, text, now)
	return passed, message, inWords(err)
}

// Compile says why a condition can never hold.
func (p evaluationPlace) Compile(ctx context.Context, module string) error {
	return inWords(p.Place.Compile(ctx, module))
}

// inWords is an error in the words of executions.
func inWords(err error) error {
	never, killed, retry := (*policy.CompileError)(nil), (*evaluator.KilledError)(nil), (*evaluator.RetryError)(nil)
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
