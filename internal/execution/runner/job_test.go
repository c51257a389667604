package runner_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// runNode runs a node for the Jobs of a test, named as its namespace is. A
// program stands for the image of the runner.
func (s *stage) runNode(program string) {
	s.Helper()
	n, err := processnode.New(kubebedtest.Bed(s.T).Config(), processnode.Options{
		NodeName: s.namespace, Labels: map[string]string{"test": s.namespace},
		Images: map[string][]string{runnerImage: {program}},
	})
	s.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(ctx); err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(func() {
		cancel()
		running.Wait()
		s.must(s.client.CoreV1().Nodes().Delete(context.WithoutCancel(s.Context()), s.namespace, metav1.DeleteOptions{}))
	})
	kubebedtest.Eventually(s.T, func(context.Context) error { return n.Ready() })
}

// create makes a Job on the test's own node.
func (s *stage) create(j *batchv1.Job) *batchv1.Job {
	s.Helper()
	j.Spec.Template.Spec.NodeSelector = map[string]string{"test": s.namespace}
	made, err := s.client.BatchV1().Jobs(s.namespace).Create(s.Context(), j, metav1.CreateOptions{})
	s.must(err)
	return made
}

// look observes a Job as it is now.
func (s *stage) look(ctx context.Context, j *batchv1.Job) (job.Observation, *batchv1.Job, error) {
	j, err := s.client.BatchV1().Jobs(s.namespace).Get(ctx, j.Name, metav1.GetOptions{})
	if err != nil {
		return job.Observation{}, nil, err
	}
	pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.ControllerUidLabel + "=" + string(j.UID)})
	if err != nil {
		return job.Observation{}, nil, err
	}
	return job.Observe(j, pods.Items, time.Now()), j, nil
}

// follow waits until a Job is in a state, and gives all states that it was seen
// in until then.
func (s *stage) follow(j *batchv1.Job, until job.State) (o job.Observation, at *batchv1.Job, states []job.State) {
	s.Helper()
	kubebedtest.Eventually(s.T, func(ctx context.Context) (err error) {
		if o, at, err = s.look(ctx, j); err != nil {
			return err
		}
		if len(states) == 0 || states[len(states)-1] != o.State {
			states = append(states, o.State)
		}
		if o.State != until {
			return fmt.Errorf("%s: %+v", o.State, o)
		}
		return nil
	})
	return o, at, states
}

// TestInAJob: as the account of the action, by the token that is bound to the
// Pod, and known before the Job knows it.
func TestInAJob(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	s.runNode(filepath.Join(built.dir, "action-runner"))
	dry := s.create(s.job(s.scale(), dryRun, time.Minute))
	if o, _, _ := s.follow(dry, job.Succeeded); o.Result.DryRun == nil || !o.Result.DryRun.Success {
		t.Errorf("dry run: %+v", o.Result)
	}
	s.wantReplicas(3)

	j := s.create(s.job(s.scale(), execute, time.Minute))
	o, at, states := s.follow(j, job.Succeeded)
	s.wantReplicas(5)
	for _, c := range at.Status.Conditions {
		if c.Type == batchv1.JobComplete {
			t.Errorf("the Job had to say so first; seen before: %v", states)
		}
	}
	if !o.Result.Changed || o.Result.Attempt != 1 || o.Retries != 0 || o.Started == nil || o.Ended == nil || o.Unreadable {
		t.Errorf("observed %+v with result %+v", o, o.Result)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		o, at, err := s.look(ctx, j)
		switch {
		case err != nil:
			return err
		case o.State != job.Succeeded:
			t.Errorf("it was %s afterwards", o.State)
		case at.Status.Succeeded == 0:
			return fmt.Errorf("the Job does not know yet")
		}
		return nil
	})
}

// TestInAJobAgain: the second attempt knows that it is the second.
func TestInAJobAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	failsFirst := filepath.Join(t.TempDir(), "action-runner")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$ACTION_FAILURES\" = 1 ] || exit %d\nexec %s \"$@\"\n", action.CodeTransient, filepath.Join(built.dir, "action-runner"))
	s.must(os.WriteFile(failsFirst, []byte(script), 0o700))
	s.runNode(failsFirst)
	j := s.create(s.job(s.scale(), execute, time.Minute))
	o, _, _ := s.follow(j, job.Retrying)
	if o.Retries != 0 || o.Failure != nil {
		t.Errorf("between two attempts: %+v", o)
	}
	o, _, _ = s.follow(j, job.Succeeded)
	s.wantReplicas(5)
	if o.Retries != 1 || o.Result.Attempt != 2 {
		t.Errorf("%d retries, attempt %d", o.Retries, o.Result.Attempt)
	}
}

