package execcli_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func timeAgo(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func agoP(d time.Duration) *metav1.Time { t := timeAgo(d); return &t }

func testOptions() execcli.OutputOptions {
	return execcli.OutputOptions{Now: now, Namespace: "kubernaut-executor"}
}

// newExecution returns an execution that no controller has seen.
func newExecution() *v1alpha1.KubernetesExecution {
	return &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kubernaut-executor", Name: "scale-deployment-x7kq2", UID: "7c1d", CreationTimestamp: timeAgo(3 * time.Minute),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "fleetloop"}},
		},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: "scale_deployment", Parameters: rawJSON(`{"replicas":5,"deployment":"web","namespace":"shop"}`),
			RequestedBy: "alice", Reason: "more traffic", DryRunMode: v1alpha1.DryRunPolicy,
		},
	}
}

// inPhase has an execution go through phases, a second each, the last since then.
func inPhase(ke *v1alpha1.KubernetesExecution, since time.Duration, phases ...v1alpha1.Phase) *v1alpha1.KubernetesExecution {
	for i, p := range phases {
		at := metav1.NewMicroTime(now.Add(-since - time.Duration(len(phases)-1-i)*time.Second))
		ke.Status.PhaseTransitions = append(ke.Status.PhaseTransitions, v1alpha1.PhaseTransition{Phase: p, At: at})
		ke.Status.Phase = p
	}
	return ke
}

// checkedExecution is an execution that passed its checks.
func checkedExecution() *v1alpha1.KubernetesExecution {
	ke := newExecution()
	back := &v1alpha1.RollbackInformation{
		Available: true, RollbackAction: "scale_deployment", RollbackParameters: rawJSON(`{"deployment":"web","namespace":"shop","replicas":3}`),
		EstimatedRollbackDuration: "10s", ExpectedCurrentValues: rawJSON(`{"replicas":5}`),
	}
	ke.Status.Target = "Deployment/shop/web"
	ke.Status.ValidationTime = agoP(2 * time.Minute)
	ke.Status.ValidationResults = &v1alpha1.ValidationResults{
		ParameterValidation: true, RBACValidation: true, ResourceExists: true,
		PolicyValidation: &v1alpha1.PolicyValidation{
			PolicyName: "safety-policy-v1", Allowed: true, RequiredApproval: true, RequiredDryRun: true, Mode: "enforce",
			PolicyHash: hash, EvaluatedAt: agoP(2 * time.Minute), Warnings: []string{"web is managed by argocd, which may undo this"},
		},
		DryRunResults: &v1alpha1.DryRunResults{Performed: true, Success: true, Warnings: []string{"autoscaling/v2beta2 is deprecated"}},
	}
	ke.Status.Plan = &v1alpha1.Plan{
		Hash: hash, Action: "scale_deployment", Parameters: ke.Spec.Parameters, CreatedAt: ke.CreationTimestamp,
		Target: v1alpha1.PlanTarget{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "ab12"},
		Before: rawJSON(`{"replicas":3}`),
		Steps: []v1alpha1.PlanStep{{
			Description: "scale Deployment shop/web from 3 to 5 replicas", Verb: "patch", APIVersion: "apps/v1", Resource: "deployments", Subresource: "scale", Namespace: "shop", Name: "web",
		}},
		Diff:   "- replicas: 3\n+ replicas: 5\n",
		Impact: v1alpha1.EstimatedImpact{ResourcesAffected: 1, ReplicasChanged: "3 -> 5", Description: "2 more Pods"}, Rollback: back,
		PolicyHash: hash,
	}
	return ke
}

// waitingExecution is an execution that waits for two approvals and has one, and another
// that does not count.
func waitingExecution() *v1alpha1.KubernetesExecution {
	ke := inPhase(checkedExecution(), 2*time.Minute, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval)
	bob := v1alpha1.Approval{Approver: "bob", Decision: v1alpha1.Approve, Reason: "seen it", PlanHash: hash}
	ke.Spec.Approvals = []v1alpha1.Approval{bob, {Approver: "carol", Decision: v1alpha1.Approve, PlanHash: strings.Repeat("0", 64)}}
	ke.Status.Approval = &v1alpha1.ApprovalStatus{
		State: v1alpha1.ApprovalPending, Required: true, RequiredCount: 2, RequesterCannotApprove: true, Groups: []string{"sre", "platform"},
		CountedDecisions: []v1alpha1.Approval{bob}, Deadline: &metav1.Time{Time: now.Add(58 * time.Minute)},
	}
	return ke
}

// endedExecution is an execution whose action was done.
func endedExecution(phase v1alpha1.Phase) *v1alpha1.KubernetesExecution {
	ke := waitingExecution()
	if phase != v1alpha1.PhaseExecuting {
		inPhase(ke, 85*time.Second, v1alpha1.PhaseExecuting)
	}
	inPhase(ke, time.Minute, phase)
	dora := v1alpha1.Approval{Approver: "dora", Decision: v1alpha1.Approve, PlanHash: hash}
	ke.Spec.Approvals = append(ke.Spec.Approvals, dora)
	ke.Status.Approval.CountedDecisions = append(ke.Status.Approval.CountedDecisions, dora)
	ke.Status.Approval.State, ke.Status.Approval.DecidedAt = v1alpha1.ApprovalApproved, agoP(90*time.Second)
	ke.Status.JobName = "kx-0123456789abcdef-run-0"
	ke.Status.Outcome = v1alpha1.OutcomeSucceeded
	ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{
		Success: true, JobName: ke.Status.JobName, Mode: v1alpha1.ExecuteInJob, StartTime: agoP(80 * time.Second), EndTime: agoP(65 * time.Second), Duration: "15s",
		ResourcesAffected: []v1alpha1.AffectedResource{{Kind: "Deployment", Namespace: "shop", Name: "web", Action: "scaled", Before: "replicas: 3", After: "replicas: 5"}},
		PodLogs:           "deployment.apps/web scaled\n", ResourcesAffectedCount: 1, RetriesAttempted: 1,
	}
	ke.Status.RollbackInformation = ke.Status.Plan.Rollback
	ke.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionValidated, Status: metav1.ConditionTrue, Reason: "ChecksPassed", LastTransitionTime: timeAgo(2 * time.Minute)},
		{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: "ExecutionSucceeded", Message: "Deployment shop/web scaled", LastTransitionTime: timeAgo(time.Minute)},
	}
	return ke
}

func withChange(ke *v1alpha1.KubernetesExecution, change func(*v1alpha1.KubernetesExecution)) *v1alpha1.KubernetesExecution {
	change(ke)
	return ke
}

// TestDescribe verifies the description that an on-call engineer reads.
func TestDescribe(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		ke     *v1alpha1.KubernetesExecution
	}{
		"new":     {"nothing has looked at it", newExecution()},
		"waiting": {"whose approval is missing, until when, and what of", waitingExecution()},
		"ready":   {"what was done, and how to take it back", endedExecution(v1alpha1.PhaseRollbackReady)},
		"executing": {"what runs, and where it can be watched", withChange(endedExecution(v1alpha1.PhaseExecuting), func(ke *v1alpha1.KubernetesExecution) {
			ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{JobName: ke.Status.JobName, StartTime: agoP(time.Minute)}
			ke.Status.Outcome, ke.Status.RollbackInformation, ke.Status.Conditions = "", nil, nil
			ke.Spec.TargetNamespace = "shop"
		})},
		"busy": {"who is in the way", withChange(inPhase(checkedExecution(), 5*time.Second, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated), func(ke *v1alpha1.KubernetesExecution) {
			ke.Status.ReasonDetail, ke.Status.Message = v1alpha1.DetailTargetBusy, "Deployment shop/web is worked on by drain-1"
			ke.Namespace = "elsewhere"
		})},
		"postcondition": {"done and not good: what, and the way back", withChange(endedExecution(v1alpha1.PhaseRollbackReady), func(ke *v1alpha1.KubernetesExecution) {
			ke.Status.Outcome, ke.Status.Reason = v1alpha1.OutcomeFailed, v1alpha1.ReasonPostConditionFailed
			ke.Status.Message = "postcondition available does not hold after 2m0s"
			ke.Status.ValidationResults.PostConditionResults = []v1alpha1.ConditionResult{
				{ConditionType: "available", Evaluated: true, Required: true, ErrorMessage: "2 of 5 Pods are ready", Attempts: 14, EvaluationTime: agoP(time.Minute)},
				{ConditionType: "quiet", Evaluated: true, Passed: true, Attempts: 1, EvaluationTime: agoP(time.Minute)},
			}
		})},
		"denied": {"which rules spoke", withChange(inPhase(newExecution(), time.Minute, v1alpha1.PhaseValidating, v1alpha1.PhaseFailed), func(ke *v1alpha1.KubernetesExecution) {
			ke.Status.Reason, ke.Status.ReasonDetail, ke.Status.Outcome = v1alpha1.ReasonValidationError, v1alpha1.DetailPolicyDenied, v1alpha1.OutcomeFailed
			ke.Status.Message = "the policy safety-policy-v1 denies it"
			ke.Status.ValidationResults = &v1alpha1.ValidationResults{ParameterValidation: true, RBACValidation: true, ResourceExists: true, PolicyValidation: &v1alpha1.PolicyValidation{
				PolicyName: "safety-policy-v1", Mode: "enforce", Violations: []string{"production: not to 0 replicas", "outside of business hours"}, PolicyHash: hash,
			}}
		})},
		"lost": {"what is not known is said so", withChange(endedExecution(v1alpha1.PhaseFailed), func(ke *v1alpha1.KubernetesExecution) {
			ke.Status.Reason, ke.Status.ReasonDetail, ke.Status.Outcome = v1alpha1.ReasonExecutionFailed, v1alpha1.DetailResultUnknown, v1alpha1.OutcomeFailed
			ke.Status.ExecutionResults.Success, ke.Status.ExecutionResults.ErrorMessage = false, "the pod vanished after it had started"
			ke.Status.ExecutionResults.ResourcesAffected, ke.Status.RollbackInformation = nil, &v1alpha1.RollbackInformation{Reason: "the action did not succeed"}
		})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := execcli.WriteDescription(&b, tc.ke, testOptions()); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			wantGolden(t, name, b.String())
		})
	}
}

