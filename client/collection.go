package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// DefaultPageSize is the number of resources per request of List if ListOptions.PageSize is zero.
const DefaultPageSize = 500

// A Collection reads and changes the resources of one collection.
type Collection struct {
	caller *caller
	path   string
	dryRun bool
}

// ListOptions selects resources of a collection. The zero value selects all of them.
type ListOptions struct {
	// Labels is a Kubernetes label selector.
	Labels string

	// Search is an expression of the API's query language.
	Search string

	// PageSize is the number of resources per request. Zero means DefaultPageSize.
	PageSize int
}

// Values returns the query parameters of the first page, for Raw.ListPage.
func (o ListOptions) Values() url.Values {
	v := url.Values{"limit": {strconv.Itoa(cmp.Or(o.PageSize, DefaultPageSize))}}
	if o.Labels != "" {
		v.Set("labels", o.Labels)
	}
	if o.Search != "" {
		v.Set("search", o.Search)
	}
	return v
}

// Changes reads one page of changes since a cursor, for programs that poll instead of Watch. If a
// server does not support changes, and returns a list, the error is errors.ErrUnsupported.
func (c *Collection) Changes(ctx context.Context, since string, o ListOptions) (v1.Changes, error) {
	r := request{method: http.MethodGet, path: c.path, query: o.Values()}
	r.query.Set("changed_since", since)
	out, err := call[v1.Changes](ctx, c.caller, r, nil)
	if err == nil && out.Cursor == "" {
		err = fmt.Errorf("%s: %w: the server returned a list; it does not support changed_since", r.operation(), errors.ErrUnsupported)
	}
	return out, err
}

// Get reads one resource.
func (c *Collection) Get(ctx context.Context, id string) (v1.Resource, error) {
	r, _, err := c.GetWithETag(ctx, id)
	return r, err
}

// GetWithETag is Get with the ETag that PatchIf takes. For a server without ETags it returns "".
func (c *Collection) GetWithETag(ctx context.Context, id string) (r v1.Resource, etag string, err error) {
	a, err := c.callItem(ctx, request{method: http.MethodGet}, id, nil, &r)
	return r, a.tag, err
}

// List yields the selected resources, page by page in the order of ids. It ends with the first error.
func (c *Collection) List(ctx context.Context, o ListOptions) iter.Seq2[v1.Resource, error] {
	r := request{method: http.MethodGet, path: c.path, query: o.Values()}
	return eachItem(ctx, c.caller, r, func(p *v1.List) ([]v1.Resource, string) { return p.Items, p.Continue })
}

// Create creates a resource. A kind with a parent is created in the collection that Nested returns.
func (c *Collection) Create(ctx context.Context, in v1.CreateRequest) (v1.Resource, error) {
	return call[v1.Resource](ctx, c.caller, request{method: http.MethodPost, path: c.path, query: c.changeQuery()}, in)
}

// Patch replaces the spec, the labels and the annotations, each if it is given.
func (c *Collection) Patch(ctx context.Context, id string, in v1.PatchRequest) (v1.Resource, error) {
	return c.PatchIf(ctx, id, "", in)
}

// PatchIf is Patch for a resource that still has the ETag of GetWithETag. For any other version
// IsChanged is true for the error. An empty ETag means no condition.
func (c *Collection) PatchIf(ctx context.Context, id, etag string, in v1.PatchRequest) (out v1.Resource, err error) {
	r := request{method: http.MethodPatch, query: c.changeQuery()}
	if etag != "" {
		r.header = map[string]string{"If-Match": etag}
	}
	_, err = c.callItem(ctx, r, id, in, &out)
	return out, err
}

// Delete requests the deletion of a resource. The resource remains, with a deleted time, until its
// adapters have finalized it; without adapters it is gone at once.
func (c *Collection) Delete(ctx context.Context, id string) (out v1.Resource, err error) {
	_, err = c.callItem(ctx, request{method: http.MethodDelete, query: c.changeQuery()}, id, nil, &out)
	return out, err
}

