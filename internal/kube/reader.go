package kube

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// A Reader reads some kinds of the host cluster from memory. What it is not told
// to keep it does not read. Make it with NewReader and run its part once.
type Reader struct {
	client.Reader

	cache   cache.Cache
	kept    []client.Object
	synced  atomic.Bool
	trouble atomic.Pointer[error]
}

// errNotListed is why a Reader is not ready that has had no trouble.
var errNotListed = errors.New("the host cluster has not been listed yet")

// NewReader makes a reader of the kinds that o.Cache.ByObject names. It asks
// nothing of the host cluster before it runs.
func NewReader(cfg *rest.Config, o Options) (*Reader, error) {
	TakeLogs(o.Log)
	r := &Reader{}
	told := o.OnTrouble
	o.OnTrouble = func(err error) {
		r.trouble.Store(&err)
		if told != nil {
			told(err)
		}
	}
	options := o.patient()
	options.Scheme = o.Scheme
	options.Mapper = mapper(o.Namespaced, o.ClusterScoped)
	options.ReaderFailOnMissingInformer = true
	for kind := range options.ByObject {
		r.kept = append(r.kept, kind)
	}
	var err error
	if r.cache, err = cache.New(cfg, options); err != nil {
		return nil, fmt.Errorf("make reader: %w", err)
	}
	r.Reader = r.cache
	return r, nil
}

// Part keeps the memory up to date. on hear of each object of their kinds that
// comes, changes or goes.
func (r *Reader) Part(name string, on ...Handler) lifecycle.Part {
	return lifecycle.Part{Name: name, Ready: r.Ready, Run: func(ctx context.Context) error { return r.run(ctx, on) }}
}

// A Handler hears of the objects of a kind.
type Handler struct {
	Kind client.Object
	Do   func(o client.Object, gone bool)
}

func (r *Reader) run(ctx context.Context, on []Handler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- r.cache.Start(ctx) }()
	err := r.follow(ctx, on)
	if err == nil {
		<-ctx.Done()
	} else if ctx.Err() != nil {
		err = nil
	}
	cancel(err)
	return errors.Join(err, <-ended)
}

func (r *Reader) follow(ctx context.Context, on []Handler) error {
	for _, h := range on {
		informer, err := r.cache.GetInformer(ctx, h.Kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("follow %T: %w", h.Kind, err)
		}
		if _, err := informer.AddEventHandler(h.handler()); err != nil {
			return fmt.Errorf("follow %T: %w", h.Kind, err)
		}
	}
	for _, kind := range r.kept {
		if _, err := r.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("list %T: %w", kind, err)
		}
	}
	if r.cache.WaitForCacheSync(ctx) {
		r.synced.Store(true)
	}
	return nil
}

func (h Handler) handler() toolscache.ResourceEventHandler {
	do := func(o any, gone bool) {
		if last, missed := o.(toolscache.DeletedFinalStateUnknown); missed {
			o = last.Obj
		}
		if object, ok := o.(client.Object); ok {
			h.Do(object, gone)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { do(o, false) },
		UpdateFunc: func(_, o any) { do(o, false) },
		DeleteFunc: func(o any) { do(o, true) },
	}
}

// Ready says why there is nothing to read yet.
func (r *Reader) Ready() error {
	if r.synced.Load() {
		return nil
	}
	if err := r.trouble.Load(); err != nil {
		return *err
	}
	return errNotListed
}
