// Package quarantine takes nodes out of service and releases them.
//
// Step examines a node, its status and the desired actions, and returns what to write. It
// has no clients. All of its state is on the Node and in the status, so a step can be
// retried after a crash between any two writes, and it repeats nothing.
//
// An annotation of the Node records the changes of the pipeline. It is written in the
// same request as the cordon and the taints, and it is authoritative. If it is lost, the
// status and the field manager of spec.unschedulable show the changes.
//
// Changes of a person are never reverted. Their cordon is not removed, a node that they
// have uncordoned is not cordoned again for the same faults, and a taint that they have
// removed is not restored. No change of the pipeline stays on a node: not after recovery,
// not on a node that was opted out, and not after a person has ended the quarantine.
//
// A step that relies on something missing from a Node writes the Node, so that the
// resource version proves that the Node was current. A step that only updates the status
// from the Node writes only the status.
package quarantine

import (
	"cmp"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// Config configures the quarantine. A zero duration means its default.
type Config struct {
	HealthyFor   time.Duration `key:"healthy_for" env:"NODE_FAULT_HEALTHY_FOR" flag:"healthy-for" default:"5m" validate:"gt=0" doc:"How long a node must be without faults before it is released."`
	OverrideTTL  time.Duration `key:"override_ttl" env:"NODE_FAULT_OVERRIDE_TTL" flag:"override-ttl" default:"24h" validate:"gt=0" doc:"How long a node that a person has uncordoned is left alone, unless a new fault is reported."`
	ControlPlane bool          `key:"control_plane" env:"NODE_FAULT_CONTROL_PLANE" flag:"control-plane-nodes" default:"false" doc:"Also take control plane nodes out of service."`

	// DryRun records actions without writing to nodes.
	DryRun bool
}

// Defaults for the zero fields of Config.
const (
	DefaultHealthyFor  = 5 * time.Minute
	DefaultOverrideTTL = 24 * time.Hour
)

// A Budget limits how many nodes may be out of service.
type Budget interface {
	// Reserve reserves a place for a node, or returns a sentence that explains the
	// denial. The place is held until the node is observed out of service or release is
	// called.
	Reserve(node *corev1.Node, now time.Time) (release func(), denial string)
	// LimitOf returns how many nodes of the pool of a node may be out of service. It returns nil
	// without a limit, and for a node that does not count.
	LimitOf(node *corev1.Node) *v1alpha1.PoolBudget
}

// A Quarantine decides about nodes. It has no state.
type Quarantine struct {
	cfg    Config
	budget Budget
}

// New creates a Quarantine. A nil budget means no limit.
func New(cfg Config, budget Budget) *Quarantine {
	cfg.HealthyFor = cmp.Or(cfg.HealthyFor, DefaultHealthyFor)
	cfg.OverrideTTL = cmp.Or(cfg.OverrideTTL, DefaultOverrideTTL)
	if budget == nil {
		budget = unlimitedBudget{}
	}
	return &Quarantine{cfg: cfg, budget: budget}
}

type unlimitedBudget struct{}

func (unlimitedBudget) Reserve(*corev1.Node, time.Time) (release func(), denial string) {
	return func() {}, ""
}

func (unlimitedBudget) LimitOf(*corev1.Node) *v1alpha1.PoolBudget { return nil }

// LimitOf returns LimitOf of the budget.
func (q *Quarantine) LimitOf(node *corev1.Node) *v1alpha1.PoolBudget { return q.budget.LimitOf(node) }

// A StepInput is the input of a step.
type StepInput struct {
	Now time.Time
	// Node is the current node with its managed fields, or nil if it is gone. It is not
	// changed.
	Node *corev1.Node
	// Status is the stored status. Only Step.Settle changes it.
	Status  *v1alpha1.NodeFaultStatus
	Verdict nodefault.Verdict
	// Faults lists all faults of the node, regardless of the rules.
	Faults []v1alpha1.Fault
	// Busy means that a remedy is in progress or not verified yet, so that the node must
	// not be released.
	Busy bool
}

// A Step is the next step of a node.
type Step struct {
	// Node is the node to write, with its resource version as precondition. Nil means
	// nothing to write.
	Node *corev1.Node
	// Settle updates the status. It must be called after Node was written, or at once if
	// Node is nil, and never if the write failed. It is never nil.
	Settle func(status *v1alpha1.NodeFaultStatus)
	// Undo returns the reservation. It must be called if the write was rejected. It is
	// never nil.
	Undo func()
	// After is the requeue delay if nothing changes, as in reconcile.Result: 0 means
	// none. AtOnce means an immediate requeue.
	After time.Duration
	// Act means that the node is in quarantine and this is recorded, so it may be drained
	// and repaired.
	Act bool
	// Message explains what the node waits for, and why.
	Message string
	Why     Situation
}

// AtOnce is the After of a step that must be followed by another.
const AtOnce = time.Nanosecond

// A Situation is the situation of a node. Its values are a closed set.
type Situation string

// The situations.
const (
	// Observing means that no action is required, or not yet.
	Observing Situation = "Observing"
	// Denied means that the budget denies the quarantine.
	Denied Situation = "Denied"
	// DryRun means that actions are only recorded.
	DryRun Situation = "DryRun"
	// Ours means that the node is in quarantine, and that its cordon, if any, belongs to
	// the pipeline.
	Ours Situation = "Ours"
	// Foreign means that the node is in quarantine, and that its cordon belongs to
	// others. It is never removed.
	Foreign Situation = "Foreign"
	// Recovering means that no relevant fault is left, and that the node must stay
	// healthy for a while.
	Recovering Situation = "Recovering"
	// Held means that the node is healthy, but a person holds it out of service.
	Held Situation = "Held"
	// Overridden means that a person has undone the quarantine.
	Overridden Situation = "Overridden"
	// Released means that the node is healthy, and no change of the pipeline is left.
	Released Situation = "Released"
	// OptedOut means that the node must not be changed.
	OptedOut Situation = "OptedOut"
	// Gone means that the node was deleted or replaced.
	Gone Situation = "Gone"
)

// Reasons of records and steps.
const (
	reasonHealthy    = "all health checks passed"
	reasonOptedOut   = "the node was opted out"
	reasonExcluded   = "control plane nodes are excluded"
	reasonUncordoned = "the node was uncordoned by someone else"
	reasonUntainted  = "the taints were removed by someone else"
	reasonLeftOver   = "the quarantine had already ended"
)

var errNoStatus = errors.New("status missing")

// Step returns the next step. It can be called again at any time, regardless of whether
// the last step was done completely, in part, or not at all.
func (q *Quarantine) Step(in StepInput) (Step, error) {
	switch {
	case in.Status == nil:
		return Step{}, errNoStatus
	case in.Node == nil:
		return stepForDeletedNode(), nil
	case in.Status.NodeUID != "" && in.Status.NodeUID != in.Node.UID:
		return stepForReplacedNode(in), nil
	}
	in.Now = in.Now.Truncate(time.Microsecond) // the precision of stored times
	n := newNodeState(in)
	// The first plan that applies decides. A plan that does not apply may correct the mark, and the
	// next ones rely on that.
	plans := []func(*nodeState) (step Step, applies bool){
		q.planCleanupIfSessionEnded,
		q.planStatusSyncIfBehindNode,
		q.restoreMarkInStateOrPlanWrite,
		q.planReleaseIfOptedOutOrControlPlane,
		q.planOverrideOrUpdateMark,
		q.planWaitOrEndOverride,
		q.planRecordOnlyIfDryRun,
		q.planRecoveryIfNoActionRequired,
	}
	for _, plan := range plans {
		if step, applies := plan(n); applies {
			return n.addCommonStepFields(step, q.cfg.DryRun), nil
		}
	}
	return n.addCommonStepFields(q.planQuarantineWithinBudget(n), q.cfg.DryRun), nil
}

// stepForDeletedNode ends the state of a deleted node. The session stays, for records that still
// follow.
func stepForDeletedNode() Step {
	return Step{
		Why:     Gone,
		Message: "the node was deleted",
		Undo:    func() {},
		Settle: func(status *v1alpha1.NodeFaultStatus) {
			status.Owned, status.DesiredActions = nil, nil
			status.HealthySince, status.Overridden = nil, nil
		},
	}
}

// stepForReplacedNode handles another node of the same name. It ends the session of the old
// node. When no action of it is in progress, the new node starts without state.
func stepForReplacedNode(in StepInput) Step {
	step := stepForDeletedNode()
	step.Message = "the node was replaced by another node with the same name"
	if in.Busy {
		return step
	}
	step.After = AtOnce
	step.Settle = func(status *v1alpha1.NodeFaultStatus) {
		endSession(status)
		status.NodeUID, status.Session, status.Drain, status.Remediation = in.Node.UID, "", nil, nil
	}
	return step
}
