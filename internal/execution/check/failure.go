package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/identity"
)

const maxMessage = 2048 // limit of the CRD schema

// failWith refuses the execution with a detail of the checks.
func (r *round) failWith(d v1alpha1.Detail, format string, args ...any) {
	r.failFor(v1alpha1.ReasonValidationError, d, format, args...)
}

func (r *round) failFor(reason v1alpha1.Reason, d v1alpha1.Detail, format string, args ...any) {
	r.out.Failed = &execution.Failure{Reason: reason, Detail: d, Message: truncateText(fmt.Sprintf(format, args...), maxMessage)}
}

// failMissingRights refuses the execution because its account lacks rights.
func (r *round) failMissingRights(rights []action.Right) {
	r.permitted, r.out.Results.RBACValidation = false, false
	a := r.request.Action
	lacks := make([]string, len(rights))
	for i, right := range rights {
		if right.Executor {
			right.Namespace = r.cfg.Namespace
		}
		lacks[i] = formatRight(right)
	}
	r.failWith(v1alpha1.DetailRBACDenied, "service account %s/%s is not allowed to %s: bind the role of action %s to it there",
		r.cfg.Namespace, a.ServiceAccount(), strings.Join(lacks, ", or to "), a.Name)
}

// formatRight formats a right for messages, with its namespace.
func formatRight(right action.Right) string {
	text := right.String()
	if right.Name != "" {
		text += fmt.Sprintf(" %q", right.Name)
	}
	if right.Namespace == "" {
		return text + " in the whole cluster"
	}
	return text + fmt.Sprintf(" in namespace %q", right.Namespace)
}

// failMissingAccount refuses the execution because the account of its action does not exist.
func (r *round) failMissingAccount() {
	r.permitted, r.out.Results.RBACValidation = false, false
	a := r.request.Action
	r.failWith(v1alpha1.DetailRBACDenied, "service account %s/%s does not exist: apply the RBAC manifests of action %s",
		r.cfg.Namespace, a.ServiceAccount(), a.Name)
}

// handleForbidden handles a request that the API server refused although the cached rights allow it. A
// refusal for another reason, such as a quota, fails with the message of the caller.
func (r *round) handleForbidden(ctx context.Context, message string) error {
	known, err := r.recheckRights(ctx)
	if err == nil && !known {
		r.permitted, r.out.Results.RBACValidation = false, false
		r.failWith(v1alpha1.DetailRBACDenied, "%s", message)
	}
	return err
}

// recheckRights checks the rights of the account without the cache, and refuses the execution if
// some are missing.
func (r *round) recheckRights(ctx context.Context) (failed bool, err error) {
	a := r.request.Action
	r.deps.Identities.Forget(a)
	rights, err := r.missingRights(ctx)
	if err != nil || len(rights) == 0 {
		return false, err
	}
	r.failMissingRights(rights)
	return true, nil
}

// failUnlessTransient classifies an error of the API. Transient errors are returned.
func (r *round) failUnlessTransient(ctx context.Context, err error) error {
	var missing *identity.MissingError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &missing):
		r.failMissingAccount()
		return nil
	case ctx.Err() != nil || !errors.As(err, &status) || isTransient(err):
		return fmt.Errorf("check %s: %w", r.request.Action.Name, err)
	}
	r.failWith(v1alpha1.DetailInvalidTargetState, "%s as %s/%s: %v", r.request.Action.Name, r.cfg.Namespace, r.request.Action.ServiceAccount(), err)
	return nil
}

// isTransient reports whether a retry may succeed after an error of the API server.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	const (
		unauthorized = 401 // a new token may not be known to all API servers yet
		timeout      = 408
		conflict     = 409
		tooMany      = 429
		server       = 500
	)
	return code == unauthorized || code == timeout || code == conflict || code == tooMany || code >= server || code == 0
}

// truncateText limits a text to maxBytes bytes and marks the cut.
func truncateText(s string, maxBytes int) string {
	const mark = "…"
	if len(s) <= maxBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxBytes-len(mark)], "") + mark
}
