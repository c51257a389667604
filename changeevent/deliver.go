package changeevent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A deliveryResult is the final result of a batch.
type deliveryResult struct {
	class     Class
	permanent bool
	status    int
	attempts  int
	text      string
}

// isFinalForSender reports whether a sender with SenderRetries does not send the event again: it
// was accepted, will never be accepted, or is too old.
func (result deliveryResult) isFinalForSender() bool {
	return slices.Contains([]Class{"", ClassClientError, ClassEncode, ClassExpired}, result.class)
}

// isDroppedByClient reports whether the client discarded the event, rather than the sink or the
// connection.
func (result deliveryResult) isDroppedByClient() bool {
	return slices.Contains([]Class{ClassQueueFull, ClassClosed, ClassShutdown, ClassExpired}, result.class)
}

// A worker sends the events of a shard.
type worker struct {
	client *client
	shard  *shard
	hand   *inFlightEvents // the events that it is sending
}

// deliverUntilClosed delivers the events of a shard, one request after the other, until the shard
// is closed and empty.
func (w *worker) deliverUntilClosed() {
	defer w.client.countWorkerEndAndCloseIdle()
	limit := formatSpecOrJSON(w.client.cfg.Format).batch
	batch := make([]item, 0, limit)
	for w.shard.awaitItems() {
		// Events stay in the queue until they can be sent, because it replaces the oldest.
		ready := w.awaitKeysDroppingExpired() && w.client.pace.awaitEndOfPause(w.dropExpiredQueuedEvents)
		if ready && w.client.cfg.BatchWait > 0 {
			w.client.pace.sleepOrUntilClose(w.client.cfg.BatchWait)
		}
		batch = w.shard.takeBatchAsInFlight(w.hand, batch[:0], limit, w.client.cluster)
		fresh := w.client.dropExpired(batch)
		if len(fresh) > 0 && ready {
			w.client.sendBatchHalvingRejected(fresh)
		} else if len(fresh) > 0 {
			w.client.results.countLogAndReportResults(fresh, deliveryResult{
				class: ClassShutdown,
				text:  w.client.notReadyReason(),
			})
		}
		w.shard.clearInFlight(w.hand)
		clear(batch) // release what the events refer to
	}
}

// awaitKeysDroppingExpired waits until credentials are available, and returns false if the client is
// closed before. Until then, events stay in the queue, where new events replace the
// oldest, and events that become too old are dropped.
func (w *worker) awaitKeysDroppingExpired() (credentialsRead bool) {
	select {
	case <-w.client.keys.there:
		return true
	default:
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.client.keys.there:
			return true
		case <-w.client.pace.closing:
			return w.client.keys.rereadUnlessPresent(w.client.pace.root)
		case <-tick.C:
			w.dropExpiredQueuedEvents()
		}
	}
}

// dropExpiredQueuedEvents drops the events of a shard that are too old.
func (w *worker) dropExpiredQueuedEvents() {
	oldest := time.Now().Add(-w.client.cfg.MaxAge)
	expired := w.shard.takeOlderAsInFlight(w.hand, oldest)
	if len(expired) == 0 {
		return
	}
	w.client.results.countLogAndReportResults(expired, deliveryResult{class: ClassExpired, permanent: true})
	w.shard.clearInFlight(w.hand)
}

// countWorkerEndAndCloseIdle records that a worker has ended.
func (c *client) countWorkerEndAndCloseIdle() {
	if c.working.Add(-1) == 0 {
		close(c.aside.idle)
	}
}

// notReadyReason returns why events were not sent before the client ended.
func (c *client) notReadyReason() string {
	if until, ok := c.pace.pausedUntil(); ok && c.keys.current.Load() != nil {
		return "the sink asked for no requests until " + CanonicalTime(until)
	}
	return c.keys.lastReadErrorText()
}

// rereadUnreadableFilesUntilClose reads files again that could not be read. It does so even if there is
// nothing to send, so that metrics show when they become readable.
func (c *client) rereadUnreadableFilesUntilClose() {
	defer c.countWorkerEndAndCloseIdle()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.pace.closing:
			return
		case <-tick.C:
			if c.keys.trouble.Load() != nil {
				c.keys.rereadIfDue(c.pace.root)
			}
		}
	}
}

