package sentinel

import (
	"context"
	"io"
	"net/url"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A requestRateLimiter limits the number of requests per second. Each caller that is too early waits for
// its slot.
type requestRateLimiter struct {
	interval time.Duration // between two slots

	mu   sync.Mutex
	next time.Time // the first free slot
}

// maxUnusedTime is how much unused time a burst of requests may use up.
const maxUnusedTime = 100 * time.Millisecond

// waitForSlot takes the next slot and waits for it.
func (p *requestRateLimiter) waitForSlot(ctx context.Context) error {
	now := time.Now()
	slot := p.takeSlot(now)
	if !slot.After(now) {
		return ctx.Err()
	}
	return backoff.Sleep(ctx, slot.Sub(now))
}

// takeSlot returns the next free slot, and reserves it for the caller.
func (p *requestRateLimiter) takeSlot(now time.Time) (slot time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	earliest := now.Add(-maxUnusedTime)
	if p.next.Before(earliest) {
		p.next = earliest
	}
	slot = p.next
	p.next = slot.Add(p.interval)
	return slot
}

// A rateLimitedAPI sends requests no faster than the configuration allows.
type rateLimitedAPI struct {
	api     api
	limiter *requestRateLimiter
}

// ListPage waits for a slot and reads a page.
func (p rateLimitedAPI) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error) {
	if err := p.limiter.waitForSlot(ctx); err != nil {
		return dst[:0], err
	}
	return p.api.ListPage(ctx, collection, q, dst)
}

// ListPageIf waits for a slot and reads a page that has changed.
func (p rateLimitedAPI) ListPageIf(
	ctx context.Context, collection string, q url.Values, etag string, dst []byte,
) (body []byte, rest io.ReadCloser, newETag string, err error) {
	if err := p.limiter.waitForSlot(ctx); err != nil {
		return dst[:0], nil, "", err
	}
	return p.api.ListPageIf(ctx, collection, q, etag, dst)
}

// Watch waits for a slot and starts a watch.
func (p rateLimitedAPI) Watch(ctx context.Context, collection string, q url.Values, handle func(v1.WatchEvent) error) error {
	if err := p.limiter.waitForSlot(ctx); err != nil {
		return err
	}
	return p.api.Watch(ctx, collection, q, handle)
}
