package processnode_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/devstack/realnode"
)

// TestNode runs subtests that share one node, which the scheduler finds.
func TestNode(t *testing.T) { //nolint:tparallel // another test takes the API server away
	kubebedtest.Bed(t)
	runNode(t, processnode.Options{})
	for name, test := range map[string]func(*fixture){
		"JobCompletes":               jobCompletes,
		"Logs":                       logs,
		"Registration":               registration,
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

func logs(f *fixture) {
	spec := script("echo one; echo two; while [ ! -e /shared/go ]; do sleep 0.05; done; echo three")
	dir := f.withFolder(&spec)
	f.pod("talks", spec)
	f.wantRunning("talks")
	kubebedtest.Eventually(f, func(context.Context) error {
		if said := f.logs("talks", "--tail=1"); said != "two\n" { //nolint:contextcheck // it has the test's
			return fmt.Errorf("the last line is %q", said)
		}
		return nil
	})
	wantText(f.T, f.logs("talks", "--limit-bytes=3"), "one")
	followed := make(chan string, 1)
	go func() {
		out, err := kubebedtest.Bed(f).Kubectl(f.Context(), "--namespace", f.namespace, "logs", "talks", "--follow")
		followed <- fmt.Sprint(out, err)
	}()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		f.Fatal(err)
	}
	wantText(f.T, <-followed, "one\ntwo\nthree\n<nil>")
}

func registration(f *fixture) {
	node, err := f.client.CoreV1().Nodes().Get(f.Context(), "process", metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	if len(node.Spec.Taints) > 0 || node.Status.NodeInfo.KubeletVersion == "" || node.Labels[corev1.LabelHostname] != "process" {
		f.Errorf("the node: %+v", node)
	}
	lease, err := f.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(f.Context(), "process", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "process" {
		f.Errorf("the node's lease: %+v, %v", lease, err)
	}
}

func jobFails(f *fixture) {
	f.job("fails", batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: script("echo why > /dev/termination-log; exit 3")}})
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
	spec := script(`echo "$NAME $APP $PASSWORD $COLOUR $LIMIT $BOTH $1"; cat /etc/given/password`)
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
	wantText(f.T, f.logs("surrounded"), "surrounded surrounded p blue 128 p-blue-$(NAME) arg-surrounded\np")
}

// clientPod runs the in-cluster client with a role for pods only.
func clientPod(f *fixture, where string) {
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
		Containers: []corev1.Container{{Name: "main", Image: "test/client:1.2", Args: []string{"$(POD_NAMESPACE)", "$(POD_NAME)", where}, Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
		}}},
	})
	f.wantEnd("client")
	wantText(f.T, f.logs("client"), "I am client\nsecrets refused")
}

// inClusterClient covers the fixed path, which requires namespaces;
// TestWithoutNamespaces covers the other way.
func inClusterClient(f *fixture) {
	s, err := processnode.DetectSandboxOrPlain(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Namespaces(); err != nil {
		if !realnode.Off() {
			f.Fatalf("%v; NODE=off leaves these tests out", err)
		}
		f.Skipf("NODE=off: %v", err)
	}
	clientPod(f, "inside")
}

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
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func httpGet(port int) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(int32(port))}}}
}

// serving returns a program that answers with success once a file is in the folder.
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
