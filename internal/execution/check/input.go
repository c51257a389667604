package check

import (
	"cmp"
	"encoding/json"
	"maps"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// DefaultEnvironment is the environment of a target without another: the strictest one.
const DefaultEnvironment = "production"

// A ClusterState is the cluster state read for an execution. Its methods convert it to the input
// of policies and conditions. They read nothing: equal state yields equal input.
//
// The input is bounded, uses integers for quantities, and has a value for every field, because
// policies distinguish null from empty. Of a Secret it contains only name and labels.
type ClusterState struct {
	Now       time.Time
	Execution *v1alpha1.KubernetesExecution
	Request   action.Request

	Target    *unstructured.Unstructured // nil if missing
	Unread    bool                       // the target could not be read
	Scaled    *unstructured.Unstructured // object that the target scales; nil if none
	Protected bool
	Owners    []metav1.OwnerReference // controllers, nearest first
	Scalers   []autoscalingv2.HorizontalPodAutoscaler
	Namespace *corev1.Namespace // nil is none
	// EnvironmentLabel is the label of namespaces that names their environment.
	EnvironmentLabel string

	Cluster string
	Nodes   []corev1.Node
	// Used holds the requests of Pods per node. Nil means not counted, and no capacity counts as
	// available then.
	Used map[string]ResourceAmounts

	// PermissionsOK reports whether the account of the action has all required rights.
	PermissionsOK bool
	// InvalidSecrets lists the Secrets that the target references and cannot use. Nil means
	// unknown.
	InvalidSecrets []string

	InFlight execution.InputInFlight
	Past     execution.InputPast
}

// Input returns the policy input, without a plan.
func (s *ClusterState) Input() *execution.Input {
	a, t := s.Request.Action, s.Request.Target
	in := &execution.Input{
		APIVersion:     execution.InputVersion,
		Now:            s.Now.Unix(),
		Request:        requestInput(s.Execution, s.Request),
		Action:         actionInput(a),
		Target:         targetInput(t, s.Target),
		Namespace:      s.targetNamespaceInput(t.Namespace),
		Cluster:        clusterInput(s.Cluster, s.Nodes, s.Used),
		InFlight:       withEmptyForNil(s.InFlight),
		History:        execution.InputHistory{SameActionTarget: s.Past},
		ServiceAccount: execution.InputServiceAccount{Name: a.ServiceAccount(), PermissionsOK: s.PermissionsOK},
	}
	in.Request.Environment = cmp.Or(in.Request.RequestedEnvironment, in.Namespace.Environment, DefaultEnvironment)
	in.Target.Protected = s.Protected
	in.Target.OwnerChain = ownerNames(s.Owners)
	in.Target.Scales = scalesInput(s.Scaled)
	in.Target.ManagedBy = execution.InputManagedBy{
		GitOps: gitOpsTool(s.Target), HPA: autoscalerName(t, s.Scalers), Operator: firstCustomResourceOwner(s.Owners),
	}
	return in
}

// requestInput returns the input about the request.
func requestInput(ke *v1alpha1.KubernetesExecution, request action.Request) execution.InputRequest {
	return execution.InputRequest{
		Name: ke.Name, Namespace: ke.Namespace, UID: string(ke.UID),
		Action:           request.Action.Name,
		Parameters:       jsonObjectOrEmpty(request.Parameters),
		RequestedBy:      execution.InputUser{Username: ke.Spec.RequestedBy, Groups: verifiedRequesterGroups(ke)},
		RequestedByAgent: ke.Spec.RequestedByAgent,
		Labels:           cloneOrEmptyMap(ke.Labels),
		Annotations:      annotationsWithinLimits(ke.Annotations),
		CorrelationID:    ke.Spec.CorrelationID,
		DryRunMode:       string(cmp.Or(ke.Spec.DryRunMode, v1alpha1.DryRunPolicy)),
		Rollback:         ke.Spec.RollbackOf != nil,

		RequestedEnvironment: ke.Spec.Environment,
	}
}

// verifiedRequesterGroups returns the groups of the requester. It is empty unless the admission policies
// verified the request: otherwise the user could have named any group.
func verifiedRequesterGroups(ke *v1alpha1.KubernetesExecution) []string {
	if ke.Status.VerifiedRequest == nil {
		return []string{}
	}
	return append([]string{}, ke.Spec.RequesterGroups...)
}

// scalesInput returns the policy input for the object that a target scales.
func scalesInput(scaled *unstructured.Unstructured) execution.InputScales {
	in := execution.InputScales{Labels: map[string]string{}}
	if scaled != nil {
		in.Kind, in.Name, in.Labels = scaled.GetKind(), scaled.GetName(), cloneOrEmptyMap(scaled.GetLabels())
	}
	return in
}

// actionInput returns the catalogue entry as policy input.
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

// targetNamespaceInput returns the namespace of the target and the environment named by its label.
func (s *ClusterState) targetNamespaceInput(name string) execution.InputNamespace {
	in := execution.InputNamespace{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	if ns := s.Namespace; ns != nil {
		in.Labels, in.Annotations = cloneOrEmptyMap(ns.Labels), annotationsWithinLimits(ns.Annotations)
		in.Environment = ns.Labels[s.EnvironmentLabel]
	}
	return in
}

func withEmptyForNil(in execution.InputInFlight) execution.InputInFlight {
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

// PlanInput returns the policy input for a plan.
func PlanInput(p *v1alpha1.Plan, dry *v1alpha1.DryRunResults) *execution.InputPlan {
	in := &execution.InputPlan{
		Hash: p.Hash, Changes: make([]map[string]any, len(p.Steps)),
		Affected: p.Impact.ResourcesAffected, ReplicasChanged: p.Impact.ReplicasChanged,
		Diff: p.Diff, Before: jsonObjectOrEmpty(nil),
		Reversible:     p.Rollback != nil && p.Rollback.Available,
		DryRunWarnings: []string{},
	}
	if p.Target.Kind == kindSecret {
		in.Diff = ""
	} else if p.Before != nil {
		in.Before = jsonObjectOrEmpty(p.Before.Raw)
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

// jsonObjectOrEmpty returns a JSON object, which is never empty.
func jsonObjectOrEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}")
	}
	return raw
}

// cloneOrEmptyMap returns m, or an empty map for nil.
func cloneOrEmptyMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}
