package operator

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// writeCounter counts the write requests of an operator to its host cluster. It counts at the
// transport, so it includes every request and every retry.
type writeCounter struct{ total *prometheus.CounterVec }

func newWriteCounter(reg prometheus.Registerer) (*writeCounter, error) {
	w := &writeCounter{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubernetesexecution_api_writes_total",
		Help: "Total number of write requests of the controller to the Kubernetes API, including failed requests, by resource and verb. Requests that use the ServiceAccount of an action are not counted.",
	}, []string{"resource", "verb"})}
	return w, reg.Register(w.total)
}

// newCountingConfig returns a configuration whose requests are counted.
func (w *writeCounter) newCountingConfig(host *rest.Config) *rest.Config {
	counted := rest.CopyConfig(host)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, w} })
	return counted
}

// counting is a round tripper that counts writes.
type counting struct {
	next http.RoundTripper
	*writeCounter
}

// RoundTrip counts the request and sends it.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if verb := writeVerb(r.Method); verb != "" {
		c.total.WithLabelValues(writtenResourceLabel(r.URL.Path), verb).Inc()
	}
	return c.next.RoundTrip(r)
}

// writeVerb returns the verb of a write. It is empty for other requests.
func writeVerb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// writtenResourceLabel returns the resource and subresource of a path if the operator writes it, else
// "other".
func writtenResourceLabel(path string) string {
	_, path, _ = strings.Cut(path, "/namespaces/")
	parts := strings.Split(path, "/") // namespace, resource, name, subresource
	if len(parts) < 2 {
		return "other"
	}
	resource := parts[1]
	if len(parts) > 3 {
		resource += "/" + parts[3]
	}
	switch resource {
	case "kubernetesexecutions", "kubernetesexecutions/status", "jobs", "pods", "events", "leases":
		return resource
	}
	return "other"
}
