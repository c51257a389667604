package guard

import (
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
	// lookEvery is how often is looked without any reason to.
	observeInterval = 30 * time.Second
	// lookAgain is how soon is looked again while the guard is missing: the API
	// server goes by new policies a second or two after it has them.
	observeRetryDelay = 2 * time.Second
	// lookBound is how long a look may take.
	observeTimeout = 10 * time.Second
	// trust is how long a good look is good for, where none succeeds after it.
	observationTTL = 90 * time.Second
)

var (
	errObserveTimeout = fmt.Errorf("the API server did not answer within %s", observeTimeout)
	errNotObserved    = errors.New("not checked yet")
)

// A Watch knows whether the guard is there, and since when without a gap.
type Watch struct {
	// observe gives what is there, or why the guard is missing. It gives an
	// unknownError if it cannot tell.
	observe func(ctx context.Context) (observation, error)
	// readVersions gives the objects of the guard alone.
	readVersions func(ctx context.Context) (string, error)
	// watchObjects calls back when the objects of the guard change, until ctx ends.
	watchObjects func(ctx context.Context, changed func())

	log        *slog.Logger
	observing  chan struct{} // holds one look at a time
	confirming chan struct{} // holds one look at the objects alone at a time

	mu         sync.Mutex
	missing    error     // what the last look that could tell has said
	observedAt time.Time // when that was
	unknown    error     // why no look could tell since then
	seen       observation
	next       *confirmation // that has not begun
}

// A observation is what a look has seen.
type observation struct {
	objects string // their UIDs and generations
	period  Period
}

// A confirmation is one look for all who wait for it.
type confirmation struct {
	done   chan struct{}
	period Period
	err    error
}

// unknownError is why nobody can tell whether the guard is there.
type unknownError struct{ error }

// Unwrap gives the cause.
func (e unknownError) Unwrap() error { return e.error }

// IsUnknown reports whether an error of a Watch says that it cannot tell, and not
// that the guard is missing.
func IsUnknown(err error) bool {
	unknown := unknownError{}
	return errors.As(err, &unknown) || errors.Is(err, errNotObserved)
}

// New makes a Watch of the guard that Objects of the same options are. As
// whoever cfg is, it lists and watches validatingadmissionpolicies and
// validatingadmissionpolicybindings, creates executions, on trial only, and
// keeps a record in the Lease RecordName. A change of the guard is in force after
// propagation at the latest; zero means DefaultPropagation. The log hears when
// the guard goes and comes.
func New(cfg *rest.Config, o Options, propagation time.Duration, log *slog.Logger) (*Watch, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("watch admission policies: %w", err)
	}
	o = o.withDefaults()
	all, err := newServers(cfg, client, o.Namespace)
	if err != nil {
		return nil, fmt.Errorf("watch admission policies: %w", err)
	}
	if propagation == 0 {
		propagation = DefaultPropagation
	}
	l := observer{
		options: o, client: client, servers: all,
		record: &periodRecord{client: client, namespace: o.Namespace, propagation: propagation},
	}
	w := newWatch(l.observe, l.readVersions, l.watchObjects)
	w.log = log
	return w, nil
}

func newWatch(look func(context.Context) (observation, error), present func(context.Context) (string, error), follow func(context.Context, func())) *Watch {
	return &Watch{
		observe: look, readVersions: present, watchObjects: follow,
		log: slog.New(slog.DiscardHandler), observing: make(chan struct{}, 1), confirming: make(chan struct{}, 1), missing: errNotObserved,
	}
}

// Run looks at once, whenever something about the guard changes, and every 30
// seconds, until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { w.watchObjects(ctx, func() { signalChange(changed) }) })
	for ctx.Err() == nil {
		next := observeInterval
		if err := w.observeOnce(ctx); err != nil {
			next = observeRetryDelay
			if settling := (settlingError{}); errors.As(err, &settling) {
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
	if unknown := (unknownError{}); errors.As(err, &unknown) {
		w.unknown = err
		return err
	}
	w.logChange(ctx, err)
	w.missing, w.observedAt, w.unknown, w.seen = err, time.Now(), nil, seen
	return err
}

// logChange logs what is not as it was at the last look.
func (w *Watch) logChange(ctx context.Context, err error) {
	settling := settlingError{}
	switch before := w.missing; {
	case err != nil && before != nil && before.Error() == err.Error():
	case errors.As(err, &settling):
		w.log.InfoContext(ctx, "admission policies found, waiting for every API server to enforce them", "until", settling.until.UTC())
	case err != nil:
		w.log.ErrorContext(ctx, "admission policies not in force, executions and approvals are not accepted: apply deploy/admission-policies", "err", err)
	case before != nil:
		w.log.InfoContext(ctx, "admission policies in force")
	}
}

// Missing says why the guard cannot be relied on. Nil is that it can.
func (w *Watch) Missing() error {
	_, err := w.Period()
	return err
}

// Ready is Missing for who waits until executions are accepted.
func (w *Watch) Ready() error {
	if err := w.Missing(); err != nil {
		return fmt.Errorf("executions are not accepted, the admission policies that verify requesters are not in force: %w", err)
	}
	return nil
}

// Period is the period of the guard as it was last seen, or why there is none.
func (w *Watch) Period() (Period, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.unknown == nil, w.missing == nil && time.Since(w.observedAt) < observationTTL:
		return w.seen.period, w.missing
	default:
		return Period{}, w.unknown
	}
}

// Confirm is Period by a look that begins after the call: all that was written
// before the call, and since the period began, was checked.
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
		w.runConfirmation(context.WithoutCancel(ctx), c) // for others, too; it has a bound
	}
	select {
	case <-c.done:
		return c.period, c.err
	case <-ctx.Done():
		return Period{}, unknownError{fmt.Errorf("check admission policies: %w", context.Cause(ctx))}
	}
}

// runConfirmation looks at the objects. Where they are not those of the last good look,
// that is made anew.
func (w *Watch) runConfirmation(ctx context.Context, c *confirmation) {
	defer close(c.done)
	objects, err := w.readVersionsOnce(ctx)
	if err == nil && w.isCurrent(objects) {
		c.period, c.err = w.Period()
		return
	}
	if unknown := (unknownError{}); errors.As(err, &unknown) {
		c.err = err
		return
	}
	if c.err = w.observeOnce(ctx); c.err == nil {
		c.period, c.err = w.Period()
	}
}

// readVersionsOnce does not wait for a look, which takes seconds for each API server
// that does not answer, and shares nothing with it.
func (w *Watch) readVersionsOnce(ctx context.Context) (string, error) {
	w.confirming <- struct{}{}
	defer func() { <-w.confirming }()
	ctx, cancel := context.WithTimeoutCause(ctx, observeTimeout, errObserveTimeout)
	defer cancel()
	w.mu.Lock()
	w.next = nil // who comes now needs another
	w.mu.Unlock()
	return w.readVersions(ctx)
}

// isCurrent reports whether the last look has seen the guard in force with objects.
func (w *Watch) isCurrent(objects string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.missing == nil && w.unknown == nil && w.seen.objects == objects && time.Since(w.observedAt) < observationTTL
}

// signalChange does not wait: one that nobody has heard yet says as much as two.
func signalChange(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
