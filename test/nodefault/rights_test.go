package nodefault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	janitorv1alpha1 "github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/janitor"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// A door is a proxy to the API server for one account, and records its requests.
type door struct {
	mu        sync.Mutex
	asked     map[string]bool
	forbidden []string
}

// open creates a proxy for an account with the permissions of a process.
func open(t *testing.T, c *faulttest.Cluster, p nodefault.ProcessRoles) (*door, *rest.Config) {
	t.Helper()
	for _, o := range p.ServiceAccountAndRoles() {
		apply(t, c, o)
	}
	cfg, err := kubebedtest.Bed(t).EnsureServiceAccountConfig(t.Context(), faulttest.Namespace, p.Account)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{asked: map[string]bool{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Header.Del("Accept-Encoding") },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(r *http.Response) error { d.note(r); return nil },
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return d, &rest.Config{Host: server.URL}
}

// apply creates an object that exists until the test ends.
func apply(t *testing.T, c *faulttest.Cluster, o runtime.Object) {
	t.Helper()
	object, ok := o.(client.Object)
	if !ok {
		t.Fatalf("%T is no object", o)
	}
	if err := c.Client.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Client.Delete(context.WithoutCancel(t.Context()), object); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func (d *door) note(r *http.Response) {
	what := askedBy(r.Request)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked[what] = true
	if r.StatusCode == http.StatusForbidden {
		d.forbidden = append(d.forbidden, what)
	}
}

// askedBy returns a request in the form of a permission: group/resource verb.
func askedBy(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" && len(parts) > 1 {
		group, parts = parts[1], parts[1:]
	}
	parts = parts[min(2, len(parts)):] // api v1, or group version
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return "discovery"
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get"}[r.Method]
	if r.Method == http.MethodGet && len(parts) == 1 {
		verb = "list"
		if watch := r.URL.Query().Get("watch"); watch == "1" || watch == "true" {
			verb = "watch"
		}
	}
	return group + "/" + resource + " " + verb
}

// granted returns all permissions of a process in the form of askedBy.
func granted(p nodefault.ProcessRoles) map[string]bool {
	all := map[string]bool{}
	for _, f := range p.Features {
		g := nodefault.RBACGrantOfFeature(f)
		for _, r := range slices.Concat(g.Cluster, g.Inside) {
			for _, verb := range r.Verbs {
				all[r.APIGroups[0]+"/"+r.Resources[0]+" "+verb] = true
			}
		}
	}
	return all
}

// TestRights runs the controller and the janitor as two processes, each with exactly the
// released permissions, through everything that needs one. No request is forbidden, and
// no permission is unused.
func TestRights(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	kept := kubebedtest.Namespace(t)
	acts := nodefault.ProcessRoles{
		Namespace: faulttest.Namespace, Account: "acts",
		Features: []nodefault.Feature{nodefault.FeatureController, nodefault.FeatureDeletion, nodefault.FeatureVerification, nodefault.FeatureIntake, nodefault.FeatureReviews},
	}
	repairs := nodefault.ProcessRoles{Namespace: faulttest.Namespace, Account: "repairs", Features: []nodefault.Feature{nodefault.FeatureJanitor, nodefault.FeatureTermination, nodefault.FeatureJob}}
	if _, err := kubebedtest.Bed(t).EnsureServiceAccountConfig(t.Context(), faulttest.Namespace, "default"); err != nil { // for the pods of Jobs
		t.Fatal(err)
	}
	actor, asActor := open(t, c, acts)
	repairer, asRepairer := open(t, c, repairs)

	file := filepath.Join(t.TempDir(), "node-faults.yaml")
	text := fmt.Sprintf(`
rules:
- {name: reboot, match: 'fault.recommendedAction == "RESTART_VM"', drain: true, remedies: [reboot]}
- {name: terminate, match: 'fault.recommendedAction == "REPLACE_VM"', drain: true, remedies: [terminate]}
drain: {namespaces: [{pattern: %s, delete_after: 10s}]}
remediation: {verification: {image: registry.example.com/verify}}
`, kept)
	const mode = 0o600
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"NAMESPACE": faulttest.Namespace, "LEADER_ELECT": "true", "NODE_FAULT_INTAKE_AUTH_MODE": "cluster", "NODE_FAULT_RETENTION": "1s", "NODE_ACTION_RETENTION": "10s",
		"NODE_FAULT_REBOOT_PROVIDER": "job", "NODE_REBOOT_IMAGE": "registry.example.com/reboot", "NODE_FAULT_TERMINATE_PROVIDER": "manual",
	}
	c.Host = asRepairer
	c.StartController(with(env, "ROLES", "janitor"), "--config="+file)
	c.Host = asActor
	first := c.StartController(with(env, "ROLES", "controller,intake"), "--config="+file)
	s := &fixture{T: t, c: c, kept: kept, process: first, token: reporter(t, c)}
	const failing = "node-that-fails"
	c.CreateReadyNode(failing, nil) // early, so that it is in the cache of the janitor
	s.reboots()
	s.terminates()
	s.failsToReboot(failing)
	s.changesHands()
	s.knowsNoNode()

	for name, one := range map[string]struct {
		door    *door
		process nodefault.ProcessRoles
		rare    []string // permissions that other tests cover
	}{
		"controller": {actor, acts, []string{"janitor.dgxc.nvidia.com/rebootnodes delete", "janitor.dgxc.nvidia.com/terminatenodes delete"}},
		"janitor":    {repairer, repairs, nil},
	} {
		one.door.mu.Lock()
		if len(one.door.forbidden) > 0 {
			t.Errorf("%s: it may not %v", name, slices.Compact(slices.Sorted(slices.Values(one.door.forbidden))))
		}
		all := granted(one.process)
		for _, right := range one.rare {
			delete(all, right)
		}
		for _, right := range slices.Sorted(maps.Keys(all)) {
			// Watches of older API servers do not begin with the existing objects.
			listed, list := strings.CutSuffix(right, " list")
			if !one.door.asked[right] && (!list || !one.door.asked[listed+" watch"]) {
				t.Errorf("%s: nobody asked for %s", name, right)
			}
		}
		one.door.mu.Unlock()
	}
}

