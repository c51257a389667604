package guard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

const (
	group      = "kubernetesexecution.kubernaut.io"
	executions = "kubernetesexecutions"

	hash    = "1111111111111111111111111111111111111111111111111111111111111111"
	oldHash = "2222222222222222222222222222222222222222222222222222222222222222"
)

// The people. What they may do is in (*fixture).roles.
const (
	rita = "rita" // asks for scale_deployment
	eve  = "eve"  // may create and write executions, and ask for restart_pod
	rosa = "rosa" // asks and approves
	adam = "adam" // approves, and is in oncall
	anna = "anna" // approves, and is in day
	nick = "nick" // approves the execution called named
	otto = "otto" // asks and approves in another namespace, and writes here
	walt = "walt" // looks, and labels
	mona = "mona" // administers
	pete = "pete" // writes ConfigMaps and Leases
	gina = "gina" // writes ConfigMaps, and is in policy-admins
	boss = "boss" // may do everything

	// Whoever has the rights of a person by impersonating them.
	likeEve  = "like:" + eve
	likeAdam = "like:" + adam

	// Service accounts of the namespace.
	controller = "controller"
	portal     = "portal" // is a trusted requester, and approves
	robot      = "robot"  // asks, and approves
	plain      = "plain"  // writes executions
)

func groupsOf(person string) []string {
	return map[string][]string{adam: {"oncall"}, anna: {"day"}, gina: {"policy-admins"}, boss: {"system:masters"}}[person]
}

// A fixture is a namespace of executions, with people around it.
type fixture struct {
	tb     testing.TB
	ns     string
	other  string // a namespace that is not guarded
	admin  *kubernetes.Clientset
	dryRun []string // of what people try
	parent metav1.OwnerReference

	people *people
}

// people are how persons reach the API server.
type people struct {
	mu      sync.Mutex
	clients map[string]dynamic.Interface
}

// in is the fixture for a part of a test.
func (w *fixture) in(tb testing.TB) *fixture {
	tb.Helper()
	part := *w
	part.tb = tb
	return &part
}

// onTrial is a fixture where nothing that people try stays.
func (w *fixture) onTrial() *fixture {
	part := *w
	part.dryRun = []string{metav1.DryRunAll}
	return &part
}

// newFixture makes a fixture that is not guarded yet.
func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	admin, err := kubernetes.NewForConfig(kubebedtest.Bed(tb).Config())
	if err != nil {
		tb.Fatal(err)
	}
	serveSecondVersion(tb)
	w := &fixture{tb: tb, ns: kubebedtest.Namespace(tb), other: kubebedtest.Namespace(tb), admin: admin, people: &people{clients: map[string]dynamic.Interface{}}}
	w.roles()
	w.parent = parentOf(w)
	return w
}

func (w *fixture) options() guard.Options {
	return guard.Options{
		Namespace:         w.ns,
		ControllerUser:    w.user(controller),
		PolicyAdmins:      "policy-admins",
		TrustedRequesters: []string{w.user(portal)},
	}
}

// user is the user name of a person.
func (w *fixture) user(person string) string {
	switch person {
	case controller, portal, robot, plain:
		return "system:serviceaccount:" + w.ns + ":" + person
	default:
		return strings.TrimPrefix(person, "like:")
	}
}

func on(resource string, verbs ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	switch resource {
	case "configmaps":
		r.APIGroups = []string{""}
	case "leases":
		r.APIGroups = []string{"coordination.k8s.io"}
	}
	return r
}

