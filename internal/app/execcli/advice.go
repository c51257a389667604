package execcli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// policyConfigMap is the default name of the ConfigMap with the policies.
const policyConfigMap = "safety-policies"

// NextStep is a suggested command.
type NextStep struct {
	Command string
	What    string // effect or output of the command
}

// Advice describes the state of an execution and the next steps.
type Advice struct {
	Says []string
	Do   []NextStep
}

func (a *Advice) addText(format string, args ...any) {
	a.Says = append(a.Says, fmt.Sprintf(format, args...))
}

func (a *Advice) addStep(command, what string) { a.Do = append(a.Do, NextStep{command, what}) }

// formatCommand returns a command for an execution.
func (o OutputOptions) formatCommand(verb string, ke *v1alpha1.KubernetesExecution, more ...string) string {
	words := append([]string{"fleetloop", verb, ke.Name}, more...)
	if ke.Namespace != o.Namespace {
		words = append(words, "--namespace="+ke.Namespace)
	}
	return strings.Join(words, " ")
}

// Advise returns what an execution waits for, and the next steps.
func Advise(ke *v1alpha1.KubernetesExecution, o OutputOptions) Advice {
	var a Advice
	if ke.Spec.Cancel && !executions.IsSettled(ke) {
		a.addText("The execution is being cancelled%s.", formatCancelledBy(ke))
	}
	switch ke.Status.Phase {
	case v1alpha1.PhaseNew:
		adviseNotAccepted(&a, ke, o)
	case v1alpha1.PhaseValidating:
		adviseValidating(&a, ke, o)
	case v1alpha1.PhaseValidated:
		adviseQueued(&a, ke, o)
	case v1alpha1.PhaseWaitingApproval:
		adviseWaitingApproval(&a, ke, o)
	case v1alpha1.PhaseExecuting:
		adviseExecuting(&a, ke, o)
	case v1alpha1.PhaseRollbackReady:
		adviseRollbackReady(&a, ke, o)
	case v1alpha1.PhaseCompleted:
		adviseCompleted(&a, ke, o)
	case v1alpha1.PhaseFailed:
		adviseFailed(&a, ke, o)
	}
	return a
}

// adviseNotAccepted covers an execution that no controller has seen. Each controller watches one
// namespace.
func adviseNotAccepted(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	if ke.Namespace != o.Namespace {
		a.addText("No controller has accepted the execution yet. A controller watches one namespace, by default %s. If no controller watches %s, the execution never starts.", o.Namespace, ke.Namespace)
		a.addStep("kubectl --namespace="+ke.Namespace+" delete kubernetesexecution "+ke.Name, "deletes it; then create it in the namespace of the controller")
	} else {
		a.addText("No controller has accepted the execution yet. If this persists, no controller is running.")
	}
	a.addStep("kubectl --namespace="+ke.Namespace+" get pods,leases", "shows whether a controller is running")
}

func adviseValidating(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	if open := unmetRequiredConditions(preConditionResults(ke)); len(open) > 0 {
		a.addText("The execution is waiting for its preconditions to pass: %s.", strings.Join(open, ", "))
	} else {
		a.addText("The checks are running.")
	}
	adviseBlockReason(a, ke, o)
	if !ke.Spec.Cancel {
		a.addStep(o.formatCommand("exec cancel", ke), "cancels it")
	}
}

func preConditionResults(ke *v1alpha1.KubernetesExecution) []v1alpha1.ConditionResult {
	if ke.Status.ValidationResults == nil {
		return nil
	}
	return ke.Status.ValidationResults.PreConditionResults
}

func postConditionResults(ke *v1alpha1.KubernetesExecution) []v1alpha1.ConditionResult {
	if ke.Status.ValidationResults == nil {
		return nil
	}
	return ke.Status.ValidationResults.PostConditionResults
}

// unmetRequiredConditions returns the required conditions that do not hold.
func unmetRequiredConditions(list []v1alpha1.ConditionResult) []string {
	var names []string
	for _, c := range list {
		if c.Required && !c.Passed {
			names = append(names, c.ConditionType)
		}
	}
	return names
}

// adviseQueued covers an execution that may run but is not admitted yet.
func adviseQueued(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	a.addText("The checks passed. The execution is queued.")
	adviseBlockReason(a, ke, o)
	if !ke.Spec.Cancel {
		a.addStep(o.formatCommand("exec cancel", ke), "cancels it")
	}
}

