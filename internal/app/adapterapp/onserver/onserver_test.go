// Package onserver tests the actions of package adapterapp on Kubernetes objects with a real API server.
package onserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/adapter"
	"github.com/fleetloop/fleetloop/adapter/adaptertest"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/adapterapp"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{Controllers: kubebed.JobControllers()},
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"), // started by an init function of the Pub/Sub client
	)
}

// A hostClient is a client of the test's API server, which can be unreachable.
type hostClient struct {
	client.Client

	down atomic.Bool
}

var errUnreachable = errors.New("the API server is unreachable")

func (h *hostClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if h.down.Load() {
		return errUnreachable
	}
	return h.Client.Apply(ctx, obj, opts...)
}

func (h *hostClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if h.down.Load() {
		return errUnreachable
	}
	return h.Client.Get(ctx, key, obj, opts...)
}

func (h *hostClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if h.down.Load() {
		return errUnreachable
	}
	return h.Client.List(ctx, list, opts...)
}

func (h *hostClient) disconnect() (connect func()) {
	h.down.Store(true)
	return func() { h.down.Store(false) }
}

func newHostClient(t *testing.T) (*hostClient, string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(batchv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubebedtest.Bed(t).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &hostClient{Client: c}, kubebedtest.Namespace(t)
}

// newRunner compiles a file, without its header.
func newRunner(t *testing.T, text string, host client.Client) *adapterapp.Runner {
	t.Helper()
	const header = "apiVersion: adapter.fleetloop.io/v1alpha1\nkind: Adapter\nname: dns\n"
	var f adapterapp.File
	report, err := settings.Load(&f, settings.Source{File: "adapter.yaml", FileData: []byte(header + text)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := adapterapp.NewRunner(f, report, adapterapp.RunnerDeps{Kube: host, Env: settings.OSEnv})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newCluster returns a cluster in its second generation, which the adapter "validation" has reported as available.
func newCluster(id, spec string) adapter.Resource {
	return adapter.Resource{
		Collection: v1.CollectionClusters,
		Resource:   v1.Resource{ID: id, Generation: 2, Spec: json.RawMessage(spec)},
		Reports: []v1.AdapterStatus{{
			Adapter: "validation", ObservedGeneration: 2,
			Conditions: []v1.AdapterCondition{{ReportCondition: v1.ReportCondition{Type: v1.ConditionAvailable, Status: v1.ConditionTrue}}},
		}},
	}
}

func applyFile(ns string) string {
	metadata := "metadata: {namespace: " + ns + ", name: 'cel:id.lowerAscii()'}"
	return `
condition: "'validation' in available"
action:
  apply:
    manifest: {apiVersion: v1, kind: ConfigMap, ` + metadata + `, data: {zone: "cel:spec.zone"}}
report: {data: {uid: "cel:result.object.metadata.uid"}}
delete: {remove: {manifest: {apiVersion: v1, kind: ConfigMap, ` + metadata + `}}}
`
}

// TestApplyConformance runs the suite for adapters against an adapter that applies an object, with a
// real API server.
func TestApplyConformance(t *testing.T) {
	host, ns := newHostClient(t)
	adaptertest.Run(t, adaptertest.Suite{
		Open:  func() adapter.Reconciler { return newRunner(t, applyFile(ns), host) },
		After: []string{"validation"},
		Spec:  json.RawMessage(`{"zone": "a.example"}`), NewSpec: json.RawMessage(`{"zone": "b.example"}`),
		Effects: func(id string) string {
			var m corev1.ConfigMap
			err := host.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: strings.ToLower(id)}, &m)
			if client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
			return fmt.Sprint(m.UID, m.ResourceVersion, m.Data)
		},
		Break: host.disconnect,
	})
}

// TestApplyOwnership checks the field manager, that only objects of the adapter are removed, and that
// an invalid object is not retried.
func TestApplyOwnership(t *testing.T) {
	host, ns := newHostClient(t)
	r := newRunner(t, applyFile(ns), host)
	resource := newCluster("c1", `{"zone":"a.example"}`)
	report, err := r.Reconcile(t.Context(), resource)
	if err != nil || !strings.Contains(string(report.Data), `"uid":"`) {
		t.Fatalf("report data %s, %v", report.Data, err)
	}
	var m corev1.ConfigMap
	if err := host.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c1"}, &m); err != nil {
		t.Fatal(err)
	}
	if f := m.ManagedFields; len(f) != 1 || f[0].Manager != "dns" || f[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managed fields %+v", f)
	}
	resource.ID = "c_1"
	if _, err := r.Reconcile(t.Context(), resource); !adapter.IsPermanent(err) {
		t.Errorf("an invalid name: %v, want a permanent error", err)
	}

	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c2"}}
	if err := host.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	resource.ID, resource.DeletedTime = "c2", &time.Time{}
	if _, err := r.Reconcile(t.Context(), resource); !adapter.IsPermanent(err) {
		t.Errorf("the removal of another's object: %v, want a permanent error", err)
	}
	if err := host.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("another's object: %v", err)
	}

	// One with a finalizer stays, and so does the resource.
	m.Finalizers = []string{"example.com/wait"}
	if err := host.Update(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	resource.ID = "c1"
	report, err = r.Reconcile(t.Context(), resource)
	if err != nil || slices.ContainsFunc(report.Conditions, func(c v1.ReportCondition) bool { return c.Type == v1.ConditionFinalized }) {
		t.Errorf("with a finalizer: %+v, %v; want no Finalized", report.Conditions, err)
	}
}

func jobFile(ns, outcome string) string {
	spec := "spec: {backoffLimit: 0, template: {metadata: {annotations: {" + kubebedtest.OutcomeAnnotation + ": " + outcome + "}}, " +
		"spec: {restartPolicy: Never, containers: [{name: zone, image: zone, env: [{name: ZONE, value: 'cel:spec.zone'}]}]}}}"
	return `
condition: "'validation' in available"
action: {job: {wait: 5s, manifest: {metadata: {namespace: ` + ns + `}, ` + spec + `}}}
delete: {job: {wait: 5s, manifest: {metadata: {namespace: ` + ns + `}, ` + strings.Replace(spec, outcome, "Succeeded", 1) + `}}}
`
}

// jobsOf returns the names of the Jobs of a resource, with the zones in their Pods.
func jobsOf(t *testing.T, host client.Client, ns, id string) (jobs []string) {
	t.Helper()
	var text bytes.Buffer
	if err := newRunner(t, jobFile(ns, "Succeeded"), host).DryRun(&text, newCluster(id, `{"zone":""}`)); err != nil {
		t.Fatal(err)
	}
	var planned struct{ Action struct{ Job batchv1.Job } }
	if err := yaml.Unmarshal(text.Bytes(), &planned); err != nil || len(planned.Action.Job.Labels) == 0 {
		t.Fatalf("the dry run shows no labels of the Job: %v\n%s", err, &text)
	}
	var list batchv1.JobList
	if err := host.List(t.Context(), &list, client.InNamespace(ns), client.MatchingLabels(planned.Action.Job.Labels)); err != nil {
		t.Fatal(err)
	}
	for _, j := range list.Items {
		jobs = append(jobs, j.Name+" "+j.Spec.Template.Spec.Containers[0].Env[0].Value)
	}
	return jobs
}

// TestJobConformance runs the suite against an adapter that runs Jobs. Its Jobs of earlier generations,
// and all but the last one after a deletion, are deleted.
func TestJobConformance(t *testing.T) {
	host, ns := newHostClient(t)
	kubebedtest.SimulatePodOutcomes(t, kubebedtest.Bed(t), ns)
	adaptertest.Run(t, adaptertest.Suite{
		Open:    func() adapter.Reconciler { return newRunner(t, jobFile(ns, "Succeeded"), host) },
		After:   []string{"validation"},
		Spec:    json.RawMessage(`{"zone": "a.example"}`),
		NewSpec: json.RawMessage(`{"zone": "b.example"}`),
		Effects: func(id string) string {
			jobs := jobsOf(t, host.Client, ns, id)
			return fmt.Sprint(slices.DeleteFunc(jobs, func(j string) bool { return strings.Contains(j, "-delete ") }))
		},
		Break:   host.disconnect,
		Timeout: time.Minute,
	})
}

// TestJobEnds checks a Job that runs for longer than one evaluation, and one that fails.
func TestJobEnds(t *testing.T) {
	host, ns := newHostClient(t)
	kubebedtest.SimulatePodOutcomes(t, kubebedtest.Bed(t), ns)
	resource := newCluster("c1", `{"zone":"a.example"}`)
	report, err := newRunner(t, strings.Replace(jobFile(ns, "Running"), "wait: 5s", "wait: 100ms", 1), host).Reconcile(t.Context(), resource)
	if err != nil || report.Conditions[0].Reason != "WorkInProgress" {
		t.Errorf("while the Job runs: %+v, %v", report.Conditions, err)
	}
	resource.Generation++
	resource.Reports[0].ObservedGeneration++
	r := newRunner(t, strings.ReplaceAll(jobFile(ns, "Failed"), "5s", "1m"), host)
	for range 2 { // it is not repeated
		_, err = r.Reconcile(t.Context(), resource)
		if !adapter.IsPermanent(err) || !strings.Contains(err.Error(), "the Job failed: BackoffLimitExceeded") {
			t.Errorf("a failed Job: %v, want a permanent error", err)
		}
	}
	if jobs := jobsOf(t, host, ns, "c1"); len(jobs) != 1 || !strings.Contains(jobs[0], "-3 ") {
		t.Errorf("Jobs %q, want only that of generation 3", jobs)
	}
	misspelled := strings.ReplaceAll(jobFile(ns, "Succeeded"), "backoffLimit", "backOffLimit")
	resource.ID = "c2"
	if _, err := newRunner(t, misspelled, host).Reconcile(t.Context(), resource); !adapter.IsPermanent(err) || apierrors.IsInvalid(err) {
		t.Errorf("an unknown field: %v, want a permanent error", err)
	}
}