// sendBatchHalvingRejected delivers a batch and reports the results. If a batch is rejected because of
// its content, each half is sent separately, so that one invalid event does not affect
// the others. Nothing is sent during a pause that the sink asked for.
func (c *client) sendBatchHalvingRejected(batch []item) {
	if !c.pace.awaitEndOfPause(func() { batch = c.dropExpired(batch) }) {
		c.results.countLogAndReportResults(batch, deliveryResult{class: ClassShutdown, text: c.notReadyReason()})
		return
	}
	batch = c.dropExpired(batch) // the first half may have waited
	if len(batch) == 0 {
		return
	}
	result := c.deliverBatchRecoveringPanics(batch)
	if len(batch) > 1 && mayOneEventCauseRejection(c.cfg.Format, result) {
		half := len(batch) / 2
		c.sendBatchHalvingRejected(batch[:half])
		c.sendBatchHalvingRejected(batch[half:])
		return
	}
	c.results.countLogAndReportResults(batch, result)
}

// mayOneEventCauseRejection reports whether one event may have caused the rejection of its batch. Either it
// could not be encoded, or the sink validates the events of an array one by one.
func mayOneEventCauseRejection(format Format, result deliveryResult) bool {
	return result.class == ClassEncode || result.class == ClassClientError && format == FormatCloudEventsBatch
}

// dropExpired drops the events that are too old, and returns the others.
func (c *client) dropExpired(batch []item) (kept []item) {
	kept = batch[:0]
	oldest := time.Now().Add(-c.cfg.MaxAge)
	for i := range batch {
		if batch[i].event.laterOfTimestampAndQueuedAt().Before(oldest) {
			c.results.countLogAndReportResults(batch[i:i+1], deliveryResult{class: ClassExpired, permanent: true})
			continue
		}
		kept = append(kept, batch[i])
	}
	return kept
}

// A batchDelivery is one request with all of its attempts.
type batchDelivery struct {
	client *client
	ctx    context.Context //nolint:containedctx // it lives as long as the call that makes it
	keys   *keys
	events []*ChangeEvent
	req    request
	began  time.Time
	tries  int // attempts so far
}

// deliverBatchRecoveringPanics sends a request until the sink accepts it or a retry makes no sense. A
// panic, in an unforeseen event or a RoundTripper, loses only the events of the batch.
func (c *client) deliverBatchRecoveringPanics(batch []item) (result deliveryResult) {
	s := &batchDelivery{
		client: c,
		ctx:    contextWithValuesOf{c.pace.root, batch[0].ctx},
		began:  time.Now(),
		events: make([]*ChangeEvent, len(batch)),
	}
	defer func() {
		if p := recover(); p != nil {
			result = deliveryResult{
				class:     ClassEncode,
				permanent: true,
				attempts:  s.tries,
				text:      "panic: " + c.keys.current.Load().redactKeys(fmt.Sprint(p)),
			}
		}
	}()
	for i := range batch {
		s.events[i] = &batch[i].event
		s.events[i].ID = idOrDerived(s.events[i])
	}
	s.keys = c.keys.currentKeysRereadIfDue(s.ctx)
	if err := s.encodeRequest(); err != nil {
		return deliveryResult{class: ClassEncode, permanent: true, text: err.Error()}
	}
	return s.sendWithRetries()
}

// encodeRequest encodes the events with the current keys.
func (s *batchDelivery) encodeRequest() error {
	cfg := &s.client.cfg
	req, err := encodeEvents(cfg.Format, encodeSettings{
		cluster: s.client.cluster,
		key:     s.keys.body,
		links:   cfg.Links,
		product: cfg.Product,
		strict:  cfg.BaseFieldsOnly,
	}, s.events)
	s.req = req
	return err
}

