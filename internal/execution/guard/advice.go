package guard

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WrongNamespaceWarningObjects returns a policy with its binding that warns and refuses nothing. It warns users who
// create an execution in another namespace than the guarded one, which the controller does not
// watch. kubectl shows the warning.
//
// WrongNamespaceWarningObjects is not part of Objects, which approvals depend on.
func WrongNamespaceWarningObjects(o Options) []runtime.Object {
	o = o.withDefaults()
	p := o.newValidatingPolicy(policyElsewhere, matchExecutions("", admissionv1.Create))
	p.Spec.FailurePolicy = new(admissionv1.Ignore)
	p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{o.Namespace},
	}}}
	p.Spec.Validations = []admissionv1.Validation{{
		Expression: "false",
		MessageExpression: "'the execution controller in namespace " + o.Namespace + " ignores executions in namespace ' + " + where +
			" + ', and no other controller may handle it: create the execution in namespace " + o.Namespace + ", and delete this one'",
	}}
	binding := o.newBinding(p)
	binding.Spec.MatchResources = matchInNamespaces(metav1.LabelSelector{})
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
	return []runtime.Object{p, binding}
}
