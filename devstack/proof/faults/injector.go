package faults

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A Target is what a fault is injected into.
type Target struct {
	Name string
	// Lock names what has at most one fault at a time. A second one waits.
	Lock string
	// Inject injects the fault and ends it. It waits no longer than until schedule ends, and completes
	// what it began while ctx is valid.
	Inject func(ctx, schedule context.Context) error
}

// An Injector injects the faults of a schedule. Create it with NewInjector.
type Injector struct {
	choose func(Fault) Target
	record func(history.Fault)
	active *semaphore.Weighted // each fault holds one of maxActive

	mu    sync.Mutex
	locks map[string]chan struct{} // holds one value while a fault has the lock
	count int
}

// maxActive exceeds the number of faults that can be active.
const maxActive = 1 << 20

// NewInjector returns an injector. choose returns the target of a fault, and record gets each fault when it
// has ended.
func NewInjector(choose func(Fault) Target, record func(history.Fault)) *Injector {
	return &Injector{choose: choose, record: record, active: semaphore.NewWeighted(maxActive), locks: map[string]chan struct{}{}}
}

// Run injects the faults of a schedule until the duration has passed, and returns when all have ended.
// Faults that only wait end early then.
func (i *Injector) Run(ctx context.Context, duration time.Duration, schedule []Fault) {
	running, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var injecting sync.WaitGroup
	defer injecting.Wait()
	began := time.Now()
	for _, f := range schedule {
		if backoff.Sleep(running, time.Until(began.Add(f.At))) != nil {
			return
		}
		injecting.Go(func() { i.inject(ctx, running, f) })
	}
}

// RunAlone calls f while no fault is active. Faults that are due meanwhile wait.
func (i *Injector) RunAlone(ctx context.Context, f func() error) error {
	if err := i.active.Acquire(ctx, maxActive); err != nil {
		return err
	}
	defer i.active.Release(maxActive)
	return f()
}

// CountInjected returns the number of faults that have begun.
func (i *Injector) CountInjected() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count
}

// inject injects one fault and records it. It begins nothing after the end of schedule, and completes
// what it began.
func (i *Injector) inject(ctx, schedule context.Context, f Fault) {
	target := i.choose(f)
	lock := i.lockOf(target.Lock)
	lock <- struct{}{}
	defer func() { <-lock }()
	if i.active.Acquire(schedule, 1) != nil {
		return
	}
	defer i.active.Release(1)
	if schedule.Err() != nil {
		return
	}
	i.mu.Lock()
	i.count++
	i.mu.Unlock()
	rec := history.Fault{Kind: f.Kind, Target: target.Name, Ahead: f.Ahead, Start: time.Now()}
	if err := target.Inject(ctx, schedule); err != nil && ctx.Err() == nil {
		rec.Error = err.Error()
	}
	rec.End = time.Now()
	i.record(rec)
}

func (i *Injector) lockOf(name string) chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.locks[name] == nil {
		i.locks[name] = make(chan struct{}, 1)
	}
	return i.locks[name]
}
