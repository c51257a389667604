package guard

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// CEL expressions: user and where are the user and the namespace of a request.
const (
	user  = "request.userInfo.username"
	where = "request.namespace"

	// userGroups is the list of the user's groups.
	userGroups = "request.userInfo.?groups.orValue([])"

	// objectName is the name of the object. It is empty in a request that deletes all objects.
	objectName = "(object == null ? oldObject : object).metadata.?name.orValue('')"
	// withNamespace is true if the object is deleted together with its namespace.
	withNamespace = "request.operation == 'DELETE' && has(namespaceObject.metadata.deletionTimestamp)"
)

// forged is the first part of the refusal of a canary. The rest of the message says how to correct
// the request.
const forged = "spec.approvals must be empty when an execution is created"

// executionCreationPolicy limits who may create which executions, and in whose name.
func (o Options) executionCreationPolicy() *admissionv1.ValidatingAdmissionPolicy {
	p := o.newValidatingPolicy(policyRequests, matchExecutions("", admissionv1.Create))
	p.Spec.Variables = []admissionv1.Variable{
		{Name: "asks", Expression: "object.spec.?requestedBy.orValue('')"},
		{Name: "trusted", Expression: celStringList(o.TrustedRequesters)},
	}
	p.Spec.Validations = newValidations(
		validationRule{
			"size(object.spec.?approvals.orValue([])) == 0",
			quoteCEL(forged + ", because there is no plan to approve yet: omit it; approvers add their entries in phase waiting_approval"),
		},
		validationRule{
			"!object.spec.?approvalReceived.orValue(false)",
			quoteCEL(
				"spec.approvalReceived must be unset when an execution is created, because there is no plan to approve yet: omit it; an approver sets it in phase waiting_approval",
			),
		},
		validationRule{
			"!object.spec.?cancel.orValue(false) && !object.spec.?finalize.orValue(false) && object.spec.?cancelledBy.orValue('') == ''",
			quoteCEL("spec.cancel, spec.cancelledBy and spec.finalize must be unset when an execution is created: omit them"),
		},
		validationRule{
			"variables.asks == '' || variables.asks == " + user + " || " + user + " in variables.trusted",
			"'spec.requestedBy is ' + variables.asks + ', but the request is from ' + " + user + " + ': set it to your own user name or omit it'",
		},
		validationRule{
			"object.spec.?requesterGroups.orValue([]).all(g, g in " + userGroups + ") || " + user + " in variables.trusted",
			quoteCEL(
				"spec.requesterGroups has a group that the requester is not a member of: omit it, or set groups that kubectl auth whoami shows",
			),
		},
		validationRule{
			celUserMay(v1alpha1.VerbExecute, "object.spec.action"),
			user + " + ' is not allowed to request ' + object.spec.action + ' in namespace ' + " + where +
				" + ': use a role that grants the verb execute on kubernetesexecutions with the resource name ' + object.spec.action",
		},
	)
	return p
}

