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
	// groupEvents is the maximum number of events appended in one transaction, except for a single
	// request that has more.
	groupEvents = 2000
	// appendBound limits the duration of a transaction, and the wait of a group for it: a group
	// that waited longer is not appended. No caller waits for longer than twice that, and work for
	// callers who have gone does not pile up behind a slow database.
	appendBound = 15 * time.Second
)

// A groupAppender appends the events of many callers in shared transactions. Events that arrive during a
// transaction go together into the next one, so concurrent callers share a commit, which takes as
// long as a disk write.
//
// It starts no goroutine. The first caller of a group appends it, and then hands over to a caller of the next group.
type groupAppender struct {
	store Store

	mu     sync.Mutex
	queues map[Scope][]*eventGroup // the waiting groups; the entry exists while a group is being appended
}

// An eventGroup holds the events of one transaction.
type eventGroup struct {
	events   []Event
	requests int
	since    time.Time     // when the first of them arrived
	lead     chan struct{} // holds one: the caller who receives it appends the group
	done     chan struct{} // closed when outcomes and err are set
	outcomes []Outcome
	err      error
}

func newGroupAppender(store Store) *groupAppender {
	return &groupAppender{store: store, queues: map[Scope][]*eventGroup{}}
}

// appendInSharedTx appends events. It returns when they are durable. The end of ctx does not interrupt
// it, because other callers may depend on this one.
func (in *groupAppender) appendInSharedTx(ctx context.Context, scope Scope, events []Event) (outcomes []Outcome, err error) {
	g, from := in.joinGroup(scope, events)
	select {
	case <-g.done:
	case <-g.lead:
		in.appendGroupAndSignalNext(ctx, scope, g)
	}
	if g.err == nil {
		return g.outcomes[from : from+len(events)], nil
	}
	if g.requests == 1 || errors.Is(g.err, ErrUnavailable) {
		return nil, g.err
	}
	// The cause may be the events of other callers.
	return appendDeduplicated(ctx, in.store, scope, events)
}

// joinGroup adds events to a group and returns their index in it.
func (in *groupAppender) joinGroup(scope Scope, events []Event) (joined *eventGroup, offset int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	queue, busy := in.queues[scope]
	if n := len(queue); n > 0 && len(queue[n-1].events)+len(events) <= groupEvents {
		joined = queue[n-1]
	} else {
		joined = &eventGroup{since: time.Now(), lead: make(chan struct{}, 1), done: make(chan struct{})}
		in.queues[scope] = append(queue, joined)
	}
	offset = len(joined.events)
	joined.events = append(joined.events, events...)
	joined.requests++
	if !busy {
		in.signalNextGroup(scope)
	}
	return joined, offset
}

// signalNextGroup lets a caller append the group at the head of a queue. The lock is held.
func (in *groupAppender) signalNextGroup(scope Scope) {
	queue := in.queues[scope]
	if len(queue) == 0 {
		delete(in.queues, scope)
		return
	}
	queue[0].lead <- struct{}{}
}

// appendGroupAndSignalNext appends a group, and starts the next one.
func (in *groupAppender) appendGroupAndSignalNext(ctx context.Context, scope Scope, next *eventGroup) {
	in.mu.Lock()
	in.queues[scope] = slices.Delete(in.queues[scope], 0, 1) // no more callers join it
	in.mu.Unlock()

	defer func() { // also if the store panics: others wait
		close(next.done)
		in.mu.Lock()
		defer in.mu.Unlock()
		in.signalNextGroup(scope)
	}()
	if waited := time.Since(next.since); waited > appendBound {
		next.err = fmt.Errorf("%w: the events waited %s in the queue", ErrUnavailable, waited.Round(time.Second))
		return
	}
	next.err = errors.New("the events were not stored")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendBound)
	defer cancel()
	next.outcomes, next.err = appendDeduplicated(ctx, in.store, scope, next.events)
	if next.err != nil && ctx.Err() != nil { // the store was slow, and separate appends would take as long each
		next.err = fmt.Errorf("%w: %w", ErrUnavailable, next.err)
	}
}

// appendDeduplicated appends events whose keys may repeat. The first event of a key counts.
func appendDeduplicated(ctx context.Context, store Store, scope Scope, events []Event) ([]Outcome, error) {
	indexOfKey := make(map[uuid.UUID]int, len(events)) // in unique
	unique := make([]Event, 0, len(events))
	for i := range events {
		if _, repeated := indexOfKey[events[i].Key]; !repeated {
			indexOfKey[events[i].Key] = len(unique)
			unique = append(unique, events[i])
		}
	}
	uniqueOutcomes, err := store.AppendEvents(ctx, scope, unique)
	if err != nil || len(unique) == len(events) {
		return uniqueOutcomes, err
	}
	outcomes := make([]Outcome, len(events))
	firstSeen := make([]bool, len(unique))
	var undecided []Event // repeated events that differ from the first, which differs from the stored one
	var undecidedIndexes []int
	for i := range events {
		u := indexOfKey[events[i].Key]
		sameAsFirst := events[i].Digest == unique[u].Digest
		firstDiffers := uniqueOutcomes[u] == Different
		switch {
		case !firstSeen[u]:
			outcomes[i], firstSeen[u] = uniqueOutcomes[u], true
		case firstDiffers && !sameAsFirst: // it may equal the stored one
			undecided, undecidedIndexes = append(undecided, events[i]), append(undecidedIndexes, i)
		case firstDiffers || !sameAsFirst:
			outcomes[i] = Different
		default:
			outcomes[i] = Known
		}
	}
	if len(undecided) == 0 {
		return outcomes, nil
	}
	rest, err := appendDeduplicated(ctx, store, scope, undecided)
	for i, outcome := range rest {
		outcomes[undecidedIndexes[i]] = outcome
	}
	return outcomes, err
}
