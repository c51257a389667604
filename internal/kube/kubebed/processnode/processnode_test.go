package processnode_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/processnode"
)

// A fixture is a test's namespace, with a node of the test's own or shared with others.
type fixture struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
	node      string // pods are bound to it; empty lets the scheduler choose
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
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

func ptr[T any](v T) *T { return &v }

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

func (f *fixture) wantRunning(name string) (pod *corev1.Pod, pid int) {
	f.Helper()
	pod = f.wantPhase(name, corev1.PodRunning)
	pid, ok := processnode.PID(pod.Status.ContainerStatuses[0])
	if !ok {
		f.Fatalf("no process in %+v", pod.Status.ContainerStatuses)
	}
	return pod, pid
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

// logs are what kubectl shows.
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

// wantJob waits until a Job has ended in one of the two ways, and returns its pod.
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

// All these share one node, and the scheduler finds it.
func TestNode(t *testing.T) {
	kubebedtest.Bed(t)
	runNode(t, processnode.Options{})
	for name, test := range map[string]func(*fixture){
		"JobCompletes":               jobCompletes,
		"JobFails":                   jobFails,
		"ManyJobs":                   manyJobs,
		"Deadline":                   deadline,
		"DeletionIsGraceful":         deletionIsGraceful,
		"DeletionInsists":            deletionInsists,
		"Eviction":                   eviction,
		"KilledFromOutside":          killedFromOutside,
		"RestartsAfterAFailure":      restartsAfterAFailure,
		"InitContainers":             initContainers,
		"Environment":                environment,
		"InClusterClient":            inClusterClient,
		"WaitsForWhatIsMissing":      waitsForWhatIsMissing,
		"MessageOfTheLog":            messageOfTheLog,
		"RefusesWhatItCannotDo":      refusesWhatItCannotDo,
		"UnknownImage":               unknownImage,
		"DeploymentRollsOut":         deploymentRollsOut,
		"LivenessRestarts":           livenessRestarts,
		"NothingIsLeftOfADeletedPod": nothingIsLeft,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newFixture(t))
		})
	}
}

func jobCompletes(f *fixture) {
	f.job("hello", batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: script("echo hello; echo done > /dev/termination-log")}})
	pod := f.wantJob("hello", batchv1.JobComplete)
	ended := pod.Status.ContainerStatuses[0].State.Terminated
	if ended == nil || ended.ExitCode != 0 || ended.Reason != "Completed" || ended.Message != "done\n" || ended.FinishedAt.IsZero() {
		f.Errorf("the container ended with %+v", ended)
	}
	if pod.Status.StartTime == nil || pod.Status.PodIP == "" {
		f.Errorf("the pod's status: %+v", pod.Status)
	}
	wantText(f.T, f.logs(pod.Name), "hello")
}

func jobFails(f *fixture) {
	f.job("fails", batchv1.JobSpec{BackoffLimit: ptr(int32(0)), Template: corev1.PodTemplateSpec{Spec: script("echo why > /dev/termination-log; exit 3")}})
	pod := f.wantJob("fails", batchv1.JobFailed)
	ended := pod.Status.ContainerStatuses[0].State.Terminated
	if pod.Status.Phase != corev1.PodFailed || ended == nil || ended.ExitCode != 3 || ended.Reason != "Error" || ended.Message != "why\n" {
		f.Errorf("the pod is %s, its container ended with %+v", pod.Status.Phase, ended)
	}
}

func manyJobs(f *fixture) {
	const count = 20
	for i := range count {
		f.job("job-"+strconv.Itoa(i), batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: script("exit 0")}})
	}
	for i := range count {
		f.wantJob("job-"+strconv.Itoa(i), batchv1.JobComplete)
	}
}

