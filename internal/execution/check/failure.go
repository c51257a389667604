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

const maxMessage = 2048 // as the resource's schema allows

// failWith says no, for a reason of the checks.
func (r *round) failWith(d v1alpha1.Detail, format string, args ...any) {
	r.failFor(v1alpha1.ReasonValidationError, d, format, args...)
}

func (r *round) failFor(reason v1alpha1.Reason, d v1alpha1.Detail, format string, args ...any) {
	r.out.Failed = &execution.Failure{Reason: reason, Detail: d, Message: truncateText(fmt.Sprintf(format, args...), maxMessage)}
}

// failRights says no to an account that lacks rights.
func (r *round) failRights(rights []action.Right) {
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

// formatRight is a right for readers, with where it is needed.
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

// failMissingAccount says no to an action without its account.
func (r *round) failMissingAccount() {
	r.permitted, r.out.Results.RBACValidation = false, false
	a := r.request.Action
	r.failWith(v1alpha1.DetailRBACDenied, "service account %s/%s does not exist: apply the RBAC manifests of action %s",
		r.cfg.Namespace, a.ServiceAccount(), a.Name)
}

// forbidden is for when the API server refuses what was believed to be allowed.
// What is not a matter of rights, such as a quota, is left to the caller's words.
func (r *round) forbidden(ctx context.Context, message string) error {
	known, err := r.recheckRights(ctx)
	if err == nil && !known {
		r.permitted, r.out.Results.RBACValidation = false, false
		r.failWith(v1alpha1.DetailRBACDenied, "%s", message)
	}
	return err
}

// recheckRights asks anew what the account may do, and says no if that is not enough.
func (r *round) recheckRights(ctx context.Context) (bool, error) {
	a := r.request.Action
	r.deps.Identities.Forget(a)
	rights, err := r.missingRights(ctx)
	if err != nil || len(rights) == 0 {
		return false, err
	}
	r.failRights(rights)
	return true, nil
}

// unreachable sorts out errors of the API: what may pass stays an error.
func (r *round) unreachable(ctx context.Context, err error) error {
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

// isTransient says whether an answer of the API server may be another one soon.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	const (
		unauthorized = 401 // a token that was just made may not be known everywhere
		timeout      = 408
		conflict     = 409
		tooMany      = 429
		server       = 500
	)
	return code == unauthorized || code == timeout || code == conflict || code == tooMany || code >= server || code == 0
}

// truncateText bounds a text, and marks where it was cut.
func truncateText(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(mark)], "") + mark
}
