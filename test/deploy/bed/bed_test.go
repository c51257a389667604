// Package bed_test applies what is shipped to a real API server.
package bed_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/deploy"
)

const (
	root     = "../../.."
	chartDir = root + "/deploy/chart/fleetloop"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{root + "/deploy/crds"}})
}

// restricted gives the test a namespace that admits only pods of the standard
// "restricted", and tells of any other object that would make one.
func restricted(t *testing.T) string {
	t.Helper()
	ns := kubebedtest.Namespace(t)
	client := kubernetes.NewForConfigOrDie(kubebedtest.Bed(t).Config())
	patch := `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}}}`
	if _, err := client.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return ns
}

// A cluster is a client of the bed that keeps the warnings that it is given.
type cluster struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	known   discovery.CachedDiscoveryInterface

	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeader keeps a warning.
func (c *cluster) HandleWarningHeader(_ int, _, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, text)
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterOf(kubebedtest.Bed(t))
}

func newClusterOf(bed *kubebed.Bed) *cluster {
	c := &cluster{}
	cfg := bed.Config()
	cfg.WarningHandler = c
	cfg.QPS, cfg.Burst = 200, 200
	c.known = memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(cfg))
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(c.known)
	c.dynamic = dynamic.NewForConfigOrDie(cfg)
	return c
}

// kinds are the kinds that the cluster knows, as Helm names them.
func (c *cluster) kinds(t *testing.T) []string {
	t.Helper()
	c.known.Invalidate()
	_, lists, err := c.known.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // a group that is going away
		t.Fatal(err)
	}
	var out []string
	for _, list := range lists {
		for i := range list.APIResources {
			out = append(out, list.GroupVersion+"/"+list.APIResources[i].Kind)
		}
	}
	return out
}

// apply applies an object by server-side apply, as whoever, and refuses fields
// that the server does not know. It goes to its own namespace if it says one.
func (c *cluster) apply(ctx context.Context, o *unstructured.Unstructured, namespace string, dryRun ...string) (*unstructured.Unstructured, error) {
	gvk := o.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var client dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		client = c.dynamic.Resource(mapping.Resource).Namespace(cmp.Or(o.GetNamespace(), namespace))
	}
	force := true
	return client.Patch(ctx, o.GetName(), types.ApplyPatchType, raw, metav1.PatchOptions{
		FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun,
	})
}

// podOf is the pod that a workload would make, or nil.
func podOf(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err != nil || !found {
		return nil
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName("pod-of-" + o.GetName())
	pod.SetNamespace(o.GetNamespace())
	return pod
}

// wantApplied applies objects twice. The first time creates what is new, the
// second changes nothing; and the server lets in the pods of workloads and
// warns of nothing.
func (c *cluster) wantApplied(t *testing.T, objects []*unstructured.Unstructured, namespace string) {
	t.Helper()
	for _, o := range objects {
		name := o.GetKind() + "/" + o.GetName()
		first, err := c.apply(t.Context(), o, namespace)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := c.apply(t.Context(), o, namespace)
		if err != nil {
			t.Errorf("%s again: %v", name, err)
		} else if first.GetResourceVersion() != again.GetResourceVersion() {
			t.Errorf("%s: the same once more changed it", name)
		}
	}
	for _, o := range objects { // accounts are there now
		if pod := podOf(t, o); pod != nil {
			if _, err := c.apply(t.Context(), pod, namespace, metav1.DryRunAll); err != nil {
				t.Errorf("pod of %s/%s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.warnings) > 0 {
		t.Errorf("the server warns:\n%s", strings.Join(c.warnings, "\n"))
	}
}

const everything = `
commonLabels: {team: fleet}
global: {imagePullSecrets: [{name: pull}]}
fleetApi:
  replicas: 2
  database: {migrate: job, migrationKey: owner}
  tls: {existingSecret: api-tls}
  metrics: {tokenSecret: scrape}
  config: {max_watches: 10}
  extraEnv: [{name: LOG_LEVEL, value: debug}]
  extraEnvFrom: [{secretRef: {name: more}}]
  extraVolumes: [{name: scratch, emptyDir: {}}]
  extraVolumeMounts: [{name: scratch, mountPath: /scratch}]
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: k, operator: Exists}]
  affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {}}}]}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  networkPolicy: {from: [{podSelector: {}}], metricsFrom: [{namespaceSelector: {}}], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
sentinel:
  gcpCredentialsSecret: gcp-pubsub-credentials
  rbac: {allSecrets: true, sharding: always}
  configs:
    - name: eu
      replicas: 3
      spec: {resourceType: clusters, shardSelector: {matchExpressions: [{key: region, operator: In, values: [eu-west, eu-north]}]}, sharding: {mode: auto}}
    - name: us
      resources: {limits: {memory: 256Mi}}
      spec:
        resourceType: nodepools
        backoffReady: 1h
        broker: {type: gcp-pubsub, projectID: p}
        messageData: {id: .id, owner: {name: 'cel:resource.name'}}
        decision: {profile: expression, result: 'true'}
clusterWorker:
  enabled: true
  gardener: {namespace: garden-fleet, kubernetesVersion: "1.34", maxShootNameLength: 15}
  config: {max_concurrent_syncs: 8}
  metrics: {tokenSecret: scrape}
  extraEnv: [{name: LOG_LEVEL, value: debug}]
  networkPolicy: {metricsFrom: [{namespaceSelector: {}}], egress: []}
monitoring: {dashboards: {enabled: true}}
`

// TestApply applies the chart with sets of values to a namespace that admits
// restricted pods only.
func TestApply(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]string{
		"Default":    "",
		"All":        "sentinel: {deploymentMode: all}",
		"File":       "sentinel: {deploymentMode: file}",
		"Worker":     "clusterWorker: {enabled: true}",
		"Everything": everything,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, c := restricted(t), newCluster(t)
			objects, _, err := deploy.Release{Chart: chartDir, Namespace: ns, Values: newValues(t, values)}.Render()
			if err != nil {
				t.Fatal(err)
			}
			c.wantApplied(t, objects, ns)
		})
	}
}

// TestRestricted holds that the namespaces of these tests do refuse pods that
// are not restricted: a pod of the chart with one thing taken away each.
func TestRestricted(t *testing.T) {
	ns, c := restricted(t), newCluster(t)
	objects, _, err := deploy.Release{Chart: chartDir, Namespace: ns}.Render()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetName() == "fleetloop-sentinel-clusters" && o.GetKind() == "Deployment"
	})
	for _, field := range [][]string{
		{"spec", "securityContext", "runAsNonRoot"},
		{"spec", "securityContext", "seccompProfile"},
	} {
		pod := podOf(t, objects[i])
		unstructured.RemoveNestedField(pod.Object, "spec", "serviceAccountName")
		if _, err := c.apply(t.Context(), pod, ns, metav1.DryRunAll); err != nil {
			t.Fatalf("as it is: %v", err)
		}
		unstructured.RemoveNestedField(pod.Object, field...)
		if _, err := c.apply(t.Context(), pod, ns, metav1.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), field[2]) {
			t.Errorf("without %s: %v, want it forbidden", field, err)
		}
	}
}

