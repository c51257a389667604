package guard

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// user and where are the user and the namespace of a request, in expressions.
const (
	user  = "request.userInfo.username"
	where = "request.namespace"

	// userGroups are the groups of the user.
	userGroups = "request.userInfo.?groups.orValue([])"

	// objectName is the name of the object: a request that deletes all of them has none.
	objectName = "(object == null ? oldObject : object).metadata.?name.orValue('')"
	// withNamespace is that the object goes with all that is in its namespace.
	withNamespace = "request.operation == 'DELETE' && has(namespaceObject.metadata.deletionTimestamp)"
)

// forged begins what a canary is told; the rest of it says what to do instead.
const forged = "an execution is created without approvals"

// requests is who may ask for what, and as whom.
func (o Options) requests() *admissionv1.ValidatingAdmissionPolicy {
	p := o.policy(policyRequests, executions("", admissionv1.Create))
	p.Spec.Variables = []admissionv1.Variable{
		{Name: "asks", Expression: "object.spec.?requestedBy.orValue('')"},
		{Name: "trusted", Expression: listOf(o.TrustedRequesters)},
	}
	p.Spec.Validations = rules(
		rule{
			"size(object.spec.?approvals.orValue([])) == 0",
			quote(forged + ", because there is no plan yet that anybody could have looked at: leave spec.approvals out; approvers add theirs once it waits for approval"),
		},
		rule{
			"!object.spec.?approvalReceived.orValue(false)",
			quote("an execution is created without approval, because there is no plan yet that anybody could have looked at: leave spec.approvalReceived out; an approver sets it once the execution waits for approval"),
		},
		rule{
			"!object.spec.?cancel.orValue(false) && !object.spec.?finalize.orValue(false) && object.spec.?cancelledBy.orValue('') == ''",
			quote("an execution is not cancelled or finalized before it is there: leave spec.cancel, spec.cancelledBy and spec.finalize out, or do not create it"),
		},
		rule{
			"variables.asks == '' || variables.asks == " + user + " || " + user + " in variables.trusted",
			"'spec.requestedBy says ' + variables.asks + ', and the request is from ' + " + user + " + ': nobody asks in the name of another; leave it out or write your own user name'",
		},
		rule{
			"object.spec.?requesterGroups.orValue([]).all(g, g in " + userGroups + ") || " + user + " in variables.trusted",
			quote("spec.requesterGroups names a group that the request does not come from: leave it out, or write groups that kubectl auth whoami shows"),
		},
		rule{
			may(v1alpha1.VerbExecute, "object.spec.action"),
			user + " + ' may not ask for ' + object.spec.action + ' in namespace ' + " + where +
				" + ': that needs the verb execute on kubernetesexecutions with the name ' + object.spec.action + '; have somebody ask who has it, or be given a role that grants it'",
		},
	)
	return p
}

