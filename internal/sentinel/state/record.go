package state

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// RecordDepth is the number of decisions that are kept for one resource.
	RecordDepth = 8

	// maxRecordedID is the length, in bytes, of the longest id that gets a record. External texts
	// are truncated to the next two.
	maxRecordedID    = 256
	maxRecordedPhase = 64
	maxRecordedErr   = 256
)

// A DecisionEntry is one decision about a resource. Times have millisecond precision; a zero time
// means none.
type DecisionEntry struct {
	// At is the time of the last one of Times equal decisions in a row, and First that of the
	// first. The record computes First and Times.
	At    time.Time
	First time.Time
	Times int

	Reason string

	// Published says whether the decision was to publish an event. Confirmed and Err show whether a
	// broker has it.
	Published bool

	// The inputs of the decision.
	Generation         int64
	ObservedGeneration int64
	Phase              string
	LastUpdated        time.Time
	Since              time.Time // that the rule counted from

	// Next is when the resource falls due, or fell due if Published.
	Next time.Time

	// EventID is the id of the event, the last one of Times.
	EventID string

	// Confirmed is when a broker confirmed that event, and Err is the last failure if none did.
	Confirmed time.Time
	Err       string
}

// A DecisionRecord keeps the latest decisions of a sentinel about single resources, to explain why
// one was announced, or why it was not. Create it with NewDecisionRecord. It is safe for concurrent
// use.
//
// Most resources of a fleet are skipped in every round, and need no record. A decision to publish,
// or one that may need an explanation, opens a record (RecordDecision); from then on plain skips
// continue it (RecordDecisionIfKnown). Memory is bounded: the number of resources, of decisions for
// each, and the length of texts. The resource that was not noted for the longest time is removed
// first. All records are lost with the process, and nothing depends on them.
type DecisionRecord struct {
	mu    sync.Mutex
	limit int
	byID  map[string]*resourceRecord

	// newest and oldest are the ends of the list in the order of RecordDecision.
	newest, oldest *resourceRecord
}

// A resourceRecord holds the decisions about one resource.
type resourceRecord struct {
	id           string
	newer, older *resourceRecord
	noted        int64
	decisions    []storedDecision // the newest last
}

// A storedDecision is a compact DecisionEntry. Times are Unix milliseconds, in which the zero time
// is a number like any other.
type storedDecision struct {
	at, first, lastUpdated, since, next, confirmed int64

	generation, observed        int64
	reason, phase, eventID, err string
	times                       int
	published                   bool
}

// NewDecisionRecord returns a record of at most limit resources. A limit of 0 or less keeps none.
//
// A resource takes about 200 bytes, and each of its decisions about the same.
func NewDecisionRecord(limit int) *DecisionRecord {
	return &DecisionRecord{limit: limit, byID: map[string]*resourceRecord{}}
}

// SetLimitAndEvict changes the maximum number of resources.
func (r *DecisionRecord) SetLimitAndEvict(limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
	for len(r.byID) > max(0, limit) {
		r.removeOldest()
	}
}

func (r *DecisionRecord) removeOldest() {
	delete(r.byID, r.oldest.id)
	r.unlinkResource(r.oldest)
}

// RecordDecision adds a decision, and opens a record if the resource has none.
func (r *DecisionRecord) RecordDecision(id []byte, entry DecisionEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(id) > maxRecordedID || r.limit <= 0 {
		return
	}
	res := r.byID[string(id)]
	if res == nil {
		if len(r.byID) >= r.limit {
			r.removeOldest()
		}
		res = &resourceRecord{id: string(id)}
		r.byID[res.id] = res
	} else {
		r.unlinkResource(res)
	}
	r.linkResourceAsNewest(res)
	res.noted = entry.At.UnixMilli()
	res.mergeOrAddDecision(&entry)
}

// RecordDecisionIfKnown adds a decision if the resource has a record, and does not extend the life
// of that record. It is called for every resource of every round, and is almost free for an unknown
// one.
func (r *DecisionRecord) RecordDecisionIfKnown(id []byte, entry DecisionEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if res := r.byID[string(id)]; res != nil {
		res.mergeOrAddDecision(&entry)
	}
}

// RecordConfirmed records that a broker has an event.
func (r *DecisionRecord) RecordConfirmed(resourceID, eventID string, at time.Time) {
	r.updateDecisionOfEvent(resourceID, eventID, func(d *storedDecision) { d.confirmed, d.err = at.UnixMilli(), "" })
}

// RecordFailed records why a broker does not have an event. A confirmed event stays confirmed.
func (r *DecisionRecord) RecordFailed(resourceID, eventID string, at time.Time, err error) {
	r.updateDecisionOfEvent(resourceID, eventID, func(d *storedDecision) {
		if d.confirmed == zeroMillis() {
			d.err = truncateText(at.UTC().Format(time.RFC3339)+": "+err.Error(), maxRecordedErr)
		}
	})
}

func (r *DecisionRecord) updateDecisionOfEvent(resourceID, eventID string, update func(*storedDecision)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := r.byID[resourceID]
	if res == nil || eventID == "" {
		return
	}
	for i := len(res.decisions) - 1; i >= 0; i-- {
		if d := &res.decisions[i]; d.eventID == eventID {
			update(d)
			return
		}
	}
}

