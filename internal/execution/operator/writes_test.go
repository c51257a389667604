package operator

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// TestWritesAreCounted verifies which requests count as writes and with which labels. A name in a
// path never becomes a label.
func TestWritesAreCounted(t *testing.T) {
	const executions = "/apis/kubernetesexecution.kubernaut.io/v1alpha1/namespaces/jobs/kubernetesexecutions"
	for name, tc := range map[string]struct {
		reason, method, path, want string // empty is that it is none
	}{
		"Status":    {"one of its parts", http.MethodPatch, executions + "/pods/status", "kubernetesexecutions/status patch"},
		"Finalizer": {"as a whole", http.MethodPatch, executions + "/pods", "kubernetesexecutions patch"},
		"Delete":    {"likewise", http.MethodDelete, executions + "/pods", "kubernetesexecutions delete"},
		"Job":       {"a new one has no name", http.MethodPost, "/apis/batch/v1/namespaces/a/jobs", "jobs create"},
		"Pod":       {"of the group without a name", http.MethodPatch, "/api/v1/namespaces/a/pods/b", "pods patch"},
		"Lease":     {"the controller's own", http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "leases update"},
		"Event":     {"behind a proxy", http.MethodPost, "/k8s/clusters/c/apis/events.k8s.io/v1/namespaces/a/events", "events create"},
		"Other":     {"one that nobody knows of", http.MethodPost, "/api/v1/namespaces/a/secrets", "other create"},
		"OtherPart": {"likewise", http.MethodPost, "/api/v1/namespaces/a/pods/b/eviction", "other create"},
		"Review":    {"outside of namespaces", http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "other create"},
		"Read":      {"it is none", http.MethodGet, executions, ""},
	} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			w, err := newWriteCounter(reg)
			if err != nil {
				t.Fatal(err)
			}
			refused := errors.New("refused")
			host := w.newCountingConfig(&rest.Config{Host: "http://host", Transport: refusing{refused}})
			c, err := rest.HTTPClientFor(host)
			if err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), tc.method, "http://host"+tc.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := c.Do(r)
			if err == nil {
				_ = answer.Body.Close()
			}
			if !errors.Is(err, refused) {
				t.Errorf("got %v, want what the server says", err)
			}
			want := map[string]string{}
			if tc.want != "" {
				want["api_writes_total "+tc.want] = "1"
			}
			if diff := cmp.Diff(want, scraped(t, reg)); diff != "" {
				t.Errorf("%s:\n%s", tc.reason, diff)
			}
		})
	}
}

// refusing is a server that refuses everything.
type refusing struct{ err error }

func (r refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }
