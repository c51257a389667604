// Package quarantine takes nodes out of service and gives them back.
//
// Step looks at a node, at what is remembered of it and at what is wished for
// it, and says what to write. It has no clients: all that it knows stands on
// the Node and in the status, so that a step can be tried again after a crash
// between any two writes, and repeats nothing.
//
// What is ours stands in an annotation of the Node, which is written in the
// same request as the cordon and the taints that it speaks of. That annotation
// counts. If somebody has destroyed it, the status and the field manager of
// spec.unschedulable show what is ours nevertheless.
//
// A person is never undone. Their cordon is not taken off; a node that they
// have uncordoned is not cordoned again for the same faults; a taint that they
// have taken off is not put back. And nothing of ours stays behind: not after
// recovery, not on a node that was opted out, not when a person has ended the
// quarantine.
//
// A step that infers something from what a Node lacks writes the Node, so that
// the resource version shows whether the look was at the present; a step that
// only catches the status up with the Node writes nothing but the status.
package quarantine

import (
	"cmp"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
)

// Config is how nodes are taken and given back. A duration that is zero is
// its default.
type Config struct {
	HealthyFor   time.Duration `key:"healthy_for" env:"NODE_FAULT_HEALTHY_FOR" flag:"healthy-for" default:"5m" validate:"gt=0" doc:"How long a node must be without faults before it is released."`
	OverrideTTL  time.Duration `key:"override_ttl" env:"NODE_FAULT_OVERRIDE_TTL" flag:"override-ttl" default:"24h" validate:"gt=0" doc:"How long a node that a person has uncordoned is left alone, unless a new fault is reported."`
	ControlPlane bool          `key:"control_plane" env:"NODE_FAULT_CONTROL_PLANE" flag:"control-plane-nodes" default:"false" doc:"Also take control plane nodes out of service."`

	// DryRun is that nothing is written, and only told.
	DryRun bool
}

// The defaults of Config.
const (
	DefaultHealthyFor  = 5 * time.Minute
	DefaultOverrideTTL = 24 * time.Hour
)

// A Budget bounds how many nodes may be out of service.
type Budget interface {
	// Reserve takes a place for a node, or says in a sentence why there is none.
	// The place is held until the node is seen to be out of service, or release
	// gives it back.
	Reserve(node *corev1.Node, now time.Time) (release func(), denial string)
}

// A Quarantine decides. It remembers nothing.
type Quarantine struct {
	cfg    Config
	budget Budget
}

// New makes a Quarantine. Without a budget any number of nodes is taken.
func New(cfg Config, budget Budget) *Quarantine {
	cfg.HealthyFor = cmp.Or(cfg.HealthyFor, DefaultHealthyFor)
	cfg.OverrideTTL = cmp.Or(cfg.OverrideTTL, DefaultOverrideTTL)
	if budget == nil {
		budget = boundless{}
	}
	return &Quarantine{cfg: cfg, budget: budget}
}

type boundless struct{}

func (boundless) Reserve(*corev1.Node, time.Time) (release func(), denial string) {
	return func() {}, ""
}

// A Look is all that a step goes by.
type Look struct {
	Now time.Time
	// Node is the node as it is, with its managed fields, or nil if it is no
	// more. It is not changed.
	Node *corev1.Node
	// Status is what is remembered. It is not changed but by Step.Settle.
	Status  *v1alpha1.NodeFaultStatus
	Verdict rules.Verdict
	// Faults are all that the node has, whatever the rules say of them.
	Faults []v1alpha1.Fault
	// Busy is that a remedy is under way or not proven yet, so that the node is
	// not given back.
	Busy bool
}

