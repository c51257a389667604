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
	// DefaultNamespace is the default namespace of executions.
	DefaultNamespace = "kubernaut-executor"
	// DefaultPolicyConfigMap is the default name of the ConfigMap with the policies.
	DefaultPolicyConfigMap = "safety-policies"

	defaultAccount = "kubernaut-execution-controller"
)

// Names of the policies, prefixed with the namespace of executions.
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

// labelGuard is the label of all objects of the guard. Its value is the guarded namespace.
const labelGuard = "kubernaut.io/admission-policies-for"

// Options configure the guard.
type Options struct {
	// Namespace is the namespace of executions. Empty means DefaultNamespace.
	Namespace string

	// ControllerUser is the user name of the controller, the only user that may write status. Empty
	// means the account kubernaut-execution-controller in Namespace.
	ControllerUser string

	// PolicyConfigMap is the name of the ConfigMap with the policies in Namespace. Empty means
	// DefaultPolicyConfigMap.
	PolicyConfigMap string

	// PolicyAdmins is a group whose members may change the policies and the emergency stop without
	// a role. Empty means none.
	PolicyAdmins string

	// TrustedRequesters are users that may create executions in the name of others, such as a
	// portal that authenticates its users. They may not approve if the policy excludes the
	// requester.
	TrustedRequesters []string
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	o.ControllerUser = cmp.Or(o.ControllerUser, "system:serviceaccount:"+o.Namespace+":"+defaultAccount)
	o.PolicyConfigMap = cmp.Or(o.PolicyConfigMap, DefaultPolicyConfigMap)
	return o
}

// ValidatingPolicyObjects returns the policies, each followed by its binding. All fields are set explicitly, so
// that stored objects can be compared with them.
func ValidatingPolicyObjects(o Options) []runtime.Object {
	o = o.withDefaults()
	var list []runtime.Object
	for _, p := range []*admissionv1.ValidatingAdmissionPolicy{
		o.executionCreationPolicy(), o.changePolicy(), o.approvalPolicy(), o.statusPolicy(), o.settingsConfigMapPolicy(),
	} {
		list = append(list, p, o.newBinding(p))
	}
	return list
}

// newValidatingPolicy returns a policy without validations.
func (o Options) newValidatingPolicy(name string, matches admissionv1.NamedRuleWithOperations) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: o.newObjectMeta(name),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    new(admissionv1.Fail),
			MatchConstraints: matchInNamespaces(metav1.LabelSelector{}, matches),
		},
	}
}

// newBinding binds a policy to the namespace of executions with action Deny.
func (o Options) newBinding(p *admissionv1.ValidatingAdmissionPolicy) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        p.Name,
			MatchResources:    o.matchNamespace(),
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}

// matchNamespace limits a binding to the namespace of executions. It selects by the label that the API
// server sets on every namespace and that no user can change.
func (o Options) matchNamespace() *admissionv1.MatchResources {
	return matchInNamespaces(metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: o.Namespace}})
}

func (o Options) newObjectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.Namespace + "-" + name, Labels: map[string]string{labelGuard: o.Namespace}}
}

// matchInNamespaces matches requests in some namespaces, in any version of the API. No rules match all.
func matchInNamespaces(
	namespaces metav1.LabelSelector, rules ...admissionv1.NamedRuleWithOperations,
) *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		NamespaceSelector: &namespaces,
		ObjectSelector:    &metav1.LabelSelector{},
		MatchPolicy:       new(admissionv1.Equivalent),
		ResourceRules:     rules,
	}
}

// matchExecutions matches requests for executions, or for a subresource of them.
func matchExecutions(subresource string, operations ...admissionv1.OperationType) admissionv1.NamedRuleWithOperations {
	resource := v1alpha1.Resource
	if subresource != "" {
		resource += "/" + subresource
	}
	return matchResource(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, resource, operations...)
}

func matchResource(group, version, resource string, operations ...admissionv1.OperationType) admissionv1.NamedRuleWithOperations {
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource},
			Scope: new(admissionv1.AllScopes),
		},
	}}
}

// validationRule is one validation. If holds is false, the request is refused with the result of
// the expression otherwise.
type validationRule struct {
	holds     string
	otherwise string
}

// newValidations converts rules to validations of a policy. Their reason is Forbidden, because a
// refusal depends on the user or the time and not on the content of the object.
func newValidations(list ...validationRule) []admissionv1.Validation {
	var validations []admissionv1.Validation
	for _, r := range list {
		validations = append(validations, admissionv1.Validation{
			Expression: r.holds, MessageExpression: r.otherwise, Reason: new(metav1.StatusReasonForbidden),
		})
	}
	return validations
}

// celUserMay returns the CEL expression for whether the user has a verb on an execution.
func celUserMay(verb, name string) string {
	check := fmt.Sprintf("authorizer.group(%s).resource(%s).namespace(request.namespace)",
		quoteCEL(v1alpha1.GroupVersion.Group), quoteCEL(v1alpha1.Resource))
	if name != "" {
		check += ".name(" + name + ")"
	}
	return check + ".check(" + quoteCEL(verb) + ").allowed()"
}

// quoteCEL returns s as a CEL string literal.
func quoteCEL(s string) string { return strconv.QuoteToASCII(s) }

// celStringList returns a CEL list of strings.
func celStringList(list []string) string {
	var quoted []string
	for _, s := range slices.Compact(slices.Sorted(slices.Values(list))) {
		quoted = append(quoted, quoteCEL(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