// TestWhoGrantsWhat verifies the advice for the two actions without rights until an administrator
// names their objects.
func TestWhoGrantsWhat(t *testing.T) {
	t.Parallel()
	for does, want := range map[string]string{
		"scale_deployment": "An administrator must bind the role of the action in the namespace of the target; then create the execution again.",
		"update_secret":    "add the Secret to the role of the action (deploy/rbac/actions-secrets.yaml",
		"apply_manifest":   "add the kind to the role of the action (deploy/rbac/actions-manifests.yaml",
	} {
		ke := withChange(inPhase(newExecution(), time.Minute, v1alpha1.PhaseValidating, v1alpha1.PhaseFailed), func(ke *v1alpha1.KubernetesExecution) {
			ke.Spec.Action = does
			ke.Status.Reason, ke.Status.ReasonDetail, ke.Status.Outcome = v1alpha1.ReasonValidationError, v1alpha1.DetailRBACDenied, v1alpha1.OutcomeFailed
		})
		if says := strings.Join(execcli.Advise(ke, testOptions()).Says, "\n"); !strings.Contains(says, want) {
			t.Errorf("%s: %q lacks %q", does, says, want)
		}
	}
}

// TestDescribeElsewhere: a controller may execute nothing, whatever it
// is asked for.
// Nobody looks at what is in another namespace, and nothing else says so.
func TestDescribeElsewhere(t *testing.T) {
	t.Parallel()
	ke := newExecution()
	ke.Namespace = "shop"
	advice := execcli.Advise(ke, testOptions())
	if len(advice.Says) != 1 || !strings.Contains(advice.Says[0], "kubernaut-executor") || !strings.Contains(advice.Says[0], "shop") {
		t.Errorf("says %q", advice.Says)
	}
	if len(advice.Do) != 2 || advice.Do[0].Command != "kubectl --namespace=shop delete kubernetesexecution "+ke.Name {
		t.Errorf("do %+v", advice.Do)
	}
}

