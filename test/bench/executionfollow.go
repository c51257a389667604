package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// recorded is how a follower calls the end of it all: the audit is durable, and
// nothing holds the object any more.
const recorded = "recorded"

// A follower notes when an administrator who watches is first told that
// executions are in a phase, and that Jobs are complete.
type follower struct {
	mu         sync.Mutex
	at         map[string]time.Time // by name/phase
	executions map[string]*v1alpha1.KubernetesExecution
	failed     error
	moved      chan struct{} // closed and replaced when something happens
}

// settled are executions of which something was done, or that failed. Who follows
// no others has the API server tell half as much.
const settled = "status.phase!=,status.phase!=executing"

// followExecutions watches until the bed stops, of executions those that a field selector
// selects.
func (b *executionBed) followExecutions(ctx context.Context, only string) (*follower, error) {
	selector, err := fields.ParseSelector(only)
	if err != nil {
		return nil, err
	}
	f := &follower{at: map[string]time.Time{}, executions: map[string]*v1alpha1.KubernetesExecution{}, moved: make(chan struct{})}
	watching, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	for list, of := range map[client.ObjectList]fields.Selector{&v1alpha1.KubernetesExecutionList{}: selector, &batchv1.JobList{}: fields.Everything()} {
		w, err := b.admin.Watch(watching, list, client.InNamespace(executor), client.MatchingFieldsSelector{Selector: of})
		if err != nil {
			cancel()
			return nil, err
		}
		watches.Go(func() {
			for err == nil {
				for e := range w.ResultChan() {
					f.handleObject(e.Object)
				}
				if watching.Err() != nil {
					return
				}
				// An API server may end a watch, and tells the next one all there is.
				w, err = b.admin.Watch(watching, list, client.InNamespace(executor), client.MatchingFieldsSelector{Selector: of})
			}
			f.failWaiters(err)
		})
	}
	b.onStop(func() error { cancel(); watches.Wait(); return nil })
	return f, nil
}

// failWaiters has everybody know who waits.
func (f *follower) failWaiters(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
	close(f.moved)
	f.moved = make(chan struct{})
}

func (f *follower) handleObject(o runtime.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch o := o.(type) {
	case *v1alpha1.KubernetesExecution:
		f.executions[o.Name] = o
		f.markSeen(o.Name + "/" + string(o.Status.Phase))
		if o.Status.Phase == v1alpha1.PhaseFailed {
			f.failed = fmt.Errorf("execution %q failed: %s: %s", o.Name, o.Status.ReasonDetail, o.Status.Message)
		}
		if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionAuditRecorded) && len(o.Finalizers) == 0 {
			f.markSeen(o.Name + "/" + recorded)
		}
	case *batchv1.Job:
		for _, c := range o.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				f.markSeen(o.Name + "/" + string(c.Type))
			}
			if c.Status == corev1.ConditionTrue && c.Type == batchv1.JobFailed {
				f.failed = fmt.Errorf("the Job %q failed: %s", o.Name, c.Message)
			}
		}
	}
}

func (f *follower) markSeen(what string) {
	if _, known := f.at[what]; known {
		return
	}
	f.at[what] = time.Now()
	close(f.moved)
	f.moved = make(chan struct{})
}

// awaitSeen gives when something was seen first, such as name/completed.
func (f *follower) awaitSeen(ctx context.Context, what string) (time.Time, error) {
	for {
		f.mu.Lock()
		at, moved, failed := f.at[what], f.moved, f.failed
		f.mu.Unlock()
		switch {
		case !at.IsZero():
			return at, nil
		case failed != nil:
			return at, failed
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return at, fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
}

// execution is one as it was seen last.
func (f *follower) execution(name string) *v1alpha1.KubernetesExecution {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.executions[name]
}