func deadline(f *fixture) {
	spec := script("sleep 1000")
	spec.ActiveDeadlineSeconds, spec.TerminationGracePeriodSeconds = ptr(int64(2)), ptr(int64(0))
	f.pod("late", spec)
	_, pid := f.wantRunning("late")
	pod := f.wantPhase("late", corev1.PodFailed)
	if pod.Status.Reason != "DeadlineExceeded" || pod.Status.ContainerStatuses[0].State.Terminated.ExitCode != 137 {
		f.Errorf("the pod's status: %+v", pod.Status)
	}
	f.wantDead(pid)
}

// withFolder gives the first container a folder of the machine at /shared.
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

const trapping = "trap 'echo bye > /shared/bye; exit 0' TERM; echo up > /shared/up; while true; do sleep 0.05; done"

func deletionIsGraceful(f *fixture) {
	spec := script(trapping)
	dir := f.withFolder(&spec)
	f.pod("polite", spec)
	f.wantFile(filepath.Join(dir, "up"), "up\n")
	_, pid := f.wantRunning("polite")
	f.delete("polite", 600)
	f.wantFile(filepath.Join(dir, "bye"), "bye\n")
	f.wantGone("polite")
	f.wantDead(pid)
}

func deletionInsists(f *fixture) {
	spec := script("trap '' TERM; (trap '' TERM; sleep 1000) & echo $! > /dev/null; while true; do sleep 1; done")
	f.pod("deaf", spec)
	_, pid := f.wantRunning("deaf")
	f.delete("deaf", 1)
	f.wantGone("deaf")
	f.wantDead(pid)
}

func eviction(f *fixture) {
	spec := script(trapping)
	dir := f.withFolder(&spec)
	f.pod("evicted", spec)
	f.wantFile(filepath.Join(dir, "up"), "up\n")
	_, pid := f.wantRunning("evicted")
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "evicted", Namespace: f.namespace}}
	if err := f.client.PolicyV1().Evictions(f.namespace).Evict(f.Context(), e); err != nil {
		f.Fatal(err)
	}
	f.wantFile(filepath.Join(dir, "bye"), "bye\n")
	f.wantGone("evicted")
	f.wantDead(pid)
}

func killedFromOutside(f *fixture) {
	f.job("victim", batchv1.JobSpec{BackoffLimit: ptr(int32(0)), Template: corev1.PodTemplateSpec{Spec: script("sleep 1000")}})
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

func initContainers(f *fixture) {
	spec := script("cat /data/made")
	data := corev1.VolumeMount{Name: "data", MountPath: "/data"}
	spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{data}
	for _, word := range []string{"one", "two"} {
		c := script("echo " + word + " >> /data/made").Containers[0]
		c.Name, c.VolumeMounts = word, []corev1.VolumeMount{data}
		spec.InitContainers = append(spec.InitContainers, c)
	}
	f.pod("prepared", spec)
	f.wantPhase("prepared", corev1.PodSucceeded)
	wantText(f.T, f.logs("prepared"), "one\ntwo")
}

func environment(f *fixture) {
	ctx := f.Context()
	meta := metav1.ObjectMeta{Name: "given"}
	if _, err := f.client.CoreV1().Secrets(f.namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"password": "p"}}, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	if _, err := f.client.CoreV1().ConfigMaps(f.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"COLOUR": "blue"}}, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	spec := script(`echo "$NAME $APP $PASSWORD $COLOUR $LIMIT $BOTH $1"; cat /etc/given/password; hostname`)
	c := &spec.Containers[0]
	named := corev1.LocalObjectReference{Name: "given"}
	c.Command = append(c.Command, "sh", "arg-$(NAME)")
	c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named}}}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
	c.Env = []corev1.EnvVar{
		{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "APP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
		{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named, Key: "password"}}},
		{Name: "LIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
		{Name: "BOTH", Value: "$(PASSWORD)-$(COLOUR)-$$(NAME)"},
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "given", MountPath: "/etc/given", ReadOnly: true}}
	spec.Volumes = []corev1.Volume{{Name: "given", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "given"}}}}
	f.pod("surrounded", spec)
	f.wantPhase("surrounded", corev1.PodSucceeded)
	wantText(f.T, f.logs("surrounded"), "surrounded surrounded p blue 128 p-blue-$(NAME) arg-surrounded\npsurrounded")
}

