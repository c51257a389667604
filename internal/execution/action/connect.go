package action

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	userAgent   = "fleetloop-action"
	maxWarnings = 16 // kept at most, to fit into a result
)

// NewClient creates a client without contacting the API server. Several executions may share the
// client: each receives only the warnings of its own requests.
func NewClient(cfg *rest.Config) (Client, error) {
	own := rest.CopyConfig(cfg)
	if own.UserAgent == "" {
		own.UserAgent = userAgent
	}
	unclaimed := &warningCollector{}
	own.WarningHandler, own.WarningHandlerWithContext = nil, unclaimed
	hc, err := rest.HTTPClientFor(own)
	if err != nil {
		return Client{}, fmt.Errorf("connect: %w", err)
	}
	objects, err := dynamic.NewForConfigAndClient(own, hc)
	if err != nil {
		return Client{}, fmt.Errorf("connect: %w", err)
	}
	raw := rest.CopyConfig(own)
	raw.APIPath, raw.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
	raw.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	logs, err := rest.RESTClientForConfigAndClient(raw, hc)
	if err != nil {
		return Client{}, fmt.Errorf("connect: %w", err)
	}
	return Client{Dynamic: objects, Logs: newLogReader(logs), Warnings: unclaimed.takeWarnings}, nil
}

// newLogReader returns a function that reads the end of a log. The API server limits its length.
func newLogReader(c rest.Interface) func(ctx context.Context, namespace, pod, container string, lines int64) (string, error) {
	const most = 64 << 10
	return func(ctx context.Context, namespace, pod, container string, lines int64) (string, error) {
		r := c.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log").
			Param("tailLines", strconv.FormatInt(lines, 10)).Param("limitBytes", strconv.Itoa(most))
		if container != "" {
			r = r.Param("container", container)
		}
		text, err := r.DoRaw(ctx)
		return string(text), err
	}
}

// warningCollector collects the warnings of the API server. A collector in the context of a request
// receives its warnings; otherwise the collector of the client does.
type warningCollector struct {
	mu    sync.Mutex
	heard []string
}

type collectorKey struct{}

// withWarningCollector returns a context whose requests use a separate collector.
func withWarningCollector(ctx context.Context) (context.Context, *warningCollector) {
	w := &warningCollector{}
	return context.WithValue(ctx, collectorKey{}, w), w
}

// HandleWarningHeaderWithContext adds a warning unless it is already collected.
func (w *warningCollector) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	const miscellaneous = 299 // the only code that Kubernetes sends
	if code != miscellaneous || text == "" {
		return
	}
	if claimed, ok := ctx.Value(collectorKey{}).(*warningCollector); ok {
		w = claimed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.heard) < maxWarnings && !slices.Contains(w.heard, text) {
		w.heard = append(w.heard, text)
	}
}

// takeWarnings returns and clears the collected warnings.
func (w *warningCollector) takeWarnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.heard
	w.heard = nil
	return heard
}
