package job

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

func second(n int) metav1.Time { return metav1.NewTime(began().Add(time.Duration(n) * time.Second)) }

// A fakePod is one as a node would report it.
type fakePod corev1.Pod

func newPod(name string) *fakePod {
	p := &fakePod{}
	p.Name, p.CreationTimestamp = name, second(0)
	p.Status.Phase = corev1.PodPending
	return p
}

func (p *fakePod) pod() *corev1.Pod { return (*corev1.Pod)(p) }

// earlier gives it one earlier attempt, as the Job controller does.
func (p *fakePod) earlier(annotation string) *fakePod {
	p.Annotations = map[string]string{annotation: "1"}
	return p
}

func (p *fakePod) created(at int) *fakePod {
	p.CreationTimestamp = second(at)
	return p
}

func (p *fakePod) container(s corev1.ContainerState, id string) *fakePod {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: Container, State: s, ContainerID: id}}
	return p
}

func (p *fakePod) unschedulable() *fakePod {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"})
	return p
}

func (p *fakePod) waiting(reason, message string) *fakePod {
	return p.container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}, "")
}

func (p *fakePod) running() *fakePod {
	p.Status.Phase = corev1.PodRunning
	return p.container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: second(2)}}, "c://1")
}

func (p *fakePod) ended(code int32, message string) *fakePod {
	p.Status.Phase = corev1.PodFailed
	if code == 0 {
		p.Status.Phase = corev1.PodSucceeded
	}
	reason := map[bool]string{true: "Completed", false: "Error"}[code == 0]
	return p.container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: second(2), FinishedAt: second(9), ContainerID: "c://1",
	}}, "c://1")
}

// left has it end with a result.
func (p *fakePod) left(code action.Code, change func(*action.Result)) *fakePod {
	r := action.Result{Version: 1, Code: code, Message: "what happened", PlanHash: "hash", Attempt: 1, Changed: code == action.CodeOK}
	if change != nil {
		change(&r)
	}
	return p.ended(int32(code), action.EncodeBounded(r))
}

// lost marks the container as a node does that never started it.
func (p *fakePod) lost(id string) *fakePod {
	p.Status.Phase = corev1.PodFailed
	return p.container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "could not be located"}}, id)
}

func (p *fakePod) reason(phase corev1.PodPhase, reason string) *fakePod {
	p.Status.Phase, p.Status.Reason = phase, reason
	return p
}

func (p *fakePod) disrupted(reason string) *fakePod {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "Eviction API: evicting"})
	return p
}

func (p *fakePod) deleted() *fakePod {
	p.DeletionTimestamp = new(second(8))
	return p
}

func (p *fakePod) stopped() *fakePod {
	p.Spec.ActiveDeadlineSeconds = new(int64(1))
	return p
}

// A fakeJob is one of an action that can be repeated, twice.
type fakeJob batchv1.Job

func newJob() *fakeJob {
	b := builder{action: &action.Action{Idempotent: true}}
	j := &fakeJob{}
	j.Name = "kx-1"
	j.Labels = map[string]string{v1alpha1.LabelPurpose: v1alpha1.PurposeExecute}
	j.Annotations = map[string]string{v1alpha1.AnnotationPlan: "hash"}
	j.Spec.BackoffLimit, j.Spec.ActiveDeadlineSeconds = new(int32(2)), new(int64(60))
	j.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(55))
	j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: b.podFailureRules()}
	return j
}

func (j *fakeJob) once() *fakeJob {
	b := builder{action: &action.Action{}}
	j.Spec.PodFailurePolicy.Rules = b.podFailureRules()
	return j
}

func (j *fakeJob) dry() *fakeJob {
	j.Labels[v1alpha1.LabelPurpose], j.Spec.BackoffLimit = v1alpha1.PurposeDryRun, new(int32(0))
	return j
}

func (j *fakeJob) noRetries() *fakeJob {
	j.Spec.BackoffLimit = new(int32(0))
	return j
}

func (j *fakeJob) failed(n int32) *fakeJob {
	j.Status.Failed = n
	return j
}

func (j *fakeJob) is(t batchv1.JobConditionType, reason string) *fakeJob {
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: "the Job says so"})
	return j
}

// seen is what an observation comes to.
type seen struct {
	State   State
	Reason  v1alpha1.Reason
	Detail  v1alpha1.Detail
	Says    string // part of the failure, or of what it waits for
	Code    action.Code
	Result  bool
	Blurred bool // unreadable
	Retries int32
	Pod     string
}

