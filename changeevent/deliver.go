package changeevent

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// A verdict is what became of events in the end.
type verdict struct {
	class     Class
	permanent bool
	status    int
	attempts  int
	text      string
}

// isFinal says that nothing more becomes of an event that its sender would send
// again: it was taken, will never be taken, or is too old.
func (v verdict) isFinal() bool {
	switch v.class {
	case "", ClassClientError, ClassEncode, ClassExpired:
		return true
	case ClassRedirect, ClassUnauthorized, ClassForbidden, ClassNotFound, ClassGone, ClassRateLimited, ClassServerError, ClassConnection,
		ClassDNS, ClassTLS, ClassTimeout, ClassAddressDenied, ClassQueueFull, ClassClosed, ClassShutdown:
	}
	return false
}

// isDropped says that it was the client that gave up an event, and not the sink,
// nor the way there.
func (v verdict) isDropped() bool {
	switch v.class {
	case ClassQueueFull, ClassClosed, ClassShutdown, ClassExpired:
		return true
	case "", ClassRedirect, ClassClientError, ClassUnauthorized, ClassForbidden, ClassNotFound, ClassGone, ClassRateLimited,
		ClassServerError, ClassConnection, ClassDNS, ClassTLS, ClassTimeout, ClassAddressDenied, ClassEncode:
	}
	return false
}

// runWorker delivers what comes into a shard, one request after the other, until the
// shard is closed and empty. What it has in hand is in h.
func (c *client) runWorker(s *shard, h *hand) {
	defer c.workerEnded()
	limit := dialectOf(c.cfg.Format).batch
	batch := make([]item, 0, limit)
	for s.awaitItems() {
		ready := c.awaitReady(s, h) && c.awaitResume(func() { c.expireWaiting(s, h) })
		if ready && c.cfg.BatchWait > 0 {
			c.pauseUntilClose(c.cfg.BatchWait)
		}
		batch = s.takeBatch(h, batch[:0], limit, c.cluster)
		switch fresh := c.expireItems(batch); {
		case len(fresh) == 0:
		case ready:
			c.sendBatch(fresh)
		default:
			c.reportResults(fresh, verdict{class: ClassShutdown, text: c.whyNotReady()})
		}
		s.noteSent(h)
		clear(batch)
	}
}

// workerEnded says that one who works has.
func (c *client) workerEnded() {
	if c.working.Add(-1) == 0 {
		close(c.aside.idle)
	}
}

// awaitReady waits until there are credentials, and says false if the client is
// closed before. Until then events stay in the shard, where the newest find a
// place, and those that grow too old are given up.
func (c *client) awaitReady(s *shard, h *hand) bool {
	select {
	case <-c.keys.there:
		return true
	default:
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.keys.there:
			return true
		case <-c.closing:
			return c.keys.checkArrived(c.root)
		case <-tick.C:
			c.expireWaiting(s, h)
		}
	}
}

// expireWaiting gives up what has become too old in a shard.
func (c *client) expireWaiting(s *shard, h *hand) {
	if stale := s.takeOlder(h, time.Now().Add(-c.cfg.MaxAge)); len(stale) > 0 {
		c.reportResults(stale, verdict{class: ClassExpired, permanent: true})
		s.noteSent(h)
	}
}

// followFiles looks after files that could not be read, whether or not there is
// something to send, so that it is known when they can.
func (c *client) followFiles() {
	defer c.workerEnded()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.closing:
			return
		case <-tick.C:
			if c.keys.trouble.Load() != nil {
				c.keys.lookIfDue(c.root)
			}
		}
	}
}

// sendBatch delivers a batch and settles it. Of one that was refused for what is in
// it, each half is sent by itself: the others are not to pay for one event. None
// is sent while the sink asks to be left alone.
func (c *client) sendBatch(batch []item) {
	if !c.awaitResume(func() { batch = c.expireItems(batch) }) {
		c.reportResults(batch, verdict{class: ClassShutdown, text: c.whyNotReady()})
		return
	}
	if batch = c.expireItems(batch); len(batch) == 0 { // the half before may have waited
		return
	}
	v := c.deliverBatch(batch)
	if len(batch) > 1 && c.forOne(v) {
		half := len(batch) / 2
		c.sendBatch(batch[:half])
		c.sendBatch(batch[half:])
		return
	}
	c.reportResults(batch, v)
}

// forOne says that a batch may have been refused for one of its events: it could
// not be written, or the sink, which reads the events of an array one by one, did
// not like it.
func (c *client) forOne(v verdict) bool {
	return v.class == ClassEncode || v.class == ClassClientError && c.cfg.Format == FormatCloudEventsBatch
}

// expireItems gives up what is too old, and leaves the rest.
func (c *client) expireItems(batch []item) []item {
	fresh := batch[:0]
	oldest := time.Now().Add(-c.cfg.MaxAge)
	for i := range batch {
		if batch[i].event.Timestamp.Before(oldest) {
			c.reportResults(batch[i:i+1], verdict{class: ClassExpired, permanent: true})
			continue
		}
		fresh = append(fresh, batch[i])
	}
	return fresh
}

// A sending is one request on its way, as often as it takes.
type sending struct {
	*client
	ctx    context.Context //nolint:containedctx // it lives as long as the call that makes it
	keys   *keys
	events []*ChangeEvent
	req    request
	began  time.Time
	tries  int
}

