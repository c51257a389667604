package action

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{Controllers: kubebed.JobControllers()})
}

// A stage is a namespace in which actions are tried.
type stage struct {
	*testing.T

	namespace string
	admin     Client
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{T: t, namespace: kubebedtest.Namespace(t), admin: connect(t, nil)}
}

// connect is an administrator's client; wire sees its requests, if there is one.
func connect(t *testing.T, w *wire) Client {
	t.Helper()
	cfg := kubebedtest.Bed(t).Config()
	if w != nil {
		cfg.Wrap(w.wrap)
	}
	c, err := Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// as is the client of an account that has what an action says it needs, and
// nothing more, in the stage's namespace.
func (s *stage) as(a *Action, w *wire) Client {
	s.Helper()
	bed := kubebedtest.Bed(s.T)
	user := s.namespace + ":" + a.ServiceAccount()
	all, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		s.Fatal(err)
	}
	var local, global []rbacv1.PolicyRule
	for _, p := range a.Permissions {
		resource := p.Resource
		if p.Subresource != "" {
			resource += "/" + p.Subresource
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{p.Group}, Resources: []string{resource}, Verbs: p.Verbs}
		if p.ClusterScoped {
			global = append(global, rule)
		} else {
			local = append(local, rule)
		}
	}
	name := strings.ReplaceAll(user, ":", "-")
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	ctx := s.Context()
	_, err = all.RbacV1().Roles(s.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: local}, metav1.CreateOptions{})
	s.made(err)
	_, err = all.RbacV1().RoleBindings(s.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	s.made(err)
	if len(global) > 0 {
		_, err = all.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: global}, metav1.CreateOptions{})
		s.made(err)
		_, err = all.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{})
		s.made(err)
	}
	s.wantAllowed(all, user, a)
	cfg, err := bed.User(user)
	if err != nil {
		s.Fatal(err)
	}
	if w != nil {
		cfg.Wrap(w.wrap)
	}
	c, err := Connect(cfg)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// wantAllowed waits for the API server to have seen the roles that it was given.
func (s *stage) wantAllowed(all kubernetes.Interface, user string, a *Action) {
	s.Helper()
	for _, p := range a.Permissions {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: p.Group, Resource: p.Resource, Subresource: p.Subresource, Verb: p.Verbs[0], Namespace: s.namespace,
		}}}
		if p.ClusterScoped {
			review.Spec.ResourceAttributes.Namespace = ""
		}
		kubebedtest.Eventually(s.T, func(ctx context.Context) error {
			answer, err := all.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				return fmt.Errorf("%s may not %s %s yet", user, p.Verbs[0], p.Resource)
			}
			return err
		})
	}
}

func (s *stage) made(err error) {
	s.Helper()
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		s.Fatal(err)
	}
}

// create makes an object, in the stage's namespace if it belongs in one.
func (s *stage) create(object map[string]any) *unstructured.Unstructured {
	s.Helper()
	u := (&unstructured.Unstructured{Object: object}).DeepCopy()
	k, ok := resourceOf(u.GetAPIVersion(), u.GetKind())
	if !ok {
		s.Fatalf("there is no kind %s %s", u.GetAPIVersion(), u.GetKind())
	}
	if !k.cluster {
		u.SetNamespace(s.namespace)
	}
	made, err := s.admin.on(k.GroupVersionResource, u.GetNamespace()).Create(s.Context(), u, metav1.CreateOptions{})
	if err != nil {
		s.Fatalf("create %s %s: %v", u.GetKind(), u.GetName(), err)
	}
	if k.cluster {
		s.Cleanup(func() { s.remove(made) })
	}
	return made
}