// changePolicy limits changes of existing executions, except approvals.
func (o Options) changePolicy() *admissionv1.ValidatingAdmissionPolicy {
	p := o.newValidatingPolicy(policyChanges, matchExecutions("", admissionv1.Update))
	p.Spec.Variables = []admissionv1.Variable{
		{Name: "requester", Expression: "oldObject.spec.?requestedBy.orValue('')"},
		{Name: "administers", Expression: celUserMay(v1alpha1.VerbAdminister, "")},
		{
			Name:       "ends",
			Expression: "object.spec.?cancel.orValue(false) && !oldObject.spec.?cancel.orValue(false) || object.spec.?finalize.orValue(false) && !oldObject.spec.?finalize.orValue(false)",
		},
		{Name: "canceller", Expression: "object.spec.?cancelledBy.orValue('')"},
		{Name: "owners", Expression: "oldObject.metadata.?ownerReferences.orValue([])"},
	}
	p.Spec.Validations = newValidations(
		validationRule{
			// The schema does not define the fields of parameters, so its rules
			// cannot compare them.
			"dyn(object.spec).?parameters == dyn(oldObject.spec).?parameters",
			quoteCEL("spec.parameters is immutable, because the plan was made for the requested parameters: create another execution"),
		},
		validationRule{
			"!variables.ends || variables.requester == " + user + " || " + celUserMay(v1alpha1.VerbExecute, "oldObject.spec.action") + " || " +
				celUserMay(v1alpha1.VerbApprove, "oldObject.metadata.name") + " || variables.administers",
			user + " + ' is not allowed to cancel or finalize ' + oldObject.metadata.name + ': ask the requester, or a user with the verb execute on the action or approve on the execution'",
		},
		validationRule{
			"variables.canceller == oldObject.spec.?cancelledBy.orValue('') || " +
				"variables.canceller == " + user + " && object.spec.?cancel.orValue(false) && !oldObject.spec.?cancel.orValue(false)",
			"'spec.cancelledBy of ' + oldObject.metadata.name + ' must be the user who sets spec.cancel, in the same request: omit it or set it to ' + " + user + " + ' together with spec.cancel'",
		},
		validationRule{
			fmt.Sprintf(
				"!(%[1]s in oldObject.metadata.?finalizers.orValue([])) || %[1]s in object.metadata.?finalizers.orValue([]) || %[2]s == %[3]s || variables.administers",
				quoteCEL(v1alpha1.Finalizer),
				user,
				quoteCEL(o.ControllerUser),
			),
			quoteCEL(
				"the finalizer " + v1alpha1.Finalizer + " belongs to the controller, which removes it after the audit is written: delete the execution and wait; without a controller, a user with the verb administer on kubernetesexecutions can remove it",
			),
		},
		validationRule{
			// A finalizer that no controller removes would block the deletion.
			fmt.Sprintf(
				"object.metadata.?finalizers.orValue([]).all(f, f in oldObject.metadata.?finalizers.orValue([])) || variables.requester == %[1]s || %[1]s == %[2]s || variables.administers",
				user,
				quoteCEL(o.ControllerUser),
			),
			user + " + ' is not allowed to add a finalizer to ' + oldObject.metadata.name + ', which would block its deletion: ask the requester, or a user with the verb administer on kubernetesexecutions'",
		},
		validationRule{
			// The garbage collector deletes an object whose owner does not exist.
			// It also changes blockOwnerDeletion.
			"object.metadata.?ownerReferences.orValue([]).all(now, variables.owners.exists(was, was.uid == now.uid && was.apiVersion == now.apiVersion && was.kind == now.kind && was.name == now.name && was.?controller == now.?controller))" +
				" || variables.requester == " + user + " || variables.administers",
			user + " + ' is not allowed to change the owner references of ' + oldObject.metadata.name + ', which could delete it: ask the requester, who can change them'",
		},
	)
	return p
}

// approvalPolicy limits who may approve which plan, and when.
func (o Options) approvalPolicy() *admissionv1.ValidatingAdmissionPolicy {
	p := o.newValidatingPolicy(policyApprovals, matchExecutions("", admissionv1.Update))
	p.Spec.Variables = []admissionv1.Variable{
		// The schema allows one entry per approver and no removal. An approver can
		// replace an entry for an older plan.
		{
			Name:       "added",
			Expression: "object.spec.?approvals.orValue([]).filter(a, !oldObject.spec.?approvals.orValue([]).exists(b, a == b))",
		},
		{
			Name:       "decides",
			Expression: "size(variables.added) > 0 || object.spec.?approvalReceived.orValue(false) && !oldObject.spec.?approvalReceived.orValue(false)",
		},
		{Name: "named", Expression: "oldObject.metadata.name"},
		{Name: "phase", Expression: "oldObject.?status.phase.orValue('')"},
		{Name: "approved", Expression: "oldObject.?status.approval.state.orValue('') == " + quoteCEL(string(v1alpha1.ApprovalApproved))},
		{Name: "plan", Expression: "oldObject.?status.plan.hash.orValue('')"},
		{
			Name:       "requesterCannotApprove",
			Expression: "oldObject.?status.approval.requesterCannotApprove.orValue(false) || oldObject.spec.?requestedByAgent.orValue('') != ''",
		},
		{Name: "groups", Expression: "oldObject.?status.approval.groups.orValue([])"},
		{Name: "requester", Expression: "oldObject.spec.?requestedBy.orValue('')"},
		{Name: "trusted", Expression: celStringList(o.TrustedRequesters)},
	}
	const unless = "!variables.decides || "
	p.Spec.Validations = newValidations(
		validationRule{
			unless + "variables.phase == " + quoteCEL(string(v1alpha1.PhaseWaitingApproval)),
			"variables.named + (variables.phase in ['', 'validating', 'validated'] ? ' is not waiting for approval yet and has no plan: wait for phase waiting_approval' : ' is in phase ' + variables.phase + ' and no longer waiting for approval: create another execution if it is still needed')",
		},
		validationRule{
			// A rejection that is accepted here would have no effect.
			unless + "!variables.approved",
			"variables.named + ' is approved already and waits to be executed: set spec.cancel to stop it, for example with fleetloop exec cancel ' + variables.named",
		},
		validationRule{
			// This also prevents two entries: the second would name another approver.
			"variables.added.all(a, a.approver == " + user + ")",
			"'the request is from ' + " + user + " + ', but the approval names another approver: add one entry at a time, with spec.approvals[].approver set to ' + " + user,
		},
		validationRule{
			"variables.plan != '' && variables.added.all(a, a.planHash == variables.plan) || !variables.decides",
			"variables.plan == '' ? variables.named + ' has no plan to approve yet: wait for status.plan' : 'the approval is for a different plan than the current one of ' + variables.named + ': review status.plan and approve its hash, ' + variables.plan",
		},
		validationRule{
			unless + "!variables.requesterCannotApprove || variables.requester != '' && variables.requester != " + user + " && !(" + user + " in variables.trusted)",
			"variables.requester == '' ? 'the requester is excluded from approving, but ' + variables.named + ' has no spec.requestedBy: create it again with spec.requestedBy' : 'the requester is excluded from approving ' + variables.named + ', and ' + " + user + " + (variables.requester == " + user + " ? ' requested it' : ' is a trusted requester') + ': ask another person to approve'",
		},
		validationRule{
			unless + "size(variables.groups) == 0 || variables.groups.exists(g, g in request.userInfo.?groups.orValue([]))",
			"'approvers of ' + variables.named + ' must be in group ' + variables.groups.join(' or ') + ', and ' + " + user + " + ' is not: ask a member to approve'",
		},
		validationRule{
			unless + celUserMay(v1alpha1.VerbApprove, "variables.named"),
			user + " + ' is not allowed to approve or reject ' + variables.named + ' in namespace ' + " + where +
				" + ': use a role that grants the verb approve on kubernetesexecutions'",
		},
	)
	return p
}

