package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

func TestPagesCoverEverythingOnceInEveryOrder(t *testing.T) {
	s := newStore(t)
	rows := fleet(t, s)
	orders := [][]fleetapi.Order{nil}
	for f := range search.Label {
		if _, ok := search.FindSortableField(search.Column{Field: f}.String()); ok {
			orders = append(orders, []fleetapi.Order{{Column: f}}, []fleetapi.Order{{Column: f, Desc: true}})
		}
	}
	orders = append(orders,
		[]fleetapi.Order{{Column: search.Generation, Desc: true}, {Column: search.CreatedBy}},
		[]fleetapi.Order{{Column: search.Generation}, {Column: search.CreatedTime}, {Column: search.Name}},
		[]fleetapi.Order{{Column: search.DeletedTime}, {Column: search.Generation, Desc: true}},
		[]fleetapi.Order{{Column: search.DeletedTime, Desc: true}, {Column: search.DeletedBy}, {Column: search.CreatedBy, Desc: true}},
		[]fleetapi.Order{{Column: search.OwnerID}, {Column: search.Generation}, {Column: search.ID, Desc: true}},
		[]fleetapi.Order{{Column: search.DeletedBy}, {Column: search.DeletedTime}},
	)
	for _, order := range orders {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			q := fleetapi.Query{Kind: v1.KindCluster, Order: order}
			want := slices.SortedFunc(slices.Values(rows), func(a, b fleetapi.Record) int { return compareRows(&q, &a, &b) })
			byKey, byOffset := []fleetapi.Record{}, []fleetapi.Record{}
			for {
				q.Limit, q.Offset = 5, 0
				page := list(t, s, tenant("a"), q)
				byKey = append(byKey, page...)
				q.After, q.Offset = fleetapi.Position{}, int64(len(byOffset))
				byOffset = append(byOffset, list(t, s, tenant("a"), q)...)
				if len(page) == 0 {
					break
				}
				q.After = placeOf(&q, &page[len(page)-1])
			}
			if diff := cmp.Diff(ids(want), ids(byKey)); diff != "" {
				t.Errorf("by key (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(ids(want), ids(byOffset)); diff != "" {
				t.Errorf("by offset (-want +got):\n%s", diff)
			}
		})
	}
}

// compareRows compares two rows by an order, in Go.
func compareRows(q *fleetapi.Query, a, b *fleetapi.Record) int {
	for _, term := range q.OrderTermsWithID() {
		v, hasA := valueOf(search.Column{Field: term.Column}, a)
		w, hasB := valueOf(search.Column{Field: term.Column}, b)
		n := 0
		switch {
		case hasA && hasB:
			n = compareValues(v, w)
		case hasA:
			n = -1
		case hasB:
			n = 1
		}
		if term.Desc {
			n = -n
		}
		if n != 0 {
			return n
		}
	}
	return 0
}

// placeOf returns the position of a row in the order of a query.
func placeOf(q *fleetapi.Query, r *fleetapi.Record) fleetapi.Position {
	p := fleetapi.Position{ID: r.ID}
	for _, term := range q.Order {
		v, ok := valueOf(search.Column{Field: term.Column}, r)
		v.Type = term.Column.ValueType()
		if !ok {
			v = search.Value{Type: search.Absent}
		}
		if term.Column != search.ID {
			p.Values = append(p.Values, v)
		}
	}
	return p
}

// TestPagesWhileRowsChange checks that a list by id has every stable row exactly once, whatever
// other rows do.
func TestPagesWhileRowsChange(t *testing.T) {
	s := newStore(t)
	rows := fleet(t, s)
	doomed := rows[len(rows)-1].Key
	var seen []string
	var after fleetapi.Position
	for {
		page := list(t, s, all(), fleetapi.Query{Kind: v1.KindCluster, After: after, Limit: 4})
		if len(page) == 0 {
			break
		}
		seen = append(seen, ids(page)...)
		after = fleetapi.Position{ID: page[len(page)-1].ID}
		for _, r := range page[:min(2, len(page))] { // a change does not move a row
			if err := change(t, s, all(), r.Key, func(l *fleetapi.Locked) *v1.AdapterStatus {
				l.Record.Labels, l.Record.UpdatedTime = json.RawMessage(`{"changed": "yes"}`), l.Now
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) == 4 {
			if err := s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
				return tx.DeleteAndRecordResource(ctx, doomed)
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(ids(rows[:len(rows)-1]), seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheCountIsOfAllMatches(t *testing.T) {
	s := newStore(t)
	fleet(t, s)
	q := fleetapi.Query{
		Kind: v1.KindCluster, Count: true, Offset: 2, Limit: 3,
		Search: search.Compare{Column: search.Column{Field: search.Phase}, Value: search.Value{Text: "Ready"}},
	}
	visited := 0
	page, err := s.List(t.Context(), all(), q, func(*fleetapi.Record) error {
		visited++
		return nil
	})
	if page.Count != 9 || visited != 3 || err != nil {
		t.Errorf("count %d, want 9; %d rows, want 3; %v", page.Count, visited, err)
	}
}

func TestAVisitorMayStop(t *testing.T) {
	s := newStore(t)
	fleet(t, s)
	stop := errors.New("enough")
	for _, count := range []bool{false, true} {
		visited := 0
		_, err := s.List(t.Context(), all(), fleetapi.Query{Kind: v1.KindCluster, Limit: 10, Count: count}, func(*fleetapi.Record) error {
			visited++
			return stop
		})
		if err != stop || visited != 1 { //nolint:errorlint // the very error, not one that wraps it
			t.Errorf("%d visits, %v", visited, err)
		}
	}
}
