package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	// DefaultNamespace is where executions are unless Options say otherwise.
	DefaultNamespace = "kubernaut-executor"
	// DefaultPolicyConfigMap has the policies unless Options say otherwise.
	DefaultPolicyConfigMap = "safety-policies"

	defaultAccount = "kubernaut-execution-controller"
)

// The names of the policies, behind the namespace of executions.
const (
	policyRequests  = "execution-requests"
	policyChanges   = "execution-changes"
	policyApprovals = "execution-approvals"
	policyStatus    = "execution-status"
	policySettings  = "execution-settings"
	policyElsewhere = "execution-namespace"

	stampRequests  = "execution-requests-defaults"
	stampGroups    = "execution-requester-groups-defaults"
	stampApprovals = "execution-approvals-defaults"
	stampCancels   = "execution-cancels-defaults"
)

// labelGuard is on all objects of the guard; its value is the namespace that
// they guard.
const labelGuard = "kubernaut.io/admission-policies-for"

// Options say what is guarded, and from whom.
type Options struct {
	// Namespace is where executions are. Empty means DefaultNamespace.
	Namespace string

	// ControllerUser is the user that the controller is, the only one who writes
	// status. Empty means the account kubernaut-execution-controller in Namespace.
	ControllerUser string

	// PolicyConfigMap is the name of the ConfigMap with the policies, in
	// Namespace. Empty means DefaultPolicyConfigMap.
	PolicyConfigMap string

	// PolicyAdmins is a group whose members may change the policies and the
	// emergency stop without a role. Empty is none.
	PolicyAdmins string

	// TrustedRequesters are users that may ask in the name of others, such as a
	// portal that knows its users. They never approve where the policy wants
	// somebody else than the requester.
	TrustedRequesters []string
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	o.ControllerUser = cmp.Or(o.ControllerUser, "system:serviceaccount:"+o.Namespace+":"+defaultAccount)
	o.PolicyConfigMap = cmp.Or(o.PolicyConfigMap, DefaultPolicyConfigMap)
	return o
}

// Objects are the policies and their bindings, those of the same policy side by
// side. Nothing is left to the API server's defaults, so that what is there can
// be compared with them.
func Objects(o Options) []runtime.Object {
	o = o.withDefaults()
	var list []runtime.Object
	for _, p := range []*admissionv1.ValidatingAdmissionPolicy{
		o.requestPolicy(), o.changePolicy(), o.approvalPolicy(), o.statusPolicy(), o.settingsPolicy(),
	} {
		list = append(list, p, o.newBinding(p))
	}
	return list
}

// newPolicy is a policy without its rules.
func (o Options) newPolicy(name string, matches admissionv1.NamedRuleWithOperations) *admissionv1.ValidatingAdmissionPolicy {
	fail, none := admissionv1.Fail, metav1.LabelSelector{}
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: o.objectMeta(name),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &none,
				ObjectSelector:    &none,
				MatchPolicy:       equivalent(),
				ResourceRules:     []admissionv1.NamedRuleWithOperations{matches},
			},
		},
	}
}

// newBinding has a policy refuse in the namespace of executions.
func (o Options) newBinding(p *admissionv1.ValidatingAdmissionPolicy) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        p.Name,
			MatchResources:    o.inNamespace(),
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}

// inNamespace narrows a binding to the namespace of executions, by the label
// that the API server gives every namespace and lets nobody change.
func (o Options) inNamespace() *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: o.Namespace}},
		ObjectSelector:    &metav1.LabelSelector{},
		MatchPolicy:       equivalent(),
	}
}

func (o Options) objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.Namespace + "-" + name, Labels: map[string]string{labelGuard: o.Namespace}}
}

// equivalent matches whatever version of the API a request is in.
func equivalent() *admissionv1.MatchPolicyType {
	e := admissionv1.Equivalent
	return &e
}

// matchExecutions are requests on executions, or on a part of them.
func matchExecutions(part string, operations ...admissionv1.OperationType) admissionv1.NamedRuleWithOperations {
	resource := v1alpha1.Resource
	if part != "" {
		resource += "/" + part
	}
	return matchResource(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, resource, operations...)
}

func matchResource(group, version, resource string, operations ...admissionv1.OperationType) admissionv1.NamedRuleWithOperations {
	everywhere := admissionv1.AllScopes
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}, Scope: &everywhere},
	}}
}

// A validationRule is one validation: when it does not hold, the request is refused with
// what say gives, an expression.
type validationRule struct {
	holds     string
	otherwise string
}

// newValidations are validations of a policy. All of them are Forbidden: what is refused
// is who asks, or when, and no other object would do.
func newValidations(list ...validationRule) []admissionv1.Validation {
	forbidden := metav1.StatusReasonForbidden
	var validations []admissionv1.Validation
	for _, r := range list {
		validations = append(validations, admissionv1.Validation{Expression: r.holds, MessageExpression: r.otherwise, Reason: &forbidden})
	}
	return validations
}

// allowedExpression is whether the user of a request has a verb on executions, by name.
func allowedExpression(verb, name string) string {
	check := fmt.Sprintf("authorizer.group(%s).resource(%s).namespace(request.namespace)", quoteExpression(v1alpha1.GroupVersion.Group), quoteExpression(v1alpha1.Resource))
	if name != "" {
		check += ".name(" + name + ")"
	}
	return check + ".check(" + quoteExpression(verb) + ").allowed()"
}

// quoteExpression makes a string of an expression.
func quoteExpression(s string) string { return strconv.QuoteToASCII(s) }

// listExpression makes a list of strings of an expression.
func listExpression(list []string) string {
	var quoted []string
	for _, s := range slices.Compact(slices.Sorted(slices.Values(list))) {
		quoted = append(quoted, quoteExpression(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
