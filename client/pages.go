package client

import (
	"context"
	"fmt"
	"iter"
	"maps"
)

// eachItem yields the items of all pages of a list, and ends with the first error. split returns
// the items of a page and the token of the next page, which is empty on the last one.
func eachItem[T, P any](ctx context.Context, c *caller, r request, split func(*P) (items []T, next string)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		r := r
		r.query = maps.Clone(r.query) // the sequence may be used again
		for {
			page, err := call[P](ctx, c, r, nil)
			if err != nil {
				yield(none, err)
				return
			}
			items, next := split(&page)
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == r.query.Get("continue") {
				yield(none, fmt.Errorf("%s: %w: the server returned the same page again", r.operation(), ErrInvalidResponse))
				return
			}
			r.query.Set("continue", next)
		}
	}
}