func named(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

// roles gives people their rights, and waits until they have them.
func (w *fixture) roles() {
	w.tb.Helper()
	write := on(executions, "get", "list", "create", "update", "patch", "delete")
	leases := on("leases", "get", "list", "create", "update", "patch", "delete", "deletecollection")
	configmaps := on("configmaps", "get", "list", "create", "update", "patch", "delete", "deletecollection")
	rights := map[string][]rbacv1.PolicyRule{
		rita:       {write, named(on(executions, "execute"), "scale_deployment")},
		eve:        {write, named(on(executions, "execute"), "restart_pod"), on(executions+"/status", "update", "patch")},
		rosa:       {write, on(executions, "execute", "approve")},
		adam:       {on(executions, "get", "update", "patch", "approve")},
		anna:       {on(executions, "get", "update", "patch", "approve")},
		nick:       {on(executions, "get", "update", "patch"), named(on(executions, "approve"), "named")},
		otto:       {write},
		walt:       {on(executions, "get", "list", "patch")},
		mona:       {on(executions, "get", "patch", "update", "administer"), configmaps},
		pete:       {leases, configmaps},
		gina:       {configmaps},
		controller: {leases, write, on(executions+"/status", "get", "update", "patch")},
		portal:     {write, on(executions, "execute", "approve")},
		robot:      {write, on(executions, "execute", "approve")},
		plain:      {write},
	}
	for person, list := range rights {
		w.grant(w.ns, person, list...)
	}
	elsewhere := on(executions, "execute", "approve")
	w.grant(w.other, otto, elsewhere)
	for person, list := range rights {
		w.granted(w.ns, person, list[len(list)-1])
	}
	w.granted(w.other, otto, elsewhere)
}

func (w *fixture) grant(ns, person string, rules ...rbacv1.PolicyRule) {
	w.tb.Helper()
	ctx := w.tb.Context()
	if _, err := w.admin.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: person}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		w.tb.Fatal(err)
	}
	_, err := w.admin.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: person},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: person},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.user(person)}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.tb.Fatal(err)
	}
}

// granted waits until a person has a right.
func (w *fixture) granted(ns, person string, last rbacv1.PolicyRule) {
	w.tb.Helper()
	resource, part, _ := strings.Cut(last.Resources[0], "/")
	attributes := authorizationv1.ResourceAttributes{Namespace: ns, Group: last.APIGroups[0], Resource: resource, Subresource: part, Verb: last.Verbs[0]}
	if len(last.ResourceNames) > 0 {
		attributes.Name = last.ResourceNames[0]
	}
	kubebedtest.Eventually(w.tb, func(ctx context.Context) error {
		review, err := w.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: w.user(person), ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("%s has no right to %+v", person, attributes)
		}
		return err
	})
}

// install makes objects, and removes them at the end.
func (w *fixture) install(objects []runtime.Object) {
	w.tb.Helper()
	client := w.admin.AdmissionregistrationV1()
	for _, o := range objects {
		var err error
		var remove func(ctx context.Context) error
		none := metav1.CreateOptions{}
		switch o := o.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			_, err = client.ValidatingAdmissionPolicies().Create(w.tb.Context(), o, none)
			remove = func(ctx context.Context) error {
				return client.ValidatingAdmissionPolicies().Delete(ctx, o.Name, metav1.DeleteOptions{})
			}
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			_, err = client.ValidatingAdmissionPolicyBindings().Create(w.tb.Context(), o, none)
			remove = func(ctx context.Context) error {
				return client.ValidatingAdmissionPolicyBindings().Delete(ctx, o.Name, metav1.DeleteOptions{})
			}
		case *admissionv1.MutatingAdmissionPolicy:
			_, err = client.MutatingAdmissionPolicies().Create(w.tb.Context(), o, none)
			remove = func(ctx context.Context) error {
				return client.MutatingAdmissionPolicies().Delete(ctx, o.Name, metav1.DeleteOptions{})
			}
		case *admissionv1.MutatingAdmissionPolicyBinding:
			_, err = client.MutatingAdmissionPolicyBindings().Create(w.tb.Context(), o, none)
			remove = func(ctx context.Context) error {
				return client.MutatingAdmissionPolicyBindings().Delete(ctx, o.Name, metav1.DeleteOptions{})
			}
		default:
			w.tb.Fatalf("a %T is no part of a guard", o)
		}
		if err != nil {
			w.tb.Fatal(err)
		}
		w.tb.Cleanup(func() {
			if err := remove(context.WithoutCancel(w.tb.Context())); err != nil && !apierrors.IsNotFound(err) {
				w.tb.Error(err)
			}
		})
	}
}

// client is how a person reaches the API server.
func (w *fixture) client(person string) dynamic.Interface {
	w.tb.Helper()
	w.people.mu.Lock()
	defer w.people.mu.Unlock()
	if c, ok := w.people.clients[person]; ok {
		return c
	}
	cfg := rest.CopyConfig(w.config(person))
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return schemaLagRetrier{next} })
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.people.clients[person] = c
	return c
}