// adviseBlockReason describes why an execution is held. adviseFailed covers failures.
func adviseBlockReason(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	switch ke.Status.ReasonDetail {
	case v1alpha1.DetailTargetBusy:
		a.addText("Another execution is running on the same target. Only one at a time can run.")
		a.addStep("fleetloop exec get --phase=executing"+o.NamespaceFlag(ke), "shows running executions")
	case v1alpha1.DetailCooldown:
		a.addText("The same action ran on the target recently. The cooldown is not over.")
	case v1alpha1.DetailBudgetExceeded:
		a.addText("A concurrency limit is reached.")
		a.addStep("fleetloop exec get --phase=executing"+o.NamespaceFlag(ke), "shows running executions")
	case v1alpha1.DetailCircuitOpen:
		a.addText("The circuit breaker is open: the same action failed too often on the same target.")
	case v1alpha1.DetailEmergencyStop:
		a.addText("The emergency stop is active.")
		a.addStep("kubectl --namespace="+ke.Namespace+" get configmap emergency-stop -o yaml", "shows the reason")
		a.addStep("fleetloop exec end-stop"+o.NamespaceFlag(ke), "ends the emergency stop")
	case v1alpha1.DetailPolicyUnavailable:
		a.addText("No policies are loaded, so all actions are denied.")
		a.addStep(
			"kubectl --namespace="+ke.Namespace+" get configmap "+policyConfigMap,
			"shows the policies (under their default name); the log of the controller shows load errors",
		)
	case v1alpha1.DetailAdmissionPoliciesMissing:
		a.addText(
			"Approvals are valid only while the admission policies of deploy/admission-policies are in force. An administrator must apply them; then approval is requested again.",
		)
	case v1alpha1.DetailExecutorUnavailable:
		a.addText("The action cannot be started at the moment. The controller retries.")
	case v1alpha1.DetailUnknownAction, v1alpha1.DetailInvalidParameters, v1alpha1.DetailRBACDenied, v1alpha1.DetailAdmissionDenied, v1alpha1.DetailTargetNotFound,
		v1alpha1.DetailInvalidTargetState, v1alpha1.DetailTargetProtected, v1alpha1.DetailPolicyDenied, v1alpha1.DetailPreConditionFailed,
		v1alpha1.DetailResultUnknown, v1alpha1.DetailTargetChanged, v1alpha1.DetailPartiallyExecuted, v1alpha1.DetailRequesterUnverified, v1alpha1.DetailConditionKilled:
	}
}

// NamespaceFlag returns the namespace flag of an execution outside the default namespace.
func (o OutputOptions) NamespaceFlag(ke *v1alpha1.KubernetesExecution) string {
	if ke.Namespace == o.Namespace {
		return ""
	}
	return " --namespace=" + ke.Namespace
}

func adviseWaitingApproval(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	status := ke.Status.Approval
	if status == nil || status.State == v1alpha1.ApprovalApproved {
		a.addText("The plan is approved. The execution is queued.")
		adviseBlockReason(a, ke, o)
	} else {
		a.addText("%s", describeApprovalWait(ke, o.Now))
		adviseBlockReason(a, ke, o)
		a.addStep(o.formatCommand("approve", ke, "--reason=TEXT"), "shows the plan and approves it")
		a.addStep(o.formatCommand("reject", ke, "--reason=TEXT"), "rejects it")
	}
	if !ke.Spec.Cancel {
		a.addStep(o.formatCommand("exec cancel", ke), "cancels it")
	}
}

// describeApprovalWait describes whose approvals are missing, and until when.
func describeApprovalWait(ke *v1alpha1.KubernetesExecution, now time.Time) string {
	status := ke.Status.Approval
	missing := max(0, requiredApprovals(status)-len(listApprovers(status)))
	text := fmt.Sprintf("The execution is waiting for %d more approvals", missing)
	if missing == 1 {
		text = "The execution is waiting for 1 more approval"
	}
	if len(status.Groups) > 0 {
		text += " from members of " + strings.Join(status.Groups, " or ")
	}
	if status.RequesterCannotApprove {
		text += ", not from " + cmp.Or(ke.Spec.RequestedBy, "the requester")
	}
	if already := listApprovers(status); len(already) > 0 {
		text += fmt.Sprintf(" (received: %s)", strings.Join(already, ", "))
	}
	if status.Deadline == nil {
		return text + ", without a deadline."
	}
	left := status.Deadline.Sub(now)
	if left <= 0 {
		return text + "; the deadline has passed."
	}
	return fmt.Sprintf("%s, deadline %s (in %s).", text, status.Deadline.UTC().Format(time.RFC3339), terminal.Age(left))
}

