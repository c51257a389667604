package guard

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// MutatingPolicyObjects returns policies with their bindings that fill in missing user names. They set the
// requester of an execution and the requester's groups, the approver and the plan if only
// approvalReceived is set, and the user who cancels. API servers support them since Kubernetes
// 1.36.
//
// Objects also checks the values that they write. Without them, an execution without a requester
// cannot be approved if the policy requires a second person, and an approvalReceived has no
// approver in the audit.
func MutatingPolicyObjects(o Options) []runtime.Object {
	o = o.withDefaults()
	requests := o.newMutatingPolicy(stampRequests, admissionv1.Create,
		"Object{spec: Object.spec{requestedBy: "+user+"}}",
		admissionv1.MatchCondition{Name: "names-nobody", Expression: "object.spec.?requestedBy.orValue('') == ''"})
	approvals := o.newMutatingPolicy(stampApprovals, admissionv1.Update,
		"Object{spec: Object.spec{approvals: [Object.spec.approvals{approver: "+user+", decision: "+quoteCEL(string(v1alpha1.Approve))+", planHash: oldObject.status.plan.hash}]}}",
		admissionv1.MatchCondition{Name: "approves", Expression: "object.spec.?approvalReceived.orValue(false) && !oldObject.spec.?approvalReceived.orValue(false)"},
		admissionv1.MatchCondition{Name: "has-a-plan", Expression: "oldObject.?status.plan.hash.orValue('') != ''"},
		admissionv1.MatchCondition{
			Name:       "adds-nothing",
			Expression: "object.spec.?approvals.orValue([]).all(a, oldObject.spec.?approvals.orValue([]).exists(b, b.approver == a.approver))",
		},
		admissionv1.MatchCondition{
			Name:       "not-decided-before",
			Expression: "!object.spec.?approvals.orValue([]).exists(a, a.approver == " + user + ")",
		},
	)
	// The groups of another user are not known.
	groups := o.newMutatingPolicy(stampGroups, admissionv1.Create,
		"Object{spec: Object.spec{requesterGroups: "+userGroups+"}}",
		admissionv1.MatchCondition{Name: "names-no-groups", Expression: "size(object.spec.?requesterGroups.orValue([])) == 0"},
		admissionv1.MatchCondition{Name: "asks-for-themselves", Expression: "object.spec.?requestedBy.orValue('') in ['', " + user + "]"},
		admissionv1.MatchCondition{Name: "has-room", Expression: "size(" + userGroups + ") <= 64 && " + userGroups + ".all(g, size(g) <= 253)"})
	// An API server that has just started cannot apply it for some seconds. An execution
	// without groups is better than none.
	groups.Spec.FailurePolicy = new(admissionv1.Ignore)
	cancels := o.newMutatingPolicy(stampCancels, admissionv1.Update,
		"Object{spec: Object.spec{cancelledBy: "+user+"}}",
		admissionv1.MatchCondition{Name: "cancels", Expression: "object.spec.?cancel.orValue(false) && !oldObject.spec.?cancel.orValue(false)"},
		admissionv1.MatchCondition{Name: "names-nobody", Expression: "object.spec.?cancelledBy.orValue('') == ''"},
		admissionv1.MatchCondition{
			Name:       "has-room",
			Expression: "size(" + user + ") <= 253",
		},
	) // otherwise the length of the name would fail the cancel
	var list []runtime.Object
	for _, p := range []*admissionv1.MutatingAdmissionPolicy{requests, groups, approvals, cancels} {
		list = append(list, p, o.newMutatingBinding(p))
	}
	return list
}

func (o Options) newMutatingPolicy(
	name string, operation admissionv1.OperationType, applyExpression string, conditions ...admissionv1.MatchCondition,
) *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: o.newObjectMeta(name),
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      new(admissionv1.Fail),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConditions:    conditions,
			MatchConstraints:   matchInNamespaces(metav1.LabelSelector{}, matchExecutions("", operation)),
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: applyExpression},
			}},
		},
	}
}

func (o Options) newMutatingBinding(p *admissionv1.MutatingAdmissionPolicy) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: p.Name, MatchResources: o.matchNamespace()},
	}
}
