package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest" //nolint:depguard // the vendor's own server is what we publish to

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// specification is the folder of what tools/dev cuts out of the
// sentinel's specifications.
const specification = "../specification"

// newSpecifiedCluster starts an API server that has the specification's own
// definition instead of ours, with its account, role and sample applied as
// they stand.
func newSpecifiedCluster(t *testing.T) *hostCluster {
	t.Helper()
	const namespace = "hyperfleet-system" // that of the manifests
	kube, err := kubebed.Start(t.Context(), kubebed.Options{CRDs: []string{filepath.Join(specification, "operator/crd.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Stop(); err != nil {
			t.Error(err)
		}
	})
	h := &hostCluster{bed: kube, namespace: namespace}
	h.kubectl(t, "create", "namespace", namespace)
	for _, file := range []string{"rbac.yaml", "sentinelconfig.yaml"} {
		h.kubectl(t, "apply", "--filename", filepath.Join(specification, "operator", file))
	}
	return h
}

// newAPIProxy starts an HTTP proxy that answers for the host of the fleet API in
// the specification's sample, which no name server knows.
func newAPIProxy(t *testing.T, apiURL string) (proxyURL string) {
	t.Helper()
	const host = "hyperfleet-api.hyperfleet-system.svc.cluster.local:8080"
	target, err := url.Parse(apiURL)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host {
			http.Error(w, "this proxy is for "+host, http.StatusBadGateway)
			return
		}
		r.URL.Scheme, r.URL.Host = "", "" // what is left is a path on the target
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// messages are the cloud events that a Pub/Sub server has about a resource.
func messages(t *testing.T, server *pstest.Server, id string) []cloudevent.Event {
	t.Helper()
	var events []cloudevent.Event
	for _, m := range server.Messages() {
		e, err := cloudevent.Decode(m.Attributes["content-type"], func(name string) (string, bool) {
			v, ok := m.Attributes["ce-"+name]
			return v, ok
		}, m.Data)
		if err != nil {
			t.Fatalf("message %s: %v", m.Data, err)
		}
		if e.Subject == id {
			events = append(events, e)
		}
	}
	return events
}

// TestSpecifiedOperator runs the operator on the specification's definition,
// role and sample, and drives a cluster through its phases by the fleet API. The
// sample names no profile, so only the phase and the last transition count: 10
// seconds while the cluster is not ready, and its own bound while it is. A new
// generation is no reason.
func TestSpecifiedOperator(t *testing.T) {
	t.Parallel()
	const notReady, ready = 10 * time.Second, 20 * time.Second
	h := newSpecifiedCluster(t)
	broker := pstest.NewServer()
	t.Cleanup(func() { _ = broker.Close() })
	subscribe(t, broker.Addr)
	f := newFleet(t, oneAdapter())
	east, west := f.create(t, "east", "region=us-east"), f.create(t, "west", "region=us-west")

	account, err := h.bed.EnsureServiceAccountConfig(t.Context(), h.namespace, "hyperfleet-sentinel")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, "sentinel", map[string]string{
		"KUBECONFIG": write(t, "kubeconfig", kubeconfigOf(t, account)), "HTTP_PROXY": newAPIProxy(t, f.url), "PUBSUB_EMULATOR_HOST": broker.Addr,
	}, "--config=cluster-sentinel-us-east", "--namespace="+h.namespace, "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=localhost:0")
	s.wantReady(t)

	// next waits for the n-th event about the cluster, which is not to come
	// before its age has passed since the last transition.
	next := func(n int, phase v1.Phase, age time.Duration) {
		t.Helper()
		status := f.get(t, east.ID).Status
		if status.Phase != phase {
			t.Fatalf("the cluster is %s, want %s", status.Phase, phase)
		}
		eventually(t, patience, func() error {
			if got := len(messages(t, broker, east.ID)); got < n {
				return fmt.Errorf("%d events, want %d", got, n)
			}
			return nil
		})
		e := messages(t, broker, east.ID)[n-1]
		if due := status.LastTransitionTime.Add(age); e.Time.Before(due) {
			t.Errorf("event %d at %s, although the cluster is %s since %s; want it at %s or later", n, e.Time, phase, status.LastTransitionTime, due)
		}
		if want := `{"resourceType":"clusters","resourceId":"` + east.ID + `","reason":"backoff-expired"}`; string(e.Data) != want || e.Type != clusterEvent {
			t.Errorf("event %d is %s with data %s, want %s with %s", n, e.Type, e.Data, clusterEvent, want)
		}
	}
	next(1, v1.PhasePending, notReady)

	f.report(t, east.ID, 1, true)
	waitFor(t, notReady+5*time.Second) // it would be due again if it were not ready
	if got := len(messages(t, broker, east.ID)); got != 1 {
		t.Errorf("%d events, want 1: a ready cluster is not due for half an hour", got)
	}
	h.kubectl(t, "patch", "sentinelconfig", "cluster-sentinel-us-east", "--type=merge", "--patch", fmt.Sprintf(`{"spec":{"backoffReady":%q}}`, ready))
	next(2, v1.PhaseReady, ready)

	if patched := f.patch(t, east.ID); patched.Generation != 2 {
		t.Fatalf("generation %d after a patch, want 2", patched.Generation)
	}
	next(3, v1.PhaseProvisioning, notReady)

	if got := messages(t, broker, west.ID); len(got) != 0 {
		t.Errorf("%d events about a cluster of another region, want none", len(got))
	}
	wantMetric(t, s, "hyperfleet_sentinel_config_reloads_total", 1, "shard", "region=us-east", "resource_type", "clusters")
	s.wantReady(t)
}
