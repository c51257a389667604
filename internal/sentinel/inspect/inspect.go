// Package inspect inspects a live fleet with the configurations of sentinels that may or may not be
// running, and reports what they would do and why.
//
// A Plan shows what one configuration would do with the whole collection. ExplainDecision explains
// its decision about one resource. CheckCoverage shows whether several configurations select every
// resource exactly once. None of them changes anything: they read the fleet API, and
// ExplainDecision also reads a sentinel's record.
//
// A fleet changes while it is read. Each report has the start and end time of the read; CheckCoverage
// processes the changes in between, if the API can list them. Memory is bounded whatever the size
// of the fleet.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// A Watch is the selection of one configuration, and its rules.
type Watch struct {
	// Name is the name of the configuration, such as its file.
	Name string

	// Source is the fleet API, and Endpoint its URL. Watches with the same endpoint are assumed to
	// see the same fleet.
	Source   source.Lister
	Endpoint string
	// ConfiguredEndpoint is the URL of the fleet API in the configuration. A caller may read another one.
	ConfiguredEndpoint string

	Collection string
	Selector   selector.Selector
	// Part is the part of the selected resources that the configuration watches; nil means all.
	Part     Part
	Flavour  source.Flavour
	PageSize int
	Timeout  time.Duration

	// Profile is the name of the rules. Decider applies them, with Ages.
	Profile string
	Decider Decider
	Ages    decision.Ages

	// Early returns the fraction of its age by which a resource falls due early; nil means none.
	Early func(id []byte) float64

	// Payload builds the data of events.
	Payload *payload.Builder

	// MaxPerSecond is the hard limit of events; 0 means none.
	MaxPerSecond float64

	// Certain says that the profile uses ages, so that the times of events are predictable.
	Certain bool
}

// A Part is one of several parts of a fleet, by the ids of resources. Its text names it.
type Part interface {
	fmt.Stringer
	Owns(id []byte) bool
}

// selectsAndOwns reports whether the configuration watches a resource.
func (w *Watch) selectsAndOwns(it *source.Item) bool {
	return w.Selector.Matches(&it.Labels) && w.ownsID(it.ID)
}

func (w *Watch) ownsID(id []byte) bool { return w.Part == nil || w.Part.Owns(id) }

// formatSelection returns the selector and the part as a text.
func (w *Watch) formatSelection() string {
	if w.Part == nil {
		return w.Selector.String()
	}
	return strings.TrimPrefix(w.Selector.String()+" "+w.Part.String(), " ")
}

// An API is the fleet API of a Watch.
type API interface {
	source.Lister
	Endpoint() string
}

// NewWatch returns the watch of a sentinel's configuration, which is valid. Source and Endpoint are
// api's.
func NewWatch(name string, cfg sentinel.Config, api API) (*Watch, error) {
	sel, errSelector := cfg.BuildLabelSelector()
	decider, errDecider := cfg.NewDecider()
	data, errPayload := payload.New(cfg.MessageData, payload.Keys(cfg.PayloadKeys))
	if err := errors.Join(errSelector, errDecider, errPayload); err != nil {
		return nil, err
	}
	w := &Watch{
		Name:               name,
		Source:             api,
		Endpoint:           api.Endpoint(),
		ConfiguredEndpoint: cfg.HyperfleetAPI.Endpoint,
		Collection:         cfg.ResourceType,
		Selector:           sel,
		Flavour:            cfg.HyperfleetAPI.Flavour,
		PageSize:           cfg.HyperfleetAPI.PageSize,
		Timeout:            cfg.HyperfleetAPI.Timeout,
		Profile:            cfg.Decision.Profile,
		Decider:            decider,
		Ages:               cfg.MaxAges(),
		Payload:            data,
		MaxPerSecond:       cfg.Publish.MaxPerSecond,
		Certain:            cfg.Decision.Profile != sentinel.ProfileExpression,
	}
	if cfg.Jitter > 0 {
		w.Early = cfg.ComputeEarlyFraction
	}
	return w, nil
}

// NewWatchOfSpec returns the watch of a SentinelConfig. Source and Endpoint are api's. The members of
// a dynamic shard group count as one sentinel.
func NewWatchOfSpec(name string, spec *v1alpha1.SentinelConfigSpec, api API) (*Watch, error) {
	translated, err := sentinelconfig.TranslateSpec(spec)
	if err != nil {
		return nil, err
	}
	w, err := NewWatch(name, translated.Sentinel, api)
	if err != nil {
		return nil, err
	}
	if sharding := translated.Sharding; sharding.Mode == v1alpha1.ShardingStatic {
		w.Part, err = shard.NewStaticPart(sharding.Count, sharding.Index)
		if err != nil {
			return nil, err
		}
	}
	return w, nil
}

// A Decider decides whether a resource is due.
type Decider interface {
	Decide(r *decision.Resource, now time.Time) decision.Verdict
}

// A Count is the number of resources with a name.
type Count struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// others is the name for the sum of all counts above the limit.
const others = "others"

// decideResource returns the decision of the watch about a resource, as a sentinel that has just
// started would make it.
func (w *Watch) decideResource(it *source.Item, now time.Time) decision.Verdict {
	if w.Early != nil {
		it.Resource.Early = w.Early(it.ID)
	}
	return w.Decider.Decide(&it.Resource, now)
}

// dueSince returns since when a resource with the verdict due is due. The verdict's own time allows
// for a clock that is ahead.
func dueSince(v decision.Verdict) time.Time {
	if v.Since.After(v.Next) {
		return v.Since
	}
	return v.Next
}