// sendWithRetries sends the request until it is accepted or a retry makes no sense. If the keys may be
// out of date, it reads them again, once, and repeats the request at once.
func (s *batchDelivery) sendWithRetries() deliveryResult {
	renewed := false
	for {
		if s.client.pace.root.Err() != nil {
			return deliveryResult{class: ClassShutdown, attempts: s.tries, text: errEnded.Error()}
		}
		s.tries++
		attempt := s.sendOnce()
		result := deliveryResult{
			class:     attempt.class,
			permanent: attempt.permanent,
			status:    attempt.status,
			attempts:  s.tries,
			text:      s.keys.redactKeys(attempt.text),
		}
		accepted := attempt.class == ""
		if accepted || s.tries == s.client.cfg.Retry.MaxAttempts {
			return result
		}
		if attempt.mayHaveStaleKeys() && !renewed {
			var keys *keys
			keys, renewed = s.client.keys.renewKeys(s.ctx, s.keys)
			if renewed {
				if failure, mayRetry := s.waitRetryAfterThenReencode(attempt, result, keys); !mayRetry {
					return failure
				}
				continue
			}
		}
		if !attempt.retry || !s.awaitAndCountRetry(attempt) {
			return result
		}
	}
}

// waitRetryAfterThenReencode prepares the next attempt with other keys, after any pause that the
// sink asked for. It returns false and the result if no attempt is left.
func (s *batchDelivery) waitRetryAfterThenReencode(
	attempt attemptResult, result deliveryResult, renewed *keys,
) (failure deliveryResult, mayRetry bool) {
	if !s.waitBeforeRetry(attempt, 0) {
		return result, false
	}
	s.keys = renewed
	if err := s.encodeRequest(); err != nil {
		return deliveryResult{class: ClassEncode, permanent: true, attempts: s.tries, text: err.Error()}, false
	}
	s.client.results.countRetry()
	return deliveryResult{}, true
}

// awaitAndCountRetry waits for the next attempt. It returns false if no attempt is left.
func (s *batchDelivery) awaitAndCountRetry(attempt attemptResult) (mayRetry bool) {
	select {
	case <-s.client.pace.closing:
		return false
	default:
	}
	if time.Since(s.began) >= s.client.cfg.Retry.MaxElapsedTime {
		return false
	}
	if !s.waitBeforeRetry(attempt, s.randomBackoff()) {
		return false
	}
	s.client.results.countRetry()
	return true
}

// waitBeforeRetry waits for the next attempt, at least until the end of any pause. A
// pause may come from any response, including one that arrives meanwhile. It waits up to
// spread longer while MaxElapsedTime lasts, so that clients with the same pause do not
// return at the same time. It returns false as early as possible if the events would be
// too old by then or the client ends first.
func (s *batchDelivery) waitBeforeRetry(attempt attemptResult, spread time.Duration) (mayRetry bool) {
	after := attempt.after
	for {
		until, _ := s.client.pace.pausedUntil()
		after = max(after, time.Until(until))
		wait := max(after, min(after+spread, s.client.cfg.Retry.MaxElapsedTime-time.Since(s.began)))
		if time.Now().Add(wait).After(s.oldestEventTime().Add(s.client.cfg.MaxAge)) {
			return false
		}
		s.client.log.DebugContext(s.ctx, "change event delivery failed, retrying",
			"error_class", attempt.class, "status", attempt.status, "attempts", s.tries, "wait", wait)
		if !s.client.pace.waitOrUntilCloseButNotBefore(wait, time.Now().Add(after)) {
			return false
		}
		if _, held := s.client.pace.pausedUntil(); !held {
			return true
		}
		after = 0
	}
}

// oldestEventTime returns the time from which the age of the oldest event of the request
// counts.
func (s *batchDelivery) oldestEventTime() time.Time {
	oldest := s.events[0].laterOfTimestampAndQueuedAt()
	for _, e := range s.events[1:] {
		if at := e.laterOfTimestampAndQueuedAt(); at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

// randomBackoff returns the delay before the next attempt. It is random, with an upper
// bound that doubles, so that clients that failed together do not retry together.
func (s *batchDelivery) randomBackoff() time.Duration {
	bound := s.client.cfg.Retry.InitialInterval
	for range s.tries - 1 {
		if bound >= s.client.cfg.Retry.MaxInterval {
			break
		}
		bound *= 2
	}
	bound = min(bound, s.client.cfg.Retry.MaxInterval)
	return rand.N(bound + 1) //nolint:gosec // when a request comes is no secret
}
