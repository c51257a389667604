// Package remediation repairs cordoned and drained nodes. It tries the remedies that the
// rules require, one attempt after the other, until the faults are gone or a person is
// needed.
//
// An attempt is a RebootNode or TerminateNode whose name is derived from the node, the
// session and the number of the attempt. It is recorded before the object is created, and
// the object can be created only once, so nothing is repeated after a crash. A deleted
// object ends the remediation; it is not replaced.
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

// Config configures how often and how long remedies are tried.
type Config struct {
	// RebootAttempts and TerminateAttempts are how often each remedy is tried in a
	// session before the next one, at most five times. Zero means 2 and 1.
	RebootAttempts, TerminateAttempts int
	// RebootTimeout and TerminateTimeout are the timeouts of an attempt. They must exceed
	// the deadlines of the janitor, which reports failures in more detail. Zero means 45
	// min.
	RebootTimeout, TerminateTimeout time.Duration
	// VerifyTimeout is how long the faults may persist after a successful reboot. Zero
	// means 10 min.
	VerifyTimeout time.Duration
	// Poll is the interval of checks without an event. Zero means 15 s.
	Poll time.Duration
	// AfterFailedDrain repairs nodes whose drain failed, despite the pods that are left
	// on them. Without it, a person is needed.
	AfterFailedDrain bool
	// RebootUnreachable reboots nodes whose drain failed because the kubelet is
	// unreachable. All pods that are left are terminating, and only a reboot ends them.
	// It does not terminate such nodes. Without it, a person is needed.
	RebootUnreachable bool
	// PodsStay means that drains leave some pods on a node on purpose, so that it is
	// repaired despite them. Otherwise the janitor checks that no pods were added since
	// the drain.
	PodsStay bool

	// Verifier tests a node after a reboot, once its faults are gone and before its
	// release. Nil means no test.
	Verifier Verifier

	Log *slog.Logger // nil means no logs
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

// mostAttempts limits the attempts of a remedy. The history of a session, which is used
// to count them, has no room for more.
const mostAttempts = 5

// Labels of the created objects.
const (
	LabelSession = "fleetloop.io/node-fault-session"
	LabelAttempt = "fleetloop.io/node-fault-attempt"
)

// A Remediator repairs nodes.
type Remediator struct {
	cfg     Config
	actions actionStore
}

// New creates a remediator. c may read from a cache.
func New(cfg Config, c client.Client) *Remediator {
	return &Remediator{cfg.withDefaults(), actionStore{c}}
}

// Kinds returns the kinds that the client needs.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind(v1alpha1.KindReboot), v1alpha1.GroupVersion.WithKind(v1alpha1.KindTerminate)}
}

// A stepInput is the input of a step.
type stepInput struct {
	node *corev1.Node // nil if the node is gone
	st   *faults.NodeFaultStatus
	now  time.Time
}

// Step advances the remediation of a node, and returns the delay until the next step.
// Zero means at once if st has changed, and otherwise at the next event. A deleted node
// is nil; an action in progress is then followed to its end.
//
// It must be called while Busy, and otherwise while the node is quarantined and its drain
// is over.
func (r *Remediator) Step(ctx context.Context, node *corev1.Node, st *faults.NodeFaultStatus, now time.Time) (after time.Duration, err error) {
	if node != nil && st.NodeUID != "" && node.UID != st.NodeUID {
		node = nil // replaced by another node of the same name
	}
	if err := r.RecordJanitorActions(ctx, node, st); err != nil {
		return 0, err
	}
	in := stepInput{node, st, now}
	m := st.Remediation
	if m == nil {
		if in.requiresRemedyNow() {
			after = r.beginAttemptOrEndExhausted(in, 0)
		}
		return after, nil
	}
	switch m.State {
	case faults.RemedyRunning:
		if m.ObjectKind == kindVerification {
			return r.awaitVerification(ctx, in)
		}
		return r.advanceRunningAttempt(ctx, in)
	case faults.RemedySucceeded:
		return r.awaitFaultsGone(ctx, in)
	case faults.RemedyFailed:
		return r.beginNextAttempt(ctx, in)
	case faults.RemedyExhausted:
		return r.beginFirstRemedyIfNoneTried(in)
	}
	return 0, fmt.Errorf("NodeFault %q: unknown remediation state %q", nodeNameOrEmpty(node), m.State)
}

// BlocksRelease reports whether a remedy is in progress or not verified yet. Such a node must not
// be released.
func (r *Remediator) BlocksRelease(st *faults.NodeFaultStatus) bool {
	m := st.Remediation
	if m == nil {
		return false
	}
	failed := m.State == faults.RemedyExhausted && m.ObjectKind == kindVerification // a person must check the node first
	return m.State == faults.RemedyRunning || failed || r.needsVerification(m)
}

// needsVerification reports whether a reboot must still be tested.
func (r *Remediator) needsVerification(m *faults.RemediationStatus) bool {
	return r.cfg.Verifier != nil && m.State == faults.RemedySucceeded && m.Action == faults.RemedyReboot && m.ObjectKind != kindVerification
}

