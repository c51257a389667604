package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A check is one rule for adapters.
type check struct {
	name string
	run  func(context.Context, *fixture) error
}

func checks() []check {
	return []check{
		{"BecomesAvailable", checkBecomesAvailable},
		{"ReportsNewGeneration", checkNewGeneration},
		{"WaitsForOthers", checkWaitsForOtherAdapters},
		{"ReportsWhenNothingToDo", checkNoEffectsWhenUnchanged},
		{"RepeatedEventIsHarmless", checkRepeatedEventIsHarmless},
		{"CrashBeforeReport", checkCrash},
		{"DeletionEndsInFinalized", checkDeletionAndCleanup},
		{"DeletionBeforeAnyWork", checkDeletionBeforeAnyWork},
		{"CrashBeforeFinalized", checkCrashBeforeFinalized},
		{"FailureIsReportedAndRetried", checkFailureRetried},
		{"FailedDeletionIsNotFinalized", checkFailedDeletionRetried},
		{"SeveralResources", checkConcurrentResources},
		{"CancelledContext", checkReconcileStopsOnCancel},
	}
}

func checkBecomesAvailable(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	before := b.Effects(b.id)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		return b.wantNewEffects(before, "the resource is available")
	})
}

func checkNewGeneration(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		before := b.Effects(b.id)
		b.updateResource(func(r *v1.Resource) { r.Spec = b.NewSpec })
		b.reportOthersAvailable(b.id)
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable); err != nil || bytes.Equal(b.Spec, b.NewSpec) {
			return err
		}
		return b.wantNewEffects(before, "the new spec is available")
	})
}

// checkWaitsForOtherAdapters checks that an unmet precondition is reported, and blocks only while it is unmet.
func checkWaitsForOtherAdapters(ctx context.Context, b *fixture) error {
	b.createResource(b.id, false)
	before := b.Effects(b.id)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		report, e, err := b.publishAndAwaitValidReport(ctx, b.id)
		if err != nil {
			return err
		}
		if statusIn(report, v1.ConditionAvailable) == v1.ConditionTrue || statusIn(report, v1.ConditionHealth) != v1.ConditionTrue {
			return fmt.Errorf("before the other adapters are available, the report has %v; want Available False and Health True", report.Conditions)
		}
		if err := errors.Join(b.awaitAcknowledgement(ctx, e), b.wantEffects(before, "an event before the other adapters were available")); err != nil {
			return err
		}
		b.reportOthersAvailable(b.id)
		_, err = b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable)
		return err
	})
}

func checkNoEffectsWhenUnchanged(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		before := b.Effects(b.id)
		for range 3 {
			report, e, err := b.publishAndAwaitValidReport(ctx, b.id)
			if err != nil {
				return err
			}
			if statusIn(report, v1.ConditionAvailable) != v1.ConditionTrue {
				return fmt.Errorf("when nothing is to do, the report has %v; want Available True", report.Conditions)
			}
			if err := b.awaitAcknowledgement(ctx, e); err != nil {
				return err
			}
		}
		return b.wantEffects(before, "an event without a change")
	})
}

// checkRepeatedEventIsHarmless delivers the same event to a new process, which does not know that it was handled.
func checkRepeatedEventIsHarmless(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	var e adapter.Event
	if err := b.withAdapter(ctx, func(ctx context.Context) (err error) {
		e, err = b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable)
		return err
	}); err != nil {
		return err
	}
	before := b.Effects(b.id)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		return errors.Join(b.redeliverAndWantCondition(ctx, e, v1.ConditionAvailable), b.wantEffects(before, "a repeated event"))
	})
}

// redeliverAndWantCondition delivers an event again, and checks that the report has the condition.
func (b *fixture) redeliverAndWantCondition(ctx context.Context, e adapter.Event, condition string) error {
	b.fleet.mu.Lock()
	before := len(b.fleet.reports[b.id])
	b.fleet.mu.Unlock()
	b.fleet.redeliver(e)
	report, err := b.awaitReport(ctx, b.id, before)
	if err != nil {
		return err
	}
	if statusIn(report, condition) != v1.ConditionTrue {
		return fmt.Errorf("the repeated event was answered by %v; want %s True", report.Conditions, condition)
	}
	return b.awaitAcknowledgement(ctx, e)
}

func checkCrash(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	return b.crashAndWantNoNewEffects(ctx, v1.ConditionAvailable)
}

