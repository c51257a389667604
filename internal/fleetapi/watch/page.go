package watch

import (
	"context"
	"errors"
)

// errPageFull ends the read of a page that is large enough.
var errPageFull = errors.New("enough")

// A pageReader reads pages of the feed. A page ends at a number of changes, or early when they have reached maxBytes,
// because records may be large.
type pageReader struct {
	source   Source
	maxBytes int
	// limit is the maximum number of changes in the next page. The source reads that many even if the page ends early, so
	// the limit is low after such a page.
	limit int
}

func newPageReader(source Source, maxBytes int) pageReader {
	return pageReader{source: source, maxBytes: maxBytes, limit: pageChanges}
}

// readPage visits the changes of a page. It returns the cursor to resume from, and whether there may be more.
func (p *pageReader) readPage(ctx context.Context, q Query, visit func(*encodedChange)) (next Cursor, hasMore bool, err error) {
	q.Limit = p.limit
	last, visited, size := q.After, 0, 0
	next, hasMore, err = p.source.VisitChanges(ctx, q, func(c Change) error {
		e := newEncodedChange(&c, q.After)
		visit(e)
		last.Position = c.At
		visited++
		if size += e.estimateSize(); size >= p.maxBytes {
			return errPageFull
		}
		return nil
	})
	switch {
	case errors.Is(err, errPageFull):
		p.limit = min(2*visited, pageChanges)
		return last, true, nil
	case err == nil:
		p.limit = min(2*p.limit, pageChanges)
	}
	return next, hasMore, err
}
