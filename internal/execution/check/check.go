// Package check says whether an execution may be: whether it is asked for
// rightly, whether its account may do it, whether the target is there and not
// protected, what the policy says, whether the preconditions hold, and whether
// trying it out succeeds. What comes of it is a plan.
//
// Nothing is changed by a check. What is read of the target, and the trial, is
// done as the action's own account, so that nobody borrows the rights of the
// controller. A check never waits for something to come true: it says when to
// look again.
//
// What says no is a Failure, and stays so. What could not be asked, because the
// API server does not answer or is too busy, is an error, and is tried again.
package check

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check/facts"
)

// DefaultEnvironmentLabel is what an empty Config.EnvironmentLabel means.
const DefaultEnvironmentLabel = "environment"

const (
	// dryRunTimeout bounds a trial.
	dryRunTimeout = 30 * time.Second
	// For how long conditions are waited for that name no time.
	preConditionTimeout  = 30 * time.Second
	postConditionTimeout = 2 * time.Minute
)

// MaxConditionTimeout is how long a condition can be waited for, whatever the
// execution says. The API server refuses more.
const MaxConditionTimeout = time.Hour

// The values of Config.DryRunExecutor.
const (
	DryRunInline = "inline"
	DryRunJob    = "job"
)

// Config says what is checked against.
type Config struct {
	// Namespace is that of the executions and the accounts of actions. It is
	// protected.
	Namespace string
	// ClusterName is how the cluster is called, in requests and for policies.
	ClusterName string

	// ProtectedNamespaces are those that no action touches, beside Namespace,
	// kube-system, kube-public and kube-node-lease.
	ProtectedNamespaces []string

	// EnvironmentLabel is the label of namespaces that names their environment.
	// Empty means DefaultEnvironmentLabel.
	EnvironmentLabel string

	// DryRunExecutor is where changes are tried out: DryRunInline, which empty
	// means, or DryRunJob.
	DryRunExecutor string
}

// identities reach the cluster as the accounts of actions. It is an
// *identity.Identities.
type identities interface {
	Client(ctx context.Context, a *action.Action) (action.Client, error)
	Exists(ctx context.Context, a *action.Action) (bool, error)
	Denied(ctx context.Context, a *action.Action, rights []action.Right) ([]action.Right, error)
	// Forget has all be asked anew that is believed of an account.
	Forget(a *action.Action)
	lookups
}

// lookups are what is asked of others than the accounts of actions.
type lookups interface {
	// MayRequest says whether a user, who is in groups, may ask for an action, by its
	// name.
	MayRequest(ctx context.Context, user string, groups []string, name string) (bool, error)
	// SecretType says whether there is a Secret, and of which type.
	SecretType(ctx context.Context, namespace, name string) (kind string, found bool, err error)
}

// traffic is what else is executed. It is a *gate.Gate.
type traffic interface {
	InFlight(uid types.UID) execution.InputInFlight
	// History is of a target as gate.TargetOf names it.
	History(does, target string, now time.Time) execution.InputPast
}

// Deps are what a Checker works with. All are needed.
type Deps struct {
	Identities identities
	Policy     execution.Policy
	Conditions execution.Conditions
	Traffic    traffic

	// Reader reads KubernetesExecutions, Namespaces, Nodes,
	// HorizontalPodAutoscalers and Pods. All but the first are read in every
	// check, and should be from a cache: see NewView. Owners of the target's
	// owners are read as PartialObjectMetadata; where that fails, the chain ends.
	Reader client.Reader
}

// A Checker checks executions. Any number of goroutines may use it.
type Checker struct {
	cfg       Config
	deps      Deps
	protected []string
	requests  requested
}

// New makes a Checker. It asks nothing of the cluster.
func New(cfg Config, deps Deps) (*Checker, error) {
	switch {
	case cfg.Namespace == "":
		return nil, errors.New("create checker: namespace is required")
	case cfg.DryRunExecutor != "" && cfg.DryRunExecutor != DryRunInline && cfg.DryRunExecutor != DryRunJob:
		return nil, errors.New("create checker: the dry-run executor must be inline or job")
	case deps.Identities == nil || deps.Policy == nil || deps.Conditions == nil || deps.Traffic == nil || deps.Reader == nil:
		return nil, errors.New("create checker: identities, policy, conditions, traffic and reader are required")
	}
	c := &Checker{cfg: cfg.withDefaults(), deps: deps}
	c.protected = append([]string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, cfg.Namespace}, cfg.ProtectedNamespaces...)
	return c, nil
}

