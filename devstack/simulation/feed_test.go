package simulation

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
)

var (
	errCursorExpired = errors.New("the cursor is too old, or of another time")
	errNoCursor      = errors.New("this is no cursor of this API")
)

// formatCursor returns the cursor of a position in the sequence.
func formatCursor(epoch int, seq int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "1.%d.%d", epoch, seq))
}

// parseCursor parses a cursor.
func (f *Fleet) parseCursor(text string) (int64, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var epoch int
	var seq int64
	if err != nil {
		return 0, errNoCursor
	}
	if n, err := fmt.Sscanf(string(raw), "1.%d.%d", &epoch, &seq); err != nil || n != 2 {
		return 0, errNoCursor
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch != f.epoch || seq > f.seq || seq < f.oldest {
		return 0, errCursorExpired
	}
	return seq, nil
}

// A news is the last change of a resource: its current state, or that it is gone or no longer
// selected.
type news struct {
	seq      int64
	id       string
	resource *v1.Resource // nil if removed
}

// A batch holds the changes after a position.
type batch struct {
	news []news
	seq  int64 // next position
	more bool
	wake <-chan struct{} // closed when there may be more changes
}

// changesSince returns up to limit changes after a position. Each resource occurs once, in its
// current state.
func (f *Fleet) changesSince(sel selector.Selector, from int64, limit int) (batch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from < f.oldest {
		return batch{}, errCursorExpired
	}
	b := batch{seq: f.seq, wake: f.wake}
	relabeled, last := f.touchedSince(from)
	for _, c := range f.log[f.logPosition(from):] {
		if last[c.id] != c.seq || f.Late > 0 && time.Since(c.at) < f.Late && c.seq%2 == 0 {
			continue
		}
		n := news{seq: c.seq, id: c.id}
		if r := f.rows[c.id]; r != nil && sel.Matches(selector.Map(r.Labels)) {
			resource := r.Resource
			n.resource = &resource
		} else if r != nil && !relabeled[c.id] {
			continue
		}
		if len(b.news) == limit {
			b.seq, b.more = b.news[limit-1].seq, true
			return b, nil
		}
		b.news = append(b.news, n)
	}
	return b, nil
}

// logPosition returns the index in the log of the first change after a position.
func (f *Fleet) logPosition(from int64) int {
	low, high := 0, len(f.log)
	for low < high {
		if mid := (low + high) / 2; f.log[mid].seq <= from {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// touchedSince returns, for the resources that changed after a position, which were relabelled or
// removed, and the last change of each.
func (f *Fleet) touchedSince(from int64) (relabeled map[string]bool, last map[string]int64) {
	relabeled, last = map[string]bool{}, map[string]int64{}
	for _, c := range f.log[f.logPosition(from):] {
		last[c.id] = c.seq
		if c.relabeled {
			relabeled[c.id] = true
		}
	}
	return relabeled, last
}