// TestMonitoring renders for the bed as it is: first it knows nothing of
// Prometheus's operator, then it does.
func TestMonitoring(t *testing.T) {
	c := newCluster(t)
	monitored := func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(o.GetAPIVersion(), "monitoring.coreos.com/")
	}
	rendered := func(ns string) []*unstructured.Unstructured {
		objects, _, err := deploy.Release{Chart: chartDir, Namespace: ns, APIVersions: c.kinds(t)}.Render()
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	ns := restricted(t)
	kubebedtest.Eventually(t, func(context.Context) error { // what an earlier run took away may still be told of
		if i := slices.IndexFunc(c.kinds(t), func(kind string) bool { return strings.HasPrefix(kind, "monitoring.coreos.com/") }); i >= 0 {
			return errors.New("the bed knows kinds of Prometheus's operator")
		}
		return nil
	})
	absent := rendered(ns)
	if slices.ContainsFunc(absent, monitored) {
		t.Error("there are objects of a kind that the cluster does not know")
	}
	c.wantApplied(t, absent, ns)

	if err := kubebedtest.Bed(t).InstallCRDs(t.Context(), "testdata/monitoring-crds"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for whoever runs this test twice
		if out, err := kubebedtest.Bed(t).Kubectl(context.WithoutCancel(t.Context()), "delete", "--wait", "-f", "testdata/monitoring-crds"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	c.mapper.Reset()
	ns = restricted(t)
	present := rendered(ns)
	var kinds []string
	for _, o := range present {
		if monitored(o) {
			kinds = append(kinds, o.GetKind())
		}
	}
	slices.Sort(kinds)
	if want := []string{"PrometheusRule", "ServiceMonitor", "ServiceMonitor"}; !slices.Equal(kinds, want) {
		t.Errorf("for Prometheus's operator there are %v, want %v", kinds, want)
	}
	c.wantApplied(t, present, ns)
}

// TestSpecification applies the specification's manifests byte for byte. That
// the operator runs on the specification's definition is TestSpecifiedOperator
// of test/e2e.
func TestSpecification(t *testing.T) {
	c := newCluster(t)
	const ns = "hyperfleet-system" // their own
	client := kubernetes.NewForConfigOrDie(kubebedtest.Bed(t).Config())
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, name := range []string{"operator/rbac", "operator/sentinelconfig", "operator/deployment", "service/broker-pubsub", "service/broker-rabbitmq"} {
		c.wantApplied(t, specification(t, name), ns)
	}

	// The abbreviated examples leave out what the specification itself requires.
	refused := 0
	for _, o := range specification(t, "operator/abbreviated") {
		_, err := c.apply(t.Context(), o, ns, metav1.DryRunAll)
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s/%s: %v, want it to be invalid", o.GetKind(), o.GetName(), err)
		}
		if o.GetKind() == "SentinelConfig" && err != nil && strings.Contains(err.Error(), "spec.hyperfleetAPI: Required") {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d SentinelConfigs were refused for the lack of hyperfleetAPI, want 3", refused)
	}
}

func specification(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile("../../specification/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.ParseObjects(raw)
	if err != nil || len(objects) == 0 {
		t.Fatalf("%s: %d objects, %v", name, len(objects), err)
	}
	return objects
}

// missing says which of the objects are not there.
func (c *cluster) missing(ctx context.Context, objects []*unstructured.Unstructured, namespace string) error {
	var errs []error
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err == nil {
			_, err = c.dynamic.Resource(mapping.Resource).Namespace(namespace).Get(ctx, o.GetName(), metav1.GetOptions{})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/%s: %w", o.GetKind(), o.GetName(), err))
		}
	}
	return errors.Join(errs...)
}
