package v1alpha1

// Labels and annotations of Jobs, Pods and targets. Label values have at most 63
// characters: AnnotationExecution has the full name of an execution.
const (
	// LabelExecution, on Jobs and Pods, is the name of the execution.
	LabelExecution = "kubernaut.io/execution-id"
	// LabelExecutionUID, on Jobs and Pods, is the UID of the execution.
	LabelExecutionUID = "kubernaut.io/execution-uid"
	// LabelAction, on Jobs and Pods, is the action.
	LabelAction = "kubernaut.io/action"
	// LabelPurpose, on Jobs and Pods, is PurposeExecute or PurposeDryRun.
	LabelPurpose = "kubernaut.io/purpose"
	// LabelOwner is OwnerValue on all Jobs and Pods of executions.
	LabelOwner = "owner"
	// OwnerValue is the value of LabelOwner.
	OwnerValue = "kubernetesexecution"

	// AnnotationExecution, on Jobs and Pods, is the full name of the execution.
	AnnotationExecution = "kubernaut.io/execution-name"
	// AnnotationPlan, on Jobs, is the hash of the plan that the Job runs.
	AnnotationPlan = "kubernaut.io/plan-hash"
	// AnnotationLastExecution, on changed objects, is the UID of the last execution
	// that changed them. It is written in the same request as the change. It is only a
	// hint, because other clients can write it too.
	AnnotationLastExecution = "kubernaut.io/last-execution"

	// LabelProtected, "true" on an object or a namespace, protects it from all
	// actions.
	LabelProtected = "kubernaut.io/protected"

	// Finalizer retains an execution until its audit is written.
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

// ConditionReasonDryRun is the reason of ConditionSucceeded for a dry run: the
// execution succeeded and changed nothing.
const ConditionReasonDryRun = "DryRun"

// The custom verbs on kubernetesexecutions that roles can grant.
const (
	// VerbExecute allows to request an action; the resource name is the action.
	VerbExecute = "execute"
	// VerbApprove allows to approve or reject executions.
	VerbApprove = "approve"
	// VerbAdminister allows to change the policies and the emergency stop, and to
	// remove the finalizer of executions without a controller.
	VerbAdminister = "administer"
)

// EmergencyStop is the name of the ConfigMap, in the namespace of the executions, that
// prevents all executions from starting while it exists.
const (
	EmergencyStop = "emergency-stop"
	// StopReason is the key with the reason of the emergency stop.
	StopReason = "reason"
	// StopBy is the key with the name of the user who set the emergency stop or changed it last. The
	// admission policies accept only the user of the request. Without the key, the user is unknown.
	StopBy = "by"
	// StopRunning is the key that cancels running executions if it is "true".
	StopRunning = "cancel-running"
)

// Names of the roles for users. The name of a requester role ends with the
// highest risk that it covers.
const (
	RequesterRole = "kubernaut-requester"
	ApproverRole  = "kubernaut-approver"
	ViewerRole    = "kubernaut-viewer"
	// AdministratorRole is for users who change policies and set the emergency stop.
	AdministratorRole = "kubernaut-administrator"
)
