package hosts_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	faultv1 "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	sentinelv1 "github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	dir, err := os.MkdirTemp("", "console-hosts-*")
	if err != nil {
		panic(err)
	}
	tokens := filepath.Join(dir, "tokens.csv")
	text := "alice-token,alice,alice\nbob-token,bob,bob,\"sre\"\ncarol-token,carol,carol\nadmin-token,admin,admin,\"system:masters\"\n"
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		panic(err)
	}
	kubebedtest.Main(m, kubebed.Options{
		CRDs: []string{"../../../deploy/crds"},
		Args: map[string][]string{kubebed.APIServer: {"--token-auth-file=" + tokens}},
	})
}

// fixture is a console with one host cluster.
type fixture struct {
	*testing.T
	admin     client.Client
	own       *rest.Config
	namespace string
	url       string
	check     hosts.CoverageFunc

	mu   sync.Mutex
	acts []console.Action
}

func newFixture(t *testing.T, change ...func(*hosts.Config, *hosts.Deps)) *fixture {
	t.Helper()
	f := &fixture{T: t, namespace: kubebedtest.Namespace(t)}
	bed := kubebedtest.Bed(t)
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), faultv1.AddToScheme(scheme), sentinelv1.AddToScheme(scheme), corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.admin, err = client.New(bed.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{hosts.NewConsoleClusterRole(), hosts.NewClusterRoleBinding("fleetloop-system"), roles.ApproverClusterRole(), roles.ViewerClusterRole()} {
		if err := f.admin.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if f.own, err = bed.User("system:serviceaccount:fleetloop-system:"+hosts.RoleName, "system:serviceaccounts", "system:authenticated"); err != nil {
		t.Fatal(err)
	}
	cfg := hosts.Config{Name: "demo", ExecutionNamespace: f.namespace}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	deps := hosts.Deps{REST: f.own, Log: log, ReleaseNode: func(n *corev1.Node, now time.Time, reason string) (*corev1.Node, bool) {
		return quarantine.Release(n, now, reason, true)
	}}
	for _, c := range change {
		c(&cfg, &deps)
	}
	h, err := hosts.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	clusters, err := hosts.NewClusters(func(ctx context.Context, who console.Person, list []hosts.NamedSentinel) (hosts.Coverage, error) {
		return f.check(ctx, who, list)
	}, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.NewCachePart().Run(ctx); err != nil {
			t.Error(err)
		}
	})
	limits := session.Config{Idle: time.Hour, Lifetime: time.Hour}
	c, err := console.New(console.Config{Mode: console.ModeDemo, FleetAPI: "http://127.0.0.1:1", SignInsPerMinute: 100, Session: limits}, console.Deps{
		ListenAddr: "127.0.0.1:0", Hosts: clusters, Log: log, Metrics: prometheus.NewRegistry(),
		Sessions: session.New(limits, session.NewRandomKey(), session.NewMemoryStore(), nil, log),
		RecordAction: func(_ context.Context, act console.Action) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.acts = append(f.acts, act)
		},
		Demo: []console.DemoPerson{
			{Name: "alice", Token: "alice-token"},
			{Name: "bob", Token: "bob-token"},
			{Name: "carol", Token: "carol-token"},
			{Name: "admin", Token: "admin-token"},
			{Name: "stranger", Token: "unknown-token"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	f.url = server.URL + "/"
	t.Cleanup(func() {
		c.EndStreams()
		server.Close()
		cancel()
		running.Wait()
	})
	return f
}

// bind gives a user a role in a namespace.
func (f *fixture) bind(user, role, namespace string) {
	f.Helper()
	err := f.admin.Create(f.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role, Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	if err != nil {
		f.Fatal(err)
	}
}

// create creates an execution of alice that waits for approval.
func (f *fixture) create(namespace, name string) *v1alpha1.KubernetesExecution {
	f.Helper()
	ke := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.KubernetesExecutionSpec{Action: "scale_deployment", RequestedBy: "alice", Parameters: &runtime.RawExtension{Raw: []byte(`{"deployment":"web","namespace":"shop","replicas":5}`)}},
	}
	if err := f.admin.Create(f.Context(), ke); err != nil {
		f.Fatal(err)
	}
	ke.Status = v1alpha1.KubernetesExecutionStatus{
		Phase:    v1alpha1.PhaseWaitingApproval,
		Approval: &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalPending, Required: true, RequiredCount: 1, RequesterCannotApprove: true},
		Plan: &v1alpha1.Plan{
			Hash: strings.Repeat("a", 64), Action: "scale_deployment", Target: v1alpha1.PlanTarget{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
			Steps: []v1alpha1.PlanStep{{Description: "scale", Verb: "patch"}}, CreatedAt: metav1.Now(),
		},
	}
	if err := f.admin.Status().Update(f.Context(), ke); err != nil {
		f.Fatal(err)
	}
	return ke
}

// TestReadsAreFiltered covers that bob sees nothing of a namespace that he cannot list: in lists, as
// one object, as a log and in the stream.
func TestReadsAreFiltered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret := kubebedtest.Namespace(t)
	f.bind("bob", v1alpha1.ViewerRole, f.namespace)
	f.create(f.namespace, "open-1")
	f.create(secret, "secret-1")
	bob, admin := f.signIn("bob"), f.signIn("admin")
	admin.eventuallySees([]string{"open-1", "secret-1"}, f.namespace, secret)
	bob.eventuallySees([]string{"open-1"}, f.namespace, secret)

	if text := bob.want(http.StatusOK, "GET", "console/hosts/demo/executions?limit=500", "", nil); strings.Contains(text, "secret") {
		t.Errorf("the list shows %s", text)
	}
	bob.want(http.StatusOK, "GET", "console/hosts/demo/executions/"+f.namespace+"/open-1", "", nil)
	for _, path := range []string{"", "/log", "/log?follow=true"} {
		bob.want(http.StatusNotFound, "GET", "console/hosts/demo/executions/"+secret+"/secret-1"+path, "", nil)
	}
	if status, text := bob.do("POST", "console/hosts/demo/executions/"+secret+"/secret-1/cancel", `{}`); status != http.StatusForbidden {
		t.Errorf("cancel = %d %s", status, text)
	}
	bob.want(http.StatusForbidden, "GET", "console/hosts/demo/nodes", "", nil)
	admin.want(http.StatusOK, "GET", "console/hosts/demo/nodes", "", nil)
	bob.want(http.StatusOK, "GET", "console/hosts/demo/sentinels", "", nil)
	bob.want(http.StatusNotFound, "GET", "console/hosts/other/nodes", "", nil)

	stream := bob.stream("")
	stream.waitFor("reset", "executions")
	f.create(secret, "secret-2")
	f.create(f.namespace, "open-2")
	seen := stream.waitFor("executions", "open-2")
	if strings.Contains(seen, "secret") {
		t.Errorf("the stream shows %s", seen)
	}
}

// TestStreamResumes covers that a stream goes on where it broke off, and begins anew with a cursor of
// another process.
func TestStreamResumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.bind("bob", v1alpha1.ViewerRole, f.namespace)
	bob := f.signIn("bob")
	first := bob.stream("")
	first.waitFor("reset", "executions")
	f.create(f.namespace, "one")
	first.waitFor("executions", `"namespace":"`+f.namespace+`"`, `"phase":"waiting_approval"`) // bob sees those of other tests, too
	first.close()
	f.create(f.namespace, "two")
	second := bob.stream(first.id)
	if seen := second.waitFor("executions", `"namespace":"`+f.namespace+`","name":"two"`); strings.Contains(seen, "event: reset") || strings.Contains(seen, `"name":"one"`) {
		t.Errorf("it did not go on: %s", seen)
	}
	other := newFixture(t).signIn("bob").stream(first.id)
	other.waitFor("reset", "executions")
}

// TestStreamEndsWithTheSession covers that sign-out ends the streams of the session.
func TestStreamEndsWithTheSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bob := f.signIn("bob")
	s := bob.stream("")
	s.waitFor("bookmark", "as_of")
	bob.want(http.StatusNoContent, "POST", "console/logout", "", nil)
	if _, err := io.ReadAll(s.lines); err != nil {
		t.Error(err)
	}
}