// TestInAJobEvicted: an attempt that its node lets go is no failure of the
// action, but an attempt it is.
func TestInAJobEvicted(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	waitsFirst := filepath.Join(t.TempDir(), "action-runner")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$ACTION_DISRUPTIONS\" = 1 ] || exec sleep 600\nexec %s \"$@\"\n", filepath.Join(built.dir, "action-runner"))
	s.must(os.WriteFile(waitsFirst, []byte(script), 0o700))
	s.runNode(waitsFirst)
	j := s.job(s.scale(), execute, time.Minute)
	j.Spec.BackoffLimit, j.Spec.BackoffLimitPerIndex = new(int32(0)), new(int32(0))
	j = s.create(j)
	o, _, _ := s.follow(j, job.Running)
	s.must(s.client.PolicyV1().Evictions(s.namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: o.Pod}}))
	o, _, _ = s.follow(j, job.Succeeded)
	s.wantReplicas(5)
	if o.Retries != 1 || o.Result.Attempt != 2 {
		t.Errorf("%d retries, attempt %d", o.Retries, o.Result.Attempt)
	}
}

// TestInAJobTooLong: the runner says what it did before its Pod is killed.
func TestInAJobTooLong(t *testing.T) {
	t.Parallel()
	s := newStage(t, "drain_node", true)
	s.runNode(filepath.Join(built.dir, "action-runner"))
	target := s.namespace + "-target"
	_, err := s.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: target}}, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(func() {
		s.must(s.client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), target, metav1.DeleteOptions{}))
	})
	_, err = s.client.CoreV1().Pods(s.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{NodeName: target, Containers: []corev1.Container{{Name: "app", Image: "app"}}}, // there is no kubelet to end it
	}, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(func() {
		s.must(s.client.CoreV1().Pods(s.namespace).Delete(context.WithoutCancel(t.Context()), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	})
	j := s.create(s.job(s.plan(fmt.Sprintf(`{"node":%q,"force":true}`, target)), execute, 18*time.Second))
	o, at, _ := s.follow(j, job.Failed)
	if o.Failure.Reason != v1alpha1.ReasonExecutionTimeout || o.Result == nil || o.Result.Code != action.CodeDeadline || !o.Result.Changed {
		t.Errorf("failed with %+v and result %+v", o.Failure, o.Result)
	}
	for _, c := range at.Status.Conditions {
		if c.Reason == batchv1.JobReasonDeadlineExceeded {
			t.Errorf("the Job was over time: %+v", c)
		}
	}
}

// TestInAJobNeverBegins: there is no such image, and so nothing was done.
func TestInAJobNeverBegins(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	s.runNode(filepath.Join(built.dir, "action-runner"))
	j := s.job(s.scale(), execute, 6*time.Second)
	j.Spec.Template.Spec.Containers[0].Image = "fleetloop/other"
	// The Job deletes its Pod at the deadline, and only the Pod shows that nothing began.
	j.Spec.Template.Finalizers = []string{"fleetloop.io/observed"}
	j = s.create(j)
	t.Cleanup(func() {
		pods, err := s.client.CoreV1().Pods(j.Namespace).List(context.WithoutCancel(t.Context()), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + j.Name})
		s.must(err)
		for _, pod := range pods.Items {
			_, err := s.client.CoreV1().Pods(j.Namespace).Patch(context.WithoutCancel(t.Context()), pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			s.must(err)
		}
	})
	o, _, _ := s.follow(j, job.Failed)
	s.wantReplicas(3)
	if o.Failure.Reason != v1alpha1.ReasonExecutionTimeout || o.Failure.Detail != v1alpha1.DetailExecutorUnavailable || o.Started != nil {
		t.Errorf("failed with %+v, started %v", o.Failure, o.Started)
	}
}

// TestInAJobStopped is how an execution is cancelled: the Pod is told to end and
// says what it did.
func TestInAJobStopped(t *testing.T) {
	t.Parallel()
	s := newStage(t, "scale_deployment", true)
	s.deployment()
	s.runNode(filepath.Join(built.dir, "action-runner"))
	way := newProxy(t, true)
	j := s.job(s.scale(), execute, time.Minute)
	container := &j.Spec.Template.Spec.Containers[0]
	cfg, err := kubebedtest.Bed(t).EnsureServiceAccountConfig(t.Context(), s.namespace, s.action.ServiceAccount())
	s.must(err)
	cfg.Host = way.url()
	container.Env = append(container.Env, corev1.EnvVar{Name: "KUBECONFIG", Value: kubeconfig(t, t.TempDir(), cfg)})
	j = s.create(j)
	kubebedtest.Eventually(t, func(context.Context) error {
		if way.asked.Load() == 0 {
			return fmt.Errorf("it has not begun")
		}
		return nil
	})
	o, _, _ := s.follow(j, job.Running)
	_, err = s.client.CoreV1().Pods(s.namespace).Patch(t.Context(), o.Pod, "application/merge-patch+json", job.StopPodPatch(), metav1.PatchOptions{})
	s.must(err)
	o, _, _ = s.follow(j, job.Failed)
	if o.Failure.Reason != v1alpha1.ReasonCancelled || o.Result == nil || o.Result.Code != action.CodeCancelled {
		t.Errorf("failed with %+v and result %+v", o.Failure, o.Result)
	}
	s.wantReplicas(3)
}
