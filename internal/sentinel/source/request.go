package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"
)

// fetchPage reads the page at a place into the capacity of buf.
func (w *pageWalk) fetchPage(ctx context.Context, at Place, buf []byte) fetchedPage {
	var known rememberedPage
	if w.useTags {
		known = w.server.tags[at]
	}
	page := Page{At: at, Asked: time.Now(), First: !at.Later(), Filtered: w.server.traits.filtersAll()}
	body, rest, tag, err := w.server.requestPage(ctx, w.buildPageQuery(at), known.tag, buf)
	if err != nil {
		return fetchedPage{
			Page:  page,
			err:   fmt.Errorf("list %s: read %s: %w", w.server.cfg.Collection, at, err),
			cause: err,
		}
	}
	page.Body, page.Rest, page.Tag = body, rest, tag
	if known.tag != "" && tag == known.tag && len(body) == 0 {
		page.Unchanged, page.Items = true, known.items
	}
	return fetchedPage{Page: page}
}

// requestPage sends one request with a timeout. See Lister.ListPageIf.
func (v *server) requestPage(
	ctx context.Context, query url.Values, etag string, buf []byte,
) (body []byte, rest io.ReadCloser, tag string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	if v.cfg.Timeout > 0 {
		defer time.AfterFunc(v.cfg.Timeout, func() { cancel(errTimeout) }).Stop()
	}
	body, rest, tag, err = v.src.ListPageIf(ctx, v.cfg.Collection, query, etag, buf)
	if err != nil {
		err = addContextCause(ctx, err)
		cancel(nil)
		return nil, nil, "", err
	}
	if rest == nil {
		cancel(nil)
		return body, nil, tag, nil
	}
	return body, endingBody{rest, cancel}, tag, nil
}

// addContextCause adds the cause to an error of a request whose context has ended.
func addContextCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// An endingBody is the rest of a page that cancels its context when it is closed.
type endingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close ends the request.
func (e endingBody) Close() error {
	defer e.cancel(nil)
	return e.ReadCloser.Close()
}

// buildPageQuery returns the parameters of the page at a place.
func (w *pageWalk) buildPageQuery(at Place) url.Values {
	query := url.Values{}
	traits := &w.server.traits
	if traits.labels != "" {
		query.Set("labels", traits.labels)
	}
	search := traits.search
	switch at.way {
	case byToken:
		query.Set("limit", strconv.Itoa(w.server.cfg.PageSize))
		if at.after != "" {
			query.Set("continue", at.after)
		}
	case byNumber:
		setPageAndSize(query, at.page, at.size)
		if traits.supportsOrder {
			query.Set("order", "id")
		}
	case byID:
		setPageAndSize(query, 1, w.server.pageSize())
		query.Set("order", "id")
		if at.after != "" {
			search = joinAnd(search, searchIDsAfter(at.after))
		}
	}
	if search != "" {
		query.Set("search", search)
	}
	return query
}

// setPageAndSize requests a page by number. The public API has had two names for the size.
func setPageAndSize(query url.Values, page, size int) {
	query.Set("page", strconv.Itoa(page))
	query.Set("size", strconv.Itoa(size))
	query.Set("pageSize", strconv.Itoa(size))
}