// remove deletes an object at once.
func (s *stage) remove(o *unstructured.Unstructured) {
	s.Helper()
	k, _ := resourceOf(o.GetAPIVersion(), o.GetKind())
	var now int64
	err := s.admin.on(k.GroupVersionResource, o.GetNamespace()).Delete(context.WithoutCancel(s.Context()), o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !strings.Contains(err.Error(), "not found") {
		s.Fatalf("delete %s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// read is an object as it is now.
func (s *stage) read(o *unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	live, err := s.admin.read(s.Context(), targetOfObject(o))
	if err != nil {
		s.Fatal(err)
	}
	return live
}

// patch changes an object, as somebody else would. It serves clean-ups, too.
func (s *stage) patch(o *unstructured.Unstructured, patch string, subresources ...string) *unstructured.Unstructured {
	s.Helper()
	k, _ := resourceOf(o.GetAPIVersion(), o.GetKind())
	live, err := s.admin.on(k.GroupVersionResource, o.GetNamespace()).Patch(context.WithoutCancel(s.Context()), o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		s.Fatalf("patch %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return live
}

// request is what is asked for, and must be good.
func (s *stage) request(action string, parameters map[string]any) Request {
	s.Helper()
	r, err := Parse(s.spec(action, parameters))
	if err != nil {
		s.Fatalf("Parse(%s) = %v", action, err)
	}
	return r
}

func (s *stage) spec(action string, parameters map[string]any) *v1alpha1.KubernetesExecutionSpec {
	s.Helper()
	raw, err := json.Marshal(parameters)
	if err != nil {
		s.Fatal(err)
	}
	return &v1alpha1.KubernetesExecutionSpec{Action: action, TargetNamespace: s.namespace, Parameters: &runtime.RawExtension{Raw: raw}}
}

// plan plans, and must be able to.
func (s *stage) plan(c Client, r Request, subject Subject) *v1alpha1.Plan {
	s.Helper()
	p, err := r.Plan(s.Context(), c, subject)
	if err != nil {
		s.Fatalf("Plan(%s) = %v", r.Action.Name, err)
	}
	return p
}

// newSubject is an execution.
func newSubject(uid string) Subject {
	return Subject{UID: types.UID(uid), Created: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// wantCode is how an attempt must have ended.
func wantCode(t *testing.T, r Result, code Code) {
	t.Helper()
	if r.Code != code {
		t.Fatalf("code %d (%s), want %d", r.Code, r.Message, code)
	}
}

// A wire sees requests on their way, and can break them.
type wire struct {
	mu     sync.Mutex
	writes []string // that were sent, dry runs excepted
	dry    []string // dry runs
	reads  int

	// before is called with each write; an answer is given instead of the server's.
	before func(n int, r *http.Request) *http.Response
	// after is called with each answer to a write, and gives the one to use; nil is a broken connection.
	after func(n int, r *http.Response) *http.Response
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			w.mu.Lock()
			w.reads++
			w.mu.Unlock()
			return next.RoundTrip(r)
		}
		n := w.count(r)
		if w.before != nil {
			if answer := w.before(n, r); answer != nil {
				_ = r.Body.Close()
				return answer, nil
			}
		}
		answer, err := next.RoundTrip(r)
		if err == nil && w.after != nil {
			if answer = w.after(n, answer); answer == nil {
				return nil, io.ErrUnexpectedEOF
			}
		}
		return answer, err
	})
}

// count gives the number of a write, from 1.
func (w *wire) count(r *http.Request) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := r.Method + " " + r.URL.Path
	if isDry(r) {
		w.dry = append(w.dry, line)
		return len(w.writes) + len(w.dry)
	}
	w.writes = append(w.writes, line)
	return len(w.writes) + len(w.dry)
}

// isDry says whether the server is told to forget the request.
func isDry(r *http.Request) bool {
	if r.URL.Query().Get("dryRun") == metav1.DryRunAll {
		return true
	}
	if r.Body == nil {
		return false
	}
	body, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r.Method == http.MethodDelete && bytes.Contains(body, []byte(`"dryRun":["All"]`))
}

func (w *wire) sent() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.writes...)
}

// refusal is an answer of the API server.
func refusal(code int, reason metav1.StatusReason, message string) *http.Response {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
	body, _ := json.Marshal(status)
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d", code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// A trial is one action from being asked for to being taken back.
type trial struct {
	reason     string
	object     map[string]any // to act on; its namespace is the stage's
	setup      func(s *stage, o *unstructured.Unstructured)
	action     string
	parameters map[string]any

	did           string
	before, after string // what those of the affected resource begin with
	foreign       string // a merge patch that changes what the action depends on
	back          string // the action that is the way back; empty is none
}

// run tries all that an action promises.
func (tr trial) run(t *testing.T) {
	t.Helper()
	for name, try := range map[string]func(*stage, trial, *unstructured.Unstructured){
		"DoneAndTakenBack": wantDone,
		"DryRun":           wantDry,
		"OtherObject":      wantOtherObject,
		"OtherValues":      wantOtherValues,
		"Conflict":         wantConflict,
		"AnswerLost":       wantAnswerLost,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o := s.create(tr.object)
			if tr.setup != nil {
				tr.setup(s, o)
				o = s.read(o)
			}
			try(s, tr, o)
		})
	}
}

// wantDone plans and executes, twice, and goes back.
func wantDone(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid-of-the-first")
	p := s.plan(c, r, subject)
	if again := s.plan(c, r, subject); again.Hash != p.Hash {
		s.Errorf("the same state has the plans %s", cmp.Diff(p, again))
	}
	if n := len(w.sent()); n > 0 {
		s.Fatalf("planning wrote: %v", w.sent())
	}
	was := r.Action.kind.fields(r.parsed, s.read(o))
	var out bytes.Buffer
	result := Execute(s.Context(), c, p, Run{Subject: subject, Output: &out})
	wantCode(s.T, result, CodeOK)
	if !result.Changed || len(result.Resources) != len(p.Steps) || result.Count != int32(len(p.Steps)) {
		s.Fatalf("result %+v, want %d changed objects", result, len(p.Steps))
	}
	got := result.Resources[len(result.Resources)-1]
	if got.Action != tr.did || !strings.HasPrefix(got.Before, tr.before) || !strings.HasPrefix(got.After, tr.after) || got.UID != o.GetUID() || got.Kind != o.GetKind() {
		s.Errorf("affected %+v, want %q: %q to %q", got, tr.did, tr.before, tr.after)
	}
	if line := kubectlName(o.GetAPIVersion(), o.GetKind(), o.GetName()) + " " + tr.did; !strings.Contains(out.String(), line) {
		s.Errorf("output %q, want %q", out.String(), line)
	}
	writes := len(w.sent())
	result = Execute(s.Context(), c, p, Run{Subject: subject, Attempt: 2})
	wantCode(s.T, result, CodeOK)
	if result.Changed || len(w.sent()) != writes {
		s.Errorf("the second attempt wrote %v", w.sent()[writes:])
	}
	tr.goBack(s, o, p, was)
}

// goBack follows the way back of a plan.
func (tr trial) goBack(s *stage, o *unstructured.Unstructured, p *v1alpha1.Plan, was map[string]any) {
	s.Helper()
	if tr.back == "" {
		if p.Rollback == nil || p.Rollback.Available || p.Rollback.Reason == "" {
			s.Errorf("rollback %+v, want none with a reason", p.Rollback)
		}
		return
	}
	back := p.Rollback
	if back == nil || !back.Available || back.RollbackAction != tr.back || back.EstimatedRollbackDuration == "" {
		s.Fatalf("rollback %+v, want %s", back, tr.back)
	}
	if err := CheckUnchanged(s.Context(), s.admin, p, back.Expected); err != nil {
		s.Errorf("CheckUnchanged() = %v", err)
	}
	r, err := Parse(&v1alpha1.KubernetesExecutionSpec{Action: back.RollbackAction, Parameters: back.RollbackParameters})
	if err != nil {
		s.Fatalf("Parse(rollback) = %v", err)
	}
	c := s.as(r.Action, nil)
	subject := newSubject("uid-of-the-way-back")
	result := Execute(s.Context(), c, s.plan(c, r, subject), Run{Subject: subject})
	wantCode(s.T, result, CodeOK)
	if !result.Changed {
		s.Errorf("the way back changed nothing: %s", result.Message)
	}
	first, _ := Parse(s.spec(tr.action, tr.parameters))
	if different := differences(was, first.Action.kind.fields(first.parsed, s.read(o))); len(different) > 0 {
		s.Errorf("after the way back: %v", different)
	}
	if CheckUnchanged(s.Context(), s.admin, p, back.Expected) == nil {
		s.Error("the way back changed nothing of what it is to start from")
	}
}

// wantDry tries it out, and finds the object as it was.
func wantDry(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	w.dry = nil
	result := DryRun(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeOK)
	if d := result.DryRun; d == nil || !d.Performed || !d.Success || d.Warnings == nil || d.EstimatedImpact.ResourcesAffected == 0 {
		s.Errorf("dry run %+v", d)
	}
	if len(w.sent()) > 0 || len(w.dry) != len(p.Steps) {
		s.Errorf("sent %v for good and %v as dry runs", w.sent(), w.dry)
	}
	if live := s.read(o); live.GetResourceVersion() != o.GetResourceVersion() {
		s.Errorf("the dry run changed the object: %s", cmp.Diff(o.Object, live.Object))
	}
}

// wantOtherObject executes after the object was replaced by one of its name.
func wantOtherObject(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	s.remove(o)
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeGuard)
	s.create(tr.object)
	result = Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeGuard)
	if len(w.sent()) > 0 {
		s.Errorf("sent %v", w.sent())
	}
}

