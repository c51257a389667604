package execcli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// TestMistakes holds what a user sees who has mistyped. Nothing is asked of any
// server.
func TestMistakes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
	}{
		"no-such-action":  {"the nearest is offered", []string{"exec", "scale_deploymnet", "replicas=5"}},
		"no-such-command": {"a command is meant", []string{"exec", "describ", "x"}},
		"bad-parameters":  {"all mistakes at once", []string{"exec", "scale_deployment", "replicas=five", "deploy=web"}},
		"bad-values":      {"what the catalogue says of them", []string{"exec", "scale_deployment", "namespace=shop", "deployment=Bad_Name!", "replicas=-1"}},
		"missing":         {"what is missing is named", []string{"exec", "scale_deployment", "replicas=5"}},
		"bad-dry-run":     {"what there is", []string{"exec", "scale_deployment", "namespace=shop", "deployment=web", "replicas=5", "--dry-run=yes"}},
		"bad-mode":        {"what there is", []string{"exec", "scale_deployment", "namespace=shop", "deployment=web", "replicas=5", "--mode=here"}},
		"bad-target":      {"how to write it", []string{"exec", "rollout_restart", "--target=web"}},
		"bad-agent":       {"a request without a mark would be one of the user", []string{"exec", "rollout_restart", "--target=Deployment/shop/web", "--agent= "}},
		"bad-time":        {"a sign is a mistake", []string{"exec", "scale_deployment", "namespace=shop", "deployment=web", "replicas=5", "--action-timeout=-1s"}},
		"bad-format":      {"what there is", []string{"exec", "get", "-o", "xml"}},
		"get-both":        {"which is meant is not clear", []string{"exec", "get", "x", "--phase=failed"}},
		"describe-what":   {"not by accident", []string{"exec", "describe"}},
		"cancel-what":     {"not by accident", []string{"exec", "cancel"}},
		"stop-why":        {"others will have to know", []string{"exec", "stop"}},
		"reject-why":      {"--reason is required; the requester of the execution sees it", []string{"reject", "x"}},
		"approve-nobody":  {"there is nobody to ask", []string{"approve", "x"}},
		"approve-short":   {"not just any plan that begins so", []string{"approve", "x", "--yes", "--plan=3f"}},
		"actions-unknown": {"what there is", []string{"exec", "actions", "scale_deploymnet"}},
		"watch-two":       {"one at a time", []string{"exec", "watch", "a", "b"}},
		"no-cluster":      {"how to name one", []string{"exec", "get", "--kubeconfig=/nowhere/config"}},
		"no-context":      {"how to name one", []string{"exec", "get", "--kubeconfig=/nowhere/config", "--kube-context=x"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run{args: tc.args}.runCLI(t.Context())
			if r.code != cli.CodeUsage {
				t.Errorf("%s: exit code %d, want %d", tc.reason, r.code, cli.CodeUsage)
			}
			wantGolden(t, name, r.outputText())
		})
	}
}

// No action is called like one of the commands that stand in the same place.
func TestActionsAreNoCommands(t *testing.T) {
	t.Parallel()
	for _, cmd := range execcli.Commands(cli.Env{}) {
		for _, sub := range cmd.Commands() {
			if _, ok := action.Find(sub.Name()); ok {
				t.Errorf("%q is an action and a command", sub.Name())
			}
		}
	}
}

func TestActionsAreListed(t *testing.T) {
	t.Parallel()
	r := run{args: []string{"exec", "actions"}}.runCLI(t.Context())
	names := run{args: []string{"exec", "actions", "-o", "name"}}.runCLI(t.Context())
	for _, a := range action.Catalogue() {
		if !strings.Contains(r.out, a.Name+" ") || !strings.Contains(names.out, a.Name+"\n") {
			t.Errorf("%s is not listed:\n%s%s", a.Name, r.out, names.out)
		}
		one := run{args: []string{"exec", "actions", a.Name}}.runCLI(t.Context())
		for _, p := range a.Parameters() {
			if !strings.Contains(one.out, p.Name) {
				t.Errorf("%s does not tell of %s:\n%s", a.Name, p.Name, one.out)
			}
		}
	}
}

func scaleArgs(args ...string) []string {
	return append([]string{"exec", "scale_deployment", "namespace=shop", "deployment=web", "replicas=5"}, args...)
}

