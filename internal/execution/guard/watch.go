package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// observeInterval is the interval of observations without any change.
	observeInterval = 30 * time.Second
	// observeRetryDelay is the interval of observations while the guard is missing. API servers
	// enforce new policies one or two seconds after they receive them.
	observeRetryDelay = 2 * time.Second
	// observeTimeout limits an observation.
	observeTimeout = 10 * time.Second
	// observationTTL is how long a good observation stays valid if none succeeds after it.
	observationTTL = 90 * time.Second
)

var (
	errObserveTimeout = fmt.Errorf("the API server did not answer within %s", observeTimeout)
	errNotObserved    = errors.New("not checked yet")
)

// Watch monitors whether the guard is in force, and since when without a gap.
type Watch struct {
	// observe returns the state of the guard, or why it is missing. It returns an unknownError if
	// that cannot be determined.
	observe func(ctx context.Context) (observation, error)
	// readVersions returns only the versions of the objects.
	readVersions func(ctx context.Context) (string, error)
	// watchObjects calls changed when the objects of the guard change, until ctx ends.
	watchObjects func(ctx context.Context, changed func())

	log        *slog.Logger
	observing  chan struct{} // allows one observation at a time
	confirming chan struct{} // allows one read of the versions at a time

	mu         sync.Mutex
	missing    error     // result of the last observation that was not unknown
	observedAt time.Time // time of that observation
	unknown    error     // error of later observations that were unknown
	seen       observation
	next       *confirmation // not started yet
}

// observation is the result of an observation of the guard.
type observation struct {
	objects string // UIDs and generations of the objects
	period  Period
}

// confirmation is one check that all concurrent callers of Confirm share.
type confirmation struct {
	done   chan struct{}
	period Period
	err    error
}

// unknownError is the error if it cannot be determined whether the guard is in force.
type unknownError struct{ error }

// Unwrap returns the cause.
func (e unknownError) Unwrap() error { return e.error }

// IsUnknown reports whether an error of a Watch means that the state of the guard is unknown, and
// not that the guard is missing.
func IsUnknown(err error) bool {
	_, unknown := errors.AsType[unknownError](err)
	return unknown || errors.Is(err, errNotObserved)
}

// New creates a Watch for the guard that Objects describes for the same options. The user of cfg
// needs to list and watch validatingadmissionpolicies and validatingadmissionpolicybindings, to
// create executions with dry run, and to write the Lease RecordName. propagation is how long API
// servers take to enforce a change; zero means DefaultPropagation. Changes of the guard's state are
// logged.
func New(cfg *rest.Config, o Options, propagation time.Duration, log *slog.Logger) (*Watch, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("watch admission policies: %w", err)
	}
	o = o.withDefaults()
	servers, err := newAPIServers(cfg, client, o.Namespace)
	if err != nil {
		return nil, fmt.Errorf("watch admission policies: %w", err)
	}
	propagation = cmp.Or(propagation, DefaultPropagation)
	record := &periodRecord{client: client, namespace: o.Namespace, propagation: propagation}
	l := observer{options: o, client: client, servers: servers, record: record}
	w := newWatch(l.observeAndRecordPeriod, l.readVerifiedVersions, l.watchObjects)
	w.log = log
	return w, nil
}

func newWatch(
	observe func(context.Context) (observation, error),
	readVersions func(context.Context) (string, error),
	watchObjects func(context.Context, func()),
) *Watch {
	return &Watch{
		observe:      observe,
		readVersions: readVersions,
		watchObjects: watchObjects,
		log:          slog.New(slog.DiscardHandler),
		observing:    make(chan struct{}, 1),
		confirming:   make(chan struct{}, 1),
		missing:      errNotObserved,
	}
}

