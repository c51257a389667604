package source

import (
	"bytes"
	"context"
)

// maxWrongGuesses is the number of wrong guesses after which a walk stops guessing.
const maxWrongGuesses = 2

// prefetchNextPage starts to fetch the page that probably comes next. The channel yields the page,
// or nil if the next page cannot be guessed.
func (w *pageWalk) prefetchNextPage(
	ctx context.Context, page Page, buf []byte,
) (guessed Place, prefetched <-chan *fetchedPage) {
	result := make(chan *fetchedPage, 1)
	next, ok := guessNextPlace(page)
	isProbablyLast := page.At.way == byID && w.remaining <= int64(w.server.pageSize())
	if !ok || isProbablyLast || w.wrongGuesses >= maxWrongGuesses {
		result <- nil
		return Place{}, result
	}
	go func() {
		fetched := w.fetchPage(ctx, next, buf)
		result <- &fetched
	}()
	return next, result
}

// guessNextPlace searches the end of this page for the parameter of the next page. The next page
// can then be fetched while this one is read. The guess may be wrong. The end of a page that comes
// in two parts has not arrived yet.
func guessNextPlace(page Page) (next Place, ok bool) {
	if page.Rest != nil {
		return Place{}, false
	}
	var before string // the text before the parameter
	var end []byte    // the part of the page to search
	switch page.At.way {
	case byNumber:
		return Place{}, false
	case byToken:
		const tokenAndCount = 4096
		before, end = `"continue":"`, page.Body[max(0, len(page.Body)-tokenAndCount):]
	case byID: // the id of the last item, if it is its first field
		before, end = `},{"id":"`, page.Body
	}
	at := bytes.LastIndex(end, []byte(before))
	if at < 0 {
		return Place{}, false
	}
	parameter, _, closed := bytes.Cut(end[at+len(before):], []byte(`"`))
	hasEscapes := bytes.IndexByte(parameter, '\\') >= 0
	if !closed || len(parameter) == 0 || hasEscapes {
		return Place{}, false
	}
	return Place{way: page.At.way, after: string(parameter)}, true
}