// statusPolicy lets only the controller write the status of executions and the record of the
// period.
func (o Options) statusPolicy() *admissionv1.ValidatingAdmissionPolicy {
	p := o.newValidatingPolicy(policyStatus, matchExecutions("status", admissionv1.Update))
	p.Spec.MatchConstraints.ResourceRules = append(
		p.Spec.MatchConstraints.ResourceRules,
		matchResource(
			coordinationv1.GroupName,
			coordinationv1.SchemeGroupVersion.Version,
			"leases",
			admissionv1.Create,
			admissionv1.Update,
			admissionv1.Delete,
		),
	)
	p.Spec.MatchConditions = []admissionv1.MatchCondition{
		{Name: "controllers-own", Expression: "request.resource.resource != 'leases' || " + objectName + " == " + quoteCEL(RecordName)},
	}
	p.Spec.Validations = newValidations(validationRule{
		user + " == " + quoteCEL(o.ControllerUser) + " || " + withNamespace,
		"request.resource.resource == 'leases' ? 'Lease " + RecordName + " records since when the admission policies are in force, and ' + " + user + " + ' is not the controller: do not change it' : " +
			"'only the controller can change the status of an execution, and ' + " + user + " + ' is not the controller: set spec.cancel or spec.finalize to end an execution, or create another one'",
	})
	return p
}

// settingsConfigMapPolicy limits who may change the policies and the emergency stop, and whom a stop names.
func (o Options) settingsConfigMapPolicy() *admissionv1.ValidatingAdmissionPolicy {
	p := o.newValidatingPolicy(policySettings, matchResource(corev1.GroupName, corev1.SchemeGroupVersion.Version, "configmaps", admissionv1.Create, admissionv1.Update, admissionv1.Delete))
	p.Spec.MatchConditions = []admissionv1.MatchCondition{
		{Name: "settings", Expression: objectName + " in " + celStringList([]string{o.PolicyConfigMap, v1alpha1.EmergencyStop})},
	}
	admin := withNamespace + " || " + celUserMay(v1alpha1.VerbAdminister, "")
	if o.PolicyAdmins != "" {
		admin += " || " + quoteCEL(o.PolicyAdmins) + " in request.userInfo.?groups.orValue([])"
	}
	p.Spec.Validations = newValidations(
		validationRule{
			admin,
			user + " + ' is not allowed to change ConfigMap ' + " + objectName + " + ', which controls executions: use a role that grants the verb administer on kubernetesexecutions in namespace ' + " + where,
		},
		validationRule{
			// A change of the reason or of its effect is a change by another user.
			"request.operation == 'DELETE' || " + objectName + " != " + quoteCEL(v1alpha1.EmergencyStop) + " || " +
				"object.?data.?" + v1alpha1.StopBy + ".orValue(" + user + ") == " + user + " || request.operation == 'UPDATE' && object.?data == oldObject.?data",
			"'key " + v1alpha1.StopBy + " of ConfigMap " + v1alpha1.EmergencyStop + " names the user who sets or changes the stop, and ' + " + user + " + ' is not ' + object.data." + v1alpha1.StopBy +
				" + ': omit the key, or set it to ' + " + user,
		},
	)
	return p
}