func TestExecAsksInOnesOwnName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1", "--reason=more traffic", "--always-dry-run", "--action-timeout=90s", "--approval-timeout=0s",
		"--retries=0", "--mode=job", "--environment=test", "--correlation-id=inc-7", "--ttl=1h")...), cli.CodeOK, "execution/s1 created")
	ke := f.getExecution("s1")
	var parameters any
	if err := json.Unmarshal(ke.Spec.Parameters.Raw, &parameters); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"namespace": "shop", "deployment": "web", "replicas": 5.0}
	if diff := cmp.Diff(want, parameters); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	got := ke.Spec
	got.Parameters = nil
	wantSpec := v1alpha1.KubernetesExecutionSpec{
		Action: "scale_deployment", RequestedBy: "alice", RequesterGroups: []string{"system:masters", "system:authenticated"}, Reason: "more traffic", DryRunMode: v1alpha1.DryRunAlways,
		Timeout: got.Timeout, ApprovalTimeout: got.ApprovalTimeout, MaxRetries: new(int32(0)), ExecutionMode: v1alpha1.ExecuteInJob,
		Environment: "test", CorrelationID: "inc-7", TTLSecondsAfterFinished: new(int32(3600)),
	}
	if diff := cmp.Diff(wantSpec, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if got.Timeout == nil || got.Timeout.Seconds() != 90 || got.ApprovalTimeout == nil || got.ApprovalTimeout.Duration != 0 {
		t.Errorf("times %v and %v, want 90s and 0s", got.Timeout, got.ApprovalTimeout)
	}
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodePrecondition, `execution "s1" already exists`, "use another --name", "fleetloop exec describe s1 --namespace="+f.namespace)

	r := f.wantRun(f.asUser("alice", scaleArgs("-o", "name")...), cli.CodeOK, "kubernetesexecution.kubernetesexecution.kubernaut.io/scale-deployment-")
	f.wantRun(f.asUser("alice", "exec", "get", strings.TrimSpace(r.out)), cli.CodeOK, "scale_deployment")
	plain := f.getExecution(strings.TrimSpace(r.out[strings.LastIndex(r.out, "/")+1:])).Spec
	if plain.Timeout != nil || plain.MaxRetries != nil || plain.ApprovalTimeout != nil || plain.TTLSecondsAfterFinished != nil || plain.ExecutionMode != "" {
		t.Errorf("%+v says what nobody has asked for", plain)
	}
}

func TestExecReadsParametersFromFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.asUser("alice", "exec", "scale_deployment", "-f", "-", "replicas=7", "--name=s1")
	r.stdin = "deployment: web\nnamespace: shop\nreplicas: 3\n"
	f.wantRun(r, cli.CodeOK)
	if text := string(f.getExecution("s1").Spec.Parameters.Raw); !strings.Contains(text, `"replicas":7`) || !strings.Contains(text, `"deployment":"web"`) {
		t.Errorf("parameters %s", text)
	}
}

// TestExecNamesWorkloadsAsTheCatalogueDoes: what the catalogue makes a kind and a
// name of may be asked for, and goes out as it was asked for.
func TestExecNamesWorkloadsAsTheCatalogueDoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, words := range map[string][]string{
		"by-kind":  {"rollout_restart", "deployment=web"},
		"by-alias": {"restart_deployment", "name=web"},
		"by-both":  {"restart_deployment", "deployment=web"},
	} {
		f.wantRun(f.asUser("alice", append(append([]string{"exec"}, words...), "namespace=shop", "--name="+name)...), cli.CodeOK)
		request, err := action.Parse(f.getExecution(name).Spec.DeepCopy())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := request.Target; got.Kind != "Deployment" || got.Name != "web" {
			t.Errorf("%s acts on %s %s, want Deployment web", name, got.Kind, got.Name)
		}
	}
	f.wantRun(f.asUser("alice", "exec", "rollout_status", "deployment=web", "namespace=shop"), cli.CodeUsage, "unknown parameter")
}

func TestExecIsRefusedByTheServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--environment="+strings.Repeat("x", 64))...), cli.CodePrecondition, "Too long")
	r := f.asUser("alice", scaleArgs()...)
	r.args = append(r.args, "--kubeconfig="+kubeconfig(t, "nobody"))
	f.wantRun(r, cli.CodeFailed, "forbidden", "ask an administrator for the role kubernaut-requester-medium")
}

