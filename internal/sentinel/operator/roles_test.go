package operator_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// TestSentinelRoleOfTheSpecification: with only the features of the specification, the role is
// the specification's role, which can write neither status nor events, and the rules
// for these two.
func TestSentinelRoleOfTheSpecification(t *testing.T) {
	t.Parallel()
	list := operator.SentinelRoles{}.BuildRoles()
	if len(list) != 1 {
		t.Fatalf("%d roles", len(list))
	}
	want := &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Name: "hyperfleet-sentinel", Namespace: "hyperfleet-system"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"hyperfleet.redhat.com"}, Resources: []string{"sentinelconfigs"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"hyperfleet.redhat.com"}, Resources: []string{"sentinelconfigs/status"}, Verbs: []string{"get", "patch"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		},
	}
	if diff := cmp.Diff(want, list[0]); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestFeatures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		sentinel operator.SentinelRoles
		roles    []string
		secrets  []string // names
	}{
		"Base":       {"nothing beside what every sentinel needs", operator.SentinelRoles{}, []string{"hyperfleet-sentinel"}, nil},
		"Secrets":    {"each name once", operator.SentinelRoles{Secrets: []string{"b", "a", "b"}}, []string{"hyperfleet-sentinel", "hyperfleet-sentinel-secrets"}, []string{"a", "b"}},
		"AllSecrets": {"whatever their names", operator.SentinelRoles{Secrets: []string{"b"}, AllSecrets: true}, []string{"hyperfleet-sentinel", "hyperfleet-sentinel-secrets"}, nil},
		"Sharding":   {"under another account", operator.SentinelRoles{Account: "s", Sharding: true}, []string{"s", "s-sharding"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var names, secrets []string
			for _, role := range tc.sentinel.BuildRoles() {
				names = append(names, role.Name)
				for _, r := range role.Rules {
					if slices.Contains(r.Resources, "secrets") {
						secrets = append(secrets, r.ResourceNames...)
					} else if len(r.ResourceNames) > 0 {
						t.Errorf("%v is bound to names", r)
					}
				}
			}
			if diff := cmp.Diff(tc.roles, names) + cmp.Diff(tc.secrets, secrets); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if got := len(tc.sentinel.BuildAccountRolesAndBindings()); got != 1+2*len(tc.roles) {
				t.Errorf("%d objects, want an account, and %d roles with their bindings", got, len(tc.roles))
			}
		})
	}
}

// newSentinel applies the objects of a sentinel and returns its client.
func newSentinel(t *testing.T, s operator.SentinelRoles) *kubernetes.Clientset {
	t.Helper()
	bed := kubebedtest.Bed(t)
	admin := newClient(t, bed)
	for _, o := range s.BuildAccountRolesAndBindings() {
		var err error
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			_, err = admin.CoreV1().ServiceAccounts(s.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.Role:
			_, err = admin.RbacV1().Roles(s.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			_, err = admin.RbacV1().RoleBindings(s.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		default:
			err = fmt.Errorf("what is a %T?", o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := bed.EnsureServiceAccountConfig(t.Context(), s.Namespace, operator.SentinelAccount)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The authorizer watches the roles.
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		for _, role := range s.BuildRoles() {
			rule := role.Rules[0]
			a := authorizationv1.ResourceAttributes{Namespace: s.Namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]}
			if len(rule.ResourceNames) > 0 {
				a.Name = rule.ResourceNames[0]
			}
			if ok, err := may(ctx, client, a); err != nil {
				return err
			} else if !ok {
				return fmt.Errorf("role %q is not in force", role.Name)
			}
		}
		return nil
	})
	return client
}

func newClient(t *testing.T, bed *kubebed.Bed) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// may returns whether a client has a permission.
func may(ctx context.Context, client *kubernetes.Clientset, a authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// TestRights covers the granted permissions among many possible ones.
func TestRights(t *testing.T) {
	t.Parallel()
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	for name, tc := range map[string]struct {
		sentinel operator.SentinelRoles
		granted  []string // in addition to the base
	}{
		"Base":       {operator.SentinelRoles{}, nil},
		"Secrets":    {operator.SentinelRoles{Secrets: []string{"known"}}, []string{"secrets/known get", "secrets/known list", "secrets/known watch"}},
		"AllSecrets": {operator.SentinelRoles{AllSecrets: true}, []string{"secrets/known get", "secrets/known list", "secrets/known watch", "secrets get", "secrets list", "secrets watch"}},
		"Sharding": {operator.SentinelRoles{Sharding: true}, []string{
			"leases list", "leases watch", "leases create", "leases update", "leases delete",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.sentinel.Namespace = kubebedtest.Namespace(t)
			client := newSentinel(t, tc.sentinel)
			got := []string{}
			for _, a := range []authorizationv1.ResourceAttributes{
				{Group: "hyperfleet.redhat.com", Resource: "sentinelconfigs"},
				{Group: "hyperfleet.redhat.com", Resource: "sentinelconfigs", Subresource: "status"},
				{Group: "events.k8s.io", Resource: "events"},
				{Resource: "events"},
				{Resource: "secrets"},
				{Resource: "secrets", Name: "known"},
				{Resource: "secrets", Name: "unknown"},
				{Resource: "configmaps"},
				{Resource: "pods"},
				{Group: "coordination.k8s.io", Resource: "leases"},
				{Group: "rbac.authorization.k8s.io", Resource: "roles"},
			} {
				a.Namespace = tc.sentinel.Namespace
				for _, a.Verb = range verbs {
					ok, err := may(t.Context(), client, a)
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						continue
					}
					what := a.Resource
					for _, part := range []string{a.Subresource, a.Name} {
						if part != "" {
							what += "/" + part
						}
					}
					got = append(got, what+" "+a.Verb)
				}
				a.Namespace, a.Verb = "kube-system", "get"
				if ok, err := may(t.Context(), client, a); err != nil || ok {
					t.Errorf("%s in another namespace: granted %t, %v", a.Resource, ok, err)
				}
			}
			want := append([]string{
				"sentinelconfigs get", "sentinelconfigs list", "sentinelconfigs watch",
				"sentinelconfigs/status get", "sentinelconfigs/status patch",
				"events create", "events patch",
			}, tc.granted...)
			if tc.sentinel.AllSecrets {
				want = append(want, "secrets/unknown get", "secrets/unknown list", "secrets/unknown watch")
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestSecretsByName: a Secret can be watched by its name with a permission on that name
// only, and no other Secret is visible.
func TestSecretsByName(t *testing.T) {
	t.Parallel()
	namespace := kubebedtest.Namespace(t)
	admin := newClient(t, kubebedtest.Bed(t))
	for _, name := range []string{"known", "unknown"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"token": "a"}}
		if _, err := admin.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	secrets := newSentinel(t, operator.SentinelRoles{Namespace: namespace, Secrets: []string{"known"}}).CoreV1().Secrets(namespace)

	byName := metav1.ListOptions{FieldSelector: "metadata.name=known"}
	list, err := secrets.List(t.Context(), byName)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	byName.ResourceVersion = list.ResourceVersion
	watch, err := secrets.Watch(t.Context(), byName)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := secrets.Get(t.Context(), "known", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for name, try := range map[string]func() error{
		"all":     func() error { _, err := secrets.List(t.Context(), metav1.ListOptions{}); return err },
		"another": func() error { _, err := secrets.Get(t.Context(), "unknown", metav1.GetOptions{}); return err },
		"another by its name": func() error {
			_, err := secrets.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=unknown"})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want it forbidden", name, err)
		}
	}
}
