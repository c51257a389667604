package fleetclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// DefaultPageSize is the number of resources per request of List if Query.PageSize is zero.
const DefaultPageSize = 500

// A Query selects resources of a collection. The zero value selects all of them.
type Query struct {
	// Labels is a Kubernetes label selector.
	Labels string

	// Search is an expression of the API's query language.
	Search string

	// PageSize is the number of resources per request. Zero means DefaultPageSize.
	PageSize int
}

// Values returns the query parameters of the first page, paged by keyset.
func (q Query) Values() url.Values {
	v := url.Values{"limit": {strconv.Itoa(orDefault(q.PageSize, DefaultPageSize))}}
	if q.Labels != "" {
		v.Set("labels", q.Labels)
	}
	if q.Search != "" {
		v.Set("search", q.Search)
	}
	return v
}

// ListPage reads one page of a collection as it is served. The body goes into dst, which it
// overwrites and grows; with an error the returned buffer is empty.
func (c *Client) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error) {
	body, _, err := c.sendAndRead(ctx, request{method: http.MethodGet, path: collection, query: q}, dst)
	return body, err
}

// ListPageIf reads one page of a collection, unless it still has the tag etag: then the body is
// empty and the tag is the same. An empty etag requests the page unconditionally.
//
// A page of more than MaxHead bytes comes in two parts: body is its beginning, and rest reads the
// remainder. The caller closes rest, which is nil for any other page. The client's timeout limits
// the request together with the time spent in reads of rest, but not the caller's time between
// them. Config.MaxBody limits only the beginning.
func (c *Client) ListPageIf(
	ctx context.Context, collection string, q url.Values, etag string, dst []byte,
) (body []byte, rest io.ReadCloser, tag string, err error) {
	r := request{method: http.MethodGet, path: collection, query: q}
	if etag != "" {
		r.header = map[string]string{"If-None-Match": etag}
	}
	body, rest, a, err := c.sendAndReadInParts(ctx, r, dst)
	switch {
	case err != nil:
		return body, nil, "", err
	case a.status == http.StatusNotModified:
		return body, nil, etag, nil // whatever tag the server sends now
	}
	return body, rest, a.tag, nil
}

// Changes reads the changes since the cursor that q holds as changed_since. If a server does not
// support changes, and returns a list, the error is errors.ErrUnsupported.
func (c *Client) Changes(ctx context.Context, collection string, q url.Values) (v1.Changes, error) {
	var out v1.Changes
	r := request{method: http.MethodGet, path: collection, query: q}
	_, err := c.callJSON(ctx, r, nil, &out)
	if err == nil && out.Cursor == "" {
		err = fmt.Errorf("%s: %w: the server returned a list; it does not support changed_since", r.operation(), errors.ErrUnsupported)
	}
	return out, err
}

// GetRaw reads one resource as it is served.
func (c *Client) GetRaw(ctx context.Context, collection, id string) ([]byte, error) {
	path, err := itemPath(collection, id)
	if err != nil {
		return nil, err
	}
	body, _, err := c.sendAndRead(ctx, request{method: http.MethodGet, path: path}, nil)
	if err != nil {
		return nil, err
	}
	return body, nil
}

// Get reads one resource.
func (c *Client) Get(ctx context.Context, collection, id string) (v1.Resource, error) {
	return c.callItem(ctx, http.MethodGet, collection, id, nil)
}

// GetTagged is Get with the ETag that PatchIf takes. For a server without such tags it returns "".
func (c *Client) GetTagged(ctx context.Context, collection, id string) (r v1.Resource, tag string, err error) {
	path, err := itemPath(collection, id)
	if err != nil {
		return r, "", err
	}
	a, err := c.callJSON(ctx, request{method: http.MethodGet, path: path}, nil, &r)
	return r, a.tag, err
}

// List yields a whole collection, page by page in the order of ids. It ends with the first error.
func (c *Client) List(ctx context.Context, collection string, q Query) iter.Seq2[v1.Resource, error] {
	r := request{method: http.MethodGet, path: collection, query: q.Values()}
	return eachItem(ctx, c, r, func(p *v1.List) ([]v1.Resource, string) { return p.Items, p.Continue })
}

// Create creates a resource. A kind with a parent is created in the collection that Nested returns.
func (c *Client) Create(ctx context.Context, collection string, in v1.CreateRequest) (v1.Resource, error) {
	var out v1.Resource
	_, err := c.callJSON(ctx, request{method: http.MethodPost, path: collection}, in, &out)
	return out, err
}

// Patch replaces the spec, the labels, or both.
func (c *Client) Patch(ctx context.Context, collection, id string, in v1.PatchRequest) (v1.Resource, error) {
	return c.callItem(ctx, http.MethodPatch, collection, id, in)
}

// PatchIf is Patch for a resource that still has the tag. For any other version IsChanged is true
// for the error. An empty tag means no condition.
func (c *Client) PatchIf(ctx context.Context, collection, id, tag string, in v1.PatchRequest) (v1.Resource, error) {
	var out v1.Resource
	path, err := itemPath(collection, id)
	if err != nil {
		return out, err
	}
	r := request{method: http.MethodPatch, path: path}
	if tag != "" {
		r.header = map[string]string{"If-Match": tag}
	}
	_, err = c.callJSON(ctx, r, in, &out)
	return out, err
}

// Delete requests the deletion of a resource. The resource remains, with a deleted time, until its
// adapters have finalized it; without adapters it is gone at once.
func (c *Client) Delete(ctx context.Context, collection, id string) (v1.Resource, error) {
	return c.callItem(ctx, http.MethodDelete, collection, id, nil)
}

// Report sends the observation of an adapter. The server discards a report that is older than the
// stored one; stored is then false.
func (c *Client) Report(ctx context.Context, collection, id string, in v1.Report) (stored bool, err error) {
	path, err := itemPath(collection, id)
	if err != nil {
		return false, err
	}
	var out v1.AdapterStatus
	a, err := c.callJSON(ctx, request{method: http.MethodPut, path: path + "/statuses"}, in, &out)
	return err == nil && a.status != http.StatusNoContent, err
}

// Statuses reads the last report of every adapter on one resource.
func (c *Client) Statuses(ctx context.Context, collection, id string) ([]v1.AdapterStatus, error) {
	const size = 100
	path, err := itemPath(collection, id)
	if err != nil {
		return nil, err
	}
	var all []v1.AdapterStatus
	for number := 1; ; number++ {
		var page v1.AdapterStatusList
		q := url.Values{"page": {strconv.Itoa(number)}, "size": {strconv.Itoa(size)}}
		if _, err := c.callJSON(ctx, request{method: http.MethodGet, path: path + "/statuses", query: q}, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if len(page.Items) == 0 || int64(len(all)) >= page.Total {
			return all, nil
		}
	}
}

func (c *Client) callItem(ctx context.Context, method, collection, id string, in any) (v1.Resource, error) {
	path, err := itemPath(collection, id)
	if err != nil {
		return v1.Resource{}, err
	}
	var out v1.Resource
	_, err = c.callJSON(ctx, request{method: method, path: path}, in, &out)
	return out, err
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
