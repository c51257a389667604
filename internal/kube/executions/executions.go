// Package executions sends the requests of a person to executions on a host cluster: approve, reject,
// cancel, roll back and stop. The command line and the console share it.
//
// It uses the Kubernetes API with the credentials of the person and decides nothing: the API server
// and the controller do. It only refuses what the state of an execution already rules out.
package executions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A StateError means that the state of an execution does not allow a request.
type StateError struct {
	Message string
	// Hint is a command of the command line that helps, or empty.
	Hint string
}

// Error implements error.
func (e *StateError) Error() string { return e.Message }

func stateErrorf(hint, format string, args ...any) error {
	return &StateError{Message: fmt.Sprintf(format, args...), Hint: hint}
}

func describeHint(ke *v1alpha1.KubernetesExecution, purpose string) string {
	return "fleetloop exec describe " + ke.Name + "   shows " + purpose
}

// ShortHash returns the digits of a hash that people compare.
func ShortHash(hash string) string { return hash[:min(len(hash), 12)] }

// maxGroups is the maximum number of groups that an execution records.
const maxGroups = 64

// maxName is the maximum length of a user name in an execution.
const maxName = 253

// CurrentUser returns the name and the groups of the person, as the API server sees them.
func CurrentUser(ctx context.Context, c client.Client) (name string, groups []string, err error) {
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil {
		return "", nil, err
	}
	return review.Status.UserInfo.Username, review.Status.UserInfo.Groups, nil
}

// IsSettled reports whether an execution will not change without a request: it has ended, or only a
// rollback is possible.
func IsSettled(ke *v1alpha1.KubernetesExecution) bool {
	phase := ke.Status.Phase
	return phase == v1alpha1.PhaseRollbackReady || phase == v1alpha1.PhaseCompleted || phase == v1alpha1.PhaseFailed
}

// CheckDecidable returns a StateError unless an execution waits for approval of a plan whose hash
// begins with a prefix.
func CheckDecidable(ke *v1alpha1.KubernetesExecution, planHashPrefix string) error {
	hint := describeHint(ke, "its status")
	switch {
	case ke.Status.Phase != v1alpha1.PhaseWaitingApproval:
		return stateErrorf(hint, "execution %q is not waiting for approval: its phase is %s",
			ke.Name, cmp.Or(ke.Status.Phase, "new"))
	case ke.Status.Approval != nil && ke.Status.Approval.State == v1alpha1.ApprovalApproved:
		return stateErrorf("fleetloop exec cancel "+ke.Name+"   stops it",
			"execution %q is approved already and waits to be executed", ke.Name)
	case ke.Status.Plan == nil || ke.Status.Plan.Hash == "":
		return stateErrorf(hint, "execution %q has no plan to approve or reject", ke.Name)
	case !strings.HasPrefix(ke.Status.Plan.Hash, planHashPrefix):
		return stateErrorf(hint, "the plan of execution %q is %s, not %s",
			ke.Name, ShortHash(ke.Status.Plan.Hash), planHashPrefix)
	}
	return nil
}

// Decide adds the decision of a person to the approvals. It replaces an earlier one of the same
// person about an older plan. On a conflict it reads the execution again, because the plan may have
// changed.
func Decide(
	ctx context.Context, c client.Client, ke *v1alpha1.KubernetesExecution, mine v1alpha1.Approval,
) (*v1alpha1.KubernetesExecution, error) {
	mine.PlanHash = ke.Status.Plan.Hash
	for {
		others, err := approvalsOfOthersUnlessDecided(ke, mine)
		if err != nil {
			return nil, err
		}
		patch := encodePatch(map[string]any{
			"metadata": map[string]any{"resourceVersion": ke.ResourceVersion},
			"spec":     map[string]any{"approvals": append(others, mine)},
		})
		err = c.Patch(ctx, ke, client.RawPatch(types.MergePatchType, patch))
		if err == nil {
			return ke, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, err
		}
		changed := &v1alpha1.KubernetesExecution{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(ke), changed); err != nil {
			return nil, err
		}
		if err := CheckDecidable(changed, mine.PlanHash); err != nil {
			return nil, err
		}
		ke = changed
	}
}

// approvalsOfOthersUnlessDecided returns the approvals of other people. It returns a StateError if the person has
// already decided about the plan.
func approvalsOfOthersUnlessDecided(
	ke *v1alpha1.KubernetesExecution, mine v1alpha1.Approval,
) ([]v1alpha1.Approval, error) {
	var others []v1alpha1.Approval
	for _, approval := range ke.Spec.Approvals {
		if approval.Approver != mine.Approver {
			others = append(others, approval)
			continue
		}
		if approval.PlanHash == mine.PlanHash {
			return nil, stateErrorf(describeHint(ke, "the missing approvals"), "%s execution %q: %q has already decided: %s",
				strings.ToLower(string(mine.Decision)), ke.Name, mine.Approver, approval.Decision)
		}
	}
	return others, nil
}

// CheckCancellable returns a StateError if an execution has ended.
func CheckCancellable(ke *v1alpha1.KubernetesExecution) error {
	if IsSettled(ke) {
		return stateErrorf(describeHint(ke, "its status"), "execution %q has already ended", ke.Name)
	}
	return nil
}

// Cancel requests the cancellation of an execution in the name of a person. An empty name means that it
// is unknown: a missing name must not delay a stop.
func Cancel(ctx context.Context, c client.Client, ke *v1alpha1.KubernetesExecution, by string) error {
	return c.Patch(ctx, ke, CancelPatch(ke, by))
}

