package fleetclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A ChangeEventsQuery selects change events. The zero value selects all of them.
type ChangeEventsQuery struct {
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

func (q *ChangeEventsQuery) urlValues() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"cluster": q.Cluster, "node": q.Node, "subject": q.Subject, "session": q.Session, "field": q.Field,
		"actor": q.Actor, "source": q.Source, "action": q.Action,
		"outcome": q.Outcome, "dry_run": q.DryRun, "text": q.Text,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}

// timedURLValues returns the parameters with the time limits.
func (q *ChangeEventsQuery) timedURLValues() url.Values {
	v := q.urlValues()
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return v
}

// CountChangeEvents counts change events by time step and lane: "cluster", "node" or "actor". Zero
// buckets mean the default of the API.
func (c *Client) CountChangeEvents(ctx context.Context, q ChangeEventsQuery, by string, buckets int) (v1.ChangeBuckets, error) {
	v := q.timedURLValues()
	v.Set("by", by)
	if buckets > 0 {
		v.Set("buckets", strconv.Itoa(buckets))
	}
	var counted v1.ChangeBuckets
	_, err := c.callJSON(ctx, request{method: http.MethodGet, root: v1.ChangeBucketsPath, query: v}, nil, &counted)
	return counted, err
}

// ChangeEventsPage reads one page of change events, the newest first. It returns the page after the
// one that had cursor as its Next; "" means the first page.
func (c *Client) ChangeEventsPage(ctx context.Context, q ChangeEventsQuery, cursor string) (v1.ChangeEventList, error) {
	v := q.timedURLValues()
	v.Set("limit", strconv.Itoa(orDefault(q.PageSize, DefaultPageSize)))
	if cursor != "" {
		v.Set("continue", cursor)
	}
	var page v1.ChangeEventList
	_, err := c.callJSON(ctx, request{method: http.MethodGet, root: v1.ChangesPath, query: v}, nil, &page)
	return page, err
}

// ChangeEvents yields change events page by page, the newest first. It ends with the first error.
func (c *Client) ChangeEvents(ctx context.Context, q ChangeEventsQuery) iter.Seq2[v1.ChangeEventList, error] {
	return func(yield func(v1.ChangeEventList, error) bool) {
		for cursor := ""; ; {
			page, err := c.ChangeEventsPage(ctx, q, cursor)
			if !yield(page, err) || err != nil || page.Continue == "" {
				return
			}
			cursor = page.Continue
		}
	}
}

// WatchChangeEvents passes every new change event to handle, from a cursor or, if that is "", from
// now on, until the stream ends. It ignores the times of q. It ends as Watch does.
func (c *Client) WatchChangeEvents(ctx context.Context, q ChangeEventsQuery, after string, handle func(v1.WatchEvent) error) error {
	v := q.urlValues()
	if after != "" {
		v.Set("after", after)
	}
	return c.streamEvents(ctx, request{method: http.MethodGet, root: v1.ChangesPath, query: v}, handle)
}

// ChangeDeliveries reads the deliveries of a change event to sinks.
func (c *Client) ChangeDeliveries(ctx context.Context, id string) (v1.ChangeDeliveries, error) {
	var d v1.ChangeDeliveries
	_, err := c.callJSON(ctx, request{method: http.MethodGet, root: changePath(v1.ChangeDeliveriesPath, id)}, nil, &d)
	return d, err
}

// UndeliveredChanges lists the deliveries of change events that fail or were given up.
func (c *Client) UndeliveredChanges(ctx context.Context) (v1.UndeliveredChanges, error) {
	var list v1.UndeliveredChanges
	_, err := c.callJSON(ctx, request{method: http.MethodGet, root: v1.UndeliveredChangesPath}, nil, &list)
	return list, err
}

// ResendChange queues a change event for its sinks again. A repeated request with the same key has
// no effect.
func (c *Client) ResendChange(ctx context.Context, id, key string, resend v1.ChangeResend) (v1.ChangeResent, error) {
	var sent v1.ChangeResent
	r := request{method: http.MethodPost, root: changePath(v1.ChangeResendPath, id), header: map[string]string{v1.IdempotencyKeyHeader: key}}
	_, err := c.callJSON(ctx, r, resend, &sent)
	return sent, err
}

// changePath returns a path with the id of a change event.
func changePath(path, id string) string { return strings.Replace(path, "{id}", url.PathEscape(id), 1) }
