package remediation

import (
	"context"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// awaitFaultsGone waits for the faults to disappear after a successful remedy.
func (r *Remediator) awaitFaultsGone(ctx context.Context, l look) (again time.Duration, err error) {
	m := l.st.Remediation
	if l.node == nil || m.Action == faults.RemedyTerminate {
		return 0, nil // nothing is left to verify
	}
	if l.st.HealthySince != nil {
		if r.unverified(m) {
			r.beginVerification(l)
		}
		return 0, nil
	}
	if left := m.FinishedAt.Add(r.cfg.VerifyTimeout).Sub(l.now); left > 0 {
		m.Message = "the node was rebooted; waiting for its faults to disappear"
		return min(left, r.cfg.Poll), nil
	}
	return r.beginNextAttempt(ctx, l)
}

// beginNextAttempt starts the attempt after one that did not help: the same remedy again if
// allowed, or the next one.
func (r *Remediator) beginNextAttempt(ctx context.Context, l look) (again time.Duration, err error) {
	if !l.isWanted() {
		return 0, nil
	}
	m, remedies := l.st.Remediation, l.st.DesiredActions.Remedies
	step := slices.Index(remedies, m.Action)
	if step < 0 { // the rules require other remedies now
		return r.tryBeginAttempt(l, 0), nil
	}
	if at := int(m.RemedyIndex); at < len(remedies) && remedies[at] == m.Action {
		step = at
	}
	refused, err := r.wasRefused(ctx, m)
	if err != nil {
		return 0, err
	}
	if refused || countAttempts(l.st, m.Action) >= r.cfg.maxAttempts(m.Action) {
		step++
	}
	return r.tryBeginAttempt(l, step), nil
}

// wasRefused reports whether the attempt was rejected permanently.
func (r *Remediator) wasRefused(ctx context.Context, m *faults.RemediationStatus) (bool, error) {
	if m.ObjectName == "" || m.ObjectKind != kindFor(m.Action) {
		return false, nil
	}
	a, err := r.actions.get(ctx, m)
	return a != nil && a.wasRefused(), err
}

// countAttempts returns how often a remedy was requested in this session or failed
// before. It counts records, because the objects may be deleted.
func countAttempts(st *faults.NodeFaultStatus, a faults.Remedy) int {
	w, count := vocabularyOf(kindFor(a)), 0
	for attempt := range st.Remediation.Attempt {
		ordinal := strconv.Itoa(int(attempt) + 1)
		if wasRecorded(st, w.requested, ordinal) || wasRecorded(st, w.failed, ordinal) {
			count++
		}
	}
	return count
}

func wasRecorded(st *faults.NodeFaultStatus, action, ordinal string) bool {
	return nodefault.HasRecord(st, nodefault.RecordID(st.NodeUID, st.Session, action, ordinal))
}

// retryFirstRemedy starts again if no remedy was tried, because only support was required or
// the drain had failed, and this has changed.
func (r *Remediator) retryFirstRemedy(l look) (again time.Duration, err error) {
	m := l.st.Remediation
	if !l.isWanted() || m.Action != faults.RemedySupport && m.ObjectKind != "" {
		return 0, nil
	}
	first := l.st.DesiredActions.Remedies[0]
	if ready, _ := r.cfg.checkDrained(l, first); !ready || first == faults.RemedySupport || countAttempts(l.st, first) > 0 {
		return 0, nil
	}
	return r.tryBeginAttempt(l, 0), nil
}

// endExhausted ends the remediation and records that a person is needed.
func endExhausted(l look, action faults.Remedy, step int, why string) {
	m := l.st.Remediation
	if m == nil || action == faults.RemedySupport && m.Action != faults.RemedySupport {
		attempt := int32(0)
		if m != nil {
			attempt = m.Attempt
		}
		m = &faults.RemediationStatus{Action: action, Attempt: attempt, StartedAt: metav1.NewTime(l.now), Deadline: metav1.NewTime(l.now)}
	}
	m.RemedyIndex = int32(step) //nolint:gosec // there are few remedies
	endAttempt(m, faults.RemedyExhausted, why, l.now)
	l.st.Remediation = m
	ordinal := "" // if no attempt was made
	if m.Attempt > 0 {
		ordinal = strconv.Itoa(int(m.Attempt))
	}
	record := nodefault.NewRecord(l.st, sourceRemediation, changeevent.ActionSupportRequired, ordinal, l.now)
	record.Reason = m.Message
	nodefault.AddRecordOnce(l.st, record)
}
