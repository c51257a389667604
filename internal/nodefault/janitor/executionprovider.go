package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// ExecutionConfig configures a KubernetesExecution as provider. It remains subject to
// policies and approvals.
type ExecutionConfig struct {
	// Namespace is the namespace of the executions.
	Namespace string
	// Reboot and Terminate are the templates for the actions. A template without an
	// action rejects requests.
	Reboot, Terminate ExecutionTemplate
}

// An ExecutionTemplate is an action of the catalog with its parameters. The texts may
// have the placeholders {node}, {node_uid}, {provider_id}, {boot_id}, {idempotency_key},
// {action}, {object} and {force}.
type ExecutionTemplate struct {
	Action     string
	Parameters map[string]any
	Timeout    time.Duration // zero means the timeout of the catalog
}

// executionProvider is a provider that creates KubernetesExecutions.
type executionProvider struct {
	cfg    ExecutionConfig
	client dynamic.ResourceInterface
}

func newExecutionProvider(cfg ExecutionConfig, deps ProviderDeps) (*executionProvider, error) {
	switch {
	case deps.Dynamic == nil:
		return nil, errors.New("no Kubernetes client")
	case cfg.Namespace == "":
		return nil, errors.New("namespace of executions missing")
	case cfg.Reboot.Action == "" && cfg.Terminate.Action == "":
		return nil, errors.New("no action configured: set janitor.execution.reboot.action or janitor.execution.terminate.action")
	}
	executions := deps.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource))
	return &executionProvider{cfg, executions.Namespace(cfg.Namespace)}, nil
}

// Name returns "execution".
func (*executionProvider) Name() string { return string(ProviderExecution) }

// Start creates the execution, and waits until it is executing.
func (e *executionProvider) Start(ctx context.Context, r Request) (reference string, err error) {
	template := e.cfg.Reboot
	if r.Action == ActionTerminate {
		template = e.cfg.Terminate
	}
	if template.Action == "" {
		return "", permanentf("no execution configured to %s nodes", r.Action)
	}
	ke, err := e.client.Create(ctx, e.newExecutionObject(r, template), metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		ke, err = e.client.Get(ctx, uniqueObjectName(r), metav1.GetOptions{})
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return "", Permanent(fmt.Errorf("create execution: %w", err))
	}
	if err != nil {
		return "", fmt.Errorf("create execution: %w", err)
	}
	reference = ke.GetNamespace() + "/" + ke.GetName()
	s := readExecutionStatus(ke)
	if s.dryRun {
		return "", permanentf("%s", dryRunOnlyMessage(reference))
	}
	switch s.phase {
	case v1alpha1.PhaseExecuting, v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted:
		return reference, nil
	case v1alpha1.PhaseFailed:
		return "", permanentf("execution %s failed: %s", reference, s.phaseReasonAndMessage())
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval:
	}
	return "", waitingf("execution %s is %s", reference, s.phaseReasonAndMessage())
}

// CheckProgress returns the progress of the execution.
func (e *executionProvider) CheckProgress(
	ctx context.Context, r Request, reference string,
) (Progress, error) {
	ke, err := e.client.Get(ctx, uniqueObjectName(r), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Progress{State: StateFailed, Message: "execution " + reference + " was deleted"}, nil
	}
	if err != nil {
		return Progress{}, fmt.Errorf("read execution %s: %w", reference, err)
	}
	s := readExecutionStatus(ke)
	message := "execution " + reference + " is " + s.phaseReasonAndMessage()
	switch {
	case s.dryRun:
		return Progress{State: StateFailed, Message: dryRunOnlyMessage(reference)}, nil
	case s.phase == v1alpha1.PhaseFailed, s.outcome == v1alpha1.OutcomeFailed:
		return Progress{State: StateFailed, Message: "execution " + reference + " failed: " + s.phaseReasonAndMessage()}, nil
	case s.phase == v1alpha1.PhaseRollbackReady, s.phase == v1alpha1.PhaseCompleted:
		return Progress{State: StateDone, Message: message}, nil
	}
	return Progress{State: StateRunning, Message: message}, nil
}