// stream is an open stream of events.
type stream struct {
	t     *testing.T
	lines *bufio.Reader
	close func()
	id    string // of the last event
}

func (b *browser) stream(after string) *stream {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"console/stream?topics=executions,nodes", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", after)
	resp, err := b.client.Do(req) //nolint:bodyclose // the stream closes it
	if err != nil {
		b.Fatal(err)
	}
	s := &stream{t: b.T, lines: bufio.NewReader(resp.Body), close: func() { cancel(); _ = resp.Body.Close() }}
	b.Cleanup(s.close)
	return s
}

// waitFor reads up to an event that has all the texts, and returns all that it read.
func (s *stream) waitFor(event string, texts ...string) string {
	s.t.Helper()
	var all, one strings.Builder
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("no event %s with %q in\n%s: %v", event, texts, all.String(), err)
		}
		all.WriteString(line)
		one.WriteString(line)
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			s.id = strings.TrimSpace(id)
		}
		if line != "\n" {
			continue
		}
		if strings.Contains(one.String(), "event: "+event+"\n") && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(one.String(), text) }) {
			return all.String()
		}
		one.Reset()
	}
}

// TestApprove covers what a person may decide, and that a decision is the person's own and about the
// plan that the person has seen.
func TestApprove(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"alice", "bob"} {
		f.bind(name, v1alpha1.ApproverRole, f.namespace)
	}
	f.bind("carol", v1alpha1.ViewerRole, f.namespace)
	ke := f.create(f.namespace, "scale-web")
	path := "console/hosts/demo/executions/" + f.namespace + "/scale-web"
	for name, reason := range map[string]string{"alice": "alice requested", "bob": "", "carol": "carol may not patch"} {
		b := f.signIn(name)
		b.eventuallySees([]string{"scale-web"}, f.namespace)
		var e hosts.Execution
		b.want(http.StatusOK, "GET", path, "", &e)
		can := e.Can["approve"]
		if can.Allowed != (reason == "") || !strings.Contains(can.Reason, reason) || e.PlanHash != ke.Status.Plan.Hash || e.Object == nil {
			t.Errorf("%s: %+v of %+v", name, can, e)
		}
		if want := "fleetloop approve scale-web --namespace=" + f.namespace + " --plan=aaaaaaaaaaaa"; e.Command["approve"] != want {
			t.Errorf("command %q, want %q", e.Command["approve"], want)
		}
	}
	f.signIn("carol").want(http.StatusForbidden, "POST", path+"/approve", `{"plan_hash":"`+ke.Status.Plan.Hash+`"}`, nil)
	bob := f.signIn("bob")
	bob.want(http.StatusBadRequest, "POST", path+"/approve", `{}`, nil)
	bob.want(http.StatusConflict, "POST", path+"/approve", `{"plan_hash":"`+strings.Repeat("b", 64)+`"}`, nil)
	bob.want(http.StatusBadRequest, "POST", path+"/reject", `{}`, nil)
	var e hosts.Execution
	bob.want(http.StatusOK, "POST", path+"/approve", `{"plan_hash":"`+ke.Status.Plan.Hash+`","reason":"seen","view":"/executions"}`, &e)
	var now v1alpha1.KubernetesExecution
	if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(ke), &now); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.Approval{Approver: "bob", Decision: v1alpha1.Approve, Reason: "seen", PlanHash: ke.Status.Plan.Hash}
	if len(now.Spec.Approvals) != 1 || now.Spec.Approvals[0] != want || e.Can["approve"].Allowed {
		t.Errorf("approvals %+v, can %+v", now.Spec.Approvals, e.Can)
	}
	if by := now.ManagedFields[len(now.ManagedFields)-1].Manager; by != "fleetloop-console" && by != "hosts.test" {
		t.Logf("manager %q", by)
	}
	bob.want(http.StatusConflict, "POST", path+"/approve", `{"plan_hash":"`+ke.Status.Plan.Hash+`"}`, nil)
	bob.want(http.StatusOK, "POST", path+"/cancel", `{"reason":"not needed"}`, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.acts) != 2 || f.acts[0] != (console.Action{Action: "execution-approve-requested", Host: "demo", Object: f.namespace + "/scale-web", By: "bob", Reason: "seen", View: "/executions"}) {
		t.Errorf("told %+v", f.acts)
	}
}

// TestStrangersToken covers a person whose token the API server does not accept, with and without
// assumed names.
func TestStrangersToken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*hosts.Config, *hosts.Deps)
		sees   int
	}{
		"Refused": {func(*hosts.Config, *hosts.Deps) {}, http.StatusForbidden},
		"Assumed": {assumeUsers("stranger", nil), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, tc.change)
			f.bind("oidc:stranger", v1alpha1.ApproverRole, f.namespace)
			f.create(f.namespace, "scale-web")
			f.signIn("admin").eventuallySees([]string{"scale-web"}, f.namespace)
			b := f.signIn("stranger")
			if h := b.session().Hosts; len(h) != 1 || h[0].Writes || !strings.Contains(h[0].WhyNot, "does not trust") {
				t.Errorf("hosts %+v", h)
			}
			path := "console/hosts/demo/executions/" + f.namespace + "/scale-web"
			text := b.want(tc.sees, "GET", path, "", nil)
			if tc.sees == http.StatusOK && (!strings.Contains(text, "fleetloop approve scale-web") || strings.Contains(text, `"allowed":true`)) {
				t.Errorf("got %s", text)
			}
			b.want(http.StatusForbidden, "POST", path+"/cancel", `{}`, nil)
		})
	}
}
