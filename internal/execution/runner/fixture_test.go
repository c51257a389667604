package runner_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/binaries"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

const (
	runnerImage = "fleetloop/action-runner"
	exitTimeout = time.Minute // for what happens soon
)

// built is the program, built once for all tests.
var built struct {
	dir  string
	once func() error
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fleetloop-runner-test-")
	if err != nil {
		panic(err)
	}
	built.dir = dir
	built.once = sync.OnceValue(func() error { return binaries.Build(context.Background(), dir, "action-runner") })
	kubebedtest.Main(m, kubebed.Options{Controllers: kubebed.JobControllers(), Scheduler: true}, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code) //nolint:forbidigo // what would have been done without a cleanup
	}))
}

// A stage is a namespace with an object to act on, and the account of an action
// that may do so.
type stage struct {
	*testing.T
	client    kubernetes.Interface
	namespace string
	action    *action.Action
}

// newStage gives the account of an action the rights that the catalogue says it
// needs, unless it is to have none.
func newStage(t *testing.T, does string, mayAct bool) *stage {
	t.Helper()
	if err := built.once(); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	a, ok := action.Find(does)
	if !ok {
		t.Fatalf("there is no action %q", does)
	}
	s := &stage{T: t, client: client, namespace: kubebedtest.Namespace(t), action: a}
	_, err = client.CoreV1().ServiceAccounts(s.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.ServiceAccount()}}, metav1.CreateOptions{})
	s.must(err)
	if mayAct {
		s.grant()
	}
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// grant binds the rights of the action to its account. All are granted in the
// whole cluster: what is tested here is not how narrow they are.
func (s *stage) grant() {
	s.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	for _, p := range s.action.Permissions {
		resource := p.Resource
		if p.Subresource != "" {
			resource += "/" + p.Subresource
		}
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{p.Group}, Resources: []string{resource}, Verbs: p.Verbs})
	}
	_, err := s.client.RbacV1().ClusterRoles().Create(s.Context(), role, metav1.CreateOptions{})
	s.must(err)
	_, err = s.client.RbacV1().ClusterRoleBindings().Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: s.action.ServiceAccount()}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.namespace},
	}, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		ctx := context.WithoutCancel(s.Context())
		s.must(errors.Join(
			s.client.RbacV1().ClusterRoleBindings().Delete(ctx, s.namespace, metav1.DeleteOptions{}),
			s.client.RbacV1().ClusterRoles().Delete(ctx, s.namespace, metav1.DeleteOptions{}),
		))
	})
}

// deployment makes the Deployment web with three replicas.
func (s *stage) deployment() {
	s.Helper()
	labels := map[string]string{"app": "web"}
	_, err := s.client.AppsV1().Deployments(s.namespace).Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
			},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

func (s *stage) wantReplicas(want int32) {
	s.Helper()
	d, err := s.client.AppsV1().Deployments(s.namespace).Get(s.Context(), "web", metav1.GetOptions{})
	s.must(err)
	if *d.Spec.Replicas != want {
		s.Errorf("%d replicas, want %d", *d.Spec.Replicas, want)
	}
}

// plan plans as an administrator.
func (s *stage) plan(parameters string) *v1alpha1.Plan {
	s.Helper()
	request, err := action.Parse(&v1alpha1.KubernetesExecutionSpec{Action: s.action.Name, TargetNamespace: s.targetNamespace(), Parameters: &runtime.RawExtension{Raw: []byte(parameters)}})
	s.must(err)
	client, err := action.NewClient(kubebedtest.Bed(s.T).Config())
	s.must(err)
	p, err := request.Plan(s.Context(), client, action.Subject{UID: "uid-1", Created: time.Unix(1_800_000_000, 0)})
	s.must(err)
	return p
}

func (s *stage) targetNamespace() string {
	if s.action.Scope == action.Cluster {
		return ""
	}
	return s.namespace
}

func (s *stage) scale() *v1alpha1.Plan {
	s.Helper()
	return s.plan(`{"deployment":"web","replicas":5}`)
}

// job is the Job of an execution with a plan.
func (s *stage) job(p *v1alpha1.Plan, purpose string, timeout time.Duration) *batchv1.Job {
	s.Helper()
	ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: "scale-web", UID: "uid-1", CreationTimestamp: metav1.Unix(1_800_000_000, 0),
	}}
	ke.Spec.Timeout = &metav1.Duration{Duration: timeout}
	j, err := job.Build(ke, p, purpose, 1, job.Options{Namespace: s.namespace, Image: runnerImage})
	s.must(err)
	return j
}

