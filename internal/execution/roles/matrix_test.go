package roles_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{Controllers: kubebed.JobControllers()})
}

// TestMatrix runs each action, planned, tried out and done, as its account with
// exactly its rights, and once for each verb without it. With all of them all of
// its cases succeed; without any one of them a case is forbidden something.
func TestMatrix(t *testing.T) {
	t.Parallel()
	all := cases()
	for _, act := range action.Catalogue() {
		mine, ok := all[act.Name]
		if !ok || len(mine) == 0 {
			t.Errorf("%s has no case: say how it is tried", act.Name)
			continue
		}
		delete(all, act.Name)
		t.Run(act.Name, func(t *testing.T) {
			t.Parallel()
			testAction(t, act, mine)
		})
	}
	for name := range all {
		t.Errorf("there are cases of %s, and no such action", name)
	}
}

func testAction(t *testing.T, act *action.Action, mine []trial) {
	t.Helper()
	s := newStage(t, act)
	granted := s.granted()
	t.Run("with all rights", func(t *testing.T) {
		t.Parallel()
		client := s.account(t)
		for i, tr := range mine {
			if err := s.try(t, client, fmt.Sprintf("all-%d", i), tr); err != nil {
				t.Errorf("%s: %v", tr.reason, err)
			}
		}
	})
	for i, without := range granted {
		t.Run("without "+strings.ReplaceAll(without.String(), "/", "."), func(t *testing.T) {
			t.Parallel()
			client := s.user(t, fmt.Sprintf("matrix-%s-%d", s.targets, i), slices.Delete(slices.Clone(granted), i, i+1))
			for k, tr := range mine {
				err := s.try(t, client, fmt.Sprintf("w%d-%d", i, k), tr)
				switch {
				case err == nil: // perhaps another case needs it
				case strings.Contains(err.Error(), "forbidden"):
					return
				default:
					t.Fatalf("%s: %v, want it forbidden", tr.reason, err)
				}
			}
			t.Errorf("no case needs it")
		})
	}
}

// A grant is one verb on one resource, and where.
type grant struct {
	rbacv1.PolicyRule

	where string // targets, cluster or executor
}

func (g grant) String() string {
	return g.Verbs[0] + " " + strings.TrimPrefix(g.APIGroups[0]+"/"+g.Resources[0], "/") + " in " + g.where
}

// A stage is where one action is tried.
type stage struct {
	act      *action.Action
	rights   roles.Actions
	executor string // namespace
	targets  string // namespace
	admin    *kubernetes.Clientset
	client   action.Client // an administrator's
}

func newStage(t *testing.T, act *action.Action) *stage {
	t.Helper()
	s := &stage{act: act, executor: kubebedtest.Namespace(t), targets: kubebedtest.Namespace(t)}
	s.rights = roles.Actions{Namespace: s.executor, Manifests: []string{"configmaps"}}
	var err error
	if s.admin, err = kubernetes.NewForConfig(kubebedtest.Bed(t).Config()); err != nil {
		t.Fatal(err)
	}
	s.client = connect(t, kubebedtest.Bed(t).Config())
	return s
}

