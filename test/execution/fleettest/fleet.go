package fleettest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/remediation"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// Users of a fleet.
const (
	Requester = "alice" // requester, may also approve
	Approver  = "bob"
	Other     = "carol" // second approver
	Admin     = "root"  // may do everything
)

// Options configure a fleet. The zero value is the shipped configuration.
type Options struct {
	// Image is the image of Jobs. Empty means Runner.
	Image string
	// Args are additional arguments of the controller.
	Args []string
	// Policies override files of the shipped policies. An empty text removes a file.
	Policies map[string]string
	// Host is the address at which the controller reaches the API server. Empty means directly.
	Host func(cfg *rest.Config) *rest.Config
	// NoController starts no controller. Call StartController instead.
	NoController bool
	// NoGuard installs no admission policies, so that the controller is not ready until
	// InstallAdmissionGuard.
	NoGuard bool
}

// Fleet is the part of the cluster that one test uses.
type Fleet struct {
	testing.TB

	Client client.WithWatch // an administrator's
	// Namespace is the namespace of the executions. Cheap and Dear are for targets: changes in Dear
	// require an approval.
	Namespace, Cheap, Dear string
	// Database is the URL of the audit's database.
	Database string

	s          *shared
	o          Options
	kubeconfig string // of the controller
	controller *kubebedtest.Process
}

// Start creates a fleet with a ready controller.
func Start(tb testing.TB, o Options) *Fleet {
	tb.Helper()
	s := current
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
	kubebedtest.ShowLogsOnFailure(tb, s.bed)
	tb.Cleanup(func() {
		if text := s.said(); tb.Failed() && text != "" {
			tb.Logf("the node said:\n%s", text)
		}
	})
	s.mu.Lock()
	s.fleets++
	name := fmt.Sprintf("fleet-%d", s.fleets)
	s.mu.Unlock()
	c, err := client.NewWithWatch(s.bed.Config(), client.Options{Scheme: Scheme(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	f := &Fleet{TB: tb, Client: c, Namespace: name, Cheap: name + "-cheap", Dear: name + "-dear", s: s, o: o, Database: pgtest.NewMigratedDatabaseURL(tb)}
	f.createNamespacesAndObjects()
	switch {
	case o.NoController:
	case o.NoGuard:
		f.StartControllerWithoutWaiting()
	default:
		f.StartController()
	}
	return f
}

// Scheme returns a scheme with all types that tests use.
func Scheme(tb testing.TB) *runtime.Scheme {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), remediation.AddToScheme(scheme)); err != nil {
		tb.Fatal(err)
	}
	return scheme
}

// createNamespacesAndObjects creates the namespaces and all objects in them.
func (f *Fleet) createNamespacesAndObjects() {
	f.Helper()
	f.namespace(f.Namespace, nil)
	f.namespace(f.Cheap, map[string]string{"environment": "development"})
	f.namespace(f.Dear, map[string]string{"environment": "production"})
	for _, o := range (roles.Controller{Namespace: f.Namespace}).Objects() {
		f.createObjectWithCleanup(o)
	}
	accounts := roles.Actions{Namespace: f.Namespace}
	for _, a := range action.Catalogue() {
		for _, o := range append(accounts.BaseObjects(a), accounts.NamespaceBindings(a, f.Cheap, f.Dear)...) {
			f.createObjectWithCleanup(o)
		}
	}
	for _, o := range append(accounts.SecretLookupAccountAndRole(), accounts.SecretLookupRoleBindings(f.Cheap)...) {
		f.createObjectWithCleanup(o)
	}
	f.bindUserRoles()
	f.createObjectWithCleanup(f.policyConfigMap(f.o.Policies))
	if !f.o.NoGuard {
		f.InstallAdmissionGuard()
	}
	cfg, err := f.s.bed.EnsureServiceAccountConfig(f.Context(), f.Namespace, roles.ControllerAccount)
	if err != nil {
		f.Fatal(err)
	}
	if f.o.Host != nil {
		cfg = f.o.Host(cfg)
	}
	f.kubeconfig = filepath.Join(f.TempDir(), "kubeconfig")
	const mode = 0o600
	if err := os.WriteFile(f.kubeconfig, []byte(kubebedtest.FormatKubeconfig(f, cfg)), mode); err != nil {
		f.Fatal(err)
	}
}

// InstallAdmissionGuard installs the admission policies and waits until the API server enforces them.
func (f *Fleet) InstallAdmissionGuard() {
	f.Helper()
	o := guard.Options{Namespace: f.Namespace}
	for _, o := range append(guard.ValidatingPolicyObjects(o), guard.MutatingPolicyObjects(o)...) {
		f.createObjectWithCleanup(o)
	}
	forged := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "forged"},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: "notify_only", Approvals: []v1alpha1.Approval{{Approver: "nobody", Decision: v1alpha1.Approve, PlanHash: "none"}},
		},
	}
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		if err := f.Client.Create(ctx, forged.DeepCopy(), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("an approval that nobody gave is not refused (%w)", err)
		}
		honest := forged.DeepCopy()
		honest.Spec.Approvals = nil
		if err := f.Client.Create(ctx, honest, client.DryRunAll); err != nil || honest.Spec.RequestedBy == "" || len(honest.Spec.RequesterGroups) == 0 {
			return fmt.Errorf("no name or no groups are stamped (%w)", err)
		}
		return nil
	})
}

