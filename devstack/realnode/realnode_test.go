package realnode_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/realnode"
)

// impossible is the reason why no real node can run here.
var impossible error

// TestMain runs all tests of this program in namespaces, in a separate process.
func TestMain(m *testing.M) {
	if realnode.Off() {
		os.Exit(m.Run())
	}
	if impossible = realnode.CheckRequirements(); impossible != nil {
		os.Exit(m.Run())
	}
	inside, code, err := realnode.Isolate(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !inside {
		os.Exit(code)
	}
	kubebedtest.Main(m, realnode.BedOptions())
}

const programImage = "localhost/fleetloop/program:1"

// A fixture is a namespace on the one node.
type fixture struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
}

func TestNode(t *testing.T) { //nolint:tparallel // it is the only one
	if realnode.Off() {
		t.Skip("NODE=off: nothing is tested on a real node")
	}
	if impossible != nil {
		t.Fatalf("%v; NODE=off leaves these tests out", impossible)
	}
	bed := kubebedtest.Bed(t)
	node, err := realnode.Start(t.Context(), bed, realnode.Options{Images: []string{programArchive(t)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(node.LogTails())
		}
		if err := node.Stop(); err != nil {
			t.Error(err)
		}
	})
	cfg := bed.Config()
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*fixture){
		"JobCompletes":    jobCompletes,
		"JobFails":        jobFails,
		"Deadline":        deadline,
		"InClusterClient": inClusterClient,
		"Deletion":        deletion,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&fixture{t, client, kubebedtest.Namespace(t)})
		})
	}
}

// programArchive builds the program of the tests and an image with it.
func programArchive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "program"), filepath.Join(dir, "program.tar")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program of the tests: %v\n%s", err, out)
	}
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(realnode.WriteImage(f, programImage, program), f.Close()); err != nil {
		t.Fatal(err)
	}
	return archive
}

func pod(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "main", Image: programImage, Args: args}},
	}
}

func (f *fixture) job(name string, spec corev1.PodSpec, deadline *int64) {
	f.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		BackoffLimit: new(int32(0)), ActiveDeadlineSeconds: deadline, Template: corev1.PodTemplateSpec{Spec: spec},
	}}
	if _, err := f.client.BatchV1().Jobs(f.namespace).Create(f.Context(), job, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
}

// wantJob waits until a Job has ended with the given condition and reason.
func (f *fixture) wantJob(name string, how batchv1.JobConditionType, reason string) {
	f.Helper()
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		job, err := f.client.BatchV1().Jobs(f.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range job.Status.Conditions {
			if c.Type == how && c.Status == corev1.ConditionTrue && (reason == "" || c.Reason == reason) {
				return nil
			}
		}
		return fmt.Errorf("job %q is not %s %s: %+v", name, how, reason, job.Status)
	})
}

func (f *fixture) podOf(job string) corev1.Pod {
	f.Helper()
	pods, err := f.client.CoreV1().Pods(f.namespace).List(f.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	if err != nil || len(pods.Items) != 1 {
		f.Fatalf("the pods of job %q: %+v, %v", job, pods, err)
	}
	return pods.Items[0]
}

func (f *fixture) wantLog(pod, want string) {
	f.Helper()
	text, err := f.client.CoreV1().Pods(f.namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(f.Context())
	if err != nil || string(text) != want {
		f.Errorf("the log of the pod is %q, %v; want %q", text, err, want)
	}
}

func jobCompletes(f *fixture) {
	f.job("says", pod("say", "hello"), nil)
	f.wantJob("says", batchv1.JobComplete, "")
	p := f.podOf("says")
	f.wantLog(p.Name, "hello\n")
	if !strings.HasPrefix(p.Status.PodIP, "10.88.7.") || p.Status.PodIP == realnode.Address {
		f.Errorf("the pod had the address %q", p.Status.PodIP)
	}
}

func jobFails(f *fixture) {
	spec := pod("exit", "3")
	spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))} // the termination log belongs to root
	f.job("exits", spec, nil)
	f.wantJob("exits", batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	ended := f.podOf("exits").Status.ContainerStatuses[0].State.Terminated
	if ended == nil || ended.ExitCode != 3 || ended.Reason != "Error" || ended.Message != "as told" {
		f.Errorf("the container ended with %+v", ended)
	}
}

func deadline(f *fixture) {
	f.job("waits", pod("wait"), new(int64(3)))
	f.wantJob("waits", batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
}

func inClusterClient(f *fixture) {
	ctx, meta := f.Context(), metav1.ObjectMeta{Name: "reader"}
	if _, err := f.client.CoreV1().ServiceAccounts(f.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}
	if _, err := f.client.RbacV1().Roles(f.namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "reader", Namespace: f.namespace}},
	}
	if _, err := f.client.RbacV1().RoleBindings(f.namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	spec := pod("client", f.namespace, "$(POD_NAME)")
	spec.ServiceAccountName = "reader"
	spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
	}
	spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}
	f.job("client", spec, nil)
	f.wantJob("client", batchv1.JobComplete, "")
	f.wantLog(f.podOf("client").Name, "I am main on "+realnode.Name+"\nsecrets refused\n")
}

// deletion covers that a pod can be deleted, and that kubectl exec works before.
func deletion(f *fixture) {
	spec := pod("wait")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Spec: spec}
	if _, err := f.client.CoreV1().Pods(f.namespace).Create(f.Context(), p, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		got, err := f.client.CoreV1().Pods(f.namespace).Get(ctx, "waits", metav1.GetOptions{})
		if err == nil && got.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("the pod is %s: %+v", got.Status.Phase, got.Status.ContainerStatuses)
		}
		return err
	})
	out, err := kubebedtest.Bed(f).Kubectl(f.Context(), "--namespace", f.namespace, "exec", "waits", "--", realnode.ImageProgram, "say", "inside")
	if err != nil || strings.TrimSpace(out) != "inside" {
		f.Errorf("kubectl exec said %q, %v", out, err)
	}
	if out, err := kubebedtest.Bed(f).Kubectl(f.Context(), "--namespace", f.namespace, "delete", "pod", "waits", "--timeout=60s"); err != nil {
		f.Errorf("kubectl delete: %v\n%s", err, out)
	}
}