func with(env map[string]string, key, value string) map[string]string {
	all := maps.Clone(env)
	all[key] = value
	return all
}

// reporter returns the token of a monitor that may only report.
func reporter(t *testing.T, c *faulttest.Cluster) string {
	t.Helper()
	cfg, err := kubebedtest.Bed(t).EnsureServiceAccountConfig(t.Context(), faulttest.Namespace, "monitor")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range nodefault.PeopleRoles() {
		if r.Name == nodefault.ReporterRole {
			apply(t, c, r)
		}
	}
	apply(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "monitor-reports"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: nodefault.ReporterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "monitor", Namespace: faulttest.Namespace}},
	})
	return cfg.BearerToken
}

// reboots tests a node with a pod that a budget blocks: it is drained, rebooted by a Job,
// tested and released.
func (s *fixture) reboots() {
	s.Helper()
	const node = "node-to-reboot"
	s.c.CreateReadyNode(node, nil)
	pod := s.podOn(node, s.kept, "keeps", map[string]string{"app": "keeps"})
	one := intstr.FromInt32(1)
	s.create(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "keeps", Namespace: s.kept},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "keeps"}}},
	})
	s.report(faulttest.NewXidReport(node))
	s.gone(pod)
	s.started(node, s.job(node, "janitor.fleetloop.io/node"), nil)
	kubebedtest.Eventually(s, func(ctx context.Context) error {
		got, err := s.c.Fault(ctx, node)
		if err == nil && (got.Status.Remediation == nil || got.Status.Remediation.ObjectName == "") {
			err = errors.New("nothing was asked for")
		}
		if err != nil {
			return err
		}
		var o janitorv1alpha1.RebootNode
		if err := s.c.Client.Get(ctx, client.ObjectKey{Name: got.Status.Remediation.ObjectName}, &o); err != nil {
			return err
		}
		if o.Status.ProviderRequestID == "" {
			return fmt.Errorf("it is not under way: %+v", o.Status)
		}
		return nil
	})
	n := s.c.GetNode(node)
	n.Status.NodeInfo.BootID = "boot-2"
	s.c.SetReadyCondition(n, corev1.ConditionTrue)
	s.report(faulttest.NewXidReport(node).Healthy())
	verify := s.job(node, "fleetloop.io/node")
	now := metav1.Now()
	verify.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue}, {Type: batchv1.JobComplete, Status: corev1.ConditionTrue},
	}}
	if err := s.c.Client.Status().Update(s.Context(), verify); err != nil {
		s.Fatal(err)
	}
	s.gone(fault(node))
	if n := s.c.GetNode(node); n.Spec.Unschedulable {
		s.Error("it is cordoned")
	}
}

