package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A fixture is the fleet, the resource and the suite of one check.
type fixture struct {
	Suite

	fleet        *fakeFleet
	id           string
	showsEffects bool
}

// createResource creates a resource, and reports of the adapters that it waits for if ready.
func (b *fixture) createResource(id string, othersAvailable bool) {
	b.fleet.changeAndNotify(func() {
		b.fleet.resources[id] = v1.Resource{
			ID: id, Name: id, Generation: 1, Labels: maps.Clone(b.Labels), Spec: b.Spec, CreatedTime: time.Now(), UpdatedTime: time.Now(),
			Status: v1.Status{Phase: v1.PhasePending},
		}
	})
	if othersAvailable {
		b.reportOthersAvailable(id)
	}
}

// reportOthersAvailable reports the current generation as available for the adapters that this one waits for.
func (b *fixture) reportOthersAvailable(id string) {
	b.fleet.changeAndNotify(func() {
		if b.fleet.statuses[id] == nil {
			b.fleet.statuses[id] = map[string]v1.AdapterStatus{}
		}
		for _, name := range b.After {
			b.fleet.statuses[id][name] = v1.AdapterStatus{
				Adapter: name, ObservedGeneration: b.fleet.resources[id].Generation, LastReportTime: time.Now(),
				Conditions: []v1.AdapterCondition{{ReportCondition: v1.ReportCondition{Type: v1.ConditionAvailable, Status: v1.ConditionTrue}}},
			}
		}
	})
}

// updateResource changes the resource, which raises its generation.
func (b *fixture) updateResource(change func(*v1.Resource)) {
	b.fleet.changeAndNotify(func() {
		r := b.fleet.resources[b.id]
		r.Generation++
		change(&r)
		b.fleet.resources[b.id] = r
	})
}

func (b *fixture) requestDeletion() {
	now := time.Now()
	b.updateResource(func(r *v1.Resource) { r.DeletedTime = &now })
}

// startAdapter runs a process of the adapter. stop ends it; crash ends it without the time to finish.
func (b *fixture) startAdapter(ctx context.Context, r adapter.Reconciler) (stop func() error, err error) {
	a, err := adapter.New(adapter.Config{
		Name: b.Name, Collections: []string{b.Collection}, RetryDelay: 10 * time.Millisecond, MaxRetryDelay: 50 * time.Millisecond,
		Timeout: b.Timeout, StopTimeout: -1, MaxAttempts: math.MaxInt, // a repair may take longer than the attempts of an event
	}, r, adapter.Deps{Consumer: b.fleet, Fleet: b.fleet})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return func() error {
		cancel()
		timer := time.NewTimer(b.Timeout)
		defer timer.Stop()
		select {
		case err := <-done:
			return err
		case <-timer.C:
			return fmt.Errorf("the adapter did not stop within %s: Reconcile must return when its context ends", b.Timeout)
		}
	}, nil
}

// withAdapter runs f while a new process of the adapter runs.
func (b *fixture) withAdapter(ctx context.Context, f func(context.Context) error) error {
	stop, err := b.startAdapter(ctx, b.Open())
	if err != nil {
		return err
	}
	err = f(ctx)
	return errors.Join(err, stop())
}

// publishAndAwaitValidReport publishes an event and returns the report that answers it, which it checks.
func (b *fixture) publishAndAwaitValidReport(ctx context.Context, id string) (v1.Report, adapter.Event, error) {
	begin := time.Now()
	b.fleet.mu.Lock()
	before := len(b.fleet.reports[id])
	b.fleet.mu.Unlock()
	e := b.fleet.publish(id)
	report, err := b.awaitReport(ctx, id, before)
	if err != nil {
		return report, e, err
	}
	return report, e, b.checkReportFields(id, report, begin)
}

// awaitReport waits for a report after the first ones.
func (b *fixture) awaitReport(ctx context.Context, id string, knownReports int) (report v1.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	err = b.fleet.await(ctx, func() error {
		if n := len(b.fleet.reports[id]); n > knownReports {
			report = b.fleet.reports[id][n-1]
			return nil
		}
		return fmt.Errorf("the event was not answered by a report within %s", b.Timeout)
	})
	return report, err
}

