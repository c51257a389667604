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
		{"BecomesAvailable", checkAvailable},
		{"ReportsNewGeneration", checkNewGeneration},
		{"WaitsForOthers", checkWaiting},
		{"ReportsWhenNothingToDo", checkNothingToDo},
		{"RepeatedEventIsHarmless", checkRedelivery},
		{"CrashBeforeReport", checkCrash},
		{"DeletionEndsInFinalized", checkDeletion},
		{"DeletionBeforeAnyWork", checkDeletionOnly},
		{"CrashBeforeFinalized", checkDeletionCrash},
		{"FailureIsReportedAndRetried", checkFailure},
		{"FailedDeletionIsNotFinalized", checkDeletionFailure},
		{"SeveralResources", checkSeveral},
		{"CancelledContext", checkCancelled},
	}
}

func checkAvailable(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
	before := b.Effects(b.id)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		return b.wantNewEffects(before, "the resource is available")
	})
}

func checkNewGeneration(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		before := b.Effects(b.id)
		b.update(func(r *v1.Resource) { r.Spec = b.NewSpec })
		b.reportOthers(b.id)
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionAvailable); err != nil || bytes.Equal(b.Spec, b.NewSpec) {
			return err
		}
		return b.wantNewEffects(before, "the new spec is available")
	})
}

// checkWaiting checks that an unmet precondition is reported, and blocks only while it is unmet.
func checkWaiting(ctx context.Context, b *fixture) error {
	b.create(b.id, false)
	before := b.Effects(b.id)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		report, e, err := b.evaluate(ctx, b.id)
		if err != nil {
			return err
		}
		if statusIn(report, v1.ConditionAvailable) == v1.ConditionTrue || statusIn(report, v1.ConditionHealth) != v1.ConditionTrue {
			return fmt.Errorf("before the other adapters are available, the report has %v; want Available False and Health True", report.Conditions)
		}
		if err := errors.Join(b.awaitAnswer(ctx, e), b.wantEffects(before, "an event before the other adapters were available")); err != nil {
			return err
		}
		b.reportOthers(b.id)
		_, err = b.evaluateUntil(ctx, b.id, v1.ConditionAvailable)
		return err
	})
}

func checkNothingToDo(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		before := b.Effects(b.id)
		for range 3 {
			report, e, err := b.evaluate(ctx, b.id)
			if err != nil {
				return err
			}
			if statusIn(report, v1.ConditionAvailable) != v1.ConditionTrue {
				return fmt.Errorf("when nothing is to do, the report has %v; want Available True", report.Conditions)
			}
			if err := b.awaitAnswer(ctx, e); err != nil {
				return err
			}
		}
		return b.wantEffects(before, "an event without a change")
	})
}

// checkRedelivery delivers the same event to a new process, which does not know that it was handled.
func checkRedelivery(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
	var e adapter.Event
	if err := b.withAdapter(ctx, func(ctx context.Context) (err error) {
		e, err = b.evaluateUntil(ctx, b.id, v1.ConditionAvailable)
		return err
	}); err != nil {
		return err
	}
	before := b.Effects(b.id)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		return errors.Join(b.redeliver(ctx, e, v1.ConditionAvailable), b.wantEffects(before, "a repeated event"))
	})
}

// redeliver delivers an event again, and checks that the report has the condition.
func (b *fixture) redeliver(ctx context.Context, e adapter.Event, condition string) error {
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
	return b.awaitAnswer(ctx, e)
}

func checkCrash(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
	return b.crashBefore(ctx, v1.ConditionAvailable)
}

// crashBefore ends the process when it has done its work and before the report with the condition is
// stored, and lets a new process finish.
func (b *fixture) crashBefore(ctx context.Context, condition string) error {
	lost := false
	b.fleet.change(func() {
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
	b.fleet.change(func() { b.fleet.lose = func(v1.Report) bool { return false } })
	return b.withAdapter(ctx, func(ctx context.Context) error {
		_, err := b.evaluateUntil(ctx, b.id, condition)
		if err == nil {
			err = b.awaitAllAnswers(ctx) // also to the events of the first process, which repeat the work
		}
		return errors.Join(err, b.wantEffects(before, "an event after a crash between the work and its report"))
	})
}

func checkDeletion(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
	none := b.Effects(b.id)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		b.requestDeletion()
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionFinalized); err != nil {
			return err
		}
		return b.wantEffects(none, "a resource that was created and finalized")
	})
}

// checkDeletionOnly deletes a resource on which the adapter, and those before it, never worked.
func checkDeletionOnly(ctx context.Context, b *fixture) error {
	b.create(b.id, false)
	b.requestDeletion()
	return b.withAdapter(ctx, func(ctx context.Context) error {
		_, err := b.evaluateUntil(ctx, b.id, v1.ConditionFinalized)
		return err
	})
}

func checkDeletionCrash(ctx context.Context, b *fixture) error {
	if err := checkAvailable(ctx, b); err != nil {
		return err
	}
	b.requestDeletion()
	return b.crashBefore(ctx, v1.ConditionFinalized)
}

func checkFailure(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
	repair := sync.OnceFunc(b.Break())
	defer repair()
	return b.withAdapter(ctx, func(ctx context.Context) error {
		report, e, err := b.evaluate(ctx, b.id)
		if err != nil {
			return err
		}
		if statusIn(report, v1.ConditionAvailable) != v1.ConditionFalse {
			return fmt.Errorf("after a failure, the report has %v; want Available False. Or Break did not make the work fail", report.Conditions)
		}
		repair()
		if err := b.awaitAnswer(ctx, e); err != nil {
			return fmt.Errorf("after the repair, the retry of the event: %w", err)
		}
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionAvailable); err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		return nil
	})
}

// checkDeletionFailure checks that a failed cleanup is not reported as done, and is retried.
func checkDeletionFailure(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
	return b.withAdapter(ctx, func(ctx context.Context) error {
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionAvailable); err != nil {
			return err
		}
		repair := sync.OnceFunc(b.Break())
		defer repair()
		b.requestDeletion()
		report, _, err := b.evaluate(ctx, b.id)
		if err != nil {
			return err
		}
		if statusIn(report, v1.ConditionFinalized) == v1.ConditionTrue {
			return fmt.Errorf("after a failed cleanup, the report has %v; want no Finalized True. Or Break did not make the cleanup fail", report.Conditions)
		}
		repair()
		if _, err := b.evaluateUntil(ctx, b.id, v1.ConditionFinalized); err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		return nil
	})
}

// checkSeveral reconciles several resources at the same time. The race detector makes it stricter.
func checkSeveral(ctx context.Context, b *fixture) error {
	return b.withAdapter(ctx, func(ctx context.Context) error {
		errs := make([]error, adapter.DefaultConcurrency)
		var work sync.WaitGroup
		for i := range errs {
			id := fmt.Sprintf("%s-%d", b.id, i)
			b.create(id, true)
			work.Go(func() { _, errs[i] = b.evaluateUntil(ctx, id, v1.ConditionAvailable) })
		}
		work.Wait()
		return errors.Join(errs...)
	})
}

// checkCancelled checks that Reconcile returns when its context has ended, with any result.
func checkCancelled(ctx context.Context, b *fixture) error {
	b.create(b.id, true)
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