// terminates tests a termination by a person.
func (s *fixture) terminates() {
	s.Helper()
	const node = "node-to-end"
	n := s.c.CreateReadyNode(node, nil)
	r := faulttest.NewXidReport(node)
	r.RecommendedAction = "REPLACE_VM"
	s.report(r)
	var all janitorv1alpha1.TerminateNodeList
	kubebedtest.Eventually(s, func(ctx context.Context) error {
		if err := s.c.Client.List(ctx, &all); err != nil || len(all.Items) != 1 {
			return fmt.Errorf("there are %d TerminateNodes: %w", len(all.Items), err)
		}
		o := &all.Items[0]
		before := o.DeepCopy()
		o.Annotations = map[string]string{janitor.AnnotationDone: "by me"}
		return s.c.Client.Patch(ctx, o, client.MergeFrom(before))
	})
	s.gone(n)
	s.gone(&all.Items[0])
	s.gone(fault(node))
}

// failsToReboot tests reboots that a person requests: one whose Job fails and is then
// deleted, and one of an unknown node.
func (s *fixture) failsToReboot(node string) {
	s.Helper()
	for _, name := range []string{node, "nowhere"} {
		s.create(&janitorv1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: janitorv1alpha1.NodeActionSpec{NodeName: name, Force: true}})
	}
	j := s.job(node, "janitor.fleetloop.io/node")
	s.started(node, j, &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: metav1.Now(), StartedAt: metav1.Now()})
	s.gone(j)
	for _, name := range []string{node, "nowhere"} {
		s.gone(&janitorv1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

// changesHands tests a fault that a person edits after a monitor has found it, and that
// the monitor then resolves.
func (s *fixture) changesHands() {
	s.Helper()
	const node = "node-that-is-edited"
	s.c.CreateReadyNode(node, nil)
	r := faulttest.NewXidReport(node)
	r.IsFatal, r.RecommendedAction = false, ""
	s.report(r)
	kubebedtest.Eventually(s, func(ctx context.Context) error {
		f, err := s.c.Fault(ctx, node)
		if err != nil {
			return err
		}
		f.Spec.Faults[0].Message = "I have seen it, too"
		return s.c.Client.Update(ctx, f, client.FieldOwner("kubectl-edit"))
	})
	s.report(r.Healthy())
	s.gone(fault(node))
}

// knowsNoNode reports a fault of an unknown node.
func (s *fixture) knowsNoNode() {
	s.Helper()
	kubebedtest.Eventually(s, func(ctx context.Context) error {
		code, err := s.send(ctx, s.process, faulttest.NewXidReport("nowhere"))
		if err == nil && code != http.StatusNotFound {
			err = fmt.Errorf("answered %d: %s", code, s.said)
		}
		return err
	})
}

// TestReportsToAnyReplica verifies that one of two replicas acts, and both accept
// reports.
func TestReportsToAnyReplica(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	c.CreateReadyNode("gpu-node-01", nil)
	c.CreateReadyNode("gpu-node-02", nil)
	env := map[string]string{"LEADER_ELECT": "true", "NAMESPACE": faulttest.Namespace}
	for _, node := range []string{"gpu-node-01", "gpu-node-02"} {
		c.StartController(env) // the last one receives the reports
		c.Report(faulttest.NewXidReport(node))
		c.AwaitPhase(node, v1alpha1.PhaseRemediating)
	}
}
