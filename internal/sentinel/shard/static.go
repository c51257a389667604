package shard

import (
	"fmt"
	"strconv"
)

// MaxParts is the maximum number of parts: each id is weighed for all of them.
const MaxParts = 1024

// A Part is one of several fixed parts of a fleet. Nothing ensures that each part has exactly one
// sentinel. It implements sentinel.Shard.
type Part struct {
	share        rendezvousShare
	count, index int
}

// NewStaticPart returns the part with an index, from 0, of count. If one part is added, about that
// part's share of the ids moves, and only to the new part.
func NewStaticPart(count, index int) (*Part, error) {
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
	return &Part{share: newRendezvousShare(strconv.Itoa(index), others), count: count, index: index}, nil
}

// String returns the name of the part, such as "part 0/3".
func (p *Part) String() string { return fmt.Sprintf("part %d/%d", p.index, p.count) }

// Owns reports whether an id is in the part.
func (p *Part) Owns(id []byte) bool { return p.share.containsHash(hashID(id)) }

// Acquire succeeds for resources in the part. It counts nothing, because a part never gives
// resources away.
func (p *Part) Acquire(id []byte) (release func(), ok bool) { return func() {}, p.Owns(id) }

// Changed returns a channel that is never closed.
func (p *Part) Changed() <-chan struct{} { return nil }
