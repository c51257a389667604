// Package check decides whether an execution may run. It checks the request, the rights of its
// account, the target and its protection, the policy, the preconditions and a dry run. The outcome
// is a plan.
//
// A check changes nothing. It reads the target and makes the dry run as the account of the action,
// so that a request never borrows the rights of the controller. A check never blocks on a
// condition: it returns the time of the next check.
//
// A ClusterState is what a check reads of the cluster. Its methods convert it to the input of
// policies and conditions.
//
// A refusal is a Failure and is final. If the API server does not answer or is too busy, the check
// returns an error and is retried.
package check

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// DefaultEnvironmentLabel is used if Config.EnvironmentLabel is empty.
const DefaultEnvironmentLabel = "environment"

const (
	// dryRunTimeout limits a dry run.
	dryRunTimeout = 30 * time.Second
	// Timeouts of conditions that do not set one.
	preConditionTimeout  = 30 * time.Second
	postConditionTimeout = 2 * time.Minute
)

// MaxConditionTimeout limits the time to wait for a condition, whatever the execution requests. The
// API server rejects longer timeouts.
const MaxConditionTimeout = time.Hour

// The values of Config.DryRunExecutor.
const (
	DryRunInline = "inline"
	DryRunJob    = "job"
)

// Config configures a Checker.
type Config struct {
	// Namespace holds the executions and the service accounts of actions. It is protected.
	Namespace string
	// ClusterName is the name of the cluster in requests and for policies.
	ClusterName string

	// ProtectedNamespaces must not be changed by actions, in addition to Namespace, kube-system,
	// kube-public and kube-node-lease.
	ProtectedNamespaces []string

	// EnvironmentLabel is the namespace label that names the environment. Empty means
	// DefaultEnvironmentLabel.
	EnvironmentLabel string

	// DryRunExecutor selects where dry runs execute: DryRunInline (the default if empty) or
	// DryRunJob.
	DryRunExecutor string
}

// identities connects to the cluster as the accounts of actions. *roles.Identities implements
// it.
type identities interface {
	Client(ctx context.Context, a *action.Action) (action.Client, error)
	AccountExists(ctx context.Context, a *action.Action) (bool, error)
	ListDenied(ctx context.Context, a *action.Action, rights []action.Right) ([]action.Right, error)
	// ForgetAnswers drops everything cached about an account.
	ForgetAnswers(a *action.Action)
	lookups
}

// lookups answers questions that do not use the accounts of actions.
type lookups interface {
	// MayRequest reports whether a user in the given groups may request the action name.
	MayRequest(ctx context.Context, user string, groups []string, actionName string) (bool, error)
	// SecretType reports whether a Secret exists, and its type.
	SecretType(ctx context.Context, namespace, name string) (secretType string, found bool, err error)
}

// traffic describes the other executions. *gate.Gate implements it.
type traffic interface {
	InFlight(exceptUID types.UID) execution.InputInFlight
	// History returns the past executions on a target, named as by gate.TargetKey.
	History(actionName, target string, now time.Time) execution.InputPast
}

// Deps are the dependencies of a Checker. All are required.
type Deps struct {
	Identities identities
	Policy     execution.Policy
	Conditions execution.Conditions
	Traffic    traffic

	// Reader reads KubernetesExecutions, Namespaces, Nodes,
	// HorizontalPodAutoscalers and Pods. All but the first are read in every
	// check, and should be from a cache: see NewCachedReader. Owners of the target's
	// owners are read as PartialObjectMetadata; where that fails, the chain ends.
	Reader client.Reader
}

// A Checker checks executions. It is safe for concurrent use.
type Checker struct {
	cfg       Config
	deps      Deps
	protected []string // namespaces that actions must not change
	requests  podRequestCache
}

// New creates a Checker without contacting the cluster.
func New(cfg Config, deps Deps) (*Checker, error) {
	switch {
	case cfg.Namespace == "":
		return nil, errors.New("create checker: namespace is required")
	case !slices.Contains([]string{"", DryRunInline, DryRunJob}, cfg.DryRunExecutor):
		return nil, errors.New("create checker: the dry-run executor must be inline or job")
	case deps.Identities == nil || deps.Policy == nil || deps.Conditions == nil || deps.Traffic == nil || deps.Reader == nil:
		return nil, errors.New("create checker: identities, policy, conditions, traffic and reader are required")
	}
	protected := []string{
		metav1.NamespaceSystem,
		metav1.NamespacePublic,
		corev1.NamespaceNodeLease,
		cfg.Namespace,
	}
	cfg.EnvironmentLabel = cmp.Or(cfg.EnvironmentLabel, DefaultEnvironmentLabel)
	return &Checker{cfg: cfg, deps: deps, protected: append(protected, cfg.ProtectedNamespaces...)}, nil
}

