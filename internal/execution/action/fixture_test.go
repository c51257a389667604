package action

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
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
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// as is the client of an account that has what an action says it needs, and
// nothing more, in the stage's namespace.
func (s *stage) as(a *Action, w *wire) Client {
	s.Helper()
	fixture := kubebedtest.Bed(s.T)
	user := s.namespace + ":" + a.ServiceAccount()
	all, err := kubernetes.NewForConfig(fixture.Config())
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
	cfg, err := fixture.User(user)
	if err != nil {
		s.Fatal(err)
	}
	if w != nil {
		cfg.Wrap(w.wrap)
	}
	c, err := NewClient(cfg)
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
	k, ok := findKind(u.GetAPIVersion(), u.GetKind())
	if !ok {
		s.Fatalf("there is no kind %s %s", u.GetAPIVersion(), u.GetKind())
	}
	if !k.cluster {
		u.SetNamespace(s.namespace)
	}
	made, err := s.admin.resourceClient(k.GroupVersionResource, u.GetNamespace()).Create(s.Context(), u, metav1.CreateOptions{})
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
	k, _ := findKind(o.GetAPIVersion(), o.GetKind())
	var now int64
	err := s.admin.resourceClient(k.GroupVersionResource, o.GetNamespace()).Delete(context.WithoutCancel(s.Context()), o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !strings.Contains(err.Error(), "not found") {
		s.Fatalf("delete %s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// read is an object as it is now.
func (s *stage) read(o *unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	live, err := s.admin.getObjectOnce(s.Context(), targetOfObject(o))
	if err != nil {
		s.Fatal(err)
	}
	return live
}

// patch changes an object as another client. Clean-ups use it as well.
func (s *stage) patch(o *unstructured.Unstructured, patch string, subresources ...string) *unstructured.Unstructured {
	s.Helper()
	k, _ := findKind(o.GetAPIVersion(), o.GetKind())
	live, err := s.admin.resourceClient(k.GroupVersionResource, o.GetNamespace()).Patch(context.WithoutCancel(s.Context()), o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		s.Fatalf("patch %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return live
}

// request parses a request and fails the test if it is invalid.
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

// controlledBy is what an object has of its controller.
func controlledBy(owner *unstructured.Unstructured) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}}
}