// wantOtherValues executes after somebody changed what the plan depends on.
func wantOtherValues(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	if tr.foreign == "" {
		s.Skip("the action depends on the object's identity alone")
	}
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	s.patch(o, tr.foreign)
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeGuard)
	if len(w.sent()) > 0 {
		s.Errorf("sent %v", w.sent())
	}
}

// wantConflict has somebody else change the object between reading and writing.
func wantConflict(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	var once sync.Once
	w.before = func(_ int, request *http.Request) *http.Response {
		if !isDry(request) {
			once.Do(func() { s.patch(o, `{"metadata":{"labels":{"by":"somebody-else"}}}`) })
		}
		return nil
	}
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeOK)
	if !result.Changed {
		s.Errorf("changed nothing: %s", result.Message)
	}
}

// wantAnswerLost breaks the connection after the server has done as it was told.
func wantAnswerLost(s *stage, tr trial, _ *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	var once sync.Once
	w.after = func(_ int, answer *http.Response) *http.Response {
		once.Do(func() {
			_ = answer.Body.Close()
			answer = nil
		})
		return answer
	}
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeOK)
	if !result.Changed {
		s.Errorf("says that it changed nothing: %s", result.Message)
	}
}

// controlledBy is what an object has of its controller.
func controlledBy(owner *unstructured.Unstructured) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}}
}
