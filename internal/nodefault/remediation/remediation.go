// Package remediation has nodes repaired that are cordoned and drained: it goes
// through the remedies that the rules wish for, one attempt after the other,
// until the faults are gone or a person is needed.
//
// An attempt is a RebootNode or TerminateNode whose name follows from the node,
// the session and the number of the attempt. It is written down before it is
// asked for and can only be asked for once, so one that dies in between repeats
// nothing. Whoever deletes such an object has ended the remediation: no other
// takes its place.
package remediation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// Config says how often and how long remedies are tried.
type Config struct {
	// RebootAttempts and TerminateAttempts are how often each is tried in a
	// session before the next remedy, five times at most. Zero is 2 and 1.
	RebootAttempts, TerminateAttempts int
	// RebootTimeout and TerminateTimeout are how long an attempt may take. They
	// have to be longer than the deadlines of the janitor, which says more
	// about what went wrong. Zero is 45 min.
	RebootTimeout, TerminateTimeout time.Duration
	// VerifyTimeout is how long the faults may stay after a reboot that
	// succeeded. Zero is 10 min.
	VerifyTimeout time.Duration
	// Poll is how often what is under way is looked at although nothing was told
	// of it. Zero is 15 s.
	Poll time.Duration
	// AfterFailedDrain has nodes repaired whose drain failed, with the pods that
	// are left on them. Without it a person has to look.
	AfterFailedDrain bool
	// RebootSilent has nodes rebooted, and not terminated, whose drain failed
	// because their kubelet is silent: all pods that are left were told to go, and
	// only a reboot ends them. Without it a person has to look.
	RebootUnreachable bool
	// PodsStay is that a drain leaves pods on a node on purpose, so that a node is
	// repaired with them. Else the janitor sees to it that none has come since.
	PodsStay bool

	// Verifier tries a node out after a reboot, once its faults are gone and
	// before it may be released. Nil is nobody.
	Verifier Verifier

	Log *slog.Logger // nil is silence
}

func (c Config) withDefaults() Config {
	const reboots, terminations = 2, 1
	const timeout, verify, poll = 45 * time.Minute, 10 * time.Minute, 15 * time.Second
	c.RebootAttempts = min(cmp.Or(c.RebootAttempts, reboots), mostAttempts)
	c.TerminateAttempts = min(cmp.Or(c.TerminateAttempts, terminations), mostAttempts)
	c.RebootTimeout = cmp.Or(c.RebootTimeout, timeout)
	c.TerminateTimeout = cmp.Or(c.TerminateTimeout, timeout)
	c.VerifyTimeout = cmp.Or(c.VerifyTimeout, verify)
	c.Poll = cmp.Or(c.Poll, poll)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// mostAttempts is how often a remedy is tried at most: the history of a session,
// which is where attempts are counted, has room for no more.
const mostAttempts = 5

// Labels of the objects that are made here.
const (
	LabelSession = "fleetloop.io/node-fault-session"
	LabelAttempt = "fleetloop.io/node-fault-attempt"
)

// A Remediator has nodes repaired.
type Remediator struct {
	cfg    Config
	client client.Client
}

// New makes a remediator. c may read from a cache.
func New(cfg Config, c client.Client) *Remediator {
	return &Remediator{cfg.withDefaults(), c}
}

// Kinds are those that c has to know.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind(v1alpha1.KindReboot), v1alpha1.GroupVersion.WithKind(v1alpha1.KindTerminate)}
}

// A look is one look at one node.
type look struct {
	node *corev1.Node // nil is gone
	st   *faults.NodeFaultStatus
	now  time.Time
}

// Step moves the remediation of a node on, and says when to look again. Zero is
// at once if it has changed st, and else when something happens. A node that is
// gone is nil: what was under way is then followed to its end.
//
// It is to be called while Busy, and else while the node is quarantined and its
// drain is over.
func (r *Remediator) Step(ctx context.Context, node *corev1.Node, st *faults.NodeFaultStatus, now time.Time) (after time.Duration, err error) {
	if node != nil && st.NodeUID != "" && node.UID != st.NodeUID {
		node = nil // another one of the same name
	}
	if err := r.Observe(ctx, node, st); err != nil {
		return 0, err
	}
	l := look{node, st, now}
	m := st.Remediation
	if m == nil {
		return r.firstAttempt(l)
	}
	switch m.State {
	case faults.RemedyRunning:
		if m.ObjectKind == kindVerification {
			return r.awaitVerification(ctx, l)
		}
		return r.followAttempt(ctx, l)
	case faults.RemedySucceeded:
		return r.awaitFaultsGone(ctx, l)
	case faults.RemedyFailed:
		return r.nextAttempt(ctx, l)
	case faults.RemedyExhausted:
		return r.reconsider(l)
	}
	return 0, fmt.Errorf("NodeFault %q: unknown remediation state %q", nameOf(node), m.State)
}

// Busy says whether a remedy is under way or not proven yet: such a node is not
// released.
func (r *Remediator) Busy(st *faults.NodeFaultStatus) bool {
	m := st.Remediation
	if m == nil {
		return false
	}
	failed := m.State == faults.RemedyExhausted && m.ObjectKind == kindVerification // a person has to look first
	return m.State == faults.RemedyRunning || failed || r.unverified(m)
}

// unverified says whether a reboot has to be tried out before it counts.
func (r *Remediator) unverified(m *faults.RemediationStatus) bool {
	return r.cfg.Verifier != nil && m.State == faults.RemedySucceeded && m.Action == faults.RemedyReboot && m.ObjectKind != kindVerification
}

