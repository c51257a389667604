package check_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// protect labels a namespace, and waits until that is known.
func (r *fixture) protect(t *testing.T, namespace string) {
	t.Helper()
	patch := []byte(`{"metadata":{"labels":{"kubernaut.io/protected":"true"}}}`)
	if _, err := r.admin.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		var ns corev1.Namespace
		if err := r.view.Get(ctx, types.NamespacedName{Name: namespace}, &ns); err != nil || ns.Labels[v1alpha1.LabelProtected] == "" {
			return errors.Join(err, errors.New("the view does not know yet"))
		}
		return nil
	})
}

func TestProtectedTargets(t *testing.T) {
	t.Run("ByConfiguration", func(t *testing.T) {
		r := newFixture(t, scale)
		r.deploy(t, nil)
		r.cfg.ProtectedNamespaces = []string{r.shop}
		wantFailed(t, r.check(t, r.execution(scale, nil), begun), validation, v1alpha1.DetailTargetProtected, r.shop, "protected")
	})
	t.Run("ByTheNamespacesLabel", func(t *testing.T) {
		r := newFixture(t, scale)
		r.deploy(t, nil)
		r.protect(t, r.shop)
		wantFailed(t, r.check(t, r.execution(scale, nil), begun), validation, v1alpha1.DetailTargetProtected, "namespace", r.shop, v1alpha1.LabelProtected)
	})
	t.Run("ByTheObjectsLabel", func(t *testing.T) {
		r := newFixture(t, scale)
		r.deploy(t, func(d *appsv1.Deployment) { d.Labels[v1alpha1.LabelProtected] = "true" })
		out := r.check(t, r.execution(scale, nil), begun)
		wantFailed(t, out, validation, v1alpha1.DetailTargetProtected, "Deployment "+r.shop+"/web", v1alpha1.LabelProtected)
		if !out.Results.ResourceExists || out.Results.PolicyValidation != nil {
			t.Errorf("%+v", out.Results)
		}
	})
	t.Run("ByWhatItScales", func(t *testing.T) {
		r := newFixture(t, bounds)
		r.deploy(t, func(d *appsv1.Deployment) { d.Labels[v1alpha1.LabelProtected] = "true" })
		r.autoscale(t, "apps/v1", "Deployment")
		wantFailed(t, r.check(t, r.execution(bounds, nil), begun), validation, v1alpha1.DetailTargetProtected,
			"HorizontalPodAutoscaler "+r.shop+"/web", "Deployment "+r.shop+"/web", v1alpha1.LabelProtected)
	})
	for _, space := range []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		t.Run(space, func(t *testing.T) {
			r := newFixture(t, scale)
			a, _ := action.Find(scale)
			r.bindIn(t, a, space)
			r.wantRights(t, a, space, true)
			ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Parameters = parameters(scale, space) })
			wantFailed(t, r.check(t, ke, begun), validation, v1alpha1.DetailTargetProtected, space)
		})
	}
	t.Run("TheExecutorsNamespace", func(t *testing.T) {
		r := newFixture(t, scale)
		a, _ := action.Find(scale)
		r.bind(t, a, r.executor)
		ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Parameters = parameters(scale, r.executor) })
		wantFailed(t, r.check(t, ke, begun), validation, v1alpha1.DetailTargetProtected, r.executor)
	})
	t.Run("ANodeOfTheControlPlane", func(t *testing.T) {
		r := newFixture(t, cordon)
		for name, labels := range map[string]map[string]string{"-cp": {"node-role.kubernetes.io/control-plane": ""}, "-worker": nil} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.shop + name, Labels: labels}}
			if _, err := r.admin.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := r.admin.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), n.Name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		of := func(name string) *v1alpha1.KubernetesExecution {
			return r.execution(cordon, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Parameters = parameters(cordon, r.shop+name) })
		}
		wantFailed(t, r.check(t, of("-cp"), begun), validation, v1alpha1.DetailTargetProtected, "control-plane")
		out := r.check(t, of("-worker"), begun)
		wantPassed(t, out)
		if want := "Node/" + r.shop + "-worker"; out.Target != want {
			t.Errorf("target %q, want %q", out.Target, want)
		}
	})
}

// A drain reaches into all namespaces, and leaves those alone that no action
// touches.
func TestADrainKnowsWhatIsProtected(t *testing.T) {
	r := newFixture(t, drain)
	r.known(t, r.shop)
	r.protect(t, r.shop)
	r.cfg.ProtectedNamespaces = []string{"vault"}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.shop}}
	if _, err := r.admin.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.admin.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), n.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	out := r.check(t, r.execution(drain, nil), begun)
	wantPassed(t, out)
	evictions := out.Plan.Steps[len(out.Plan.Steps)-1]
	for _, space := range []string{metav1.NamespaceSystem, r.executor, "vault", r.shop} {
		if !strings.Contains(evictions.Body, `"`+space+`"`) {
			t.Errorf("Pods in namespace %q would be evicted: %s", space, evictions.Body)
		}
	}
}

// Who lacks rights as well hears first of what no rights would help with, where
// that says nothing of the cluster. What only a look could tell is not told.
func TestProtectedBeforeRights(t *testing.T) {
	r := newFixture(t)
	r.deploy(t, nil)
	elsewhere, labelled, named := kubebedtest.Namespace(t), kubebedtest.Namespace(t), kubebedtest.Namespace(t)
	r.cfg.ProtectedNamespaces = []string{named, "not-there"}
	r.protect(t, labelled)
	of := func(space string) *v1alpha1.KubernetesExecution {
		return r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Parameters = parameters(scale, space) })
	}
	for _, account := range []string{"NoAccount", "NoRights"} {
		if account == "NoRights" {
			r.grant(t, scale, r.shop)
		}
		for name, c := range map[string]struct {
			reason string
			space  string
			detail v1alpha1.Detail
		}{
			"Kubernetes":   {"it is protected everywhere", metav1.NamespaceSystem, v1alpha1.DetailTargetProtected},
			"TheExecutors": {"so is this", r.executor, v1alpha1.DetailTargetProtected},
			"BySettings":   {"it is protected here", named, v1alpha1.DetailTargetProtected},
			"NotThere":     {"the same is said of what there is not", "not-there", v1alpha1.DetailTargetProtected},
			"Other":        {"nothing protects it", elsewhere, v1alpha1.DetailRBACDenied},
			"ByItsLabel":   {"whoever may not look at it is not told what it bears", labelled, v1alpha1.DetailRBACDenied},
		} {
			t.Run(account+name, func(t *testing.T) {
				r.requests.take()
				out := r.check(t, of(c.space), begun)
				says := c.space // an account that is missing is missing wherever
				if account == "NoAccount" && c.detail == v1alpha1.DetailRBACDenied {
					says = "does not exist"
				}
				wantFailed(t, out, validation, c.detail, says)
				if out.Results.RBACValidation || out.Results.ResourceExists || out.Results.PolicyValidation != nil {
					t.Errorf("%s: %+v", c.reason, out.Results)
				}
				if sent := r.requests.take(); c.detail == v1alpha1.DetailTargetProtected && len(sent) > 0 {
					t.Errorf("%s: the cluster was asked: %v", c.reason, sent)
				}
			})
		}
	}
}
