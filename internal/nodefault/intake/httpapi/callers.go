package httpapi

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	lru "k8s.io/apimachinery/pkg/util/cache"
)

// callers bound how much each caller sends.
type callers struct {
	rate  rate.Limit
	burst int

	mu    sync.Mutex
	known *lru.LRUExpireCache
}

const (
	keptCallers = 1024
	quiet       = 10 * time.Minute // after it a caller has its whole burst again
)

func newCallers(perSecond float64, burst int) *callers {
	return &callers{rate: rate.Limit(perSecond), burst: burst, known: lru.NewLRUExpireCache(keptCallers)}
}

// allow says whether a caller may send a request now.
func (c *callers) allow(caller string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := rate.NewLimiter(c.rate, c.burst)
	if was, ok := c.known.Get(caller); ok {
		if l, isOne := was.(*rate.Limiter); isOne {
			limit = l
		}
	}
	c.known.Add(caller, limit, quiet)
	return limit.AllowN(now, 1)
}
