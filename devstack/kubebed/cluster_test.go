package kubebed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// The features of a cluster that users of a bed rely on.

var (
	one      = resource.MustParse("1")
	gibibyte = resource.MustParse("1Gi")
)

// pod returns a Pod that the restricted standard admits.
func pod(name string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "localhost/nothing:1"}},
		},
	}
}

// job returns a Job of one such Pod.
func job(name, outcome string) *batchv1.Job {
	p := pod("", map[string]string{kubebedtest.OutcomeAnnotation: outcome})
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{BackoffLimit: new(int32), Template: corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}},
	}
}

// TestCustomResources covers that custom kinds are served, with defaults, rules in CEL
// and rules about changes.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	client, err := dynamic.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(schema.GroupVersionResource{Group: "kubebed.fleetloop.io", Version: "v1", Resource: "widgets"}).Namespace(kubebedtest.Namespace(t))
	widget := func(low, high int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kubebed.fleetloop.io/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"},
			"spec": map[string]any{"low": low, "high": high},
		}}
	}
	if _, err := widgets.Create(t.Context(), widget(2, 1), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "low must not be above high") {
		t.Errorf("a widget against the rule gives %v", err)
	}
	w, err := widgets.Create(t.Context(), widget(1, 2), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if name, _, _ := unstructured.NestedString(w.Object, "spec", "name"); name != "none" {
		t.Errorf("the default is %q", name)
	}
	if err := unstructured.SetNestedField(w.Object, "other", "spec", "name"); err != nil {
		t.Fatal(err)
	}
	if _, err := widgets.Update(t.Context(), w, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "name stays as it is") {
		t.Errorf("a change against the rule gives %v", err)
	}
}

// TestServerSideApply covers that fields have owners, and that taking over a field
// requires force.
func TestServerSideApply(t *testing.T) {
	t.Parallel()
	maps := admin(t).CoreV1().ConfigMaps(kubebedtest.Namespace(t))
	apply := func(manager, value string, force bool) error {
		cm := corev1apply.ConfigMap("shared", "").WithData(map[string]string{"key": value})
		cm.Namespace = nil
		_, err := maps.Apply(t.Context(), cm, metav1.ApplyOptions{FieldManager: manager, Force: force})
		return err
	}
	if err := apply("one", "1", false); err != nil {
		t.Fatal(err)
	}
	if err := apply("two", "2", false); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one"`) {
		t.Errorf("the second manager takes the field: %v", err)
	}
	if err := apply("two", "2", true); err != nil {
		t.Error(err)
	}
	if cm, err := maps.Get(t.Context(), "shared", metav1.GetOptions{}); err != nil || cm.Data["key"] != "2" {
		t.Errorf("got %v, %v, want what was forced", cm.Data, err)
	}
}

