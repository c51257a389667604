package policy_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fleetloop/fleetloop/internal/policy"
)

const denyAll = "package fleetloop.safety\nviolations contains \"closed\" if input.now > 0\n"

func TestStore(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	metrics, err := policy.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	st := policy.NewStore(10*time.Second, metrics)
	decide := func() (policy.Decision, string, error) {
		return st.Decide(t.Context(), policy.ExamplePolicyInput(), now)
	}

	if _, hash, err := decide(); !errors.Is(err, policy.ErrNoPolicy) || hash != "" {
		t.Errorf("without a set: got %q, %v", hash, err)
	}
	broken := with(map[string]string{"b.rego": "package b\nx if {"})
	wantError(t, st.LoadPolicies(t.Context(), broken, policy.Enforce), "b.rego:2")
	if _, _, err := decide(); !errors.Is(err, policy.ErrNoPolicy) || !strings.Contains(err.Error(), "b.rego:2") {
		t.Errorf("without a good set: got %v, want why", err)
	}
	if got := st.GetStatus(); got.Hash != "" || got.Err == nil || !got.LoadedAt.IsZero() {
		t.Errorf("got %+v", got)
	}

	if err := st.LoadPolicies(t.Context(), with(map[string]string{"a_test.rego": "package a_test\ntest_x if true"}), policy.Enforce); err != nil {
		t.Fatal(err)
	}
	first := st.GetStatus()
	if diff := cmp.Diff([]string{"a_test.rego", "smallest.rego"}, first.Names); diff != "" || first.Err != nil || first.LoadedAt.IsZero() || first.Mode != policy.Enforce || first.Tests != 1 {
		t.Errorf("got %+v", first)
	}
	if d, hash, err := decide(); !d.Allow || hash != first.Hash || err != nil {
		t.Errorf("got %+v, %q, %v", d, hash, err)
	}

	// A rejected set leaves the last good one, with its mode.
	wantError(t, st.LoadPolicies(t.Context(), broken, policy.Warn), "b.rego:2")
	if got := st.GetStatus(); got.Hash != first.Hash || got.Err == nil || got.Mode != policy.Enforce || got.LoadedAt != first.LoadedAt {
		t.Errorf("got %+v, want %+v with an error", got, first)
	}
	if d, hash, err := decide(); !d.Allow || hash != first.Hash || err != nil {
		t.Errorf("got %+v, %q, %v", d, hash, err)
	}
	wantError(t, st.LoadPolicies(t.Context(), with(nil), "strict"), `unknown mode "strict"`)

	// Loading the previous set again clears the error.
	if err := st.LoadPolicies(t.Context(), with(map[string]string{"a_test.rego": "package a_test\ntest_x if true"}), ""); err != nil {
		t.Fatal(err)
	}
	if got := st.GetStatus(); got.Err != nil || got.LoadedAt != first.LoadedAt {
		t.Errorf("got %+v, want %+v", got, first)
	}

	if err := st.LoadPolicies(t.Context(), with(map[string]string{"b.rego": denyAll}), policy.Enforce); err != nil {
		t.Fatal(err)
	}
	if d, _, err := decide(); d.Allow || !cmp.Equal(d.Violations, []string{"closed"}) || err != nil {
		t.Errorf("got %+v, %v", d, err)
	}
	second := st.GetStatus()
	if err := st.LoadPolicies(t.Context(), with(map[string]string{"b.rego": denyAll}), policy.Audit); err != nil {
		t.Fatal(err)
	}
	if d, hash, err := decide(); !d.Allow || d.Mode != "audit" || hash != second.Hash || err != nil {
		t.Errorf("in another mode: got %+v, %q, %v", d, hash, err)
	}
	if _, _, err := st.Decide(t.Context(), []byte("{}"), now); err == nil {
		t.Error("no error")
	}

	want := `
# HELP kubernetes_executor_policy_denials_total Total number of times that a safety policy denied a KubernetesExecution, by policy and action. A safety policy is a Rego rule that allows or denies KubernetesExecutions.
# TYPE kubernetes_executor_policy_denials_total counter
kubernetes_executor_policy_denials_total{action="scale_deployment",policy="smallest"} 1
# HELP kubernetes_executor_policy_evaluation_total Total number of evaluations of the safety policies (Rego rules that allow or deny a KubernetesExecution), by result: allowed, denied, not_enforced (denied, but only by policies in mode warn or audit) or error (treated as denied).
# TYPE kubernetes_executor_policy_evaluation_total counter
kubernetes_executor_policy_evaluation_total{result="allowed"} 2
kubernetes_executor_policy_evaluation_total{result="denied"} 1
kubernetes_executor_policy_evaluation_total{result="error"} 3
kubernetes_executor_policy_evaluation_total{result="not_enforced"} 1
# HELP kubernetes_executor_policy_info 1 for the active version of the safety policies; absent if no policies are loaded. The label hash identifies the version. The safety policies are Rego rules that allow or deny a KubernetesExecution.
# TYPE kubernetes_executor_policy_info gauge
kubernetes_executor_policy_info{hash="` + second.Hash + `"} 1
# HELP kubernetes_executor_policy_reload_failures_total Total number of times that the execution controller rejected a new version of the safety policies, because it is invalid, or because its tests failed or did not finish in time. The previous version stays active.
# TYPE kubernetes_executor_policy_reload_failures_total counter
kubernetes_executor_policy_reload_failures_total 3
# HELP kubernetes_executor_policy_reloads_total Total number of times that the execution controller loaded a new version of the safety policies. The safety policies are Rego rules that allow or deny a KubernetesExecution.
# TYPE kubernetes_executor_policy_reloads_total counter
kubernetes_executor_policy_reloads_total 3
`
	names := []string{"kubernetes_executor_policy_denials_total", "kubernetes_executor_policy_evaluation_total", "kubernetes_executor_policy_info", "kubernetes_executor_policy_reload_failures_total", "kubernetes_executor_policy_reloads_total"}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "kubernetes_executor_policy_evaluation_duration_seconds"); n != 4 || err != nil {
		t.Errorf("%d series of the duration, %v", n, err)
	}
}