// policyConfigMap returns the shipped policies with overrides.
func (f *Fleet) policyConfigMap(overrides map[string]string) *corev1.ConfigMap {
	f.Helper()
	files, err := deploy.PolicyFiles()
	if err != nil {
		f.Fatal(err)
	}
	maps.Copy(files, overrides)
	maps.DeleteFunc(files, func(_, text string) bool { return text == "" })
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: guard.DefaultPolicyConfigMap}, Data: files}
}

// SetPolicies replaces the policies by the shipped ones with overrides. An empty text removes a
// file.
func (f *Fleet) SetPolicies(over map[string]string) {
	f.Helper()
	if err := f.Client.Update(f.Context(), f.policyConfigMap(over)); err != nil {
		f.Fatal(err)
	}
}

// bindUserRoles binds the roles of the users.
func (f *Fleet) bindUserRoles() {
	f.Helper()
	users := map[string][]string{v1alpha1.ApproverRole: {Requester, Approver, Other}}
	for _, role := range roles.RequesterClusterRolesUpToRisk() {
		f.createObjectWithCleanup(role)
		users[role.Name] = []string{Requester}
	}
	f.createObjectWithCleanup(roles.ApproverClusterRole())
	for role, names := range users {
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
		for _, name := range names {
			b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
		}
		f.createObjectWithCleanup(b)
	}
}

// GrantExecutionVerbsAndAwait gives a user only the given verbs on executions, and waits until the API server enforces
// them.
func (f *Fleet) GrantExecutionVerbsAndAwait(user string, verbs ...string) {
	f.Helper()
	meta := metav1.ObjectMeta{Namespace: f.Namespace, Name: "only-" + user}
	f.createObjectWithCleanup(
		&rbacv1.Role{
			ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.Resource}, Verbs: verbs},
			},
		},
	)
	f.createObjectWithCleanup(&rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.Until(func() error {
		review := &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: f.Namespace, Group: v1alpha1.GroupVersion.Group, Resource: v1alpha1.Resource, Verb: verbs[0],
			}},
		}
		if err := f.Client.Create(f.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("%s may not %s yet", user, verbs[0])
		}
		return nil
	})
}