// TestAdmission covers that admission policies and the Pod standards reject violations.
func TestAdmission(t *testing.T) {
	t.Parallel()
	bed, client, ns := kubebedtest.Bed(t), admin(t), kubebedtest.Namespace(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations:
    - {expression: "has(object.metadata.labels) && 'owner' in object.metadata.labels", message: say whose it is}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec:
  policyName: NAME
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}}
`, "NAME", ns)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bed.Kubectl(t.Context(), "apply", "-f", policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := bed.Kubectl(context.WithoutCancel(t.Context()), "delete", "-f", policy); err != nil {
			t.Error(err)
		}
	})
	tries := 0
	kubebedtest.Eventually(t, func(ctx context.Context) error { // a policy takes effect some moments later
		tries++
		_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("try-%d", tries)}}, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "say whose it is") {
			return fmt.Errorf("a config map without an owner gives %w", errors.Join(err, errors.New("no refusal")))
		}
		return nil
	})
	labels := map[string]string{"owner": "me"}
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: labels}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("one with an owner gives %v", err)
	}

	if _, err := bed.Kubectl(t.Context(), "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted"); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(ns).Create(ctx, pod("unsafe", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "violates PodSecurity") {
			return fmt.Errorf("a Pod that may be root gives %w", errors.Join(err, errors.New("no refusal")))
		}
		return nil
	})
}

// TestJobs covers that a Job ends as its Pod does, and that it is deleted with its
// dependents after its time to live.
func TestJobs(t *testing.T) {
	t.Parallel()
	client, ns := admin(t), kubebedtest.Namespace(t)
	kubebedtest.SimulatePodOutcomes(t, kubebedtest.Bed(t), ns)
	jobs := client.BatchV1().Jobs(ns)
	for name, want := range map[string]batchv1.JobConditionType{"Succeeded": batchv1.JobComplete, "Failed": batchv1.JobFailed} {
		j := job(strings.ToLower(name), name)
		if _, err := jobs.Create(t.Context(), j, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		kubebedtest.Eventually(t, func(ctx context.Context) error { return hasCondition(ctx, client, ns, j.Name, want) })
	}

	j := job("short-lived", "Succeeded")
	j.Spec.TTLSecondsAfterFinished = new(int32(1))
	// Suspended until the config map below exists.
	j.Spec.Suspend = new(true)
	j, err := jobs.Create(t.Context(), j, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own(t, client, ns, "of-the-job", metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: j.Name, UID: j.UID})
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		got, err := jobs.Get(ctx, j.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got.Spec.Suspend = new(false)
		_, err = jobs.Update(ctx, got, metav1.UpdateOptions{})
		return err
	})
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		_, jobErr := jobs.Get(ctx, j.Name, metav1.GetOptions{})
		_, mapErr := client.CoreV1().ConfigMaps(ns).Get(ctx, "of-the-job", metav1.GetOptions{})
		pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + j.Name})
		if err != nil {
			return err
		}
		if !apierrors.IsNotFound(jobErr) || !apierrors.IsNotFound(mapErr) || len(pods.Items) > 0 {
			return fmt.Errorf("still there: the Job (%v), its config map (%v) or %d Pods", jobErr, mapErr, len(pods.Items)) //nolint:errorlint // both are told, and nothing branches on them
		}
		return nil
	})
}

func hasCondition(ctx context.Context, client kubernetes.Interface, ns, name string, want batchv1.JobConditionType) error {
	j, err := client.BatchV1().Jobs(ns).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range j.Status.Conditions {
		if c.Type == want && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("job %s is not %s: %+v", name, want, j.Status)
}

// own creates a config map with an owner.
func own(t *testing.T, client kubernetes.Interface, ns, name string, owner metav1.OwnerReference) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestGarbageCollection covers that dependents are deleted with their owner, and other
// objects stay.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	client, ns := admin(t), kubebedtest.Namespace(t)
	maps := client.CoreV1().ConfigMaps(ns)
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own(t, client, ns, "owned", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
	note(t, client, ns, "free")
	if err := maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		if _, err := maps.Get(ctx, "owned", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("what was owned is still there: %w", errors.Join(err, errors.New("found")))
		}
		return nil
	})
	if _, err := maps.Get(t.Context(), "free", metav1.GetOptions{}); err != nil {
		t.Errorf("what nobody owns: %v", err)
	}
}

// TestEviction covers that an eviction is refused while the disruption budget is
// exhausted, and succeeds otherwise.
func TestEviction(t *testing.T) {
	t.Parallel()
	client, ns := admin(t), kubebedtest.Namespace(t)
	kubebedtest.SimulatePodOutcomes(t, kubebedtest.Bed(t), ns)
	p := pod("guarded", map[string]string{kubebedtest.OutcomeAnnotation: "Running"})
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	budgets := client.PolicyV1().PodDisruptionBudgets(ns)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: p.Labels}},
	}
	if _, err := budgets.Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	counted := func(ctx context.Context) error {
		b, err := budgets.Get(ctx, budget.Name, metav1.GetOptions{})
		if err == nil && (b.Status.CurrentHealthy != 1 || b.Status.ObservedGeneration != b.Generation) {
			err = fmt.Errorf("the Pod is not counted: %+v", b.Status)
		}
		return err
	}
	kubebedtest.Eventually(t, counted)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: ns}}
	if err := client.PolicyV1().Evictions(ns).Evict(t.Context(), eviction); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an eviction against the budget gives %v", err)
	}
	if _, err := client.CoreV1().Pods(ns).Get(t.Context(), p.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the Pod is gone: %v", err)
	}
	if err := budgets.Delete(t.Context(), budget.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		return client.PolicyV1().Evictions(ns).Evict(ctx, eviction)
	})
}

// TestTokens covers that a bound token belongs to its service account, has only the
// permissions of its roles, reaches the API server as in a cluster (by files), and is
// invalid after the deletion of the account.
func TestTokens(t *testing.T) {
	t.Parallel()
	bed, client, ns := kubebedtest.Bed(t), admin(t), kubebedtest.Namespace(t)
	granted, err := bed.EnsureServiceAccountConfig(t.Context(), ns, "robot")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	inside := &rest.Config{Host: granted.Host, BearerTokenFile: filepath.Join(dir, "token"), TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")}}
	err = errors.Join(os.WriteFile(inside.BearerTokenFile, []byte(granted.BearerToken), 0o600), os.WriteFile(inside.CAFile, granted.CAData, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	robot := newClient(t, inside)
	if _, err := robot.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:"+ns+":robot") {
		t.Errorf("without a role the robot lists: %v", err)
	}
	allow(t, client, ns, "robot", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		_, err := robot.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	for what, err := range map[string]error{
		"get":           ignore(robot.CoreV1().ConfigMaps(ns).Get(t.Context(), "any", metav1.GetOptions{})),
		"Secrets":       ignore(robot.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{})),
		"all of a kind": ignore(robot.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want a refusal", what, err)
		}
	}
	if err := client.CoreV1().ServiceAccounts(ns).Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		if _, err := robot.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token of a deleted account: %w", errors.Join(err, errors.New("it is good")))
		}
		return nil
	})
}

func ignore[T any](_ T, err error) error { return err }

// allow grants a service account permissions in its namespace.
func allow(t *testing.T, client kubernetes.Interface, ns, account string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: account}
	_, err := client.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: ns}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
