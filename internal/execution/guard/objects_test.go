package guard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// TestTypes holds that the API server finds nothing wrong with the types in the
// expressions, and would.
func TestTypes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	client := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	check := func(ctx context.Context, name string) ([]admissionv1.ExpressionWarning, error) {
		p, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if p.Status.TypeChecking == nil || p.Status.ObservedGeneration != p.Generation {
			return nil, fmt.Errorf("%s is not checked yet", name)
		}
		return p.Status.TypeChecking.ExpressionWarnings, nil
	}
	wrong := policiesOf(w.other, guard.ValidatingPolicyObjects(guard.Options{Namespace: w.other}))["requests"]
	wrong.Spec.Validations[0].Expression = "size(object.spec.aprovals) == 0"
	w.install([]runtime.Object{wrong})
	// The API server checks each generation once, and nothing while it reads the schemas again.
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		warnings, err := check(ctx, wrong.Name)
		if err != nil || len(warnings) > 0 {
			return err
		}
		p, err := client.Get(ctx, wrong.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.Spec.Validations[0].Message += "."
		if _, err := client.Update(ctx, p, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return errors.New("a field that is not there is not noticed")
	})
	w.install(guard.ValidatingPolicyObjects(w.options()))
	for _, p := range policiesOf(w.ns, guard.ValidatingPolicyObjects(w.options())) {
		kubebedtest.Eventually(t, func(ctx context.Context) error {
			warnings, err := check(ctx, p.Name)
			for _, warning := range warnings {
				t.Errorf("%s: %s: %s", p.Name, warning.FieldRef, warning.Warning)
			}
			return err
		})
	}
}

// TestNothingIsDefaulted holds that the API server keeps the objects as they
// are, so that a difference is somebody's doing.
func TestNothingIsDefaulted(t *testing.T) {
	t.Parallel()
	client, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	must(t, err)
	group, trial := client.AdmissionregistrationV1(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	o := guard.Options{Namespace: "nothing-defaulted", PolicyAdmins: `a "group" \ é`, TrustedRequesters: []string{"b'", "a", "a"}}
	for _, object := range append(all(o), guard.MutatingPolicyObjects(o)...) {
		var want, got any
		switch object := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			made, err := group.ValidatingAdmissionPolicies().Create(t.Context(), object, trial)
			must(t, err)
			want, got = object.Spec, made.Spec
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			made, err := group.ValidatingAdmissionPolicyBindings().Create(t.Context(), object, trial)
			must(t, err)
			want, got = object.Spec, made.Spec
		case *admissionv1.MutatingAdmissionPolicy:
			made, err := group.MutatingAdmissionPolicies().Create(t.Context(), object, trial)
			must(t, err)
			want, got = object.Spec, made.Spec
		case *admissionv1.MutatingAdmissionPolicyBinding:
			made, err := group.MutatingAdmissionPolicyBindings().Create(t.Context(), object, trial)
			must(t, err)
			want, got = object.Spec, made.Spec
		}
		if !apiequality.Semantic.DeepEqual(want, got) {
			t.Errorf("%T: -ours +the server's\n%s", object, cmp.Diff(want, got))
		}
	}
}

// TestManifests holds that the manifests are the objects, and that another
// namespace's are theirs with another name.
func TestManifests(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string]func(guard.Options) []runtime.Object{"validating": all, "mutating": guard.MutatingPolicyObjects} {
		text, err := os.ReadFile("../../../deploy/admission-policies/" + name + ".yaml")
		must(t, err)
		for _, namespace := range []string{guard.DefaultNamespace, "elsewhere"} {
			documents := strings.Split(strings.ReplaceAll(string(text), guard.DefaultNamespace, namespace), "---\n")[1:]
			want := objects(guard.Options{Namespace: namespace})
			if len(documents) != len(want) {
				t.Fatalf("%s.yaml has %d objects, want %d", name, len(documents), len(want))
			}
			for i, o := range want {
				var got, want map[string]any
				must(t, yaml.Unmarshal([]byte(documents[i]), &got))
				ours, err := yaml.Marshal(o)
				must(t, err)
				must(t, yaml.Unmarshal(ours, &want))
				delete(want, "status")
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s.yaml, object %d, in %s: run 'make generate': -want +got\n%s", name, i, namespace, diff)
				}
			}
		}
	}
}

// all is what guard.yaml has.
func all(o guard.Options) []runtime.Object {
	return slices.Concat(guard.ValidatingPolicyObjects(o), guard.WrongNamespaceWarningObjects(o))
}

// TestMessages holds that every refusal says what to do next: after a colon.
func TestMessages(t *testing.T) {
	t.Parallel()
	advice := regexp.MustCompile(`: (omit|set|use|create|delete|wait|ask|add|review|do not)`)
	for policy, p := range policiesOf("n", guard.ValidatingPolicyObjects(guard.Options{Namespace: "n"})) {
		for i, v := range p.Spec.Validations {
			if !advice.MatchString(v.MessageExpression) {
				t.Errorf("%s/%s says %s", policy, ruleNames()[policy][i], v.MessageExpression)
			}
		}
	}
}

// BenchmarkRequest is what a create and an approval take, with the guard and
// without it.
func BenchmarkRequest(b *testing.B) {
	for _, guarded := range []bool{false, true} {
		w := newFixture(b)
		if guarded {
			w.guarded()
		}
		on := given{groups: []string{"oncall"}, fourEyes: true}.make(w)
		w = w.onTrial()
		for name, do := range map[string]try{"create": asks(rita, nil), "approve": approves(adam, adam)} {
			b.Run(fmt.Sprintf("%s/guarded=%t", name, guarded), func(b *testing.B) {
				for b.Loop() {
					must(b, do(w, on))
				}
			})
		}
	}
}
