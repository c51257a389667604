package job

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
)

func TestMain(m *testing.M) { kubebedtest.Main(m, kubebed.Options{}) }

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

// TestTheAPIServerTakesIt as it is, for every action, and the Pod under the
// strictest standard that there is.
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
					j.Spec.PodFailurePolicy.Rules = b.rules()
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