// TestStoreConcurrently checks that one set makes a decision from beginning to end, and that the
// hash is that set's.
func TestStoreConcurrently(t *testing.T) {
	open, closed := with(nil), with(map[string]string{"b.rego": denyAll})
	openHash, closedHash := newSet(t, open, policy.Options{}).ContentHash(), newSet(t, closed, policy.Options{}).ContentHash()
	st := policy.NewStore(time.Minute, nil)
	if err := st.LoadPolicies(t.Context(), open, policy.Enforce); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var loading, deciding sync.WaitGroup
	for _, files := range []map[string]string{open, closed, with(map[string]string{"b.rego": "package b\nx if {"})} {
		loading.Go(func() {
			for range 10 {
				_ = st.LoadPolicies(t.Context(), files, policy.Enforce)
				_ = st.GetStatus()
			}
		})
	}
	var seen sync.Map
	for range 4 {
		deciding.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				d, hash, err := st.Decide(t.Context(), policy.ExamplePolicyInput(), now)
				if err != nil || d.Allow != (hash == openHash) || hash != openHash && hash != closedHash {
					t.Errorf("got %+v, %q, %v", d, hash, err)
					return
				}
				seen.Store(hash, true)
			}
		})
	}
	loading.Wait()
	close(done)
	deciding.Wait()
	if _, ok := seen.Load(openHash); !ok {
		t.Error("the open set never decided")
	}
}

func TestMetricsTwice(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := policy.NewMetrics(reg); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.NewMetrics(reg); err == nil {
		t.Error("metrics were registered twice")
	}
}

func FuzzCompile(f *testing.F) {
	for name, text := range shipped(f) {
		f.Add(name, text)
	}
	f.Add("a.v0.rego", "package fleetloop.safety\ndecision = {\"allow\": true}")
	f.Add("a_test.rego", "package a\ntest_x if data.fleetloop.safety.decision with input as {}")
	f.Add("a.rego", "package a\nx := "+strings.Repeat("{", 3000))
	f.Fuzz(func(t *testing.T, name, text string) {
		if len(text) > 16<<10 {
			return
		}
		begin := time.Now()
		_, err := policy.CompileAndTest(t.Context(), with(map[string]string{name: text}), policy.Options{Timeout: 250 * time.Millisecond, TrialCPUTime: 250 * time.Millisecond})
		if err != nil && strings.Contains(err.Error(), "panic") {
			t.Error(err)
		}
		if took := time.Since(begin); took > 60*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestUnload checks that there are no decisions after the policies were removed.
func TestUnload(t *testing.T) {
	st := policy.NewStore(10*time.Second, nil)
	files := with(nil)
	if err := st.LoadPolicies(t.Context(), files, policy.Enforce); err != nil {
		t.Fatal(err)
	}
	st.UnloadPolicies()
	if d, _, err := st.Decide(t.Context(), policy.ExamplePolicyInput(), time.Now()); !errors.Is(err, policy.ErrNoPolicy) || !errors.Is(err, policy.ErrTakenAway) || d.Allow {
		t.Errorf("it decided %+v, %v", d, err)
	}
	if s := st.GetStatus(); s.Hash != "" || !errors.Is(s.Err, policy.ErrTakenAway) {
		t.Errorf("it has %+v", s)
	}
	if err := st.LoadPolicies(t.Context(), files, policy.Enforce); err != nil || st.GetStatus().Hash == "" {
		t.Errorf("the same set again: %v", err)
	}
}
