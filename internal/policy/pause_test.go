package policy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fleetloop/fleetloop/internal/policy"
)

// compiler is the name under which this program compiles a set and exits.
const compiler = "compile-policies"

// long is a policy test that takes some tenths of a second.
const long = `package long_test

l := [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]

test_long if count([1 | some a in l; some b in l; some c in l; some d in l; some e in [1, 2, 3, 4, 5, 6]; a + b + c + d + e == 0]) == 0
`

// compileForTest is the main function of that program.
func compileForTest() {
	_, _ = fmt.Fprintln(os.Stdout, "begins")
	_, err := policy.CompileAndTest(context.Background(), with(map[string]string{"long_test.rego": long}), policy.Options{})
	_, _ = fmt.Fprintln(os.Stdout, "ends with", err)
}

// TestPauseIsNoFault checks that a pause of the process, such as a migration of the machine, does
// not fail the policies.
func TestPauseIsNoFault(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args = []string{compiler}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("it did not begin")
	}
	for range 2 { // on most machines one of them is during the test
		<-time.NewTimer(100 * time.Millisecond).C
		_ = cmd.Process.Signal(syscall.SIGSTOP)    // it may have ended
		<-time.NewTimer(1200 * time.Millisecond).C // longer than the former limit of a test
		_ = cmd.Process.Signal(syscall.SIGCONT)
	}
	if !lines.Scan() || lines.Text() != "ends with <nil>" {
		t.Errorf("it %s", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestUnfinished checks that an unfinished set is not rejected, and is accepted the next time.
func TestUnfinished(t *testing.T) {
	store := policy.NewStore(0, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the machine stood still"))
	err := store.LoadPolicies(ctx, shipped(t), policy.Enforce)
	if !errors.Is(err, policy.ErrUnfinished) || !errors.Is(store.GetStatus().Err, policy.ErrUnfinished) || !strings.Contains(err.Error(), "the machine stood still") {
		t.Errorf("got %v, want that it was not finished, and why", err)
	}
	if err := store.LoadPolicies(t.Context(), shipped(t), policy.Enforce); err != nil || store.GetStatus().Hash == "" {
		t.Errorf("got %v", err)
	}
}

// TestTestsThatNeverEndAreCounted checks that each load of a set whose tests exhaust their CPU time
// counts as a failure. The end of the process does not.
func TestTestsThatNeverEndAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	metrics, err := policy.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	store := policy.NewStore(0, metrics)
	policy.SetTrialCPUTime(store, 10*time.Millisecond)
	files := with(map[string]string{"long_test.rego": strings.ReplaceAll(long, "some e in [1, 2, 3, 4, 5, 6]", "some e in l; some f in l; some g in l")})
	for range 2 {
		err := store.LoadPolicies(t.Context(), files, policy.Enforce)
		if want := "test policies: not finished within 10ms of CPU time: long_test.rego:5: data.long_test.test_long does not end"; !errors.Is(err, policy.ErrUnfinished) || err.Error() != want {
			t.Fatalf("got %v, want %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.LoadPolicies(ctx, files, policy.Enforce); !errors.Is(err, policy.ErrUnfinished) {
		t.Fatalf("got %v, want that the tests did not end", err)
	}
	want := `
		# HELP kubernetes_executor_policy_reload_failures_total Total number of times that the execution controller rejected a new version of the safety policies, because it is invalid, or because its tests failed or did not finish in time. The previous version stays active.
		# TYPE kubernetes_executor_policy_reload_failures_total counter
		kubernetes_executor_policy_reload_failures_total 2
	`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubernetes_executor_policy_reload_failures_total"); err != nil {
		t.Error(err)
	}
}
