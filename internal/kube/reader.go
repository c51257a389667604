package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// A Reader reads the host cluster. Cached kinds are read from memory, all objects or
// one, and other known kinds object by object from the API server. Create it with
// NewCachedReader and run its part once.
type Reader struct {
	cache       cache.Cache
	live        client.Client
	cachedKinds []client.Object
	scheme      *runtime.Scheme
	trouble     atomic.Pointer[error] // last error of a list or watch
}

// requestTimeout limits one request to the API server.
const requestTimeout = 10 * time.Second

var errRequestTimeout = errors.New("the Kubernetes API did not respond in time")

// NewCachedReader returns a reader that knows the kinds of o, and caches those in
// o.Cache.ByObject. It sends no request before it runs.
func NewCachedReader(cfg *rest.Config, o Options) (*Reader, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	RedirectLibraryLogs(o.Log)
	r := &Reader{scheme: o.Scheme}
	callerOnTrouble := o.OnTrouble
	o.OnTrouble = func(err error) {
		r.trouble.Store(&err)
		if callerOnTrouble != nil {
			callerOnTrouble(err)
		}
	}
	options := o.newRetryingCacheOptions()
	options.Scheme = o.Scheme
	options.Mapper = newRESTMapper(o.Namespaced, o.ClusterScoped)
	options.ReaderFailOnMissingInformer = true
	r.cachedKinds = slices.SortedFunc(maps.Keys(options.ByObject), func(a, b client.Object) int {
		return strings.Compare(reflect.TypeOf(a).String(), reflect.TypeOf(b).String())
	})
	cached, err := cache.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes reader: %w", err)
	}
	live, err := client.New(cfg, client.Options{Scheme: o.Scheme, Mapper: options.Mapper})
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes reader: %w", err)
	}
	r.cache, r.live = cached, live
	return r, nil
}

// Get reads one object. For a cached kind, except as metadata only, it waits until the
// kind has been listed.
func (r *Reader) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	isCached := slices.ContainsFunc(r.cachedKinds, func(kind client.Object) bool {
		return reflect.TypeOf(kind) == reflect.TypeOf(o)
	})
	if isCached {
		return r.cache.Get(ctx, key, o, opts...)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errRequestTimeout)
	defer cancel()
	return r.live.Get(ctx, key, o, opts...)
}

// List lists a cached kind. Another kind is an error.
func (r *Reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.cache.List(ctx, list, opts...)
}

// NewPart returns the part that keeps the cache up to date. The handlers are called for
// each object of their kinds that is added, changed or deleted.
func (r *Reader) NewPart(name string, handlers ...ChangeHandler) lifecycle.Part {
	return lifecycle.Part{
		Name:  name,
		Ready: r.Ready,
		Run:   func(ctx context.Context) error { return r.runCacheWithHandlers(ctx, handlers) },
	}
}

// A ChangeHandler handles changes of the objects of a kind.
type ChangeHandler struct {
	Kind     client.Object
	OnChange func(o client.Object, gone bool)
}

// runCacheWithHandlers runs the cache until ctx ends or an informer cannot be started.
func (r *Reader) runCacheWithHandlers(ctx context.Context, handlers []ChangeHandler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- r.cache.Start(ctx) }()
	err := r.startInformersWithoutWaiting(ctx, handlers)
	if err == nil {
		<-ctx.Done()
	} else if ctx.Err() != nil {
		err = nil // ctx ended while the informers started
	}
	cancel(err)
	return errors.Join(err, <-ended)
}

func (r *Reader) startInformersWithoutWaiting(ctx context.Context, handlers []ChangeHandler) error {
	for _, h := range handlers {
		informer, err := r.cache.GetInformer(ctx, h.Kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", h.Kind, err)
		}
		if _, err := informer.AddEventHandler(h.toInformerHandler()); err != nil {
			return fmt.Errorf("watch %T: %w", h.Kind, err)
		}
	}
	for _, kind := range r.cachedKinds {
		if _, err := r.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("list %T: %w", kind, err)
		}
	}
	return nil
}

func (h ChangeHandler) toInformerHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { h.handle(o, false) },
		UpdateFunc: func(_, o any) { h.handle(o, false) },
		DeleteFunc: func(o any) { h.handle(o, true) },
	}
}

// handle calls the handler with an object of an informer.
func (h ChangeHandler) handle(o any, gone bool) {
	if last, missed := o.(toolscache.DeletedFinalStateUnknown); missed { // the deletion was not seen
		o = last.Obj
	}
	if object, ok := o.(client.Object); ok {
		h.OnChange(object, gone)
	}
}

// Ready returns which kind cannot be read yet, and why.
func (r *Reader) Ready() error {
	// With an ended context, the informer is returned without a wait.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, kind := range r.cachedKinds {
		informer, err := r.cache.GetInformer(ended, kind, cache.BlockUntilSynced(false))
		if err == nil && informer.HasSynced() {
			continue
		}
		objects := "something"
		if gvk, err := apiutil.GVKForObject(kind, r.scheme); err == nil {
			objects = gvk.Kind + "s"
		}
		if cause := r.trouble.Load(); cause != nil {
			return fmt.Errorf("%s not listed yet: %w", objects, *cause)
		}
		return fmt.Errorf("%s not listed yet", objects)
	}
	return nil
}
