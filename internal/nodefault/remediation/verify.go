package remediation

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// kindVerification is what stands in the place of an object's kind while a node
// is tried out.
const kindVerification = "Job"

// A Verifier tries a node out that was rebooted. It is a *JobVerifier.
type Verifier interface {
	// Verify begins once for each name, and says what came of it.
	Verify(ctx context.Context, node *corev1.Node, name string) (Verdict, error)
}

// A Verdict is what came of trying a node out.
type Verdict struct {
	Done, Passed bool
	Message      string
}

// leastTrial is how long trying a node out may take at least: a Job that does it
// has half of that, and ends by itself. For how long faults may stay is another
// matter: who has no patience with them would else have good nodes kept.
const leastTrial = 10 * time.Minute

// beginVerification writes down that the node will be tried out.
func (r *Remediator) beginVerification(l look) {
	m := l.st.Remediation
	m.State, m.ObjectKind, m.Message = faults.RemedyRunning, kindVerification, "a Job tests the node before it returns to service"
	m.ObjectName = "verify-" + l.st.Session + "-" + strconv.Itoa(int(m.Attempt))
	m.Deadline, m.FinishedAt = metav1.NewTime(l.now.Add(max(r.cfg.VerifyTimeout, leastTrial))), nil
}

// awaitVerification waits for what comes of it. A node that does not pass although nobody
// finds a fault is for a person.
func (r *Remediator) awaitVerification(ctx context.Context, l look) (time.Duration, error) {
	m := l.st.Remediation
	switch {
	case l.node == nil:
		endAttempt(m, faults.RemedyFailed, "the node was deleted", l.now)
		return 0, nil
	case r.cfg.Verifier == nil: // it is not asked for any more
		endAttempt(m, faults.RemedySucceeded, "the node was rebooted", l.now)
		return 0, nil
	case !l.now.Before(m.Deadline.Time):
		r.endExhausted(l, m.Action, int(m.RemedyIndex), "the node could not be tested before the deadline: "+m.Message)
		return 0, nil
	}
	v, err := r.cfg.Verifier.Verify(ctx, l.node, m.ObjectName)
	switch {
	case err != nil:
		return 0, fmt.Errorf("verify node %q: %w", l.node.Name, err)
	case v.Done && v.Passed:
		endAttempt(m, faults.RemedySucceeded, "the node was rebooted and passed its test", l.now)
		return 0, nil
	case v.Done:
		r.endExhausted(l, m.Action, int(m.RemedyIndex), "the node was rebooted but failed its test: "+v.Message)
		return 0, nil
	}
	m.Message = nodefault.Cut(v.Message, maxText)
	return r.cfg.Poll, nil
}
