package check_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/kube"
)

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}})
}

// A fixture is a namespace with executions and one with targets, and a Checker.
type fixture struct {
	executor, shop string
	admin          kubernetes.Interface
	ids            *roles.Identities
	view           *kube.Reader
	policy         *fakePolicy
	conditions     *fakeConditions
	traffic        *fakeTraffic
	requests       *counter
	cfg            check.Config
}

// newFixture makes the namespaces, the accounts of some actions, with their rights
// in the namespace with the targets, and a view of the cluster.
func newFixture(t *testing.T, actions ...string) *fixture {
	t.Helper()
	r := &fixture{
		executor: kubebedtest.Namespace(t), shop: kubebedtest.Namespace(t),
		policy:     &fakePolicy{decision: execution.Decision{Allow: true, PolicyName: "safety-policy-v1", PolicyHash: "p1", Mode: "enforce"}},
		conditions: &fakeConditions{}, traffic: &fakeTraffic{}, requests: &counter{},
	}
	t.Cleanup(func() {
		if n := r.conditions.held; n != 0 {
			t.Errorf("%d places were not left", n)
		}
	})
	var err error
	if r.admin, err = kubernetes.NewForConfig(kubebedtest.Bed(t).Config()); err != nil {
		t.Fatal(err)
	}
	for _, name := range actions {
		r.grant(t, name, r.shop)
	}
	cfg := r.controller(t)
	cfg.WrapTransport = r.requests.wrap
	r.ids = roles.NewIdentities(cfg, r.executor)
	r.view = newView(t, cfg)
	r.cfg = check.Config{Namespace: r.executor, ClusterName: "bed"}
	return r
}

// controller is an account with the rights of the controller and no others.
func (r *fixture) controller(t *testing.T) *rest.Config {
	t.Helper()
	account := roles.Controller{Namespace: r.executor, Account: r.executor + "-controller"} // of which some is in the cluster
	for _, o := range account.Objects() {
		var err error
		switch o := o.(type) {
		case *rbacv1.Role:
			_, err = r.admin.RbacV1().Roles(r.executor).Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			_, err = r.admin.RbacV1().RoleBindings(r.executor).Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.ClusterRole:
			_, err = r.admin.RbacV1().ClusterRoles().Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.ClusterRoleBinding:
			_, err = r.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return r.controllerAgain(t)
}

// newView is a view that runs until the test ends.
func newView(t *testing.T, cfg *rest.Config) *kube.Reader {
	t.Helper()
	v, err := check.NewCachedReader(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	part := v.NewPart("view")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- part.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	kubebedtest.Eventually(t, func(context.Context) error { return part.Ready() })
	return v
}

// grant gives an action its account, and its rights in a namespace.
func (r *fixture) grant(t *testing.T, name, namespace string) {
	t.Helper()
	a, ok := action.Find(name)
	if !ok {
		t.Fatalf("no action %q", name)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.ServiceAccount()}}
	if _, err := r.admin.CoreV1().ServiceAccounts(r.executor).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	r.bind(t, a, namespace)
}

// newClient is an administrator's client of executions.
func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubebedtest.Bed(t).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bind gives an action's account its rights in a namespace.
func (r *fixture) bind(t *testing.T, a *action.Action, namespace string) {
	t.Helper()
	if a.Scope == action.Cluster {
		r.bindCluster(t, a)
		return
	}
	r.bindIn(t, a, namespace)
	r.wantRights(t, a, namespace, true)
}

// bindIn makes a role and a binding, by a name that is one of many in a namespace
// that is not the test's own.
func (r *fixture) bindIn(t *testing.T, a *action.Action, namespace string) {
	t.Helper()
	name := a.ServiceAccount()
	if namespace != r.shop {
		name = r.executor + "-" + name
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules(a)}
	if _, err := r.admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: a.ServiceAccount(), Namespace: r.executor}},
	}
	if _, err := r.admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bindCluster gives an action's account its rights in the cluster.
