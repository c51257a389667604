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
func (w *Walker) FetchResourcesByID(
	ctx context.Context, ids []string, read func(Page) (Envelope, error),
) error {
	var buf []byte
	for chunk := range slices.Chunk(ids, maxLookupIDs) {
		var err error
		if w.takeChunkOneByOne() || slices.ContainsFunc(chunk, containsComma) {
			buf, err = w.fetchOneByOne(ctx, chunk, read, buf)
		} else {
			buf, err = w.fetchTogetherOrOneByOne(ctx, chunk, read, buf)
		}
		if err != nil {
			return fmt.Errorf("look up %d of %s: %w", len(chunk), w.server.cfg.Collection, err)
		}
	}
	return nil
}

// takeChunkOneByOne reports whether the next chunk is to be looked up one by one, because the server
// did not support anything else a short time ago.
func (w *Walker) takeChunkOneByOne() (oneByOne bool) {
	if w.chunksOneByOne.Load() <= 0 {
		return false
	}
	w.chunksOneByOne.Add(-1)
	return true
}

// containsComma reports whether an id cannot be part of a list of ids.
func containsComma(id string) bool { return strings.Contains(id, ",") }

// fetchTogetherOrOneByOne looks up several resources with one request. If the server does not support
// that, it looks them up one by one, and so do the next chunks.
func (w *Walker) fetchTogetherOrOneByOne(
	ctx context.Context, ids []string, read func(Page) (Envelope, error), buf []byte,
) (reusableBuf []byte, err error) {
	requestedAt := time.Now()
	query := url.Values{"ids": {strings.Join(ids, ",")}}
	body, rest, _, err := w.server.requestPage(ctx, query, "", buf)
	if err != nil && (ctx.Err() != nil || !isRequestRefused(err)) {
		return buf, err // the cause of a cancellation may look like a response
	}
	if err != nil && len(ids) > smallLookup {
		return w.fetchInHalves(ctx, ids, read, buf)
	}
	answered := false
	if err == nil {
		body, answered = readBodyAndCheckIDs(Page{Body: body, Rest: rest}, ids)
	}
	if !answered {
		w.chunksOneByOne.Store(recheckAfter)
		return w.fetchOneByOne(ctx, ids, read, body)
	}
	_, err = read(Page{Body: body, Asked: requestedAt})
	return body, err
}

// smallLookup is a number of resources that a server accepts in one request, unless it does not support that at all. The
// fleet API refuses more if the resources are large.
const smallLookup = 4

// fetchInHalves looks up resources with two requests instead of the one that was refused.
func (w *Walker) fetchInHalves(
	ctx context.Context, ids []string, read func(Page) (Envelope, error), buf []byte,
) (reusableBuf []byte, err error) {
	half := len(ids) / 2
	buf, err = w.fetchTogetherOrOneByOne(ctx, ids[:half], read, buf)
	if err != nil {
		return buf, err
	}
	if w.chunksOneByOne.Load() > 0 { // the server does not support it
		return w.fetchOneByOne(ctx, ids[half:], read, buf)
	}
	return w.fetchTogetherOrOneByOne(ctx, ids[half:], read, buf)
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
	requested := make(map[string]bool, len(ids))
	for _, id := range ids {
		requested[id] = true
	}
	var rest bytes.Buffer // what was read of page.Rest
	if page.Rest != nil {
		page.Rest = io.NopCloser(io.TeeReader(page.Rest, &rest)) // the deferred close has the original
	}
	envelope, err := page.ScanItems(NewScanner(false), func(it *Item) error {
		if len(it.ID) > 0 && !requested[string(it.ID)] {
			return errNotRequested
		}
		return nil
	})
	isOnlyPage := envelope.Continue == "" && envelope.Total <= int64(envelope.Items)
	return append(body, rest.Bytes()...), err == nil && isOnlyPage
}

// fetchOneByOne looks up each resource with its own request.
func (w *Walker) fetchOneByOne(
	ctx context.Context, ids []string, read func(Page) (Envelope, error), buf []byte,
) (reusableBuf []byte, err error) {
	for _, id := range ids {
		if id == "" || id == "." || id == ".." {
			continue // the id leads to another path
		}
		requestedAt := time.Now()
		body, err := w.server.getResource(ctx, id, buf)
		status := HTTPStatusOf(err)
		if ctx.Err() == nil && (status == http.StatusNotFound || status == http.StatusGone) {
			continue // the resource does not exist
		}
		if err != nil {
			return buf, fmt.Errorf("read %q: %w", id, err)
		}
		// A page of one resource, so that it can be read like any other page.
		body = append(slices.Insert(body, 0, '['), ']')
		if _, err := read(Page{Body: body, Asked: requestedAt}); err != nil {
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
