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
	c.RebootAttempts = min(cmp.Or(c.RebootAttempts, 2), mostAttempts)
	c.TerminateAttempts = min(cmp.Or(c.TerminateAttempts, 1), mostAttempts)
	c.RebootTimeout = cmp.Or(c.RebootTimeout, 45*time.Minute)
	c.TerminateTimeout = cmp.Or(c.TerminateTimeout, 45*time.Minute)
	c.VerifyTimeout = cmp.Or(c.VerifyTimeout, 10*time.Minute)
	c.Poll = cmp.Or(c.Poll, 15*time.Second)
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
	return []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.KindReboot),
		v1alpha1.GroupVersion.WithKind(v1alpha1.KindTerminate),
	}
}

// A stepInput is the input of a step.
type stepInput struct {
	node   *corev1.Node // nil if the node is gone
	status *faults.NodeFaultStatus
	now    time.Time
}

// Step advances the remediation of a node, and returns the delay until the next step.
// Zero means at once if status has changed, and otherwise at the next event. A deleted node
// is nil; an action in progress is then followed to its end.
//
// It must be called while Busy, and otherwise while the node is quarantined and its drain
// is over.
func (r *Remediator) Step(
	ctx context.Context, node *corev1.Node, status *faults.NodeFaultStatus, now time.Time,
) (after time.Duration, err error) {
	if node != nil && status.NodeUID != "" && node.UID != status.NodeUID {
		node = nil // replaced by another node of the same name
	}
	if err := r.RecordJanitorActions(ctx, node, status); err != nil {
		return 0, err
	}
	in := stepInput{node: node, status: status, now: now}
	current := status.Remediation
	if current == nil {
		if !in.requiresRemedyNow() {
			return 0, nil
		}
		return r.beginAttemptOrEndExhausted(in, 0), nil
	}
	if node == nil && current.State != faults.RemedyRunning && r.BlocksRelease(status) {
		endAttempt(current, faults.RemedyFailed, "the node was deleted", now) // nothing is left to test
		return 0, nil
	}
	switch current.State {
	case faults.RemedyRunning:
		if current.ObjectKind == kindVerification {
			return r.awaitVerification(ctx, in)
		}
		return r.createOrFollowAttemptAction(ctx, in)
	case faults.RemedySucceeded:
		return r.awaitFaultsGone(ctx, in)
	case faults.RemedyFailed:
		return r.setNextAttemptOrEndExhausted(ctx, in)
	case faults.RemedyExhausted:
		return r.beginFirstRemedyIfNoneTried(in)
	}
	return 0, fmt.Errorf("NodeFault %q: unknown remediation state %q", nodeNameOrEmpty(node), current.State)
}

// BlocksRelease reports whether a remedy is in progress or not verified yet. Such a node must not
// be released.
func (r *Remediator) BlocksRelease(status *faults.NodeFaultStatus) bool {
	current := status.Remediation
	if current == nil {
		return false
	}
	running := current.State == faults.RemedyRunning
	failedTest := current.State == faults.RemedyExhausted && current.ObjectKind == kindVerification // a person must check the node first
	return running || failedTest || r.needsVerification(current)
}

// needsVerification reports whether a reboot must still be tested.
func (r *Remediator) needsVerification(current *faults.RemediationStatus) bool {
	rebooted := current.State == faults.RemedySucceeded && current.Action == faults.RemedyReboot
	return r.cfg.Verifier != nil && rebooted && current.ObjectKind != kindVerification
}

// Cancel cancels the attempt in progress because it is no longer wanted, for example
// after a person has uncordoned the node. A request that the provider has not accepted
// yet is deleted, also if it waits at the provider. An accepted request continues, but its
// end is not awaited.
func (r *Remediator) Cancel(
	ctx context.Context, status *faults.NodeFaultStatus, reason string, now time.Time,
) error {
	current := status.Remediation
	if current == nil || current.State != faults.RemedyRunning {
		return nil
	}
	if current.ObjectKind != kindVerification {
		a, err := r.actions.get(ctx, current)
		if err == nil && (a == nil || !a.isAccepted()) { // the cache may be stale
			err = r.actions.delete(ctx, current, a)
		}
		if err != nil {
			return err
		}
	}
	endAttempt(current, faults.RemedyFailed, "cancelled: "+reason, now)
	return nil
}

// requiresRemedyNow reports whether a remedy may be tried now: the rules require one, the node has
// faults, and it exists.
func (in stepInput) requiresRemedyNow() bool {
	desired := in.status.DesiredActions
	required := desired != nil && !desired.DryRun && len(desired.Remedies) > 0
	return required && in.status.HealthySince == nil && in.node != nil
}