// A program is the runner as a process of its own.
type program struct {
	*stage
	cmd   *exec.Cmd
	out   bytes.Buffer
	log   string // the termination message's file
	ended chan struct{}
}

// start starts the runner as a Job's Pod would, but for what is changed.
func (s *stage) start(j *batchv1.Job, change map[string]string) *program {
	s.Helper()
	dir := s.TempDir()
	p := &program{stage: s, log: filepath.Join(dir, "termination-log"), ended: make(chan struct{})}
	cfg, err := kubebedtest.Bed(s.T).EnsureServiceAccountConfig(s.Context(), s.namespace, s.action.ServiceAccount())
	s.must(err)
	c := j.Spec.Template.Spec.Containers[0]
	env := map[string]string{"KUBECONFIG": kubeconfig(s.T, dir, cfg)}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	env[runner.EnvTerminationLog] = p.log
	for name, value := range change {
		env[name] = value
		if name == proxied {
			cfg.Host = value
			env["KUBECONFIG"] = kubeconfig(s.T, dir, cfg)
		}
	}
	p.cmd = exec.CommandContext(s.Context(), filepath.Join(built.dir, "action-runner"), c.Args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Env = []string{"HOME=" + dir}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	s.must(p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its exit code is looked at
	}()
	s.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if s.Failed() {
			s.Logf("exit code %d\n%s", p.cmd.ProcessState.ExitCode(), p.out.String())
		}
	})
	return p
}

// proxied has the runner reach the API server at another address.
const proxied = "test proxy"

func kubeconfig(t *testing.T, dir string, cfg *rest.Config) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["bed"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["bed"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	k.Contexts["bed"] = &clientcmdapi.Context{Cluster: "bed", AuthInfo: "bed"}
	k.CurrentContext = "bed"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// want waits for the end of the runner, and reads what it left.
func (p *program) want(code action.Code) action.Result {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(exitTimeout): //nolint:forbidigo // it bounds a process that hangs
		p.Fatalf("the runner did not end within %s", exitTimeout)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != int(code) {
		p.Errorf("exit code %d, want %d", got, code)
	}
	text, err := os.ReadFile(p.log)
	p.must(err)
	if len(text) > action.MaxResult {
		p.Errorf("the result has %d bytes", len(text))
	}
	r, err := action.DecodeResult(string(text))
	if err != nil {
		p.Fatalf("%v\n%s", err, text)
	}
	if r.Code != code || r.Started.IsZero() || r.Ended.Before(r.Started) {
		p.Errorf("the result has code %d, from %s to %s; want %d", r.Code, r.Started, r.Ended, code)
	}
	return r
}

func (p *program) tell() {
	p.Helper()
	p.must(p.cmd.Process.Signal(syscall.SIGTERM))
}

// A proxy is a way to the API server that is blocked until it is opened.
type proxy struct {
	listener net.Listener
	to       string
	open     chan struct{}
	asked    atomic.Int64 // connections that were made
	hangs    bool         // whether they are kept meanwhile, or closed
}

func newProxy(t *testing.T, hangs bool) *proxy {
	t.Helper()
	u, err := url.Parse(kubebedtest.Bed(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: u.Host, open: make(chan struct{}), hangs: hangs}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.asked.Add(1)
			serving.Go(func() { p.serve(ctx, c) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		serving.Wait()
	})
	return p
}

func (p *proxy) url() string { return "https://" + p.listener.Addr().String() }

func (p *proxy) serve(ctx context.Context, c net.Conn) {
	defer c.Close()                                          //nolint:errcheck // it ends the connection, whatever it says
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // so that nothing hangs after the test
	select {
	case <-p.open:
	default:
		if !p.hangs {
			return
		}
		_, _ = io.Copy(io.Discard, c)
		return
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.to)
	if err != nil {
		return
	}
	defer server.Close()                                          //nolint:errcheck // see above
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // see above
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, server)
		_ = c.Close()
	})
	_, _ = io.Copy(server, c)
	_ = server.Close()
	back.Wait()
}
