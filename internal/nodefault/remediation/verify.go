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

// kindVerification is the object kind of a remediation while the node is tested.
const kindVerification = "Job"

// A Verifier tests a rebooted node. It is implemented by *JobVerifier.
type Verifier interface {
	// Verify starts a test once per name, and returns its result.
	Verify(ctx context.Context, node *corev1.Node, name string) (Verdict, error)
}

// A Verdict is the result of a test.
type Verdict struct {
	Done, Passed bool
	Message      string
}

// minTestDeadline is the minimum deadline of a test. The Job times out after half of it by
// default. It does not depend on VerifyTimeout, because a short timeout for faults must
// not fail the test of a good node.
const minTestDeadline = 10 * time.Minute

// beginVerification records that the node will be tested.
func (r *Remediator) beginVerification(in stepInput) {
	current := in.status.Remediation
	current.State = faults.RemedyRunning
	current.ObjectKind = kindVerification
	current.ObjectName = "verify-" + in.status.Session + "-" + strconv.Itoa(int(current.Attempt))
	current.Deadline = metav1.NewTime(in.now.Add(max(r.cfg.VerifyTimeout, minTestDeadline)))
	current.FinishedAt = nil
	current.Message = "a Job tests the node before it returns to service"
}

// awaitVerification waits for the result of the test. If a node without faults fails the
// test, a person is needed.
func (r *Remediator) awaitVerification(ctx context.Context, in stepInput) (delay time.Duration, err error) {
	current := in.status.Remediation
	switch {
	case in.node == nil:
		endAttempt(current, faults.RemedyFailed, "the node was deleted", in.now)
		return 0, nil
	case r.cfg.Verifier == nil: // the verifier was disabled meanwhile
		endAttempt(current, faults.RemedySucceeded, "the node was rebooted", in.now)
		return 0, nil
	case !in.now.Before(current.Deadline.Time):
		reason := "the node could not be tested before the deadline: " + current.Message
		endExhaustedAndRecordSupportRequired(in, current.Action, int(current.RemedyIndex), reason)
		return 0, nil
	}
	verdict, err := r.cfg.Verifier.Verify(ctx, in.node, current.ObjectName)
	switch {
	case err != nil:
		return 0, fmt.Errorf("verify node %q: %w", in.node.Name, err)
	case verdict.Done && verdict.Passed:
		endAttempt(current, faults.RemedySucceeded, "the node was rebooted and passed its test", in.now)
		return 0, nil
	case verdict.Done:
		reason := "the node was rebooted but failed its test: " + verdict.Message
		endExhaustedAndRecordSupportRequired(in, current.Action, int(current.RemedyIndex), reason)
		return 0, nil
	}
	current.Message = nodefault.TruncateText(verdict.Message, maxText)
	return r.cfg.Poll, nil
}
