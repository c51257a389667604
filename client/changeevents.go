package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// ChangeEvents reads the timeline: the change events of the fleet.
type ChangeEvents struct {
	caller *caller
}

// ChangeEventOptions selects change events. The zero value selects all of them.
type ChangeEventOptions struct {
	Node, Subject, Session string
	// Field is the path of a changed field, such as spec.version.
	Field string
	// Cluster, Actor, Source and Action each hold one or more values, separated by commas.
	Cluster, Actor, Source, Action string
	// Outcome is changeevent.OutcomeSucceeded or changeevent.OutcomeFailed; "" means both.
	Outcome string
	// DryRun is "true" for dry runs only, and "false" for none.
	DryRun string
	// Text is a part of the summary or the reason, in upper or lower case.
	Text string
	// Since and Until limit the time of the changes; zero means no limit.
	Since, Until time.Time

	// PageSize is the number of events per request. Zero means DefaultPageSize.
	PageSize int
}

func (o *ChangeEventOptions) urlValuesWithoutTimes() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"cluster": o.Cluster, "node": o.Node, "subject": o.Subject, "session": o.Session, "field": o.Field,
		"actor": o.Actor, "source": o.Source, "action": o.Action,
		"outcome": o.Outcome, "dry_run": o.DryRun, "text": o.Text,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}

// timedURLValues returns the parameters with the time limits.
func (o *ChangeEventOptions) timedURLValues() url.Values {
	v := o.urlValuesWithoutTimes()
	for name, at := range map[string]time.Time{"since": o.Since, "until": o.Until} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return v
}

func (o *ChangeEventOptions) pageValues() url.Values {
	v := o.timedURLValues()
	v.Set("limit", strconv.Itoa(cmp.Or(o.PageSize, DefaultPageSize)))
	return v
}

// watchRequest returns the request for the events after a cursor.
func (o *ChangeEventOptions) watchRequest(after string) request {
	v := o.urlValuesWithoutTimes()
	if after != "" {
		v.Set("after", after)
	}
	return request{method: http.MethodGet, root: v1.ChangesPath, query: v}
}

// Count counts change events by time step and lane: "cluster", "node" or "actor". Zero
// buckets mean the default of the API.
func (c *ChangeEvents) Count(ctx context.Context, o ChangeEventOptions, by string, buckets int) (v1.ChangeBuckets, error) {
	v := o.timedURLValues()
	v.Set("by", by)
	if buckets > 0 {
		v.Set("buckets", strconv.Itoa(buckets))
	}
	return call[v1.ChangeBuckets](ctx, c.caller, request{method: http.MethodGet, root: v1.ChangeBucketsPath, query: v}, nil)
}

// Page reads one page of change events, the newest first. It returns the page after the
// one that had cursor as its Next; "" means the first page.
func (c *ChangeEvents) Page(ctx context.Context, o ChangeEventOptions, cursor string) (v1.ChangeEventList, error) {
	v := o.pageValues()
	if cursor != "" {
		v.Set("continue", cursor)
	}
	return call[v1.ChangeEventList](ctx, c.caller, request{method: http.MethodGet, root: v1.ChangesPath, query: v}, nil)
}

// Pages yields pages of change events, the newest first. It ends with the first error.
func (c *ChangeEvents) Pages(ctx context.Context, o ChangeEventOptions) iter.Seq2[v1.ChangeEventList, error] {
	return func(yield func(v1.ChangeEventList, error) bool) {
		for cursor := ""; ; {
			page, err := c.Page(ctx, o, cursor)
			if !yield(page, err) || err != nil || page.Continue == "" {
				return
			}
			cursor = page.Continue
		}
	}
}

// List yields change events, the newest first, page by page. It ends with the first error.
func (c *ChangeEvents) List(ctx context.Context, o ChangeEventOptions) iter.Seq2[v1.ChangeEvent, error] {
	r := request{method: http.MethodGet, root: v1.ChangesPath, query: o.pageValues()}
	return eachItem(ctx, c.caller, r, func(p *v1.ChangeEventList) ([]v1.ChangeEvent, string) { return p.Items, p.Continue })
}

// Watch yields every new change event, from a cursor or, if that is "", from now on. It ignores the
// times of o. It reconnects and ends as Collection.Watch does.
func (c *ChangeEvents) Watch(ctx context.Context, o ChangeEventOptions, after string) iter.Seq2[Event[v1.ChangeEvent], error] {
	return watchEvents[v1.ChangeEvent](ctx, c.caller, after, o.watchRequest)
}

// Deliveries reads the deliveries of a change event to sinks.
func (c *ChangeEvents) Deliveries(ctx context.Context, id string) (v1.ChangeDeliveries, error) {
	return call[v1.ChangeDeliveries](ctx, c.caller, request{method: http.MethodGet, root: changePath(v1.ChangeDeliveriesPath, id)}, nil)
}

// Undelivered lists the deliveries of change events that fail or were given up.
func (c *ChangeEvents) Undelivered(ctx context.Context) (v1.UndeliveredChanges, error) {
	return call[v1.UndeliveredChanges](ctx, c.caller, request{method: http.MethodGet, root: v1.UndeliveredChangesPath}, nil)
}

// Resend queues a change event for its sinks again. A repeated request with the same key has no effect.
func (c *ChangeEvents) Resend(ctx context.Context, id, key string, resend v1.ChangeResend) (v1.ChangeResent, error) {
	r := request{method: http.MethodPost, root: changePath(v1.ChangeResendPath, id), header: map[string]string{v1.IdempotencyKeyHeader: key}}
	return call[v1.ChangeResent](ctx, c.caller, r, resend)
}

func changePath(path, id string) string { return strings.Replace(path, "{id}", url.PathEscape(id), 1) }
