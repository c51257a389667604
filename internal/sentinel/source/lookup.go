package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxLookupIDs is the maximum number of resources in one lookup request.
const maxLookupIDs = 100

// FetchResourcesByID reads single resources, many at a time if the server supports it, and passes
// them to read as pages. Ids that are on no page do not exist.
//
// FetchResourcesByID regularly tests again whether the server supports it. Otherwise one odd
// response, perhaps during a rollout, would replace every later request by a hundred.
func (w *Walker) FetchResourcesByID(ctx context.Context, ids []string, read func(Page) (Envelope, error)) error {
	var buf []byte
	for chunk := range slices.Chunk(ids, maxLookupIDs) {
		pages := w.fetchTogetherOrOneByOne
		if w.alone.Load() > 0 {
			w.alone.Add(-1)
			pages = w.fetchOneByOne
		} else if slices.ContainsFunc(chunk, func(id string) bool { return strings.Contains(id, ",") }) {
			pages = w.fetchOneByOne
		}
		var err error
		if buf, err = pages(ctx, chunk, read, buf); err != nil {
			return fmt.Errorf("look up %d of %s: %w", len(chunk), w.server.cfg.Collection, err)
		}
	}
	return nil
}

// fetchTogetherOrOneByOne looks up several resources with one request.
func (w *Walker) fetchTogetherOrOneByOne(
	ctx context.Context, ids []string, read func(Page) (Envelope, error), buf []byte,
) (reusableBuf []byte, err error) {
	asked := time.Now()
	body, rest, _, err := w.server.requestPage(ctx, url.Values{"ids": {strings.Join(ids, ",")}}, "", buf)
	if err != nil && (ctx.Err() != nil || !isRequestRefused(err)) {
		return buf, err // the cause of a cancellation may look like a response
	}
	answered := false
	if err == nil {
		body, answered = readBodyAndCheckIDs(Page{Body: body, Rest: rest}, ids)
	}
	if !answered {
		w.alone.Store(recheckAfter)
		return w.fetchOneByOne(ctx, ids, read, body)
	}
	_, err = read(Page{Body: body, Asked: asked})
	return body, err
}

// errNotRequested ends the reading of a page that is not the requested one.
var errNotRequested = errors.New("the response contains a resource that was not requested")

// readBodyAndCheckIDs reports whether a page is the response to a request for ids. Such a page holds no
// other id, and has no further pages. A server that ignores the parameter returns its list, which
// is read only until that is certain. readBodyAndCheckIDs returns the bytes that it read, which are the
// complete response if answered is true.
func readBodyAndCheckIDs(page Page, ids []string) (body []byte, answered bool) {
	defer page.closeRest()
	body = page.Body
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	var more bytes.Buffer
	if page.Rest != nil {
		page.Rest = io.NopCloser(io.TeeReader(page.Rest, &more)) // the deferred close has the original
	}
	env, err := page.ScanItems(NewScanner(false), func(it *Item) error {
		if len(it.ID) > 0 && !asked[string(it.ID)] {
			return errNotRequested
		}
		return nil
	})
	answered = err == nil && env.Continue == "" && env.Total <= int64(env.Items)
	return append(body, more.Bytes()...), answered
}

// fetchOneByOne looks up each resource with its own request.
func (w *Walker) fetchOneByOne(
	ctx context.Context, ids []string, read func(Page) (Envelope, error), buf []byte,
) (reusableBuf []byte, err error) {
	for _, id := range ids {
		if id == "" || id == "." || id == ".." {
			continue // the id leads to another path
		}
		asked := time.Now()
		body, err := w.server.getResource(ctx, id, buf)
		if s := HTTPStatusOf(err); ctx.Err() == nil && (s == http.StatusNotFound || s == http.StatusGone) {
			continue
		}
		if err != nil {
			return buf, fmt.Errorf("read %q: %w", id, err)
		}
		// A page of one resource, so that it can be read like any other page.
		body = append(slices.Insert(body, 0, '['), ']')
		if _, err := read(Page{Body: body, Asked: asked}); err != nil {
			return body, fmt.Errorf("read %q: %w", id, err)
		}
		buf = body
	}
	return buf, nil
}

// getResource reads one resource with a timeout.
func (v *server) getResource(ctx context.Context, id string, buf []byte) ([]byte, error) {
	if v.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, v.cfg.Timeout, errTimeout)
		defer cancel()
	}
	body, err := v.src.ListPage(ctx, v.cfg.Collection+"/"+url.PathEscape(id), nil, buf)
	if err != nil {
		return nil, addContextCause(ctx, err)
	}
	return body, nil
}
