package janitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
)

// runNode runs a node until the test ends, and returns its boot ID.
func runNode(t *testing.T, name string) (boot string) {
	t.Helper()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skipf("this machine has no boot id: %v", err)
	}
	n, err := processnode.New(kubebedtest.Bed(t).Config(), processnode.Options{NodeName: name})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the node ended: %v", err)
		}
	})
	kubebedtest.Eventually(t, func(context.Context) error { return n.Ready() })
	return strings.TrimSpace(string(id))
}

// TestJob verifies that a Job runs on its node, cordoned or not, once, and only in the
// boot that must end. No test here may use the default command, which would reboot this
// machine.
func TestJob(t *testing.T) { //nolint:tparallel // the node is shared
	boot := runNode(t, "reboots")
	deps := newProviderDeps(t)
	cordon := []byte(`{"spec":{"unschedulable":true,"taints":[{"key":"gpu","effect":"NoSchedule"}]}}`)
	if _, err := deps.Kubernetes.CoreV1().Nodes().Patch(t.Context(), "reboots", types.MergePatchType, cordon, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		command string // runs after the command has reported its start
		boot    string
		late    bool
		ran     bool
		want    State
		message string
	}{
		"Runs":        {"it is asked to reboot", "true", boot, false, true, StateDone, "completed"},
		"Fails":       {"it says that it cannot", "exit 3", boot, false, true, StateFailed, "exit code 3"},
		"IsKilled":    {"a reboot ends whatever asked for it, as SIGKILL does", "exit 137", boot, false, true, StateRunning, "is rebooting"},
		"AnotherBoot": {"it was rebooted already, and the kubelet has forgotten", "true", "another", false, false, StateDone, ""},
		"TooLate":     {"nobody expects it any more", "true", boot, true, false, StateFailed, "after the deadline"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := filepath.Join(t.TempDir(), "said")
			script := fmt.Sprintf("echo rebooted >> %s; %s", said, tc.command)
			ns := kubebedtest.Namespace(t)
			p, err := NewProvider(ProviderConfig{Kind: ProviderJob, Job: JobConfig{
				Namespace: ns, Image: "busybox", Command: []string{"/bin/sh", "-c", script}, Delay: 10 * time.Millisecond,
			}}, deps)
			if err != nil {
				t.Fatal(err)
			}
			r := newRequestedAction(t, deps, ActionReboot, "reboots")
			r.BootID = tc.boot
			if tc.late {
				r.Deadline = time.Now().Add(-time.Minute)
			}
			var reference string
			kubebedtest.Eventually(t, func(ctx context.Context) (err error) { reference, err = p.Start(ctx, r); return err })
			kubebedtest.Eventually(t, func(ctx context.Context) error { return settledProgress(ctx, ns, deps) })
			got, err := p.CheckProgress(t.Context(), r, reference)
			if err != nil || got.State != tc.want || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s: %+v, %v", tc.reason, got, err)
			}
			if _, err := p.Start(t.Context(), r); err != nil { // repeated
				t.Error(err)
			}
			jobs, err := deps.Kubernetes.BatchV1().Jobs(ns).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(jobs.Items) != 1 {
				t.Errorf("%s: there are %d Jobs, %v", tc.reason, len(jobs.Items), err)
			}
			text, err := os.ReadFile(said)
			if ran := string(text) == "rebooted\n"; ran != tc.ran || !ran && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: it said %q, %v", tc.reason, text, err)
			}
		})
	}
}

// settled waits until the only pod has ended.
func settledProgress(ctx context.Context, ns string, deps ProviderDeps) error {
	pods, err := deps.Kubernetes.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if firstTerminatedState(&pods.Items[i]) != nil {
			return nil
		}
	}
	return fmt.Errorf("%d pods, and none has ended", len(pods.Items))
}

// TestJobWaitsAndIsWithdrawn verifies that a Job on a node without a kubelet is not a
// reboot, and does not become one after Withdraw.
func TestJobWaitsAndIsWithdrawn(t *testing.T) {
	t.Parallel()
	deps := newProviderDeps(t)
	dead, err := deps.Kubernetes.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "dead-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns := kubebedtest.Namespace(t)
	p, err := NewProvider(ProviderConfig{Kind: ProviderJob, Job: JobConfig{Namespace: ns, Image: "busybox", Command: []string{"true"}}}, deps)
	if err != nil {
		t.Fatal(err)
	}
	r := newRequestedAction(t, deps, ActionReboot, dead.Name)
	reference, err := p.Start(t.Context(), r)
	wantAnswer(t, reference, err, "waiting", `waiting for node "`+dead.Name+`"`)
	var pod corev1.Pod
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		pods, err := deps.Kubernetes.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) != 1 {
			return fmt.Errorf("%d pods, %w", len(pods.Items), err)
		}
		pod = pods.Items[0]
		return nil
	})
	c := pod.Spec.Containers[0]
	if pod.Spec.NodeName != dead.Name || c.SecurityContext == nil || !*c.SecurityContext.Privileged || *pod.Spec.AutomountServiceAccountToken || pod.Spec.PriorityClassName != "system-node-critical" {
		t.Errorf("the pod is %+v", pod.Spec)
	}
	reference, err = p.Start(t.Context(), r)
	wantAnswer(t, reference, err, "waiting", "")
	w, can := p.(Withdrawer)
	if !can {
		t.Fatal("it cannot be withdrawn")
	}
	for range 2 {
		if err := w.Withdraw(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		_, err := deps.Kubernetes.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the pod is still there: %w", err)
		}
		return nil
	})
}

// TestJobDoesNotTerminate verifies that a Job rejects a termination permanently.
func TestJobDoesNotTerminate(t *testing.T) {
	t.Parallel()
	p, err := NewProvider(ProviderConfig{Kind: ProviderJob, Job: JobConfig{Namespace: "n", Image: "i", Command: []string{"true"}}}, newProviderDeps(t))
	if err != nil {
		t.Fatal(err)
	}
	reference, err := p.Start(t.Context(), newRequest(ActionTerminate, "n"))
	wantAnswer(t, reference, err, "permanent", "another provider")
}

// TestJobByDefault verifies that the default command reboots with the kernel, after
// memory is written to disk.
func TestJobByDefault(t *testing.T) {
	t.Parallel()
	p, err := newJobProvider(JobConfig{Namespace: "n", Image: "i"}, newProviderDeps(t))
	if err != nil {
		t.Fatal(err)
	}
	c := p.newRebootJob(newRequest(ActionReboot, "n")).Spec.Template.Spec.Containers[0]
	script := c.Command[len(c.Command)-1]
	if s, b := strings.Index(script, "echo s >"), strings.Index(script, "echo b > /proc/sysrq-trigger"); s < 0 || b < s {
		t.Errorf("the script is %q", script)
	}
	if c.Env[0].Name != "BOOT_ID" || c.Env[0].Value != "boot-1" || !strings.Contains(c.Command[2], "boot_id") {
		t.Errorf("it would reboot whatever boot it is: %+v", c)
	}
}