func (w *fixture) config(person string) *rest.Config {
	w.tb.Helper()
	bed := kubebedtest.Bed(w.tb)
	var cfg *rest.Config
	var err error
	switch {
	case strings.HasPrefix(person, "like:"):
		cfg = bed.Config()
		cfg.Impersonate = rest.ImpersonationConfig{UserName: w.user(person), Groups: groupsOf(w.user(person))}
	case w.user(person) != person:
		cfg, err = bed.EnsureServiceAccountConfig(w.tb.Context(), w.ns, person)
	default:
		cfg, err = bed.User(person, groupsOf(person)...)
	}
	if err != nil {
		w.tb.Fatal(err)
	}
	return cfg
}

// A hand is what a person does things with.
type hand struct {
	w       *fixture
	objects dynamic.ResourceInterface
	dryRun  []string
}

func resourceOf(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: executions}
}

// as is a person with executions before them.
func (w *fixture) as(person string) hand {
	return hand{w, w.client(person).Resource(resourceOf("v1alpha1")).Namespace(w.ns), w.dryRun}
}

// later is a person with executions of another version before them.
func (w *fixture) later(person string) hand {
	return hand{w, w.client(person).Resource(resourceOf(secondVersion)).Namespace(w.ns), w.dryRun}
}

// settings is a person with ConfigMaps before them.
func (w *fixture) settings(person string) hand {
	return hand{w, w.client(person).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(w.ns), w.dryRun}
}

// leases is a person with Leases before them.
func (w *fixture) leases(person string) hand {
	return hand{w, w.client(person).Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace(w.ns), w.dryRun}
}

// onTrial is for what is not to stay where it happens.
func (h hand) onTrial() hand {
	h.dryRun = []string{metav1.DryRunAll}
	return h
}

// firmly is for what is to happen even where people only try.
func (h hand) firmly() hand {
	h.dryRun = nil
	return h
}

func (h hand) create(o map[string]any) error {
	_, err := h.objects.Create(h.w.tb.Context(), &unstructured.Unstructured{Object: o}, metav1.CreateOptions{DryRun: h.dryRun})
	return err
}

// apply is server-side apply, as a field manager of its own.
func (h hand) apply(name string, o map[string]any, parts ...string) error {
	_, err := h.objects.Apply(h.w.tb.Context(), name, &unstructured.Unstructured{Object: o}, metav1.ApplyOptions{FieldManager: "somebody", Force: true, DryRun: h.dryRun}, parts...)
	return err
}

// merge patches by JSON merge patch.
func (h hand) merge(name, patch string, parts ...string) error {
	_, err := h.objects.Patch(h.w.tb.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: h.dryRun}, parts...)
	return err
}

// patch patches by JSON patch.
func (h hand) patch(name, patch string) error {
	_, err := h.objects.Patch(h.w.tb.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{DryRun: h.dryRun})
	return err
}

// put reads an object, changes it and writes it as a whole.
func (h hand) put(name string, change func(o *unstructured.Unstructured), parts ...string) error {
	o, err := h.objects.Get(h.w.tb.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	change(o)
	if len(parts) > 0 {
		_, err = h.objects.UpdateStatus(h.w.tb.Context(), o, metav1.UpdateOptions{DryRun: h.dryRun})
		return err
	}
	_, err = h.objects.Update(h.w.tb.Context(), o, metav1.UpdateOptions{DryRun: h.dryRun})
	return err
}

func (h hand) remove(name string) error {
	return h.objects.Delete(h.w.tb.Context(), name, metav1.DeleteOptions{DryRun: h.dryRun})
}

func (h hand) removeAll() error {
	return h.objects.DeleteCollection(h.w.tb.Context(), metav1.DeleteOptions{DryRun: h.dryRun}, metav1.ListOptions{})
}

func (h hand) get(name string) *unstructured.Unstructured {
	h.w.tb.Helper()
	o, err := h.objects.Get(h.w.tb.Context(), name, metav1.GetOptions{})
	if err != nil {
		h.w.tb.Fatal(err)
	}
	return o
}

// asked is a new execution, with some more in its spec.
func asked(more map[string]any) map[string]any {
	spec := map[string]any{"action": "scale_deployment", "parameters": map[string]any{"deployment": "web", "namespace": "shop", "replicas": int64(5)}}
	for key, value := range more {
		spec[key] = value
		if value == nil {
			delete(spec, key)
		}
	}
	return map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"generateName": "kx-"}, "spec": spec,
	}
}

// called gives an object a name.
func called(name string, o map[string]any) map[string]any {
	o["metadata"] = map[string]any{"name": name}
	return o
}

// The second version that the API server serves executions in.
const secondVersion = "v1alpha2"

// text is a value as JSON.
func text(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