// Report sends the observation of an adapter. The server discards a report that is older than the
// stored one; stored is then false.
func (c *Collection) Report(ctx context.Context, id string, in v1.Report) (stored bool, err error) {
	var out v1.AdapterStatus
	a, err := c.callItem(ctx, request{method: http.MethodPut, path: "/statuses"}, id, in, &out)
	return err == nil && a.status != http.StatusNoContent, err
}

// Statuses reads the last report of every adapter on one resource.
func (c *Collection) Statuses(ctx context.Context, id string) ([]v1.AdapterStatus, error) {
	const size = 100
	var all []v1.AdapterStatus
	for number := 1; ; number++ {
		var page v1.AdapterStatusList
		q := url.Values{"page": {strconv.Itoa(number)}, "size": {strconv.Itoa(size)}}
		if _, err := c.callItem(ctx, request{method: http.MethodGet, path: "/statuses", query: q}, id, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if len(page.Items) == 0 || int64(len(all)) >= page.Total {
			return all, nil
		}
	}
}

// Revisions yields the kept generations of a cluster or a node pool, the newest first. It ends with the first error.
func (c *Collection) Revisions(ctx context.Context, id string) iter.Seq2[v1.Revision, error] {
	path, err := itemPath(c.path, id)
	if err != nil {
		return func(yield func(v1.Revision, error) bool) { yield(v1.Revision{}, err) }
	}
	r := request{method: http.MethodGet, path: path + "/revisions", query: url.Values{}}
	return eachItem(ctx, c.caller, r, func(p *v1.RevisionList) ([]v1.Revision, string) { return p.Items, p.Continue })
}

// Watch yields every change of the selected resources, from a cursor or, if that is "", from now
// on. ListOptions.PageSize has no effect. The first event from now on is a bookmark: a program that
// lists the collection then, and afterwards goes on with the loop, misses nothing.
//
// It reconnects after interruptions and continues where it was. If the server was never reached, it
// ends after Config.MaxAttempts; otherwise with the first error that a retry does not solve:
// IsExpired if it was interrupted for too long, errors.ErrUnsupported if the server does not
// support watches, or the cause of ctx.
func (c *Collection) Watch(ctx context.Context, o ListOptions, since string) iter.Seq2[Event[v1.Resource], error] {
	return watchEvents[v1.Resource](ctx, c.caller, since, func(since string) request {
		q := o.Values()
		q.Del("limit")
		if since != "" {
			q.Set("changed_since", since)
		}
		return watchRequest(c.path, q)
	})
}

// callItem sends a request for one resource. The path of r is below that of the resource.
func (c *Collection) callItem(ctx context.Context, r request, id string, in, out any) (answer, error) {
	path, err := itemPath(c.path, id)
	if err != nil {
		return answer{}, err
	}
	r.path = path + r.path
	return c.caller.callJSONWithRetry(ctx, r, in, out)
}

// A Reporter reads resources of any collection and reports on them. It suits adapters, which learn
// the collection from each event.
type Reporter struct {
	client *Client
}

// Get reads one resource.
func (r *Reporter) Get(ctx context.Context, collection, id string) (v1.Resource, error) {
	return r.client.Collection(collection).Get(ctx, id)
}

// Statuses reads the last report of every adapter on one resource.
func (r *Reporter) Statuses(ctx context.Context, collection, id string) ([]v1.AdapterStatus, error) {
	return r.client.Collection(collection).Statuses(ctx, id)
}

// Report sends the observation of an adapter, as Collection.Report does.
func (r *Reporter) Report(ctx context.Context, collection, id string, in v1.Report) (stored bool, err error) {
	return r.client.Collection(collection).Report(ctx, id, in)
}

// itemPath rejects ids that would lead to another path.
func itemPath(collection, id string) (string, error) {
	switch id {
	case "":
		return "", errors.New("the resource id is empty")
	case ".", "..":
		return "", fmt.Errorf("%q is not a resource id", id)
	}
	return collection + "/" + url.PathEscape(id), nil
}