// CancelPatch returns the patch of Cancel.
func CancelPatch(ke *v1alpha1.KubernetesExecution, by string) client.Patch {
	spec := map[string]any{"cancel": true}
	validName := by != "" && utf8.RuneCountInString(by) <= maxName
	if validName && !ke.Spec.Cancel { // a cancelled execution keeps its name or its lack of one
		spec["cancelledBy"] = by
	}
	return client.RawPatch(types.MergePatchType, encodePatch(map[string]any{"spec": spec}))
}

// CheckReversible returns a StateError unless the execution can be rolled back.
func CheckReversible(ke *v1alpha1.KubernetesExecution) error {
	rollback := ke.Status.RollbackInformation
	switch {
	case !IsSettled(ke):
		return stateErrorf("fleetloop exec cancel "+ke.Name+"   cancels it", "execution %q has not ended: its phase is %s",
			ke.Name, cmp.Or(string(ke.Status.Phase), "new"))
	case ke.Status.ExecutionResults == nil:
		return stateErrorf("", "execution %q changed nothing, so there is nothing to roll back", ke.Name)
	case rollback == nil:
		return stateErrorf(describeHint(ke, "how it ended"),
			"execution %q ended without a known change, so there is nothing to roll back", ke.Name)
	case !rollback.Available:
		return stateErrorf(describeHint(ke, "the changes"), "execution %q cannot be rolled back: %s",
			ke.Name, cmp.Or(rollback.Reason, ke.Spec.Action+" cannot be rolled back"))
	}
	return nil
}

// NewRollback returns the execution that rolls back another. Without a name it gets that of the other
// and a suffix.
func NewRollback(ke *v1alpha1.KubernetesExecution, name, reason string) *v1alpha1.KubernetesExecution {
	const maxPrefix = 200 // leaves room for the suffix
	rollback := ke.Status.RollbackInformation
	created := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Namespace: ke.Namespace, Name: name},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action:        rollback.RollbackAction,
			Parameters:    rollback.RollbackParameters,
			RollbackOf:    &v1alpha1.ObjectReference{Name: ke.Name, UID: ke.UID},
			Environment:   ke.Spec.Environment,
			CorrelationID: ke.Spec.CorrelationID,
			Reason:        cmp.Or(reason, "roll back "+ke.Name),
			DryRunMode:    v1alpha1.DryRunPolicy,
		},
	}
	if name == "" {
		created.GenerateName = ke.Name[:min(len(ke.Name), maxPrefix)] + "-rollback-"
	}
	return created
}

// SetRequesterAndCreate creates an execution in the name of the person. It records no groups if there are too many.
func SetRequesterAndCreate(
	ctx context.Context,
	c client.Client,
	ke *v1alpha1.KubernetesExecution,
	requester string,
	requesterGroups []string,
) error {
	if len(requesterGroups) > maxGroups {
		requesterGroups = nil
	}
	ke.Spec.RequestedBy, ke.Spec.RequesterGroups = requester, requesterGroups
	return c.Create(ctx, ke)
}

// ActivateEmergencyStop activates the emergency stop of a namespace in the name of the person. If
// it was active already, it replaces the reason and returns the earlier one, because a resume
// must consider both. It does not stop the cancelling of running executions. It names no person if the API server does not say who it is: a missing name
// must not prevent a stop.
func ActivateEmergencyStop(
	ctx context.Context, c client.Client, namespace, reason string, cancelRunning bool,
) (previousReason string, wasActive bool, err error) {
	data := map[string]string{
		v1alpha1.StopReason:  reason,
		v1alpha1.StopRunning: fmt.Sprint(cancelRunning),
	}
	if by, _, err := CurrentUser(ctx, c); err == nil {
		data[v1alpha1.StopBy] = by
	}
	stop := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.EmergencyStop},
		Data:       data,
	}
	err = c.Create(ctx, stop)
	if !apierrors.IsAlreadyExists(err) {
		return "", false, err
	}

	// It is active already: replace its reason.
	existing := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(stop), existing); err != nil {
		return "", true, err
	}
	previousReason = existing.Data[v1alpha1.StopReason]
	newData := map[string]any{v1alpha1.StopBy: nil} // removes the earlier user if this one is unknown
	for key, value := range data {
		newData[key] = value
	}
	if !cancelRunning {
		delete(newData, v1alpha1.StopRunning) // the earlier stop may cancel running executions
	}
	patch := encodePatch(map[string]any{"data": newData})
	return previousReason, true, c.Patch(ctx, existing, client.RawPatch(types.MergePatchType, patch))
}

// EndEmergencyStop ends the emergency stop of a namespace, and reports whether it was active.
func EndEmergencyStop(ctx context.Context, c client.Client, namespace string) (wasActive bool, err error) {
	stop := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.EmergencyStop}}
	err = c.Delete(ctx, stop)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// FormatTarget returns the object that an execution acts on, as far as it is known.
func FormatTarget(ke *v1alpha1.KubernetesExecution) string {
	if ke.Status.Target != "" {
		return ke.Status.Target
	}
	target := ke.Spec.Target
	if target == nil {
		target = &v1alpha1.Target{}
	}
	namespace := cmp.Or(target.Namespace, ke.Spec.TargetNamespace)
	name := cmp.Or(target.Name, ke.Spec.ResourceName)
	var parts []string
	for _, part := range []string{target.Kind, namespace, name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

func encodePatch(patch map[string]any) []byte {
	text, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("encode patch: %v", err)) // it holds only texts, flags and approvals
	}
	return text
}
