package simulation

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Division divides the resources among several sentinels, as a group of them does. A sentinel
// that loses a resource ends its attempts for it before another gets it. A crash is noticed after a
// while.
type Division struct {
	ids     []string
	history *History

	// dividing contains an element while the division changes. A mutex would stop the time of the
	// bubble.
	dividing chan struct{}

	mu     sync.Mutex
	idle   *sync.Cond // an attempt to publish has ended
	epoch  int
	shares []*Share
}

// A Share is the share of one sentinel. It implements Deps.Shard of the sentinel.
type Share struct {
	*Division
	name    string
	owned   map[string]bool
	held    map[string]int
	changed chan struct{}
}

// NewDivision returns a division of resources without owners.
func NewDivision(ids []string, h *History) *Division {
	d := &Division{ids: ids, history: h, dividing: make(chan struct{}, 1)}
	d.idle = sync.NewCond(&d.mu)
	return d
}

// Join adds a sentinel and returns its share.
func (d *Division) Join(name string) *Share {
	s := &Share{Division: d, name: name, owned: map[string]bool{}, held: map[string]int{}, changed: make(chan struct{})}
	d.redistribute(func() { d.shares = append(d.shares, s) })
	return s
}

// Leave gives a share to the others.
func (d *Division) Leave(s *Share) { d.redistribute(func() { d.removeShare(s) }) }

// Miss gives the share of a sentinel that crashed at a time to the others.
func (d *Division) Miss(s *Share, since time.Time) {
	d.Leave(s)
	d.history.RecordStrike("a sentinel is missed", since, time.Now())
}

// Shuffle changes the division without any sentinel joining or leaving.
func (d *Division) Shuffle() { d.redistribute(func() { d.epoch++ }) }

func (d *Division) removeShare(s *Share) {
	d.shares = slices.DeleteFunc(d.shares, func(other *Share) bool { return other == s })
}

// redistribute removes the lost resources from each share, waits for attempts in progress, and adds
// the gained resources to each share.
func (d *Division) redistribute(change func()) {
	d.dividing <- struct{}{}
	defer func() { <-d.dividing }()
	begin := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	before := slices.Clone(d.shares)
	change()
	owners := map[string]*Share{}
	for _, id := range d.ids {
		owners[id] = d.ownerOf(id)
	}
	for _, s := range before {
		for _, id := range d.ids {
			if owners[id] != s && s.owned[id] {
				d.history.RecordHandover(id)
				delete(s.owned, id)
			}
		}
		s.signalChange()
	}
	for _, s := range before {
		for slices.ContainsFunc(d.ids, func(id string) bool { return owners[id] != s && s.held[id] > 0 }) {
			d.idle.Wait()
		}
	}
	for id, s := range owners {
		if s != nil {
			s.owned[id] = true
		}
	}
	for _, s := range d.shares {
		s.signalChange()
	}
	d.history.RecordStrike("divided anew", begin, time.Now())
}

// ownerOf returns the share with the highest hash of a resource's id, or nil if no share exists.
func (d *Division) ownerOf(id string) (owner *Share) {
	var most string
	for _, s := range d.shares {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", id, s.name, d.epoch))
		if text := string(sum[:]); owner == nil || text > most {
			owner, most = s, text
		}
	}
	return owner
}

func (s *Share) signalChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Owns reports whether the share contains a resource.
func (s *Share) Owns(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[string(id)]
}

// Acquire keeps a resource of the share until it is released.
func (s *Share) Acquire(id []byte) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(id)
	if !s.owned[key] {
		return nil, false
	}
	s.held[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[key]--
		s.idle.Broadcast()
	}, true
}

// Changed returns a channel that is closed when the share changes.
func (s *Share) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Holds reports whether this share has an attempt in progress for a resource. No other share may
// have one.
func (s *Share) Holds(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[id] > 0
}
