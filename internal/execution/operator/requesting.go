package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// verifyRequest is the step that checks whether the API server verified the requester and whether the request is
// unchanged. If not, it fails the execution.
func (v *validation) verifyRequest(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	parameters, err := parametersHash(t.ke)
	if err != nil {
		failExecution(t, execution.Failure{Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailInvalidParameters, Message: err.Error()})
		return false, nil //nolint:nilerr // the execution ends with it
	}
	switch known := t.ke.Status.VerifiedRequest; {
	case known == nil:
		return v.verifyNewRequest(ctx, t, parameters)
	case known.ParametersHash != parameters: // the schema cannot detect it, and the guard had a gap
		failUnverified(t, "spec.parameters were changed while the admission policies were not in force")
		return false, nil
	}
	return true, nil
}

// verifyNewRequest verifies a request that has not been verified yet.
func (v *validation) verifyNewRequest(ctx context.Context, t *reconcileState, parametersSum string) (proceed bool, err error) {
	period, err := v.guard.Confirm(ctx)
	switch created := t.ke.CreationTimestamp.Time; {
	case errors.Is(err, guard.ErrOff):
		return true, nil
	case err != nil && guard.IsUnknown(err) && t.ke.Status.Phase == v1alpha1.PhaseValidating:
		return false, v.retryOrFailCheck(ctx, t, err)
	case err != nil && guard.IsUnknown(err):
		t.requeueIn(checkRetryDelay)
		return false, nil
	case err != nil:
		failUnverified(t, fmt.Sprintf("the admission policies did not verify the requester: %v", err))
		return false, nil
	case !period.Covers(created):
		failUnverified(t, fmt.Sprintf("the execution was created at %s, but the admission policies have been continuously in force only since %s", created.UTC().Format(time.RFC3339), period.Since.UTC().Format(time.RFC3339)))
		return false, nil
	}
	t.ke.Status.VerifiedRequest = &v1alpha1.VerifiedRequest{AdmissionPolicyPeriod: period.ID, ParametersHash: parametersSum}
	return true, nil
}

// failUnverified fails an execution whose requester may not be the named one.
func failUnverified(t *reconcileState, why string) {
	failExecution(t, execution.Failure{
		Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailRequesterUnverified,
		Message: "the requester is not verified, so nothing was changed: " + why + ". Create it again once the admission policies are in force",
	})
}

// parametersHash returns the SHA-256 of the normalized parameters.
func parametersHash(ke *v1alpha1.KubernetesExecution) (string, error) {
	if ke.Spec.Parameters == nil || len(ke.Spec.Parameters.Raw) == 0 {
		return "", nil
	}
	var parameters any
	if err := json.Unmarshal(ke.Spec.Parameters.Raw, &parameters); err != nil {
		return "", fmt.Errorf("read spec.parameters: %w", err)
	}
	text, err := json.Marshal(parameters)
	if err != nil {
		return "", fmt.Errorf("read spec.parameters: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