// checkReportFields checks what every report must have.
func (b *fixture) checkReportFields(id string, received v1.Report, notBefore time.Time) error {
	b.fleet.mu.Lock()
	resource := b.fleet.resources[id]
	b.fleet.mu.Unlock()
	switch {
	case received.Adapter != b.Name:
		return fmt.Errorf("the report is of adapter %q, want %q", received.Adapter, b.Name)
	case received.ObservedGeneration != resource.Generation:
		return fmt.Errorf("the report has observed generation %d, want %d", received.ObservedGeneration, resource.Generation)
	case received.ObservedTime.Before(notBefore.UTC().Truncate(time.Microsecond)) || received.ObservedTime.After(time.Now()):
		return fmt.Errorf("the report has observed time %s, want a time after the event at %s", received.ObservedTime, notBefore)
	case statusIn(received, v1.ConditionAvailable) == "" || statusIn(received, v1.ConditionHealth) == "":
		return fmt.Errorf("the report has conditions %v, want Available and Health among them", received.Conditions)
	case statusIn(received, v1.ConditionFinalized) == v1.ConditionTrue && resource.DeletedTime == nil:
		return errors.New("the report has the condition Finalized, but the resource is not being deleted")
	}
	return nil
}

// statusIn returns the status of a condition, or empty.
func statusIn(r v1.Report, condition string) v1.ConditionStatus {
	i := slices.IndexFunc(r.Conditions, func(c v1.ReportCondition) bool { return c.Type == condition })
	if i < 0 {
		return ""
	}
	return r.Conditions[i].Status
}

// publishUntilConditionTrue publishes events, as the sentinel does, until a report has the condition.
func (b *fixture) publishUntilConditionTrue(ctx context.Context, id, condition string) (adapter.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	for {
		report, e, err := b.publishAndAwaitValidReport(ctx, id)
		switch {
		case err != nil:
			return e, err
		case statusIn(report, condition) == v1.ConditionTrue:
			return e, b.awaitAcknowledgement(ctx, e)
		}
		pause := time.NewTimer(10 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return e, fmt.Errorf(
				"no report with %s within %s; the last one has %v. If it needs other adapters, labels or a spec, set Suite.After, Suite.Labels or Suite.Spec",
				condition,
				b.Timeout,
				report.Conditions,
			)
		}
	}
}

// awaitAcknowledgement waits until the adapter has acknowledged an event.
func (b *fixture) awaitAcknowledgement(ctx context.Context, e adapter.Event) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	var answer error
	err := b.fleet.await(ctx, func() error {
		var ok bool
		if answer, ok = b.fleet.answers[e.ID]; !ok {
			return fmt.Errorf("the event was not acknowledged within %s", b.Timeout)
		}
		return nil
	})
	if answer != nil {
		return fmt.Errorf("the event was dead-lettered: %w", answer)
	}
	return err
}

// awaitAllAcknowledgements waits until the adapter has answered every event, so that it does no work.
func (b *fixture) awaitAllAcknowledgements(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	return b.fleet.await(ctx, func() error {
		if n := b.fleet.events - len(b.fleet.answers); n > 0 {
			return fmt.Errorf("%d of %d events were not acknowledged within %s", n, b.fleet.events, b.Timeout)
		}
		return nil
	})
}

// wantEffects checks that nothing outside the fleet has changed.
func (b *fixture) wantEffects(before, after string) error {
	if got := b.Effects(b.id); got != before {
		return fmt.Errorf("%s changed the effects of the adapter: they were\n%s\nand are\n%s", after, before, got)
	}
	return nil
}

// wantNewEffects checks that something outside the fleet has changed, if the suite shows effects.
func (b *fixture) wantNewEffects(before, when string) error {
	if b.showsEffects && b.Effects(b.id) == before {
		return fmt.Errorf(
			"%s, but the effects of the adapter are the same as before:\n%s\nThe work was not done, or Effects does not show it",
			when,
			before,
		)
	}
	return nil
}