// changes is what becomes of an execution once it is there, approvals aside.
func (o Options) changes() *admissionv1.ValidatingAdmissionPolicy {
	p := o.policy(policyChanges, executions("", admissionv1.Update))
	p.Spec.Variables = []admissionv1.Variable{
		{Name: "requester", Expression: "oldObject.spec.?requestedBy.orValue('')"},
		{Name: "administers", Expression: may(v1alpha1.VerbAdminister, "")},
		{Name: "ends", Expression: "object.spec.?cancel.orValue(false) && !oldObject.spec.?cancel.orValue(false) || object.spec.?finalize.orValue(false) && !oldObject.spec.?finalize.orValue(false)"},
		{Name: "canceller", Expression: "object.spec.?cancelledBy.orValue('')"},
		{Name: "owners", Expression: "oldObject.metadata.?ownerReferences.orValue([])"},
	}
	p.Spec.Validations = rules(
		rule{
			// The schema does not know what is in parameters, so its own rules
			// cannot compare them.
			"dyn(object.spec).?parameters == dyn(oldObject.spec).?parameters",
			quote("spec.parameters do not change, because the plan was made for those that were asked for: create another execution"),
		},
		rule{
			"!variables.ends || variables.requester == " + user + " || " + may(v1alpha1.VerbExecute, "oldObject.spec.action") + " || " +
				may(v1alpha1.VerbApprove, "oldObject.metadata.name") + " || variables.administers",
			user + " + ' may not cancel or finalize ' + oldObject.metadata.name + ': that is for who asked for it, and for those with the verb execute on its action or approve on it; ask one of them'",
		},
		rule{
			"variables.canceller == oldObject.spec.?cancelledBy.orValue('') || " +
				"variables.canceller == " + user + " && object.spec.?cancel.orValue(false) && !oldObject.spec.?cancel.orValue(false)",
			"'spec.cancelledBy of ' + oldObject.metadata.name + ' is who cancels it, in the request that does: leave it out, or write ' + " + user + " + ' together with spec.cancel'",
		},
		rule{
			fmt.Sprintf("!(%[1]s in oldObject.metadata.?finalizers.orValue([])) || %[1]s in object.metadata.?finalizers.orValue([]) || %[2]s == %[3]s || variables.administers",
				quote(v1alpha1.Finalizer), user, quote(o.ControllerUser)),
			quote("the finalizer " + v1alpha1.Finalizer + " is the controller's, which takes it off once what became of the execution is in the audit: delete the execution and wait; where there is no controller any more, whoever has the verb administer on kubernetesexecutions can take it off"),
		},
		rule{
			// With a finalizer that nobody takes off, the object could not be deleted.
			fmt.Sprintf("object.metadata.?finalizers.orValue([]).all(f, f in oldObject.metadata.?finalizers.orValue([])) || variables.requester == %[1]s || %[1]s == %[2]s || variables.administers",
				user, quote(o.ControllerUser)),
			user + " + ' may not give ' + oldObject.metadata.name + ' another finalizer, with which it could not be deleted: leave it out; its requester can add one, and whoever has the verb administer on kubernetesexecutions'",
		},
		rule{
			// The garbage collector deletes what has an owner that is not there.
			// It changes blockOwnerDeletion itself.
			"object.metadata.?ownerReferences.orValue([]).all(now, variables.owners.exists(was, was.uid == now.uid && was.apiVersion == now.apiVersion && was.kind == now.kind && was.name == now.name && was.?controller == now.?controller))" +
				" || variables.requester == " + user + " || variables.administers",
			user + " + ' may not give ' + oldObject.metadata.name + ' another owner, with which it could be deleted: owners are set when an execution is created; its requester can change them'",
		},
	)
	return p
}

