// Package onnode runs Jobs of executions on a real node: a kubelet with a
// container runtime, whose containers have no more than an image of the runner.
package onnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/binaries"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/realnode"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

// impossible is why there is no node here.
var impossible error

// All of this program's tests run in namespaces, in a process of their own.
func TestMain(m *testing.M) {
	if realnode.Off() {
		os.Exit(m.Run()) //nolint:forbidigo // the tests say that they are off
	}
	if impossible = realnode.CheckRequirements(); impossible != nil {
		os.Exit(m.Run()) //nolint:forbidigo // the tests fail with what is missing
	}
	inside, code, err := realnode.Isolate(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // there is no test to fail
	}
	if !inside {
		os.Exit(code) //nolint:forbidigo // the tests have run
	}
	kubebedtest.Main(m, realnode.BedOptions())
}

const runnerImage = "localhost/fleetloop/action-runner:1"

// A stage is a namespace with a Deployment, and the account that may scale it.
type stage struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
}

func TestOnARealNode(t *testing.T) { //nolint:tparallel // it is the only one
	if realnode.Off() {
		t.Skip("NODE=off: nothing is tested on a real node")
	}
	if impossible != nil {
		t.Fatalf("%v; NODE=off leaves these tests out", impossible)
	}
	bed := kubebedtest.Bed(t)
	node, err := realnode.Start(t.Context(), bed, realnode.Options{Images: []string{archive(t)}})
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
	client, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*stage){"Scales": scales, "Stopped": stopped, "NeverBegins": neverBegins} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newStage(t, client))
		})
	}
}

// archive builds the runner and makes an image of it.
func archive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, path := filepath.Join(dir, "action-runner"), filepath.Join(dir, "program.tar")
	if err := binaries.Build(t.Context(), dir, "action-runner"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(realnode.WriteImage(f, runnerImage, program), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func newStage(t *testing.T, client kubernetes.Interface) *stage {
	t.Helper()
	s := &stage{t, client, kubebedtest.Namespace(t)}
	a, _ := action.Find("scale_deployment")
	meta := metav1.ObjectMeta{Name: a.ServiceAccount()}
	role := &rbacv1.Role{ObjectMeta: meta}
	for _, p := range a.Permissions {
		resource := p.Resource
		if p.Subresource != "" {
			resource += "/" + p.Subresource
		}
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{p.Group}, Resources: []string{resource}, Verbs: p.Verbs})
	}
	_, err := client.CoreV1().ServiceAccounts(s.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	s.must(err)
	_, err = client.RbacV1().Roles(s.namespace).Create(t.Context(), role, metav1.CreateOptions{})
	s.must(err)
	_, err = client.RbacV1().RoleBindings(s.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: s.namespace}},
	}, metav1.CreateOptions{})
	s.must(err)
	labels := map[string]string{"app": "web"}
	_, err = client.AppsV1().Deployments(s.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) wantReplicas(want int32) {
	s.Helper()
	d, err := s.client.AppsV1().Deployments(s.namespace).Get(s.Context(), "web", metav1.GetOptions{})
	s.must(err)
	if *d.Spec.Replicas != want {
		s.Errorf("%d replicas, want %d", *d.Spec.Replicas, want)
	}
}

// create makes the Job of an execution that scales to five, with a change.
func (s *stage) create(timeout time.Duration, change func(*corev1.Container)) *batchv1.Job {
	s.Helper()
	request, err := action.Parse(&v1alpha1.KubernetesExecutionSpec{
		Action: "scale_deployment", TargetNamespace: s.namespace, Parameters: &runtime.RawExtension{Raw: []byte(`{"deployment":"web","replicas":5}`)},
	})
	s.must(err)
	client, err := action.NewClient(kubebedtest.Bed(s.T).Config())
	s.must(err)
	created := time.Unix(1_800_000_000, 0)
	plan, err := request.Plan(s.Context(), client, action.Subject{UID: "uid-1", Created: created})
	s.must(err)
	ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "scale-web", UID: "uid-1", CreationTimestamp: metav1.NewTime(created)}}
	ke.Spec.Timeout = &metav1.Duration{Duration: timeout}
	j, err := job.Build(ke, plan, v1alpha1.PurposeExecute, 1, job.Options{Namespace: s.namespace, Image: runnerImage, PullPolicy: "Never"})
	s.must(err)
	change(&j.Spec.Template.Spec.Containers[0])
	j, err = s.client.BatchV1().Jobs(s.namespace).Create(s.Context(), j, metav1.CreateOptions{})
	s.must(err)
	return j
}

