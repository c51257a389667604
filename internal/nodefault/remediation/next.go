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
func (r *Remediator) awaitFaultsGone(ctx context.Context, in stepInput) (again time.Duration, err error) {
	m := in.st.Remediation
	if in.node == nil || m.Action == faults.RemedyTerminate {
		return 0, nil // nothing is left to verify
	}
	if in.st.HealthySince != nil {
		if r.needsVerification(m) {
			r.beginVerification(in)
		}
		return 0, nil
	}
	if left := m.FinishedAt.Add(r.cfg.VerifyTimeout).Sub(in.now); left > 0 {
		m.Message = "the node was rebooted; waiting for its faults to disappear"
		return min(left, r.cfg.Poll), nil
	}
	return r.beginNextAttempt(ctx, in)
}

// beginNextAttempt starts the attempt after one that did not help: the same remedy again if
// allowed, or the next one.
func (r *Remediator) beginNextAttempt(ctx context.Context, in stepInput) (again time.Duration, err error) {
	if !in.requiresRemedyNow() {
		return 0, nil
	}
	m, remedies := in.st.Remediation, in.st.DesiredActions.Remedies
	step := slices.Index(remedies, m.Action)
	if step < 0 { // the rules require other remedies now
		return r.beginAttemptOrEndExhausted(in, 0), nil
	}
	if at := int(m.RemedyIndex); at < len(remedies) && remedies[at] == m.Action {
		step = at
	}
	refused, err := r.hasActionFailedWithoutTimeout(ctx, m)
	if err != nil {
		return 0, err
	}
	if refused || countRecordedAttempts(in.st, m.Action) >= r.cfg.maxAttempts(m.Action) {
		step++
	}
	return r.beginAttemptOrEndExhausted(in, step), nil
}

// hasActionFailedWithoutTimeout reports whether the attempt was rejected permanently.
func (r *Remediator) hasActionFailedWithoutTimeout(ctx context.Context, m *faults.RemediationStatus) (failed bool, err error) {
	if m.ObjectName == "" || m.ObjectKind != actionKindFor(m.Action) {
		return false, nil
	}
	a, err := r.actions.get(ctx, m)
	return a != nil && a.failedWithoutTimeout(), err
}

// countRecordedAttempts returns how often a remedy was requested in this session or failed
// before. It counts records, because the objects may be deleted.
func countRecordedAttempts(st *faults.NodeFaultStatus, remedy faults.Remedy) int {
	w, count := actionNamesOf(actionKindFor(remedy)), 0
	for attempt := range st.Remediation.Attempt {
		ordinal := strconv.Itoa(int(attempt) + 1)
		if hasSessionRecord(st, w.requested, ordinal) || hasSessionRecord(st, w.failed, ordinal) {
			count++
		}
	}
	return count
}

func hasSessionRecord(st *faults.NodeFaultStatus, action, ordinal string) bool {
	return nodefault.HasRecord(st, nodefault.RecordID(st.NodeUID, st.Session, action, ordinal))
}

// beginFirstRemedyIfNoneTried starts again if no remedy was tried, because only support was required or
// the drain had failed, and this has changed.
func (r *Remediator) beginFirstRemedyIfNoneTried(in stepInput) (again time.Duration, err error) {
	m := in.st.Remediation
	if !in.requiresRemedyNow() || m.Action != faults.RemedySupport && m.ObjectKind != "" {
		return 0, nil
	}
	first := in.st.DesiredActions.Remedies[0]
	if ready, _ := r.cfg.checkDrainAllowsRemedy(in, first); !ready || first == faults.RemedySupport || countRecordedAttempts(in.st, first) > 0 {
		return 0, nil
	}
	return r.beginAttemptOrEndExhausted(in, 0), nil
}

// endExhaustedAndRecordSupportRequired ends the remediation and records that a person is needed.
func endExhaustedAndRecordSupportRequired(in stepInput, action faults.Remedy, remedyIndex int, reason string) {
	m := in.st.Remediation
	if m == nil || action == faults.RemedySupport && m.Action != faults.RemedySupport {
		attempt := int32(0)
		if m != nil {
			attempt = m.Attempt
		}
		m = &faults.RemediationStatus{Action: action, Attempt: attempt, StartedAt: metav1.NewTime(in.now), Deadline: metav1.NewTime(in.now)}
	}
	m.RemedyIndex = int32(remedyIndex) //nolint:gosec // there are few remedies
	endAttempt(m, faults.RemedyExhausted, reason, in.now)
	in.st.Remediation = m
	ordinal := "" // if no attempt was made
	if m.Attempt > 0 {
		ordinal = strconv.Itoa(int(m.Attempt))
	}
	record := nodefault.NewRecord(in.st, sourceRemediation, changeevent.ActionSupportRequired, ordinal, in.now)
	record.Reason = m.Message
	nodefault.AppendRecordOnceAndTrim(in.st, record)
}
