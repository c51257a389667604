package shard

import (
	"fmt"
	"strconv"
)

// MaxParts is how many parts there may be: each id is weighed for all of them.
const MaxParts = 1024

// A Part is one of several fixed parts of a fleet. Nothing sees to it that
// each part has a sentinel, and only one. It implements sentinel.Shard.
type Part struct {
	share        share
	count, index int
}

// Static makes the part with an index, from 0, of count. With one part more
// about that part of the ids moves, to the new one only.
func Static(count, index int) (*Part, error) {
	if count < 1 || count > MaxParts {
		return nil, fmt.Errorf("create shard: count %d is invalid: must be between 1 and %d", count, MaxParts)
	}
	if index < 0 || index >= count {
		return nil, fmt.Errorf("create shard: index %d of %d is invalid: must be between 0 and %d", index, count, count-1)
	}
	var others []string
	for i := range count {
		if i != index {
			others = append(others, strconv.Itoa(i))
		}
	}
	return &Part{share: newShare(strconv.Itoa(index), others), count: count, index: index}, nil
}

// String says which part it is, such as "part 0/3".
func (p *Part) String() string { return fmt.Sprintf("part %d/%d", p.index, p.count) }

// Owns reports whether an id is in the part.
func (p *Part) Owns(id []byte) bool { return p.share.containsHash(hashID(id)) }

// Acquire is ok for what the part owns. Nothing is counted, as no part ever
// gives anything away.
func (p *Part) Acquire(id []byte) (release func(), ok bool) { return func() {}, p.Owns(id) }

// Changed is never closed.
func (p *Part) Changed() <-chan struct{} { return nil }
