package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"strconv"

	fleetclient "github.com/fleetloop/fleetloop/client"
)

const pageSize = 500

// A Selection is a part of one collection.
type Selection struct {
	Kind Kind

	// Parent is the ID of the parent. Empty means any.
	Parent string

	// Labels is a label selector, and Search an expression of the API query language. Empty means
	// all.
	Labels string
	Search string

	// Limit is the maximum number of resources. Zero means all.
	Limit int
}

// NamePrefixSearch returns the search expression for names with a prefix.
func NamePrefixSearch(prefix string) string {
	if prefix == "" {
		return ""
	}
	return "name like " + quoteLiteral(prefix+"%")
}

func (sel Selection) collectionPath() string {
	if sel.Parent == "" {
		return sel.Kind.Collection
	}
	return fleetclient.Nested(sel.Kind.parent, sel.Parent, sel.Kind.Collection)
}

// ListPages reads a selection page by page. It ends at the first error.
func ListPages(ctx context.Context, client *fleetclient.Client, sel Selection) iter.Seq2[[]Item, error] {
	return func(yield func([]Item, error) bool) {
		query := fleetclient.ListOptions{Labels: sel.Labels, Search: sel.Search, PageSize: pageSize}.Values()
		left := sel.Limit
		var body []byte
		for {
			if sel.Limit > 0 {
				query.Set("limit", strconv.Itoa(min(left, pageSize)))
			}
			var err error
			if body, err = client.Raw().ListPage(ctx, sel.collectionPath(), query, body); err != nil {
				yield(nil, err)
				return
			}
			items, next, err := sel.decodePage(body, query)
			if err != nil {
				yield(nil, fmt.Errorf("list %s: %w: %w", sel.Kind.Collection, fleetclient.ErrInvalidResponse, err))
				return
			}
			left -= len(items)
			isLast := next == "" || sel.Limit > 0 && left <= 0
			if !yield(items, nil) || isLast {
				return
			}
			query.Set("continue", next)
		}
	}
}

// decodePage reads one page. Next is the start of the following page, empty on the last one.
func (sel Selection) decodePage(body []byte, requestQuery url.Values) (items []Item, continueToken string, err error) {
	var page struct {
		Items    []json.RawMessage `json:"items"`
		Continue string            `json:"continue"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, "", err
	}
	if page.Continue != "" && page.Continue == requestQuery.Get("continue") {
		return nil, "", fmt.Errorf("the fleet API returned the same page twice, so the list is incomplete; retry, or upgrade the fleet API")
	}
	for _, raw := range page.Items {
		i, err := NewItem(sel.Kind, raw)
		if err != nil {
			return nil, "", err
		}
		items = append(items, i)
	}
	return items, page.Continue, nil
}
