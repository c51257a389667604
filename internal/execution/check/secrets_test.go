package check_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// bindSecretLookup lets Secrets be looked up where the targets are, as the roles
// that are shipped do.
func (r *fixture) bindSecretLookup(t *testing.T) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: roles.SecretLookup}}
	if _, err := r.admin.CoreV1().ServiceAccounts(r.executor).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rights := roles.Actions{Namespace: r.executor}
	for _, o := range rights.SecretLookupAccountAndRole() {
		role, ok := o.(*rbacv1.ClusterRole)
		if !ok {
			continue
		}
		role.Name = r.executor + "-" + role.Name // the bed is not this test's alone
		if _, err := r.admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, o := range rights.SecretLookupRoleBindings(r.shop) {
			if binding, ok := o.(*rbacv1.RoleBinding); ok {
				binding.RoleRef.Name = role.Name
				if _, err := r.admin.RbacV1().RoleBindings(r.shop).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// controllerAgain is the account that controller has made.
func (r *fixture) controllerAgain(t *testing.T) *rest.Config {
	t.Helper()
	cfg, err := kubebedtest.Bed(t).EnsureServiceAccountConfig(t.Context(), r.executor, r.executor+"-controller")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// answers keeps what the API server answered of Secrets.
type answers struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (a *answers) wrap(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || !strings.Contains(r.URL.Path, "/secrets/") {
			return answer, err
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return nil, err
		}
		_ = answer.Body.Close() // all of it was read
		answer.Body = io.NopCloser(bytes.NewReader(text))
		a.mu.Lock()
		defer a.mu.Unlock()
		a.text.Write(text)
		return answer, nil
	})
}

// TestInvalidSecrets verifies that unusable Secrets are found by name and type, while their values
// stay in the API server.
func TestInvalidSecrets(t *testing.T) {
	t.Parallel()
	r := newFixture(t, scale)
	r.deploy(t, func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}, {Name: "opaque"}}
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}}
		spec.Volumes = []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "missing"}}}}
	})
	const held = `{"auths":{"hunter2":{}}}`
	for name, kind := range map[string]corev1.SecretType{"registry": corev1.SecretTypeDockerConfigJson, "opaque": corev1.SecretTypeOpaque, "db": corev1.SecretTypeOpaque} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(held)}}
		if _, err := r.admin.CoreV1().Secrets(r.shop).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const module = `package precondition

default allow := false

message := sprintf("%v", [input.invalid_secrets])`
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PreConditions = []v1alpha1.Condition{within(0, "secrets", module, false), within(0, "others", "package a\nallow := true", true)}
	})
	ask := func() []v1alpha1.ConditionResult {
		t.Helper()
		out, err := r.realChecker(t).Check(t.Context(), ke, nil, begun)
		if err != nil {
			t.Fatal(err)
		}
		wantPassed(t, out)
		results := out.Results.PreConditionResults
		if len(results) != 2 || results[0].Passed || !results[1].Passed {
			t.Fatalf("%+v", results)
		}
		return results
	}
	if says := ask()[0].ErrorMessage; !strings.Contains(says, "invalid_secrets is unknown: service account "+r.executor+"/"+roles.SecretLookup+" does not exist") {
		t.Errorf("without the account it says %q", says)
	}

	r.bindSecretLookup(t)
	seen := &answers{}
	cfg := r.controllerAgain(t)
	cfg.WrapTransport = seen.wrap
	r.ids = roles.NewIdentities(cfg, r.executor)
	kubebedtest.Eventually(t, func(context.Context) error { // until the authorizer knows the binding
		if says := ask()[0].ErrorMessage; says != `["missing", "opaque"]` {
			return fmt.Errorf("it says %q", says)
		}
		return nil
	})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	text := seen.text.String()
	if !strings.Contains(text, string(corev1.SecretTypeDockerConfigJson)) || strings.Contains(text, "hunter2") ||
		strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(held))) {
		t.Errorf("the API server answered %s", text)
	}
}

// TestPermissionsAreTold verifies that conditions see the actual rights of the account, before and
// after the action, and also if missing rights prevent it.
func TestPermissionsAreTold(t *testing.T) {
	t.Parallel()
	const module = "package condition\n\nallow if input.serviceAccount.permissionsOk"
	r := newFixture(t)
	r.deploy(t, nil)
	a, _ := action.Find(scale)
	conditions := []v1alpha1.Condition{within(0, "rights", module, true), within(0, "found", "package a\n\nallow if input.deployment_found", true)}
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PreConditions, ke.Spec.PostConditions = conditions, conditions
	})
	check := func(passed bool, got []v1alpha1.ConditionResult) {
		t.Helper()
		if len(got) != 2 || got[0].Passed != passed || got[1].Passed != passed {
			t.Errorf("%+v, want %t", got, passed)
		}
	}
	out, err := r.realChecker(t).Check(t.Context(), ke, nil, begun)
	if err != nil {
		t.Fatal(err)
	}
	wantFailed(t, out, validation, v1alpha1.DetailRBACDenied)
	check(false, out.Results.PreConditionResults)

	r.grant(t, scale, r.shop)
	r.ids = roles.NewIdentities(r.controllerAgain(t), r.executor)
	if out, err = r.realChecker(t).Check(t.Context(), ke, nil, begun); err != nil {
		t.Fatal(err)
	}
	wantPassed(t, out)
	check(true, out.Results.PreConditionResults)
	ke.Status.Plan = out.Plan
	results, _, err := r.realChecker(t).EvaluatePostConditions(t.Context(), ke, begun, begun)
	if err != nil {
		t.Fatal(err)
	}
	check(true, results)

	// It may still look, and may not scale any more.
	role, err := r.admin.RbacV1().Roles(r.shop).Get(t.Context(), a.ServiceAccount(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}}}
	if role, err = r.admin.RbacV1().Roles(r.shop).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wantRights(t, a, r.shop, false)
	r.ids = roles.NewIdentities(r.controllerAgain(t), r.executor) // that believes nothing any more
	if results, _, err = r.realChecker(t).EvaluatePostConditions(t.Context(), ke, begun, begun); err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 || results[0].Passed || !results[1].Passed {
		t.Errorf("%+v, want the first to fail alone", results)
	}

	// What was not found is told as well.
	r.ids = roles.NewIdentities(r.controllerAgain(t), r.executor)
	role.Rules = rules(a)
	if _, err := r.admin.RbacV1().Roles(r.shop).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wantRights(t, a, r.shop, true)
	if err := r.admin.AppsV1().Deployments(r.shop).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, err = r.realChecker(t).Check(t.Context(), ke, nil, begun); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, out, validation, v1alpha1.DetailTargetNotFound)
	if got := out.Results.PreConditionResults; len(got) != 2 || !got[0].Passed || got[1].Passed {
		t.Errorf("%+v, want the second to fail alone", got)
	}
}
