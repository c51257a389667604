package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// groupEvents is how many events are appended in one transaction, but for a
	// request that has more by itself.
	groupEvents = 2000
	// appendBound is how long one transaction may take, and how long a group may
	// wait for its turn: one whose turn comes later is not appended. So nobody waits
	// for longer than twice that, and what waits does not pile up behind a database
	// that is slow, for callers who have gone.
	appendBound = 15 * time.Second
)

// An intake appends events for many callers at once: what arrives while a
// transaction is under way goes together into the next one. So a commit, which
// takes as long as a disk does, is shared by all that wait for it.
//
// It has no goroutine. The first caller appends for those who came with it, and
// then hands over to one of those who came after.
type intake struct {
	store Store

	mu     sync.Mutex
	queues map[Scope][]*group // those that wait; there is an entry while one is under way
}

// A group is the events that go into one transaction.
type group struct {
	events   []Event
	requests int
	since    time.Time     // when the first of them came
	lead     chan struct{} // holds one: whoever takes it appends the group
	done     chan struct{} // closed when the rest is set
	outcomes []Outcome
	err      error
}

func newIntake(store Store) *intake { return &intake{store: store, queues: map[Scope][]*group{}} }

// appendEvents keeps events. It returns when they are durable, which the end of ctx
// does not hurry: by then others may count on this call.
func (in *intake) appendEvents(ctx context.Context, scope Scope, events []Event) ([]Outcome, error) {
	g, from := in.joinGroup(scope, events)
	select {
	case <-g.done:
	case <-g.lead:
		in.appendGroup(ctx, scope, g)
	}
	if g.err == nil {
		return g.outcomes[from : from+len(events)], nil
	}
	if g.requests == 1 || errors.Is(g.err, ErrUnavailable) {
		return nil, g.err
	}
	// It may have been the others' fault.
	return appendOnce(ctx, in.store, scope, events)
}

// joinGroup finds a group for events and gives where they are in it.
func (in *intake) joinGroup(scope Scope, events []Event) (g *group, from int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	queue, busy := in.queues[scope]
	if n := len(queue); n > 0 && len(queue[n-1].events)+len(events) <= groupEvents {
		g = queue[n-1]
	} else {
		g = &group{since: time.Now(), lead: make(chan struct{}, 1), done: make(chan struct{})}
		in.queues[scope] = append(queue, g)
	}
	from = len(g.events)
	g.events = append(g.events, events...)
	g.requests++
	if !busy {
		in.startNextGroup(scope)
	}
	return g, from
}

// startNextGroup lets the group at the head of a queue be appended. The lock is held.
func (in *intake) startNextGroup(scope Scope) {
	queue := in.queues[scope]
	if len(queue) == 0 {
		delete(in.queues, scope)
		return
	}
	queue[0].lead <- struct{}{}
}

// appendGroup appends a group, and lets the next one be appended.
func (in *intake) appendGroup(ctx context.Context, scope Scope, g *group) {
	in.mu.Lock()
	in.queues[scope] = slices.Delete(in.queues[scope], 0, 1) // nobody joins it any more
	in.mu.Unlock()

	defer func() { // also if the store panics: others wait
		close(g.done)
		in.mu.Lock()
		defer in.mu.Unlock()
		in.startNextGroup(scope)
	}()
	if waited := time.Since(g.since); waited > appendBound {
		g.err = fmt.Errorf("%w: the events waited %s in the queue", ErrUnavailable, waited.Round(time.Second))
		return
	}
	g.err = errors.New("the events were not stored")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendBound)
	defer cancel()
	g.outcomes, g.err = appendOnce(ctx, in.store, scope, g.events)
	if g.err != nil && ctx.Err() != nil { // it is nobody's fault, and each by itself would take as long
		g.err = fmt.Errorf("%w: %w", ErrUnavailable, g.err)
	}
}

// appendOnce appends events whose keys may be the same. The first one of a key
// counts.
func appendOnce(ctx context.Context, store Store, scope Scope, events []Event) ([]Outcome, error) {
	first := make(map[uuid.UUID]int, len(events)) // by key, its place among the unique ones
	unique := make([]Event, 0, len(events))
	for i := range events {
		if _, there := first[events[i].Key]; !there {
			first[events[i].Key] = len(unique)
			unique = append(unique, events[i])
		}
	}
	became, err := store.Append(ctx, scope, unique)
	if err != nil || len(unique) == len(events) {
		return became, err
	}
	outcomes := make([]Outcome, len(events))
	told := make([]bool, len(unique))
	var rest []Event // of which what was found out says nothing
	var places []int
	for i := range events {
		u := first[events[i].Key]
		same := events[i].Digest == unique[u].Digest
		switch {
		case !told[u]:
			outcomes[i], told[u] = became[u], true
		case became[u] == Different && !same:
			rest, places = append(rest, events[i]), append(places, i)
		case became[u] == Different || !same:
			outcomes[i] = Different
		default:
			outcomes[i] = Known
		}
	}
	if len(rest) == 0 {
		return outcomes, nil
	}
	became, err = appendOnce(ctx, store, scope, rest)
	for i, o := range became {
		outcomes[places[i]] = o
	}
	return outcomes, err
}