// runSteps has an execution go through phases as a command notices them.
func (f *fixture) runSteps(name string, steps ...func()) {
	f.Helper()
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		var ke v1alpha1.KubernetesExecution
		return f.client.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, &ke)
	})
	for _, step := range steps {
		step()
	}
}

func TestWaitEndsWithTheExecution(t *testing.T) {
	t.Parallel()
	to := func(phase v1alpha1.Phase, change func(*v1alpha1.KubernetesExecutionStatus)) func(*fixture) {
		return func(f *fixture) { f.setStatus("s1", phase, change) }
	}
	cases := map[string]struct {
		reason string
		args   []string
		steps  []func(*fixture)
		code   int
		says   []string
	}{
		"Done": {
			"all its phases are told, and what was done", nil,
			[]func(*fixture){to(v1alpha1.PhaseValidating, nil), to(v1alpha1.PhaseExecuting, nil), to(v1alpha1.PhaseRollbackReady, completedStatus)},
			cli.CodeOK,
			[]string{"execution/s1 rollback_ready: Deployment shop/web scaled (replicas: 3 -> replicas: 5)"},
		},
		"Completed": {"without a way back it is done as well", nil, []func(*fixture){to(v1alpha1.PhaseCompleted, nil)}, cli.CodeOK, []string{"execution/s1 completed"}},
		"Failed": {
			"why, and where to look", nil,
			[]func(*fixture){to(v1alpha1.PhaseFailed, func(s *v1alpha1.KubernetesExecutionStatus) {
				s.Reason, s.Message, s.Outcome = v1alpha1.ReasonExecutionFailed, "it went wrong", v1alpha1.OutcomeFailed
			})},
			cli.CodeFailed,
			[]string{`execution "s1" failed: it went wrong`, "fleetloop exec describe s1"},
		},
		"Postcondition": {
			"done is not good", nil,
			[]func(*fixture){to(v1alpha1.PhaseRollbackReady, func(s *v1alpha1.KubernetesExecutionStatus) { s.Outcome = v1alpha1.OutcomeFailed })},
			cli.CodeFailed,
			[]string{"postcondition", "fleetloop rollback s1"},
		},
		"Partial": {
			"a warning is no failure", nil,
			[]func(*fixture){to(v1alpha1.PhaseCompleted, func(s *v1alpha1.KubernetesExecutionStatus) { s.Outcome = v1alpha1.OutcomePartial })},
			cli.CodeOK,
			[]string{"warning"},
		},
		"Approval": {"others have to do something", nil, []func(*fixture){to(v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 1))}, cli.CodePrecondition, []string{"is waiting for approval", "fleetloop approve s1"}},
		"TooLate":  {"undecided", []string{"--timeout=100ms"}, nil, cli.CodeTimeout, []string{`execution "s1": its phase is new after 100ms`}},
		"Deleted": {
			"there is nothing to wait for", nil,
			[]func(*fixture){func(f *fixture) {
				if err := f.client.Delete(f.Context(), f.getExecution("s1")); err != nil {
					f.Error(err)
				}
			}},
			cli.CodeFailed,
			[]string{"was deleted"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			_, ended, _ := f.background(f.asUser("alice", append(scaleArgs("--name=s1", "--wait"), tc.args...)...))
			if len(tc.steps) > 0 {
				f.runSteps("s1")
				for _, step := range tc.steps {
					step(f)
				}
			}
			r := f.waitForRun(ended)
			if r.code != tc.code {
				t.Errorf("%s: exit code %d, want %d\n%s", tc.reason, r.code, tc.code, r.outputText())
			}
			for _, text := range append(tc.says, "execution/s1 created\n") {
				if !strings.Contains(r.out+r.errs, text) {
					t.Errorf("%s: lacks %q\n%s", tc.reason, text, r.outputText())
				}
			}
		})
	}
}

// Who stops waiting does not stop the execution.
func TestWaitIsInterrupted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	out, ended, stop := f.background(f.asUser("alice", scaleArgs("--name=s1", "--wait")...))
	kubebedtest.Eventually(f, func(context.Context) error {
		if !strings.Contains(out.String(), "created") {
			return errors.New("it is not created yet")
		}
		return nil
	})
	stop()
	r := f.waitForRun(ended)
	if r.code != cli.CodeInterrupted || !strings.Contains(r.errs, "continues") || f.getExecution("s1").Spec.Cancel {
		t.Errorf("%s", r.outputText())
	}
}

func TestWaitInJSONGivesTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, ended, _ := f.background(f.asUser("alice", scaleArgs("--name=s1", "--wait", "-o", "json")...))
	f.runSteps("s1")
	f.setStatus("s1", v1alpha1.PhaseRollbackReady, completedStatus)
	r := f.waitForRun(ended)
	var ke v1alpha1.KubernetesExecution
	if err := json.Unmarshal([]byte(r.out), &ke); err != nil || ke.Status.Phase != v1alpha1.PhaseRollbackReady || ke.Kind != v1alpha1.Kind {
		t.Errorf("%v\n%s", err, r.outputText())
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", "exec", "get"), cli.CodeOK, "No executions found")
	for _, name := range []string{"s1", "s2"} {
		f.wantRun(f.asUser("alice", scaleArgs("--name="+name)...), cli.CodeOK)
	}
	f.setStatus("s2", v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 1))
	f.wantRun(f.asUser("alice", "exec", "get"), cli.CodeOK, "NAME", "s1", "s2")
	if r := f.wantRun(f.asUser("alice", "exec", "get", "--phase=waiting_approval", "-o", "name"), cli.CodeOK, "/s2\n"); strings.Contains(r.out, "s1") {
		t.Errorf("a phase was asked for\n%s", r.outputText())
	}
	if r := f.wantRun(f.asUser("alice", "exec", "get", "--action=restart_pod", "-o", "name"), cli.CodeOK); r.out != "" {
		t.Errorf("an action was asked for\n%s", r.outputText())
	}
	f.wantRun(f.asUser("alice", "exec", "get", "-l", "a=b", "-o", "json"), cli.CodeOK, `"items": []`)
	f.wantRun(f.asUser("alice", "exec", "get", "s1", "-o", "yaml"), cli.CodeOK, "kind: KubernetesExecution\n", "name: s1\n")
	f.wantRun(f.asUser("alice", "exec", "get", "s1", "nope"), cli.CodePartial, "s1", `execution "nope" not found`)
	f.wantRun(f.asUser("alice", "exec", "get", "nope"), cli.CodePrecondition, `execution "nope" not found`, "fleetloop exec get")
	f.wantRun(f.asUser("alice", "exec", "describe", "s2", "nope"), cli.CodePartial, "The execution is waiting for 1 more approval, not from alice, without a deadline.", "+ replicas: 5", "nope")
}

// A cluster that has never heard of executions says so.
func TestKindIsUnknown(t *testing.T) {
	t.Parallel()
	err := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{}}}
	if got := execcli.Explain(err, "list executions"); !strings.Contains(fmt.Sprint(got), "could not find") || cli.ExitCode(got) != cli.CodeFailed {
		t.Errorf("%v, exit code %d", got, cli.ExitCode(got))
	}
}

func TestWatchShowsWhatChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodeOK)
	out, ended, stop := f.background(f.asUser("alice", "exec", "watch"))
	wait := func(text string) {
		kubebedtest.Eventually(f, func(context.Context) error {
			if !strings.Contains(out.String(), text) {
				return fmt.Errorf("lacks %q:\n%s", text, out)
			}
			return nil
		})
	}
	wait("s1 ")
	f.setStatus("s1", v1alpha1.PhaseValidating, nil)
	wait("validating")
	f.wantRun(f.asUser("alice", scaleArgs("--name=s2")...), cli.CodeOK)
	wait("s2 ")
	if err := f.client.Delete(t.Context(), f.getExecution("s2")); err != nil {
		t.Fatal(err)
	}
	wait("deleted")
	stop()
	if r := f.waitForRun(ended); r.code != cli.CodeOK || strings.Count(r.out, "NAME") != 1 {
		t.Errorf("%s", r.outputText())
	}
}

// One that is followed is followed through its approval.
func TestWatchFollowsOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodeOK)
	f.setStatus("s1", v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 1))
	_, ended, _ := f.background(f.asUser("alice", "exec", "watch", "s1"))
	f.setStatus("s1", v1alpha1.PhaseExecuting, nil)
	f.setStatus("s1", v1alpha1.PhaseRollbackReady, completedStatus)
	if r := f.waitForRun(ended); r.code != cli.CodeOK || !strings.Contains(r.out, "execution/s1 rollback_ready") {
		t.Errorf("%s", r.outputText())
	}
}