func adviseExecuting(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	results := ke.Status.ExecutionResults
	switch {
	case results != nil && results.EndTime != nil && len(ke.Spec.PostConditions) > 0:
		a.addText(
			"The action succeeded. The execution is waiting for its postconditions to pass: %s.",
			strings.Join(firstNonEmpty(unmetRequiredConditions(postConditionResults(ke)), conditionTypes(ke.Spec.PostConditions)), ", "),
		)
	case ke.Status.JobName != "":
		a.addText("Job %s is running the action.", ke.Status.JobName)
		a.addStep(o.formatCommand("logs", ke, "--follow"), "shows the log")
		a.addStep(
			"kubectl --namespace="+ke.Namespace+" describe jobs,pods --show-events --selector="+v1alpha1.LabelExecutionUID+"="+string(
				ke.UID,
			),
			"shows why the Pod does not start",
		)
	default:
		a.addText("The action is starting.")
	}
	adviseBlockReason(a, ke, o)
	if !ke.Spec.Cancel {
		a.addStep(o.formatCommand("exec cancel", ke), "cancels it")
	}
}

func firstNonEmpty(one, other []string) []string {
	if len(one) > 0 {
		return one
	}
	return other
}

func conditionTypes(list []v1alpha1.Condition) []string {
	var names []string
	for _, c := range list {
		names = append(names, c.Type)
	}
	return names
}

func adviseRollbackReady(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	if ke.Status.Outcome == v1alpha1.OutcomeFailed {
		a.addText(
			"The action succeeded, but required postconditions failed: %s. It is not rolled back automatically.",
			strings.Join(firstNonEmpty(unmetRequiredConditions(postConditionResults(ke)), []string{"see below"}), ", "),
		)
	} else {
		a.addText("The action succeeded. It can be rolled back as long as nothing else changes the target.")
	}
	if hasAvailableRollback(ke) {
		a.addStep(o.formatCommand("rollback", ke, "--reason=TEXT"), "rolls it back")
	}
	if !ke.Spec.Finalize {
		a.addStep(o.formatCommand("exec finalize", ke), "ends the rollback window now")
	}
}

func hasAvailableRollback(ke *v1alpha1.KubernetesExecution) bool {
	return ke.Status.RollbackInformation != nil && ke.Status.RollbackInformation.Available
}

func adviseCompleted(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	if IsDryRun(ke) {
		a.addText("The dry run passed. Nothing was changed.")
		if ke.Spec.DryRunMode != v1alpha1.DryRunOnly {
			a.addText("The controller runs with --dry-run: it does not change anything.")
		}
		return
	}
	a.addText("The execution is completed.")
	if hasAvailableRollback(ke) {
		a.addStep(o.formatCommand("rollback", ke, "--reason=TEXT"), "rolls it back, if nothing else has changed the target")
	}
}

// IsDryRun reports whether an execution was only a dry run, by request or because its
// controller executes nothing.
func IsDryRun(ke *v1alpha1.KubernetesExecution) bool {
	return ke.Spec.DryRunMode == v1alpha1.DryRunOnly || slices.ContainsFunc(ke.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionSucceeded && c.Reason == "DryRun"
	})
}

func adviseFailed(a *Advice, ke *v1alpha1.KubernetesExecution, o OutputOptions) {
	if ke.Status.ExecutionResults == nil {
		a.addText("The execution failed. Nothing was changed.")
	} else {
		a.addText("The execution failed.")
	}
	if text := failureAdvice(ke, o); text != "" {
		a.addText("%s", text)
	}
	if ke.Status.JobName != "" && ke.Status.ExecutionResults != nil {
		a.addStep(o.formatCommand("logs", ke), "shows the log of the action, as long as its Pod exists")
	}
	if hasAvailableRollback(ke) {
		a.addStep(o.formatCommand("rollback", ke, "--reason=TEXT"), "rolls back the changes, if nothing else has changed the target")
	}
}

// permissionGrantAdvice explains how to grant the missing rights of an action. Two actions have no rights
// until an administrator names their objects.
func permissionGrantAdvice(ke *v1alpha1.KubernetesExecution) string {
	does := ke.Spec.Action
	if a, known := action.Find(does); known {
		does = a.Name
	}
	switch does {
	case "update_secret":
		return "An administrator must add the Secret to the role of the action (deploy/rbac/actions-secrets.yaml, or rbac.secretNames of the chart) and bind it in the namespace of the target"
	case "apply_manifest":
		return "An administrator must add the kind to the role of the action (deploy/rbac/actions-manifests.yaml, or rbac.manifestKinds of the chart) and bind it in the namespace of the target"
	}
	return "An administrator must bind the role of the action in the namespace of the target"
}