// Len returns the number of resources that have a record.
func (r *DecisionRecord) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID)
}

// ListDecisions returns the decisions about a resource, the newest first, or none if it has no record.
func (r *DecisionRecord) ListDecisions(id string) []DecisionEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if res := r.byID[id]; res != nil {
		return res.listNewestFirst()
	}
	return nil
}

// A RecordedResource is a resource with its decisions, the newest first.
type RecordedResource struct {
	ID      string
	Noted   time.Time
	Entries []DecisionEntry
}

// ListLatest returns the most recently noted resources, at most limit.
func (r *DecisionRecord) ListLatest(limit int) []RecordedResource {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []RecordedResource
	for res := r.newest; res != nil && len(list) < limit; res = res.older {
		list = append(list, RecordedResource{
			ID:      res.id,
			Noted:   clampedTimeOfMillis(res.noted),
			Entries: res.listNewestFirst(),
		})
	}
	return list
}

// mergeOrAddDecision continues the last decision if it is equal. Otherwise it adds a new decision
// and drops the oldest.
func (res *resourceRecord) mergeOrAddDecision(entry *DecisionEntry) {
	next := storedDecision{
		at:          entry.At.UnixMilli(),
		first:       entry.At.UnixMilli(),
		lastUpdated: entry.LastUpdated.UnixMilli(),
		since:       entry.Since.UnixMilli(),
		next:        entry.Next.UnixMilli(),
		confirmed:   entry.Confirmed.UnixMilli(),
		generation:  entry.Generation,
		observed:    entry.ObservedGeneration,
		reason:      entry.Reason,
		phase:       truncateText(entry.Phase, maxRecordedPhase),
		eventID:     entry.EventID,
		err:         truncateText(entry.Err, maxRecordedErr),
		times:       1,
		published:   entry.Published,
	}
	count := len(res.decisions)
	if count > 0 && res.decisions[count-1].isRepeatedBy(&next) {
		res.decisions[count-1].mergeRepeat(next)
		return
	}
	if count == RecordDepth {
		copy(res.decisions, res.decisions[1:])
		res.decisions = res.decisions[:count-1]
	}
	res.decisions = append(res.decisions, next)
}

// isRepeatedBy reports whether the next decision about a resource is equal to this one.
func (d *storedDecision) isRepeatedBy(next *storedDecision) bool {
	return d.reason == next.reason && d.generation == next.generation && d.published == next.published
}

// mergeRepeat replaces a decision by an equal one, and continues its count. The result of the same
// event is kept.
func (d *storedDecision) mergeRepeat(next storedDecision) {
	next.first, next.times = d.first, d.times+1
	isSameEvent := next.eventID == d.eventID
	if isSameEvent && next.confirmed == zeroMillis() {
		next.confirmed = d.confirmed
		if next.err == "" {
			next.err = d.err
		}
	}
	*d = next
}

func (res *resourceRecord) listNewestFirst() []DecisionEntry {
	list := make([]DecisionEntry, 0, len(res.decisions))
	for i := len(res.decisions) - 1; i >= 0; i-- {
		d := &res.decisions[i]
		list = append(list, DecisionEntry{
			At:                 clampedTimeOfMillis(d.at),
			First:              clampedTimeOfMillis(d.first),
			Times:              d.times,
			Reason:             d.reason,
			Published:          d.published,
			Generation:         d.generation,
			ObservedGeneration: d.observed,
			Phase:              d.phase,
			LastUpdated:        clampedTimeOfMillis(d.lastUpdated),
			Since:              clampedTimeOfMillis(d.since),
			Next:               clampedTimeOfMillis(d.next),
			EventID:            d.eventID,
			Confirmed:          clampedTimeOfMillis(d.confirmed),
			Err:                d.err,
		})
	}
	return list
}

func (r *DecisionRecord) linkResourceAsNewest(res *resourceRecord) {
	res.newer, res.older = nil, r.newest
	if r.newest != nil {
		r.newest.newer = res
	} else {
		r.oldest = res
	}
	r.newest = res
}

func (r *DecisionRecord) unlinkResource(res *resourceRecord) {
	if res.newer != nil {
		res.newer.older = res.older
	} else {
		r.newest = res.older
	}
	if res.older != nil {
		res.older.newer = res.newer
	} else {
		r.oldest = res.newer
	}
}

// zeroMillis returns the zero time in milliseconds.
func zeroMillis() int64 { return time.Time{}.UnixMilli() }

// clampedTimeOfMillis returns a time within the years that RFC 3339 can represent. A resource may claim
// any time, and one of year 9999 falls due in the year after.
func clampedTimeOfMillis(unixMillis int64) time.Time {
	first := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	return time.UnixMilli(min(max(unixMillis, first.UnixMilli()), last.UnixMilli())).UTC()
}

// truncateText truncates a text to maxBytes bytes, and keeps no reference to a longer one.
func truncateText(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	const mark = "…"
	end := maxBytes - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]) + mark
}
