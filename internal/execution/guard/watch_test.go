package guard_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
)

// watched starts a Watch as the controller of a world.
func (w *world) watched() *guard.Watch {
	w.tb.Helper()
	name := w.ns + "-watch"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"admissionregistration.k8s.io"},
		Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
		Verbs:     []string{"list", "watch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: controller}},
	}
	_, err := w.admin.RbacV1().ClusterRoles().Create(w.tb.Context(), role, metav1.CreateOptions{})
	must(w.tb, err)
	_, err = w.admin.RbacV1().ClusterRoleBindings().Create(w.tb.Context(), binding, metav1.CreateOptions{})
	must(w.tb, err)
	w.tb.Cleanup(func() {
		ctx := context.WithoutCancel(w.tb.Context())
		must(w.tb, w.admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		must(w.tb, w.admin.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}))
	})
	watch, err := guard.New(w.config(controller), w.options(), slog.New(slog.DiscardHandler))
	must(w.tb, err)
	run(w.tb, watch)
	return watch
}

func run(tb testing.TB, watch *guard.Watch) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- watch.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
}

func wantMissing(tb testing.TB, watch *guard.Watch, want string) {
	tb.Helper()
	kubebedtest.Eventually(tb, func(context.Context) error {
		err := watch.Missing()
		if want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
			return nil
		}
		return fmt.Errorf("Missing() = %v, want %q", err, want) //nolint:errorlint // it may be nil
	})
}

// TestWatch holds that the guard is missed whenever something about it is not as
// it should be, and not before it works.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watch := w.watched()
	wantMissing(t, watch, "is not there")
	w.guarded()
	wantMissing(t, watch, "")

	client, ctx := w.admin.AdmissionregistrationV1(), t.Context()
	bindings := client.ValidatingAdmissionPolicyBindings()
	name := w.ns + "-execution-approvals"
	binding, err := bindings.Get(ctx, name, metav1.GetOptions{})
	must(t, err)

	must(t, bindings.Delete(ctx, name, metav1.DeleteOptions{}))
	wantMissing(t, watch, name+" is not there")
	again := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: binding.Labels}, Spec: binding.Spec}
	_, err = bindings.Create(ctx, again, metav1.CreateOptions{})
	must(t, err)
	wantMissing(t, watch, "")

	for change, patch := range map[string]string{
		"it only warns":              `{"spec":{"validationActions":["Warn"]}}`,
		"it only writes to the log":  `{"spec":{"validationActions":["Audit"]}}`,
		"it is for some":             `{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}}}`,
		"it is for elsewhere":        `{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"other"}}}}}`,
		"it leaves executions out":   `{"spec":{"matchResources":{"excludeResourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}]}}}`,
		"it has lost its label":      `{"metadata":{"labels":{"kubernaut.io/guards":null}}}`,
		"it is for another policy":   `{"spec":{"policyName":"other"}}`,
		"it is for the exact matter": `{"spec":{"matchResources":{"matchPolicy":"Exact"}}}`,
	} {
		_, err := bindings.Patch(ctx, name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		must(t, err)
		kubebedtest.Eventually(t, func(context.Context) error {
			if watch.Missing() == nil {
				return fmt.Errorf("the guard is not missed although %s", change)
			}
			return nil
		})
		now, err := bindings.Get(ctx, name, metav1.GetOptions{})
		must(t, err)
		now.Labels, now.Spec = binding.Labels, binding.Spec
		_, err = bindings.Update(ctx, now, metav1.UpdateOptions{})
		must(t, err)
		wantMissing(t, watch, "")
	}

	policies := client.ValidatingAdmissionPolicies()
	policy, err := policies.Get(ctx, name, metav1.GetOptions{})
	must(t, err)
	policy.Spec.Validations[0].Expression = "true"
	_, err = policies.Update(ctx, policy, metav1.UpdateOptions{})
	must(t, err)
	wantMissing(t, watch, name+" is not as this version has it")
}

// TestWatchTries holds that policies which the API server does not go by are no
// guard, however well they look.
func TestWatchTries(t *testing.T) {
	t.Parallel()
	bed, err := kubebed.Start(t.Context(), kubebed.Options{
		CRDs: []string{"../../../deploy/crds"},
		Args: map[string][]string{kubebed.APIServer: {"--disable-admission-plugins=ValidatingAdmissionPolicy"}},
	})
	must(t, err)
	t.Cleanup(func() { must(t, bed.Stop()) })
	admin, err := kubernetes.NewForConfig(bed.Config())
	must(t, err)
	w := &world{tb: t, ns: "default", admin: admin}
	w.install(guard.Objects(guard.Options{Namespace: "default"}))
	watch, err := guard.New(bed.Config(), guard.Options{Namespace: "default"}, slog.New(slog.DiscardHandler))
	must(t, err)
	run(t, watch)
	wantMissing(t, watch, "an approval that nobody gave was not refused")
}

// TestWatchNeedsRights holds that who may not look does not see a guard.
func TestWatchNeedsRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.guarded()
	watch, err := guard.New(w.config(walt), w.options(), slog.New(slog.DiscardHandler))
	must(t, err)
	run(t, watch)
	wantMissing(t, watch, `User "walt" cannot list resource`)
}