// follow waits until a Job is in a state.
func (s *stage) follow(j *batchv1.Job, until job.State) (o job.Observation, pods *corev1.PodList) {
	s.Helper()
	kubebedtest.Eventually(s.T, func(ctx context.Context) error {
		at, err := s.client.BatchV1().Jobs(s.namespace).Get(ctx, j.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err = s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.ControllerUidLabel + "=" + string(j.UID)})
		if err != nil {
			return err
		}
		if o = job.Observe(at, pods.Items, time.Now()); o.State != until {
			return fmt.Errorf("%+v\n%+v", o, pods.Items)
		}
		return nil
	})
	return o, pods
}

// scales: as nobody, without a file of its own, by the token of its Pod.
func scales(s *stage) {
	o, _ := s.follow(s.create(time.Minute, func(*corev1.Container) {}), job.Succeeded)
	s.wantReplicas(5)
	if o.Unreadable || !o.Result.Changed || o.Result.Attempt != 1 {
		s.Errorf("observed %+v with result %+v", o, o.Result)
	}
}

// stopped: a kubelet ends a Pod whose deadline is moved to before now, and
// keeps what it said.
func stopped(s *stage) {
	host, port, connected := s.listenSilently()
	j := s.create(5*time.Minute, func(c *corev1.Container) {
		for i := range c.Env {
			if c.Env[i].Name == runner.EnvDeadline {
				c.Env[i].Value = "240s"
			}
		}
		c.Env = append(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: host}, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: port})
	})
	o, _ := s.follow(j, job.Running)
	select {
	case <-connected:
	case <-s.Context().Done():
		s.Fatal("the runner did not connect")
	}
	_, err := s.client.CoreV1().Pods(s.namespace).Patch(s.Context(), o.Pod, "application/merge-patch+json", job.StopPodPatch(), metav1.PatchOptions{})
	s.must(err)
	o, pods := s.follow(j, job.Failed)
	if o.Failure.Reason != v1alpha1.ReasonCancelled || o.Result == nil || o.Unreadable || o.Result.Code != action.CodeCancelled {
		s.Errorf("failed with %+v and result %+v", o.Failure, o.Result)
	}
	if len(pods.Items) != 1 || pods.Items[0].DeletionTimestamp != nil {
		s.Errorf("the Pod is not kept: %+v", pods.Items)
	}
}

// listenSilently accepts connections and never answers. It returns its address, and a channel that is
// closed at the first connection.
func (s *stage) listenSilently() (host, port string, connected <-chan struct{}) {
	s.Helper()
	l, err := new(net.ListenConfig).Listen(s.Context(), "tcp", net.JoinHostPort(realnode.Address, "0"))
	s.must(err)
	first := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			if open = append(open, c); len(open) == 1 {
				close(first)
			}
		}
		for _, c := range open {
			_ = c.Close()
		}
	})
	s.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	host, port, err = net.SplitHostPort(l.Addr().String())
	s.must(err)
	return host, port, first
}

// neverBegins: an image that is not to be had.
func neverBegins(s *stage) {
	o, _ := s.follow(s.create(8*time.Second, func(c *corev1.Container) { c.Image = "localhost/fleetloop/other:1" }), job.Failed)
	s.wantReplicas(3)
	if o.Failure.Reason != v1alpha1.ReasonExecutionTimeout || o.Failure.Detail != v1alpha1.DetailExecutorUnavailable || o.Started != nil {
		s.Errorf("failed with %+v, started %v", o.Failure, o.Started)
	}
}