func TestObserve(t *testing.T) {
	const (
		failed   = v1alpha1.ReasonExecutionFailed
		timeout  = v1alpha1.ReasonExecutionTimeout
		dry      = v1alpha1.ReasonDryRunFailed
		deadline = batchv1.JobReasonDeadlineExceeded
	)
	partial := func(r *action.Result) { r.Changed = true }
	found := func(success bool) func(*action.Result) {
		return func(r *action.Result) {
			r.DryRun = &v1alpha1.DryRunResults{Performed: true, Success: success, Warnings: []string{}}
		}
	}
	for name, c := range map[string]struct {
		reason string
		job    *fakeJob
		pods   []*fakePod
		want   seen
	}{
		"Fresh":                  {"nothing has happened yet", newJob(), nil, seen{State: Pending}},
		"Created":                {"no node has it yet", newJob(), []*fakePod{newPod("a")}, seen{State: Pending, Pod: "a", Says: "not started yet"}},
		"Unschedulable":          {"it may still find a node", newJob(), []*fakePod{newPod("a").unschedulable()}, seen{State: Pending, Pod: "a", Says: "Unschedulable: 0/3"}},
		"ImagePull":              {"the image may still come", newJob(), []*fakePod{newPod("a").waiting("ImagePullBackOff", "no such image")}, seen{State: Pending, Pod: "a", Says: "ImagePullBackOff: no such image"}},
		"Running":                {"it is under way", newJob(), []*fakePod{newPod("a").running()}, seen{State: Running, Pod: "a"}},
		"Succeeded":              {"the Pod says so before the Job does", newJob(), []*fakePod{newPod("a").left(action.CodeOK, nil)}, seen{State: Succeeded, Pod: "a", Result: true}},
		"PhaseBehind":            {"a container that has ended is not started again, whatever the phase", newJob(), []*fakePod{newPod("a").left(action.CodeOK, nil).reason(corev1.PodRunning, "")}, seen{State: Succeeded, Pod: "a", Result: true}},
		"Empty":                  {"the exit code says that it succeeded, and not what it did", newJob(), []*fakePod{newPod("a").ended(0, "")}, seen{State: Succeeded, Pod: "a", Result: true, Blurred: true}},
		"Garbled":                {"what is no result is none", newJob(), []*fakePod{newPod("a").ended(0, "panic: no")}, seen{State: Succeeded, Pod: "a", Result: true, Blurred: true}},
		"OfAnotherPlan":          {"a result of another plan is not this one's", newJob(), []*fakePod{newPod("a").left(action.CodeOK, func(r *action.Result) { r.PlanHash = "other" })}, seen{State: Succeeded, Pod: "a", Result: true, Blurred: true}},
		"Guard":                  {"another attempt would find the same", newJob(), []*fakePod{newPod("a").left(action.CodeGuard, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailTargetChanged, Says: "what happened", Code: 10, Result: true, Pod: "a"}},
		"Forbidden":              {"so would one that may not", newJob(), []*fakePod{newPod("a").left(action.CodeForbidden, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailRBACDenied, Says: "what happened", Code: 11, Result: true, Pod: "a"}},
		"Invalid":                {"or that cannot", newJob(), []*fakePod{newPod("a").left(action.CodeInvalid, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailInvalidParameters, Says: "what happened", Code: 12, Result: true, Pod: "a"}},
		"Partial":                {"the rest cannot be done", newJob(), []*fakePod{newPod("a").left(action.CodePartial, partial)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailPartiallyExecuted, Says: "what happened", Code: 30, Result: true, Pod: "a"}},
		"OwnDeadline":            {"the runner ended itself in time to say so", newJob(), []*fakePod{newPod("a").left(action.CodeDeadline, nil)}, seen{State: Failed, Reason: timeout, Says: "did not finish within 1m0s: what happened", Code: 40, Result: true, Pod: "a"}},
		"PartlyInTime":           {"what was done is done", newJob(), []*fakePod{newPod("a").left(action.CodeDeadline, partial)}, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailPartiallyExecuted, Says: "did not finish within", Code: 40, Result: true, Pod: "a"}},
		"Cancelled":              {"it was told to end", newJob(), []*fakePod{newPod("a").left(action.CodeCancelled, nil)}, seen{State: Failed, Reason: v1alpha1.ReasonCancelled, Says: "what happened", Code: 50, Result: true, Pod: "a"}},
		"CodeAlone":              {"the exit code says why, at least", newJob(), []*fakePod{newPod("a").ended(11, "{\"v\":1,\"co")}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailRBACDenied, Says: "left no result", Code: 11, Result: true, Blurred: true, Pod: "a"}},
		"Transient":              {"there are two more attempts", newJob(), []*fakePod{newPod("a").left(action.CodeTransient, nil)}, seen{State: Retrying}},
		"TransientLast":          {"there is none left", newJob().noRetries(), []*fakePod{newPod("a").left(action.CodeTransient, nil)}, seen{State: Failed, Reason: failed, Says: "what happened", Code: 20, Result: true, Pod: "a"}},
		"TransientCounted":       {"the other Pods are gone, and the Job has counted them", newJob().failed(3), []*fakePod{newPod("a").left(action.CodeTransient, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "its result is unknown: what happened", Code: 20, Result: true, Retries: 2, Pod: "a"}},
		"Backoff":                {"the Job waits before the next attempt", newJob().failed(1), nil, seen{State: Retrying}},
		"SecondRuns":             {"an attempt has failed, the next is under way", newJob().failed(1), []*fakePod{newPod("a").left(action.CodeTransient, nil), newPod("b").created(20).running()}, seen{State: Running, Retries: 1, Pod: "b"}},
		"SecondWaits":            {"an attempt that has not begun is no retry yet", newJob().failed(1), []*fakePod{newPod("a").left(action.CodeTransient, nil), newPod("b").created(20).waiting("ErrImagePull", "")}, seen{State: Retrying, Says: "ErrImagePull", Pod: "b"}},
		"SecondSucceeds":         {"it was tried again once", newJob().failed(1), []*fakePod{newPod("b").created(20).left(action.CodeOK, nil), newPod("a").left(action.CodeTransient, nil)}, seen{State: Succeeded, Result: true, Retries: 1, Pod: "b"}},
		"SecondFails":            {"there is one more", newJob().failed(2), []*fakePod{newPod("a").left(action.CodeTransient, nil), newPod("b").created(20).left(action.CodeTransient, nil)}, seen{State: Retrying, Retries: 1}},
		"AllSpent":               {"the last attempt says why", newJob().failed(2), []*fakePod{newPod("a").left(action.CodeTransient, nil), newPod("b").created(20).ended(2, "panic"), newPod("c").created(60).left(action.CodeTransient, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "its result is unknown: what happened", Code: 20, Result: true, Retries: 2, Pod: "c"}},
		"ChangedBefore":          {"the first attempt changed something", newJob().failed(2), []*fakePod{newPod("a").left(action.CodeTransient, partial), newPod("b").created(20).left(action.CodeTransient, nil), newPod("c").created(60).left(action.CodeForbidden, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailPartiallyExecuted, Says: "another attempt changed or may have changed the target: what happened", Code: 11, Result: true, Retries: 2, Pod: "c"}},
		"LostIgnored":            {"the Pod of the first attempt is gone, and its failure is not counted", newJob(), []*fakePod{newPod("b").earlier(batchv1.JobIndexIgnoredFailureCountAnnotation).left(action.CodeForbidden, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "its result is unknown: what happened", Code: 11, Result: true, Pod: "b"}},
		"LostCounted":            {"the Pod of the first attempt is gone, and the last is not counted yet", newJob().failed(1), []*fakePod{newPod("b").earlier(batchv1.JobIndexFailureCountAnnotation).left(action.CodeForbidden, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "its result is unknown: what happened", Code: 11, Result: true, Pod: "b"}},
		"NotBegunNoRetry":        {"a Pod that the node refused is no retry", newJob().failed(1), []*fakePod{newPod("a").reason(corev1.PodFailed, "OutOfcpu"), newPod("b").created(20).left(action.CodeOK, nil)}, seen{State: Succeeded, Result: true, Pod: "b"}},
		"Crash":                  {"another attempt may do better", newJob(), []*fakePod{newPod("a").ended(2, "panic: boom")}, seen{State: Retrying}},
		"CrashLast":              {"what it did is not known", newJob().noRetries(), []*fakePod{newPod("a").ended(2, "panic: boom")}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: `exit code 2, message "panic: boom"`, Blurred: true, Pod: "a"}},
		"OnceKilled":             {"it may have been done, and is not done again", newJob().once(), []*fakePod{newPod("a").ended(137, "")}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "exit code 137", Blurred: true, Pod: "a"}},
		"OnceEvicted":            {"nor when it was its node's wish", newJob().once(), []*fakePod{newPod("a").left(action.CodeCancelled, nil).disrupted("EvictionByEvictionAPI")}, seen{State: Failed, Reason: failed, Says: "the node evicted it (Eviction API: evicting): what happened", Code: 50, Result: true, Pod: "a"}},
		"Evicted":                {"what can be repeated is", newJob(), []*fakePod{newPod("a").left(action.CodeCancelled, nil).disrupted("EvictionByEvictionAPI")}, seen{State: Retrying}},
		"EvictedWhenDone":        {"it had done its work", newJob(), []*fakePod{newPod("a").left(action.CodeOK, nil).disrupted("EvictionByEvictionAPI").reason(corev1.PodFailed, "Evicted")}, seen{State: Succeeded, Result: true, Pod: "a"}},
		"EvictedNotCounted":      {"however often it is let go, that is not the action's fault", newJob().noRetries(), []*fakePod{newPod("a").ended(137, "").disrupted("PreemptionByScheduler"), newPod("b").created(9).ended(143, "").disrupted("PreemptionByScheduler")}, seen{State: Retrying, Retries: 1}},
		"NodeLost":               {"its node is gone, and with it how it ended; it can be repeated", newJob(), []*fakePod{newPod("a").running().reason(corev1.PodFailed, "NodeLost").disrupted("DeletionByPodGC")}, seen{State: Retrying}},
		"OnceNodeLost":           {"and if it cannot, nobody knows", newJob().once(), []*fakePod{newPod("a").running().reason(corev1.PodFailed, "NodeLost").disrupted("DeletionByPodGC")}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "with its node", Pod: "a"}},
		"DeletedMidRun":          {"it still ends by itself", newJob(), []*fakePod{newPod("a").running().deleted()}, seen{State: Running, Pod: "a"}},
		"PodDeadline":            {"the runner was killed over time, unheard", newJob(), []*fakePod{newPod("a").ended(137, "").reason(corev1.PodFailed, deadline)}, seen{State: Retrying}},
		"PodDeadlineSpent":       {"that was the last attempt", newJob().noRetries(), []*fakePod{newPod("a").ended(137, "").reason(corev1.PodFailed, deadline)}, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailResultUnknown, Says: "left no result", Blurred: true, Pod: "a"}},
		"PodDeadlineSaid":        {"it said what it did", newJob(), []*fakePod{newPod("a").left(action.CodeCancelled, partial).reason(corev1.PodFailed, deadline)}, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailPartiallyExecuted, Says: "did not finish within 1m0s: what happened", Code: 50, Result: true, Pod: "a"}},
		"Stopped":                {"somebody wanted it so, and it was not over time", newJob(), []*fakePod{newPod("a").left(action.CodeCancelled, nil).reason(corev1.PodFailed, deadline).stopped()}, seen{State: Failed, Reason: v1alpha1.ReasonCancelled, Says: "what happened", Code: 50, Result: true, Pod: "a"}},
		"JobDeadline":            {"the Job is over time, its Pod was told to end and said so", newJob().is(batchv1.JobFailureTarget, deadline), []*fakePod{newPod("a").left(action.CodeCancelled, nil).deleted()}, seen{State: Failed, Reason: timeout, Says: "did not finish within", Code: 50, Result: true, Pod: "a"}},
		"JobDeadlineRuns":        {"its Pod still has a moment to say so", newJob().is(batchv1.JobFailureTarget, deadline), []*fakePod{newPod("a").running().deleted()}, seen{State: Running, Pod: "a"}},
		"JobDeadlinePull":        {"it never began", newJob().is(batchv1.JobFailureTarget, deadline), []*fakePod{newPod("a").waiting("ImagePullBackOff", "no such image").deleted()}, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailExecutorUnavailable, Says: "did not start within 1m0s: ImagePullBackOff: no such image. Nothing was changed"}},
		"JobDeadlinePullCounted": {"it never began", newJob().failed(1).is(batchv1.JobFailureTarget, deadline), []*fakePod{newPod("a").waiting("ImagePullBackOff", "no such image").deleted()}, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailExecutorUnavailable, Says: "did not start within 1m0s: ImagePullBackOff: no such image. Nothing was changed"}},
		"JobDeadlineNoNode":      {"nor did this", newJob().is(batchv1.JobFailed, deadline), []*fakePod{newPod("a").unschedulable().deleted()}, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailExecutorUnavailable, Says: "Unschedulable: 0/3"}},
		"PodDeadlinePull":        {"the node gave up before it began", newJob().is(batchv1.JobFailed, deadline), []*fakePod{newPod("a").lost("").reason(corev1.PodFailed, deadline)}, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailExecutorUnavailable, Says: "did not start", Pod: "a"}},
		"JobDeadlineGone":        {"no Pod is left to say whether it began", newJob().failed(1).is(batchv1.JobFailed, deadline), nil, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailResultUnknown, Says: "no Pod is left"}},
		"JobDeadlineNone":        {"there never was a Pod that could have begun", newJob().is(batchv1.JobFailed, deadline), nil, seen{State: Failed, Reason: timeout, Detail: v1alpha1.DetailExecutorUnavailable, Says: "no Pod could be created within 1m0s"}},
		"JobDeadlineCounts":      {"it is over, and has not counted yet what Pods it had", newJob().is(batchv1.JobFailureTarget, deadline), nil, seen{State: Pending}},
		"JobDeadlineLater":       {"an attempt had failed, and there was no time for the next", newJob().failed(1).is(batchv1.JobFailed, deadline), []*fakePod{newPod("a").left(action.CodeTransient, nil)}, seen{State: Failed, Reason: timeout, Says: "did not finish within 1m0s: what happened", Code: 20, Result: true, Pod: "a"}},
		"LostAfterItBegan":       {"it had an identity, so it may have begun", newJob().noRetries(), []*fakePod{newPod("a").lost("c://1")}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "ContainerStatusUnknown", Blurred: true, Pod: "a"}},
		"StartError":             {"the program is not in the image", newJob().noRetries(), []*fakePod{newPod("a").startError()}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailExecutorUnavailable, Says: "StartError: no such file", Pod: "a"}},
		"Refused":                {"the node did not take it", newJob().noRetries(), []*fakePod{newPod("a").reason(corev1.PodFailed, "UnexpectedAdmissionError")}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailExecutorUnavailable, Says: "UnexpectedAdmissionError", Pod: "a"}},
		"PolicyGone":             {"the Job says why, and no Pod what", newJob().failed(1).is(batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy), nil, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "PodFailurePolicy: the Job says so"}},
		"BackoffGone":            {"so for attempts that are spent", newJob().failed(3).is(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded), nil, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "BackoffLimitExceeded", Retries: 2}},
		"CompleteGone":           {"a Job that is complete had a Pod that succeeded", newJob().is(batchv1.JobComplete, "CompletionsReached"), nil, seen{State: Succeeded, Result: true, Blurred: true}},
		"TwoOneSucceeds":         {"one of two at once has done it; the other finds that out", newJob(), []*fakePod{newPod("a").left(action.CodeOK, nil), newPod("b").running()}, seen{State: Succeeded, Result: true, Retries: 1, Pod: "a"}},
		"TwoOneFails":            {"the other may still succeed", newJob(), []*fakePod{newPod("a").left(action.CodeGuard, nil), newPod("b").running()}, seen{State: Running, Retries: 1, Pod: "b"}},
		"TwoFailedJob":           {"the Job waits for none", newJob().is(batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy), []*fakePod{newPod("a").left(action.CodeGuard, nil), newPod("b").running()}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailResultUnknown, Says: "what happened", Code: 10, Result: true, Retries: 1, Pod: "a"}},
		"DryRun":                 {"what it found is in the result", newJob().dry(), []*fakePod{newPod("a").left(action.CodeOK, found(true))}, seen{State: Succeeded, Result: true, Pod: "a"}},
		"Denied":                 {"or that is refused for reasons of its own", newJob(), []*fakePod{newPod("a").left(action.CodeDenied, nil)}, seen{State: Failed, Reason: failed, Detail: v1alpha1.DetailAdmissionDenied, Says: "what happened", Code: 13, Result: true, Pod: "a"}},
		"DryRunFound":            {"also if it is bad", newJob().dry(), []*fakePod{newPod("a").left(action.CodeInvalid, found(false))}, seen{State: Failed, Reason: dry, Detail: v1alpha1.DetailInvalidParameters, Says: "what happened", Code: 12, Result: true, Pod: "a"}},
		"DryRunMute":             {"one that found nothing was for nothing", newJob().dry(), []*fakePod{newPod("a").ended(0, "")}, seen{State: Failed, Reason: dry, Detail: v1alpha1.DetailResultUnknown, Says: "without a readable result", Blurred: true, Pod: "a"}},
		"DryRunPull":             {"it never began", newJob().dry().is(batchv1.JobFailed, deadline), []*fakePod{newPod("a").waiting("ErrImagePull", "x").deleted()}, seen{State: Failed, Reason: dry, Detail: v1alpha1.DetailExecutorUnavailable, Says: "ErrImagePull"}},
		"DryRunPullCounted":      {"it never began", newJob().failed(1).dry().is(batchv1.JobFailed, deadline), []*fakePod{newPod("a").waiting("ErrImagePull", "x").deleted()}, seen{State: Failed, Reason: dry, Detail: v1alpha1.DetailExecutorUnavailable, Says: "ErrImagePull"}},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []corev1.Pod
			for _, p := range c.pods {
				pods = append(pods, *p.pod())
			}
			o := Observe((*batchv1.Job)(c.job), pods, second(30).Time)
			got := seen{State: o.State, Result: o.Result != nil, Blurred: o.Unreadable, Retries: o.Retries, Pod: o.Pod, Says: c.want.Says}
			says := o.Waiting
			if f := o.Failure; f != nil {
				got.Reason, got.Detail, says = f.Reason, f.Detail, f.Message
			}
			if o.Result != nil {
				got.Code = o.Result.Code
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if !strings.Contains(says, c.want.Says) || c.want.Says == "" && says != "" {
				t.Errorf("%s: it says %q, want %q", c.reason, says, c.want.Says)
			}
			if done := o.State == Succeeded || o.State == Failed; done != (o.Ended != nil) || (o.State == Failed) != (o.Failure != nil) {
				t.Errorf("%s: in state %s it ended %v and failed %v", c.reason, o.State, o.Ended, o.Failure)
			}
		})
	}
}