// Cancel cancels the attempt in progress because it is no longer wanted, for example
// after a person has uncordoned the node. A request that the provider has not accepted
// yet is deleted. An accepted request continues, but its end is not awaited.
func (r *Remediator) Cancel(ctx context.Context, st *faults.NodeFaultStatus, reason string, now time.Time) error {
	m := st.Remediation
	if m == nil || m.State != faults.RemedyRunning {
		return nil
	}
	if m.ObjectKind != kindVerification {
		a, err := r.actions.get(ctx, m)
		if err == nil && (a == nil || !a.mayHaveBeenSent()) { // the cache may be stale
			err = r.actions.delete(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	endAttempt(m, faults.RemedyFailed, "cancelled: "+reason, now)
	return nil
}

// requiresRemedyNow reports whether a remedy may be tried now: the rules require one, the node has
// faults, and it exists.
func (in stepInput) requiresRemedyNow() bool {
	w := in.st.DesiredActions
	return w != nil && !w.DryRun && len(w.Remedies) > 0 && in.st.HealthySince == nil && in.node != nil
}

// checkDrainAllowsRemedy reports whether a remedy may start after the drain. If not, never reports
// whether it can never start.
func (c Config) checkDrainAllowsRemedy(in stepInput, remedy faults.Remedy) (ready, neverPossible bool) {
	d := in.st.Drain
	switch {
	case !in.st.DesiredActions.Drain:
		return true, false
	case d == nil:
		return false, false
	case d.State == faults.DrainCompleted:
		return true, false
	case d.State == faults.DrainFailed:
		stuck := d.Remaining > 0 && d.Remaining == d.Terminating && isUnreachable(in.node) // all pods are terminating, and no kubelet ends them
		may := c.AfterFailedDrain || c.RebootUnreachable && stuck && remedy != faults.RemedyTerminate
		return may, !may
	}
	return false, false
}

// isUnreachable reports whether the kubelet of a node has stopped reporting.
func isUnreachable(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
}

// beginAttemptOrEndExhausted records the attempt of a remedy, or that none is left.
func (r *Remediator) beginAttemptOrEndExhausted(in stepInput, remedyIndex int) (again time.Duration) {
	remedies := in.st.DesiredActions.Remedies
	remedy := remedies[min(remedyIndex, len(remedies)-1)]
	ready, never := r.cfg.checkDrainAllowsRemedy(in, remedy)
	attempt := int32(1)
	if m := in.st.Remediation; m != nil {
		attempt = m.Attempt + 1
	}
	switch {
	case never:
		endExhaustedAndRecordSupportRequired(in, remedy, remedyIndex, drainFailedReason(in, remedy))
		return 0
	case !ready:
		return r.cfg.Poll
	case remedyIndex >= len(remedies):
		endExhaustedAndRecordSupportRequired(in, remedy, len(remedies)-1, "all remedies were tried, but the faults persist: "+messageOrEmpty(in.st.Remediation))
		return 0
	case remedy == faults.RemedySupport:
		why := "the rules request manual repair (remedy support)"
		if in.st.Remediation != nil {
			why = "the remedies did not help: " + messageOrEmpty(in.st.Remediation)
		}
		endExhaustedAndRecordSupportRequired(in, faults.RemedySupport, remedyIndex, why)
		return 0
	}
	m := &faults.RemediationStatus{
		State: faults.RemedyRunning, Action: remedy, RemedyIndex: int32(remedyIndex), Attempt: attempt, //nolint:gosec // there are few remedies
		StartedAt: metav1.NewTime(in.now), Deadline: metav1.NewTime(in.now.Add(r.cfg.timeoutOf(remedy))),
		ObjectKind: actionKindFor(remedy), ObjectName: attemptObjectName(in.node.Name, in.st.Session, attempt), PreviousBootID: in.node.Status.NodeInfo.BootID,
	}
	in.st.Remediation = m
	return 0
}

// drainFailedReason returns why a remedy cannot start after a failed drain, and what a person can
// do.
func drainFailedReason(in stepInput, remedy faults.Remedy) string {
	const left = "the drain failed, and pods are left on the node: "
	if m := in.st.Remediation; m != nil && m.ObjectKind != "" {
		return fmt.Sprintf(left+"%s is not tried, because remediation.after_failed_drain is false. Repair or replace the node. Last attempt: %s", remedy, m.Message)
	}
	settings := "remediation.after_failed_drain"
	if remedy != faults.RemedyTerminate {
		settings += " or, for nodes with an unreachable kubelet, remediation.reboot_unreachable"
	}
	return left + "delete them (kubectl get pods -A --field-selector spec.nodeName=" + in.node.Name + "), or set " + settings
}

func (c Config) timeoutOf(remedy faults.Remedy) time.Duration {
	if remedy == faults.RemedyTerminate {
		return c.TerminateTimeout
	}
	return c.RebootTimeout
}

func (c Config) maxAttempts(remedy faults.Remedy) int {
	if remedy == faults.RemedyTerminate {
		return c.TerminateAttempts
	}
	return c.RebootAttempts
}

// endAttempt ends an attempt.
func endAttempt(m *faults.RemediationStatus, state faults.RemedyState, message string, now time.Time) {
	const most = 512
	m.State, m.Message = state, nodefault.TruncateText(message, most)
	m.FinishedAt = &metav1.Time{Time: now}
}

func messageOrEmpty(m *faults.RemediationStatus) string {
	if m == nil {
		return ""
	}
	return m.Message
}

func nodeNameOrEmpty(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Name
}
