package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

const maxMessage = 2048 // limit of the CRD schema

// failValidation refuses the execution with a detail of the checks.
func (o *Outcome) failValidation(d v1alpha1.Detail, format string, args ...any) {
	o.failWithReason(v1alpha1.ReasonValidationError, d, format, args...)
}

func (o *Outcome) failWithReason(reason v1alpha1.Reason, d v1alpha1.Detail, format string, args ...any) {
	message := action.TruncateText(fmt.Sprintf(format, args...), maxMessage)
	o.Failed = &execution.Failure{Reason: reason, Detail: d, Message: message}
}

// failProtected refuses an action on a protected target.
func (o *Outcome) failProtected(t v1alpha1.Target, why string) {
	o.failValidation(v1alpha1.DetailTargetProtected, "%s is protected: %s. Actions cannot change it", formatTarget(t), why)
}

// account is the service account that runs the action of a request. It records refusals in out.
type account struct {
	identities identities
	namespace  string // of the accounts of actions
	request    action.Request
	out        *Outcome
	permitted  bool // it has the rights that the request needs
}

// listMissingRights returns the rights that the request needs and the account lacks.
func (a *account) listMissingRights(ctx context.Context) ([]action.Right, error) {
	if a.request.Action.NoJob {
		return nil, nil
	}
	return a.identities.ListDenied(ctx, a.request.Action, a.request.Rights())
}

// failMissingRights refuses the execution because its account lacks rights.
func (a *account) failMissingRights(rights []action.Right) {
	missing := make([]string, len(rights))
	for i, right := range rights {
		if right.Executor {
			right.Namespace = a.namespace
		}
		missing[i] = formatRight(right)
	}
	a.failDenied("service account %s/%s is not allowed to %s: bind the role of action %s to it there",
		a.namespace, a.request.Action.ServiceAccount(), strings.Join(missing, ", or to "), a.request.Action.Name)
}

// failDenied refuses the execution because its account lacks a right.
func (a *account) failDenied(format string, args ...any) {
	a.permitted = false
	a.out.Results.RBACValidation = false
	a.out.failValidation(v1alpha1.DetailRBACDenied, format, args...)
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
func (a *account) failMissingAccount() {
	a.failDenied("service account %s/%s does not exist: apply the RBAC manifests of action %s",
		a.namespace, a.request.Action.ServiceAccount(), a.request.Action.Name)
}

// recheckRightsAndFailForbidden handles a request that the API server refused although the cached rights allow it. A
// refusal for another reason, such as a quota, fails with the message of the caller.
func (a *account) recheckRightsAndFailForbidden(ctx context.Context, message string) error {
	explained, err := a.recheckRightsUncached(ctx)
	if err == nil && !explained {
		a.failDenied("%s", message)
	}
	return err
}

// recheckRightsUncached checks the rights of the account without the cache, and refuses the execution if
// some are missing.
func (a *account) recheckRightsUncached(ctx context.Context) (failed bool, err error) {
	a.identities.ForgetAnswers(a.request.Action)
	rights, err := a.listMissingRights(ctx)
	if err != nil || len(rights) == 0 {
		return false, err
	}
	a.failMissingRights(rights)
	return true, nil
}

// failUnlessTransient refuses the execution because of an API error. It returns a transient error.
func (a *account) failUnlessTransient(ctx context.Context, err error) (transientErr error) {
	var missing *roles.MissingError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &missing):
		a.failMissingAccount()
		return nil
	case ctx.Err() != nil || !errors.As(err, &status) || isTransientAPIError(err):
		return fmt.Errorf("check %s: %w", a.request.Action.Name, err)
	}
	a.out.failValidation(v1alpha1.DetailInvalidTargetState, "%s as %s/%s: %v",
		a.request.Action.Name, a.namespace, a.request.Action.ServiceAccount(), err)
	return nil
}

// failPlanning refuses the execution because planning failed.
func (a *account) failPlanning(ctx context.Context, err error) error {
	var refused *action.RefusedError
	var invalid *action.InvalidError
	switch {
	case errors.As(err, &refused) && refused.Detail == v1alpha1.DetailRBACDenied:
		return a.recheckRightsAndFailForbidden(ctx, refused.Message)
	case errors.As(err, &refused):
		a.out.failValidation(refused.Detail, "%s", refused.Message)
		return nil
	case errors.As(err, &invalid):
		a.out.failValidation(v1alpha1.DetailInvalidParameters, "%s", invalid.Error())
		return nil
	case apierrors.IsForbidden(err):
		return a.recheckRightsAndFailForbidden(ctx, err.Error())
	}
	return a.failUnlessTransient(ctx, err)
}

// isTransientAPIError reports whether a retry may succeed after an error of the API server.
func isTransientAPIError(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized: // a new token may not be known to all API servers yet
		return true
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return code == 0 || code >= http.StatusInternalServerError
	}
}
