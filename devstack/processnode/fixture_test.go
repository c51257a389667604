package processnode_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
)

// A fixture is a test's namespace, with a node that belongs to the test or is shared.
type fixture struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
	node      string // pods are bound to it; empty lets the scheduler choose
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	cfg := kubebedtest.Bed(t).Config()
	cfg.QPS = -1
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, client: c, namespace: kubebedtest.Namespace(t)}
}

// runNode runs a node until the test ends.
func runNode(t *testing.T, o processnode.Options) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Images = map[string][]string{
		"test/client": {self, programPrefix + "client"},
		"test/serve":  {self, programPrefix + "serve"},
	}
	said := &lockedBuffer{}
	o.Log = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n, err := processnode.New(kubebedtest.Bed(t).Config(), o)
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
		if t.Failed() {
			t.Logf("the node said:\n%s", said)
		}
	})
	kubebedtest.Eventually(t, func(context.Context) error { return n.Ready() })
}

func script(text string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"sh", "-c", text}}},
	}
}

func (f *fixture) pod(name string, spec corev1.PodSpec) *corev1.Pod {
	f.Helper()
	spec.NodeName = f.node
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
	pod, err := f.client.CoreV1().Pods(f.namespace).Create(f.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return pod
}

// eventually waits until check accepts the pod, and returns it as it then is.
func (f *fixture) eventually(name string, check func(*corev1.Pod) error) *corev1.Pod {
	f.Helper()
	var pod *corev1.Pod
	kubebedtest.Eventually(f, func(ctx context.Context) (err error) {
		if pod, err = f.client.CoreV1().Pods(f.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if err := check(pod); err != nil {
			return fmt.Errorf("%w: %s %s %q %+v", err, pod.Status.Phase, pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
		}
		return nil
	})
	return pod
}

func (f *fixture) wantPhase(name string, phase corev1.PodPhase) *corev1.Pod {
	f.Helper()
	return f.eventually(name, func(p *corev1.Pod) error {
		if p.Status.Phase != phase {
			return fmt.Errorf("want %s", phase)
		}
		return nil
	})
}

func (f *fixture) wantRunning(name string) (pid int) {
	f.Helper()
	pod := f.wantPhase(name, corev1.PodRunning)
	pid, ok := processnode.PID(pod.Status.ContainerStatuses[0])
	if !ok {
		f.Fatalf("no process in %+v", pod.Status.ContainerStatuses)
	}
	return pid
}

func (f *fixture) wantGone(name string) {
	f.Helper()
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		_, err := f.client.CoreV1().Pods(f.namespace).Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the pod is still there (%w)", err)
		}
		return nil
	})
}

func (f *fixture) wantDead(pid int) {
	f.Helper()
	kubebedtest.Eventually(f, func(context.Context) error {
		if err := syscall.Kill(pid, 0); err == nil {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}

// logs returns the output of kubectl logs.
func (f *fixture) logs(name string, args ...string) string {
	f.Helper()
	out, err := kubebedtest.Bed(f).Kubectl(f.Context(), append([]string{"--namespace", f.namespace, "logs", name}, args...)...)
	if err != nil {
		f.Fatalf("kubectl logs: %v\n%s", err, out)
	}
	return out
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func (f *fixture) job(name string, spec batchv1.JobSpec) {
	f.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := f.client.BatchV1().Jobs(f.namespace).Create(f.Context(), job, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
}

// wantJob waits until a Job has ended with the given condition, and returns its pod.
func (f *fixture) wantJob(name string, how batchv1.JobConditionType) corev1.Pod {
	f.Helper()
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		job, err := f.client.BatchV1().Jobs(f.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range job.Status.Conditions {
			if c.Type == how && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("job %q is not %s: %+v", name, how, job.Status)
	})
	pods, err := f.client.CoreV1().Pods(f.namespace).List(f.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name})
	if err != nil || len(pods.Items) != 1 {
		f.Fatalf("the pods of job %q: %+v, %v", name, pods, err)
	}
	return pods.Items[0]
}

// withFolder mounts a folder of the machine into the first container at /shared.
func (f *fixture) withFolder(spec *corev1.PodSpec) string {
	dir := f.TempDir()
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "shared", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}})
	c := &spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "shared", MountPath: "/shared"})
	return dir
}

func (f *fixture) wantFile(path, text string) {
	f.Helper()
	kubebedtest.Eventually(f, func(context.Context) error {
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			return fmt.Errorf("%s holds %q, %w; want %q", path, got, err, text)
		}
		return nil
	})
}

func (f *fixture) delete(name string, grace int64) {
	f.Helper()
	if err := f.client.CoreV1().Pods(f.namespace).Delete(f.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		f.Fatal(err)
	}
}

// wantEnd waits until a pod has ended, by success or failure.
func (f *fixture) wantEnd(name string) *corev1.Pod {
	f.Helper()
	return f.eventually(name, func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("the pod has not ended")
		}
		return nil
	})
}
