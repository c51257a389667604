package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	// lookEvery is how often is looked without any reason to.
	lookEvery = 30 * time.Second
	// lookAgain is how soon is looked again while the guard is missing: the API
	// server goes by new policies a second or two after it has them.
	lookAgain = 2 * time.Second
	// lookBound is how long a look may take.
	lookBound = 10 * time.Second
	// trust is how long a good look is good for, where none succeeds after it.
	trust = 90 * time.Second
)

var (
	errLookBound = fmt.Errorf("the API server did not answer within %s", lookBound)
	errNoLook    = errors.New("nobody has looked yet")
)

// A Watch knows whether the guard is there.
type Watch struct {
	// look says since when the guard is there, or why it is not. It gives an
	// unknownError if it cannot tell.
	look func(ctx context.Context) (since time.Time, err error)
	// follow calls back when the objects of the guard change, until ctx ends.
	follow func(ctx context.Context, changed func())

	log *slog.Logger

	mu      sync.Mutex
	missing error     // what the last look that could tell has said
	looked  time.Time // when that was
	unknown error     // why no look could tell since then
	since   time.Time
}

// unknownError is why nobody can tell whether the guard is there.
type unknownError struct{ error }

// Unwrap gives the cause.
func (e unknownError) Unwrap() error { return e.error }

// New makes a Watch of the guard that Objects of the same options are. As
// whoever cfg is, it lists and watches validatingadmissionpolicies and
// validatingadmissionpolicybindings, and creates executions, on trial only. The
// log hears when the guard goes and comes.
func New(cfg *rest.Config, o Options, log *slog.Logger) (*Watch, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("watch the guard: %w", err)
	}
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("watch the guard: %w", err)
	}
	o = o.withDefaults()
	l := looker{
		options:    o,
		client:     client,
		executions: objects.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).Namespace(o.Namespace),
	}
	w := newWatch(l.look, l.follow)
	w.log = log
	return w, nil
}

func newWatch(look func(context.Context) (time.Time, error), follow func(context.Context, func())) *Watch {
	return &Watch{look: look, follow: follow, log: slog.New(slog.DiscardHandler), missing: errNoLook}
}

// Run looks at once, whenever something about the guard changes, and every 30
// seconds, until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { w.follow(ctx, func() { signal(changed) }) })
	for ctx.Err() == nil {
		next := lookEvery
		if w.lookOnce(ctx) != nil {
			next = lookAgain
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

func (w *Watch) lookOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lookBound, errLookBound)
	defer cancel()
	since, err := w.look(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if unknown := (unknownError{}); errors.As(err, &unknown) {
		w.unknown = err
		return err
	}
	switch before := w.missing; {
	case err != nil && (before == nil || before.Error() != err.Error()):
		w.log.ErrorContext(ctx, "no approval counts, because nothing checks who approves: apply deploy/guard", "err", err)
	case err == nil && before != nil:
		w.log.InfoContext(ctx, "the admission policies that check who approves are there")
	}
	w.missing, w.looked, w.unknown, w.since = err, time.Now(), nil, since
	return err
}

// Missing says why the guard cannot be relied on. Nil is that it can.
func (w *Watch) Missing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.unknown == nil, w.missing == nil && time.Since(w.looked) < trust:
		return w.missing
	default:
		return w.unknown
	}
}

// MissingFor says why the guard cannot be relied on for an execution: an
// approval of one that was there before the guard can be from anybody.
func (w *Watch) MissingFor(ke *v1alpha1.KubernetesExecution) error {
	if err := w.Missing(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ke.CreationTimestamp.Time.Before(w.since) {
		return fmt.Errorf("the execution was created before the guard was there, at %s: create it again", w.since.UTC().Format(time.RFC3339))
	}
	return nil
}

// signal does not wait: one that nobody has heard yet says as much as two.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
