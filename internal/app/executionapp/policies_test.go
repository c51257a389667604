package executionapp_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/policy"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// endless is a policy test that does not end within a test of this package.
const endless = `package endless_test

l := [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]

test_endless if count([1 | some a in l; some b in l; some c in l; some d in l; some e in l; some f in l; some g in l; a + b + c + d + e + f + g == 0]) == 0
`

// TestPoliciesWhoseTestsDoNotEnd verifies that such policies are counted as not loaded, and that
// readiness and the log name the test and the reason.
func TestPoliciesWhoseTestsDoNotEnd(t *testing.T) {
	t.Parallel()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"},
		Data:       map[string]string{"a.rego": "package fleetloop.safety\n\ndecision := {\"allow\": false}\n", "endless_test.rego": endless},
	}
	var reg *prometheus.Registry
	var out *processtest.Buffer
	var ready error
	limit := 50 * time.Millisecond
	for ; ; limit *= 2 {
		reg, out = prometheus.NewRegistry(), new(processtest.Buffer)
		metrics, err := policy.NewMetrics(reg)
		if err != nil {
			t.Fatal(err)
		}
		var done bool
		done, ready = executionapp.LoadPolicies(t.Context(), policy.NewStore(0, metrics), cm, limit, slog.New(slog.NewJSONHandler(out, nil)))
		if done || ready == nil {
			t.Fatalf("done is %t and readiness is %v, want a retry and an error", done, ready)
		}
		if !strings.Contains(ready.Error(), "some tests did not start") || limit > 10*time.Second { // on a busy machine
			break
		}
	}
	for _, want := range []string{"the controller got too little CPU time within " + limit.String(), "endless_test.rego:5: data.endless_test.test_endless does not end"} {
		if !strings.Contains(ready.Error(), want) {
			t.Errorf("readiness lacks %q: %v", want, ready)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q: %s", want, out.String())
		}
	}
	want := `
		# HELP kubernetes_executor_policy_reload_failures_total Total number of times that the execution controller rejected a new version of the safety policies, because it is invalid, or because its tests failed or did not finish in time. The previous version stays active.
		# TYPE kubernetes_executor_policy_reload_failures_total counter
		kubernetes_executor_policy_reload_failures_total 1
	`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubernetes_executor_policy_reload_failures_total"); err != nil {
		t.Error(err)
	}
}
