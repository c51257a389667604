package guard_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// watched starts a Watch as the controller of a fixture.
func (w *fixture) watched() *guard.Watch {
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
	return w.another()
}

// another starts a Watch as another replica of the controller does, or the same
// after a restart.
func (w *fixture) another() *guard.Watch {
	w.tb.Helper()
	watch, err := guard.New(w.config(controller), w.options(), propagation, slog.New(slog.DiscardHandler))
	must(w.tb, err)
	run(w.tb, watch)
	return watch
}

// propagation is longer than the API server takes to go by what has changed, as far
// as the tests of this file depend on it.
const propagation = time.Second

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
	w := newFixture(t)
	watch := w.watched()
	wantMissing(t, watch, "is missing")
	w.guarded()
	wantMissing(t, watch, "")

	client, ctx := w.admin.AdmissionregistrationV1(), t.Context()
	bindings := client.ValidatingAdmissionPolicyBindings()
	name := w.ns + "-execution-approvals"
	binding, err := bindings.Get(ctx, name, metav1.GetOptions{})
	must(t, err)

	must(t, bindings.Delete(ctx, name, metav1.DeleteOptions{}))
	wantMissing(t, watch, name+" is missing")
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
		"it has lost its label":      `{"metadata":{"labels":{"kubernaut.io/admission-policies-for":null}}}`,
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
	wantMissing(t, watch, name+" differs from the one of this version")
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
	w := &fixture{tb: t, ns: "default", admin: admin}
	w.install(guard.ValidatingPolicyObjects(guard.Options{Namespace: "default"}))
	watch, err := guard.New(bed.Config(), guard.Options{Namespace: "default"}, propagation, slog.New(slog.DiscardHandler))
	must(t, err)
	run(t, watch)
	wantMissing(t, watch, "a forged approval was not rejected")
}

// TestPeriods holds what begins another period of the guard, by its first look: any
// change of any object, also one that was undone, and no restart.
func TestPeriods(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.guarded()
	first := w.watched()
	period := func(watch *guard.Watch) guard.Period {
		t.Helper()
		wantMissing(t, watch, "")
		p, err := watch.Confirm(t.Context())
		must(t, err)
		return p
	}
	last := period(first)
	made, err := w.as(rita).objects.Create(t.Context(), &unstructured.Unstructured{Object: asked(nil)}, metav1.CreateOptions{})
	must(t, err)
	if created := made.GetCreationTimestamp().Time; last.Covers(created) && created.Before(last.Since) || last.Covers(last.Since.Add(-time.Second)) {
		t.Errorf("the period since %s covers %s", last.Since, created)
	}
	if restarted := period(w.another()); restarted != last {
		t.Errorf("after a restart the period is %+v, and it was %+v", restarted, last)
	}

	client, ctx := w.admin.AdmissionregistrationV1(), t.Context()
	bindings, policies := client.ValidatingAdmissionPolicyBindings(), client.ValidatingAdmissionPolicies()
	name := w.ns + "-execution-settings"
	patch := func(patches ...string) error {
		for _, p := range patches {
			if _, err := bindings.Patch(ctx, name, "application/merge-patch+json", []byte(p), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
	const gone = "the record is gone"
	for _, change := range []struct {
		reason string
		do     func() error
		same   bool
	}{
		{"the binding was away", func() error {
			b, err := bindings.Get(ctx, name, metav1.GetOptions{})
			must(t, err)
			must(t, bindings.Delete(ctx, name, metav1.DeleteOptions{}))
			_, err = bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: b.Labels}, Spec: b.Spec}, metav1.CreateOptions{})
			return err
		}, false},
		{"the binding only wrote to the log", func() error {
			return patch(`{"spec":{"validationActions":["Audit"]}}`, `{"spec":{"validationActions":["Deny"]}}`)
		}, false},
		{"the policy did nothing when it failed", func() error {
			for _, p := range []string{"Ignore", "Fail"} {
				if _, err := policies.Patch(ctx, name, "application/merge-patch+json", []byte(`{"spec":{"failurePolicy":"`+p+`"}}`), metav1.PatchOptions{}); err != nil {
					return err
				}
			}
			return nil
		}, false},
		{"an annotation enforces nothing", func() error { return patch(`{"metadata":{"annotations":{"a":"b"}}}`) }, true},
		{gone, func() error { return w.leases(controller).remove(guard.RecordName) }, false},
	} {
		must(t, change.do())
		now := period(w.another())
		if change.same != (now == last) {
			t.Errorf("%s: the period is %+v, and it was %+v", change.reason, now, last)
		}
		if !change.same && !now.Since.After(last.Since.Add(-time.Nanosecond)) {
			t.Errorf("%s: the period began at %s, the one before at %s", change.reason, now.Since, last.Since)
		}
		if seen := period(first); seen != now && change.reason != gone { // of which a replica that was there needs to know nothing
			t.Errorf("%s: another replica has %+v, and not %+v", change.reason, seen, now)
		}
		last = now
	}
}

// TestWatchNeedsRights holds that who may not look does not see a guard.
func TestWatchNeedsRights(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.guarded()
	watch, err := guard.New(w.config(walt), w.options(), propagation, slog.New(slog.DiscardHandler))
	must(t, err)
	run(t, watch)
	wantMissing(t, watch, `User "walt" cannot list resource`)
}