func connect(t *testing.T, cfg *rest.Config) action.Client {
	t.Helper()
	c, err := action.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// granted are the rights of the action, verb by verb. Those on Secrets by their
// names are those of all names that the trials use.
func (s *stage) granted() []grant {
	var list []grant
	for _, suffix := range []string{"all-0", "all-1"} {
		s.rights.Secrets = append(s.rights.Secrets, "target-"+suffix)
	}
	for i := range 8 {
		for k := range 2 {
			s.rights.Secrets = append(s.rights.Secrets, fmt.Sprintf("target-w%d-%d", i, k))
		}
	}
	targets, cluster, executor := s.rights.Roles(s.act)
	add := func(rules []rbacv1.PolicyRule, where string) {
		for _, rule := range rules {
			for _, verb := range rule.Verbs {
				one := *rule.DeepCopy()
				one.Verbs = []string{verb}
				list = append(list, grant{one, where})
			}
		}
	}
	if targets != nil {
		add(targets.Rules, "targets")
	}
	if cluster != nil {
		add(cluster.Rules, "cluster")
	}
	if executor != nil {
		add(executor.Rules, "executor")
	}
	return list
}

// account is a client of the action's account, with all that roles gives it.
func (s *stage) account(t *testing.T) action.Client {
	t.Helper()
	objects := append(s.rights.BaseObjects(s.act), s.rights.NamespaceBindings(s.act, s.targets)...)
	for _, o := range objects {
		s.create(t, o)
	}
	name := s.act.ServiceAccount()
	cfg, err := kubebedtest.Bed(t).EnsureServiceAccountConfig(t.Context(), s.executor, name)
	if err != nil {
		t.Fatal(err)
	}
	s.await(t, "system:serviceaccount:"+s.executor+":"+name, s.granted())
	return connect(t, cfg)
}

// create makes an object of roles. Cluster roles are those of the whole bed, so
// they go when the test ends.
func (s *stage) create(t *testing.T, o runtime.Object) {
	t.Helper()
	ctx, rbac := t.Context(), s.admin.RbacV1()
	var err error
	switch o := o.(type) {
	case *rbacv1.ClusterRole:
		_, err = rbac.ClusterRoles().Create(ctx, o, metav1.CreateOptions{})
		t.Cleanup(func() {
			_ = rbac.ClusterRoles().Delete(context.WithoutCancel(ctx), o.Name, metav1.DeleteOptions{})
		})
	case *rbacv1.ClusterRoleBinding:
		_, err = rbac.ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
		t.Cleanup(func() {
			_ = rbac.ClusterRoleBindings().Delete(context.WithoutCancel(ctx), o.Name, metav1.DeleteOptions{})
		})
	case *rbacv1.Role:
		_, err = rbac.Roles(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.RoleBinding:
		_, err = rbac.RoleBindings(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	default: // the account, which asking for its token makes
	}
	if err != nil {
		t.Fatal(err)
	}
}

// user is a client of a user who has some rights.
func (s *stage) user(t *testing.T, name string, granted []grant) action.Client {
	t.Helper()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, g := range granted {
		rules[g.where] = append(rules[g.where], g.PolicyRule)
	}
	for where, list := range rules {
		meta := metav1.ObjectMeta{Name: name}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
		switch where {
		case "cluster":
			ref.Kind = "ClusterRole"
			s.create(t, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: list})
			s.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		case "executor":
			meta.Namespace = s.executor
			s.create(t, &rbacv1.Role{ObjectMeta: meta, Rules: list})
			s.create(t, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		default:
			meta.Namespace = s.targets
			s.create(t, &rbacv1.Role{ObjectMeta: meta, Rules: list})
			s.create(t, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		}
	}
	s.await(t, name, granted)
	cfg := kubebedtest.Bed(t).Config()
	cfg.Impersonate.UserName = name
	return connect(t, cfg)
}

// await waits until rights are in force: the API server learns of roles by a
// watch.
func (s *stage) await(t *testing.T, user string, granted []grant) {
	t.Helper()
	for _, g := range granted {
		resource, subresource, _ := strings.Cut(g.Resources[0], "/")
		a := &authorizationv1.ResourceAttributes{Verb: g.Verbs[0], Group: g.APIGroups[0], Resource: resource, Subresource: subresource}
		switch g.where {
		case "targets":
			a.Namespace = s.targets
		case "executor":
			a.Namespace = s.executor
		}
		if len(g.ResourceNames) > 0 {
			a.Name = g.ResourceNames[0]
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: a}}
		kubebedtest.Eventually(t, func(ctx context.Context) error {
			answer, err := s.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = fmt.Errorf("%s has not the right to %s", user, g)
			}
			return err
		})
	}
}

// try runs one case, planned, tried out and done.
func (s *stage) try(t *testing.T, client action.Client, suffix string, tr trial) error {
	t.Helper()
	p := &props{T: t, stage: s, suffix: suffix}
	parameters := tr.setup(p)
	raw, err := runtimeJSON(parameters)
	if err != nil {
		t.Fatal(err)
	}
	request, err := action.Parse(&v1alpha1.KubernetesExecutionSpec{Action: s.act.Name, Parameters: raw})
	if err != nil {
		t.Fatalf("%s: %v", tr.reason, err)
	}
	subject := action.Subject{
		UID: types.UID(s.targets + suffix), Created: time.Now(),
		Namespace: s.executor, Name: "execution-" + suffix,
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plan, err := request.Plan(ctx, client, subject)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	run := action.Run{Subject: action.Subject{UID: subject.UID, Created: subject.Created}, Deadline: time.Now().Add(time.Minute)}
	if r := action.DryRun(ctx, client, plan, run); r.Code != action.CodeOK {
		return fmt.Errorf("dry run: code %d: %s", r.Code, r.Message)
	}
	r := action.Execute(ctx, client, plan, run)
	if r.Code != action.CodeOK {
		return fmt.Errorf("execute: code %d: %s", r.Code, r.Message)
	}
	if !s.act.ReadOnly && !r.Changed {
		return errors.New("it changed nothing, so it shows nothing")
	}
	return nil
}
