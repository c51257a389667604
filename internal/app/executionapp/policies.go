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

// laws are the policies of a ConfigMap, as it last was good.
type laws struct {
	store *policy.Store
	name  string // namespace/name of the ConfigMap
	mode  func(annotation string) policy.Mode
	log   *slog.Logger
}

// loadTimeout bounds the tests that a set of policies brings along.
const loadTimeout = time.Minute

// take takes a ConfigMap over. One that is bad leaves the policies in force that
// were good; one that goes leaves none, and nothing is allowed any more.
func (p *laws) take(o client.Object, gone bool) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	cm, ok := o.(*corev1.ConfigMap)
	if gone || !ok {
		p.store.Unload()
		p.log.ErrorContext(ctx, "the ConfigMap with the policies is gone, nothing is allowed until there is one", "configmap", p.name)
		return
	}
	if err := p.store.Load(ctx, cm.Data, p.mode(cm.Annotations[policy.AnnotationMode])); err != nil {
		p.log.ErrorContext(ctx, "the policies are refused, those before them stay in force", "configmap", p.name, "version", cm.ResourceVersion, "err", err)
		return
	}
	s := p.store.Status()
	p.log.InfoContext(ctx, "policies loaded", "configmap", p.name, "version", cm.ResourceVersion, "hash", s.Hash)
}

// Ready says why nothing can be decided.
func (p *laws) Ready() error {
	s := p.store.Status()
	switch {
	case s.Hash != "":
		return nil
	case s.Err != nil:
		return fmt.Errorf("the policies in ConfigMap %s are refused: %w", p.name, s.Err)
	}
	return fmt.Errorf("there are no policies: apply ConfigMap %s", p.name)
}

// Decide decides by the policies that are in force.
func (p *laws) Decide(ctx context.Context, in *execution.Input) (execution.Decision, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return execution.Decision{}, fmt.Errorf("write the input of the policies: %w", err)
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
			Groups: d.Approvals.Groups, FourEyes: d.Approvals.FourEyes,
		},
		PolicyName: d.PolicyName, PolicyHash: hash, Mode: d.Mode,
	}, nil
}

// conditions evaluates modules in Rego.
type conditions struct{ *policy.Conditions }

// Evaluate says whether a condition holds.
func (c conditions) Evaluate(ctx context.Context, module string, input any, now time.Time) (passed bool, message string, err error) {
	text, err := json.Marshal(input)
	if err != nil {
		return false, "", fmt.Errorf("write the input of a condition: %w", err)
	}
	passed, message, err = c.Conditions.Evaluate(ctx, module, text, now)
	return passed, message, malformed(err)
}

// Compile says why a condition can never hold.
func (c conditions) Compile(ctx context.Context, module string) error {
	return malformed(c.Conditions.Compile(ctx, module))
}

// malformed is an error in the words of executions.
func malformed(err error) error {
	if never := (*policy.CompileError)(nil); errors.As(err, &never) {
		return fmt.Errorf("%w: %w", execution.ErrMalformed, never.Err)
	}
	return err
}