// failureAdvice returns advice for a failure, by its detail or else by its reason.
func failureAdvice(ke *v1alpha1.KubernetesExecution, o OutputOptions) string {
	details := map[v1alpha1.Detail]string{
		v1alpha1.DetailUnknownAction:            "List the available actions with: fleetloop exec actions",
		v1alpha1.DetailInvalidParameters:        "fleetloop exec actions " + ke.Spec.Action + " describes the parameters.",
		v1alpha1.DetailRBACDenied:               permissionGrantAdvice(ke) + "; then create the execution again.",
		v1alpha1.DetailAdmissionDenied:          "Admission control of the cluster denied the change. The message names the webhook, policy or quota. Request a change that it allows.",
		v1alpha1.DetailTargetNotFound:           "Create the execution again with an existing target.",
		v1alpha1.DetailInvalidTargetState:       "The state of the target does not allow the action. Create the execution again when it does.",
		v1alpha1.DetailTargetProtected:          "The target is protected. This cannot be overridden.",
		v1alpha1.DetailPolicyDenied:             "The violated rules of the policy are listed below. Request an action that they allow.",
		v1alpha1.DetailPolicyUnavailable:        "Without policies all actions are denied. Fix the policies, then create the execution again.",
		v1alpha1.DetailPreConditionFailed:       "Required preconditions failed: " + strings.Join(firstNonEmpty(unmetRequiredConditions(preConditionResults(ke)), []string{"see below"}), ", ") + ". Create the execution again when they pass.",
		v1alpha1.DetailConditionKilled:          "A condition exceeded its CPU or memory limit. Simplify it, then create the execution again.",
		v1alpha1.DetailTargetBusy:               "Other executions occupied the target until the queue timed out. Create the execution again.",
		v1alpha1.DetailCooldown:                 "Create the execution again later.",
		v1alpha1.DetailBudgetExceeded:           "A concurrency limit was reached until the queue timed out. Create the execution again.",
		v1alpha1.DetailCircuitOpen:              "The circuit breaker is open: the same action failed too often on this target. Find the cause first.",
		v1alpha1.DetailEmergencyStop:            "The emergency stop is active: fleetloop exec end-stop" + o.NamespaceFlag(ke) + " ends it.",
		v1alpha1.DetailAdmissionPoliciesMissing: "An administrator must apply deploy/admission-policies; then create the execution again.",
		v1alpha1.DetailRequesterUnverified:      "An administrator must make sure that the admission policies of deploy/admission-policies are in force; then create the execution again.",
		v1alpha1.DetailExecutorUnavailable:      "The Pod of the action could not start. Check its image, the capacity of the nodes, and quotas.",
		v1alpha1.DetailResultUnknown:            "The result of the action is unknown. Check the target first.",
		v1alpha1.DetailTargetChanged:            "The target was changed meanwhile. Check it, then create the execution again.",
		v1alpha1.DetailPartiallyExecuted:        "The action was executed partially. Check the target.",
	}
	if text, ok := details[ke.Status.ReasonDetail]; ok {
		return text
	}
	switch ke.Status.Reason {
	case v1alpha1.ReasonDryRunFailed:
		return "The API server rejected the change in the dry run. The reason is listed below."
	case v1alpha1.ReasonApprovalTimeout:
		return "The approval deadline passed. Create the execution again."
	case v1alpha1.ReasonApprovalRejected:
		return "The plan was rejected. The reason is listed below."
	case v1alpha1.ReasonPlanStale:
		return "The target or the policy changed after the plan was approved, so nothing was executed. Create the execution again."
	case v1alpha1.ReasonExecutionTimeout:
		return "The action timed out. Check the target, then create the execution again with a longer --timeout."
	case v1alpha1.ReasonExecutionFailed:
		return "The result below shows the error."
	case v1alpha1.ReasonPostConditionFailed:
		return "The action succeeded, but required postconditions failed: " + strings.Join(firstNonEmpty(unmetRequiredConditions(postConditionResults(ke)), []string{"see below"}), ", ") + "."
	case v1alpha1.ReasonCancelled:
		if ke.Status.ExecutionResults == nil {
			return "The execution was cancelled" + formatCancelledBy(ke) + ". To run it after all, create it again with another name."
		}
		return "The execution was cancelled" + formatCancelledBy(ke) + " while the action was running. Check the target."
	case v1alpha1.ReasonValidationError:
	}
	return ""
}

// formatCancelledBy returns who cancelled, if known.
func formatCancelledBy(ke *v1alpha1.KubernetesExecution) string {
	if ke.Spec.CancelledBy == "" {
		return ""
	}
	return " by " + ke.Spec.CancelledBy
}