// approvals is who approves, of what, and when.
func (o Options) approvals() *admissionv1.ValidatingAdmissionPolicy {
	p := o.policy(policyApprovals, executions("", admissionv1.Update))
	p.Spec.Variables = []admissionv1.Variable{
		// The schema has one entry for each approver and takes none away. One that is
		// about an older plan can be put in the place of another.
		{Name: "added", Expression: "object.spec.?approvals.orValue([]).filter(a, !oldObject.spec.?approvals.orValue([]).exists(b, a == b))"},
		{Name: "decides", Expression: "size(variables.added) > 0 || object.spec.?approvalReceived.orValue(false) && !oldObject.spec.?approvalReceived.orValue(false)"},
		{Name: "named", Expression: "oldObject.metadata.name"},
		{Name: "phase", Expression: "oldObject.?status.phase.orValue('')"},
		{Name: "plan", Expression: "oldObject.?status.plan.hash.orValue('')"},
		{Name: "fourEyes", Expression: "oldObject.?status.approval.fourEyes.orValue(false)"},
		{Name: "groups", Expression: "oldObject.?status.approval.groups.orValue([])"},
		{Name: "requester", Expression: "oldObject.spec.?requestedBy.orValue('')"},
		{Name: "trusted", Expression: listOf(o.TrustedRequesters)},
	}
	const unless = "!variables.decides || "
	p.Spec.Validations = rules(
		rule{
			unless + "variables.phase == " + quote(string(v1alpha1.PhaseWaitingApproval)),
			"variables.named + (variables.phase in ['', 'validating', 'validated'] ? ' is not waiting for approval yet, and has no plan to look at: wait until its phase is waiting_approval' : ' is ' + variables.phase + ' and no longer waits for approval: create another execution if it is still wanted')",
		},
		rule{
			// With it nobody can add two: the second would be of another approver.
			"variables.added.all(a, a.approver == " + user + ")",
			"'the approval is from ' + " + user + " + ' and names somebody else: one approves in one\\'s own name, one entry at a time, with spec.approvals[].approver ' + " + user,
		},
		rule{
			"variables.plan != '' && variables.added.all(a, a.planHash == variables.plan) || !variables.decides",
			"variables.plan == '' ? variables.named + ' has no plan that could be approved: wait until it has' : 'the approval is of another plan than the one that ' + variables.named + ' has: look at status.plan again and approve its hash, ' + variables.plan",
		},
		rule{
			unless + "!variables.fourEyes || variables.requester != '' && variables.requester != " + user + " && !(" + user + " in variables.trusted)",
			"variables.requester == '' ? 'the policy wants somebody else than the requester to approve, and ' + variables.named + ' does not say who asked: create it again with spec.requestedBy' : 'the policy wants somebody else than the requester to approve ' + variables.named + ', and ' + " + user + " + (variables.requester == " + user + " ? ' asked for it' : ' asks in the name of others') + ': have another person look at it'",
		},
		rule{
			unless + "size(variables.groups) == 0 || variables.groups.exists(g, g in request.userInfo.?groups.orValue([]))",
			"'the policy wants ' + variables.named + ' approved by somebody in ' + variables.groups.join(' or ') + ', and ' + " + user + " + ' is not: have one of them look at it'",
		},
		rule{
			unless + may(v1alpha1.VerbApprove, "variables.named"),
			user + " + ' may not approve or reject ' + variables.named + ' in namespace ' + " + where +
				" + ': that needs the verb approve on kubernetesexecutions; have somebody look at it who has it, or be given a role that grants it'",
		},
	)
	return p
}

// status is who says what became of executions, and since when they are guarded.
func (o Options) status() *admissionv1.ValidatingAdmissionPolicy {
	p := o.policy(policyStatus, executions("status", admissionv1.Update))
	p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules,
		matching(coordinationv1.GroupName, coordinationv1.SchemeGroupVersion.Version, "leases", admissionv1.Create, admissionv1.Update, admissionv1.Delete))
	p.Spec.MatchConditions = []admissionv1.MatchCondition{
		{Name: "controllers-own", Expression: "request.resource.resource != 'leases' || " + objectName + " == " + quote(RecordName)},
	}
	p.Spec.Validations = rules(rule{
		user + " == " + quote(o.ControllerUser) + " || " + withNamespace,
		"request.resource.resource == 'leases' ? 'Lease " + RecordName + " says since when requests are checked, and ' + " + user + " + ' is not the controller: leave it to the controller' : " +
			"'the status of an execution is what the controller found and did, and ' + " + user + " + ' is not the controller: to end an execution set spec.cancel or spec.finalize, and to start over create another'",
	})
	return p
}

// settings is who says what is allowed, and when everything stops.
func (o Options) settings() *admissionv1.ValidatingAdmissionPolicy {
	p := o.policy(policySettings, matching(corev1.GroupName, corev1.SchemeGroupVersion.Version, "configmaps", admissionv1.Create, admissionv1.Update, admissionv1.Delete))
	p.Spec.MatchConditions = []admissionv1.MatchCondition{
		{Name: "settings", Expression: objectName + " in " + listOf([]string{o.PolicyConfigMap, v1alpha1.EmergencyStop})},
	}
	admin := withNamespace + " || " + may(v1alpha1.VerbAdminister, "")
	if o.PolicyAdmins != "" {
		admin += " || " + quote(o.PolicyAdmins) + " in request.userInfo.?groups.orValue([])"
	}
	p.Spec.Validations = rules(rule{
		admin,
		user + " + ' may not change ConfigMap ' + " + objectName + " + ', which says what executions are allowed or whether any run: that needs the verb administer on kubernetesexecutions in namespace ' + " + where + " + '; have somebody change it who has it'",
	})
	return p
}