// TestDescribeCancelled verifies that a cancelled execution shows the consequences, and no deadline that no
// longer applies.
func TestDescribeCancelled(t *testing.T) {
	t.Parallel()
	ke := newExecution()
	ke.Status.Phase, ke.Status.Reason = v1alpha1.PhaseFailed, v1alpha1.ReasonCancelled
	later := metav1.NewTime(now.Add(time.Hour))
	ke.Status.Approval = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalPending, Required: true, RequiredCount: 1, Deadline: &later}
	var b bytes.Buffer
	if err := execcli.WriteDescription(&b, ke, testOptions()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "create it again with another name") || strings.Contains(b.String(), "deadline") || strings.Contains(b.String(), "without a deadline") {
		t.Errorf("it says:\n%s", b.String())
	}
	if !strings.Contains(b.String(), "Undecided, 0 of 1 received") {
		t.Errorf("it waits for approvals:\n%s", b.String())
	}
	var list bytes.Buffer
	if err := execcli.NewTablePrinter(&list, false, testOptions()).Write([]v1alpha1.KubernetesExecution{*ke}, testOptions()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(list.String(), "Pending") {
		t.Errorf("the list has it wait for approvals:\n%s", list.String())
	}
	ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{}
	if says := strings.Join(execcli.Advise(ke, testOptions()).Says, " "); !strings.Contains(says, "Check the target") {
		t.Errorf("of one that was at work it says %q", says)
	}
}

func TestWhatWasOnlyTriedOutIsNotDone(t *testing.T) {
	t.Parallel()
	ke := withChange(inPhase(newExecution(), time.Minute, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseCompleted), func(ke *v1alpha1.KubernetesExecution) {
		ke.Status.Outcome = v1alpha1.OutcomeSucceeded
		ke.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: "DryRun"}}
	})
	says := strings.Join(execcli.Advise(ke, testOptions()).Says, "\n")
	if !strings.Contains(says, "Nothing was changed") || !strings.Contains(says, "--dry-run") || strings.Contains(says, "is completed") {
		t.Errorf("%q does not say that nothing was done, and why", says)
	}
}

func TestDecideShowsWhatIsDecided(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	o := testOptions()
	o.Colour = true
	if err := execcli.WriteDecisionBasis(&b, waitingExecution(), o); err != nil {
		t.Fatal(err)
	}
	wantGolden(t, "decide-colour", b.String())
}

func TestTables(t *testing.T) {
	t.Parallel()
	for _, wide := range []bool{false, true} {
		var b bytes.Buffer
		l := execcli.NewTablePrinter(&b, wide, testOptions())
		for _, ke := range []*v1alpha1.KubernetesExecution{newExecution(), waitingExecution(), endedExecution(v1alpha1.PhaseRollbackReady)} {
			if err := l.Write([]v1alpha1.KubernetesExecution{*ke}, testOptions()); err != nil {
				t.Fatal(err)
			}
		}
		name := "table"
		if wide {
			name = "table-wide"
		}
		wantGolden(t, name, b.String())
	}
}

func TestObjectsAreAsKubectlWritesThem(t *testing.T) {
	t.Parallel()
	for _, format := range []string{terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName} {
		for name, list := range map[string][]v1alpha1.KubernetesExecution{"one": {*newExecution()}, "none": nil} {
			var b bytes.Buffer
			if err := execcli.WriteExecutionObjectsOrNames(&b, format, list, name == "one"); err != nil {
				t.Fatal(err)
			}
			wantGolden(t, "objects-"+name+"-"+format, b.String())
		}
	}
}

func TestShownActions(t *testing.T) {
	t.Parallel()
	found, ok := action.Find("scale_deployment")
	if !ok {
		t.Fatal("there is no scale_deployment")
	}
	a := new(*found)
	a.Permissions = []action.Permission{
		{Group: "apps", Resource: "deployments", Verbs: []string{"get"}, Why: "read the number of replicas"},
		{Group: "apps", Resource: "deployments", Subresource: "scale", Verbs: []string{"get", "patch"}, Why: "set the number of replicas"},
		{Resource: "nodes", Verbs: []string{"get"}, ClusterScoped: true},
		{Resource: "secrets", Verbs: []string{"get"}, Executor: true},
	}
	a.Timeout, a.Retries, a.Risk = 90*time.Second, 2, action.RiskHigh
	for name, write := range map[string]func(b *bytes.Buffer) error{
		"action":       func(b *bytes.Buffer) error { return execcli.WriteActionDescription(b, a, testOptions()) },
		"actions":      func(b *bytes.Buffer) error { return execcli.WriteActions(b, []*action.Action{a}, false, testOptions()) },
		"actions-wide": func(b *bytes.Buffer) error { return execcli.WriteActions(b, []*action.Action{a}, true, testOptions()) },
		"actions-yaml": func(b *bytes.Buffer) error {
			return cli.WriteYAMLOrJSON(b, terminal.FormatYAML, execcli.CatalogueValue([]*action.Action{a}, false))
		},
		"action-json": func(b *bytes.Buffer) error {
			return cli.WriteYAMLOrJSON(b, terminal.FormatJSON, execcli.CatalogueValue([]*action.Action{a}, true))
		},
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		wantGolden(t, name, b.String())
	}
}

