package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// assemble gathers what a policy is told. There is no plan in it yet.
func (r *round) assemble(ctx context.Context) (*execution.Input, error) {
	a, t := r.request.Action, r.request.Target
	chain, err := r.owners(ctx)
	if err != nil {
		return nil, err
	}
	scaler, err := r.scaler(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := r.cluster(ctx)
	if err != nil {
		return nil, err
	}
	in := &execution.Input{
		APIVersion: execution.InputVersion,
		Now:        r.now.Unix(),
		Request:    requestInput(r.ke, r.request),
		Action:     actionInput(a),
		Target:     targetInput(t, r.live),
		Namespace:  namespaceInput(t.Namespace, r.space),
		Cluster:    cluster,
		InFlight:   inFlightInput(r.deps.Traffic.InFlight(r.ke.UID)),
		History: execution.InputHistory{SameActionTarget: r.deps.Traffic.History(a.Name, TargetKey(v1alpha1.PlanTarget{
			APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name,
		}), r.now)},
		ServiceAccount: execution.InputServiceAccount{Name: a.ServiceAccount(), PermissionsOK: true}, // the step of rights has passed
	}
	in.Request.Environment = r.environment()
	in.Target.Protected = r.shield != ""
	in.Target.OwnerChain = owners(chain)
	in.Target.ManagedBy = execution.InputManagedBy{
		GitOps: gitOps(r.live), HPA: scaler, Operator: operator(chain),
	}
	return in, nil
}

// environment is what the execution says, else the namespace, else the strictest.
func (r *round) environment() string {
	var label string
	if r.space != nil {
		label = r.space.Labels[r.cfg.EnvironmentLabel]
	}
	return cmp.Or(r.ke.Spec.Environment, label, DefaultEnvironment)
}

// requestInput is what was asked for.
func requestInput(ke *v1alpha1.KubernetesExecution, request action.Request) execution.InputRequest {
	return execution.InputRequest{
		Name: ke.Name, Namespace: ke.Namespace, UID: string(ke.UID),
		Action:        request.Action.Name,
		Parameters:    objectOf(request.Parameters),
		RequestedBy:   execution.InputUser{Username: ke.Spec.RequestedBy, Groups: []string{}},
		Labels:        texts(ke.Labels),
		Annotations:   annotations(ke.Annotations),
		CorrelationID: ke.Spec.CorrelationID,
		DryRun:        string(cmp.Or(ke.Spec.DryRun, v1alpha1.DryRunPolicy)),
		Rollback:      ke.Spec.RollbackOf != nil,
	}
}

// actionInput is what the catalogue says.
func actionInput(a *action.Action) execution.InputAction {
	in := execution.InputAction{
		Name: a.Name, Risk: string(a.Risk), Idempotent: a.Idempotent, Reversible: a.Reversible, ReadOnly: a.ReadOnly,
		Scope: string(a.Scope), RequiredPermissions: []string{},
	}
	for _, p := range a.Permissions {
		for _, verb := range p.Verbs {
			right := action.Right{Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Verb: verb}
			in.RequiredPermissions = append(in.RequiredPermissions, right.String())
		}
	}
	return in
}

func namespaceInput(name string, ns *corev1.Namespace) execution.InputNamespace {
	in := execution.InputNamespace{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	if ns != nil {
		in.Labels, in.Annotations = texts(ns.Labels), annotations(ns.Annotations)
	}
	return in
}

// inFlightInput has no null in it: to a policy that is something else than none.
func inFlightInput(in execution.InputInFlight) execution.InputInFlight {
	if in.ByAction == nil {
		in.ByAction = map[string]int{}
	}
	if in.ByNamespace == nil {
		in.ByNamespace = map[string]int{}
	}
	if in.SameTarget == nil {
		in.SameTarget = []string{}
	}
	return in
}

// planInput is what is going to be done. Of Secrets it has no values.
func planInput(p *v1alpha1.Plan, dry *v1alpha1.DryRunResults) *execution.InputPlan {
	in := &execution.InputPlan{
		Hash: p.Hash, Changes: make([]map[string]any, len(p.Steps)),
		Affected: p.Impact.ResourcesAffected, ReplicasChanged: p.Impact.ReplicasChanged,
		Diff: p.Diff, Before: json.RawMessage("{}"),
		Reversible:     p.Rollback != nil && p.Rollback.Available,
		DryRunWarnings: []string{},
	}
	if p.Before != nil {
		in.Before = objectOf(p.Before.Raw)
	}
	if p.Target.Kind == kindSecret {
		in.Diff, in.Before = "", json.RawMessage("{}")
	}
	for i, s := range p.Steps {
		in.Changes[i] = map[string]any{
			"verb": s.Verb, "apiVersion": s.APIVersion, "resource": s.Resource, "subresource": s.Subresource,
			"namespace": s.Namespace, "name": s.Name, "description": s.Description,
		}
	}
	if dry != nil {
		in.DryRunPerformed = dry.Performed
		in.DryRunWarnings = append(in.DryRunWarnings, dry.Warnings...)
	}
	return in
}

// conditionInput is the policy's input with the flat names beside it.
func (r *round) conditionInput(ctx context.Context, plan *v1alpha1.Plan) (json.RawMessage, error) {
	extra, err := r.aliases(ctx, plan)
	if err != nil {
		return nil, err
	}
	return withAliases(r.input, extra)
}

// withAliases adds names to the top of an input. Its own win.
func withAliases(in *execution.Input, extra map[string]any) (json.RawMessage, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("write the input of conditions: %w", err)
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(text, &own); err != nil {
		return nil, fmt.Errorf("write the input of conditions: %w", err)
	}
	all := make(map[string]any, len(own)+len(extra))
	maps.Copy(all, extra)
	for k, v := range own {
		all[k] = v
	}
	if text, err = json.Marshal(all); err != nil {
		return nil, fmt.Errorf("write the input of conditions: %w", err)
	}
	return text, nil
}

// objectOf is a JSON object, never nothing.
func objectOf(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}")
	}
	return raw
}

// texts is a map that is never null.
func texts(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

const requestTimeout = 10 * time.Second // of one request