// overdueDuration returns how long a resource has been due; 0 if that is unknown.
func overdueDuration(v decision.Verdict, now time.Time) time.Duration {
	since := dueSince(v)
	if !v.ShouldPublish || since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since))
}

// A collectionWalk reads a whole collection, page by page.
type collectionWalk struct {
	source     source.Lister
	collection string
	config     source.WalkerConfig
	progress   func(resources int)
}

// newWalk returns a walk over all resources that w can see, whatever its selector.
func newWalk(w *Watch, collection string, progress func(int)) *collectionWalk {
	return &collectionWalk{
		source:     w.Source,
		collection: collection,
		progress:   progress,
		config: source.WalkerConfig{
			Collection: collection,
			PageSize:   w.PageSize,
			Timeout:    w.Timeout,
			Flavour:    w.Flavour,
		},
	}
}

// retryPolicy returns how often in a row a request is retried, and the delays.
func retryPolicy() backoff.Policy {
	return backoff.Policy{Initial: 500 * time.Millisecond, Max: 5 * time.Second, MaxAttempts: 4}
}

// A visitor receives the resources of a walk.
type visitor interface {
	// resetCounts is called when the list starts or restarts; earlier visits then no longer count.
	resetCounts()

	// visitItem receives one resource, read at now. It is valid until visitItem returns.
	visitItem(it *source.Item, now time.Time)
}

// walkAllWithRetries passes every resource to v, and returns the cursor after which changes may be
// missing, or an empty one if the API has none. It retries a failed page for a while, and resumes
// the walk there. An API that is unreachable at the start is an error at once.
func (k *collectionWalk) walkAllWithRetries(ctx context.Context, v visitor) (changeCursor string, err error) {
	walker := source.NewWalker(k.config, k.source)
	scanner := source.NewScanner(true)
	visited := 0         // resources since the list began
	var unreadable error // of the last page
	read := func(page source.Page) (source.Envelope, error) {
		if page.First {
			visited = 0
			v.resetCounts()
		}
		now := time.Now()
		envelope, err := page.ScanItems(scanner, func(it *source.Item) error {
			v.visitItem(it, now)
			return nil
		})
		unreadable = err
		if err != nil {
			return envelope, err
		}
		if page.First {
			changeCursor = envelope.Cursor
		}
		visited += envelope.Items
		k.progress(visited)
		return envelope, nil
	}

	var at source.Place
	failures := 0 // at the same place
	for {
		stopped, err := walker.FetchResources(ctx, at, read)
		failedAtStart := visited == 0
		if err == nil || failedAtStart || unreadable != nil || ctx.Err() != nil || isFinalRefusal(err) {
			return changeCursor, err
		}
		if stopped != at {
			failures = 0
		}
		at = stopped
		failures++
		if failures == retryPolicy().MaxAttempts {
			return changeCursor, err
		}
		if err := sleepBeforeRetry(ctx, failures, err); err != nil {
			return changeCursor, err
		}
	}
}

// sleepBeforeRetry waits after a failure in a row, longer if the server asked for it.
func sleepBeforeRetry(ctx context.Context, failures int, failure error) error {
	retryAfter, _ := backoff.RetryAfter(failure)
	delay := max(retryPolicy().Delay(failures-1), min(retryAfter, backoff.MaxRetryAfter))
	return backoff.Sleep(ctx, delay)
}

// isFinalRefusal reports whether the same request would be refused again.
func isFinalRefusal(err error) bool {
	code := source.HTTPStatusOf(err)
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// maxChangePages limits the pages of changes. A fleet that changes faster than it can be read never
// settles.
const maxChangePages = 10_000

// walkChangesSince passes all changes since a cursor to v, and the ids of removed resources to
// onRemoved. It returns after the last change.
func (k *collectionWalk) walkChangesSince(ctx context.Context, cursor string, v visitor, onRemoved func(id []byte)) error {
	scanner := source.NewScanner(true)
	var body []byte
	for range maxChangePages {
		var err error
		body, err = k.fetchChanges(ctx, cursor, body)
		if err != nil {
			return fmt.Errorf("list changes of %s: %w", k.collection, err)
		}
		now := time.Now()
		envelope, err := scanner.ScanPage(body, func(it *source.Item) error {
			v.visitItem(it, now)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read changes of %s: %w", k.collection, err)
		}
		if envelope.Cursor == "" {
			return fmt.Errorf("read changes of %s: the response has no cursor", k.collection)
		}
		for _, id := range envelope.Removed {
			onRemoved(id)
		}
		if !envelope.More {
			return nil
		}
		cursor = envelope.Cursor
	}
	return errUnsettled
}

// fetchChanges reads a page of the changes since a cursor into the capacity of buf. It retries a
// failed request.
func (k *collectionWalk) fetchChanges(ctx context.Context, cursor string, buf []byte) (body []byte, err error) {
	body = buf
	err = backoff.Retry(ctx, retryPolicy(), func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeoutCause(ctx, k.config.Timeout, errTimeout)
		defer cancel()
		query := url.Values{"changed_since": {cursor}, "limit": {"500"}}
		body, err = k.source.ListPage(ctx, k.collection, query, body)
		if isFinalRefusal(err) {
			return backoff.Permanent(err)
		}
		return err
	})
	return body, err
}

var (
	errTimeout   = errors.New("no response in time")
	errUnsettled = errors.New("the fleet changes faster than the changes can be read")
)