func (r *fixture) bindCluster(t *testing.T, a *action.Action) {
	t.Helper()
	name := r.executor + "-" + a.ServiceAccount()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules(a)}
	if _, err := r.admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: a.ServiceAccount(), Namespace: r.executor}},
	}
	if _, err := r.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wantRights(t, a, "any", true)
}

func rules(a *action.Action) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	for _, p := range a.Permissions {
		resource := p.Resource
		if p.Subresource != "" {
			resource += "/" + p.Subresource
		}
		all = append(all, rbacv1.PolicyRule{APIGroups: []string{p.Group}, Resources: []string{resource}, Verbs: p.Verbs})
	}
	return all
}

// wantRights waits until the authorizer has observed a change of bindings.
func (r *fixture) wantRights(t *testing.T, a *action.Action, namespace string, bound bool) {
	t.Helper()
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		ids := roles.NewIdentities(kubebedtest.Bed(t).Config(), r.executor) // that believes nothing yet
		denied, err := ids.ListDenied(ctx, a, r.request(t, a.Name, namespace).Rights())
		if err == nil && bound != (len(denied) == 0) {
			err = errors.New("the authorizer does not know yet")
		}
		return err
	})
}

// The actions that the tests use.
const (
	scale   = "scale_deployment"
	restart = "rollout_restart"
	kill    = "restart_pod"
	cordon  = "cordon_node"
	notify  = "notify_only"
)

// request is one of an action on an object "web" in a namespace.
func (r *fixture) request(t *testing.T, name, namespace string) action.Request {
	t.Helper()
	ke := r.execution(name, nil)
	ke.Spec.Parameters = parameters(name, namespace)
	request, err := action.Parse(&ke.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// parameters are good ones of the actions that the tests use.
func parameters(name, namespace string) *runtime.RawExtension {
	of := map[string]string{
		scale:   `{"deployment": "web", "namespace": "` + namespace + `", "replicas": 5}`,
		restart: `{"kind": "Deployment", "name": "web", "namespace": "` + namespace + `"}`,
		kill:    `{"pod": "web-1-a", "namespace": "` + namespace + `"}`,
		cordon:  `{"node": "` + namespace + `"}`, drain: `{"node": "` + namespace + `"}`,
		notify: `{"message": "the shop is slow"}`,
		patch:  `{"deployment": "web", "namespace": "` + namespace + `", "patch": {"spec": {"paused": true}}}`,
		bounds: `{"hpa": "web", "namespace": "` + namespace + `", "maxReplicas": 1}`,
	}
	return &runtime.RawExtension{Raw: []byte(of[name])}
}

var begun = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) // of all executions

// execution is one that has just been taken up.
func (r *fixture) execution(name string, change func(*v1alpha1.KubernetesExecution)) *v1alpha1.KubernetesExecution {
	ke := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.executor, Name: "scale-web", UID: types.UID("uid-1"), CreationTimestamp: metav1.NewTime(begun)},
		Spec:       v1alpha1.KubernetesExecutionSpec{Action: name, Parameters: parameters(name, r.shop), DryRunMode: v1alpha1.DryRunPolicy, RequestedBy: "jane"},
		Status: v1alpha1.KubernetesExecutionStatus{
			Phase: v1alpha1.PhaseValidating, VerifiedRequest: &v1alpha1.VerifiedRequest{AdmissionPolicyPeriod: "a"},
			PhaseTransitions: []v1alpha1.PhaseTransition{{Phase: v1alpha1.PhaseValidating, At: metav1.NewMicroTime(begun)}},
		},
	}
	if change != nil {
		change(ke)
	}
	return ke
}

