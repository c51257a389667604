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

// leastTrial is the minimum deadline of a test. The Job times out after half of it by
// default. It does not depend on VerifyTimeout, because a short timeout for faults must
// not fail the test of a good node.
const leastTrial = 10 * time.Minute

// beginVerification records that the node will be tested.
func (r *Remediator) beginVerification(in stepInput) {
	m := in.st.Remediation
	m.State, m.ObjectKind, m.Message = faults.RemedyRunning, kindVerification, "a Job tests the node before it returns to service"
	m.ObjectName = "verify-" + in.st.Session + "-" + strconv.Itoa(int(m.Attempt))
	m.Deadline, m.FinishedAt = metav1.NewTime(in.now.Add(max(r.cfg.VerifyTimeout, leastTrial))), nil
}

// awaitVerification waits for the result of the test. If a node without faults fails the
// test, a person is needed.
func (r *Remediator) awaitVerification(ctx context.Context, in stepInput) (again time.Duration, err error) {
	m := in.st.Remediation
	switch {
	case in.node == nil:
		endAttempt(m, faults.RemedyFailed, "the node was deleted", in.now)
		return 0, nil
	case r.cfg.Verifier == nil: // the verifier was disabled meanwhile
		endAttempt(m, faults.RemedySucceeded, "the node was rebooted", in.now)
		return 0, nil
	case !in.now.Before(m.Deadline.Time):
		endExhaustedAndRecordSupportRequired(in, m.Action, int(m.RemedyIndex), "the node could not be tested before the deadline: "+m.Message)
		return 0, nil
	}
	v, err := r.cfg.Verifier.Verify(ctx, in.node, m.ObjectName)
	switch {
	case err != nil:
		return 0, fmt.Errorf("verify node %q: %w", in.node.Name, err)
	case v.Done && v.Passed:
		endAttempt(m, faults.RemedySucceeded, "the node was rebooted and passed its test", in.now)
		return 0, nil
	case v.Done:
		endExhaustedAndRecordSupportRequired(in, m.Action, int(m.RemedyIndex), "the node was rebooted but failed its test: "+v.Message)
		return 0, nil
	}
	m.Message = nodefault.TruncateText(v.Message, maxText)
	return r.cfg.Poll, nil
}