func (f *Fleet) namespace(name string, labels map[string]string) {
	f.Helper()
	f.createObjectWithCleanup(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// createObjectWithCleanup creates an object, unless another fleet has created the same one. Cluster-scoped
// objects are deleted with the test, but the roles of actions remain for other fleets.
func (f *Fleet) createObjectWithCleanup(o runtime.Object) {
	f.Helper()
	object, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		f.Fatalf("%T is no object", o)
	}
	if b, ok := object.(*rbacv1.ClusterRoleBinding); ok {
		b.Name += "-" + f.Namespace // each fleet binds separate accounts
	}
	err := f.Client.Create(f.Context(), object)
	_, role := object.(*rbacv1.ClusterRole)
	switch {
	case apierrors.IsAlreadyExists(err) && role:
		return
	case err != nil:
		f.Fatalf("make %T %s: %v", object, object.GetName(), err)
	case object.GetNamespace() == "" && !role:
		f.Cleanup(func() {
			if err := f.Client.Delete(context.WithoutCancel(f.Context()), object); err != nil && !apierrors.IsNotFound(err) {
				f.Errorf("delete %T %s: %v", object, object.GetName(), err)
			}
		})
	}
}

// UserConfig returns the client configuration of a user of the fleet.
func (f *Fleet) UserConfig(user string, groups ...string) *rest.Config {
	f.Helper()
	if user == Admin {
		groups = append(groups, "system:masters")
	}
	cfg, err := f.s.bed.User(user, groups...)
	if err != nil {
		f.Fatal(err)
	}
	return cfg
}

// ClientAs returns a client of a user of the fleet.
func (f *Fleet) ClientAs(user string, groups ...string) client.Client {
	f.Helper()
	c, err := client.New(f.UserConfig(user, groups...), client.Options{Scheme: Scheme(f)})
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// StartController starts the controller with additional arguments and waits until it is ready.
func (f *Fleet) StartController(args ...string) *kubebedtest.Process {
	f.Helper()
	f.StartControllerWithoutWaiting(args...).WantReady()
	return f.controller
}

// StartControllerWithoutWaiting starts the controller without waiting for it.
func (f *Fleet) StartControllerWithoutWaiting(args ...string) *kubebedtest.Process {
	f.Helper()
	image := f.o.Image
	if image == "" {
		image = Runner
	}
	all := []string{
		"--kubeconfig=" + f.kubeconfig, "--namespace=" + f.Namespace, "--runner-image=" + image, "--runner-pull-policy=Never",
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
		"--admission-policy-propagation-delay=10ms", // the only API server enforces the guard, see InstallAdmissionGuard
	}
	all = append(append(all, f.o.Args...), args...)
	f.controller = kubebedtest.StartProcess(
		f,
		f.s.binaryPath("execution-controller"),
		map[string]string{"DATABASE_URL": f.Database, "LOG_FORMAT": "json"},
		all...)
	return f.controller
}

// StopAPIServer kills the API server for all fleets of this process. Nodes and controllers continue
// to run.
func (f *Fleet) StopAPIServer() {
	f.Helper()
	if err := f.s.bed.StopAPIServer(); err != nil {
		f.Fatal(err)
	}
}

// StartAPIServer starts the API server again and waits until it responds.
func (f *Fleet) StartAPIServer() {
	f.Helper()
	if err := f.s.bed.StartAPIServer(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// Controller returns the controller that was started last.
func (f *Fleet) Controller() *kubebedtest.Process { return f.controller }

// Logger returns the logger for components that run in the test process.
func (f *Fleet) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(f.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// ListExecutionJobs lists the Jobs of an execution by name.
func (f *Fleet) ListExecutionJobs(executionName string) []batchv1.Job {
	f.Helper()
	var list batchv1.JobList
	err := f.Client.List(f.Context(), &list, client.InNamespace(f.Namespace), client.MatchingLabels{v1alpha1.LabelExecution: executionName})
	if err != nil {
		f.Fatal(err)
	}
	return list.Items
}

// Open lets the Jobs of an execution with the image Gated continue.
func (f *Fleet) Open(name string) {
	f.Helper()
	f.WriteGateFile(f.GetExecution(name))
}

// WriteGateFile is like Open without a request to the API server.
func (f *Fleet) WriteGateFile(ke *v1alpha1.KubernetesExecution) {
	f.Helper()
	const mode = 0o600
	if err := os.WriteFile(filePath(f.s.dir, "open", string(ke.UID)), nil, mode); err != nil {
		f.Fatal(err)
	}
}

// GetExecution reads an execution.
func (f *Fleet) GetExecution(name string) *v1alpha1.KubernetesExecution {
	f.Helper()
	var ke v1alpha1.KubernetesExecution
	if err := f.Client.Get(f.Context(), client.ObjectKey{Namespace: f.Namespace, Name: name}, &ke); err != nil {
		f.Fatal(err)
	}
	return &ke
}

// JoinPhaseHistory returns the phases that an execution has been in.
func JoinPhaseHistory(ke *v1alpha1.KubernetesExecution) string {
	var list []string
	for _, t := range ke.Status.PhaseTransitions {
		list = append(list, string(t.Phase))
	}
	return strings.Join(list, " ")
}

// For returns the fleet for a subtest.
func (f *Fleet) For(tb testing.TB) *Fleet {
	tb.Helper()
	other := *f
	other.TB = tb
	return &other
}