// Cancel ends what is under way because nobody wants it any more, such as when
// a person has taken the node back. What the provider has not accepted yet is
// taken back; what it has is left to its end, and not waited for.
func (r *Remediator) Cancel(ctx context.Context, st *faults.NodeFaultStatus, reason string, now time.Time) error {
	m := st.Remediation
	if m == nil || m.State != faults.RemedyRunning {
		return nil
	}
	if m.ObjectKind != kindVerification {
		a, err := r.getAction(ctx, m)
		if err == nil && (a == nil || !a.wasSent()) { // the cache may have still to hear of it
			err = r.deleteAction(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	endAttempt(m, faults.RemedyFailed, "cancelled: "+reason, now)
	return nil
}

// isWanted says whether a remedy is to be tried now: the rules wish for one, there
// are faults, and there is a node.
func (l look) isWanted() bool {
	w := l.st.DesiredActions
	return w != nil && !w.DryRun && len(w.Remedies) > 0 && l.st.HealthySince == nil && l.node != nil
}

// checkDrained says whether a remedy that the rules wish for may begin, and if it may
// not, whether it never will.
func (r *Remediator) checkDrained(l look, remedy faults.Remedy) (yes, never bool) {
	d := l.st.Drain
	switch {
	case !l.st.DesiredActions.Drain:
		return true, false
	case d == nil:
		return false, false
	case d.State == faults.DrainCompleted:
		return true, false
	case d.State == faults.DrainFailed:
		stuck := d.Remaining > 0 && d.Remaining == d.Terminating && isSilent(l.node) // all were told to go, and nobody is there to end them
		may := r.cfg.AfterFailedDrain || r.cfg.RebootUnreachable && stuck && remedy != faults.RemedyTerminate
		return may, !may
	}
	return false, false
}

// isSilent says whether a node's kubelet has gone without a word.
func isSilent(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
}

// firstAttempt begins the first remedy of the session.
func (r *Remediator) firstAttempt(l look) (time.Duration, error) {
	if !l.isWanted() {
		return 0, nil
	}
	return r.beginAttempt(l, 0), nil
}

// beginAttempt writes down that the remedy of a step will be tried, or that there is
// none.
func (r *Remediator) beginAttempt(l look, step int) time.Duration {
	remedies := l.st.DesiredActions.Remedies
	remedy := remedies[min(step, len(remedies)-1)]
	ready, never := r.checkDrained(l, remedy)
	attempt := int32(1)
	if m := l.st.Remediation; m != nil {
		attempt = m.Attempt + 1
	}
	switch {
	case never:
		r.endExhausted(l, remedy, step, whyNever(l, remedy))
		return 0
	case !ready:
		return r.cfg.Poll
	case step >= len(remedies):
		r.endExhausted(l, remedy, len(remedies)-1, "all remedies were tried, but the faults persist: "+messageOf(l.st.Remediation))
		return 0
	case remedy == faults.RemedySupport:
		why := "the rules request manual repair (remedy support)"
		if l.st.Remediation != nil {
			why = "the remedies did not help: " + messageOf(l.st.Remediation)
		}
		r.endExhausted(l, faults.RemedySupport, step, why)
		return 0
	}
	m := &faults.RemediationStatus{
		State: faults.RemedyRunning, Action: remedy, RemedyIndex: int32(step), Attempt: attempt, //nolint:gosec // there are few remedies
		StartedAt: metav1.NewTime(l.now), Deadline: metav1.NewTime(l.now.Add(r.timeoutOf(remedy))),
		ObjectKind: kindFor(remedy), ObjectName: objectName(l.node.Name, l.st.Session, attempt), PreviousBootID: l.node.Status.NodeInfo.BootID,
	}
	l.st.Remediation = m
	return 0
}

// whyNever says why a remedy may not begin after a drain that failed, and what a
// person can do.
func whyNever(l look, remedy faults.Remedy) string {
	const left = "the drain failed, and pods are left on the node: "
	if m := l.st.Remediation; m != nil && m.ObjectKind != "" {
		return fmt.Sprintf(left+"%s is not tried, because remediation.after_failed_drain is false. Repair or replace the node. Last attempt: %s", remedy, m.Message)
	}
	settings := "remediation.after_failed_drain"
	if remedy != faults.RemedyTerminate {
		settings += " or, for nodes with an unreachable kubelet, remediation.reboot_unreachable"
	}
	return left + "delete them (kubectl get pods -A --field-selector spec.nodeName=" + l.node.Name + "), or set " + settings
}

func (r *Remediator) timeoutOf(a faults.Remedy) time.Duration {
	if a == faults.RemedyTerminate {
		return r.cfg.TerminateTimeout
	}
	return r.cfg.RebootTimeout
}

func (r *Remediator) maxAttempts(a faults.Remedy) int {
	if a == faults.RemedyTerminate {
		return r.cfg.TerminateAttempts
	}
	return r.cfg.RebootAttempts
}

// endAttempt ends an attempt.
func endAttempt(m *faults.RemediationStatus, state faults.RemedyState, message string, now time.Time) {
	const most = 512
	m.State, m.Message = state, nodefault.Cut(message, most)
	m.FinishedAt = &metav1.Time{Time: now}
}

func messageOf(m *faults.RemediationStatus) string {
	if m == nil {
		return ""
	}
	return m.Message
}

func nameOf(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Name
}