// checker is one with the fixture's parts.
func (r *fixture) checker(t *testing.T) *check.Checker {
	t.Helper()
	c, err := check.New(r.cfg, check.Deps{Identities: r.ids, Policy: r.policy, Conditions: r.conditions, Traffic: r.traffic, Reader: r.view})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// check makes all checks.
func (r *fixture) check(t *testing.T, ke *v1alpha1.KubernetesExecution, now time.Time) check.Outcome {
	t.Helper()
	out, err := r.checker(t).Check(t.Context(), ke, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// deploy makes a Deployment "web" of three replicas.
func (r *fixture) deploy(t *testing.T, change func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	n, labels := int32(3), map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
	if change != nil {
		change(d)
	}
	d, err := r.admin.AppsV1().Deployments(r.shop).Create(t.Context(), d, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.known(t, r.shop)
	t.Cleanup(func() { r.wantUntouched(t, d) })
	return d
}

// known waits until the view has a namespace.
func (r *fixture) known(t *testing.T, namespace string) {
	t.Helper()
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		return r.view.Get(ctx, types.NamespacedName{Name: namespace}, &corev1.Namespace{})
	})
}

// wantUntouched sees to it that a target is as it was made, or as the test said.
func (r *fixture) wantUntouched(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	now, err := r.admin.AppsV1().Deployments(d.Namespace).Get(context.WithoutCancel(t.Context()), d.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		t.Error(err)
	case now.ResourceVersion != d.ResourceVersion && d.Annotations["changed"] == "":
		t.Errorf("the target was changed: its resourceVersion is %s, and was %s", now.ResourceVersion, d.ResourceVersion)
	}
}

// wantFailed fails the test unless a check refused the execution for the given reason, in a message
// that names the subject.
func wantFailed(t *testing.T, out check.Outcome, reason v1alpha1.Reason, detail v1alpha1.Detail, says ...string) {
	t.Helper()
	if out.Failed == nil {
		t.Fatalf("the check passed, want %s/%s: %+v", reason, detail, out)
	}
	if out.Failed.Reason != reason || out.Failed.Detail != detail {
		t.Errorf("failed for %s/%s, want %s/%s: %s", out.Failed.Reason, out.Failed.Detail, reason, detail, out.Failed.Message)
	}
	for _, s := range says {
		if !strings.Contains(out.Failed.Message, s) {
			t.Errorf("the message does not say %q: %s", s, out.Failed.Message)
		}
	}
}

// wantPassed sees to it that a plan may be carried out.
func wantPassed(t *testing.T, out check.Outcome) {
	t.Helper()
	if out.Failed != nil || out.Wait > 0 || out.NeedDryRunJob || out.Plan == nil {
		t.Fatalf("the check did not pass: failed %+v, wait %s, job %t, plan %v", out.Failed, out.Wait, out.NeedDryRunJob, out.Plan)
	}
}

// A fakePolicy returns a preset decision.
type fakePolicy struct {
	decision execution.Decision
	err      error
	decide   func(in *execution.Input) (execution.Decision, error)

	mu    sync.Mutex
	asked []*execution.Input
}

func (p *fakePolicy) Decide(_ context.Context, in *execution.Input) (execution.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := *in
	p.asked = append(p.asked, &seen)
	if p.decide != nil {
		return p.decide(in)
	}
	return p.decision, p.err
}

type fakeTraffic struct{}

// InFlight and History have seen nothing.

func (fakeTraffic) InFlight(types.UID) execution.InputInFlight { return execution.InputInFlight{} }

func (fakeTraffic) History(string, string, time.Time) execution.InputPast {
	return execution.InputPast{}
}

// A counter keeps the requests that were sent.
type counter struct {
	mu   sync.Mutex
	sent []string
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		if !strings.Contains(r.URL.RawQuery, "watch=") && !strings.Contains(r.URL.RawQuery, "limit=") {
			c.mu.Lock()
			c.sent = append(c.sent, r.Method+" "+r.URL.RequestURI())
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// take returns and clears the requests sent so far.
func (c *counter) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.sent = nil }()
	return c.sent
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
