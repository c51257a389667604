// Package gardenlet plays the part of Gardener's gardenlet in a garden without
// seeds: it takes Shoots through their operations as the status tells of them,
// and makes no clusters.
//
// Each generation of a Shoot is one operation: Pending, Processing with its
// progress, Succeeded, with the conditions of a healthy cluster. At the end of a
// deletion it removes its finalizer, and the Shoot is gone. On demand something
// goes wrong with a Shoot: see Fault. All it knows is in the Shoots, so that it
// can be stopped and started at any time, and the API server, too.
package gardenlet

import (
	"cmp"
	"context"
	"log/slog"
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

// FaultAnnotation on a Shoot is its Fault, for those who can not call
// Gardenlet.Fault.
const FaultAnnotation = "gardenbed.fleetloop.io/fault"

const (
	defaultStep = 50 * time.Millisecond
	retry       = 100 * time.Millisecond
	atOnce      = 16 // requests
)

// Options say what the gardenlet looks after.
type Options struct {
	// Namespace is whose Shoots it looks after. Empty is all.
	Namespace string

	// Step is how long each step of an operation takes; one without faults has
	// seven. Zero is 50 ms.
	Step time.Duration

	// Log hears of each step, at debug. Nil is silence.
	Log *slog.Logger
}

// A Gardenlet looks after Shoots while it runs.
type Gardenlet struct {
	options Options
	shoots  dynamic.NamespaceableResourceInterface

	mu     sync.Mutex
	known  map[key]*unstructured.Unstructured
	due    map[key]bool // to be looked at in the next round
	faults map[string]Fault
}

type key struct{ namespace, name string }

func keyOf(s *unstructured.Unstructured) key { return key{s.GetNamespace(), s.GetName()} }

// New makes a gardenlet of the garden that cfg reaches.
func New(cfg *rest.Config, o Options) (*Gardenlet, error) {
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

// Fault makes something go wrong with the Shoots of a name, from the next step
// on and until it is called with None.
func (g *Gardenlet) Fault(name string, f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[name] = f
	for k := range g.known {
		if k.name == name {
			g.due[k] = true
		}
	}
}

// Run looks after Shoots until ctx ends. What fails is tried again.
func (g *Gardenlet) Run(ctx context.Context) error {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { g.workLoop(ctx) })
	for {
		err := g.followShoots(ctx)
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

// followShoots learns of all Shoots, and of their changes until that fails.
func (g *Gardenlet) followShoots(ctx context.Context) error {
	shoots := g.shoots.Namespace(g.options.Namespace)
	list, err := shoots.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	g.replaceShoots(list.Items)
	changes, err := shoots.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for e := range changes.ResultChan() {
		s, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case e.Type == watch.Error || !ok:
			return apierrors.FromObject(e.Object)
		case e.Type == watch.Deleted:
			g.removeShoot(s)
		default:
			g.storeShoot(s)
		}
	}
	return ctx.Err()
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

// storeShoot notes a Shoot, unless a newer one is known.
func (g *Gardenlet) storeShoot(s *unstructured.Unstructured) {
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

func (g *Gardenlet) removeShoot(s *unstructured.Unstructured) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if before := g.known[keyOf(s)]; before != nil && before.GetUID() == s.GetUID() {
		delete(g.known, keyOf(s))
	}
}

// workLoop does one step of every Shoot that has one to do, over and over.
func (g *Gardenlet) workLoop(ctx context.Context) {
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
				g.writeChange(ctx, c)
			})
		}
		writing.Wait()
	}
}

// A change is a Shoot as it is to be.
type change struct {
	shoot *unstructured.Unstructured
	part  part
}

// nextChanges gives the changes of a round. A Shoot without one is looked at again
// when it has changed.
func (g *Gardenlet) nextChanges() []change {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []change
	for k := range g.due {
		s := g.known[k]
		if s == nil {
			delete(g.due, k)
			continue
		}
		f := cmp.Or(g.faults[k.name], Fault(s.GetAnnotations()[FaultAnnotation]))
		if next, part := nextState(s, f, time.Now()); part == nothing {
			delete(g.due, k)
		} else {
			list = append(list, change{next, part})
		}
	}
	return list
}

// writeChange writes a change. One that is refused, because the Shoot has changed,
// comes again in another round.
func (g *Gardenlet) writeChange(ctx context.Context, c change) {
	shoots := g.shoots.Namespace(c.shoot.GetNamespace())
	op := operationOf(c.shoot)
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
		g.removeShoot(c.shoot)
	case err != nil:
		log.DebugContext(ctx, "shoot not written", "err", err)
	case now.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0:
		g.removeShoot(now)
		log.DebugContext(ctx, "shoot gone")
	default:
		g.storeShoot(now)
		log.DebugContext(ctx, "shoot written")
	}
}
