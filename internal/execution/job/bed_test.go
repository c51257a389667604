package job

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{Controllers: kubebed.JobControllers()})
}

// restricted is a namespace that admits only Pods that may do next to nothing.
func restricted(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	ns := kubebedtest.Namespace(t)
	label := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	if _, err := client.CoreV1().Namespaces().Patch(t.Context(), ns, "application/merge-patch+json", label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return client, ns
}

// TestTheAPIServerTakesIt verifies that the API server accepts the Job of every action, and its Pod
// under the restricted Pod Security Standard.
func TestTheAPIServerTakesIt(t *testing.T) {
	client, ns := restricted(t)
	for _, a := range action.Catalogue() {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.ServiceAccount()}}
		if _, err := client.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, purpose := range []string{v1alpha1.PurposeExecute, v1alpha1.PurposeDryRun} {
			for _, once := range []bool{false, true} {
				target := web()
				if len(a.Kinds) > 0 && a.Kinds[0] == nodeKind {
					target = node("n1")
				}
				ke := newExecution(ns, strings.Repeat("long-name.", 24)+"end", "uid-1")
				ke.Spec.Timeout = &metav1.Duration{Duration: time.Hour}
				j := build(t, ke, newPlan(a.Name, target), purpose, Options{
					Namespace: ns, Image: "registry.example/action-runner@sha256:" + strings.Repeat("0", 64), PullPolicy: "IfNotPresent", PullSecrets: []string{"pull"}, OnTargetNode: once,
				})
				if once {
					b := builder{action: &action.Action{}}
					j.Spec.PodFailurePolicy.Rules = b.podFailureRules()
				}
				stored, err := client.BatchV1().Jobs(ns).Create(t.Context(), j, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
				if err != nil {
					t.Errorf("%s, %s: %v", a.Name, purpose, err)
					continue
				}
				type kept struct {
					Rules    *batchv1.PodFailurePolicy
					Replaced *batchv1.PodReplacementPolicy
					Retries  *int32
					Env      []corev1.EnvVar
					Owners   []metav1.OwnerReference
				}
				keep := func(j *batchv1.Job) kept {
					return kept{j.Spec.PodFailurePolicy, j.Spec.PodReplacementPolicy, j.Spec.BackoffLimitPerIndex, j.Spec.Template.Spec.Containers[0].Env, j.OwnerReferences}
				}
				if diff := cmp.Diff(keep(j), keep(stored)); diff != "" {
					t.Errorf("%s, %s: something was lost (-sent +stored):\n%s", a.Name, purpose, diff)
				}
				pod := &corev1.Pod{ObjectMeta: stored.Spec.Template.ObjectMeta, Spec: stored.Spec.Template.Spec}
				pod.Name = "p"
				if _, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
					t.Errorf("Pod of %s, %s: %v", a.Name, purpose, err)
				}
			}
		}
	}
}

// TestNoPodIsEverMade verifies that a Job whose Pods a LimitRange, a quota or admission refuses
// ends without a Pod and without changes.
func TestNoPodIsEverMade(t *testing.T) {
	t.Parallel()
	client, ns := restricted(t)
	limit := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")},
	}}}}
	if _, err := client.CoreV1().LimitRanges(ns).Create(t.Context(), limit, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ke := newExecution(ns, "e1", "uid-1")
	ke.Spec.Timeout = &metav1.Duration{Duration: minTimeout}
	p := newPlan("scale_deployment", web())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kubernaut-action-scale-deployment"}}
	if _, err := client.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	j := build(t, ke, p, v1alpha1.PurposeExecute, Options{Namespace: ns, Image: testImage})
	j.OwnerReferences = nil // there is no such execution, and it would be collected
	if _, err := client.BatchV1().Jobs(ns).Create(t.Context(), j, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var o Observation
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		j, err := client.BatchV1().Jobs(ns).Get(ctx, j.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if o = Observe(j, nil, time.Now()); o.State != Failed {
			return fmt.Errorf("it is %s", o.State)
		}
		return nil
	})
	if f := o.Failure; f.Reason != v1alpha1.ReasonExecutionTimeout || f.Detail != v1alpha1.DetailExecutorUnavailable || !strings.Contains(f.Message, "no Pod could be created") {
		t.Errorf("%+v", f)
	}
}