// clientPod runs the in-cluster client with a role for pods alone.
func clientPod(f *fixture, args ...string) {
	f.Helper()
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
	f.pod("client", corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "reader",
		Containers: []corev1.Container{{Name: "main", Image: "test/client:1.2", Args: args, Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
		}}},
	})
	f.wantEnd("client")
	wantText(f.T, f.logs("client"), "I am client\nsecrets refused")
}

// wantEnd waits until a pod has ended in either way.
func (f *fixture) wantEnd(name string) *corev1.Pod {
	f.Helper()
	return f.eventually(name, func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("the pod has not ended")
		}
		return nil
	})
}

func inClusterClient(f *fixture) { clientPod(f) }

func waitsForWhatIsMissing(f *fixture) {
	spec := script("cat /config/key")
	spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "later"}}}}}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}}
	f.pod("patient", spec)
	f.eventually("patient", func(p *corev1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].State.Waiting == nil || !strings.Contains(s[0].State.Waiting.Message, "later") {
			return fmt.Errorf("want that it waits for its volume")
		}
		return nil
	})
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Data: map[string]string{"key": "value"}}
	if _, err := f.client.CoreV1().ConfigMaps(f.namespace).Create(f.Context(), later, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	f.wantPhase("patient", corev1.PodSucceeded)
	wantText(f.T, f.logs("patient"), "value")
}

func messageOfTheLog(f *fixture) {
	spec := script("echo it went wrong; exit 1")
	spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	f.pod("talker", spec)
	pod := f.wantPhase("talker", corev1.PodFailed)
	wantText(f.T, pod.Status.ContainerStatuses[0].State.Terminated.Message, "it went wrong")
}

func refusesWhatItCannotDo(f *fixture) {
	spec := script("exit 0")
	spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	f.pod("exec-probe", spec)
	pod := f.wantPhase("exec-probe", corev1.PodFailed)
	if pod.Status.Reason != "Unsupported" || !strings.Contains(pod.Status.Message, "readiness probe") {
		f.Errorf("failed with %s: %s", pod.Status.Reason, pod.Status.Message)
	}
}

func unknownImage(f *fixture) {
	f.pod("unknown", corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nobody/knows:1"}}})
	f.eventually("unknown", func(p *corev1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].State.Waiting == nil || s[0].State.Waiting.Reason != "ErrImagePull" {
			return fmt.Errorf("want ErrImagePull")
		}
		return nil
	})
	f.delete("unknown", 30)
	f.wantGone("unknown")
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func httpGet(port int) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(int32(port))}}}
}

// serving is a program that answers well once a file is in the folder.
func (f *fixture) serving() (spec corev1.PodSpec, port int, well string) {
	port = freePort(f.T)
	spec = corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "test/serve", Args: []string{"127.0.0.1:" + strconv.Itoa(port), "/shared/well"},
	}}}
	return spec, port, filepath.Join(f.withFolder(&spec), "well")
}

