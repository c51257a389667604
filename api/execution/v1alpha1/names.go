package v1alpha1

// Labels and annotations of the specification, and ours beside them. Label
// values have 63 characters at most: a longer name of an execution is cut, and
// stands whole in the annotation AnnotationExecution.
const (
	// LabelExecution is, on Jobs and Pods, the name of the execution.
	LabelExecution = "kubernaut.io/execution-id"
	// LabelExecutionUID is, on Jobs and Pods, the UID of the execution.
	LabelExecutionUID = "kubernaut.io/execution-uid"
	// LabelAction is, on Jobs and Pods, the action.
	LabelAction = "kubernaut.io/action"
	// LabelPurpose is, on Jobs and Pods, what they are for: PurposeExecute or
	// PurposeDryRun.
	LabelPurpose = "kubernaut.io/purpose"
	// LabelOwner is OwnerValue on all Jobs and Pods of executions.
	LabelOwner = "owner"
	// OwnerValue is the value of LabelOwner.
	OwnerValue = "kubernetesexecution"

	// AnnotationExecution is, on Jobs and Pods, the whole name of the execution.
	AnnotationExecution = "kubernaut.io/execution-name"
	// AnnotationPlan is, on Jobs, the hash of the plan that the Job runs.
	AnnotationPlan = "kubernaut.io/plan-hash"
	// AnnotationLastExecution is, on objects that an action has changed, the UID
	// of the execution that did so last. It is written in the same request as
	// the change. It is a hint and no proof, since others can write it too: a
	// second attempt looks at what has changed as well.
	AnnotationLastExecution = "kubernaut.io/last-execution"

	// LabelProtected, "true" on an object or a namespace, keeps every action
	// away from it.
	LabelProtected = "kubernaut.io/protected"

	// Finalizer keeps an execution until what became of it is in the audit.
	Finalizer = "kubernaut.io/execution-audit"
)

// The values of LabelPurpose.
const (
	PurposeExecute = "execute"
	PurposeDryRun  = "dry-run"
)

// The conditions of an execution.
const (
	ConditionValidated         = "Validated"
	ConditionApproved          = "Approved"
	ConditionQueued            = "Queued" // True while something keeps the execution from its turn
	ConditionExecuted          = "Executed"
	ConditionPostConditionsMet = "PostConditionsMet"
	ConditionRollbackAvailable = "RollbackAvailable"
	ConditionAuditRecorded     = "AuditRecorded"
	ConditionSucceeded         = "Succeeded" // the summary
)

// TriedOut is the reason of ConditionSucceeded where an execution was a dry run:
// it has succeeded, and nothing was done.
const TriedOut = "DryRun"

// The verbs on kubernetesexecutions that roles can grant beside the usual ones.
const (
	// VerbExecute is to ask for an action; the resource name is the action.
	VerbExecute = "execute"
	// VerbApprove is to approve or reject an execution, or all of a namespace.
	VerbApprove = "approve"
	// VerbAdminister is to change the policies and the emergency stop, and to
	// release executions whose controller is gone.
	VerbAdminister = "administer"
)

// EmergencyStop is the name of the ConfigMap, in the namespace of the executions,
// that keeps every execution from beginning while it is there.
const (
	EmergencyStop = "emergency-stop"
	// StopReason is the key in it that says why.
	StopReason = "reason"
	// StopRunning is the key in it that, if it is "true", has what runs be
	// cancelled.
	StopRunning = "cancel-running"
)