func (c Config) withDefaults() Config {
	if c.EnvironmentLabel == "" {
		c.EnvironmentLabel = DefaultEnvironmentLabel
	}
	c.ProtectedNamespaces = slices.Clone(c.ProtectedNamespaces)
	return c
}

// An Outcome is what a check gave. There is a failure, or something is waited
// for, or a Job has to try the plan out, or the plan may be carried out.
type Outcome struct {
	// Results are those of all steps that were reached.
	Results v1alpha1.ValidationResults
	// Plan is there once the preconditions hold.
	Plan *v1alpha1.Plan
	// Decision is the policy's last one.
	Decision execution.Decision
	// Failed is why the execution may not be.
	Failed *execution.Failure
	// Wait is when to look again for what does not hold yet. Zero is nothing.
	Wait time.Duration
	// NeedDryRunJob asks for Plan to be tried out in a Job, whose result the
	// next check is given.
	NeedDryRunJob bool
	// TrialTook is how long it took to try the plan out. Zero is that it was not.
	TrialTook time.Duration
	// Target is the object that is acted on, as kind/namespace/name.
	Target string
	// Warnings are the policy's.
	Warnings []string
}

// A round is one check of one execution.
type round struct {
	*Checker
	ke  *v1alpha1.KubernetesExecution
	dry *action.Result // of a Job
	now time.Time
	out Outcome

	request  action.Request
	original *v1alpha1.KubernetesExecution // that is taken back
	client   action.Client                 // as the action's account
	seen     *readCache                    // what was read by it
	live     *unstructured.Unstructured    // the target; nil is none
	scaled   *unstructured.Unstructured    // what the target scales; nil is none
	space    *corev1.Namespace             // that of the target; nil is none
	shield   string                        // why the target is protected
	plan     *v1alpha1.Plan
	state    *facts.State
	input    *execution.Input
	place    execution.Place // where its conditions are evaluated, while they are
	replan   bool            // the checks have passed before

	stranger  bool   // the requester may not ask for the action
	permitted bool   // the account has the rights that the request needs
	noSecrets string // why nobody knows which Secrets are invalid; empty is that it is known, or not asked
}

// A step is one of a check. It says no in the round's outcome; an error is that
// it could not be made.
type step func(r *round, ctx context.Context) error

// Check makes all checks of an execution. dry is the result of a trial in a Job,
// if there was one. The outcome holds what is known even with an error.
func (c *Checker) Check(ctx context.Context, ke *v1alpha1.KubernetesExecution, dry *action.Result, now time.Time) (Outcome, error) {
	r := &round{Checker: c, ke: ke, dry: dry, now: now}
	return r.runSteps(ctx, []step{
		(*round).parameters, (*round).checkProtectedName, (*round).checkRights, (*round).checkTarget, (*round).checkPolicy,
		(*round).preConditions, (*round).dryRun, (*round).policyOfPlan,
	})
}

// Replan makes the checks once more that may have changed since, and the plan
// anew. Preconditions have to hold still, and are not waited for. Only another
// plan than the one that was tried out is tried out again.
func (c *Checker) Replan(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (Outcome, error) {
	r := &round{Checker: c, ke: ke, now: now, replan: true}
	return r.runSteps(ctx, []step{
		(*round).parameters, (*round).checkProtectedName, (*round).checkRights, (*round).checkTarget, (*round).checkPolicy,
		(*round).stillHold, (*round).carryOver, (*round).policyOfPlan,
	})
}

// runSteps goes through steps until one says no or wants something.
func (r *round) runSteps(ctx context.Context, steps []step) (Outcome, error) {
	for _, s := range steps {
		if err := s(r, ctx); err != nil {
			return r.out, err
		}
		if r.out.Failed != nil || r.out.Wait > 0 || r.out.NeedDryRunJob {
			break
		}
	}
	if err := r.recordPreConditions(ctx); err != nil {
		return r.out, err
	}
	if r.out.Wait == 0 && !r.out.NeedDryRunJob {
		r.out.Results.ValidationTime = apiTime(r.now)
	}
	return r.out, nil
}

// apiTime is a time as the API has it.
func apiTime(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.Truncate(time.Second)}
}
