package runner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

const (
	execute = v1alpha1.PurposeExecute
	dryRun  = v1alpha1.PurposeDryRun
)

func TestScales(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	plan := s.scale()
	p := s.start(s.job(plan, execute, time.Minute), map[string]string{runner.EnvFailures: "1"})
	r := p.want(action.CodeOK)
	s.wantReplicas(5)
	if !strings.Contains(p.out.String(), "deployment.apps/web scaled\n") || !strings.Contains(r.Log, "deployment.apps/web scaled") {
		t.Errorf("said %q, left %q", p.out.String(), r.Log)
	}
	if !r.Changed || len(r.Resources) != 1 || r.Resources[0].Before != "replicas: 3" || r.Resources[0].After != "replicas: 5" || r.PlanHash != plan.Hash || r.Attempt != 2 {
		t.Errorf("result %+v", r)
	}
	again := s.start(s.job(plan, execute, time.Minute), nil).want(action.CodeOK)
	if again.Changed {
		t.Errorf("a second attempt changed something: %+v", again)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	r := s.start(s.job(s.scale(), dryRun, time.Minute), nil).want(action.CodeOK)
	s.wantReplicas(3)
	if r.DryRun == nil || !r.DryRun.Performed || !r.DryRun.Success || r.Changed {
		t.Errorf("result %+v", r)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	plan := s.scale()
	_, err := s.client.AppsV1().Deployments(s.namespace).Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{})
	s.must(err)
	p := s.start(s.job(plan, execute, time.Minute), nil)
	p.want(action.CodeGuard)
	s.wantReplicas(4)
	if n := strings.Count(p.out.String(), "error: "); n != 1 {
		t.Errorf("said %d times: %q", n, p.out.String())
	}
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", false)
	s.deployment()
	r := s.start(s.job(s.scale(), execute, time.Minute), nil).want(action.CodeForbidden)
	s.wantReplicas(3)
	if !strings.Contains(r.Message, s.action.ServiceAccount()) {
		t.Errorf("it does not say who is not allowed to: %s", r.Message)
	}
}

// TestWhatIsNoPlanIsNotRun, and the API server is not asked.
func TestWhatIsNoPlanIsNotRun(t *testing.T) { //nolint:tparallel // its parts take turns on one stage
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	j := s.job(s.scale(), execute, time.Minute)
	var plan string
	for _, e := range j.Spec.Template.Spec.Containers[0].Env {
		if e.Name == runner.EnvPlan {
			plan = e.Value
		}
	}
	for name, c := range map[string]struct {
		change map[string]string
		args   []string
		says   string
	}{
		"OtherDigest": {map[string]string{runner.EnvPlanHash: "abc"}, nil, `"abc"`},
		"Changed":     {map[string]string{runner.EnvPlan: strings.Replace(plan, `"replicas":5`, `"replicas":9`, 1)}, nil, "the plan was changed"},
		"NoPlan":      {map[string]string{runner.EnvPlan: ""}, nil, "ACTION_PLAN is not set"},
		"Argument":    {nil, []string{"delete", "everything"}, `unknown argument "delete"`},
		"Flag":        {nil, []string{"--kubeconfig=x"}, "not defined"},
		"DryRunMode":  {nil, []string{"--dry-run=client"}, "must be none or server"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := j.DeepCopy()
			changed.Spec.Template.Spec.Containers[0].Args = c.args
			inner := *s
			inner.T = t
			p := inner.start(changed, c.change)
			r := p.want(action.CodeInvalid)
			inner.wantReplicas(3)
			if !strings.Contains(r.Message, c.says) || !strings.Contains(p.out.String(), c.says) {
				t.Errorf("left %q, said %q, want %q", r.Message, p.out.String(), c.says)
			}
		})
	}
}

// TestDeadline: an API server that takes requests and does not answer them. The
// result is there before the Pod would be killed.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	plan := s.scale()
	way := newProxy(t, true)
	r := s.start(s.job(plan, execute, 6*time.Second), map[string]string{proxied: way.url()}).want(action.CodeDeadline)
	s.wantReplicas(3)
	const moment = 500 * time.Millisecond // of a loaded machine, from when its time begins to when it says that it has
	if took := r.Ended.Sub(r.Started); took < 4*time.Second-moment {
		t.Errorf("it gave up after %s, and had 4s", took)
	}
	if r.PlanHash != plan.Hash || way.asked.Load() == 0 {
		t.Errorf("asked %d times, result %+v", way.asked.Load(), r)
	}
}

// TestUnreachableForAWhile: the API server comes back within the attempt.
func TestUnreachableForAWhile(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	way := newProxy(t, false)
	p := s.start(s.job(s.scale(), execute, time.Minute), map[string]string{proxied: way.url()})
	kubebedtest.Eventually(t, func(context.Context) error {
		if n := way.asked.Load(); n < 2 {
			return fmt.Errorf("asked %d times", n)
		}
		return nil
	})
	close(way.open)
	if r := p.want(action.CodeOK); !r.Changed {
		t.Errorf("result %+v", r)
	}
	s.wantReplicas(5)
}

func TestToldToEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	way := newProxy(t, true)
	p := s.start(s.job(s.scale(), execute, time.Minute), map[string]string{proxied: way.url()})
	kubebedtest.Eventually(t, func(context.Context) error {
		if way.asked.Load() == 0 {
			return fmt.Errorf("it has not begun")
		}
		return nil
	})
	p.tell()
	p.want(action.CodeCancelled)
	s.wantReplicas(3)
}

// TestToldToEndMidDrain: what was done until then is in the result.
func TestToldToEndMidDrain(t *testing.T) {
	t.Parallel()
	s := newStage(t, "drain_node", true)
	name := s.namespace
	_, err := s.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(func() {
		s.must(s.client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
	})
	_, err = s.client.CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		// There is no kubelet to end it.
		Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(func() {
		s.must(s.client.CoreV1().Pods(name).Delete(context.WithoutCancel(t.Context()), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	})
	p := s.start(s.job(s.plan(fmt.Sprintf(`{"node":%q,"force":true}`, name)), execute, 5*time.Minute), nil)
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		pod, err := s.client.CoreV1().Pods(name).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && pod.DeletionTimestamp == nil {
			err = fmt.Errorf("the Pod is not evicted")
		}
		return err
	})
	p.tell()
	r := p.want(action.CodeCancelled)
	if !r.Changed || len(r.Resources) == 0 {
		t.Errorf("it does not say what it did: %+v", r)
	}
}