// crashAndWantNoNewEffects ends the process when it has done its work and before the report with the condition is
// stored, and lets a new process finish.
func (b *fixture) crashAndWantNoNewEffects(ctx context.Context, condition string) error {
	lost := false
	b.fleet.changeAndNotify(func() {
		b.fleet.lose = func(r v1.Report) bool {
			lost = lost || statusIn(r, condition) == v1.ConditionTrue
			return lost
		}
	})
	err := b.withAdapter(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, b.Timeout)
		defer cancel()
		for {
			b.fleet.publish(b.id)
			tick, stop := context.WithTimeout(ctx, 20*time.Millisecond)
			err := b.fleet.await(tick, func() error {
				if !lost {
					return fmt.Errorf("no report with %s within %s", condition, b.Timeout)
				}
				return nil
			})
			stop()
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	before := b.Effects(b.id)
	b.fleet.changeAndNotify(func() { b.fleet.lose = func(v1.Report) bool { return false } })
	return b.withAdapter(ctx, func(ctx context.Context) error {
		_, err := b.publishUntilConditionTrue(ctx, b.id, condition)
		if err == nil {
			err = b.awaitAllAcknowledgements(ctx) // also to the events of the first process, which repeat the work
		}
		return errors.Join(err, b.wantEffects(before, "an event after a crash between the work and its report"))
	})
}

func checkDeletionAndCleanup(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	none := b.Effects(b.id)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		b.requestDeletion()
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionFinalized); err != nil {
			return err
		}
		return b.wantEffects(none, "a resource that was created and finalized")
	})
}

// checkDeletionBeforeAnyWork deletes a resource on which the adapter, and those before it, never worked.
func checkDeletionBeforeAnyWork(ctx context.Context, b *fixture) error {
	b.createResource(b.id, false)
	b.requestDeletion()
	return b.withAdapter(ctx, func(ctx context.Context) error {
		_, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionFinalized)
		return err
	})
}

func checkCrashBeforeFinalized(ctx context.Context, b *fixture) error {
	if err := checkBecomesAvailable(ctx, b); err != nil {
		return err
	}
	b.requestDeletion()
	return b.crashAndWantNoNewEffects(ctx, v1.ConditionFinalized)
}

func checkFailureRetried(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	repair := sync.OnceFunc(b.Break())
	defer repair()
	return b.withAdapter(ctx, func(ctx context.Context) error {
		report, e, err := b.publishAndAwaitValidReport(ctx, b.id)
		if err != nil {
			return err
		}
		if statusIn(report, v1.ConditionAvailable) != v1.ConditionFalse {
			return fmt.Errorf("after a failure, the report has %v; want Available False. Or Break did not make the work fail", report.Conditions)
		}
		repair()
		if err := b.awaitAcknowledgement(ctx, e); err != nil {
			return fmt.Errorf("after the repair, the retry of the event: %w", err)
		}
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable); err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		return nil
	})
}

// checkFailedDeletionRetried checks that a failed cleanup is not reported as done, and is retried.
func checkFailedDeletionRetried(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		repair := sync.OnceFunc(b.Break())
		defer repair()
		b.requestDeletion()
		report, _, err := b.publishAndAwaitValidReport(ctx, b.id)
		if err != nil {
			return err
		}
		if statusIn(report, v1.ConditionFinalized) == v1.ConditionTrue {
			return fmt.Errorf(
				"after a failed cleanup, the report has %v; want no Finalized True. Or Break did not make the cleanup fail",
				report.Conditions,
			)
		}
		repair()
		if _, err := b.publishUntilConditionTrue(ctx, b.id, v1.ConditionFinalized); err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		return nil
	})
}

// checkConcurrentResources reconciles several resources at the same time. The race detector makes it stricter.
func checkConcurrentResources(ctx context.Context, b *fixture) error {
	return b.withAdapter(ctx, func(ctx context.Context) error {
		errs := make([]error, adapter.DefaultConcurrency)
		var work sync.WaitGroup
		for i := range errs {
			id := fmt.Sprintf("%s-%d", b.id, i)
			b.createResource(id, true)
			work.Go(func() { _, errs[i] = b.publishUntilConditionTrue(ctx, id, v1.ConditionAvailable) })
		}
		work.Wait()
		return errors.Join(errs...)
	})
}

// checkReconcileStopsOnCancel checks that Reconcile returns when its context has ended, with any result.
func checkReconcileStopsOnCancel(ctx context.Context, b *fixture) error {
	b.createResource(b.id, true)
	resource, err := b.fleet.Get(ctx, b.Collection, b.id)
	if err != nil {
		return err
	}
	reports, err := b.fleet.Statuses(ctx, b.Collection, b.id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	done := make(chan struct{})
	reconciler := b.Open()
	go func() {
		defer close(done)
		_, _ = reconciler.Reconcile(ctx, adapter.Resource{Resource: resource, Collection: b.Collection, Reports: reports})
	}()
	timer := time.NewTimer(b.Timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("Reconcile did not return within %s after its context ended", b.Timeout)
	}
}