// Withdraw cancels the execution.
func (e *executionProvider) Withdraw(ctx context.Context, r Request) error {
	patch := []byte(`{"spec":{"cancel":true}}`)
	_, err := e.client.Patch(ctx, uniqueObjectName(r), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cancel execution: %w", err)
	}
	return nil
}

// newExecutionObject returns the execution, which is garbage-collected with the object of the
// request.
func (e *executionProvider) newExecutionObject(r Request, t ExecutionTemplate) *unstructured.Unstructured {
	spec := map[string]any{
		"action":        t.Action,
		"parameters":    fillParameterPlaceholders(t.Parameters, r),
		"reason":        fmt.Sprintf("%s %s requests to %s node %s", r.By.Kind, r.By.Name, r.Action, r.Node.Name),
		"correlationID": r.By.Name,
	}
	if t.Timeout > 0 {
		spec["timeout"] = t.Timeout.String()
	}
	ke := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	ke.SetAPIVersion(v1alpha1.GroupVersion.String())
	ke.SetKind(v1alpha1.Kind)
	ke.SetName(uniqueObjectName(r))
	ke.SetNamespace(e.cfg.Namespace)
	ke.SetLabels(map[string]string{labelAction: string(r.Action), labelManagedBy: managedBy})
	ke.SetAnnotations(map[string]string{annotationNode: r.Node.Name})
	ke.SetOwnerReferences([]metav1.OwnerReference{ownerReferenceToRequester(r)})
	return ke
}

// fillParameterPlaceholders returns a copy of the parameters with replaced placeholders.
func fillParameterPlaceholders(parameters map[string]any, r Request) map[string]any {
	copied := make(map[string]any, len(parameters))
	for name, value := range parameters {
		copied[name] = fillValuePlaceholders(value, r)
	}
	return copied
}

func fillValuePlaceholders(value any, r Request) any {
	switch v := value.(type) {
	case string:
		return fillTextPlaceholders(v, r)
	case map[string]any:
		return fillParameterPlaceholders(v, r)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = fillValuePlaceholders(v[i], r)
		}
		return all
	case int:
		return int64(v) // the only integer type of unstructured objects
	}
	return value
}

type executionStatus struct {
	phase           v1alpha1.Phase
	outcome         v1alpha1.Outcome
	reason, message string
	dryRun          bool // succeeded as a dry run
}

func dryRunOnlyMessage(reference string) string {
	return "execution " + reference + " ran in dry run, and nothing was done: is the execution controller in dry run mode?"
}

func readExecutionStatus(ke *unstructured.Unstructured) executionStatus {
	text := func(field string) string {
		s, _, _ := unstructured.NestedString(ke.Object, "status", field) // a value of another type is ignored
		return s
	}
	return executionStatus{
		phase:   v1alpha1.Phase(text("phase")),
		outcome: v1alpha1.Outcome(text("outcome")),
		reason:  text("reason"),
		message: text("message"),
		dryRun:  wasDryRun(ke),
	}
}

// wasDryRun reports whether an execution was a dry run, as all are if the execution
// controller is in dry run mode. If it counted as executed, the Node of a running machine
// would be deleted.
func wasDryRun(ke *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(ke.Object, "status", "conditions") // a value of another type is ignored
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any) // likewise
		return condition["type"] == v1alpha1.ConditionSucceeded && condition["reason"] == v1alpha1.ConditionReasonDryRun
	})
}

// phaseReasonAndMessage returns the phase with the reason and the message.
func (s executionStatus) phaseReasonAndMessage() string {
	text := string(s.phase)
	if s.phase == v1alpha1.PhaseNew {
		text = "new"
	}
	for _, more := range []string{s.reason, s.message} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}
