package nodefault

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// TestRefusedNode verifies that a rejected cordon is shown with its reason, and that the
// node is quarantined once it is allowed.
func TestRefusedNode(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	const node, why = "node-refused-write", "the platform team cordons nodes"
	n := c.CreateReadyNode(node, nil)
	for _, o := range guard(node, why) {
		apply(t, c, o)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		trial := n.DeepCopy()
		trial.Annotations = map[string]string{v1alpha1.AnnotationOwned: "{}"}
		if err := c.Client.Patch(ctx, trial, client.MergeFrom(n), client.DryRunAll); !apierrors.IsInvalid(err) {
			return errors.Join(errors.New("the policy does not hold yet"), err)
		}
		return nil
	})
	c.StartController(nil)
	c.Report(faulttest.Fatal(node, "disk"))
	c.AwaitFault(node, "the refusal to be shown", func(f *v1alpha1.NodeFault) bool {
		return f.Status.Phase == v1alpha1.PhasePending && strings.Contains(f.Status.Message, why)
	})
	if row := c.GetFaultPrinterRow(node); row["PHASE"] != string(v1alpha1.PhasePending) || !strings.Contains(row["MESSAGE"], why) {
		t.Errorf("kubectl shows %v", row)
	}
	wantNode(t, c, node, false, false)
	for _, o := range guard(node, why) {
		if err := c.Client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	drained(c, node)
	wantNode(t, c, node, true, true)
	c.Sink.AwaitActions(t, node, "cordon drain-completed")
}

// guard makes the API server reject the mark of a node.
func guard(node, why string) []client.Object {
	all := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		ResourceNames: []string{node},
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
		},
	}}}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-node-faults"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: all,
			Validations: []admissionv1.Validation{{
				Expression: "!has(object.metadata.annotations) || !('" + v1alpha1.AnnotationOwned + "' in object.metadata.annotations)", Message: why,
			}},
		}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-node-faults"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "no-node-faults", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
	}
}
