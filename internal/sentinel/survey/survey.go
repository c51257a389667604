// Package survey looks at a live fleet with the eyes of sentinels that may or
// may not be running, and says what they would do and why.
//
// A Plan is what one configuration would do with the whole collection, Why is
// what it makes of one resource, and Cover is whether several configurations
// leave no resource out and watch none twice. Nothing is changed by any of
// them: they read the fleet API, and one of them a sentinel's record.
//
// A fleet changes while it is read. Each report says when the reading began
// and ended; Cover goes over what changed in between once more, if the API can
// say what that is. Memory is bounded whatever the size of the fleet.
package survey

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/listing"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
)

// A Watch is what one configuration watches, and how it decides.
type Watch struct {
	// Name is what the configuration is called, such as its file.
	Name string

	// Source is the fleet API, and Endpoint its URL. Watches with the same
	// endpoint are taken to see the same fleet.
	Source   listing.Source
	Endpoint string

	Collection string
	Selector   selector.Selector
	Flavour    listing.Flavour
	PageSize   int
	Timeout    time.Duration

	// Profile names the rules and Decider follows them, by Ages.
	Profile string
	Decider Decider
	Ages    decision.Ages

	// Early is by which part of its age a resource falls due early; nil is by
	// none.
	Early func(id []byte) float64

	// Payload makes the data of events.
	Payload *payload.Builder

	// MaxPerSecond is the hard limit of events, 0 if there is none.
	MaxPerSecond float64

	// Certain says that the profile goes by ages, so that the times of events
	// can be told beforehand.
	Certain bool
}

// A Decider says whether a resource is due.
type Decider interface {
	Decide(r *decision.Resource, now time.Time) decision.Verdict
}

// A Count is how many there are of something.
type Count struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// others is the name under which is counted what there is no more room for.
const others = "others"

// decideResource says what the watch makes of a resource, as a sentinel would that has
// just started.
func (w *Watch) decideResource(it *scan.Item, now time.Time) decision.Verdict {
	if w.Early != nil {
		it.Resource.Early = w.Early(it.ID)
	}
	return w.Decider.Decide(&it.Resource, now)
}

// dueSince is since when a resource is due that v calls due. The verdict's own time
// allows for a clock that is ahead.
func dueSince(v decision.Verdict) time.Time {
	if v.Since.After(v.Next) {
		return v.Since
	}
	return v.Next
}

// overdueFor is for how long a resource has been due; 0 if nobody knows.
func overdueFor(v decision.Verdict, now time.Time) time.Duration {
	since := dueSince(v)
	if !v.ShouldPublish || since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since))
}

// A walk reads a whole collection, page by page.
type walk struct {
	source     listing.Source
	collection string
	config     listing.Config
	progress   func(resources int)
}

// newWalk makes a walk over all of a collection that w can see, whatever its
// selector.
func newWalk(w *Watch, collection string, progress func(int)) *walk {
	return &walk{
		source: w.Source, collection: collection, progress: progress,
		config: listing.Config{
			Collection: collection, PageSize: w.PageSize, Timeout: w.Timeout, Flavour: w.Flavour,
		},
	}
}

// retryPolicy is how often in a row a request is made again, and the waits before.
func retryPolicy() backoff.Policy {
	return backoff.Policy{Initial: 500 * time.Millisecond, Max: 5 * time.Second, MaxAttempts: 4}
}

// A visitor takes what a walk reads.
type visitor interface {
	// restartCount is called when the list begins, or begins again; then nothing
	// counts that was visited before.
	restartCount()

	// visitItem takes one resource, read at now. It is valid until visit returns.
	visitItem(it *scan.Item, now time.Time)
}

// walkAll shows every resource to v, and returns the cursor from which on changes
// may not have been seen, empty if the API has none. A page that does not come
// is asked for again for a while, and the walk goes on where it was; but an API
// that can not be reached to begin with is an error at once.
func (k *walk) walkAll(ctx context.Context, v visitor) (cursor string, err error) {
	w := listing.New(k.config, k.source)
	s := scan.New(true)
	var at listing.Place
	met, unreadable := 0, error(nil)
	read := func(pg listing.Page) (scan.Envelope, error) {
		begins := pg.First
		if begins {
			met = 0
			v.restartCount()
		}
		now := time.Now()
		env, err := pg.Scan(s, func(it *scan.Item) error {
			v.visitItem(it, now)
			return nil
		})
		if unreadable = err; err != nil {
			return env, err
		}
		if begins {
			cursor = env.Cursor
		}
		met += env.Items
		k.progress(met)
		return env, nil
	}
	for failures := 0; ; {
		stopped, err := w.Walk(ctx, at, read)
		if err == nil || met == 0 || unreadable != nil || ctx.Err() != nil || isFinal(err) {
			return cursor, err
		}
		if stopped != at {
			failures = 0
		}
		at = stopped
		failures++
		if failures == retryPolicy().MaxAttempts {
			return cursor, err
		}
		after, _ := backoff.RetryAfter(err)
		if err := backoff.Sleep(ctx, max(retryPolicy().Delay(failures-1), min(after, backoff.MaxRetryAfter))); err != nil {
			return cursor, err
		}
	}
}

// isFinal reports whether the same request would be refused again.
func isFinal(err error) bool {
	code := statusOf(err)
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// statusOf is the HTTP status that an error stands for, 0 if for none.
func statusOf(err error) int {
	if e, ok := errors.AsType[interface {
		error
		StatusCode() int
	}](err); ok {
		return e.StatusCode()
	}
	return 0
}

// walkChanges shows what changed since a cursor to v, and the ids of what is gone to
// removed, and returns when there was no more.
func (k *walk) walkChanges(ctx context.Context, cursor string, v visitor, removed func(id []byte)) error {
	const most = 10_000 // pages; a fleet that changes faster than it can be read never settles
	s := scan.New(true)
	var body []byte
	for range most {
		err := backoff.Retry(ctx, retryPolicy(), func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeoutCause(ctx, k.config.Timeout, errTimeout)
			defer cancel()
			body, err = k.source.ListPage(ctx, k.collection, url.Values{"changed_since": {cursor}, "limit": {"500"}}, body)
			if isFinal(err) {
				return backoff.Permanent(err)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list changes of %s: %w", k.collection, err)
		}
		now := time.Now()
		env, err := s.Scan(body, func(it *scan.Item) error {
			v.visitItem(it, now)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read changes of %s: %w", k.collection, err)
		}
		if env.Cursor == "" {
			return fmt.Errorf("read changes of %s: the response has no cursor", k.collection)
		}
		for _, id := range env.Removed {
			removed(id)
		}
		if !env.More {
			return nil
		}
		cursor = env.Cursor
	}
	return errUnsettled
}

var (
	errTimeout   = errors.New("no response in time")
	errUnsettled = errors.New("the fleet changes faster than the changes can be read")
)