// checkDrainAllowsRemedy reports whether a remedy may start now as far as the drain is concerned, and
// if not, whether it can never start.
func (c Config) checkDrainAllowsRemedy(in stepInput, remedy faults.Remedy) (ready, neverPossible bool) {
	drain := in.status.Drain
	switch {
	case !in.status.DesiredActions.Drain:
		return true, false
	case drain == nil:
		return false, false
	case drain.State == faults.DrainCompleted:
		return true, false
	case drain.State == faults.DrainFailed:
		// All pods are terminating, and no kubelet ends them.
		onlyRebootHelps := drain.Remaining > 0 && drain.Remaining == drain.Terminating && isUnreachable(in.node)
		mayReboot := c.RebootUnreachable && onlyRebootHelps && remedy != faults.RemedyTerminate
		ready = c.AfterFailedDrain || mayReboot
		return ready, !ready
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
func (r *Remediator) beginAttemptOrEndExhausted(in stepInput, remedyIndex int) (delay time.Duration) {
	remedies := in.status.DesiredActions.Remedies
	remedy := remedies[min(remedyIndex, len(remedies)-1)]
	previous := in.status.Remediation
	ready, neverPossible := r.cfg.checkDrainAllowsRemedy(in, remedy)
	switch {
	case neverPossible:
		endExhaustedAndRecordSupportRequired(in, remedy, remedyIndex, drainFailedReason(in, remedy))
		return 0
	case !ready:
		return r.cfg.Poll
	case remedyIndex >= len(remedies):
		reason := "all remedies were tried, but the faults persist: " + messageOrEmpty(previous)
		endExhaustedAndRecordSupportRequired(in, remedy, len(remedies)-1, reason)
		return 0
	case remedy == faults.RemedySupport:
		reason := "the rules request manual repair (remedy support)"
		if previous != nil {
			reason = "the remedies did not help: " + messageOrEmpty(previous)
		}
		endExhaustedAndRecordSupportRequired(in, faults.RemedySupport, remedyIndex, reason)
		return 0
	}
	in.status.Remediation = r.newAttempt(in, remedy, remedyIndex)
	return 0
}

// newAttempt returns the next attempt of a session.
func (r *Remediator) newAttempt(
	in stepInput, remedy faults.Remedy, remedyIndex int,
) *faults.RemediationStatus {
	attempt := int32(1)
	if previous := in.status.Remediation; previous != nil {
		attempt = previous.Attempt + 1
	}
	return &faults.RemediationStatus{
		State:          faults.RemedyRunning,
		Action:         remedy,
		RemedyIndex:    int32(remedyIndex), //nolint:gosec // there are few remedies
		Attempt:        attempt,
		StartedAt:      metav1.NewTime(in.now),
		Deadline:       metav1.NewTime(in.now.Add(r.cfg.timeoutOf(remedy))),
		ObjectKind:     actionKindFor(remedy),
		ObjectName:     attemptObjectName(in.node.Name, in.status.Session, attempt),
		PreviousBootID: in.node.Status.NodeInfo.BootID,
	}
}

// drainFailedReason returns why a remedy cannot start after a failed drain, and what a person can
// do.
func drainFailedReason(in stepInput, remedy faults.Remedy) string {
	const drainFailed = "the drain failed, and pods are left on the node: "
	if current := in.status.Remediation; current != nil && current.ObjectKind != "" {
		return fmt.Sprintf(drainFailed+"%s is not tried, because remediation.after_failed_drain is false. "+
			"Repair or replace the node. Last attempt: %s", remedy, current.Message)
	}
	settings := "remediation.after_failed_drain"
	if remedy != faults.RemedyTerminate {
		settings += " or, for nodes with an unreachable kubelet, remediation.reboot_unreachable"
	}
	return drainFailed + "delete them (kubectl get pods -A --field-selector spec.nodeName=" + in.node.Name + "), or set " + settings
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
func endAttempt(current *faults.RemediationStatus, state faults.RemedyState, message string, now time.Time) {
	const most = 512
	current.State, current.Message = state, nodefault.TruncateText(message, most)
	current.FinishedAt = &metav1.Time{Time: now}
}

func messageOrEmpty(current *faults.RemediationStatus) string {
	if current == nil {
		return ""
	}
	return current.Message
}

func nodeNameOrEmpty(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Name
}