func deploymentRollsOut(f *fixture) {
	spec, port, well := f.serving()
	spec.Containers[0].ReadinessProbe = httpGet(port)
	labels := map[string]string{"app": "server"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "server"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
	if _, err := f.client.AppsV1().Deployments(f.namespace).Create(f.Context(), d, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	available := func(want int32, reason string) {
		f.Helper()
		kubebedtest.Eventually(f, func(ctx context.Context) error {
			pods, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
				return fmt.Errorf("not running")
			}
			d, err := f.client.AppsV1().Deployments(f.namespace).Get(ctx, "server", metav1.GetOptions{})
			if err != nil || d.Status.AvailableReplicas != want {
				return fmt.Errorf("%d available, want %d (%s) %w", d.Status.AvailableReplicas, want, reason, err)
			}
			return nil
		})
	}
	available(0, "not well yet")
	if err := os.WriteFile(well, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	available(1, "well")
	if err := os.Remove(well); err != nil {
		f.Fatal(err)
	}
	available(0, "ill again")
}

func livenessRestarts(f *fixture) {
	spec, port, _ := f.serving()
	spec.TerminationGracePeriodSeconds = ptr(int64(30))
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
	spec.TerminationGracePeriodSeconds = ptr(int64(0))
	f.pod("tidy", spec)
	f.wantRunning("tidy")
	var dir string
	kubebedtest.Eventually(f, func(context.Context) error {
		if dir = strings.TrimSpace(f.logs("tidy")); dir == "" {
			return fmt.Errorf("nothing said yet")
		}
		return nil
	})
	if _, err := os.Stat(dir); err != nil {
		f.Fatal(err)
	}
	f.delete("tidy", 0) // the object goes at once
	kubebedtest.Eventually(f, func(context.Context) error {
		if _, err := os.Stat(filepath.Dir(filepath.Dir(dir))); !os.IsNotExist(err) {
			return fmt.Errorf("the pod's folder is still there (%w)", err)
		}
		return nil
	})
}

func TestWithoutNamespaces(t *testing.T) {
	f := newFixture(t)
	f.node = "plain"
	runNode(t, processnode.Options{NodeName: f.node, WithoutNamespaces: true})
	clientPod(f, "kubeconfig")
	spec := script(`echo "$FILE" > /dev/null; cat "$FILE" /etc/given/name; echo left > /dev/termination-log`)
	c := &spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "FILE", Value: "/etc/given/name"}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "given", MountPath: "/etc/given"}}
	spec.Volumes = []corev1.Volume{{Name: "given", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}}}}
	f.pod("plain", spec)
	pod := f.wantEnd("plain")
	wantText(t, f.logs("plain"), "plainplain")
	wantText(t, pod.Status.ContainerStatuses[0].State.Terminated.Message, "left")
}

func TestAgentIsKilled(t *testing.T) {
	f := newFixture(t)
	f.node = "mortal"
	kubeconfig, err := kubebedtest.Bed(t).Kubeconfig("agent", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	start := func() *exec.Cmd {
		agent := exec.CommandContext(t.Context(), "/proc/self/exe", programPrefix+"agent", f.node, kubeconfig, dir)
		agent.Stderr = os.Stderr
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
		return agent
	}
	agent := start()
	f.pod("once", script("sleep 1000"))
	spec := script("sleep 1000")
	spec.RestartPolicy = corev1.RestartPolicyAlways
	f.pod("always", spec)
	_, once := f.wantRunning("once")
	_, always := f.wantRunning("always")
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.wantDead(once)
	f.wantDead(always)
	_ = agent.Wait()
	start()
	pod := f.wantPhase("once", corev1.PodFailed)
	if ended := pod.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 137 || ended.Reason != "ContainerStatusUnknown" {
		t.Errorf("the container that died with the agent: %+v", ended)
	}
	f.eventually("always", func(p *corev1.Pod) error {
		s := p.Status.ContainerStatuses[0]
		if pid, ok := processnode.PID(s); !ok || pid == always || s.RestartCount != 1 {
			return fmt.Errorf("want that it runs again")
		}
		return nil
	})
}

func TestAPIServerIsAway(t *testing.T) {
	f := newFixture(t)
	f.node = "patient"
	runNode(t, processnode.Options{NodeName: f.node})
	spec := script("while [ ! -e /shared/go ]; do sleep 0.05; done; echo went > /shared/went; exit 4")
	dir := f.withFolder(&spec)
	f.pod("goes-on", spec)
	f.wantRunning("goes-on")
	bed := kubebedtest.Bed(t)
	if err := bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.wantFile(filepath.Join(dir, "went"), "went\n")
	if err := bed.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := f.wantPhase("goes-on", corev1.PodFailed)
	if ended := pod.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 4 {
		t.Errorf("what ended while the API server was away: %+v", ended)
	}
}
