package executionapp_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// TestScraped verifies the metrics of a controller on a real API server for an execution, and for a
// removed guard.
func TestScraped(t *testing.T) {
	t.Parallel()
	namespace, kubeconfig := installNamespace(t)
	c := processtest.StartCommandInGoroutine(t, executionapp.NewCommand, nil, "--kubeconfig", kubeconfig, "--namespace", namespace, "--runner-image=runner", "--audit=off", "--admission-policy-propagation-delay=10ms")
	scrape := c.WaitForURLInLog(t, "metrics and health") + "/metrics"
	shows := func(series ...string) {
		t.Helper()
		processtest.Eventually(t, func() error {
			_, body := processtest.SendRequest(t, http.MethodGet, scrape, "")
			for _, want := range series {
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta("kubernetesexecution_") + want + `$`).MatchString(body) {
					return fmt.Errorf("/metrics lacks %s:\n%s", want, strings.Join(regexp.MustCompile(`(?m)^kubernetesexecution_(api|approval|cond).*$`).FindAllString(body, -1), "\n"))
				}
			}
			return nil
		})
	}
	shows("admission_policies_missing 0", `api_writes_total{resource="leases",verb="create"} 1`)

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(kubebedtest.Bed(t).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	condition := func(kind, allow string) v1alpha1.Condition {
		return v1alpha1.Condition{Type: kind, Rego: "package " + kind + "\n\nallow := " + allow, Timeout: &metav1.Duration{}}
	}
	ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Name: "told", Namespace: namespace}, Spec: v1alpha1.KubernetesExecutionSpec{
		Action: "notify_only", Parameters: &runtime.RawExtension{Raw: []byte(`{"message":"hello"}`)},
		PreConditions: []v1alpha1.Condition{condition("yes", "true"), condition("no", "false"), condition("unknown", "input.nothing")},
	}}
	if err := admin.Create(t.Context(), ke); err != nil {
		t.Fatal(err)
	}
	processtest.Eventually(t, func() error {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(ke), ke)
		if err == nil && ke.Status.Phase != v1alpha1.PhaseCompleted {
			err = fmt.Errorf("it is %q: %s", ke.Status.Phase, ke.Status.Message)
		}
		return err
	})
	shows(`api_writes_total{resource="kubernetesexecutions/status",verb="patch"} [1-9]\d*`, `api_writes_total{resource="events",verb="create"} [1-9]\d*`,
		`condition_evaluations_total{kind="precondition",result="passed"} 1`, `condition_evaluations_total{kind="precondition",result="failed"} 1`,
		`condition_evaluations_total{kind="precondition",result="error"} 1`, `condition_evaluation_duration_seconds_count{result="passed"} 1`,
		`condition_evaluation_duration_seconds_count{result="failed"} 1`, `condition_evaluation_duration_seconds_count{result="error"} 1`)

	host, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	bindings := host.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	guard, err := bindings.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range guard.Items {
		if strings.HasPrefix(b.Name, namespace+"-") {
			if err := bindings.Delete(t.Context(), b.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	shows("admission_policies_missing 1")
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}
