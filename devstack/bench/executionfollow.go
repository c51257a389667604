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

// recorded is a follower's name for the final state: the audit is durable, and the object has no
// finalizer.
const recorded = "recorded"

// A follower records when a watching administrator first sees a phase of an execution, or a
// complete Job.
type follower struct {
	mu         sync.Mutex
	at         map[string]time.Time // by name/phase
	executions map[string]*v1alpha1.KubernetesExecution
	failed     error
	moved      chan struct{} // closed and replaced after each change
}

// settled selects executions that have made progress or failed. A follower of only these halves the
// events from the API server.
const settled = "status.phase!=,status.phase!=executing"

// watchExecutionsAndJobs watches the executions that a field selector selects, until the bed stops.
func (b *executionBed) watchExecutionsAndJobs(ctx context.Context, executionSelector string) (*follower, error) {
	selector, err := fields.ParseSelector(executionSelector)
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
					f.recordObjectState(e.Object)
				}
				if watching.Err() != nil {
					return
				}
				// An API server may end a watch; the next watch starts with all objects.
				w, err = b.admin.Watch(watching, list, client.InNamespace(executor), client.MatchingFieldsSelector{Selector: of})
			}
			f.failWaiters(err)
		})
	}
	b.onStop(func() error { cancel(); watches.Wait(); return nil })
	return f, nil
}

// failWaiters sends an error to all waiters.
func (f *follower) failWaiters(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
	close(f.moved)
	f.moved = make(chan struct{})
}

func (f *follower) recordObjectState(o runtime.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch o := o.(type) {
	case *v1alpha1.KubernetesExecution:
		f.executions[o.Name] = o
		f.recordFirstSeen(o.Name + "/" + string(o.Status.Phase))
		if o.Status.Phase == v1alpha1.PhaseFailed {
			f.failed = fmt.Errorf("execution %q failed: %s: %s", o.Name, o.Status.ReasonDetail, o.Status.Message)
		}
		if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionAuditRecorded) && len(o.Finalizers) == 0 {
			f.recordFirstSeen(o.Name + "/" + recorded)
		}
	case *batchv1.Job:
		for _, c := range o.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				f.recordFirstSeen(o.Name + "/" + string(c.Type))
			}
			if c.Status == corev1.ConditionTrue && c.Type == batchv1.JobFailed {
				f.failed = fmt.Errorf("the Job %q failed: %s", o.Name, c.Message)
			}
		}
	}
}

func (f *follower) recordFirstSeen(state string) {
	if _, known := f.at[state]; known {
		return
	}
	f.at[state] = time.Now()
	close(f.moved)
	f.moved = make(chan struct{})
}

// awaitSeen returns when a state was first seen, such as name/completed.
func (f *follower) awaitSeen(ctx context.Context, state string) (time.Time, error) {
	for {
		f.mu.Lock()
		at, moved, failed := f.at[state], f.moved, f.failed
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
			return at, fmt.Errorf("wait for %s: %w", state, context.Cause(ctx))
		}
	}
}

// execution returns the last seen state of an execution.
func (f *follower) execution(name string) *v1alpha1.KubernetesExecution {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.executions[name]
}
