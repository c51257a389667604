package gardenbed

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// FaultAnnotation on a Shoot is its Fault, for clients that cannot call
// Gardenlet.Fault.
const FaultAnnotation = "gardenbed.fleetloop.io/fault"

const (
	defaultStep = 50 * time.Millisecond
	retry       = 100 * time.Millisecond
	atOnce      = 16 // concurrent requests
	perRound    = 4 * atOnce
)

// GardenletOptions are the options of a gardenlet.
type GardenletOptions struct {
	// Namespace is the namespace of its Shoots. Empty means all namespaces.
	Namespace string

	// Step is the duration of each step of an operation; one without faults has seven.
	// Zero means 50 ms.
	Step time.Duration

	// WatchLimit is how long one watch lasts; then all Shoots are listed again. Zero means no limit. A
	// watch can become silent for ever when an API server is killed.
	WatchLimit time.Duration

	// Log receives each step at debug level. It may be nil.
	Log *slog.Logger
}

// A Gardenlet advances Shoots while it runs.
type Gardenlet struct {
	options GardenletOptions
	shoots  dynamic.NamespaceableResourceInterface

	mu     sync.Mutex
	known  map[key]*unstructured.Unstructured
	due    map[key]bool // to be handled in the next round
	faults map[string]Fault
}

type key struct{ namespace, name string }

func keyOf(s *unstructured.Unstructured) key { return key{s.GetNamespace(), s.GetName()} }

// NewGardenlet returns a gardenlet of the garden of cfg.
func NewGardenlet(cfg *rest.Config, o GardenletOptions) (*Gardenlet, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	o.Step = cmp.Or(o.Step, defaultStep)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Gardenlet{
		options: o,
		shoots:  client.Resource(schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"}),
		known:   make(map[key]*unstructured.Unstructured),
		due:     make(map[key]bool),
		faults:  make(map[string]Fault),
	}, nil
}

// SetFault injects a fault into the Shoots of a name, from the next step until a call with
// None.
func (g *Gardenlet) SetFault(shootName string, f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[shootName] = f
	for k := range g.known {
		if k.name == shootName {
			g.due[k] = true
		}
	}
}

// Run advances Shoots until ctx ends. It retries failed requests.
func (g *Gardenlet) Run(ctx context.Context) error {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { g.advanceShootsUntilDone(ctx) })
	for {
		err := g.listAndWatchShoots(ctx)
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
			g.options.Log.DebugContext(ctx, "shoots listed anew", "err", err)
		}
	}
}

// listAndWatchShoots lists all Shoots, and watches their changes until that fails.
func (g *Gardenlet) listAndWatchShoots(ctx context.Context) error {
	shoots := g.shoots.Namespace(g.options.Namespace)
	list, err := shoots.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	g.replaceShoots(list.Items)
	if g.options.WatchLimit > 0 {
		limited, cancel := context.WithTimeout(ctx, g.options.WatchLimit)
		defer cancel()
		ctx = limited
	}
	changes, err := shoots.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-changes.ResultChan():
			if !open {
				return ctx.Err()
			}
			if err := g.handleEvent(e); err != nil {
				return err
			}
		}
	}
}

func (g *Gardenlet) handleEvent(e watch.Event) error {
	s, ok := e.Object.(*unstructured.Unstructured)
	switch {
	case e.Type == watch.Error || !ok:
		return apierrors.FromObject(e.Object)
	case e.Type == watch.Deleted:
		g.forgetShoot(s)
	default:
		g.storeShootIfNewer(s)
	}
	return nil
}

func (g *Gardenlet) replaceShoots(list []unstructured.Unstructured) {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.known)
	for i := range list {
		k := keyOf(&list[i])
		g.known[k], g.due[k] = &list[i], true
	}
}

// storeShootIfNewer stores a Shoot, unless a newer version is known.
func (g *Gardenlet) storeShootIfNewer(s *unstructured.Unstructured) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := keyOf(s)
	if before := g.known[k]; before != nil {
		if order, err := resourceversion.CompareResourceVersion(before.GetResourceVersion(), s.GetResourceVersion()); err == nil && order > 0 {
			return
		}
	}
	g.known[k], g.due[k] = s, true
}

func (g *Gardenlet) forgetShoot(s *unstructured.Unstructured) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if before := g.known[keyOf(s)]; before != nil && before.GetUID() == s.GetUID() {
		delete(g.known, keyOf(s))
	}
}

// advanceShootsUntilDone repeatedly performs one step of every Shoot that has a step to do.
func (g *Gardenlet) advanceShootsUntilDone(ctx context.Context) {
	ticker := time.NewTicker(g.options.Step)
	defer ticker.Stop()
	free := make(chan struct{}, atOnce)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var writing sync.WaitGroup
		for _, c := range g.nextChanges() {
			free <- struct{}{}
			writing.Go(func() {
				defer func() { <-free }()
				g.tryWriteChange(ctx, c)
			})
		}
		writing.Wait()
	}
}

// A change is a Shoot to write.
type change struct {
	shoot *unstructured.Unstructured
	part  part
}

// nextChanges returns the changes of a round, at most perRound. A Shoot without one is handled
// again when it has changed.
func (g *Gardenlet) nextChanges() []change {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []change
	for _, k := range g.sortDueByProgress() {
		s := g.known[k]
		f := cmp.Or(g.faults[k.name], Fault(s.GetAnnotations()[FaultAnnotation]))
		next, part := advanceState(s, f, time.Now())
		if part == nothing {
			delete(g.due, k)
			continue
		}
		if list = append(list, change{next, part}); len(list) == perRound {
			break
		}
	}
	return list
}

// sortDueByProgress returns the due Shoots, those first whose operations have progressed most. So a
// Shoot becomes ready before the next one begins, also when the API server is slow.
func (g *Gardenlet) sortDueByProgress() []key {
	progress := make(map[key]int64, len(g.due))
	for k := range g.due {
		if s := g.known[k]; s != nil {
			progress[k] = readOperation(s).progressForSpecOf(s)
		} else {
			delete(g.due, k)
		}
	}
	return slices.SortedFunc(maps.Keys(progress), func(a, b key) int {
		return cmp.Or(cmp.Compare(progress[b], progress[a]), cmp.Compare(a.name, b.name), cmp.Compare(a.namespace, b.namespace))
	})
}

// tryWriteChange writes a change. One that is rejected because the Shoot has changed is
// repeated in a later round.
func (g *Gardenlet) tryWriteChange(ctx context.Context, c change) {
	shoots := g.shoots.Namespace(c.shoot.GetNamespace())
	op := readOperation(c.shoot)
	log := g.options.Log.With("shoot", c.shoot.GetName(), "type", op.kind, "state", op.state, "progress", op.progress)
	var now *unstructured.Unstructured
	var err error
	if c.part == status {
		now, err = shoots.UpdateStatus(ctx, c.shoot, metav1.UpdateOptions{})
	} else {
		now, err = shoots.Update(ctx, c.shoot, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		g.forgetShoot(c.shoot)
	case err != nil:
		log.DebugContext(ctx, "shoot not written", "err", err)
	case now.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0:
		g.forgetShoot(now)
		log.DebugContext(ctx, "shoot gone")
	default:
		g.storeShootIfNewer(now)
		log.DebugContext(ctx, "shoot written")
	}
}