// What any action of the catalogue says can be shown.
func TestAllActionsAreShown(t *testing.T) {
	t.Parallel()
	for _, a := range action.Catalogue() {
		var b bytes.Buffer
		if err := execcli.WriteActionDescription(&b, a, testOptions()); err != nil || !strings.Contains(b.String(), a.Name) {
			t.Errorf("%s: %v\n%s", a.Name, err, b.String())
		}
		b.Reset()
		if err := cli.WriteYAMLOrJSON(&b, terminal.FormatJSON, execcli.CatalogueValue([]*action.Action{a}, true)); err != nil {
			t.Errorf("%s: %v", a.Name, err)
		}
	}
}

// TestShownTextIsHarmless verifies that every phase has advice, and that no output contains control
// sequences.
func TestShownTextIsHarmless(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b]0;owned\x07\u202eb"
	phases := []v1alpha1.Phase{
		v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval,
		v1alpha1.PhaseExecuting, v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed,
	}
	for _, phase := range phases {
		ke := endedExecution(phase)
		ke.Name, ke.Namespace = evil, evil
		ke.Spec.RequestedBy, ke.Spec.RequestedByAgent, ke.Spec.Reason, ke.Spec.Action, ke.Spec.Environment, ke.Spec.CorrelationID = evil, evil, evil, evil, evil, evil
		ke.Spec.Parameters = rawJSON(`{"a":"` + `\u001b]0;owned\u0007` + `","\u001b":1}`)
		ke.Status.Message, ke.Status.Target, ke.Status.JobName = evil, evil, evil
		ke.Status.Phase, ke.Status.Outcome = phase, v1alpha1.Outcome(evil)
		ke.Status.ReasonDetail, ke.Status.Reason = v1alpha1.Detail(evil), v1alpha1.Reason(evil)
		ke.Status.Approval.Groups, ke.Status.Approval.State = []string{evil}, evil
		ke.Status.Approval.CountedDecisions[0] = v1alpha1.Approval{Approver: evil, Reason: evil, PlanHash: evil, Decision: v1alpha1.ApprovalDecision(evil)}
		ke.Status.ValidationResults.PolicyValidation = &v1alpha1.PolicyValidation{PolicyName: evil, Violations: []string{evil}, Warnings: []string{evil}, PolicyHash: evil, Mode: evil}
		ke.Status.ValidationResults.DryRunResults = &v1alpha1.DryRunResults{Errors: []string{evil}, Warnings: []string{evil}}
		ke.Status.ValidationResults.PreConditionResults = []v1alpha1.ConditionResult{{ConditionType: evil, ErrorMessage: evil, Required: true}}
		ke.Status.Plan.Diff, ke.Status.Plan.Hash, ke.Status.Plan.Impact.Description, ke.Status.Plan.Target.Name = evil, evil, evil, evil
		ke.Status.Plan.Steps[0].Description, ke.Status.Plan.Steps[0].Name = evil, evil
		ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{PodLogs: evil, ErrorMessage: evil, JobName: evil, Duration: evil, ResourcesAffected: []v1alpha1.AffectedResource{{Kind: evil, Name: evil, Before: evil, After: evil}}}
		ke.Status.RollbackInformation = &v1alpha1.RollbackInformation{Available: true, RollbackAction: evil, RollbackParameters: rawJSON(`{"x":"\u0007"}`), EstimatedRollbackDuration: evil}
		ke.Status.Conditions[0] = metav1.Condition{Type: evil, Reason: evil, Message: evil}
		var b bytes.Buffer
		if err := execcli.WriteDescription(&b, ke, testOptions()); err != nil {
			t.Fatal(err)
		}
		if err := execcli.NewTablePrinter(&b, true, testOptions()).Write([]v1alpha1.KubernetesExecution{*ke}, testOptions()); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(b.String(), "\x1b\x07\u202e") {
			t.Errorf("%q lets through what drives a terminal: %q", phase, b.String())
		}
		if next := execcli.Advise(endedExecution(phase), testOptions()); len(next.Says) == 0 {
			t.Errorf("%q says nothing about now", phase)
		}
	}
}