// An Outcome is the result of a check: a failure, a wait, a request for a dry-run Job, or a plan
// that may be executed.
type Outcome struct {
	// Results holds the results of all steps that were reached.
	Results v1alpha1.ValidationResults
	// Plan is set once the preconditions hold.
	Plan *v1alpha1.Plan
	// Decision is the latest decision of the policy.
	Decision execution.Decision
	// Failed is the reason why the execution is refused.
	Failed *execution.Failure
	// Wait is the delay until the checks are repeated. Zero means no wait.
	Wait time.Duration
	// WaitsForTarget means that the wait is for the controller of the target, not for preconditions.
	WaitsForTarget bool
	// NeedDryRunJob requests a dry run of Plan in a Job. Its result is passed to the next check.
	NeedDryRunJob bool
	// TrialTook is the duration of the dry run. Zero means that no dry run was made.
	TrialTook time.Duration
	// Target is the object of the action, as kind/namespace/name.
	Target string
	// Warnings are those of the policy.
	Warnings []string
}

// A round is one check of one execution. Each step uses what the steps before it have found.
type round struct {
	// Arguments of the check.
	checker *Checker
	ke      *v1alpha1.KubernetesExecution
	dry     *action.Result // result of a Job
	now     time.Time
	replan  bool // the checks have passed before

	out Outcome

	// Findings of the steps, in the order in which they are set.
	request         action.Request
	requesterDenied bool // the requester may not ask for the action
	account         account
	original        *v1alpha1.KubernetesExecution // execution to roll back
	client          action.Client                 // uses the account of the action
	seen            *readCache                    // cache of the reads of client
	target          targetView
	plan            *v1alpha1.Plan
	state           *ClusterState
	input           *execution.Input
	place           execution.Place // evaluation slot, while conditions are evaluated
}

// A step is one part of a check. It records a refusal in the outcome of the round, and returns an
// error if it could not be made.
type step func(r *round, ctx context.Context) error

// Check makes all checks of an execution. dry is the result of a dry run in a Job, or nil. The
// outcome holds all known results even with an error.
func (c *Checker) Check(ctx context.Context, ke *v1alpha1.KubernetesExecution, dry *action.Result, now time.Time) (Outcome, error) {
	r := &round{checker: c, ke: ke, dry: dry, now: now}
	return runStepsUntilDecided(ctx, r, []step{
		(*round).parseAndCheckRequest,
		(*round).refuseProtectedName,
		(*round).checkRequesterAndAccountRights,
		(*round).planAndCheckTarget,
		(*round).checkPolicy,
		(*round).compilePostAndCheckPreConditions,
		(*round).recordImpactAndDryRunIfRequired,
		(*round).checkPlanPolicyWithDryRun,
	})
}

// Replan repeats the checks that may have changed since, and creates a new plan. Preconditions must
// still hold and are not waited for. Only a plan that differs from the dry-run plan is dry-run
// again.
func (c *Checker) Replan(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (Outcome, error) {
	r := &round{checker: c, ke: ke, now: now, replan: true}
	return runStepsUntilDecided(ctx, r, []step{
		(*round).parseAndCheckRequest,
		(*round).refuseProtectedName,
		(*round).checkRequesterAndAccountRights,
		(*round).planAndCheckTarget,
		(*round).checkPolicy,
		(*round).recheckPreConditions,
		(*round).reuseOrRepeatDryRun,
		(*round).checkPlanPolicyWithDryRun,
	})
}

// runStepsUntilDecided runs the steps until one refuses, waits or requests a dry run.
func runStepsUntilDecided(ctx context.Context, r *round, steps []step) (Outcome, error) {
	for _, run := range steps {
		if err := run(r, ctx); err != nil {
			return r.out, err
		}
		if r.out.Failed != nil || r.out.Wait > 0 || r.out.NeedDryRunJob {
			break
		}
	}
	if err := r.evaluatePreConditionsIfFailed(ctx); err != nil {
		return r.out, err
	}
	if r.out.Wait == 0 && !r.out.NeedDryRunJob {
		r.out.Results.ValidationTime = toAPITime(r.now)
	}
	return r.out, nil
}

// toAPITime converts a time to the API type.
func toAPITime(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.Truncate(time.Second)}
}