// A Step is what to do next.
type Step struct {
	// Node is what to write, on condition of its resource version. Nil is
	// nothing.
	Node *corev1.Node
	// Settle brings the status in line. It is to be called when Node was
	// written, or at once if there is none, and never if the write failed. It is
	// never nil.
	Settle func(st *v1alpha1.NodeFaultStatus)
	// Undo gives back what was reserved. It is to be called if the write failed.
	// It is never nil.
	Undo func()
	// After is when to look again though nothing has changed, as a
	// reconcile.Result has it: 0 is not by time. At once is AtOnce.
	After time.Duration
	// Act is that the node is in quarantine, and that this is written down: it
	// may be drained and remedied.
	Act bool
	// Message says to people what is waited for, and why.
	Message string
	Why     Situation
}

// AtOnce is the After of a step that has to be followed by another.
const AtOnce = time.Nanosecond

// A Situation is where a node stands. There are no others.
type Situation string

// The situations.
const (
	// Observing is that nothing is wished, or not yet.
	Observing Situation = "Observing"
	// Denied is that the budget has no place for the node.
	Denied Situation = "Denied"
	// DryRun is that what is wished is only told.
	DryRun Situation = "DryRun"
	// Ours is that the node is in quarantine, and that the cordon, if there is
	// one, is ours.
	Ours Situation = "Ours"
	// Foreign is that the node is in quarantine, and that the cordon is not
	// ours: it is never taken off.
	Foreign Situation = "Foreign"
	// Recovering is that no fault is left that matters, which has to last.
	Recovering Situation = "Recovering"
	// Held is that the node would be given back, and a person wants it kept.
	Held Situation = "Held"
	// Overridden is that a person has undone what we did.
	Overridden Situation = "Overridden"
	// Released is that nothing is wrong and nothing of ours is left.
	Released Situation = "Released"
	// OptedOut is that the node is not to be touched.
	OptedOut Situation = "OptedOut"
	// Gone is that the node is no more, or that another has its name.
	Gone Situation = "Gone"
)

// Reasons of records.
const (
	reasonHealthy    = "all health checks passed"
	reasonOptedOut   = "the node was opted out"
	reasonExcluded   = "control plane nodes are excluded"
	reasonUncordoned = "the node was uncordoned by someone else"
	reasonUntainted  = "the taints were removed by someone else"
	reasonLeftOver   = "the quarantine had already ended"
)

var errNoStatus = errors.New("status missing")

// Step says what to do next. It may be asked again at any time, with what it
// said before done, done in part, or not done.
func (q *Quarantine) Step(l Look) (Step, error) {
	switch {
	case l.Status == nil:
		return Step{}, errNoStatus
	case l.Node == nil:
		return goneStep(), nil
	case l.Status.NodeUID != "" && l.Status.NodeUID != l.Node.UID:
		return replacedStep(l), nil
	}
	l.Now = l.Now.Truncate(time.Microsecond) // as it is written, and read again
	v := newView(l)
	for _, decide := range []func(*view) (Step, bool){
		q.leftOver, q.caughtUp, q.reclaimed, q.stepIfExcluded, q.stepIfUndone, q.overridden, q.pretended, q.recovered,
	} {
		if step, ok := decide(v); ok {
			return v.finishStep(step, q.cfg.DryRun), nil
		}
	}
	return v.finishStep(q.takeStep(v), q.cfg.DryRun), nil
}

// goneStep ends what concerned a node that is no more. The session stays, for what
// is still to be told of it.
func goneStep() Step {
	return Step{Why: Gone, Undo: func() {}, Message: "the node was deleted", Settle: func(st *v1alpha1.NodeFaultStatus) {
		st.Owned, st.DesiredActions, st.HealthySince, st.Overridden = nil, nil, nil, nil
	}}
}

// replacedStep is for another node of the same name: the session of the old one
// ends, and when nothing of it is under way any more, the new one begins with
// nothing.
func replacedStep(l Look) Step {
	step := goneStep()
	step.Message = "the node was replaced by another node with the same name"
	if l.Busy {
		return step
	}
	step.After = AtOnce
	step.Settle = func(st *v1alpha1.NodeFaultStatus) {
		endSession(st)
		st.NodeUID, st.Session, st.Drain, st.Remediation = l.Node.UID, "", nil, nil
	}
	return step
}
