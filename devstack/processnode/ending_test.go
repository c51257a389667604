package processnode_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
)

func deadline(f *fixture) {
	spec := script("sleep 1000")
	spec.ActiveDeadlineSeconds, spec.TerminationGracePeriodSeconds = new(int64(2)), new(int64(0))
	f.pod("late", spec)
	pid := f.wantRunning("late")
	pod := f.wantPhase("late", corev1.PodFailed)
	if pod.Status.Reason != "DeadlineExceeded" || pod.Status.ContainerStatuses[0].State.Terminated.ExitCode != 137 {
		f.Errorf("the pod's status: %+v", pod.Status)
	}
	f.wantDead(pid)
}

const trapping = "trap 'echo bye > /shared/bye; exit 0' TERM; echo up > /shared/up; while true; do sleep 0.05; done"

func deletionIsGraceful(f *fixture) {
	spec := script(trapping)
	dir := f.withFolder(&spec)
	f.pod("polite", spec)
	f.wantFile(filepath.Join(dir, "up"), "up\n")
	pid := f.wantRunning("polite")
	f.delete("polite", 600)
	f.wantFile(filepath.Join(dir, "bye"), "bye\n")
	f.wantGone("polite")
	f.wantDead(pid)
}

func deletionInsists(f *fixture) {
	spec := script("trap '' TERM; (trap '' TERM; sleep 1000) & echo $! > /dev/null; while true; do sleep 1; done")
	f.pod("deaf", spec)
	pid := f.wantRunning("deaf")
	f.delete("deaf", 1)
	f.wantGone("deaf")
	f.wantDead(pid)
}

func eviction(f *fixture) {
	spec := script(trapping)
	dir := f.withFolder(&spec)
	f.pod("evicted", spec)
	f.wantFile(filepath.Join(dir, "up"), "up\n")
	pid := f.wantRunning("evicted")
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "evicted", Namespace: f.namespace}}
	if err := f.client.PolicyV1().Evictions(f.namespace).Evict(f.Context(), e); err != nil {
		f.Fatal(err)
	}
	f.wantFile(filepath.Join(dir, "bye"), "bye\n")
	f.wantGone("evicted")
	f.wantDead(pid)
}

func killedFromOutside(f *fixture) {
	f.job("victim", batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: script("sleep 1000")}})
	var pid int
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		pods, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			for _, s := range pods.Items[i].Status.ContainerStatuses {
				if p, ok := processnode.PID(s); ok {
					pid = p
					return nil
				}
			}
		}
		return fmt.Errorf("no process yet")
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		f.Fatal(err)
	}
	pod := f.wantJob("victim", batchv1.JobFailed)
	if ended := pod.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 137 || ended.Reason != "Error" {
		f.Errorf("a killed container ended with %+v", ended)
	}
}

func restartsAfterAFailure(f *fixture) {
	spec := script("if [ -e /shared/failed ]; then echo second; exit 0; fi; echo first; touch /shared/failed; exit 5")
	spec.RestartPolicy = corev1.RestartPolicyOnFailure
	f.withFolder(&spec)
	f.pod("again", spec)
	pod := f.wantPhase("again", corev1.PodSucceeded)
	s := pod.Status.ContainerStatuses[0]
	if s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 5 {
		f.Errorf("the container's status: %+v", s)
	}
	wantText(f.T, f.logs("again"), "second")
	wantText(f.T, f.logs("again", "--previous"), "first")
}

func messageOfTheLog(f *fixture) {
	spec := script("echo it went wrong; exit 1")
	spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	f.pod("talker", spec)
	pod := f.wantPhase("talker", corev1.PodFailed)
	wantText(f.T, pod.Status.ContainerStatuses[0].State.Terminated.Message, "it went wrong")
}

func livenessRestarts(f *fixture) {
	spec, port, _ := f.serving()
	spec.TerminationGracePeriodSeconds = new(int64(30))
	spec.Containers[0].LivenessProbe = httpGet(port)
	f.pod("ill", spec)
	f.eventually("ill", func(p *corev1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount == 0 {
			return fmt.Errorf("want a restart")
		}
		return nil
	})
}

func nothingIsLeft(f *fixture) {
	spec := script("pwd; sleep 1000")
	spec.TerminationGracePeriodSeconds = new(int64(0))
	f.pod("tidy", spec)
	f.wantRunning("tidy")
	var dir string
	kubebedtest.Eventually(f, func(context.Context) error {
		if dir = strings.TrimSpace(f.logs("tidy")); dir == "" { //nolint:contextcheck // it has the test's
			return fmt.Errorf("nothing said yet")
		}
		return nil
	})
	if _, err := os.Stat(dir); err != nil {
		f.Fatal(err)
	}
	f.delete("tidy", 0) // the object is deleted at once
	kubebedtest.Eventually(f, func(context.Context) error {
		if _, err := os.Stat(filepath.Dir(filepath.Dir(dir))); !os.IsNotExist(err) {
			return fmt.Errorf("the pod's folder is still there (%w)", err)
		}
		return nil
	})
}
