package action

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// CheckTargetUnchanged returns nil if the target of a plan is as its execution left it: the same object
// with the expected values. Otherwise the error is a *RefusedError that names each field, or an API
// error. A rollback from any other state would revert a foreign change.
func CheckTargetUnchanged(ctx context.Context, c Client, p *v1alpha1.Plan, expected *runtime.RawExtension) error {
	a, parsed, err := verifyAndParsePlan(p)
	if err != nil {
		return fmt.Errorf("check the target of %s: %w", p.Action, err)
	}
	t := v1alpha1.Target{APIVersion: p.Target.APIVersion, Kind: p.Target.Kind, Namespace: p.Target.Namespace, Name: p.Target.Name}
	if t.Kind == "" {
		return nil
	}
	live, err := c.getObjectOnce(ctx, t)
	switch {
	case apierrors.IsNotFound(err):
		return newRefusal(v1alpha1.DetailTargetChanged, "%s is gone", formatTarget(t))
	case apierrors.IsForbidden(err):
		return newRefusal(v1alpha1.DetailRBACDenied, "read %s as %s: %s", formatTarget(t), a.ServiceAccount(), err)
	case err != nil:
		return fmt.Errorf("read %s: %w", formatTarget(t), err)
	case p.Target.UID != "" && live.GetUID() != p.Target.UID:
		return newRefusal(
			v1alpha1.DetailTargetChanged,
			"%s is another object now: its UID is %s, it was %s",
			formatTarget(t),
			live.GetUID(),
			p.Target.UID,
		)
	case live.GetDeletionTimestamp() != nil:
		return newRefusal(v1alpha1.DetailTargetChanged, "%s is being deleted", formatTarget(t))
	}
	if different := describeDifferences(decodeValues(expected), a.kind.relevantValues(parsed, live)); len(different) > 0 {
		return newRefusal(v1alpha1.DetailTargetChanged, "%s was changed: %s", formatTarget(t), strings.Join(different, "; "))
	}
	return nil
}