// deliverBatch sends a request until it is taken or there is no sense in going on.
// Whatever panics on the way, in an event that nobody thought of or in a
// RoundTripper, costs the events and nothing else.
func (c *client) deliverBatch(batch []item) (v verdict) {
	s := &sending{client: c, ctx: detached{c.root, batch[0].ctx}, began: time.Now(), events: make([]*ChangeEvent, len(batch))}
	defer func() {
		if p := recover(); p != nil {
			v = verdict{class: ClassEncode, permanent: true, attempts: s.tries, text: "panic: " + c.keys.current.Load().redactKeys(fmt.Sprint(p))}
		}
	}()
	for i := range batch {
		s.events[i] = &batch[i].event
		s.events[i].ID = idOf(s.events[i])
	}
	s.keys = c.keys.currentKeys(s.ctx)
	if err := s.encodeBody(); err != nil {
		return verdict{class: ClassEncode, permanent: true, text: err.Error()}
	}
	return s.runAttempts()
}

func (s *sending) encodeBody() (err error) {
	s.req, err = encodeEvents(s.cfg.Format, encoding{cluster: s.cluster, key: s.keys.body, links: s.cfg.Links, product: s.cfg.Product, strict: s.cfg.BaseFieldsOnly}, s.events)
	return err
}

func (s *sending) runAttempts() verdict {
	renewed := false
	for {
		if s.root.Err() != nil {
			return verdict{class: ClassShutdown, attempts: s.tries, text: errEnded.Error()}
		}
		s.tries++
		a := s.sendOnce()
		v := verdict{class: a.class, permanent: a.permanent, status: a.status, attempts: s.tries, text: s.keys.redactKeys(a.text)}
		if a.class == "" || s.tries == s.cfg.Retry.MaxAttempts {
			return v
		}
		if a.renewable() && !renewed {
			keys, changed := s.client.keys.renewKeys(s.ctx, s.keys)
			if renewed = changed; changed {
				if v, ok := s.retryWithNewKeys(a, v, keys); !ok {
					return v
				}
				continue
			}
		}
		if !a.retry || !s.awaitRetry(a) {
			return v
		}
	}
}

// retryWithNewKeys has the next attempt made with other keys, once the sink may be asked. It
// says false, and what becomes of the events, if there is to be none.
func (s *sending) retryWithNewKeys(a answer, v verdict, with *keys) (verdict, bool) {
	if !s.waitBeforeRetry(a, 0) {
		return v, false
	}
	s.keys = with
	if err := s.encodeBody(); err != nil {
		return verdict{class: ClassEncode, permanent: true, attempts: s.tries, text: err.Error()}, false
	}
	s.countRetry()
	return verdict{}, true
}

// awaitRetry waits for the next attempt. It says false if there is to be none.
func (s *sending) awaitRetry(a answer) bool {
	select {
	case <-s.closing:
		return false
	default:
	}
	if time.Since(s.began) >= s.cfg.Retry.MaxElapsedTime || !s.waitBeforeRetry(a, s.nextBackoff()) {
		return false
	}
	s.countRetry()
	return true
}

// oldestEventTime returns the time of the oldest event of the request.
func (s *sending) oldestEventTime() time.Time {
	oldest := s.events[0].Timestamp
	for _, e := range s.events[1:] {
		if e.Timestamp.Before(oldest) {
			oldest = e.Timestamp
		}
	}
	return oldest
}

func (s *sending) countRetry() {
	s.metrics.retries.Inc()
	s.tally.retries.Add(1)
}

// nextBackoff is how long to wait before the next attempt: anything up to a bound
// that doubles, so that those who failed together do not come back together.
func (s *sending) nextBackoff() time.Duration {
	bound := s.cfg.Retry.InitialInterval
	for range s.tries - 1 {
		if bound >= s.cfg.Retry.MaxInterval {
			break
		}
		bound *= 2
	}
	bound = min(bound, s.cfg.Retry.MaxInterval)
	return rand.N(bound + 1) //nolint:gosec // when a request comes is no secret
}

// pauseUntilClose waits, but not for longer than until Close.
func (c *client) pauseUntilClose(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closing:
	}
}

// sendOnce sends the request once.
func (s *sending) sendOnce() answer {
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.cfg.Timeout, errTimeout)
	defer cancel()
	began := time.Now()
	defer func() { s.metrics.took.Observe(time.Since(began).Seconds()) }()
	r, err := s.newRequest(ctx)
	if err != nil {
		return answer{class: ClassEncode, permanent: true, text: err.Error()}
	}
	resp, err := s.http.RoundTrip(r)
	if err != nil {
		return failureOf(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := answerOf(resp, time.Now())
	s.holdSink(a.after)
	return a
}

func (s *sending) newRequest(ctx context.Context) (*http.Request, error) {
	url, err := endpointURL(s.keys.endpoint, s.req.path)
	if err != nil {
		return nil, err
	}
	header := make(http.Header, len(s.req.header)+4)
	maps.Copy(header, s.req.header)
	header["Content-Type"] = []string{s.req.contentType}
	header["User-Agent"] = []string{"fleetloop"}
	if s.keys.auth != "" {
		header[s.cfg.AuthHeader] = []string{s.keys.auth}
	}
	body := s.req.body
	if len(s.keys.signing) > 0 {
		header["X-Fleetloop-Signature"] = []string{signBody(s.keys.signing, time.Now(), body)}
	}
	return (&http.Request{
		Method: http.MethodPost, URL: url, Host: url.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		// For a connection that the sink had closed before this was written to it.
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}).WithContext(ctx), nil
}

// signBody is the value of X-Fleetloop-Signature. The time is signed as well, so
// that a sink can refuse what somebody has kept and sends again.
func signBody(key []byte, now time.Time, body []byte) string {
	t := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// A detached context ends with the client, and has the values of the caller's.
type detached struct {
	context.Context //nolint:containedctx // it is one
	values          context.Context
}

// Value asks the client's first: it is how package context finds out which of
// its own a context ends with.
func (d detached) Value(key any) any {
	if v := d.Context.Value(key); v != nil || d.values == nil {
		return v
	}
	return d.values.Value(key)
}
