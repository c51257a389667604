package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// Raw reads resources as the server sends them, for callers that decode them themselves, reuse
// buffers or have their own retries. It retries nothing.
type Raw struct {
	caller *caller
}

// Endpoint is the URL under which the client finds the collections.
func (r *Raw) Endpoint() string { return r.caller.base }

// CloseIdle closes the connections that no request uses just now.
func (r *Raw) CloseIdle() { r.caller.transport.CloseIdleConnections() }

// Get reads one resource as it is served.
func (r *Raw) Get(ctx context.Context, collection, id string) ([]byte, error) {
	path, err := itemPath(collection, id)
	if err != nil {
		return nil, err
	}
	body, _, err := r.caller.sendAndRead(ctx, request{method: http.MethodGet, path: path}, nil)
	if err != nil {
		return nil, err
	}
	return body, nil
}

// ListPage reads one page of a collection as it is served. The body goes into dst, which it
// overwrites and grows; with an error the returned buffer is empty.
func (r *Raw) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error) {
	body, _, err := r.caller.sendAndRead(ctx, request{method: http.MethodGet, path: collection, query: q}, dst)
	return body, err
}

// ListPageIf reads one page of a collection, unless it still has the tag etag: then the body is
// empty and the tag is the same. An empty etag requests the page unconditionally.
//
// A page of more than MaxHead bytes comes in two parts: body is its beginning, and rest reads the
// remainder. The caller closes rest, which is nil for any other page. The client's timeout limits
// the request together with the time spent in reads of rest, but not the caller's time between
// them. Config.MaxBody limits only the beginning.
func (r *Raw) ListPageIf(
	ctx context.Context, collection string, q url.Values, etag string, dst []byte,
) (body []byte, rest io.ReadCloser, tag string, err error) {
	req := request{method: http.MethodGet, path: collection, query: q}
	if etag != "" {
		req.header = map[string]string{"If-None-Match": etag}
	}
	body, rest, a, err := r.caller.sendAndReadInParts(ctx, req, dst)
	switch {
	case err != nil:
		return body, nil, "", err
	case a.status == http.StatusNotModified:
		return body, nil, etag, nil // whatever tag the server sends now
	}
	return body, rest, a.tag, nil
}