func (p *fakePod) startError() *fakePod {
	p.Status.Phase = corev1.PodFailed
	return p.container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 128, Reason: "StartError", Message: "no such file", StartedAt: metav1.NewTime(time.Unix(0, 0)), ContainerID: "c://1",
	}}, "c://1")
}

func TestObserveTimes(t *testing.T) {
	pods := []corev1.Pod{*newPod("a").left(action.CodeTransient, nil).pod(), *newPod("b").created(20).left(action.CodeOK, nil).pod()}
	pods[1].Status.ContainerStatuses[0].State.Terminated.StartedAt = second(21)
	pods[1].Status.ContainerStatuses[0].State.Terminated.FinishedAt = second(25)
	o := Observe((*batchv1.Job)(newJob()), pods, second(30).Time)
	if o.Started == nil || !o.Started.Equal(second(2).Time) || o.Ended == nil || !o.Ended.Equal(second(25).Time) {
		t.Errorf("from %v to %v, want from the first attempt's beginning to the last one's end", o.Started, o.Ended)
	}
	if o.Result.Attempt != 2 {
		t.Errorf("attempt %d, want 2", o.Result.Attempt)
	}
}

func TestFailureOf(t *testing.T) {
	for code, want := range map[action.Code]*execution.Failure{
		action.CodeOK:        nil,
		action.CodeTransient: {Reason: v1alpha1.ReasonExecutionFailed},
		action.CodeDeadline:  {Reason: v1alpha1.ReasonExecutionTimeout},
		action.CodeCancelled: {Reason: v1alpha1.ReasonCancelled},
		action.CodeForbidden: {Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailRBACDenied},
	} {
		if diff := cmp.Diff(want, FailureFromResult(&action.Result{Code: code}), cmpopts.IgnoreFields(execution.Failure{}, "Message")); diff != "" {
			t.Errorf("%d (-want +got):\n%s", code, diff)
		}
	}
	if f := FailureFromResult(&action.Result{Code: action.CodeTransient, Changed: true}); f.Detail != v1alpha1.DetailPartiallyExecuted {
		t.Errorf("what changed something is %q, want partial", f.Detail)
	}
}
