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
	maxWarnings = 16 // that are kept; a result has room for no more
)

// Connect makes a client of a configuration. It asks nothing of the API server.
// The client may be used by several executions at once: each hears of its own
// warnings alone.
func Connect(cfg *rest.Config) (Client, error) {
	own := rest.CopyConfig(cfg)
	if own.UserAgent == "" {
		own.UserAgent = userAgent
	}
	unclaimed := &warnings{}
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
	return Client{Dynamic: objects, Logs: podLogs(logs), Warnings: unclaimed.takeAll}, nil
}

// podLogs reads the ends of logs. What is read is bounded by the API server.
func podLogs(c rest.Interface) func(ctx context.Context, namespace, pod, container string, lines int64) (string, error) {
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

// warnings are those that the API server sent. They go to whoever collects them
// in the context of the request, and to the client's own otherwise.
type warnings struct {
	mu    sync.Mutex
	heard []string
}

type collectorKey struct{}

// withWarningCollector gives a context whose requests have their warnings kept apart.
func withWarningCollector(ctx context.Context) (context.Context, *warnings) {
	w := &warnings{}
	return context.WithValue(ctx, collectorKey{}, w), w
}

// HandleWarningHeaderWithContext takes a warning, once.
func (w *warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	const miscellaneous = 299 // the one code that Kubernetes sends
	if code != miscellaneous || text == "" {
		return
	}
	if claimed, ok := ctx.Value(collectorKey{}).(*warnings); ok {
		w = claimed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.heard) < maxWarnings && !slices.Contains(w.heard, text) {
		w.heard = append(w.heard, text)
	}
}

// takeAll gives what was heard since the last time.
func (w *warnings) takeAll() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.heard
	w.heard = nil
	return heard
}