// Run observes the guard immediately, on every change of its objects, and every 30 seconds, until
// ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { w.watchObjects(ctx, func() { signalChange(changed) }) })
	for ctx.Err() == nil {
		next := observeInterval
		if err := w.observeOnce(ctx); err != nil {
			next = observeRetryDelay
			if settling, ok := errors.AsType[settlingError](err); ok {
				next = min(next, time.Until(settling.until))
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

func (w *Watch) observeOnce(ctx context.Context) error {
	w.observing <- struct{}{}
	defer func() { <-w.observing }()
	ctx, cancel := context.WithTimeoutCause(ctx, observeTimeout, errObserveTimeout)
	defer cancel()
	seen, err := w.observe(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if IsUnknown(err) {
		w.unknown = err
		return err
	}
	w.logIfChanged(ctx, err)
	w.missing, w.unknown = err, nil
	w.seen, w.observedAt = seen, time.Now()
	return err
}

// logIfChanged logs changes since the last observation.
func (w *Watch) logIfChanged(ctx context.Context, err error) {
	before := w.missing
	if err != nil && before != nil && before.Error() == err.Error() {
		return
	}
	settling, isSettling := errors.AsType[settlingError](err)
	switch {
	case isSettling:
		w.log.InfoContext(ctx, "admission policies found, waiting for every API server to enforce them", "until", settling.until.UTC())
	case err != nil:
		w.log.ErrorContext(ctx,
			"admission policies not in force, executions and approvals are not accepted: apply deploy/admission-policies", "err", err)
	case before != nil:
		w.log.InfoContext(ctx, "admission policies in force")
	}
}

// Missing returns why the guard is not in force. Nil means that it is.
func (w *Watch) Missing() error {
	_, err := w.Period()
	return err
}

// Ready returns Missing as a readiness error: without the guard, executions are not accepted.
func (w *Watch) Ready() error {
	if err := w.Missing(); err != nil {
		return fmt.Errorf("executions are not accepted, the admission policies that verify requesters are not in force: %w", err)
	}
	return nil
}

// Period returns the last observed period, or why none exists.
func (w *Watch) Period() (Period, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stillValid := w.missing == nil && time.Since(w.observedAt) < observationTTL
	if w.unknown != nil && !stillValid {
		return Period{}, w.unknown
	}
	return w.seen.period, w.missing
}

// Confirm returns Period after a check that begins after the call. All writes before the call and
// since the begin of the period were checked.
func (w *Watch) Confirm(ctx context.Context) (Period, error) {
	w.mu.Lock()
	c := w.next
	first := c == nil
	if first {
		c = &confirmation{done: make(chan struct{})}
		w.next = c
	}
	w.mu.Unlock()
	if first {
		w.runConfirmation(context.WithoutCancel(ctx), c) // it serves other callers too and has its own timeout
	}
	select {
	case <-c.done:
		return c.period, c.err
	case <-ctx.Done():
		return Period{}, unknownError{fmt.Errorf("check admission policies: %w", context.Cause(ctx))}
	}
}

// runConfirmation reads the object versions. If they differ from the last good observation, it
// observes the guard again.
func (w *Watch) runConfirmation(ctx context.Context, c *confirmation) {
	defer close(c.done)
	objects, err := w.readVersionsExclusively(ctx)
	if err == nil && w.isLastObservationValidFor(objects) {
		c.period, c.err = w.Period()
		return
	}
	if IsUnknown(err) {
		c.err = err
		return
	}
	c.err = w.observeOnce(ctx)
	if c.err == nil {
		c.period, c.err = w.Period()
	}
}

// readVersionsExclusively reads the object versions. It does not wait for a running observation, which
// takes seconds for each API server that does not answer.
func (w *Watch) readVersionsExclusively(ctx context.Context) (versions string, err error) {
	w.confirming <- struct{}{}
	defer func() { <-w.confirming }()
	ctx, cancel := context.WithTimeoutCause(ctx, observeTimeout, errObserveTimeout)
	defer cancel()
	w.mu.Lock()
	w.next = nil // later callers need another confirmation
	w.mu.Unlock()
	return w.readVersions(ctx)
}

// isLastObservationValidFor reports whether the last observation found the guard in force with these object
// versions.
func (w *Watch) isLastObservationValidFor(objects string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	inForce := w.missing == nil && w.unknown == nil
	return inForce && w.seen.objects == objects && time.Since(w.observedAt) < observationTTL
}

// signalChange sends a signal without blocking. A signal that is still pending covers this one.
func signalChange(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
